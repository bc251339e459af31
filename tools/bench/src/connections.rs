//! What gRPC connections cost that are open and do nothing: resident memory of the server for each.
//!
//! Every server meets the same client: plain sockets of ours, each of which makes one call and then stays. So what a
//! connection needs for its first call is there, and what of it is kept afterwards is what is counted. The kernel's own
//! memory for a socket is not.

use crate::children::{Child, Failure, Talker};
use crate::foreign::{ANY_PORT, Foreign, Library};
use crate::ours;
use crate::processes::pss_bytes;
use crate::stats::short;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// Connections held.
pub const CONNECTIONS: usize = 10_000;
/// Connections before it is counted: what a server needs once is there then.
const FIRST: usize = 10;
/// For the last connection's work to be over.
const SETTLE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(120);
/// Descriptors of a process besides its connections.
const DESCRIPTORS_SPARE: u64 = 1000;

/// The servers that are looked at.
#[derive(Clone, Copy, Debug)]
enum Server {
    Ours,
    Envoy,
    GrpcGo,
    GrpcCpp,
    Tonic,
}

/// One server with its connections.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    pub server: &'static str,
    pub connections: usize,
    /// Growth of its proportional memory by a connection; or why it is absent.
    pub bytes_each: Result<f64, String>,
}

impl Server {
    const ALL: [Self; 5] = [Self::Ours, Self::Envoy, Self::GrpcGo, Self::GrpcCpp, Self::Tonic];

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "trunkline daemon",
            Self::Envoy => "Envoy",
            Self::GrpcGo => "grpc-go",
            Self::GrpcCpp => "gRPC C++",
            Self::Tonic => "tonic",
        }
    }

    /// Starts it; the first process is the one whose memory counts.
    fn start(self, dir: &Path, foreign: &Foreign) -> Result<(Vec<Child>, String), Failure> {
        let one = |(server, address)| (vec![server], address);
        match self {
            Self::Ours => ours::start_server(dir),
            Self::GrpcGo => foreign.server(Library::GrpcGo, dir).map(one),
            Self::Tonic => foreign.server(Library::Tonic, dir).map(one),
            Self::GrpcCpp => foreign.cpp_server(dir, "queue", ANY_PORT).map(one),
            Self::Envoy => {
                let (server, upstream) = foreign.cpp_server(dir, "queue", ANY_PORT)?;
                let (proxy, address) = foreign.proxy(Library::Envoy, dir, "in", &upstream)?;
                Ok((vec![proxy, server], address))
            }
        }
    }
}

/// What of the field's this needs.
pub const LIBRARIES: [Library; 4] = [Library::Envoy, Library::GrpcGo, Library::GrpcCpp, Library::Tonic];

/// Holds connections to one server after the other.
pub fn measure(foreign: &Foreign, connections: usize) -> Result<Vec<Held>, Failure> {
    allow_descriptors(connections)?;
    let held = Server::ALL.map(|server| {
        let bytes_each = bytes_each(server, foreign, connections).map_err(|error| error.to_string());
        match &bytes_each {
            Ok(bytes) => {
                eprintln!("{connections} connections to {}: {} B each", server.name(), short(*bytes))
            }
            Err(why) => eprintln!("{connections} connections to {}: absent, {why}", server.name()),
        }
        Held { server: server.name(), connections, bytes_each }
    });
    Ok(held.into())
}

fn bytes_each(server: Server, foreign: &Foreign, connections: usize) -> Result<f64, Failure> {
    let dir = tempfile::tempdir()?;
    let (processes, address) = server.start(dir.path(), foreign)?;
    let measured = [processes.first().ok_or("no process")?.pid()];
    let _first = holder(&address, FIRST)?;
    std::thread::sleep(SETTLE);
    let before = pss_bytes(&measured)?;
    let _rest = holder(&address, connections)?;
    std::thread::sleep(SETTLE);
    let after = pss_bytes(&measured)?;
    Ok((after as f64 - before as f64) / connections as f64)
}

/// A process that holds connections; it has them all when this returns.
fn holder(address: &str, count: usize) -> Result<Talker, Failure> {
    let mut holder = Talker::start(&mut Child::role_command(&["hold", address, &count.to_string()])?)?;
    holder.hear(PATIENCE)?;
    Ok(holder)
}

/// Lets this process, and those it starts, have so many descriptors.
pub fn allow_descriptors(connections: usize) -> Result<(), Failure> {
    let wanted = connections as u64 + DESCRIPTORS_SPARE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < wanted) {
        return Err(format!("{connections} connections need {wanted} descriptors (ulimit -Hn)").into());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?)
}

/// Opens `count` connections, makes one call on each, and holds them; says so on standard output.
pub fn hold(address: &str, count: usize) -> Result<(), Failure> {
    let connections: Result<Vec<TcpStream>, Failure> = (0..count).map(|_| call_once(address)).collect();
    let connections = connections?;
    println!("{} held", connections.len());
    loop {
        std::thread::park();
    }
}

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The one stream of a connection here.
const STREAM: u8 = 1;

/// A connection that has made a call.
fn call_once(address: &str) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut opening, SETTINGS, 0, 0, &[]);
    frame(&mut opening, HEADERS, END_HEADERS, STREAM, &request_head(address));
    // A message of no bytes behind its prefix.
    frame(&mut opening, DATA, END_STREAM, STREAM, &[0; 5]);
    stream.write_all(&opening)?;
    let mut answered = false;
    loop {
        let (kind, flags, stream_id, payload) = read_frame(&mut stream)?;
        match kind {
            SETTINGS if flags & ACK == 0 => {
                let mut acknowledgement = Vec::new();
                frame(&mut acknowledgement, SETTINGS, ACK, 0, &[]);
                stream.write_all(&acknowledgement)?;
            }
            GOAWAY => return Err("the server sends the connection away".into()),
            DATA => answered |= stream_id == STREAM && !payload.is_empty(),
            HEADERS if flags & END_STREAM != 0 => {
                return if answered { Ok(stream) } else { Err("the call failed".into()) };
            }
            _ => {}
        }
    }
}

/// The head of a call in HPACK (RFC 7541): indexed where the static table has it, else literal and never indexed, so
/// that nothing depends on the connection's state.
fn request_head(authority: &str) -> Vec<u8> {
    const POST: u8 = 0x83;
    const HTTP: u8 = 0x86;
    let mut head = vec![POST, HTTP];
    let mut literal = |name: &[u8], value: &str| {
        head.extend_from_slice(name);
        // Shorter than 127 bytes, so that one byte is the length.
        head.push(value.len() as u8);
        head.extend_from_slice(value.as_bytes());
    };
    literal(&[0x04], "/bench.v1.Bench/Small");
    literal(&[0x01], authority);
    // Names beyond the 15th entry take two bytes: content-type is the 31st.
    literal(&[0x0f, 31 - 15], "application/grpc");
    literal(b"\x00\x02te", "trailers");
    head
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
    // Payloads here are shorter than 256 bytes.
    out.extend_from_slice(&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream]);
    out.extend_from_slice(payload);
}

fn read_frame(stream: &mut TcpStream) -> Result<(u8, u8, u8, Vec<u8>), Failure> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head)?;
    let [a, b, c, kind, flags, _, _, _, stream_id] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload)?;
    Ok((kind, flags, stream_id, payload))
}

/// As the documents have it.
pub fn markdown(held: &[Held]) -> String {
    let Some(Held { connections, .. }) = held.first() else { return String::new() };
    let mut table = format!(
        "\n### {connections} idle gRPC connections, one call made on each\n\n\
         | server | resident memory for each connection |\n|---|---|\n"
    );
    for Held { server, bytes_each, .. } in held {
        table += &match bytes_each {
            Ok(bytes) => format!("| {server} | {} KiB |\n", short(bytes / 1024.0)),
            Err(why) => format!("| {server} | absent: {why} |\n"),
        };
    }
    table
}

#[cfg(test)]
mod tests {
    //! A connection is held only if its call was answered, and is kept afterwards.
    use super::*;
    use crate::children::{START_LOOKS, START_PAUSE};
    use crate::work::Work;

    #[test]
    fn a_call_is_made_on_each_connection() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.sock");
        let config = format!("[daemon]\nsocket = {socket:?}\nlisten = [\"tcp://127.0.0.1:0\"]");
        let config = trunkline_daemon::Config::from_toml(&config, "test").unwrap();
        let daemon = trunkline_daemon::Daemon::start(config).unwrap();
        let address = daemon.endpoints()[0].strip_prefix("tcp://").unwrap().to_owned();
        assert_eq!(call_once(&address).unwrap_err().to_string(), "the call failed", "nobody serves it");
        std::thread::spawn(move || ours::serve(&socket, Work::Bytes).unwrap());
        let held = (0..START_LOOKS).find_map(|_| {
            std::thread::sleep(START_PAUSE);
            call_once(&address).ok()
        });
        assert!(held.is_some());
    }
}
