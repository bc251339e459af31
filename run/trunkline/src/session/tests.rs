//! Shows that blocks of the send heap are never lost, whatever becomes of what was to be sent, and how full rings and
//! limits are met in the books themselves.

use super::queues::QueuePlace;
use super::*;
use crate::clock;
use crate::hub::Lane;
use crate::wait::block_on;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;
use trunkline_call::entry::{Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Execution, Instant, RouteIndex};
use trunkline_shm::{ControlSocket, DaemonEnd, SessionConfig, create_session, open_session};

const BINDING: BindingId = BindingId(1);

/// Listens to nothing.
#[derive(Debug)]
struct Nobody;

impl SessionListener for Nobody {
    fn watch(&self, _session: SessionId) {}

    fn trim_at(&self, _at: Instant, _session: SessionId) {}
}

fn session(calls_max: u32) -> (Arc<Session>, DaemonEnd, ControlSocket) {
    let config = SessionConfig { submission_entries: 16, completion_entries: 16, ..SessionConfig::default() };
    let (daemon, fds) = create_session(&config).unwrap();
    let app = open_session(fds, &config).unwrap();
    let (ours, theirs) = ControlSocket::pair().unwrap();
    let limits = Limits { calls_max, window_bytes: 100, usual_bytes: 1 << 20, tells_callers: false };
    let identity = SessionIdentity { session: SessionId(1), hub: HubId(1), alone: false };
    let session = Session::new(app, ours, limits, None, identity, Arc::new(Nobody));
    session.with(|books, _| books.set_routes(BINDING, Arc::from([RouteIndex(7)])));
    (session, daemon, theirs)
}

fn order(session: &Session) -> Order {
    Order {
        binding: BINDING,
        method: 0,
        payload: Some(Written {
            block: session.allocate(100).unwrap(),
            len: 100,
            plain: false,
            encoding: Encoding::Linear,
        }),
        metadata: None,
        end: true,
        wait_for_ready: false,
        deadline: Deadline::NONE,
        a0: Instant(1),
        a1: Instant(2),
        queued: None,
        parent: CallId(0),
    }
}

fn start(session: &Session) -> Result<CallId, Refusal> {
    let mut order = order(session);
    session.with(|books, effects| books.start(&mut order, false, effects)).unwrap()
}

/// Without the block at offset 0.
fn bytes_in_use(session: &Session) -> u32 {
    session.send_heap.bytes_in_use() - (session.send_heap.capacity_bytes() - session.block_bytes_max())
}

fn taken(daemon: &mut DaemonEnd) -> Vec<Submission> {
    std::iter::from_fn(|| daemon.submissions.pop().unwrap())
        .map(|entry| Submission::decode(&entry).unwrap())
        .collect()
}

#[test]
fn refused_orders_keep_their_blocks_and_dropped_ones_return_them() {
    let (session, mut daemon, _control) = session(2);
    let calls = [start(&session).unwrap(), start(&session).unwrap()];
    let mut third = order(&session);
    let refused = session.with(|books, effects| books.start(&mut third, false, effects)).unwrap();
    assert_eq!(refused, Err(Refusal::Full(Resource::Calls)));
    assert!(third.payload.is_some(), "what was not sent is still there");
    drop(third);
    let sent: Vec<u32> = taken(&mut daemon)
        .iter()
        .map(|submission| match submission {
            Submission::Call(call) => {
                assert_eq!(call.route, RouteIndex(7));
                call.payload.unwrap().span.offset
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((calls.len(), sent.len()), (2, 2));
    let mut offsets = [0; trunkline_call::entry::FREED_MAX];
    offsets[..2].copy_from_slice(&sent);
    let _ = daemon.completions.push(&Completion::Freed { offsets }.encode()).unwrap();
    assert!(session.look());
    assert_eq!(bytes_in_use(&session), 0);
}

#[test]
fn a_block_returned_twice_ends_the_session() {
    let (session, mut daemon, _control) = session(2);
    let mut offsets = [0; trunkline_call::entry::FREED_MAX];
    offsets[0] = 64;
    let _ = daemon.completions.push(&Completion::Freed { offsets }.encode()).unwrap();
    session.look();
    assert!(session.is_lost());
    assert_eq!(start(&session), Err(Refusal::Closed));
    assert_eq!(bytes_in_use(&session), 0, "the order was dropped");
}

#[test]
fn what_must_not_wait_goes_to_the_backlog_and_keeps_its_order() {
    let (session, mut daemon, _control) = session(100);
    let calls: Vec<CallId> = (0..16).map(|_| start(&session).unwrap()).collect();
    assert_eq!(start(&session), Err(Refusal::Full(Resource::Ring)));
    for &call in &calls[..3] {
        session.with(|books, effects| books.abandon(call, effects));
    }
    assert_eq!(start(&session), Err(Refusal::Full(Resource::Ring)));
    assert_eq!(taken(&mut daemon).len(), 16);
    let late = start(&session).unwrap();
    let then = taken(&mut daemon);
    let cancels: Vec<Submission> = calls[..3].iter().map(|&call| Submission::Cancel { call }).collect();
    assert_eq!(then[..3], cancels, "the backlog goes first");
    assert!(matches!(then[3], Submission::Call(ref call) if call.call == late));
}

#[test]
fn the_turn_of_a_waiter_that_leaves_passes_on() {
    let (session, _daemon, _control) = session(1);
    let first = start(&session).unwrap();
    let asker = Asker { waker: Waker::noop(), foreign: false };
    let wait = || {
        session
            .with(|books, effects| {
                let ticket = books.join(Resource::Calls);
                let place = QueuePlace { resource: Resource::Calls, ticket, wanted_bytes: 0 };
                assert!(books.poll_turn(place, true, asker, effects).is_pending());
                place
            })
            .unwrap()
    };
    let (one, two) = (wait(), wait());
    session.with(|books, effects| books.abandon(first, effects));
    session.with(|books, effects| {
        assert!(books.poll_turn(one, false, asker, effects).is_ready(), "woken");
        assert!(books.poll_turn(two, false, asker, effects).is_pending(), "one event wakes one");
    });
    session.with(|books, effects| {
        books.leave_queue(one, effects);
        assert!(books.poll_turn(two, false, asker, effects).is_ready(), "the turn passed on");
    });
}

#[test]
fn a_late_answer_to_a_call_given_up_is_returned_once() {
    let (session, mut daemon, _control) = session(1);
    let call = start(&session).unwrap();
    session.with(|books, effects| books.abandon(call, effects));
    let block = daemon.receive_heap.allocate(40).unwrap().lend(40);
    let span = Span { offset: block.offset, len: block.len };
    let payload = Payload::new(span, Encoding::Linear);
    let finish = finish(call, Some(payload));
    let _ = daemon.completions.push(&Completion::Finish(finish).encode()).unwrap();
    session.look();
    let said = taken(&mut daemon);
    assert!(matches!(said[1], Submission::Cancel { .. }), "{said:?}");
    let returned =
        |submission: &&Submission| matches!(submission, Submission::Release { block, .. } if block.len == 40);
    assert_eq!(said.iter().filter(returned).count(), 1);
    assert!(start(&session).is_ok(), "and it counts no longer");
}

/// Nobody waits in this session any more, so the listener looks until nothing can follow the cancellation.
#[test]
fn what_follows_a_call_given_up_is_returned_though_nobody_waits() {
    let (session, mut daemon, _control) = session(1);
    let call = start(&session).unwrap();
    assert!(!session.needs_listener());
    session.with(|books, effects| books.abandon(call, effects));
    assert!(matches!(session.arm_for_listener(), Some(Some(_))), "it looks again, unrung");
    assert!(session.needs_listener(), "the daemon has not taken the cancellation");

    let block = daemon.receive_heap.allocate(40).unwrap().lend(40);
    let span = Span { offset: block.offset, len: block.len };
    let finish = finish(call, Some(Payload::new(span, Encoding::Linear)));
    let _ = daemon.completions.push(&Completion::Finish(finish).encode()).unwrap();
    assert_eq!(taken(&mut daemon).len(), 2, "a call and its cancellation");
    assert_eq!(session.arm_for_listener(), None, "something came");
    assert!(session.needs_listener(), "more may have come meanwhile");
    assert!(matches!(&taken(&mut daemon)[..], [Submission::Release { block, .. }] if block.len == 40));
    assert!(session.arm_for_listener().is_some());
    assert!(!session.needs_listener());
}

/// Between its two looks into the books the listener has let go of them.
#[test]
fn a_cancellation_that_comes_while_the_listener_arms_is_not_taken_for_the_one_before() {
    let (session, mut daemon, _control) = session(2);
    let [first, second] = [start(&session).unwrap(), start(&session).unwrap()];
    session.with(|books, effects| books.abandon(first, effects));
    assert_eq!(taken(&mut daemon).len(), 3, "two calls and a cancellation");
    let cancelled = session.with(|books, _| books.cancellations_taken()).flatten().expect("it was taken");
    session.with(|books, effects| books.abandon(second, effects));
    session.with(|books, _| books.cancellations_are_over(cancelled));
    assert!(session.needs_listener(), "the daemon has not taken the second one");

    assert_eq!(taken(&mut daemon).len(), 1);
    assert!(session.arm_for_listener().is_some());
    assert!(!session.needs_listener());
}

fn finish(call: CallId, payload: Option<Payload>) -> Finish {
    Finish {
        call,
        code: Code::Ok,
        execution: Execution::Executed,
        payload,
        metadata: Span::default(),
        taken: Instant(0),
        published: Instant(0),
        cpu_ns: 0,
        subtree: 0,
    }
}

/// A call's end goes with the return of its response. Where that is kept the end is told with the next call, which has
/// room then, and the response returns by itself.
#[test]
fn the_end_of_a_call_whose_response_is_kept_is_told() {
    let (session, mut daemon, _control) = session(1);
    let took = |daemon: &mut DaemonEnd, call: CallId| {
        let _ = daemon.completions.push(&Completion::Finish(finish(call, None)).encode()).unwrap();
        assert!(session.look());
        session.with(|books, effects| {
            let end = books.call(call).unwrap().end.unwrap();
            books.take_end(call, end, effects);
        });
    };
    let returned = |call: CallId| {
        let span = Span { offset: 64, len: 10 };
        session.with(|books, effects| books.return_last(call, span, Span::default(), effects));
        Submission::Release { call, block: span, metadata: Span::default(), a18: Instant(0) }
    };
    let first = start(&session).unwrap();
    took(&mut daemon, first);
    assert_eq!(start(&session), Err(Refusal::Full(Resource::Calls)), "it may be dropped in a moment");
    let mut next = order(&session);
    next.a1 = clock::now().plus_ns(20_000_000);
    let second = session.with(|books, effects| books.start(&mut next, false, effects)).unwrap().unwrap();
    took(&mut daemon, second);
    let kept = returned(first);
    returned(second);
    let said = taken(&mut daemon);
    let [Submission::Call(_), told, Submission::Call(_), back, both] = &said[..] else { panic!("{said:?}") };
    let is_told = |said: &Submission, of: CallId, bytes: u32| {
        matches!(
            said,
            Submission::Release { call, block, a18, .. } if (*call, block.len) == (of, bytes) && *a18 != Instant(0)
        )
    };
    assert!(is_told(told, first, 0) && *back == kept && is_told(both, second, 10), "{said:?}");
}

/// Somebody here drops a block of `len` bytes. Tells whether that woke the daemon, which slept.
fn wakes_daemon(session: &Session, daemon: &mut DaemonEnd, call: CallId, len: u32) -> bool {
    while daemon.submissions.pop().unwrap().is_some() {}
    assert!(daemon.submissions.arm().unwrap(), "the daemon sleeps");
    session.with(|books, effects| books.release(returned(call, Span { offset: 64, len }), effects));
    daemon.own_doorbell.quiet().unwrap()
}

fn started(session: &Session, daemon: &mut DaemonEnd) -> CallId {
    let call = start(session).unwrap();
    let _ = daemon.own_doorbell.quiet().unwrap();
    call
}

#[test]
fn a_block_returned_while_the_drainer_is_awake_is_rung_for_when_it_sleeps() {
    let (session, mut daemon, _control) = session(1);
    let call = started(&session, &mut daemon);
    assert!(!wakes_daemon(&session, &mut daemon, call, 10), "it can wait");
    assert_eq!(session.arm_for_listener(), Some(None));
    assert!(daemon.own_doorbell.quiet().unwrap(), "who sleeps may sleep on what the block makes space for");
}

#[test]
fn a_block_returned_while_the_drainer_sleeps_is_rung_for_at_once() {
    let (session, mut daemon, _control) = session(1);
    let call = started(&session, &mut daemon);
    assert_eq!(session.arm_for_listener(), Some(None));
    assert!(wakes_daemon(&session, &mut daemon, call, 10));
    // It is woken, by anything.
    let freed = Completion::Freed { offsets: [0; trunkline_call::entry::FREED_MAX] };
    let _ = daemon.completions.push(&freed.encode()).unwrap();
    assert!(session.look());
    assert!(!wakes_daemon(&session, &mut daemon, call, 10));
}

#[test]
fn a_leader_that_leaves_the_ring_to_a_sleeping_listener_says_what_was_said_quietly() {
    let (session, mut daemon, _control) = session(1);
    let call = started(&session, &mut daemon);
    assert!(!wakes_daemon(&session, &mut daemon, call, 10));
    let task = Asker { waker: Waker::noop(), foreign: true };
    session.with(|books, _| books.wait_to_receive(call, task));
    session.hand_over();
    assert!(daemon.own_doorbell.quiet().unwrap());
    assert!(wakes_daemon(&session, &mut daemon, call, 10), "and from now on loudly");
}

#[test]
fn much_of_a_window_is_not_returned_quietly() {
    let (session, mut daemon, _control) = session(1);
    let call = started(&session, &mut daemon);
    assert!(!wakes_daemon(&session, &mut daemon, call, 20));
    assert!(wakes_daemon(&session, &mut daemon, call, 20), "40 of 100 bytes: its sender may be waiting");
    assert!(!wakes_daemon(&session, &mut daemon, call, 20));
}

/// The doorbell is watched edge by edge: a listener that has answered it and finds the completions taken comes back for
/// the next ring only.
#[test]
fn a_ring_answered_while_the_ring_is_being_left_to_the_listener_is_not_lost() {
    let (session, mut daemon, _control) = session(1);
    let call = started(&session, &mut daemon);
    let task = Asker { waker: Waker::noop(), foreign: true };
    session.with(|books, _| books.wait_to_receive(call, task));
    let left = std::thread::scope(|scope| {
        let leaver = session.with(|books, effects| {
            let leaver = scope.spawn(|| session.leave_to_listener(session.completions.lock()).is_none());
            while !session.completions.is_locked() {
                thread::yield_now();
            }
            // Whatever it does before it needs the books: the longer, the more of it a fault has time for.
            thread::sleep(Duration::from_millis(50));
            let freed = Completion::Freed { offsets: [0; trunkline_call::entry::FREED_MAX] };
            let _ = daemon.completions.push(&freed.encode()).unwrap();
            books.before_listener_sleeps(effects);
            assert!(session.completions.try_lock().is_none(), "the listener trusts whoever has them");
            leaver
        });
        leaver.unwrap().join().unwrap()
    });
    assert!(!left, "it is not left: there is something to drain");
    session.hand_over();
    assert_eq!(daemon.completions.room(), Ok(daemon.completions.capacity()), "somebody drained");
}

/// A listener hears rings. Others drain for it meanwhile, and a doorbell that nobody empties is full after a few.
#[test]
fn each_ring_after_the_ring_was_left_to_the_listener_is_heard() {
    let (session, mut daemon, _control) = session(1);
    let call = started(&session, &mut daemon);
    let task = Asker { waker: Waker::noop(), foreign: true };
    session.with(|books, _| books.wait_to_receive(call, task));
    let heard = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&heard, session.doorbell(), epoll::EventData::new_u64(1), edges).unwrap();
    session.hand_over();
    for ring in 0..1_000 {
        let freed = Completion::Freed { offsets: [0; trunkline_call::entry::FREED_MAX] };
        assert!(daemon.completions.push(&freed.encode()).unwrap(), "ring {ring}: the listener sleeps");
        daemon.peer_doorbell.ring().unwrap();
        let mut events = Vec::with_capacity(1);
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(epoll::wait(&heard, spare_capacity(&mut events), Some(&at_once)), Ok(1), "ring {ring}");
        // Somebody else has the completions first, and leaves them.
        assert!(session.look());
    }
}

/// A handler may have given its request stream to another task.
#[test]
fn a_task_that_waits_for_a_call_is_woken_when_another_answers_it() {
    let (session, mut daemon, _control) = session(1);
    let call = CallId(1 << 63 | 1);
    assert!(call.is_delivered());
    let delivered = trunkline_call::entry::Call {
        route: RouteIndex(7),
        call,
        payload: None,
        metadata: Span::default(),
        end: false,
        wait_for_ready: false,
        deadline: Deadline::NONE,
        entered: Instant(1),
        published: Instant(2),
        parent: CallId(0),
    };
    let _ = daemon.completions.push(&Completion::Call(delivered).encode()).unwrap();
    assert!(session.look());
    let [receiving, sending] = [(); 2].map(|()| crate::kick::Kick::new().unwrap());
    let wakers = [&receiving, &sending].map(|kick| Waker::from(Arc::clone(kick)));
    let [receiver, sender] = wakers.each_ref().map(|waker| Asker { waker, foreign: true });
    session.with(|books, _| {
        books.wait_to_receive(call, receiver);
        books.wait_for_credit(call, sender);
    });
    session.with(|books, effects| books.answer(finish(call, None), effects));
    assert!(receiving.take() && sending.take());
    assert_eq!(session.with(|books, _| books.calls.foreign()), Some(0));
}

/// A `send` that is given up, by a timeout or a `select!`: nothing of its task stays.
#[test]
fn who_gives_up_waiting_to_send_is_not_waited_for() {
    let (session, _daemon, _control) = session(1);
    let call = {
        let mut order = Order { end: false, ..order(&session) };
        session.with(|books, effects| books.start(&mut order, false, effects)).unwrap().unwrap()
    };
    let message = || crate::opaque::OpaqueBody::from(vec![0; 100]).into_raw(Encoding::Linear);
    while session.with(|books, _| books.may_send(call)).unwrap().unwrap() {
        block_on(crate::stream::push(&session, call, message())).unwrap();
    }
    let kick = crate::kick::Kick::new().unwrap();
    let waker = Waker::from(Arc::clone(&kick));
    let before = Arc::strong_count(&kick);
    let full = wait_for(None, &session, Resource::Heap, u32::MAX, Some(call));
    let sends: [std::pin::Pin<Box<dyn Future<Output = ()> + '_>>; 2] = [
        Box::pin(async { _ = full.await }),
        Box::pin(async { _ = crate::stream::push(&session, call, message()).await }),
    ];
    for mut send in sends {
        assert!(send.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        assert!(Arc::strong_count(&kick) > before);
        drop(send);
        assert_eq!(Arc::strong_count(&kick), before, "its waker is gone");
        assert_eq!(session.with(|books, _| books.calls.foreign()), Some(0));
    }
}

/// The same of one that waits to receive.
#[test]
fn who_gives_up_waiting_to_receive_is_not_waited_for() {
    let (session, _daemon, _control) = session(1);
    let call = start(&session).unwrap();
    let kick = crate::kick::Kick::new().unwrap();
    let waker = Waker::from(Arc::clone(&kick));
    let before = Arc::strong_count(&kick);
    session.with(|books, _| books.wait_to_receive(call, Asker { waker: &waker, foreign: true }));
    assert_eq!(session.with(|books, _| books.calls.foreign()), Some(1));
    stop_receiving(&session, call);
    stop_receiving(&session, call);
    assert_eq!(Arc::strong_count(&kick), before, "its waker is gone");
    assert_eq!(session.with(|books, _| books.calls.foreign()), Some(0));
}

/// Answers that came soon are kept for whoever waits next.
#[test]
fn answers_that_come_soon_are_counted() {
    let (session, mut daemon, _control) = session(1);
    let (long_ago, just_now) = (Instant(2), Instant(u64::MAX));
    for (a1, quick) in [(long_ago, 0), (just_now, 1), (long_ago, 0)] {
        let mut order = Order { a1, ..order(&session) };
        let call = session.with(|books, effects| books.start(&mut order, false, effects)).unwrap().unwrap();
        let _ = daemon.completions.push(&Completion::Finish(finish(call, None)).encode()).unwrap();
        assert!(session.look());
        assert_eq!(std::mem::take(&mut session.completions.lock().quick_steps), quick);
        session.with(|books, effects| books.abandon(call, effects));
    }
}

/// A thread that leads and sleeps until it is woken: nothing is due, and its call is not answered.
fn sleeping_leader(session: &Arc<Session>, daemon: &mut DaemonEnd) -> (CallId, thread::JoinHandle<()>) {
    let call = start(session).unwrap();
    assert_eq!(taken(daemon).len(), 1);
    let leader = thread::spawn({
        let session = Arc::clone(session);
        move || {
            let _ = block_on(ended(&session, call));
        }
    });
    while !daemon.completions.consumer_rests().unwrap() {
        thread::yield_now();
    }
    (call, leader)
}

async fn ended(session: &Arc<Session>, call: CallId) -> End {
    let ended = poll_fn(|cx| {
        session.poll_with(cx, |books, asker, _| match books.call(call).and_then(|state| state.end) {
            Some(end) => Poll::Ready(end),
            None => {
                books.wait_to_receive(call, asker);
                Poll::Pending
            }
        })
    });
    ended.await.unwrap()
}

/// Runs `work` on a thread that follows. The result is there, or the test fails, before long.
fn following<T: Send + 'static>(
    session: &Arc<Session>,
    work: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    while session.with(|books, _| books.sleepers.has_followers()) != Some(true) {
        thread::yield_now();
    }
    hear
}

fn finish_and_ring(daemon: &mut DaemonEnd, call: CallId) {
    if daemon.completions.push(&Completion::Finish(finish(call, None)).encode()).unwrap() {
        daemon.peer_doorbell.ring().unwrap();
    }
}

const WATCHDOG: Duration = Duration::from_secs(120);

/// The daemon does not say that it has taken entries, and a leader that sleeps without a limit does not look.
#[test]
fn space_in_an_exactly_full_ring_is_found_while_the_leader_sleeps() {
    let (session, mut daemon, _control) = session(100);
    let (call, leader) = sleeping_leader(&session, &mut daemon);
    while session.with(|books, effects| books.has(Resource::Ring, 0, effects)) == Some(true) {
        session.with(|books, effects| books.say(Submission::Cancel { call: CallId(99) }, effects));
    }
    assert_eq!(session.with(|books, _| books.outbox.has_backlog()), Some(false), "exactly full");
    let served = following(&session, {
        let session = Arc::clone(&session);
        move || block_on(wait_for(None, &session, Resource::Ring, 0, None)).is_some()
    });
    assert_eq!(taken(&mut daemon).len(), 16, "the daemon goes on, and says nothing");
    assert_eq!(served.recv_timeout(WATCHDOG), Ok(true));
    finish_and_ring(&mut daemon, call);
    leader.join().unwrap();
}

/// Until the daemon has let go of the ring it takes what lies there: that was not executed only if it says so, or goes.
#[test]
fn what_the_daemon_may_still_take_is_not_said_to_be_left() {
    for (end, left_behind) in [(EndedBy::Daemon, false), (EndedBy::Us, true)] {
        let (session, mut daemon, _control) = session(2);
        let (first, second) = (start(&session).unwrap(), start(&session).unwrap());
        assert!(daemon.submissions.pop().unwrap().is_some());
        session.end("over", end);
        let taken = |call| session.with(|books, _| books.call(call).and_then(|state| state.end)).flatten();
        assert!(matches!(taken(first), Some(End::SessionLost { taken: true })));
        let second = taken(second);
        assert!(
            matches!(second, Some(End::SessionLost { taken }) if taken == left_behind),
            "{end:?}: {second:?}"
        );
    }
}

/// A session that is attached when nobody will use it any more does not stay.
#[test]
fn a_lane_that_was_closed_meanwhile_ends_the_session_it_gets() {
    let (session, _daemon, _control) = session(1);
    let lane = Lane::of_calls(&"test".into());
    lane.close();
    assert!(session.is_open());
    lane.attached(Arc::clone(&session));
    assert!(!session.is_open() && lane.session().is_none());
}

/// A thread that was chosen to lead and panics leads nobody: another has to be chosen.
#[test]
fn a_follower_that_panics_when_it_is_to_lead_leaves_it_to_another() {
    let (session, mut daemon, _control) = session(100);
    let (call, leader) = sleeping_leader(&session, &mut daemon);
    let [panics, goes_on] = [(); 2].map(|()| start(&session).unwrap());
    let served = following(&session, {
        let session = Arc::clone(&session);
        move || block_on(ended(&session, goes_on))
    });
    let lost = following(&session, {
        let session = Arc::clone(&session);
        move || {
            let (mut polled, mut ended) = (false, Box::pin(ended(&session, panics)));
            let poll = poll_fn(|cx| {
                assert!(!std::mem::replace(&mut polled, true), "planted: it was woken");
                ended.as_mut().poll(cx)
            });
            catch_unwind(AssertUnwindSafe(|| block_on(poll))).is_err()
        }
    });
    while session.with(|books, _| books.sleepers.followers()) != Some(2) {
        thread::yield_now();
    }
    // The leader goes with its answer, and who followed last is to lead.
    finish_and_ring(&mut daemon, call);
    assert_eq!(lost.recv_timeout(WATCHDOG), Ok(true));
    leader.join().unwrap();
    finish_and_ring(&mut daemon, goes_on);
    assert!(served.recv_timeout(WATCHDOG).is_ok(), "nobody leads");
}

/// The leader's call has no deadline, so it sleeps without a limit; the daemon does nothing any more.
#[test]
fn a_followers_deadline_is_enforced_while_the_leader_sleeps() {
    let (session, mut daemon, _control) = session(100);
    let (call, leader) = sleeping_leader(&session, &mut daemon);
    let deadline = Deadline::at(clock::now().plus_ns(5_000_000));
    let mut order = Order { deadline, ..order(&session) };
    let late = session.with(|books, effects| books.start(&mut order, false, effects)).unwrap().unwrap();
    let end = following(&session, {
        let session = Arc::clone(&session);
        move || block_on(ended(&session, late))
    });
    assert!(matches!(end.recv_timeout(WATCHDOG), Ok(End::Overdue)));
    finish_and_ring(&mut daemon, call);
    leader.join().unwrap();
}

/// The thread has been away for longer than the deadline, and the answer came in time.
#[test]
fn an_answer_that_came_counts_before_the_clock() {
    let (session, mut daemon, _control) = session(100);
    let deadline = clock::now().plus_ns(5_000_000);
    let mut order = Order { deadline: Deadline::at(deadline), ..order(&session) };
    let call = session.with(|books, effects| books.start(&mut order, false, effects)).unwrap().unwrap();
    finish_and_ring(&mut daemon, call);
    session.take_and_tend(&mut session.completions.lock(), deadline.plus_ns(1_000_000_000));
    assert!(matches!(block_on(ended(&session, call)), End::Finished { .. }));
}

/// A leader that always finds something never sleeps, and looks for space all the same.
#[test]
fn a_leader_that_is_busy_serves_those_who_wait_for_space_in_the_ring() {
    let (session, mut daemon, _control) = session(100);
    for _ in 0..16 {
        start(&session).unwrap();
    }
    let asker = Asker { waker: Waker::noop(), foreign: false };
    let place = session.with(|books, effects| {
        let place =
            QueuePlace { resource: Resource::Ring, ticket: books.join(Resource::Ring), wanted_bytes: 0 };
        assert!(books.poll_turn(place, true, asker, effects).is_pending());
        place
    });
    assert_eq!(taken(&mut daemon).len(), 16);
    let freed = Completion::Freed { offsets: [0; trunkline_call::entry::FREED_MAX] };
    let _ = daemon.completions.push(&freed.encode()).unwrap();
    assert!(session.look());
    session.with(|books, effects| assert!(books.poll_turn(place.unwrap(), false, asker, effects).is_ready()));
}
