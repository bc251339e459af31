//! Shows what becomes of a hand-over in the middle of which one of the two daemons is killed: at every step there is
//! one daemon or none, never two; if it is the old one, nobody has noticed; if it is none, callers hear the truth, and
//! all go on when a daemon is back.

use crate::once::Load;
use crate::scene::Scene;
use crate::support::{Host, client, until_served};
use trunkline::{Code, Execution, Request, Wait};
use trunkline_system_tests::program::upgrade::STEPS;
use trunkline_system_tests::proto::probe::Text;

/// Before the last step, what dies with the new daemon is only the attempt.
#[test]
fn the_new_daemon_is_killed_at_every_step() {
    let mut scene = Scene::between_two();
    for (round, step) in STEPS.iter().enumerate().filter(|(_, step)| **step != "gone") {
        scene.go_on();
        let daemon = scene.host(round).daemon();
        daemon.replace_and_kill("new", step);
        let answer = daemon.hear();
        assert!(answer.starts_with("goes on: "), "{step}: {answer}");
    }
    // And the next one may live.
    scene.replace(0);
    scene.end_untouched();
}

#[test]
fn the_new_daemon_is_killed_when_it_has_just_begun() {
    let mut scene = unstreamed();
    for round in 0..2 {
        scene.go_on();
        let host = scene.host(round);
        let successor = host.daemon().replace_and_kill("new", "gone");
        host.daemon().until_gone(successor);
        host.start();
    }
    scene.go_on();
    scene.end_true();
}

#[test]
fn the_old_daemon_is_killed_at_every_step() {
    let mut scene = unstreamed();
    for (round, step) in STEPS.iter().enumerate().filter(|(_, step)| **step != "gone") {
        scene.go_on();
        let host = scene.host(round);
        let successor = host.daemon().replace_and_kill("old", step);
        host.daemon().until_gone(successor);
        // It could not, were there another: the socket has one daemon.
        host.start();
    }
    scene.go_on();
    scene.end_true();
}

/// Nobody is given calls that is not there any more, whenever it has died: while no daemon turns, too.
#[test]
fn an_application_is_killed_while_no_daemon_turns() {
    for step in ["control", "sent", "ready"] {
        let mut host = Host::alone();
        let server = host.server("server");
        let caller = client(&host, "");
        until_served(&caller);
        let successor = host.daemon().replace_and_kill(&server.id().to_string(), step);
        host.daemon().succeeded_by(successor);
        let request = Request::new(Text { text: step.to_owned() }).with_timeout(Load::TIMEOUT);
        let status = caller.echo(request).wait().unwrap_err();
        assert_eq!(
            (status.code(), status.execution()),
            (Code::Unavailable, Execution::NotExecuted),
            "{status}"
        );
        host.until_idle();
    }
}

/// Its last word was taken: the other is the daemon, and nobody notices.
#[test]
fn the_old_daemon_is_killed_when_it_has_let_go() {
    let mut scene = Scene::between_two();
    for round in 0..2 {
        scene.go_on();
        let daemon = scene.host(round).daemon();
        let successor = daemon.replace_and_kill("old", "gone");
        daemon.succeeded_by(successor);
    }
    scene.end_untouched();
}

#[test]
fn a_daemon_that_took_over_is_killed() {
    let mut scene = unstreamed();
    for round in 0..4 {
        scene.replace(round / 2);
        scene.go_on();
        let host = scene.host(round / 2);
        host.kill_daemon();
        host.start();
    }
    scene.go_on();
    scene.end_true();
}

/// Calls only: a stream breaks with its daemon.
fn unstreamed() -> Scene {
    let far = Host::over_tcp();
    let target = far.endpoint().to_owned();
    Scene::new(Host::alone(), Some(far), &target, false)
}
