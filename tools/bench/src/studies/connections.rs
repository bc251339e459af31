//! What gRPC connections cost that are open and do nothing: resident memory of the server for each.
//!
//! Every server meets the same client: plain sockets of ours, each of which makes one call and then stays. So what a
//! connection needs for its first call is there, and what of it is kept afterwards is what is counted. The kernel's own
//! memory for a socket is not.

use crate::harness::children::{Child, Failure, Talker};
use crate::harness::processes::pss_bytes;
use crate::harness::rounds::{Plan, Turns};
use crate::harness::work::Work;
use crate::peers::foreign::Foreign;
use crate::peers::hosts::Started;
use crate::peers::peer::Route;
use crate::report::sheet::{Results, Sheet};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Connections before it is counted: what a server needs once is there then.
const FIRST: usize = 10;
/// For the last connection's work to be over.
const SETTLE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(120);
/// Descriptors of a process besides its connections.
const DESCRIPTORS_SPARE: u64 = 1000;

/// The servers that are looked at, and the routes to them: what is first there is whose memory counts.
const SERVERS: [(&str, &[&str]); 5] = [
    ("trunkline daemon", &["trunkline"]),
    ("Envoy", &["envoy", "grpc-cpp"]),
    ("grpc-go", &["grpc-go"]),
    ("gRPC C++", &["grpc-cpp"]),
    ("tonic", &["tonic"]),
];

/// Holds connections to one server after the other.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
    allow_descriptors(plan.connections)?;
    let mut turns = Turns::new("connections", plan);
    let held =
        turns.start(SERVERS.map(|(name, _)| name), |server| kib_each(server, foreign, plan.connections));
    let title = format!("{} idle gRPC connections, one call made on each", plan.connections);
    let sheet = Sheet::new("connections", title, "server", &["resident memory for each connection, KiB"]);
    let sheet = held.iter().fold(sheet, |sheet, held| sheet.with_row(&held.name, &[held.stage]));
    Ok(Results { sheets: vec![sheet], absent: turns.absent })
}

/// By how much a server's proportional memory grows by a connection.
fn kib_each(server: &str, foreign: &Foreign, connections: usize) -> Result<f64, Failure> {
    let dir = tempfile::tempdir()?;
    let route = SERVERS.iter().find(|(name, _)| *name == server).map_or(&[][..], |(_, route)| route);
    let route: Vec<String> = route.iter().map(|part| (*part).to_owned()).collect();
    let on = Route { dir: dir.path(), form: "queue", work: Work::Bytes, foreign };
    let Started { processes, address, .. } = on.start(&route)?;
    let measured = [processes.first().ok_or("no process")?.pid()];
    let _first = holder(&address, FIRST)?;
    std::thread::sleep(SETTLE);
    let before = pss_bytes(&measured)?;
    let _rest = holder(&address, connections)?;
    std::thread::sleep(SETTLE);
    let kib = (pss_bytes(&measured)? as f64 - before as f64) / connections as f64 / 1024.0;
    eprintln!("{connections} connections to {server}: {kib:.1} KiB each");
    Ok(kib)
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

#[cfg(test)]
mod tests {
    //! A connection is held only if its call was answered, and is kept afterwards.
    use super::*;
    use crate::harness::children::once_there;
    use crate::peers::ours;

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
        once_there(|| call_once(&address)).unwrap();
    }
}
