//! The server under test of connectrpc's conformance runner, behind a daemon of its own.

use std::error::Error;
use std::io;
use std::process::ExitCode;
use trunkline::{Server, Wait};
use trunkline_interop::connect::{ConformanceServer, Words};
use trunkline_interop::framed::{self, ByteOrder};
use trunkline_interop::host::{Host, Listen, free_port};
use trunkline_interop::proto::connectrpc::conformance::v1::conformance_service_server::ConformanceServiceServer;
use trunkline_interop::proto::connectrpc::conformance::v1::{ServerCompatRequest, ServerCompatResponse};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("connect-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let words = Words::new()?;
    let mut stdin = io::stdin().lock();
    let request = framed::read(&mut stdin, ByteOrder::Big)?.ok_or("the runner said nothing")?;
    let request: ServerCompatRequest = words.codec().decode(&request)?;
    if request.use_tls {
        return Err("only cleartext is served here; leave TLS out of the runner's configuration".into());
    }
    let port = free_port()?;
    let listen = Listen { port, message_bytes_max: request.message_receive_limit, ..Listen::default() };
    let host = Host::start(&listen.config()?)?;
    let response = ServerCompatResponse { host: "127.0.0.1".into(), port: port.into(), pem_cert: Vec::new() };
    let response = words.codec().encode(&response)?;
    let server = Server::builder().name("connect-server").socket(host.socket()).in_tokio();
    let server = server.add_service(ConformanceServiceServer::new(ConformanceServer::new(words))).spawn()?;
    server.ready().wait()?;
    framed::write(&mut io::stdout().lock(), ByteOrder::Big, &response)?;
    // The runner sends a signal when it has seen enough; the daemon ends with this process.
    Ok(server.wait()?)
}
