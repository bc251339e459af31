//! Shows mirrors over real daemons: every call has one copy, which a shadow on another host executes; and that neither
//! a shadow that never answers nor one that is killed is noticed by those who call.

use crate::support::{Host, client, until, until_served};
use std::fmt::Write;
use std::net::TcpListener;
use trunkline::{Request, Wait};
use trunkline_system_tests::proto::probe::Text;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;

/// Makes calls with these numbers, which servers log. None may fail.
fn call(client: &ProbeClient, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let request = Request::new(Text { text: format!("call {number}") });
        let request = request.with_metadata("log", number.to_string()).unwrap();
        let reply = client.echo(request).wait().unwrap_or_else(|status| panic!("call {number}: {status}"));
        assert_eq!(reply.into_inner().text, format!("call {number}"));
    }
}

/// What servers on a host have executed.
fn executed(host: &Host) -> Vec<u64> {
    let log = std::fs::read_to_string(host.log()).unwrap_or_default();
    let mut numbers: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Has the daemon of a host send copies of all echoes to `target`, each of which may take so long.
fn mirror(host: &mut Host, target: &str, timeout_ms: u32) {
    let mut text = String::from("[[policy]]\nname = \"shadow\"\nkind = \"mirror\"\nside = \"client\"\n");
    let scope = "service = \"probe.v1.Probe\"\nmethod = \"Echo\"\n";
    let _ = write!(text, "{scope}timeout_ms = {timeout_ms}\ntarget = {target:?}\ncalls_max = 512\n");
    let file = host.folder().join("mirror.toml");
    std::fs::write(&file, text).unwrap();
    let applied = host.daemon().ask(&format!("policies {}", file.display()));
    assert_eq!(applied, "applied, 0 upgraded");
}

#[test]
fn a_shadow_sees_every_call_and_nobody_sees_the_shadow() {
    let (primary, mut shadow) = (Host::over_tcp(), Host::over_tcp());
    let (_server, shadow_server) = (primary.server("server"), shadow.server("server"));
    let mut near = Host::routed_to(&primary);
    let client = client(&near, "");
    until_served(&client);
    mirror(&mut near, shadow.endpoint(), 600_000);
    call(&client, 0..300);
    until("every copy to be executed", || (executed(&shadow).len() >= 300).then_some(()));
    assert_eq!(executed(&shadow), (0..300).collect::<Vec<_>>(), "each once");

    shadow.kill_daemon();
    drop(shadow_server);
    call(&client, 300..400);
    assert_eq!(executed(&shadow).len(), 300);

    // It takes connections, and that is all it does.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    mirror(&mut near, &format!("tcp://{}", silent.local_addr().unwrap()), 1000);
    call(&client, 400..600);
    assert_eq!(executed(&primary), (0..600).collect::<Vec<_>>());
    near.until_idle();
}
