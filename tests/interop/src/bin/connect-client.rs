//! The client under test of connectrpc's conformance runner, behind daemons of its own: how requests are compressed and
//! how large a message may be is a daemon's to say, so there is one for each pair of the two.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use trunkline::Channel;
use trunkline_interop::connect::{Words, serve_calls};
use trunkline_interop::host::{Dial, Host, HostError};
use trunkline_interop::proto::connectrpc::conformance::v1::{ClientCompatRequest, Compression};

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
    let mut hosts = HashMap::new();
    let open = |request: &ClientCompatRequest| channel(&mut hosts, request).map_err(io::Error::other);
    Ok(serve_calls(&mut io::stdin().lock(), io::stdout(), open, Words::new()?)?)
}

fn channel(
    hosts: &mut HashMap<(&'static str, u32), Host>,
    request: &ClientCompatRequest,
) -> Result<Channel, HostError> {
    let dial = Dial {
        host: request.host.clone(),
        port: u16::try_from(request.port).unwrap_or_default(),
        encoding: encoding(request.compression),
        message_bytes_max: request.message_receive_limit,
        ..Dial::default()
    };
    let key = (dial.encoding, dial.message_bytes_max);
    let host = match hosts.entry(key) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(Host::start(&dial.config())?),
    };
    Ok(host.channel(&dial.target()))
}

fn encoding(compression: Compression) -> &'static str {
    match compression {
        Compression::Gzip => "gzip",
        Compression::Deflate => "deflate",
        Compression::Zstd => "zstd",
        _ => "",
    }
}
