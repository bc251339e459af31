//! Shows that every case of gRPC's interoperability tests passes between our client and our server behind two daemons:
//! over the native protocol, by gRPC in cleartext, and by gRPC over TLS; and which cases prove something, by those that
//! fail against a server without the service.

mod gate;

use gate::{Keys, NAME};
use std::net::SocketAddr;
use std::path::PathBuf;
use tempfile::TempDir;
use trunkline::{Channel, Server, ServerHandle, Wait};
use trunkline_daemon::{Config, Daemon};
use trunkline_interop::proto::grpc::testing::test_service_server::TestServiceServer;
use trunkline_interop::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer;
use trunkline_interop::testing::{ALL, Caller, Case, Soak, TestServer};

/// What the daemons speak to each other.
#[derive(Clone, Copy, Debug)]
enum Road {
    Native,
    Grpc,
    GrpcOverTls,
}

/// Two daemons, a server at one, a client at the other.
struct Stage {
    caller: Caller,
    _server: ServerHandle,
    _daemons: [Daemon; 2],
    _folder: TempDir,
    _runtime: tokio::runtime::Runtime,
}

/// Cases that a server without the service may pass, too: one of gRPC implements nothing, and a call that is cancelled,
/// or has a millisecond, may be over before it says so.
const ANYWHERE: [&str; 4] =
    ["timeout_on_sleeping_server", "cancel_after_begin", "unimplemented_method", "unimplemented_service"];

fn stage(road: Road, with_service: bool) -> Stage {
    trunkline_test_logs::watch();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let keys = matches!(road, Road::GrpcOverTls).then(|| Keys::new(folder.path()));
    let (mut serves, mut calls) = (String::new(), String::new());
    if let Some(Keys { ca, certificate, key }) = &keys {
        serves = format!("[tls]\nrequired = true\ncertificate = {certificate:?}\nkey = {key:?}\n");
        calls = format!("[tls]\nca = {ca:?}\n");
    }
    if matches!(road, Road::Grpc) {
        calls = "[grpc]\nalways = true\n".to_owned();
    }
    let (serving, served_at) = daemon(&folder, "server", "listen = [\"tcp://127.0.0.1:0\"]", &serves);
    let (calling, called_at) = daemon(&folder, "client", "", &calls);
    let endpoint = serving.endpoints()[0].clone();
    let address: SocketAddr = endpoint.strip_prefix("tcp://").unwrap().parse().unwrap();
    let target = match road {
        Road::Native | Road::Grpc => endpoint,
        Road::GrpcOverTls => {
            let keys = keys.as_ref().expect("made above");
            format!("tls://{NAME}@{}", gate::open(&runtime, address, keys))
        }
    };

    let entered = runtime.handle().clone();
    let (service, orca) = TestServer::new();
    let mut server = Server::builder().socket(served_at).add_service(OpenRcaServiceServer::new(orca));
    server = server.worker_scope(move |work| {
        let _entered = entered.enter();
        work();
    });
    if with_service {
        server = server.add_service(TestServiceServer::new(service));
    }
    let server = server.spawn().unwrap();
    server.ready().wait().unwrap();
    let open = move || Channel::builder().socket(&called_at).target(&target).connect_lazy();
    // On a loaded machine a call may take its time.
    let soak = Soak { max_acceptable_latency_ms: 20_000, overall_timeout_seconds: 60, ..Soak::default() };
    let caller = Caller::new(open).with_soak(soak);
    Stage { caller, _server: server, _daemons: [serving, calling], _folder: folder, _runtime: runtime }
}

fn daemon(folder: &TempDir, name: &str, keys: &str, tables: &str) -> (Daemon, PathBuf) {
    let socket = folder.path().join(name);
    let config = format!("[daemon]\nsocket = {socket:?}\n{keys}\n{tables}");
    (Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap(), socket)
}

/// Cases that fail, with what they say.
fn failures(stage: &Stage) -> Vec<(&'static str, String)> {
    let play = |(name, play): &Case| Some((*name, play(&stage.caller).err()?.to_string()));
    ALL.iter().filter_map(play).collect()
}

#[test]
fn every_case_passes_natively() {
    let failed = failures(&stage(Road::Native, true));
    // Between daemons a service that nobody serves may yet be attached: it is unavailable, and not executed. To a gRPC
    // peer it is unimplemented.
    assert!(
        matches!(failed.as_slice(), [("unimplemented_service", why)] if why.contains("Unavailable")),
        "{failed:?}"
    );
}

#[test]
fn every_case_passes_by_grpc() {
    assert_eq!(failures(&stage(Road::Grpc, true)), []);
}

#[test]
fn every_case_passes_by_grpc_over_tls() {
    assert_eq!(failures(&stage(Road::GrpcOverTls, true)), []);
}

#[test]
fn without_the_service_no_case_passes_that_needs_it() {
    let needs_it = |name: &&str| !ANYWHERE.contains(name);
    let wanted: Vec<&str> = ALL.iter().map(|(name, _)| *name).filter(needs_it).collect();
    for road in [Road::Native, Road::Grpc] {
        let failed = failures(&stage(road, false)).into_iter().map(|(name, _)| name).filter(needs_it);
        assert_eq!(failed.collect::<Vec<_>>(), wanted, "{road:?}");
    }
}
