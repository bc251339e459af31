//! Shows that the same program gives the same answers wherever the engine runs, and that nothing of it is left there.

use crate::support::{Host, Process};
use std::sync::OnceLock;
use trunkline_system_tests::scenario::ALL;

/// What every scenario says when everything happens inside one process.
pub fn embedded() -> &'static [String] {
    static SAID: OnceLock<Vec<String>> = OnceLock::new();
    SAID.get_or_init(|| run(&mut Process::start(&["both"], &[("TRUNKLINE_EMBEDDED", "1".into())])))
}

fn run(client: &mut Process) -> Vec<String> {
    ALL.iter().map(|(name, _)| client.ask(&format!("scenario {name}"))).collect()
}

/// Runs every scenario in a client on `near` and compares; `far` is the host of the server if it is another one.
fn same_as_embedded(mut near: Host, far: Option<Host>, target: &str) {
    let server = far.as_ref().unwrap_or(&near).server("server");
    let mut client = near.client(target);
    for ((name, _), expected) in ALL.iter().zip(embedded()) {
        let said = client.ask(&format!("scenario {name}"));
        assert!(said.starts_with("ok: "), "{name}: {said}");
        assert_eq!(said, *expected, "{name}");
    }
    drop(client);
    near.until_idle();
    if let Some(mut far) = far {
        near.until_held("sessions", 0);
        far.until_idle();
    }
    drop(server);
}

#[test]
fn every_scenario_succeeds_embedded() {
    for ((name, _), said) in ALL.iter().zip(embedded()) {
        assert!(said.starts_with("ok: "), "{name}: {said}");
    }
}

#[test]
fn through_one_daemon() {
    same_as_embedded(Host::alone(), None, "");
}

#[test]
fn through_two_daemons_over_tcp() {
    let far = Host::over_tcp();
    let target = far.endpoint().to_owned();
    same_as_embedded(Host::alone(), Some(far), &target);
}

/// The first daemon speaks gRPC with the gateway, which speaks the native protocol, or gRPC, with the last.
#[test]
fn through_a_gateway() {
    let large = "[limits]\ngrpc_message_bytes = \"16 MiB\"\n";
    for more in ["", "[grpc]\nalways = true\n"] {
        let far = Host::over_tcp_as(large);
        let mut gateway = Host::gateway_to(&far, &format!("{large}{more}"));
        same_as_embedded(Host::routed_as(vec![gateway.gateway()], "", large), Some(far), "");
        gateway.until_idle();
    }
}

#[test]
fn through_two_daemons_over_a_unix_socket_by_configuration() {
    let far = Host::over_unix();
    same_as_embedded(Host::routed_to(&far), Some(far), "");
}
