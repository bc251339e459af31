//! Every way a call can end.
//!
//! What may come after an attempt that is over, and which takes its call's place, `attempts/` says: such a call ends
//! when there is no other.

use crate::admission::CallPolicies;
use crate::attempts::execution_so_far;
use crate::call::{Call, Direction, Item, ServerEnd};
use crate::call_ends::ReleasedParts;
use crate::due::Due;
use crate::ends::{ClientSide, EndOfCall, ServerSide};
use crate::engine::{Engine, Turn};
use crate::nested::Nested;
use crate::records::{record_abandoned, record_made, take_stamps_of_attempt};
use crate::sampled::sample_answer;
use crate::shard::{ShardStage, return_kept};
use crate::source::made_for;
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
        self.tell_balancer(turn.now, key, None, &[]);
        record_abandoned(self, key, code, turn.now);
        self.stop_server(turn, key, code);
        if let Some(call) = self.calls.find_mut(key) {
            self.nested.add(call.take_children(), code);
        }
        self.end_policies(turn.now, key, code);
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
        let Self { calls, clusters, .. } = self;
        let Some(call) = calls.find_mut(key).filter(|call| call.outcome.is_none()) else { return };
        let (code, execution) = (outcome.code, outcome.execution);
        if let Some(placed) = call.leave_endpoint(Some(code)) {
            clusters.finished(turn.now, placed, Some(code), &[]);
        }
        take_stamps_of_attempt(self, key);
        self.stop_server(turn, key, code);
        let Self { calls, nested, .. } = self;
        let Some(call) = calls.find_mut(key) else { return };
        // Calls its handler made end with it: soon.
        nested.add(call.take_children(), code);
        call.server_measured = false;
        call.response.ended = true;
        let metadata = Cow::Borrowed(&*outcome.metadata);
        self.finish_now(turn, key, &mut Item::Finish { code, execution, body: None, metadata });
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
        let Some(call) = self.calls.find_mut(key) else { return };
        if call.outcome.is_none() || a18 == Instant::default() {
            return;
        }
        call.client_stamps.a18 = a18;
        // It may be told later: its application kept the response.
        let ended = a18.max(call.client_stamps.d17).min(now);
        record_made(self, key, ended);
        self.forget(key);
    }

    /// Tells the server end that nobody waits any more, if it does not know. What waits in the call goes first, while
    /// it is known who is charged with it: the session it leads to, or the connection it came from.
    fn stop_server(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        self.drop_backlogs(key);
        let Some(call) = self.calls.find(key) else { return };
        call.server.clone().cancel(self, turn, key, code);
        self.leave_server(key);
    }

    /// The server end is through with the call: it makes room for another.
    pub(crate) fn leave_server(&mut self, key: CallKey) {
        let Self { calls, workers, unserved, shards, registry, .. } = self;
        let Some(call) = calls.find_mut(key) else { return };
        if call.is_at_worker() {
            return_kept(shards, registry, call);
            if let Some(place) = call.place.take() {
                workers.give_back(place, key);
            }
            if let Some(queued) = call.queued.take() {
                workers.stop_waiting(&queued, key);
                if queued.at.is_none() {
                    unserved.leave(key);
                }
            }
        }
        std::mem::replace(&mut call.server, ServerEnd::Nobody).release(self, key);
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
        let Some(mut call) = self.calls.find_mut(key) else { return };
        if !call.has_let_go() {
            self.drop_backlogs(key);
            self.leave_server(key);
            let Some(again) = self.calls.find_mut(key) else { return };
            call = again;
        }
        let ReleasedParts { policies, timer, parent, subtree, client } = call.take_released();
        self.samples.forget(key);
        self.calls.put_by(key);
        if let Some(policies) = policies {
            self.dismiss(key, policies, None);
        }
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        if let Some(parent) = parent.and_then(|parent| self.calls.find_mut(parent)) {
            parent.subtree_below = parent.subtree_below.saturating_add(subtree);
        }
        client.release(self, key);
    }

    /// A call has ended with `code`: what it held is free, and its line is written.
    pub(crate) fn end_policies(&mut self, now: Instant, key: CallKey, code: Code) {
        let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.take()) else { return };
        let is_logged = policies.is_logged();
        self.dismiss(key, policies, Some((now, code)));
        if is_logged
            && self.admission.logs()
            && let Some(call) = self.calls.find(key)
            && let Some(record) = self.sources().access_record(now, call, &self.registry, code)
        {
            self.admission.log(record);
        }
    }

    /// Policies are through with a call.
    pub(crate) fn dismiss(
        &mut self,
        key: CallKey,
        policies: Box<CallPolicies>,
        end: Option<(Instant, Code)>,
    ) {
        if let Some(timer) = self.admission.dismiss(key.to_bits(), policies, end) {
            self.timers.cancel(timer);
        }
    }

    /// Throws away what waits in a call, which has the ends it waits for.
    pub(crate) fn drop_backlogs(&mut self, key: CallKey) {
        let (calls, mut accounts) = self.wait_accounts();
        let Some(call) = calls.find_mut(key) else { return };
        if call.request.is_at_rest() && call.response.is_at_rest() {
            return;
        }
        let request = accounts.take_all(key, call, Direction::Request);
        let response = accounts.take_all(key, call, Direction::Response);
        request.chain(response).for_each(|mut item| self.drop_item(&mut item));
    }
}
