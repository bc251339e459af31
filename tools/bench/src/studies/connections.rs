//! What gRPC connections cost that are open and do nothing: resident memory of the server for each.
//!
//! Every server meets the same client, connections of `h2`, each of which makes one call and then stays. So what a
//! connection needs for its first call is there, and what of it is kept afterwards is what is counted. The kernel's own
//! memory for a socket is not.

use super::data::sheet;
use crate::harness::children::{Failure, Talker, role_command};
use crate::harness::rounds::{Plan, Turns};
use crate::harness::work::Work;
use crate::peers::foreign::Foreign;
use crate::peers::hosts::Started;
use crate::peers::peer::PeerRoute;
use crate::report::sheet::Results;
use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use trunkline_measure::pss_bytes;

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
    let held = turns.start(SERVERS, |route| kib_each(route, foreign, plan.connections));
    let sheet = sheet("connections", &[("count", &plan.connections)])?;
    let sheet = held.iter().fold(sheet, |sheet, held| sheet.with_row(&held.name, &[held.stage]));
    Ok(Results { sheets: vec![sheet], absent: turns.absent })
}

/// By how much a server's proportional memory grows by a connection.
fn kib_each(route: &[&str], foreign: &Foreign, connections: usize) -> Result<f64, Failure> {
    let dir = tempfile::tempdir()?;
    let on = PeerRoute { dir: dir.path(), form: "queue", work: Work::Bytes, foreign };
    let Started { processes, address, .. } = on.start(route)?;
    let measured = [processes.first().ok_or("no process")?.pid()];
    let _first = holder(&address, FIRST)?;
    std::thread::sleep(SETTLE);
    let before = pss_bytes(&measured)?;
    let _rest = holder(&address, connections)?;
    std::thread::sleep(SETTLE);
    let kib = (pss_bytes(&measured)? as f64 - before as f64) / connections as f64 / 1024.0;
    eprintln!("{connections} connections to {}: {kib:.1} KiB each", route[0]);
    Ok(kib)
}

/// A process that holds connections; it has them all when this returns.
fn holder(address: &str, count: usize) -> Result<Talker, Failure> {
    let mut holder = Talker::start(&mut role_command(&["hold", address, &count.to_string()])?)?;
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
    runtime()?.block_on(async {
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(call_once(address).await?);
        }
        println!("{} held", held.len());
        std::future::pending().await
    })
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()
}

/// A connection that has made a call.
async fn call_once(address: &str) -> Result<SendRequest<Bytes>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut client, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    let head = Request::post(format!("http://{address}/bench.v1.Bench/Small"));
    let head = head.header("content-type", "application/grpc").header("te", "trailers").body(())?;
    let (response, mut request) = client.send_request(head, false)?;
    // A message of no bytes behind its prefix.
    request.send_data(Bytes::from_static(&[0; 5]), true)?;
    let mut answer = response.await?.into_body();
    answer.data().await.ok_or("the call failed")??;
    answer.trailers().await?.ok_or("the call has no end")?;
    Ok(client)
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
        let call = || runtime().unwrap().block_on(call_once(&address));
        assert_eq!(call().unwrap_err().to_string(), "the call failed", "nobody serves it");
        std::thread::spawn(move || ours::serve(&socket, Work::Bytes).unwrap());
        once_there(call).unwrap();
    }
}
