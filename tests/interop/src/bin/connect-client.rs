//! The client under test of connectrpc's conformance runner, behind a daemon of its own.

use std::error::Error;
use std::io;
use std::process::ExitCode;
use trunkline_interop::connect::{Words, serve_calls};
use trunkline_interop::host::{Dial, Host};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("connect-client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let host = Host::start(&Dial::default().config()?)?;
    let open = |request: &trunkline_interop::proto::connectrpc::conformance::v1::ClientCompatRequest| {
        let port = u16::try_from(request.port).unwrap_or_default();
        host.channel(&Dial { host: request.host.clone(), port, ..Dial::default() }.target())
    };
    Ok(serve_calls(&mut io::stdin().lock(), io::stdout(), open, Words::new()?)?)
}
