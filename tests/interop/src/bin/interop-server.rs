//! gRPC's interoperability server: serves `grpc.testing.TestService` behind a daemon of its own, or behind the one that
//! `TRUNKLINE_SOCKET` names.

use clap::{ArgAction, Parser};
use std::path::PathBuf;
use std::process::ExitCode;
use trunkline::{Server, Wait};
use trunkline_interop::host::{Host, Listen};
use trunkline_interop::proto::grpc::testing::test_service_server::TestServiceServer;
use trunkline_interop::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer;
use trunkline_interop::testing::TestServer;

/// Serves grpc.testing.TestService; flags are those of gRPC's own interoperability servers
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
struct Args {
    /// Port of the daemon, if it is this program's own
    #[arg(long, default_value_t = 10_000)]
    port: u16,
    /// Speak TLS only
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    use_tls: bool,
    /// Certificate chain (PEM)
    #[arg(long, requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// Roots of clients' certificates (PEM): clients must show one
    #[arg(long, requires = "tls_cert_file")]
    tls_client_ca_file: Option<PathBuf>,
    /// Streams a connection may have at once; 0 for the daemon's own limit
    #[arg(long, default_value_t = 0)]
    max_concurrent_streams: u32,
    /// Threads that answer
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Serve nothing of TestService, to show which cases pass against anything
    #[arg(long)]
    without_service: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let listen = Listen {
        port: args.port,
        tls: args.use_tls,
        certificate: args.tls_cert_file.clone().zip(args.tls_key_file.clone()),
        client_ca: args.tls_client_ca_file.clone(),
        streams_max: args.max_concurrent_streams,
        ..Listen::default()
    };
    let host = Host::find_or_start(&listen.config()?)?;
    let (service, orca) = TestServer::new();
    let mut server = Server::builder().name("interop-server").socket(host.socket()).workers(args.workers);
    server = server.in_tokio().add_service(OpenRcaServiceServer::new(orca));
    if !args.without_service {
        server = server.add_service(TestServiceServer::new(service));
    }
    let server = server.spawn()?;
    server.ready().wait()?;
    println!("serving on port {}", args.port);
    Ok(server.wait()?)
}
