//! Shows what everybody else sees when somebody is killed with SIGKILL in the middle of calls.

use crate::support::{Host, channel, client, echo, until, until_served};
use rustix::process::{Pid, Signal, kill_process};
use std::thread::JoinHandle;
use trunkline::{Code, Execution, Response, Status, Wait};
use trunkline_system_tests::proto::newer::Note;
use trunkline_system_tests::proto::newer::notes_client::NotesClient;
use trunkline_system_tests::proto::probe::Outcome;
use trunkline_system_tests::proto::probe::order::Task;
use trunkline_system_tests::scenario::Stage;

type Answer = Result<Response<Outcome>, Status>;

/// A call whose handler runs and never answers.
fn hanging(stage: &Stage, label: &str) -> JoinHandle<Answer> {
    let (client, order) = (stage.client().clone(), stage.order(label, Task::Hang(true)));
    let call = std::thread::spawn(move || client.r#do(order).wait());
    stage.until(label, |seen| seen.entered == 1).unwrap();
    call
}

fn failure(call: JoinHandle<Answer>) -> (Code, Execution) {
    let status = call.join().unwrap().unwrap_err();
    (status.code(), status.execution())
}

const UNKNOWN: (Code, Execution) = (Code::Unavailable, Execution::Unknown);

#[test]
fn a_server_dies() {
    let mut host = Host::alone();
    let mut server = host.server("server");
    let _others = host.server("newer");
    let stage = Stage::new(channel(&host, ""), "a server dies");
    let (mut tx, mut rx) = NotesClient::new(channel(&host, "")).pass().split();
    let mut pass = |title: &str| {
        tx.send(Note { title: title.to_owned(), ..Note::default() }).wait().unwrap();
        rx.recv().wait().unwrap().unwrap().into_inner().title
    };
    assert_eq!(pass("before"), "before");
    let call = hanging(&stage, "hang");
    server.kill();
    assert_eq!(failure(call), UNKNOWN);
    assert_eq!(pass("after"), "after", "a stream to another server does not notice");
    // Its other session may be heard of later: of what it was given meanwhile nobody can say more.
    let status = until("nobody serving", || {
        let status = echo(stage.client(), "x").err()?;
        (status.execution() != Execution::Unknown).then_some(status)
    });
    assert_eq!((status.code(), status.execution()), (Code::Unavailable, Execution::NotExecuted), "{status}");
    let _new = host.server("server");
    assert_eq!(echo(stage.client(), "a new one").unwrap(), "a new one");
    drop((tx, rx));
    host.until_idle();
}

/// A child it has forked has its sockets, and knows nothing of them.
#[test]
fn a_server_dies_whose_child_lives_on() {
    let mut host = Host::alone();
    let mut server = host.server("server");
    let stage = Stage::new(channel(&host, ""), "a child lives on");
    for replaced in [false, true] {
        let child: i32 = server.ask("leave a child").parse().unwrap();
        let call = hanging(&stage, if replaced { "adopted" } else { "attached" });
        if replaced {
            host.replace_daemon();
        }
        server.kill();
        assert_eq!(failure(call), UNKNOWN);
        server = host.server("server");
        until_served(stage.client());
        kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    }
    drop(server);
    host.until_idle();
}

#[test]
fn a_client_dies() {
    for far in [None, Some(Host::over_tcp())] {
        let mut near = Host::alone();
        let target = far.as_ref().map_or("", |far| far.endpoint()).to_owned();
        let _server = far.as_ref().unwrap_or(&near).server("server");
        let watcher = client(&near, &target);
        until_served(&watcher);
        let sessions = near.held().of("sessions");
        let mut victim = near.client(&target);
        for number in 0..5 {
            assert_eq!(victim.ask(&format!("hang victim {number}")), "begun");
        }
        let happened = |label: &str| {
            let label = trunkline_system_tests::proto::probe::Label { label: label.to_owned() };
            watcher.watch(label).wait().unwrap().into_inner()
        };
        for number in 0..5 {
            until("the handler running", || {
                (happened(&format!("victim {number}")).entered == 1).then_some(())
            });
        }
        victim.kill();
        for number in 0..5 {
            until("the handler dropped", || {
                (happened(&format!("victim {number}")).dropped == 1).then_some(())
            });
        }
        near.until_held("sessions", sessions);
        near.until_idle();
        if let Some(mut far) = far {
            far.until_idle();
        }
    }
}

#[test]
fn the_only_daemon_dies_and_comes_back() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let stage = Stage::new(channel(&host, ""), "the only daemon dies");
    for round in 0..3 {
        let call = hanging(&stage, &format!("hang {round}"));
        host.kill_daemon();
        assert_eq!(failure(call), UNKNOWN);
        let status = echo(stage.client(), "nobody there").unwrap_err();
        assert_eq!(
            (status.code(), status.execution()),
            (Code::Unavailable, Execution::NotExecuted),
            "{status}"
        );
        host.start();
        until_served(stage.client());
        stage.until(&format!("hang {round}"), |seen| seen.dropped == 1).unwrap();
    }
    host.until_idle();
}

#[test]
fn a_call_that_waits_for_the_daemon_is_answered_when_it_is_back() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let mut patient = host.client("");
    assert_eq!(patient.ask("echo first"), "OK");
    host.kill_daemon();
    assert!(patient.ask("echo nobody").starts_with("UNAVAILABLE NotExecuted"));
    patient.tell("echo-when-ready patient");
    host.start();
    // The client may be back before the server; then the daemon knows no server yet and says so.
    let answer = patient.hear();
    assert!(answer == "OK" || answer.starts_with("UNAVAILABLE NotExecuted"), "{answer}");
    until("everybody back", || (patient.ask("echo again") == "OK").then_some(()));
}

#[test]
fn the_near_daemon_dies() {
    let mut far = Host::over_tcp();
    let mut near = Host::alone();
    let _server = far.server("server");
    let stage = Stage::new(channel(&near, far.endpoint()), "the near daemon dies");
    let onlooker = Stage::new(channel(&far, ""), "the near daemon dies");
    for round in 0..2 {
        let label = format!("hang {round}");
        let call = hanging(&stage, &label);
        near.kill_daemon();
        assert_eq!(failure(call), UNKNOWN);
        onlooker.until(&label, |seen| seen.dropped == 1).unwrap();
        near.start();
        until_served(stage.client());
    }
    near.until_idle();
    far.until_idle();
}

#[test]
fn the_far_daemon_dies_and_comes_back() {
    let mut far = Host::over_tcp();
    let mut near = Host::routed_to(&far);
    let _server = far.server("server");
    let stage = Stage::new(channel(&near, ""), "the far daemon dies");
    for round in 0..2 {
        let call = hanging(&stage, &format!("hang {round}"));
        far.kill_daemon();
        assert_eq!(failure(call), UNKNOWN);
        let status = echo(stage.client(), "nobody there").unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        far.start();
        until_served(stage.client());
    }
    near.until_idle();
    far.until_idle();
}

/// Whoever is killed, what the gateway has of its calls is given back, and calls are answered again.
#[test]
fn a_gateway_and_those_around_it_die() {
    for more in ["", "[grpc]\nalways = true\n"] {
        let mut far = Host::over_tcp();
        let mut gateway = Host::gateway_to(&far, more);
        let mut near = Host::routed(vec![gateway.gateway()]);
        let mut server = far.server("server");
        let watcher = client(&near, "");
        until_served(&watcher);

        // Its client.
        let stage = Stage::new(channel(&near, ""), "the gateway's client dies");
        let call = hanging(&stage, "hang");
        near.kill_daemon();
        assert_eq!(failure(call), UNKNOWN);
        gateway.until_idle();
        far.until_idle();
        near.start();
        until_served(&watcher);

        // The server behind it.
        let stage = Stage::new(channel(&near, ""), "the server behind the gateway dies");
        let call = hanging(&stage, "hang");
        server.kill();
        assert_eq!(failure(call), UNKNOWN);
        gateway.until_idle();
        server = far.server("server");
        until_served(&watcher);

        // The daemon behind it.
        let stage = Stage::new(channel(&near, ""), "the daemon behind the gateway dies");
        let call = hanging(&stage, "hang");
        far.kill_daemon();
        assert_eq!(failure(call), UNKNOWN);
        gateway.until_idle();
        far.start();
        drop(server);
        let _server = far.server("server");
        until_served(&watcher);

        // The gateway.
        let stage = Stage::new(channel(&near, ""), "the gateway dies");
        let call = hanging(&stage, "hang");
        gateway.kill_daemon();
        assert_eq!(failure(call), UNKNOWN);
        far.until_idle();
        gateway.start();
        until_served(&watcher);
    }
}
