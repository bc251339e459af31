//! The start of a call: is it sound, who serves it, and what do the policies say?
//!
//! Is it sound, and who serves it, [`StartOfCall`] answers. Policies stand between that and its hand-over (`pass.rs`):
//! [`AdmissionOfCall`] asks them, and this does what they say. A call they let go on may be held for a while, may wait
//! for calls before it to end, and may be copied elsewhere (`mirrors.rs`); its opening then waits in the call's own
//! backlog, as everything that waits does. If its deadline passes or its caller goes away meanwhile, its handler never
//! hears of it.

use crate::admission::{CallPolicies, Denied, Inspection};
use crate::admission_of_call::AdmissionOfCall;
use crate::call::{Calls, Direction, Item};
use crate::engine::{Engine, Turn};
use crate::gather::is_whole;
use crate::mirrors::{copy_for_mirrors, send_copies};
use crate::owners::Owners;
use crate::permit::admit_as_sent;
use crate::served_later::wait_for_service;
use crate::sessions::SessionEnds;
use crate::shard;
use crate::source::CallSources;
use crate::start_of_call::{CallStart, StartOfCall};
use crate::target::Target;
use crate::traced::open_spans;
use crate::worker_places::WorkerPlaces;
use crate::workers::Queued;
use crate::{CallKey, SessionKey};
use trunkline_call::{Execution, Fault};
use trunkline_message::View;
use trunkline_policy::Admission;

impl Engine {
    /// Finds the server end of a new call and sends its opening item on the way.
    pub(crate) fn start(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        target: Target,
        opening: &mut Item<'_>,
    ) {
        open_spans(self, key, opening);
        let (calls, mut start) = self.start_of_call();
        let Some(call) = calls.find_mut(key) else { return self.owners.drop_item(opening) };
        call.note_step(start.steps, turn.now, Direction::Request, opening);
        if !is_whole(opening) && start.routing().begins_whole(call, target) {
            if let Some(policies) = call.policies.as_mut() {
                policies.begins_at = Some(target);
            }
            let admitted = start.admit_early(turn.now, (key, call), opening);
            return self.begin_in_parts(turn, key, opening, admitted);
        }
        if start.is_awaited(call, target) {
            return self.start_awaited(turn, key, target, opening);
        }
        let started = start.start(turn.now, (key, call), target, opening);
        self.go_on_started(turn, (key, target), opening, started);
    }

    /// The first part of a request whose call begins when it is whole; deadline and cancellation hold from here on.
    #[inline(never)]
    fn begin_in_parts(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
        admitted: Result<(), Fault>,
    ) {
        match admitted {
            Ok(()) => self.add_part(turn, key, opening),
            Err(fault) => {
                self.owners.drop_item(opening);
                self.fail(turn, key, fault);
            }
        }
    }

    /// A call for the daemon's own, who are between two processes: it waits for the next, if there is room for it.
    #[cold]
    fn start_awaited(&mut self, turn: &mut Turn<'_>, key: CallKey, target: Target, opening: &mut Item<'_>) {
        let Self { calls, owners: Owners { awaited, .. } } = self;
        let bytes = opening.parked_bytes();
        let is_waiting = |key| calls.find(key).is_some_and(|call| call.queued.is_some());
        let waits = awaited.admit(key, bytes, is_waiting);
        let (calls, mut start) = self.start_of_call();
        let Some(call) = calls.find_mut(key) else { return self.owners.drop_item(opening) };
        let started = match waits {
            true => start.wait(turn.now, (key, call), Queued::for_none(target, bytes), opening),
            false => start.start(turn.now, (key, call), target, opening),
        };
        self.go_on_started(turn, (key, target), opening, started);
    }

    /// Another part: with the last one the call begins.
    pub(crate) fn add_part(&mut self, turn: &mut Turn<'_>, key: CallKey, part: &mut Item<'_>) {
        match self.join(key, Direction::Request, part.take()) {
            Ok([Some(mut opening), _]) => {
                let Some(call) = self.calls.find_mut(key) else { return self.owners.drop_item(&mut opening) };
                let is_made_here = call.maker().is_some() || call.has_moved();
                let kept = call.policies.as_mut().and_then(|policies| policies.begins_at.take());
                let target = kept.unwrap_or(if is_made_here { Target::Anyone } else { Target::Here });
                self.start(turn, key, target, &mut opening);
            }
            Ok(_) => {}
            Err(fault) => self.fail(turn, key, fault),
        }
    }

    /// Begins a call that waited, with whatever has come behind its opening meanwhile.
    pub(crate) fn start_with_rest(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        mut opening: Item<'static>,
        start: impl FnOnce(&mut Self, &mut Turn<'_>, &mut Item<'static>),
    ) {
        let Self { calls, owners } = &mut *self;
        let Some(call) = calls.find_mut(key) else { return owners.drop_item(&mut opening) };
        call.request.ended = false;
        let rest = owners.accounts().take_backlog(key, call, Direction::Request);
        start(self, turn, &mut opening);
        for mut item in rest {
            self.pass(turn, key, Direction::Request, &mut item);
        }
    }

    /// Starts a call that has waited for its place at a worker.
    pub(crate) fn start_at_worker(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        target: Target,
        opening: &mut Item<'_>,
    ) {
        let (calls, mut start) = self.start_of_call();
        let Some(call) = calls.find_mut(key) else { return self.owners.drop_item(opening) };
        // Of a call of another shard that shard says when its deadline has passed, and may be late.
        let started = match call.deadline.has_passed(turn.now) {
            true => CallStart::Refused(Fault::DeadlinePassed { executed: Execution::NotExecuted }),
            false => start.start_now(turn.now, (key, call), target, opening),
        };
        self.go_on_started(turn, (key, target), opening, started);
    }

    /// Does with a call that begins, and with its opening, what has been said.
    fn go_on_started(
        &mut self,
        turn: &mut Turn<'_>,
        (key, target): (CallKey, Target),
        opening: &mut Item<'_>,
        started: CallStart,
    ) {
        match started {
            CallStart::Settled { handler, policies } => {
                handler.into_iter().for_each(|session| self.count_served(key, session));
                match policies {
                    None => self.pass_on(turn, key, Direction::Request, opening),
                    Some(policies) => self.judge_opening(turn, key, policies, opening),
                }
            }
            CallStart::Waits => {}
            CallStart::Refused(fault) => {
                self.owners.drop_item(opening);
                self.fail(turn, key, fault);
            }
            CallStart::Unserved(fault) => self.go_on_unserved(turn, (key, target), opening, fault),
        }
    }

    #[cold]
    fn go_on_unserved(
        &mut self,
        turn: &mut Turn<'_>,
        call: (CallKey, Target),
        opening: &mut Item<'_>,
        fault: Fault,
    ) {
        if shard::give_back(self, call.0, opening) {
            return;
        }
        if let Err(fault) = wait_for_service(self, turn, call, opening, fault) {
            self.owners.drop_item(opening);
            self.fail(turn, call.0, fault);
        }
    }

    /// Admits a call whose first message is still to come, and gives it its server end.
    ///
    /// # Errors
    /// What ends it.
    pub(crate) fn settle(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        target: Target,
        metadata: &[u8],
        body_bytes: u32,
    ) -> Result<(), Fault> {
        let (calls, mut start) = self.start_of_call();
        let call = calls.find_mut(key).ok_or(Fault::Ended)?;
        let handler = start.settle(turn.now, (key, call), target, metadata, body_bytes)?;
        handler.into_iter().for_each(|session| self.count_served(key, session));
        Ok(())
    }

    /// A session of this host is to serve a call, and counts it.
    #[inline]
    pub(crate) fn count_served(&mut self, key: CallKey, session: SessionKey) {
        let Self { calls, owners: Owners { sessions, peers, grpc, limits, .. } } = self;
        let source = |sessions: &SessionEnds| {
            let sources = CallSources { sessions, peers, grpc };
            calls.find(key).map_or_else(|| "".into(), |call| sources.of(call))
        };
        sessions.serve(calls, (key, session), limits.calls_delivered_per_session as u64, source);
    }

    /// The calls, and those who have a say in how one begins.
    #[inline]
    pub(crate) fn start_of_call(&mut self) -> (&mut Calls, StartOfCall<'_>) {
        let Self { calls, owners } = self;
        let Owners { registry, shards, service_users, clusters, sessions, peers, grpc, workers, .. } = owners;
        let Owners { awaited, admission, attempts, timers, steps, limits, draining, .. } = owners;
        let start = StartOfCall {
            registry,
            shards,
            service_users,
            clusters,
            sessions,
            peers,
            grpc,
            workers,
            awaited,
            admission,
            attempts,
            timers,
            steps,
            limits,
            draining: *draining,
        };
        (calls, start)
    }

    /// The calls, and those who know what policies ask of one.
    #[inline]
    fn admission_of_call(&mut self) -> (&mut Calls, AdmissionOfCall<'_>) {
        let Self {
            calls,
            owners: Owners { admission, sessions, peers, grpc, registry, gateway, scratch, timers, .. },
        } = self;
        let (control, limits) = (admission, &scratch.limits);
        (calls, AdmissionOfCall { control, sessions, peers, grpc, registry, gateway, limits, timers })
    }

    /// The calls, and those who keep places for them.
    #[inline]
    pub(crate) fn worker_places(&mut self) -> (&mut Calls, WorkerPlaces<'_>) {
        let Self { calls, owners: Owners { workers, unserved, shards, registry, .. } } = self;
        (calls, WorkerPlaces { workers, unserved, shards, registry })
    }

    // LIFE: 7 | judged by the policies of both sides that are this host's: let through, held, or refused; copied where
    // a policy mirrors | a private copy, if a policy looks at the message |
    /// Asks the policies about a call that begins, and sends it on its way if they let it.
    #[inline(never)]
    pub(crate) fn judge_opening(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Box<CallPolicies>,
        opening: &mut Item<'_>,
    ) {
        let only_refuse = policies.only_refuse();
        if only_refuse && !policies.reads_messages() {
            return match self.owners.admission.permit(turn.now, policies, opening, View::EMPTY) {
                Ok(()) => self.pass_on(turn, key, Direction::Request, opening),
                Err(denied) => self.deny(turn, key, denied, opening),
            };
        }
        let policies = match only_refuse {
            true => match admit_as_sent(self, turn, key, policies, opening) {
                Some(policies) => policies,
                None => return,
            },
            false => policies,
        };
        let mut admission = Admission::default();
        if !policies.reads_messages() {
            let judged = self.judge(turn, key, policies, opening, None, &mut admission);
            return self.go_on_judged(turn, key, judged, &admission, opening);
        }
        let mut inspection = self.owners.admission.take_inspection();
        // What policies have read is lent to it until it is handed over.
        let mut opening = opening.take();
        let judged = self.judge(turn, key, policies, &mut opening, Some(&mut inspection), &mut admission);
        self.go_on_judged(turn, key, judged, &admission, &mut opening);
        drop(opening);
        self.owners.admission.put_back(inspection);
    }

    fn judge<'i>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Box<CallPolicies>,
        opening: &mut Item<'i>,
        inspection: Option<&'i mut Inspection>,
        admission: &mut Admission,
    ) -> Result<(), Denied> {
        let (calls, mut asked) = self.admission_of_call();
        let call = calls.find_mut(key).ok_or(Fault::Ended)?;
        asked.admit(turn, (key, call), policies, opening, inspection, admission)
    }

    fn go_on_judged(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        judged: Result<(), Denied>,
        admission: &Admission,
        opening: &mut Item<'_>,
    ) {
        match judged {
            Ok(()) if admission.mirrors.is_empty() => self.pass_on(turn, key, Direction::Request, opening),
            Ok(()) => {
                let copies = copy_for_mirrors(self, turn, key, opening, &admission.mirrors);
                self.pass_on(turn, key, Direction::Request, opening);
                send_copies(self, turn, copies);
            }
            Err(denied) => self.deny(turn, key, denied, opening),
        }
    }

    pub(crate) fn deny(&mut self, turn: &mut Turn<'_>, key: CallKey, denied: Denied, item: &mut Item<'_>) {
        // A call that is refused is logged as others are: its end finds what says so with it.
        if denied.log
            && let Some(call) = self.calls.find_mut(key)
        {
            call.policies = Some(Box::new(CallPolicies::refused(true)));
        }
        self.owners.drop_item(item);
        self.fail(turn, key, denied.fault);
    }

    /// Asks the policies about a later message.
    pub(crate) fn admit_message(&mut self, turn: &mut Turn<'_>, key: CallKey, message: &mut Item<'_>) {
        let (calls, mut asked) = self.admission_of_call();
        let call = calls.find_mut(key).and_then(|call| Some((call.policies.take()?, call)));
        let Some((policies, call)) = call else { return self.owners.drop_item(message) };
        let (mut inspection, mut admission) = (asked.control.take_inspection(), Admission::default());
        let mut message = message.take();
        let judged = asked.judge(turn, call, &policies, &mut message, Some(&mut inspection), &mut admission);
        call.policies = Some(policies);
        match judged {
            Ok(()) => self.pass_on(turn, key, Direction::Request, &mut message),
            Err(denied) => self.deny(turn, key, denied, &mut message),
        }
        drop(message);
        self.owners.admission.put_back(inspection);
    }
}
