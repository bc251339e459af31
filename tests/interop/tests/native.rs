//! Shows that every case of gRPC's interoperability tests passes between our client and our server behind two daemons,
//! over the native protocol, and that none passes against a server without the service.

use std::path::PathBuf;
use trunkline::{Channel, Server, ServerHandle, Wait};
use trunkline_daemon::{Config, Daemon};
use trunkline_interop::proto::grpc::testing::test_service_server::TestServiceServer;
use trunkline_interop::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer;
use trunkline_interop::testing::{ALL, Caller, Case, TestServer};

/// Two daemons, a server at one, a client at the other.
struct Stage {
    caller: Caller,
    _server: ServerHandle,
    _daemons: [Daemon; 2],
    _folder: tempfile::TempDir,
    _timers: tokio::runtime::Runtime,
}

fn stage(with_service: bool) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let daemon = |name: &str, listen: &str| -> (Daemon, PathBuf) {
        let socket = folder.path().join(name);
        let config = format!("[daemon]\nsocket = {socket:?}\nlisten = [{listen}]\n");
        (Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap(), socket)
    };
    let (serving, served_at) = daemon("server.sock", "\"tcp://127.0.0.1:0\"");
    let (calling, called_at) = daemon("client.sock", "");
    let target = serving.endpoints()[0].clone();

    let timers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let entered = timers.handle().clone();
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
    let daemons = [serving, calling];
    Stage { caller: Caller::new(open), _server: server, _daemons: daemons, _folder: folder, _timers: timers }
}

/// Cases that fail, with what they say.
fn failures(stage: &Stage) -> Vec<(&'static str, String)> {
    let play = |(name, play): &Case| Some((*name, play(&stage.caller).err()?.to_string()));
    ALL.iter().filter_map(play).collect()
}

#[test]
fn every_case_passes() {
    let failed = failures(&stage(true));
    // Between daemons a service that nobody serves may yet be attached: it is unavailable, and not executed. To a gRPC
    // peer it is unimplemented.
    assert!(
        matches!(failed.as_slice(), [("unimplemented_service", why)] if why.contains("Unavailable")),
        "{failed:?}"
    );
}

#[test]
fn without_the_service_no_case_passes() {
    assert_eq!(failures(&stage(false)).len(), ALL.len());
}
