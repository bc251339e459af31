//! What a client does in every corner, against a daemon moved by hand: each test says what the daemon sees.

use crate::support;

use std::pin::Pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use support::{EchoClient, Peer, Place, Text, channel, foreign, poll_once, small, watched};
use trunkline::codegen::Unary;
use trunkline::{Channel, Code, Execution, Request, Response, Status, Wait, opaque};
use trunkline_call::entry::{Completion, Submission};

type Reply = Result<Response<Text>, Status>;

/// A client that calls from a thread of its own, by `wait`.
fn call_in_thread(client: &EchoClient, text: &str) -> JoinHandle<Reply> {
    let client = client.clone();
    let text = Text::new(text);
    thread::spawn(move || client.say(text).wait())
}

/// A client whose tasks' session is attached and bound, and the daemon's end of it.
fn attached(place: &Place) -> (EchoClient, Peer) {
    let client = EchoClient::new(channel(&place.path()));
    let mut first = client.say(Text::new("first"));
    assert!(poll_once(&mut first).is_pending());
    let mut peer = place.accept();
    let waiting = thread::spawn(move || foreign(first));
    let call = peer.next_call();
    peer.free(&[call.payload.unwrap().span.offset]);
    peer.finish(call.call, Code::Ok, Some("reply"));
    assert_eq!(waiting.join().unwrap().unwrap().view().text(), "reply");
    assert!(matches!(peer.next(), Submission::Release { a18, .. } if a18.0 > 0));
    (client, peer)
}

/// Polls a call until it is submitted; the daemon gets to see it.
fn submitted(
    client: &EchoClient,
    peer: &mut Peer,
    text: &str,
) -> (Pin<Box<Unary<Text, Text>>>, trunkline_call::entry::Call) {
    let mut call = Box::pin(client.say(Text::new(text)));
    assert!(poll_once(&mut call).is_pending());
    let entry = peer.next_call();
    assert_eq!(peer.text(entry.payload), text);
    (call, entry)
}

#[test]
fn a_blocking_call_and_a_task_are_answered() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let waiting = call_in_thread(&client, "by wait");
        let mut peer = place.accept();
        let call = peer.next_call();
        assert!(call.entered <= call.published && call.entered.0 > 0, "a0 and a1 are stamped");
        peer.finish(call.call, Code::Ok, Some("done"));
        assert_eq!(waiting.join().unwrap().unwrap().into_inner().text, "done");
        let (_client, _peer) = attached(&place);
    });
}

#[test]
fn dropping_a_call_cancels_it_and_late_answers_are_returned() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (call, entry) = submitted(&client, &mut peer, "never mind");
        drop(call);
        assert_eq!(peer.next(), Submission::Cancel { call: entry.call });
        peer.finish(entry.call, Code::Ok, Some("too late"));
        let (call, _) = submitted_after_release(&client, &mut peer, entry.call);
        drop(call);
    });
}

/// The next call makes the thread that drains look; the block of the late answer comes back before or after it.
fn submitted_after_release(
    client: &EchoClient,
    peer: &mut Peer,
    late: trunkline_call::CallId,
) -> (Pin<Box<Unary<Text, Text>>>, trunkline_call::entry::Call) {
    let mut call = Box::pin(client.say(Text::new("next")));
    assert!(poll_once(&mut call).is_pending());
    let (mut released, mut seen) = (false, None);
    while !released || seen.is_none() {
        match peer.next() {
            Submission::Release { call, block, .. } => {
                assert_eq!(call, late);
                released = block.len > 0;
            }
            Submission::Call(call) => seen = Some(call),
            other => panic!("{other:?}"),
        }
    }
    (call, seen.unwrap())
}

#[test]
fn dropping_a_call_that_was_answered_returns_the_answer() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (call, entry) = submitted(&client, &mut peer, "x");
        peer.finish(entry.call, Code::Ok, Some("unread"));
        drop(call);
        loop {
            match peer.next() {
                // Whether the answer was booked before the drop is a race the daemon need not know the outcome of.
                Submission::Cancel { call } => assert_eq!(call, entry.call),
                Submission::Release { call, block, .. } => {
                    assert_eq!(call, entry.call);
                    assert!(block.len > 0);
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn when_the_session_is_lost_the_status_says_what_is_known() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (taken, _) = submitted(&client, &mut peer, "taken by the daemon");
        let mut left = client.say(Text::new("left in the ring"));
        assert!(poll_once(&mut left).is_pending());
        drop(peer);
        let taken = foreign(taken).unwrap_err();
        assert_eq!((taken.code(), taken.execution()), (Code::Unavailable, Execution::Unknown));
        let left = foreign(left).unwrap_err();
        assert_eq!((left.code(), left.execution()), (Code::Unavailable, Execution::NotExecuted));
    });
}

#[test]
fn a_lost_session_is_replaced_by_the_next_call() {
    watched(|| {
        let place = Place::new();
        for _ in 0..3 {
            let client = EchoClient::new(channel(&place.path()));
            // A call may still go into the ring of the daemon that has just gone: it fails, and the next does not.
            let waiting = thread::spawn(move || {
                loop {
                    match client.say(Text::new("hello again")).wait() {
                        Err(status) if status.execution() == Execution::NotExecuted => {}
                        reply => return reply,
                    }
                }
            });
            let mut peer = place.accept();
            let call = peer.next_call();
            peer.finish(call.call, Code::Ok, Some("welcome"));
            assert_eq!(waiting.join().unwrap().unwrap().view().text(), "welcome");
        }
    });
}

#[test]
fn a_leaving_daemon_gets_no_new_calls_and_finishes_the_old() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (old, entry) = submitted(&client, &mut peer, "old");
        peer.complete(&Completion::GoAway);
        peer.finish(entry.call, Code::Ok, Some("still answered"));
        assert_eq!(foreign(old).unwrap().view().text(), "still answered");
        let new = thread::spawn({
            let client = client.clone();
            move || foreign(client.say(Text::new("new")))
        });
        let mut next = place.accept();
        let call = next.next_call();
        next.finish(call.call, Code::Ok, Some("elsewhere"));
        assert_eq!(new.join().unwrap().unwrap().view().text(), "elsewhere");
    });
}

#[test]
fn calls_beyond_the_limit_wait_their_turn() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let mut calls: Vec<_> = (0..8).map(|n| submitted(&client, &mut peer, &n.to_string())).collect();
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let client = client.clone();
                thread::spawn(move || foreign(client.say(Text::new("in line"))))
            })
            .collect();
        for round in 0..4 {
            let (call, entry) = calls.pop().unwrap();
            // The block of the answer before may come back behind the call that had waited for it.
            assert_eq!(peer.try_next_but_release(), None, "round {round}: the limit holds");
            peer.finish(entry.call, Code::Ok, Some("go on"));
            drop(foreign(call).unwrap());
            let next = peer.next_call();
            assert_eq!(peer.text(next.payload), "in line");
            // That one stays in flight until the end.
            peer.free(&[next.payload.unwrap().span.offset]);
            calls.insert(0, submitted_elsewhere(next));
        }
        drop(peer);
        for call in waiting {
            assert_eq!(call.join().unwrap().unwrap_err().code(), Code::Unavailable);
        }
    });
}

/// A call another thread waits for: here only to keep the books of the test even.
fn submitted_elsewhere(
    entry: trunkline_call::entry::Call,
) -> (Pin<Box<Unary<Text, Text>>>, trunkline_call::entry::Call) {
    let nowhere = Channel::builder().socket("/nonexistent").connect_lazy();
    (Box::pin(EchoClient::new(nowhere).say(Text::default())), entry)
}

#[test]
fn a_full_ring_holds_calls_back_without_losing_any() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let mut first = client.say(Text::new("first"));
        assert!(poll_once(&mut first).is_pending());
        let mut peer = place.accept_with(small(), 1000);
        let threads: Vec<_> = (0..40)
            .map(|n| {
                let client = client.clone();
                thread::spawn(move || foreign(client.say(Text::new(n.to_string()))))
            })
            .collect();
        let first = thread::spawn(move || foreign(first));
        for _ in 0..41 {
            let call = peer.next_call();
            let text = peer.text(call.payload);
            peer.free(&[call.payload.unwrap().span.offset]);
            peer.finish(call.call, Code::Ok, Some(&text));
        }
        first.join().unwrap().unwrap();
        let heard: Vec<_> =
            threads.into_iter().map(|t| t.join().unwrap().unwrap().into_inner().text).collect();
        assert_eq!(heard, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    });
}

#[test]
fn a_full_send_heap_holds_a_message_back_until_blocks_return() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let large = "x".repeat(25 << 10);
        let (_one, first) = submitted(&client, &mut peer, &large);
        let (_two, second) = submitted(&client, &mut peer, &large);
        let third = thread::spawn({
            let (client, large) = (client.clone(), large.clone());
            move || foreign(client.say(Text::new(large)))
        });
        assert!(peer.try_next().is_none(), "64 KiB hold two of them");
        peer.free(&[first.payload.unwrap().span.offset, second.payload.unwrap().span.offset]);
        let call = peer.next_call();
        peer.finish(call.call, Code::Ok, Some("fits now"));
        assert_eq!(third.join().unwrap().unwrap().view().text(), "fits now");
    });
}

#[test]
fn a_message_that_grew_into_a_wall_waits_for_a_block_of_its_size() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (_one, first) = submitted(&client, &mut peer, &"x".repeat(20 << 10));
        let (_two, second) = submitted(&client, &mut peer, &"x".repeat(20 << 10));
        // Two holes of some 20 KiB: a message of 30 begins in one and cannot end there.
        peer.free(&[first.payload.unwrap().span.offset]);
        let third = thread::spawn({
            let client = client.clone();
            move || foreign(client.say(Text::new("y".repeat(30 << 10))))
        });
        assert!(peer.try_next().is_none());
        peer.free(&[second.payload.unwrap().span.offset]);
        let call = peer.next_call();
        assert_eq!(peer.text(call.payload).len(), 30 << 10);
        peer.finish(call.call, Code::Ok, Some("fits now"));
        assert_eq!(third.join().unwrap().unwrap().view().text(), "fits now");
    });
}

#[test]
fn a_message_that_can_never_fit_is_refused_by_name() {
    watched(|| {
        let place = Place::new();
        let (client, _peer) = attached(&place);
        let status = foreign(client.say(Text::new("x".repeat(100 << 10)))).unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::ResourceExhausted, Execution::NotExecuted));
        assert!(
            status.message().contains("(sessions.heap_bytes, or TRUNKLINE_HEAP_BYTES in this application)"),
            "{status}"
        );
    });
}

#[test]
fn returned_blocks_ride_along_without_ringing() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (call, entry) = submitted(&client, &mut peer, "x");
        peer.finish(entry.call, Code::Ok, Some("reply"));
        let reply = foreign(call).unwrap();
        while peer.try_next().is_some() {}
        assert!(peer.end.submissions.arm().unwrap(), "the daemon sleeps");
        peer.end.own_doorbell.quiet().unwrap();
        drop(reply);
        assert!(!peer.end.own_doorbell.quiet().unwrap(), "a returned block alone does not wake it");
        assert!(matches!(peer.try_next(), Some(Submission::Release { .. })), "but it is there when it looks");
    });
}

#[test]
fn a_daemon_that_hangs_does_not_stop_a_deadline() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        // A machine that is busy may need longer than the first limits to submit at all; that is another status.
        let hung = |client: EchoClient, by_wait: bool| {
            let mut limit = Duration::from_millis(5);
            loop {
                let call = client.say(Request::new(Text::new("x")).with_timeout(limit));
                let status = if by_wait { call.wait() } else { foreign(call) }.unwrap_err();
                assert_eq!(status.code(), Code::DeadlineExceeded);
                match status.execution() {
                    Execution::NotExecuted => limit *= 2,
                    execution => return execution,
                }
            }
        };
        let task = thread::spawn({
            let client = client.clone();
            move || hung(client, false)
        });
        let entry = peer.next_call();
        assert!(entry.deadline.instant().is_some());
        assert_eq!(task.join().unwrap(), Execution::Unknown);
        assert_eq!(peer.next_but_release(), Submission::Cancel { call: entry.call });

        let thread = thread::spawn(move || hung(client, true));
        let mut other = place.accept();
        other.answer_control_until_bound();
        assert_eq!(thread.join().unwrap(), Execution::Unknown);
    });
}

#[test]
fn a_deadline_holds_also_while_there_is_no_daemon() {
    watched(|| {
        let dir = Place::deserted();
        let client = EchoClient::new(channel(&dir.path().join("daemon.sock")));
        let request = Request::new(Text::new("x")).with_timeout(Duration::from_millis(5)).wait_for_ready();
        let status = client.say(request).wait().unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::DeadlineExceeded, Execution::NotExecuted));
    });
}

#[test]
fn without_a_daemon_calls_fail_or_wait_as_asked() {
    watched(|| {
        let dir = Place::deserted();
        let client = EchoClient::new(channel(&dir.path().join("daemon.sock")));
        for _ in 0..3 {
            let status = client.say(Text::new("x")).wait().unwrap_err();
            assert_eq!((status.code(), status.execution()), (Code::Unavailable, Execution::NotExecuted));
        }
        let patient = || client.say(Request::new(Text::new("x")).wait_for_ready());
        let (by_wait, by_task) = (patient(), patient());
        let patient = [thread::spawn(|| by_wait.wait()), thread::spawn(|| foreign(by_task))];
        let place = Place::again(dir);
        let mut peers = [place.accept(), place.accept()];
        for peer in &mut peers {
            let call = peer.next_call();
            peer.finish(call.call, Code::Ok, Some("came"));
        }
        for thread in patient {
            assert_eq!(thread.join().unwrap().unwrap().view().text(), "came");
        }
    });
}

#[test]
fn a_stream_sends_what_its_receiver_allows() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let sending = thread::spawn(move || {
            let mut call = client.collect();
            for n in 0..6 {
                foreign(call.send(Text::new(format!("{n}").repeat(64))))?;
            }
            foreign(call.finish())
        });
        let call = peer.next_call();
        assert!(!call.end, "more follows");
        assert!(
            peer.text(call.payload).starts_with('0'),
            "the first rides with the call and costs no window"
        );
        // 200 bytes of window, about 104 for each: two go, the second takes it below zero.
        let mut costs = Vec::new();
        for n in 1..=2 {
            let Submission::Message { payload, .. } = peer.next() else { panic!("a message") };
            assert!(peer.text(Some(payload)).starts_with(&n.to_string()));
            costs.push(payload.span.len);
        }
        assert!(costs[0] < 200 && costs[0] + costs[1] > 200, "{costs:?}");
        assert!(peer.try_next().is_none(), "the third waits");
        for n in 3..6 {
            peer.complete(&Completion::Credit { call: call.call, bytes: costs[0] });
            let Submission::Message { payload, .. } = peer.next() else { panic!("a message") };
            assert!(peer.text(Some(payload)).starts_with(&n.to_string()));
        }
        assert_eq!(peer.next(), Submission::HalfClose { call: call.call });
        peer.finish(call.call, Code::Ok, Some("six"));
        assert_eq!(sending.join().unwrap().unwrap().view().text(), "six");
    });
}

#[test]
fn sending_on_a_call_that_has_ended_tells_how_it_ended() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let mut call = client.collect();
        foreign(call.send(Text::new("one"))).unwrap();
        let entry = peer.next_call();
        peer.finish(entry.call, Code::PermissionDenied, None);
        let status = loop {
            // Sent until the answer has been booked.
            match foreign(call.send(Text::default())) {
                Ok(()) => drop(peer.try_next().map(|submission| peer.credit_back(&submission))),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::PermissionDenied);
        assert_eq!(foreign(call.finish()).unwrap_err().code(), Code::PermissionDenied);
    });
}

#[test]
fn dropping_a_receiver_cancels_its_call() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let words = foreign(client.repeat(Text::new("a b"))).unwrap();
        let entry = peer.next_call();
        assert!(entry.end);
        drop(words);
        assert_eq!(peer.next(), Submission::Cancel { call: entry.call });

        let (tx, rx) = client.chat().split();
        drop(tx);
        let mut rx = Box::pin(rx);
        assert!(matches!(poll_once(&mut Box::pin(rx.recv())), Poll::Pending));
        let entry = peer.next_call();
        assert_eq!(peer.next(), Submission::HalfClose { call: entry.call }, "the sender was dropped first");
        drop(rx);
        assert_eq!(peer.next(), Submission::Cancel { call: entry.call });
    });
}

/// Its server would take a part for the whole, and may have stored it before it hears that the call was given up.
#[test]
fn a_call_that_is_dropped_whole_does_not_say_that_nothing_follows() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        for sends in [true, false] {
            let mut call = client.chat();
            match sends {
                true => foreign(call.send(Text::new("a part"))).unwrap(),
                false => foreign(call.start()).unwrap(),
            }
            let entry = peer.next_call();
            drop(call);
            assert_eq!(peer.next(), Submission::Cancel { call: entry.call });
        }
        let (_call, entry) = submitted(&client, &mut peer, "nothing is said of it after that");
        peer.finish(entry.call, Code::Ok, Some("x"));
    });
}

#[test]
fn a_sender_that_a_panic_drops_cancels_its_call() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let panics_with = |tx: trunkline::Sender<Text>| {
            let panicking = std::panic::AssertUnwindSafe(move || {
                let _tx = tx;
                std::panic::resume_unwind(Box::new("the caller's own fault"));
            });
            std::panic::catch_unwind(panicking).unwrap_err();
        };
        let (mut tx, mut rx) = client.chat().split();
        foreign(tx.send(Text::new("a part"))).unwrap();
        let entry = peer.next_call();
        panics_with(tx);
        assert_eq!(peer.next(), Submission::Cancel { call: entry.call });
        let status = foreign(rx.recv()).unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::Cancelled, Execution::Unknown));

        let (tx, mut rx) = client.chat().split();
        panics_with(tx);
        let status = foreign(rx.recv()).unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::Cancelled, Execution::NotExecuted));

        let (mut tx, rx) = client.chat().split();
        foreign(tx.send(Text::new("all of it"))).unwrap();
        let entry = peer.next_call();
        tx.close();
        assert_eq!(peer.next(), Submission::HalfClose { call: entry.call });
        drop(rx);
        assert_eq!(peer.next(), Submission::Cancel { call: entry.call });
    });
}

#[test]
fn a_daemon_that_breaks_the_protocol_ends_its_session_only() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (call, _) = submitted(&client, &mut peer, "x");
        if peer.end.completions.push(&[u64::MAX; 8]).unwrap() {
            peer.end.peer_doorbell.ring().unwrap();
        }
        let status = foreign(call).unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::Unavailable, Execution::Unknown));
        while peer.answer_control() {
            thread::yield_now(); // until the library has closed the socket
        }
        let (_client, _peer) = attached(&place);
    });
}

/// A daemon that is busy reads late, and its socket has room for some hundred questions: the others wait.
#[test]
fn many_bindings_at_once_wait_for_a_daemon_that_reads_late() {
    const BINDINGS: usize = 1000;
    watched(|| {
        let place = Place::new();
        let (_client, mut peer) = attached(&place);
        let known = peer.paths.len();
        let opaque = opaque::Client::new(channel(&place.path()));
        let call = |number: usize| {
            let call = opaque.call(&format!("/test.Echo/Say{number}")).with_message(Vec::new());
            Box::pin(call.with_no_more().open())
        };
        let mut calls: Vec<_> = (0..BINDINGS).map(call).collect();
        for call in &mut calls {
            assert!(poll_once(call).is_pending(), "it is not answered yet");
        }
        while peer.paths.len() < known + BINDINGS {
            assert!(peer.answer_control(), "the session goes on");
            peer.doze();
        }
    });
}

/// Each method of a service is bound with its target.
#[test]
fn a_service_whose_target_is_long_is_bound_by_several_packets() {
    watched(|| {
        let place = Place::new();
        let target = vec!["tcp://10.0.0.1:7878"; 1500].join(",");
        let to = |target: &str| {
            EchoClient::new(
                Channel::builder().socket(place.path()).target(target).name("test").connect_lazy(),
            )
        };
        let calling = call_in_thread(&to(&target), "far");
        let mut peer = place.accept();
        let call = peer.next_call();
        assert_eq!(Some(call.route), peer.route_of("/test.Echo/Say"));
        assert_eq!(peer.paths, ["Say", "Repeat", "Collect", "Chat"].map(|name| format!("/test.Echo/{name}")));
        peer.finish(call.call, Code::Ok, Some("near"));
        assert_eq!(calling.join().unwrap().unwrap().view().text(), "near");

        let calling = call_in_thread(&to(&[&*target; 3].join(",")), "never");
        while !calling.is_finished() {
            assert!(peer.answer_control(), "the session goes on");
            peer.doze();
        }
        let status = calling.join().unwrap().unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::FailedPrecondition, Execution::NotExecuted));
        assert!(status.message().contains("target has "), "{status}");
    });
}

/// What the daemon has answered is the session's until it ends: asked for again, it would be there twice.
#[test]
fn a_service_that_was_bound_in_part_is_not_bound_from_the_beginning_again() {
    watched(|| {
        let place = Place::new();
        let target = vec!["tcp://10.0.0.1:7878"; 1500].join(",");
        let channel = Channel::builder().socket(place.path()).target(&target).name("test");
        let client = EchoClient::new(channel.connect_lazy());
        let calling = call_in_thread(&client, "first");
        let mut peer = place.accept();
        peer.answer_bind();
        peer.refuse_bind(Code::ResourceExhausted, "no room");
        assert_eq!(calling.join().unwrap().unwrap_err().code(), Code::ResourceExhausted);
        let calling = call_in_thread(&client, "second");
        peer.refuse_bind(Code::ResourceExhausted, "no room");
        assert_eq!(calling.join().unwrap().unwrap_err().code(), Code::ResourceExhausted);
        let calling = call_in_thread(&client, "third");
        let call = peer.next_call();
        assert_eq!(peer.paths, ["Say", "Repeat", "Collect", "Chat"].map(|name| format!("/test.Echo/{name}")));
        assert_eq!(Some(call.route), peer.route_of("/test.Echo/Say"));
        peer.finish(call.call, Code::Ok, Some("here"));
        assert_eq!(calling.join().unwrap().unwrap().view().text(), "here");
    });
}

#[test]
fn a_binding_the_daemon_refuses_fails_its_calls() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let waiting = call_in_thread(&client, "x");
        let mut peer = place.accept();
        peer.refuse_bind(Code::FailedPrecondition, "no such type");
        let status = waiting.join().unwrap().unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::FailedPrecondition, Execution::NotExecuted));
        assert!(status.message().contains("no such type"), "{status}");
    });
}

/// The call may have been started by the other half, or by none.
#[test]
fn dropping_a_receiver_that_was_never_polled_cancels_its_call() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        let (mut tx, rx) = client.chat().split();
        foreign(tx.send(Text::new("one"))).unwrap();
        let entry = peer.next_call();
        drop(rx);
        assert_eq!(peer.next(), Submission::Cancel { call: entry.call });
        let status = foreign(tx.send(Text::new("two"))).unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::Cancelled, Execution::Unknown));

        let (mut tx, rx) = client.chat().split();
        drop(rx);
        let status = foreign(tx.send(Text::new("one"))).unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::Cancelled, Execution::NotExecuted));
        drop(tx);
        assert_eq!(peer.try_next(), None, "no call was made");
    });
}

#[test]
fn sending_after_the_end_was_received_tells_how_the_call_ended() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        for (code, execution) in
            [(Code::PermissionDenied, Execution::NotExecuted), (Code::Aborted, Execution::Executed)]
        {
            let (mut tx, mut rx) = client.chat().split();
            foreign(tx.send(Text::new("one"))).unwrap();
            let entry = peer.next_call();
            let finish = support::peer::finish(entry.call, code, None);
            peer.complete(&Completion::Finish(trunkline_call::entry::Finish { execution, ..finish }));
            assert_eq!(foreign(rx.recv()).unwrap_err().code(), code);
            let status = foreign(tx.send(Text::new("two"))).unwrap_err();
            assert_eq!((status.code(), status.execution()), (code, execution));
        }
        let (mut tx, mut rx) = client.chat().split();
        foreign(tx.send(Text::new("one"))).unwrap();
        let entry = peer.next_call();
        peer.finish(entry.call, Code::Ok, None);
        assert!(foreign(rx.recv()).unwrap().is_none());
        let status = foreign(tx.send(Text::new("two"))).unwrap_err();
        assert_eq!(status.code(), Code::Cancelled, "OK is no error");
        assert!(status.message().contains("OK"), "{status}");
    });
}

/// A start that has to wait is in nobody's hands once its `send` or `recv` was dropped: it must not keep its turn.
#[test]
fn a_stream_whose_start_nobody_waits_for_holds_nobody_up() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let mut first = client.say(Text::new("first"));
        assert!(poll_once(&mut first).is_pending());
        let mut peer = place.accept_with(small(), 1);
        let waiting = thread::spawn(move || foreign(first));
        let call = peer.next_call();
        // The only call there may be is in flight: these wait for their turn, and then do not.
        let (mut sending, _receiver) = client.chat().split();
        assert!(poll_once(&mut Box::pin(sending.send(Text::new("dropped")))).is_pending());
        let (_sender, mut receiving) = client.chat().split();
        assert!(poll_once(&mut Box::pin(receiving.recv())).is_pending());
        let second = {
            let client = client.clone();
            thread::spawn(move || foreign(client.say(Text::new("second"))))
        };
        while peer.try_next().is_some() {}
        peer.finish(call.call, Code::Ok, Some("reply"));
        waiting.join().unwrap().unwrap();
        let call = peer.next_call();
        assert_eq!(peer.text(call.payload), "second");
        peer.finish(call.call, Code::Ok, Some("reply"));
        second.join().unwrap().unwrap();
        // And the one whose `recv` was dropped can be sent on.
        let sent = thread::spawn(move || foreign(sending.send(Text::new("next"))));
        let call = peer.next_call();
        assert_eq!(peer.text(call.payload), "dropped", "a message taken is part of the call");
        sent.join().unwrap().unwrap();
    });
}

/// The time that a call waits for room, or in its application's own queue, is that of the send queue: it was published
/// when it could have been.
#[test]
fn a_call_that_waits_to_be_submitted_was_published_before() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let mut first = client.say(Text::new("first"));
        assert!(poll_once(&mut first).is_pending());
        let mut peer = place.accept_with(small(), 1);
        let waiting = thread::spawn(move || foreign(first));
        let call = peer.next_call();
        // The only call there may be is in flight.
        let mut second = client.say(Text::new("second"));
        assert!(poll_once(&mut second).is_pending());
        let third = client.say(Text::new("third"));
        peer.finish(call.call, Code::Ok, Some("reply"));
        waiting.join().unwrap().unwrap();
        let mut finish = |waiting: Unary<Text, Text>| {
            let waiting = thread::spawn(move || foreign(waiting));
            let call = peer.next_call();
            peer.finish(call.call, Code::Ok, Some("reply"));
            waiting.join().unwrap().unwrap();
            call
        };
        let [second, third] = [second, third].map(&mut finish);
        assert!(second.entered <= second.published && second.published <= third.entered);

        let opaque = opaque::Client::new(channel(&place.path()));
        let made = || opaque.call("/test.Echo/Say").with_message(Vec::new());
        let queued = made().queued();
        let [queued, other] = [queued, made()].map(|call| {
            let waiting = thread::spawn(move || foreign(Box::pin(call.unary())));
            let entry = peer.next_call();
            peer.finish(entry.call, Code::NotFound, None);
            waiting.join().unwrap();
            entry
        });
        assert!(queued.entered <= queued.published && queued.published <= other.entered);
    });
}

/// Both halves wait for the start, each with a waker of its own; the one that drove it last goes away.
#[test]
fn either_half_finishes_a_start_the_other_has_left() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let (mut tx, mut rx) = client.chat().split();
        let (waits, hear) = mpsc::channel();
        let sending = thread::spawn(move || {
            let mut send = Box::pin(tx.send(Text::new("one")));
            let pending = poll_once(&mut send).is_pending();
            waits.send(()).unwrap();
            assert!(pending);
            foreign(send)
        });
        hear.recv().unwrap();
        assert!(poll_once(&mut Box::pin(rx.recv())).is_pending());
        let mut peer = place.accept();
        let call = peer.next_call();
        assert_eq!(peer.text(call.payload), "one");
        sending.join().unwrap().unwrap();
        drop(rx);
    });
}

#[test]
fn a_binding_does_not_depend_on_the_task_that_asked_for_it() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let mut first = client.say(Text::new("first"));
        assert!(poll_once(&mut first).is_pending());
        let mut peer = place.accept();
        while !rustix::io::ioctl_fionread(rustix::fd::AsFd::as_fd(&peer.control)).is_ok_and(|bytes| bytes > 0)
        {
            assert!(poll_once(&mut first).is_pending(), "it attaches, then it asks");
            thread::yield_now();
        }
        // From here on nobody polls it.
        let second = thread::spawn(move || foreign(client.say(Text::new("second"))));
        let call = peer.next_call();
        assert_eq!(peer.text(call.payload), "second");
        peer.finish(call.call, Code::Ok, Some("reply"));
        second.join().unwrap().unwrap();
        drop(first);
    });
}

/// The ring is full and the daemon hangs: room never comes, the deadline does.
#[test]
fn a_sender_that_waits_for_room_learns_that_its_call_has_ended() {
    watched(|| {
        let place = Place::new();
        let (client, mut peer) = attached(&place);
        // A machine that is busy may need longer than the first limit to submit at all; that is another status.
        let mut limit = Duration::from_secs(1);
        let (mut tx, _rx) = loop {
            let (mut tx, rx) = client.chat().with_timeout(limit).split();
            let Err(status) = foreign(tx.send(Text::new("one"))) else { break (tx, rx) };
            assert_eq!((status.code(), status.execution()), (Code::DeadlineExceeded, Execution::NotExecuted));
            limit *= 2;
        };
        let call = peer.next_call();
        while peer.end.submissions.ready().unwrap() < peer.config.submission_entries {
            let mut given_up = client.say(Text::default());
            let _ = poll_once(&mut given_up);
        }
        let status = foreign(tx.send(Text::new("two"))).unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::DeadlineExceeded, Execution::Unknown));
        assert!(call.deadline.instant().is_some());
    });
}

/// A task that is woken because it is its turn may be one that nobody polls any more, and that nobody drops.
#[test]
fn a_turn_that_is_not_taken_passes_on() {
    watched(|| {
        let place = Place::new();
        let client = EchoClient::new(channel(&place.path()));
        let mut first = client.say(Text::new("first"));
        assert!(poll_once(&mut first).is_pending());
        let mut peer = place.accept_with(small(), 1);
        let waiting = thread::spawn(move || foreign(first));
        let call = peer.next_call();
        let mut forgotten = client.say(Text::new("forgotten"));
        assert!(poll_once(&mut forgotten).is_pending());
        let mut second = client.say(Text::new("second"));
        assert!(poll_once(&mut second).is_pending());
        let second = thread::spawn(move || foreign(second));
        peer.finish(call.call, Code::Ok, Some("reply"));
        waiting.join().unwrap().unwrap();
        let call = peer.next_call();
        assert_eq!(peer.text(call.payload), "second");
        peer.finish(call.call, Code::Ok, Some("reply"));
        second.join().unwrap().unwrap();
        drop(forgotten);
    });
}
