//! Shows that a chain of calls, each made by the handler of the one before it, ends whoever ends it: over three
//! servers, as many calls for each as one session may make.

use crate::support::{Host, Process, channel, client, echo, until};
use std::future::IntoFuture;
use std::time::{Duration, Instant};
use trunkline::{Code, Request, Wait};
use trunkline_system_tests::proto::probe::order::Task;
use trunkline_system_tests::scenario::Stage;

/// Calls that handlers make: 4,090 for each of three servers.
const LINKS: u32 = 3 * 4_090;

/// The servers share calls as they are free, not to the call: each may make a few more than the others.
const MORE: &str = "[limits]\ncalls_made_per_session = 16384\ncalls_delivered_per_session = 16384\n";

struct Scene {
    host: Host,
    servers: Vec<Process>,
}

impl Scene {
    fn new() -> Self {
        let host = Host::over_tcp_as(MORE);
        let servers = (0..3).map(|_| host.server("server")).collect();
        Self { host, servers }
    }

    /// Every handler is at work.
    fn until_whole(&mut self) {
        self.host.until_held("delivered", u64::from(LINKS) + 1);
        let held = self.host.held();
        assert_eq!(held.of("made"), u64::from(LINKS) + 1);
    }

    /// Nothing is left of the calls, and the next one is served as ever.
    fn until_over(&mut self) {
        self.host.until_idle();
        let probe = client(&self.host, "");
        until("somebody serving", || echo(&probe, "after").ok());
        self.host.until_idle();
    }
}

#[test]
fn a_chain_that_is_cancelled_at_its_head_ends() {
    let mut scene = Scene::new();
    let stage = Stage::new(channel(&scene.host, ""), "cancelled");
    let mut call = stage.client().r#do(stage.order("chain", Task::Chain(LINKS))).into_future();
    stage.begin(&mut call).unwrap();
    scene.until_whole();
    drop(call);
    scene.until_over();
}

#[test]
fn a_chain_whose_client_dies_ends() {
    let mut scene = Scene::new();
    let mut victim = scene.host.client("");
    assert_eq!(victim.ask(&format!("chain {LINKS}")), "begun");
    scene.until_whole();
    victim.kill();
    scene.until_over();
}

#[test]
fn a_chain_one_of_whose_servers_dies_ends() {
    let mut scene = Scene::new();
    let mut victim = scene.host.client("");
    assert_eq!(victim.ask(&format!("chain {LINKS}")), "begun");
    scene.until_whole();
    scene.servers[1].kill();
    let said = victim.ask("join chain");
    // The server that was killed had the first call, or somebody heard of its end and passed it on.
    assert!(said.starts_with("UNAVAILABLE "), "{said}");
    scene.until_over();
}

#[test]
fn a_chain_whose_deadline_passes_ends() {
    let mut scene = Scene::new();
    let stage = Stage::new(channel(&scene.host, ""), "deadline");
    let order = |links| stage.order("chain", Task::Chain(links));
    // How long a chain takes here, to have this one whole before its time is over.
    let began = Instant::now();
    let mut measured = stage.client().r#do(order(LINKS)).into_future();
    stage.begin(&mut measured).unwrap();
    scene.until_whole();
    let timeout = 3 * began.elapsed() + Duration::from_secs(1);
    drop(measured);
    scene.host.until_idle();
    let call = Request::new(order(LINKS)).with_timeout(timeout);
    let status = stage.client().r#do(call).wait().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    scene.until_over();
}
