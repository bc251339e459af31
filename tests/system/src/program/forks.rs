//! A process that has made calls, forks, and makes more on both sides.

use super::{Echoes, converse, outcome, start_server};
use crate::proto::probe::Text;
use crate::proto::probe::order::Task;
use crate::scenario::{Stage, WATCHDOG};
use std::process::exit;
use trunkline::{Channel, Request, Status, Wait};

/// Forks whenever ordered to, and says how calls before, in and after it went.
pub(super) fn forker(serves: bool) -> Result<(), String> {
    let stage = Stage::new(Channel::local(), &format!("forker {}", std::process::id()));
    let mut round = 0;
    converse("ready", |_| {
        round += 1;
        fork(&stage, &format!("fork {round}"), serves).unwrap_or_else(|status| format!("failed: {status}"))
    })
}

/// Forks a child that has what its parent had, does nothing, and outlives it. Its number.
pub(super) fn leave_child() -> String {
    match fork::fork() {
        Ok(fork::Fork::Child) => {
            std::thread::sleep(WATCHDOG);
            exit(0);
        }
        Ok(fork::Fork::Parent(child)) => child.to_string(),
        Err(error) => error.to_string(),
    }
}

fn fork(stage: &Stage, label: &str, serves: bool) -> Result<String, Status> {
    let before = echo(stage);
    let mut in_flight = stage.client().r#do(stage.order(label, Task::Hang(true)));
    stage.begin(&mut in_flight)?;
    stage.until(label, |seen| seen.entered == 1)?;
    let child = match fork::fork().map_err(|error| Status::internal(error.to_string()))? {
        fork::Fork::Child => {
            drop(in_flight);
            exit(child(stage, serves));
        }
        fork::Fork::Parent(child) => child,
    };
    let code = fork::waitpid(child).map_err(|error| Status::internal(error.to_string()))?;
    let child = if code == 0 { "OK OK OK".to_owned() } else { format!("ended with {code}") };
    let after = echo(stage);
    let disturbed = stage.until(label, |_| true)?.dropped > 0;
    drop(in_flight);
    stage.until(label, |seen| seen.dropped == 1)?;
    let flight = if disturbed { "disturbed" } else { "undisturbed" };
    Ok(format!("before {before}, child {child}, in flight {flight}, after {after}"))
}

/// What the child does, and its exit code: 0 if all of it went well.
fn child(stage: &Stage, serves: bool) -> i32 {
    // Nobody else would end a child that hangs.
    std::thread::spawn(|| {
        std::thread::sleep(WATCHDOG);
        exit(3)
    });
    let server = serves.then(|| start_server(Echoes::Answers));
    if let Some(Err(why)) = &server {
        eprintln!("child: {why}");
        return 2;
    }
    for _ in 0..3 {
        let said = echo(stage);
        if said != "OK" {
            eprintln!("child: {said}");
            return 1;
        }
    }
    0
}

fn echo(stage: &Stage) -> String {
    let request = Request::new(Text { text: "x".into() }).with_timeout(WATCHDOG);
    outcome(stage.client().echo(request).wait())
}
