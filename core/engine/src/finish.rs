//! Every way a call can end.
//!
//! What may come after an attempt that is over, and which takes its call's place, `attempts/` says: such a call ends
//! when there is no other.

use crate::attempts::execution_so_far;
use crate::call::{Call, Calls, Item, ServerEnd};
use crate::call_ends::ReleasedParts;
use crate::due::Due;
use crate::ends::{ClientSide, EndOfCall, ServerSide};
use crate::engine::{Engine, Turn};
use crate::nested::Nested;
use crate::records::{CallBooks, CallRecorder, progress_of_attempts};
use crate::sampled::sample_answer;
use crate::shard::ShardStage;
use crate::source::made_for;
use crate::wait_accounts::WaitAccounts;
use crate::worker_places::WorkerPlaces;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use trunkline_call::{Code, Execution, Fault, Instant, Status};
use trunkline_grpc::Outcome;

/// A deadline that is noticed so much later says that this host had no processor, and nothing of the server.
const UNATTENDED_NS: u64 = 20_000_000;
/// Time another shard gets to say how a call ended whose deadline has passed.
const LATE_NS: u64 = 5_000_000;

impl Engine {
    /// The infrastructure ends a call: the client end gets the fault's status, the server end is told to stop.
    pub(crate) fn fail(&mut self, turn: &mut Turn<'_>, key: CallKey, fault: Fault) {
        if let Fault::Limit { name, .. } = &fault {
            *self.limits_met.entry(name).or_default() += 1;
        }
        let Some(call) = self.calls.find(key) else { return };
        let mut status = fault.status();
        if call.handed_over && status.execution() == Execution::NotExecuted && !fault.knows_execution() {
            // A limit that strikes in the middle of a stream: the handler has been at work for long.
            status = status.with_execution(Execution::Unknown);
        }
        if made_for(&self.calls, call).is_some_and(Call::is_for_elsewhere) {
            status = self.peers.said_here(&status);
        }
        self.end(turn, key, &status);
    }

    /// The connection a call was to go on is not there any more.
    pub(crate) fn connection_gone(&self, key: CallKey) -> Fault {
        let Some(call) = self.calls.find(key) else { return Fault::Ended };
        let remote = call.placed.and_then(|placed| self.remotes.find(placed.endpoint));
        let endpoint = remote.map_or_else(|| "its endpoint".to_owned(), |remote| remote.endpoint.to_string());
        Fault::ConnectionLost { endpoint, executed: call.execution() }
    }

    /// How a call ended at the endpoint it was given, with the trailing metadata that came with it.
    pub(crate) fn tell_balancer(&mut self, now: Instant, key: CallKey, code: Option<Code>, trailers: &[u8]) {
        let Some(call) = self.calls.find_mut(key) else { return };
        if let Some(placed) = call.leave_endpoint(code) {
            self.clusters.finished(now, placed, code, trailers);
        }
    }

    /// The caller does not want the call any more: nobody answers it, the server end is told, children end too.
    pub(crate) fn cancel(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        self.cancel_as(turn, key, Code::Cancelled);
    }

    /// The same, when the caller's side says why: its deadline may have passed there first.
    pub(crate) fn cancel_as(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        let Self { calls, clusters, nested, telemetry, registry, plant, sessions, peers, grpc, .. } = self;
        let Self { r2p2, admission, timers, shards, held, invariants, limits, .. } = self;
        let first = calls.find(key).and_then(|call| progress_of_attempts(calls, call));
        let Some(call) = calls.find_mut(key) else { return };
        if let Some(placed) = call.leave_endpoint(None) {
            clusters.finished(turn.now, placed, None, &[]);
        }
        let recorder = CallRecorder { telemetry, registry, plant };
        let mut books = CallBooks { recorder, sessions, peers, grpc, r2p2, admission, timers };
        books.abandoned(turn.now, key, call, code, first);
        nested.add(call.take_children(), code);
        let mut accounts = WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits };
        let waiting = accounts.take_waiting(key, call);
        let server = call.server.clone();
        self.stop_server(turn, key, (&server, waiting), code);
        self.forget(key);
    }

    /// The deadline of a call passed.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Self { calls, timers, .. } = self;
        let Some(executed) = calls.find(key).map(|call| execution_so_far(calls, call)) else { return };
        let Some(call) = calls.find_mut(key) else { return };
        call.timer = None;
        if let ServerEnd::Shard { stage: ShardStage::Opened | ShardStage::Accepted, late, .. } =
            &mut call.server
            && !std::mem::replace(late, true)
        {
            // There it is known whether a handler has seen the call.
            call.timer = Some(timers.insert(turn.now.plus_ns(LATE_NS), Due::Deadline(key)));
            let server = call.server.clone();
            return server.cancel(self, turn, key, Code::DeadlineExceeded);
        }
        if call.outcome.is_none() {
            let late_ns = call.deadline.instant().map_or(0, |at| turn.now.since_ns(at));
            if late_ns > UNATTENDED_NS {
                self.tell_balancer(turn.now, key, None, &[]);
            }
            self.fail(turn, key, Fault::DeadlinePassed { executed });
        }
    }

    /// A call one of whose ends was the session that is gone.
    pub(crate) fn end_gone(&mut self, turn: &mut Turn<'_>, key: CallKey, gone: SessionKey) {
        let Some(call) = self.calls.find(key) else { return };
        if call.maker().is_some_and(|(session, _)| session == gone) {
            self.cancel(turn, key);
        } else {
            let executed = call.execution();
            self.fail(turn, key, Fault::HandlerGone { executed });
        }
    }

    /// Ends a call with a status made here.
    pub(crate) fn end(&mut self, turn: &mut Turn<'_>, key: CallKey, status: &Status) {
        self.end_as(turn, key, &Outcome::of(status));
    }

    /// The same, in the form an outcome travels in.
    pub(crate) fn end_as(&mut self, turn: &mut Turn<'_>, key: CallKey, outcome: &Outcome<'_>) {
        let Self { calls, clusters, sessions, peers, grpc, shards, held, invariants, limits, .. } = self;
        let Some(call) = calls.find_mut(key).filter(|call| call.outcome.is_none()) else { return };
        let (code, execution) = (outcome.code, outcome.execution);
        if let Some(placed) = call.leave_endpoint(Some(code)) {
            clusters.finished(turn.now, placed, Some(code), &[]);
        }
        let mut accounts = WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits };
        let waiting = accounts.take_waiting(key, call);
        let server = call.server.clone();
        self.stop_server(turn, key, (&server, waiting), code);
        let Self { calls, nested, workers, unserved, shards, registry, .. } = self;
        let Some(call) = calls.find_mut(key) else { return };
        // Calls its handler made end with it: soon.
        nested.add(call.take_children(), code);
        (call.server_measured, call.response.ended) = (false, true);
        let client = call.client.clone();
        WorkerPlaces { workers, unserved, shards, registry }.leave(key, call).release(self, key);
        let metadata = Cow::Borrowed(&*outcome.metadata);
        let finish = &mut Item::Finish { code, execution, body: None, metadata };
        sample_answer(self, turn, key, finish);
        client.finish(self, turn, key, finish);
    }

    /// Hands the end over, which waits for nothing.
    pub(crate) fn finish_now(&mut self, turn: &mut Turn<'_>, key: CallKey, item: &mut Item<'_>) {
        sample_answer(self, turn, key, item);
        let Some(call) = self.calls.find(key) else { return };
        call.client.clone().finish(self, turn, key, item);
    }

    // LIFE: 22 | record whole: components, histograms, flight recorder | all nine |
    /// The application took a call's last completion: the record is whole, the call is history.
    pub(crate) fn conclude(&mut self, now: Instant, key: CallKey, a18: Instant) {
        let Self { calls, telemetry, registry, plant, .. } = self;
        let Some(call) = calls.find_mut(key) else { return };
        if call.outcome.is_none() || a18 == Instant::default() {
            return;
        }
        call.client_stamps.a18 = a18;
        // It may be told later: its application kept the response.
        let ended = a18.max(call.client_stamps.d17).min(now);
        CallRecorder { telemetry, registry, plant }.made(ended, call);
        self.forget(key);
    }

    /// A call of another host, or of a client of the gateway, has its answer: it is in the books, and history.
    pub(crate) fn conclude_served(&mut self, now: Instant, key: CallKey, code: Code) {
        let (calls, mut books) = self.call_books();
        if let Some(call) = calls.find_mut(key) {
            books.served(now, key, call, code);
        }
        self.forget(key);
    }

    /// The calls, and those who are told that one is over.
    #[inline]
    pub(crate) fn call_books(&mut self) -> (&mut Calls, CallBooks<'_>) {
        let Self {
            calls, telemetry, registry, plant, sessions, peers, grpc, r2p2, admission, timers, ..
        } = self;
        let recorder = CallRecorder { telemetry, registry, plant };
        (calls, CallBooks { recorder, sessions, peers, grpc, r2p2, admission, timers })
    }

    /// Tells the server end that nobody waits any more, if it does not know. What waits in the call has been taken out
    /// before, while it is known who is charged with it: the session it leads to, or the connection it came from.
    fn stop_server(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        (server, waiting): (&ServerEnd, impl Iterator<Item = Item<'static>>),
        code: Code,
    ) {
        waiting.for_each(|mut item| self.drop_item(&mut item));
        server.cancel(self, turn, key, code);
    }

    /// The server end is through with the call: it makes room for another.
    pub(crate) fn leave_server(&mut self, key: CallKey) {
        let (calls, mut places) = self.worker_places();
        let Some(call) = calls.find_mut(key) else { return };
        places.leave(key, call).release(self, key);
    }

    /// Ends calls whose parent has ended, as many as one step may.
    #[inline]
    pub(crate) fn end_nested(&mut self, turn: &mut Turn<'_>) {
        if !self.nested.is_empty() {
            self.end_some_nested(turn);
        }
    }

    fn end_some_nested(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..Nested::PER_STEP_MAX {
            let Some((child, code)) = self.nested.next() else { return };
            let Some(call) = self.calls.find(child) else { continue };
            let executed = execution_so_far(&self.calls, call);
            let fault = match code {
                Code::DeadlineExceeded => Fault::DeadlinePassed { executed },
                _ => Fault::Cancelled { executed },
            };
            self.fail(turn, child, fault);
        }
    }

    /// Removes a call and everything that names it.
    pub(crate) fn forget(&mut self, key: CallKey) {
        if self.calls.find(key).is_some_and(|call| !call.has_let_go()) {
            self.drop_backlogs(key);
            self.leave_server(key);
        }
        let Some(released) = self.calls.put_by_without(key, Call::take_released) else { return };
        let ReleasedParts { policies, timer, parent, subtree, client } = released;
        self.samples.forget(key);
        if let Some(policies) = policies
            && let Some(timer) = self.admission.dismiss(key.to_bits(), policies, None)
        {
            self.timers.cancel(timer);
        }
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        if let Some(parent) = parent.and_then(|parent| self.calls.find_mut(parent)) {
            parent.subtree_below = parent.subtree_below.saturating_add(subtree);
        }
        client.release(self, key);
    }

    /// Throws away what waits in a call, which has the ends it waits for.
    pub(crate) fn drop_backlogs(&mut self, key: CallKey) {
        let (calls, mut accounts) = self.wait_accounts();
        let Some(call) = calls.find_mut(key) else { return };
        accounts.take_waiting(key, call).for_each(|mut item| self.drop_item(&mut item));
    }
}
