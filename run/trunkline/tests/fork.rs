//! A forked child makes calls of its own and disturbs none of its parent's.

mod support;

use std::time::Instant;
use support::{EchoClient, Place, Text, WATCHDOG, channel, foreign, poll_once};
use trunkline::Wait;
use trunkline::codegen::Arc;
use trunkline_call::entry::Submission;

/// What the child does; its exit code tells the parent.
fn child(client: &EchoClient) -> i32 {
    let by_wait = client.say(Text::new("child")).wait();
    let by_task = foreign(client.say(Text::new("child")));
    match (by_wait, by_task) {
        (Ok(one), Ok(other)) if one.view().text() == "child" && other.view().text() == "child" => 0,
        _ => 1,
    }
}

#[test]
fn a_child_attaches_anew_and_the_parents_calls_go_on() {
    let place = Arc::new(Place::new());
    let client = EchoClient::new(channel(&place.path()));
    let mut pending = client.say(Text::new("pending"));
    assert!(poll_once(&mut pending).is_pending());
    let mut parents = place.accept();
    let waiting = std::thread::spawn({
        let client = client.clone();
        move || client.say(Text::new("waiting")).wait()
    });
    let mut threads = place.accept();
    let waiting_call = threads.next_call();

    // The task's session is attached but its call not submitted: the child's copy of it is of no use to the child.
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            drop(pending);
            std::process::exit(child(&client));
        }
        fork::Fork::Parent(pid) => {
            let childs = [(); 2].map(|()| {
                let mut peer = place.accept();
                let call = peer.next_call();
                assert_eq!(peer.text(call.payload), "child");
                peer.finish(call.call, trunkline::Code::Ok, Some("child"));
                peer
            });
            assert_eq!(exit_code(pid), 0);
            childs.into_iter().for_each(|mut peer| peer.settle());
        }
    }

    threads.finish(waiting_call.call, trunkline::Code::Ok, Some("still answered"));
    assert_eq!(waiting.join().unwrap().unwrap().view().text(), "still answered");
    let task = std::thread::spawn(move || foreign(pending));
    let call = parents.next_call();
    assert_eq!(parents.text(call.payload), "pending");
    parents.finish(call.call, trunkline::Code::Ok, Some("too"));
    assert_eq!(task.join().unwrap().unwrap().view().text(), "too");
    assert!(
        !matches!(parents.try_next(), Some(Submission::Cancel { .. })),
        "nothing of the child's is in it"
    );
}

fn exit_code(pid: i32) -> i32 {
    let until = Instant::now() + WATCHDOG;
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    loop {
        let waited = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG).unwrap();
        if let Some((_, status)) = waited {
            return status.exit_status().unwrap_or(-1);
        }
        assert!(Instant::now() < until, "the child does not end");
        std::thread::yield_now();
    }
}
