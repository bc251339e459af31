//! Shows that whom to call may be written as gRPC writes it: a name the daemon looks up, a list of addresses, a name in
//! the network namespace.

mod raw;

use raw::*;
use trunkline_call::Code;
use trunkline_daemon::{Config, Daemon};

fn daemon(text: &str) -> Daemon {
    Daemon::embedded(Config::from_toml(text, "test").unwrap()).unwrap()
}

/// A daemon that listens there, with an application that answers.
fn far(listen: &str) -> Daemon {
    let far = daemon(&format!("[daemon]\nlisten = [\"{listen}\"]"));
    echo_in_thread(RawApp::attach(&far, "", true));
    far
}

fn port(daemon: &Daemon) -> &str {
    daemon.endpoints()[0].rsplit_once(':').unwrap().1
}

#[test]
fn a_target_may_be_a_name_or_a_list() {
    let (near, far) = (daemon(""), far("tcp://127.0.0.1:0"));
    let port = port(&far);
    // An endpoint, and the connection to it, is forgotten with the last that has named it.
    let mut clients = Vec::new();
    // To us 127.1 is no address but a name; the system's resolver knows it without asking anybody.
    for target in [
        format!("dns:///127.1:{port}"),
        format!("127.1:{port}"),
        format!("tcp://127.1:{port}"),
        format!("127.0.0.1:{port}"),
        format!("ipv4:127.0.0.1:{port},127.0.0.1:{port}"),
    ] {
        let mut client = RawApp::attach(&near, &target, false);
        for _ in 0..3 {
            assert_eq!(client.unary(b"hello").code, Code::Ok, "{target}");
        }
        clients.push(client);
    }
    // All of them mean one endpoint, and share its connections.
    assert_eq!(near.observe(&Default::default())[0].snapshot.peers.len(), 1);
}

#[test]
fn a_services_endpoint_may_be_a_name() {
    let far = far("tcp://127.0.0.1:0");
    let near = daemon(&format!("[services.\"raw.Echo\"]\nendpoints = [\"dns:///127.1:{}\"]", port(&far)));
    let mut client = RawApp::attach(&near, "", false);
    assert_eq!(client.unary(b"hello").code, Code::Ok);
}

#[test]
fn a_target_may_be_a_name_in_the_network_namespace() {
    let listen = format!("unix-abstract:trunkline-names-{}", std::process::id());
    let (near, _far) = (daemon(""), far(&listen));
    let mut client = RawApp::attach(&near, &listen, false);
    assert_eq!(client.unary(b"hello").code, Code::Ok);
}
