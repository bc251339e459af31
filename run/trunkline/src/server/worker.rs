//! One worker: a thread with a session of its own that receives calls and runs their handlers.

use super::delivered::{Delivered, drop_unstarted, refuse};
use super::routes::{Routes, Served};
use super::shared::{Shared, Stop};
use super::tasks::Tasks;
use crate::clock;
use crate::context::{self, Parent};
use crate::hub::{self, Lane, Patience, ReactorHandle, SessionWait, Sleep};
use crate::kick::Kick;
use crate::session::{Session, Work};
use crate::wait::block_on;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use trunkline_call::entry::{self, Finish, Span, Submission};
use trunkline_call::{CallId, Code, Execution, Instant, Status};

/// How often a worker that is leaving looks whether the daemon has taken its last entries.
const LEAVE_TICK_NS: u64 = 1_000_000;

/// How long a worker with nothing left to do waits for the daemon to say that nothing will come: daemons older than the
/// word do not say it.
const UNANSWERED_NS: u64 = 1_000_000_000;

/// Of the time between two looks so much counts for that: where this thread had no processor for longer, the daemon may
/// have had none either, and its word be on its way.
const LOOK_NS_MAX: u64 = 10 * LEAVE_TICK_NS;

/// How long the daemon may take to take the last entries after the last answer.
const LEAVE_NS: u64 = 100_000_000;

/// How long a worker waits after the daemon has refused a service, before it asks again.
const REFUSED_REST_NS: u64 = 1_000_000_000;

/// How long it waits at most where there is no room for it: longer each time, from the above. Each time the daemon
/// reads its descriptors anew.
const NO_ROOM_REST_NS_MAX: u64 = 30_000_000_000;

/// How long it waits when the session was lost before its services were bound: longer each time, up to the above. Each
/// attach costs the daemon two heaps.
const LOST_REST_NS_MIN: u64 = 10_000_000;

/// A worker's thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    reactor: Arc<ReactorHandle>,
    lane: Arc<Lane>,
    kick: Arc<Kick>,
    tasks: Tasks,
    /// Empty between turns; kept for its memory.
    work: Work,
}

/// Why a worker stopped serving a session.
enum Left {
    /// The session is lost: attach anew.
    Lost,
    /// The server stops.
    Stopped,
}

/// Whether the daemon refuses what it may take later.
fn is_for_now(status: &Status) -> bool {
    matches!(status.code(), Code::PermissionDenied | Code::ResourceExhausted)
}

/// The end of a handler nobody waits for.
fn wasted(call: CallId, cpu_ns: u64) -> Finish {
    let (code, execution) = (Code::Cancelled, Execution::Executed);
    let (payload, metadata) = (None, Span::default());
    let (taken, published) = (Instant::default(), Instant::default());
    Finish { call, code, execution, payload, metadata, taken, published, cpu_ns, subtree: 0 }
}

/// A worker that has said that it takes no new calls.
#[derive(Debug, Default)]
struct Leaving {
    /// When it last found that it has nothing to do, and for how long it has looked since it first did.
    idle: Option<(Instant, u64)>,
}

impl Leaving {
    /// It looks. Whether it has had nothing to do for so long that nobody will say so.
    fn look(&mut self, now: Instant, is_idle: bool) -> bool {
        let looked = |(before, idle_ns): (Instant, u64)| idle_ns + now.since_ns(before).min(LOOK_NS_MAX);
        self.idle = is_idle.then(|| (now, self.idle.map_or(0, looked)));
        self.idle.is_some_and(|(_, idle_ns)| idle_ns >= UNANSWERED_NS)
    }
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        reactor: Arc<ReactorHandle>,
        lane: Arc<Lane>,
        kick: Arc<Kick>,
    ) -> Self {
        let tasks = Tasks::new(Arc::clone(&kick));
        Self { shared, reactor, lane, kick, tasks, work: Work::default() }
    }

    /// Serves until the server stops, attaching anew whenever the session is lost.
    ///
    /// # Errors
    /// FAILED_PRECONDITION when the daemon does not take a service as it is described, or it is above a limit by
    /// itself: trying again would not help.
    pub(super) fn run(mut self) -> Result<(), Status> {
        let (mut pause_ns, mut no_room_ns) = (LOST_REST_NS_MIN, REFUSED_REST_NS);
        while let Some(session) = self.attach() {
            let bound = self.unless_stopped(Routes::bind(&session, &self.shared.services));
            let routes = match bound {
                None => break,
                Some(Ok(routes)) => routes,
                // Whose a name is, what rules say and how much room others leave may change while this server waits.
                Some(Err(status)) if is_for_now(&status) => {
                    let rest_ns = match status.code() {
                        Code::ResourceExhausted => no_room_ns,
                        _ => REFUSED_REST_NS,
                    };
                    session.lose(status.message());
                    self.tell_refused(status);
                    if self.rest(rest_ns).is_none() {
                        break;
                    }
                    no_room_ns = (rest_ns * 2).min(NO_ROOM_REST_NS_MAX);
                    continue;
                }
                // Anything but the daemon's own refusal is the session's end, noticed here before the reactor
                // noticed it. It may be found again each time: this process has no memory or descriptor to bind with,
                // or the daemon cannot read what it is asked.
                Some(Err(status)) if status.code() != Code::FailedPrecondition || session.is_lost() => {
                    session.lose(status.message());
                    if self.rest(pause_ns).is_none() {
                        break;
                    }
                    pause_ns = (pause_ns * 2).min(REFUSED_REST_NS);
                    continue;
                }
                // Whoever has waited for the server to be ready may wait no more: it is said, too.
                Some(Err(status)) => {
                    self.lane.close();
                    if self.shared.begins_to_fail() {
                        hub::say(&format!("{} serves no more: {status}", self.lane.name()));
                    }
                    return Err(status);
                }
            };
            (pause_ns, no_room_ns) = (LOST_REST_NS_MIN, REFUSED_REST_NS);
            self.tell_left_out(&routes);
            self.shared.worker_is_ready();
            context::serve(Some(Arc::clone(&session)));
            let left = self.serve(&session, &routes);
            context::serve(None);
            self.tasks.dismiss_all();
            self.shared.worker_is_not_ready();
            if matches!(left, Left::Stopped) {
                self.settle(&session);
                break;
            }
        }
        self.lane.close();
        Ok(())
    }

    /// The session, however long it takes; `None` when the server stops first.
    fn attach(&self) -> Option<Arc<Session>> {
        let mut wait = SessionWait::new(Patience::UntilReady);
        let attached = poll_fn(|cx| wait.poll(&self.reactor, &self.lane, cx));
        self.unless_stopped(attached)?.ok()
    }

    /// Waits before the daemon is asked again; `None` when the server stops first.
    fn rest(&self, pause_ns: u64) -> Option<()> {
        self.unless_stopped(Sleep::until(&self.reactor, clock::now().plus_ns(pause_ns)))
    }

    /// Said once, and not again each second: a program without a subscriber would write nothing else.
    fn tell_refused(&self, why: Status) {
        let line = format!("the daemon refuses a service of {}, and is asked again: {why}", self.lane.name());
        if self.shared.refuse(why) {
            hub::say(&line);
        }
    }

    /// Said once for each service: this server goes on without it.
    fn tell_left_out(&self, routes: &Routes) {
        for (service, why) in routes.left_out() {
            if self.shared.leave_out(service) {
                let name = self.lane.name();
                hub::say(&format!("the daemon goes on answering {service} itself, not {name}: {why}"));
            }
        }
    }

    fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut stopped) = (pin!(work), pin!(self.shared.stopped()));
        block_on(poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        }))
    }

    /// The worker's loop: calls in, handlers polled, answers out.
    fn serve(&mut self, session: &Arc<Session>, routes: &Routes) -> Left {
        let mut leaving = None;
        loop {
            self.kick.take();
            let mut busy = session.look();
            busy |= self.take_work(session, routes);
            busy |= self.tasks.poll_ready();
            if session.is_lost() {
                return Left::Lost;
            }
            if let Some(stop) = self.shared.stop() {
                let leaving = leaving.get_or_insert_with(|| {
                    session.with(|books, effects| books.say(Submission::Drain { answer: true }, effects));
                    Leaving::default()
                });
                if self.may_leave(session, stop, leaving) {
                    return Left::Stopped;
                }
                if !busy {
                    self.tick(LEAVE_TICK_NS);
                }
            }
            if !busy {
                session.drive(&self.kick);
            }
        }
    }

    /// Starts what was delivered, drops what was dismissed.
    fn take_work(&mut self, session: &Arc<Session>, routes: &Routes) -> bool {
        let mut work = std::mem::take(&mut self.work);
        session.with(|books, _| books.take_work(&mut work));
        let busy = !(work.calls.is_empty() && work.dismissed.is_empty());
        for call in work.calls.drain(..) {
            // Dismissed before it was started, or else after this.
            match work.dismissed.iter().position(|dismissed| *dismissed == call.call) {
                Some(dismissed) => {
                    work.dismissed.swap_remove(dismissed);
                    drop_unstarted(session, &call);
                }
                None => self.start(session, routes, &call),
            }
        }
        for call in work.dismissed.drain(..) {
            let cpu_ns = self.tasks.dismiss(call);
            session.with(|books, effects| {
                books.forget(call, effects);
                if cpu_ns > 0 {
                    // The call is over; this says what its handler took for nothing.
                    books.say(Submission::Finish(wasted(call, cpu_ns)), effects);
                }
            });
        }
        self.work = work;
        busy
    }

    fn start(&mut self, session: &Arc<Session>, routes: &Routes, call: &entry::Call) {
        let Some(served) = routes.find(call.route) else {
            return refuse(session, call, Status::unimplemented("this server does not serve the method"));
        };
        let delivered = Delivered::new(session, call);
        let parent = Parent { call: call.call, deadline: call.deadline };
        let handler = || match served {
            Served::Method(service, method) => Some(service.call(*method, delivered)),
            Served::Service(service) => Some(service.call(delivered.opaque()?)),
            Served::Path(service, path) => Some(service.call(delivered.of_types(path)?)),
        };
        // A panic before there is a future: the delivered call was dropped by it, and that has answered.
        if let Ok(Some(handling)) = catch_unwind(AssertUnwindSafe(handler)) {
            self.tasks.start(handling, parent);
        }
    }

    /// Whether nothing is left to be done and nothing will come, or there is no time to do it.
    fn may_leave(&self, session: &Session, stop: Stop, leaving: &mut Leaving) -> bool {
        let now = clock::now();
        let (idle, drained) = session
            .with(|books, _| (self.tasks.is_empty() && books.is_served_out(), books.has_drained()))
            .unwrap_or((true, true));
        let unanswered = leaving.look(now, idle);
        idle && (drained || unanswered) || stop.is_overdue(now)
    }

    /// After the last answer: gives the daemon a moment to take it.
    fn settle(&self, session: &Arc<Session>) {
        let until = clock::now().plus_ns(LEAVE_NS);
        while !session.is_lost()
            && clock::now() < until
            && session.with(|books, _| books.is_taken()) == Some(false)
        {
            self.kick.sleep(Some(LEAVE_TICK_NS));
            self.kick.take();
        }
    }

    /// Wakes this worker again after a while.
    fn tick(&self, after_ns: u64) {
        let at: Instant = clock::now().plus_ns(after_ns);
        self.reactor.kick_at(at, &self.kick);
    }
}

#[cfg(test)]
mod tests {
    //! Shows how long a worker waits for the daemon's word that nothing will come.
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks every so often; after how many it leaves.
    fn looks(leaving: &mut Leaving, now: &mut Instant, every_ns: u64) -> u64 {
        (1..)
            .find(|_| {
                *now = now.plus_ns(every_ns);
                leaving.look(*now, true)
            })
            .unwrap()
    }

    #[test]
    fn time_in_which_nobody_looked_is_no_silence_of_the_daemon() {
        let (mut leaving, mut now) = (Leaving::default(), Instant(0));
        assert!(!leaving.look(now, true));
        assert_eq!(looks(&mut leaving, &mut now, MS), 1000);

        let mut leaving = Leaving::default();
        assert!(!leaving.look(now, true));
        now = now.plus_ns(5000 * MS);
        assert!(!leaving.look(now, true), "the host stood still");
        assert_eq!(looks(&mut leaving, &mut now, MS), 990);
        assert!(!leaving.look(now, false), "a call has come");
        assert!(!leaving.look(now, true));
        assert_eq!(looks(&mut leaving, &mut now, 50 * MS), 100);
    }
}
