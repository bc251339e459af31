//! The thread behind a hub: attaches lanes, reads control sockets, listens for tasks of other executors, keeps timers.
//!
//! It exists once the first lane is used. It sleeps in `epoll` unless tasks of other executors wait for calls; then it
//! waits as every waiter does: looks, yields, sleeps. Nothing it does blocks, so it delays nobody, but for one thing: a
//! daemon that is stopped takes no connections, and beyond the 128 that wait for it each attempt to connect takes 5 s.
//! Who waits for an attached session's timers or rings meanwhile, waits as long.

use super::alone;
use super::attach::{Greeted, Opened};
use super::dial::Daemon;
use super::handle::{ReactorHandle, TimerAction};
use super::lane::Lane;
use super::unattached::Unattached;
use crate::clock;
use crate::refusals::unavailable;
use crate::session::{EndedBy, IdMap, Session, SessionId, SessionIdentity, SessionListener};
use crate::settings;
use crate::wakers;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use trunkline_call::{Instant, Status};
use trunkline_control::{decode_reply, reply};
use trunkline_shm::{Decision, Waiter};

/// Starts the thread.
///
/// # Errors
/// UNAVAILABLE, not executed, when the system has no thread or descriptor to give.
pub(super) fn start(handle: &Arc<ReactorHandle>, daemon: &Daemon) -> Result<(), Status> {
    let none = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "no thread for the reactor; calls cannot be made");
        unavailable(&format!("the system has no thread or descriptor for attaching to a daemon: {error}"))
    };
    let reactor = Reactor::new(Arc::clone(handle), daemon.clone()).map_err(|error| none(&error))?;
    let thread = std::thread::Builder::new().name("trunkline-io".into());
    thread.spawn(move || reactor.run()).map(drop).map_err(|error| none(&error))
}

/// What the thread knows, and nobody else.
struct Reactor {
    handle: Arc<ReactorHandle>,
    daemon: Daemon,
    epoll: OwnedFd,
    attaching: IdMap<u64, (Arc<Lane>, Greeted)>,
    members: IdMap<u64, Member>,
    next_token: u64,
    waiter: Waiter,
    packet: Vec<u8>,
    /// The daemon is one inside this process for want of another.
    alone: bool,
    /// Why there is no daemon but the one inside this process, until a server has said it.
    unsaid: Option<Status>,
    unattached: Unattached,
    /// Lanes to attach, as they were asked for.
    to_attach: VecDeque<Arc<Lane>>,
    /// The lane that is being attached or has been answered, while it is in neither of the above.
    in_hand: Option<Arc<Lane>>,
    /// What is to be said once nothing is half done: whoever collects it is other people's code.
    lines: Vec<String>,
    /// Something panicked, and what was under way has not been told.
    is_shaken: bool,
}

struct Member {
    lane: Arc<Lane>,
    session: Arc<Session>,
    watched: bool,
}

/// What an epoll event is about: a token, doubled, plus one for a doorbell.
const KICK: u64 = u64::MAX;

impl Reactor {
    fn new(handle: Arc<ReactorHandle>, daemon: Daemon) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, handle.kick().as_fd(), epoll::EventData::new_u64(KICK), epoll::EventFlags::IN)?;
        Ok(Self {
            handle,
            daemon,
            epoll,
            attaching: IdMap::default(),
            members: IdMap::default(),
            next_token: 0,
            waiter: Waiter::on_credit(settings::wait_limits()),
            packet: Vec::new(),
            alone: false,
            unsaid: None,
            unattached: Unattached::default(),
            to_attach: VecDeque::new(),
            in_hand: None,
            lines: Vec::new(),
            is_shaken: false,
        })
    }

    /// All calls of the process need this thread: a panic does not end it. Those of other people's code (connectors,
    /// subscribers of the log, wakers) are caught where it is called, so that no session ends for them.
    fn run(mut self) {
        loop {
            self.is_shaken = wakers::caught(|| self.serve()).is_none();
        }
    }

    /// Runs until something panics.
    fn serve(&mut self) -> Infallible {
        if self.is_shaken {
            self.begin_anew();
            self.is_shaken = false;
        }
        let mut waiting = false;
        loop {
            self.handle.kick().take();
            self.say_lines();
            let mut found = self.obey();
            found |= self.fire();
            found |= self.listen();
            let now = clock::now();
            if found {
                if std::mem::take(&mut waiting) {
                    self.waiter.arrived(now.0);
                }
                continue;
            }
            if !std::mem::replace(&mut waiting, true) {
                self.waiter.begin(now.0);
            }
            let decision = if self.listens() { self.waiter.decide(now.0) } else { Decision::Block };
            match decision {
                Decision::Spin => std::hint::spin_loop(),
                Decision::Yield => rustix::thread::sched_yield(),
                Decision::Block => self.sleep(),
            }
        }
    }

    /// Ends what may be half done: who waits for it is told, and attaches anew. Each step takes something away first,
    /// so that one that panics is not met again.
    fn begin_anew(&mut self) {
        const WHY: &str = "something panicked on the thread that attaches to the daemon";
        while let Some(token) = self.members.keys().next().copied() {
            self.detach(token, WHY, EndedBy::Us);
        }
        self.fail_in_hand(WHY);
        while let Some(token) = self.attaching.keys().next().copied() {
            self.in_hand = self.attaching.remove(&token).map(|(lane, _)| lane);
            self.fail_in_hand(WHY);
        }
    }

    fn fail_in_hand(&mut self, why: &str) {
        if let Some(lane) = self.in_hand.take() {
            self.failed(&lane, &unavailable(why));
        }
    }

    fn say_lines(&mut self) {
        for line in self.lines.drain(..) {
            wakers::caught(|| alone::say(&line));
        }
    }

    /// Takes what was asked for.
    fn obey(&mut self) -> bool {
        let (attach, watch) = {
            let mut requests = self.handle.requests().lock();
            (std::mem::take(&mut requests.attach), std::mem::take(&mut requests.watch))
        };
        let any = !attach.is_empty() || !watch.is_empty() || !self.to_attach.is_empty();
        self.to_attach.extend(attach);
        while let Some(lane) = self.to_attach.pop_front() {
            self.attach(lane);
        }
        for session in watch {
            self.watch(session);
            self.read_unread(session);
        }
        any
    }

    /// Does what is due.
    fn fire(&mut self) -> bool {
        let now = clock::now();
        let mut any = false;
        loop {
            let due = self.handle.requests().lock().timers.due(now);
            match due {
                Some(TimerAction::Wake(waker)) => wakers::wake(waker),
                Some(TimerAction::Attach(lane)) if lane.begin_retry() => self.attach(lane),
                Some(TimerAction::Attach(_)) => {}
                Some(TimerAction::Trim(SessionId(token))) => {
                    if let Some(member) = self.members.get(&token) {
                        member.session.trim();
                    }
                }
                None => return any,
            }
            any = true;
        }
    }

    /// Drains the rings of sessions with tasks of other executors.
    fn listen(&mut self) -> bool {
        let mut any = false;
        for member in self.members.values().filter(|member| member.watched) {
            any |= member.session.look_for(&mut self.waiter);
        }
        any
    }

    fn listens(&self) -> bool {
        self.members.values().any(|member| member.watched && member.session.needs_listener())
    }

    /// Arms every watched ring and sleeps until something happens.
    fn sleep(&mut self) {
        let Some(timeout_ns) = self.arm() else { return self.attend() };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
        if self.handle.kick().fall_asleep() {
            let timeout = timeout_ns.map(|ns| rustix::event::Timespec {
                tv_sec: (ns / 1_000_000_000) as _,
                tv_nsec: (ns % 1_000_000_000) as _,
            });
            // Interrupted by a signal: the loop looks again.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
            self.handle.kick().wake_up();
        }
        self.attend();
        // What has come counts before the clock does: this thread may have been away for longer than it slept.
        for event in events {
            self.handle(event.data.u64());
        }
        self.listen();
        let now = clock::now();
        for member in self.members.values().filter(|member| member.watched) {
            member.session.tend(now);
        }
        self.give_up_attaching(now);
    }

    /// Tells those who come to wait that they need not arm the ring: this thread is awake.
    fn attend(&self) {
        for member in self.members.values().filter(|member| member.watched) {
            member.session.set_attended(true);
        }
    }

    /// Prepares every watched session for the reactor's sleep. `None`: something came, do not sleep. Otherwise how long
    /// to sleep at most.
    fn arm(&mut self) -> Option<Option<u64>> {
        let now = clock::now();
        let mut until_ns = self.handle.requests().lock().timers.next_due().map(|at| at.since_ns(now));
        let soonest = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        for (_, greeted) in self.attaching.values() {
            until_ns = soonest(until_ns, Some(greeted.until.since_ns(now)));
        }
        self.unwatch_idle();
        for member in self.members.values().filter(|member| member.watched) {
            member.session.set_attended(false);
            until_ns = soonest(until_ns, member.session.arm_for_listener()?);
        }
        Some(until_ns)
    }

    /// Stops watching sessions that do not need it: their own threads drain them without waking the reactor.
    fn unwatch_idle(&mut self) {
        for (token, member) in self.members.iter_mut().filter(|(_, member)| member.watched) {
            if member.session.needs_listener() {
                continue;
            }
            member.session.set_watched(false);
            member.session.set_attended(false);
            // Whoever came to wait between the two saw "watched" and relies on it.
            if member.session.needs_listener() {
                member.session.set_watched(true);
                continue;
            }
            member.watched = false;
            remove(&self.epoll, member.session.doorbell(), *token);
        }
    }

    fn handle(&mut self, data: u64) {
        if data == KICK || data & 1 == 1 {
            return; // kicks and doorbells: the loop looks anyway
        }
        let token = data >> 1;
        if let Some((lane, greeted)) = self.attaching.remove(&token) {
            self.answered(token, lane, greeted);
        } else if self.members.contains_key(&token) {
            self.read_control(token);
        }
    }

    fn attach(&mut self, lane: Arc<Lane>) {
        self.in_hand = Some(Arc::clone(&lane));
        // A connector is somebody's: what it does to one session is nothing to the others.
        let panicked = || Err(unavailable("something panicked while connecting to the daemon"));
        let dialled = wakers::caught(|| self.daemon.dial()).unwrap_or_else(panicked).map(|dialled| {
            if let Some(why) = dialled.alone {
                if lane.worker().is_none() {
                    let line = alone::of_caller(lane.name(), why.message());
                    wakers::caught(|| tracing::warn!("{line}"));
                }
                self.alone = true;
                self.unsaid = Some(why);
            }
            dialled.socket
        });
        if lane.worker().is_some()
            && let Some(why) = self.unsaid.take()
        {
            self.lines.push(alone::of_server(lane.name(), why.message()));
        }
        let greeted =
            dialled.and_then(|socket| Greeted::greet(socket, lane.name(), lane.role(), clock::now()));
        match greeted {
            Ok(greeted) => {
                self.next_token += 1;
                self.add(greeted.socket().as_fd(), self.next_token << 1, epoll::EventFlags::IN);
                self.attaching.insert(self.next_token, (lane, greeted));
            }
            Err(why) => self.failed(&lane, &why),
        }
        self.in_hand = None;
    }

    fn answered(&mut self, token: u64, lane: Arc<Lane>, greeted: Greeted) {
        self.in_hand = Some(Arc::clone(&lane));
        match greeted.answer(&mut self.packet) {
            Ok(Ok(opened)) => self.join(token, lane, opened),
            Ok(Err(greeted)) => drop(self.attaching.insert(token, (lane, greeted))),
            // The socket is closed by now, and with it its place in the epoll set is gone.
            Err(why) => self.failed(&lane, &why),
        }
        self.in_hand = None;
    }

    fn join(&mut self, token: u64, lane: Arc<Lane>, opened: Opened) {
        let Opened { socket, end, limits } = opened;
        let identity =
            SessionIdentity { session: SessionId(token), hub: self.handle.hub(), alone: self.alone };
        let listener = Arc::clone(&self.handle) as Arc<dyn SessionListener>;
        let session = Session::new(end, socket, limits, lane.worker(), identity, listener);
        self.handle.remember(&session);
        self.members
            .insert(token, Member { lane: Arc::clone(&lane), session: Arc::clone(&session), watched: false });
        if lane.worker().is_some()
            && let Some(line) = self.unattached.attached(lane.name())
        {
            self.lines.push(line);
        }
        lane.attached(session);
    }

    fn failed(&mut self, lane: &Arc<Lane>, why: &Status) {
        if let Some(retry_at) = lane.failed(why) {
            self.handle.attach_at(lane, retry_at);
        }
        if lane.worker().is_some()
            && let Some(line) = self.unattached.failed(lane.name(), why, clock::now())
        {
            self.lines.push(line);
        }
        wakers::caught(|| tracing::debug!(%why, "attach failed"));
    }

    fn give_up_attaching(&mut self, now: Instant) {
        let late: Vec<u64> = self
            .attaching
            .iter()
            .filter(|(_, (_, greeted))| greeted.until <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            if let Some((lane, _)) = self.attaching.remove(&token) {
                self.failed(
                    &lane,
                    &unavailable("the daemon did not answer an attach: it is stopped, or hangs"),
                );
            }
        }
    }

    /// Reads what the daemon says on a session's control socket.
    fn read_control(&mut self, token: u64) {
        let Some(member) = self.members.get(&token) else { return };
        let by_us = |why: String| (why, EndedBy::Us);
        let (reason, end) = match member.session.read_control(&mut self.packet) {
            Ok(Some(())) => match decode_reply(&self.packet) {
                Ok((tag, reply::Kind::Bound(bound))) => return member.session.bound(tag, bound),
                Ok((_, reply::Kind::Detached(detached))) => (detached.reason, EndedBy::Daemon),
                // The heap that came with it is taken in already; calls go on.
                Ok((_, reply::Kind::Moved(_))) => return,
                Ok((_, reply::Kind::Attached(_))) => by_us("the daemon attached a session twice".to_owned()),
                Err(error) => by_us(error.to_string()),
            },
            Ok(None) => ("the daemon went away".to_owned(), EndedBy::Daemon),
            Err(error) if error.would_block() => return,
            Err(error) => by_us(error.to_string()),
        };
        self.detach(token, &reason, end);
    }

    fn detach(&mut self, token: u64, reason: &str, end: EndedBy) {
        let Some(member) = self.members.remove(&token) else { return };
        if member.watched {
            remove(&self.epoll, member.session.doorbell(), token);
        }
        // What was in the ring when the daemon left is still true. If that is what panics, those who wait are told
        // all the same.
        wakers::caught(|| member.session.look());
        member.lane.lost(&member.session);
        wakers::caught(|| member.session.end(reason, end));
        // With it goes its place in the epoll set.
        member.session.close_control();
    }

    fn watch(&mut self, SessionId(token): SessionId) {
        let Some(member) = self.members.get_mut(&token) else { return };
        if !std::mem::replace(&mut member.watched, true) {
            let data = epoll::EventData::new_u64(token << 1 | 1);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            if let Err(error) = epoll::add(&self.epoll, member.session.doorbell(), data, flags) {
                wakers::caught(|| tracing::error!(%error, "cannot watch a doorbell"));
            }
            member.session.set_attended(true);
        }
    }

    /// Deals with what somebody who looked for a heap has read and left to this thread.
    fn read_unread(&mut self, SessionId(token): SessionId) {
        while self.members.get(&token).is_some_and(|member| member.session.has_unread()) {
            self.read_control(token);
        }
    }

    fn add(&self, fd: BorrowedFd<'_>, data: u64, flags: epoll::EventFlags) {
        if let Err(error) = epoll::add(&self.epoll, fd, epoll::EventData::new_u64(data), flags) {
            wakers::caught(|| tracing::error!(%error, "cannot watch a descriptor"));
        }
    }
}

fn remove(epoll: &OwnedFd, fd: BorrowedFd<'_>, token: u64) {
    if let Err(error) = epoll::delete(epoll, fd) {
        wakers::caught(|| tracing::debug!(%error, token, "a descriptor was not watched"));
    }
}

#[cfg(test)]
mod tests {
    //! Shows that tasks' wakers, which are other people's code, neither end the reactor's thread nor lock it up, and
    //! that it hears what other threads have read for it.
    use super::super::dial::Connector;
    use super::super::lane::Patience;
    use super::super::wait::SessionWait;
    use super::*;
    use crate::kick::Kick;
    use crate::session::{Agreement, BindingId, Limits};
    use crate::wait::block_on;
    use prost::Message;
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    use trunkline_call::TimerKey;
    use trunkline_call::entry::{Completion, FREED_MAX, Span};
    use trunkline_control::{Bound, CallMethod, Reply, decode_request};
    use trunkline_shm::{ControlSocket, DaemonEnd, SessionConfig, create_session, open_session};

    fn handle() -> Arc<ReactorHandle> {
        ReactorHandle::new(Daemon::Embedded, start)
    }

    #[derive(Debug)]
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("not mine to wake");
        }
    }

    impl SessionListener for Panics {
        fn watch(&self, _session: SessionId) {}

        fn trim_at(&self, _at: Instant, _session: SessionId) {
            panic!("not mine to keep");
        }
    }

    impl tracing::Subscriber for Panics {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            panic!("not mine to write");
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// The two ends of a session that is just opened.
    fn opened() -> (Opened, DaemonEnd, ControlSocket) {
        let config = SessionConfig::default();
        let (daemon, fds) = create_session(&config).unwrap();
        let end = open_session(fds, &config).unwrap();
        let (socket, theirs) = ControlSocket::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let limits = Limits { calls_max: 1, window_bytes: 100, usual_bytes: 1 << 20, tells_callers: false };
        (Opened { socket, end, limits }, daemon, theirs)
    }

    /// Whoever looks for a receive heap may read the answer to somebody's question, and then no descriptor tells of it.
    #[test]
    fn an_answer_that_another_thread_has_read_is_dealt_with() {
        let handle = handle();
        let mut reactor = Reactor::new(Arc::clone(&handle), Daemon::Embedded).unwrap();
        let (opened, _end, daemon) = opened();
        let lane = Lane::of_calls(&"test".into());
        reactor.join(1, Arc::clone(&lane), opened);
        let session = lane.session().unwrap();
        let agreement = || Agreement { name: "a.B".into(), calls: vec![CallMethod::default()], set: None };
        let mut asked = std::pin::pin!(session.agree(BindingId(1), agreement));
        let mut poll = || asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());

        let mut packet = Vec::new();
        daemon.recv(&mut packet, 1).unwrap();
        let (tag, _) = decode_request(&packet).unwrap();
        let bound = Bound { calls: vec![7], ..Bound::default() };
        let answer = Reply { tag, kind: Some(reply::Kind::Bound(bound)) }.encode_to_vec();
        daemon.send(&answer, &[]).unwrap();
        assert!(session.received_block(Span { offset: 1, len: 1 }).is_err(), "there is no such heap");
        reactor.obey();
        assert_eq!(poll(), Poll::Ready(Ok(())));
    }

    /// A connector is other people's code, too.
    #[test]
    fn a_connector_that_panics_does_not_end_the_reactor_and_who_waits_is_told() {
        let tries = AtomicUsize::new(0);
        let connect = move || match tries.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("no connection from me"),
            _ => Err(std::io::Error::other("refused")),
        };
        let handle = ReactorHandle::new(Daemon::Given(Connector(Arc::new(connect))), start);
        let attach = || {
            let (mut wait, lane) = (SessionWait::new(Patience::FailFast), Lane::of_calls(&"test".into()));
            block_on(std::future::poll_fn(|cx| wait.poll(&handle, &lane, cx))).unwrap_err()
        };
        let panicked = attach();
        assert!(panicked.message().contains("something panicked"), "{panicked}");
        let refused = attach();
        assert!(refused.message().ends_with("refused"), "{refused}");
    }

    /// So is a subscriber of the log: what it does to a line is nothing to the sessions.
    #[test]
    fn a_subscriber_that_panics_ends_no_session() {
        let handle = handle();
        let mut reactor = Reactor::new(Arc::clone(&handle), Daemon::Embedded).unwrap();
        let lanes = [1, 2, 3].map(|_| Lane::of_calls(&"test".into()));
        let _ends = [0, 1].map(|index| {
            let (opened, end, socket) = opened();
            reactor.join(index as u64, Arc::clone(&lanes[index]), opened);
            (end, socket)
        });
        tracing::subscriber::with_default(Panics, || {
            reactor.detach(0, "the daemon went away", EndedBy::Daemon);
            reactor.failed(&lanes[2], &unavailable("nobody is there"));
        });
        assert!(lanes[0].session().is_none());
        assert!(lanes[1].session().is_some_and(|session| session.is_open()));
    }

    /// What panics of a session when it is looked at does so again when it is ended: who waits is told all the same.
    #[test]
    fn a_session_that_panics_twice_is_ended() {
        let handle = handle();
        let mut reactor = Reactor::new(Arc::clone(&handle), Daemon::Embedded).unwrap();
        let (opened, mut daemon, _socket) = opened();
        let Opened { socket, end, limits } = opened;
        let identity = SessionIdentity { session: SessionId(1), hub: handle.hub(), alone: false };
        let session = Session::new(end, socket, limits, None, identity, Arc::new(Panics));
        let lane = Lane::of_calls(&"test".into());
        let member = Member { lane: Arc::clone(&lane), session: Arc::clone(&session), watched: false };
        reactor.members.insert(1, member);
        lane.attached(Arc::clone(&session));
        let agreement = || Agreement { name: "a.B".into(), calls: vec![CallMethod::default()], set: None };
        let mut asked = std::pin::pin!(session.agree(BindingId(1), agreement));
        let mut poll = || asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());

        // A large block is free again, and the listener is told.
        let large = session.allocate(16 << 20).unwrap().lend(16 << 20);
        let mut offsets = [0; FREED_MAX];
        offsets[0] = large.offset;
        let _ = daemon.completions.push(&Completion::Freed { offsets }.encode()).unwrap();
        let _ = daemon.completions.publish();
        reactor.begin_anew();
        assert!(session.is_lost() && lane.session().is_none());
        assert!(matches!(poll(), Poll::Ready(Err(_))));
    }

    #[test]
    fn a_waker_that_panics_does_not_end_the_reactor() {
        let (handle, kick) = (handle(), Arc::new(Kick::new().unwrap()));
        handle.set_timer(Instant::default(), Waker::from(Arc::new(Panics)), None);
        while handle.timers() > 0 {
            std::thread::yield_now();
        }
        handle.kick_at(Instant::default(), &kick);
        while !kick.take() {
            kick.sleep(Some(60_000_000_000));
            assert_eq!(handle.timers(), 0, "nobody looks at timers any more");
        }
    }

    /// The last that holds a task whose future holds a timer, too.
    struct Holds(Arc<ReactorHandle>, TimerKey);

    impl Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Holds {
        fn drop(&mut self) {
            self.0.cancel_timer(self.1);
        }
    }

    #[test]
    fn a_timer_may_be_all_that_holds_another() {
        let (handle, far) = (handle(), Instant(u64::MAX));
        let holder = |handle: &Arc<ReactorHandle>| {
            let inner = handle.set_timer(far, Waker::noop().clone(), None);
            handle.set_timer(far, Waker::from(Arc::new(Holds(Arc::clone(handle), inner))), None)
        };
        let outer = holder(&handle);
        handle.cancel_timer(outer);
        assert_eq!(handle.timers(), 0);
        let outer = holder(&handle);
        handle.set_timer(far, Waker::noop().clone(), Some(outer));
        assert_eq!(handle.timers(), 1);
    }
}
