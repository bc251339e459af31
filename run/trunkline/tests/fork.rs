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
            assert_eq!(exit_code(pid, || ()), 0);
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

/// A call that waits to be made has its message in a heap the child does not have: there it ends, and says so.
#[test]
fn a_message_that_is_with_the_parent_is_not_sent_by_the_child() {
    let place = Place::new();
    let client = EchoClient::new(channel(&place.path()));
    let mut first = client.say(Text::new("first"));
    assert!(poll_once(&mut first).is_pending());
    let mut peer = place.accept_with(support::small(), 1);
    let until = Instant::now() + WATCHDOG;
    let call = loop {
        assert!(poll_once(&mut first).is_pending() && Instant::now() < until);
        peer.answer_control();
        if let Some(Submission::Call(call)) = peer.try_next() {
            break call;
        }
    };
    let mut second = client.say(Text::new("second"));
    assert!(poll_once(&mut second).is_pending(), "one call is all there may be");
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            drop(first);
            let ended = foreign(second);
            let is_told = ended.is_err_and(|status| {
                (status.code(), status.execution())
                    == (trunkline::Code::Unavailable, trunkline::Execution::NotExecuted)
            });
            std::process::exit(i32::from(!is_told));
        }
        fork::Fork::Parent(pid) => {
            let mut childs = place.accept();
            assert_eq!(exit_code(pid, || _ = childs.answer_control()), 0);
        }
    }
    peer.finish(call.call, trunkline::Code::Ok, Some("answered"));
    assert_eq!(foreign(first).unwrap().view().text(), "answered");
    let task = std::thread::spawn(move || foreign(second));
    let call = peer.next_call();
    assert_eq!(peer.text(call.payload), "second");
    peer.finish(call.call, trunkline::Code::Ok, Some("too"));
    assert_eq!(task.join().unwrap().unwrap().view().text(), "too");
}

/// When the child has ended; meanwhile this is done.
fn exit_code(pid: i32, mut meanwhile: impl FnMut()) -> i32 {
    let until = Instant::now() + WATCHDOG;
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    loop {
        let waited = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG).unwrap();
        if let Some((_, status)) = waited {
            return status.exit_status().unwrap_or(-1);
        }
        assert!(Instant::now() < until, "the child does not end");
        meanwhile();
        std::thread::yield_now();
    }
}
