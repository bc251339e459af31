//! Every way a call can end.

use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::due::Due;
use crate::ends::{ClientSide, EndOfCall, ServerSide};
use crate::engine::{Engine, Turn};
use crate::nested::Nested;
use crate::receive_room::streams_hold_less;
use crate::records::{record_abandoned, record_made, take_stamps_of_attempt};
use crate::sampled::sample_answer;
use crate::shard::ShardStage;
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
        let mut status = fault.status();
        let handed_over = self.calls.find(key).is_some_and(|call| call.handed_over);
        if handed_over && status.execution() == Execution::NotExecuted && !fault.knows_execution() {
            // A limit that strikes in the middle of a stream: the handler has been at work for long.
            status = status.with_execution(Execution::Unknown);
        }
        if self.is_for_elsewhere(key) {
            status = self.said_here(&status);
        }
        self.end(turn, key, &status);
    }

    /// Whether a call's caller, or that of the call it is an attempt of, is on another host or a client of the gateway.
    fn is_for_elsewhere(&self, key: CallKey) -> bool {
        let is_elsewhere = |call: &Call| match &call.client {
            ClientEnd::Peer { .. } | ClientEnd::Grpc { .. } | ClientEnd::R2p2 { .. } => true,
            ClientEnd::Shard { origin, .. } => origin.is_elsewhere(),
            ClientEnd::Session { .. } | ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => false,
        };
        let call = self.calls.find(key).and_then(|call| match call.client {
            ClientEnd::Attempt { call, .. } => self.calls.find(call),
            _ => Some(call),
        });
        call.is_some_and(is_elsewhere)
    }

    /// The connection a call was to go on is not there any more.
    pub(crate) fn connection_gone(&self, key: CallKey) -> Fault {
        let Some(call) = self.calls.find(key) else { return Fault::Ended };
        let remote = call.placed.and_then(|placed| self.remotes.find(placed.endpoint));
        let endpoint = remote.map_or_else(|| "its endpoint".to_owned(), |remote| remote.endpoint.to_string());
        Fault::ConnectionLost { endpoint, executed: call.execution() }
    }

    /// A status made here for a caller elsewhere: who reads it there is to know which host speaks.
    pub(crate) fn said_here(&self, status: &Status) -> Status {
        const NAME_CHARS_MAX: usize = 64;
        let name = self.peers.node_name();
        if name.is_empty() {
            return status.clone();
        }
        let name: String = name.chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect();
        let message = format!("{} (node {name})", status.message());
        Status::new(status.code(), message).with_execution(status.execution())
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
        self.end_children(key, code);
        self.end_policies(turn.now, key, code);
        self.forget(key);
    }

    /// The deadline of a call passed.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        self.note_attempts(key);
        let Some(call) = self.calls.find_mut(key) else { return };
        call.timer = None;
        if let ServerEnd::Shard { stage: ShardStage::Opened | ShardStage::Accepted, late, .. } =
            &mut call.server
            && !std::mem::replace(late, true)
        {
            // There it is known whether a handler has seen the call.
            call.timer = Some(self.timers.insert(turn.now.plus_ns(LATE_NS), Due::Deadline(key)));
            let server = call.server.clone();
            return server.cancel(self, turn, key, Code::DeadlineExceeded);
        }
        if call.outcome.is_none() {
            let executed = call.execution();
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
        let Some(call) = self.calls.find(key) else { return };
        if call.outcome.is_some() {
            return;
        }
        let (code, execution) = (outcome.code, outcome.execution);
        self.tell_balancer(turn.now, key, Some(code), &[]);
        take_stamps_of_attempt(self, key);
        self.stop_server(turn, key, code);
        self.end_children(key, code);
        let Some(call) = self.calls.find_mut(key) else { return };
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
        let Some(call) = self.calls.find_mut(key) else { return };
        if !call.is_at_worker() {
            return std::mem::replace(&mut call.server, ServerEnd::Nobody).release(self, key);
        }
        self.return_kept(key);
        let Some(call) = self.calls.find_mut(key) else { return };
        if let Some(place) = call.place.take() {
            self.workers.give_back(place, key);
        }
        self.stop_waiting(key);
        let Some(call) = self.calls.find_mut(key) else { return };
        std::mem::replace(&mut call.server, ServerEnd::Nobody).release(self, key);
    }

    /// Calls a handler made end with the call it handled: soon ([`Engine::end_nested`]).
    fn end_children(&mut self, key: CallKey, code: Code) {
        let Some(call) = self.calls.find_mut(key) else { return };
        if !call.children.is_empty() {
            self.nested.add(std::mem::take(&mut call.children), code);
        }
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
            self.note_attempts(child);
            let Some(call) = self.calls.find(child) else { continue };
            let executed = call.execution();
            let fault = match code {
                Code::DeadlineExceeded => Fault::DeadlinePassed { executed },
                _ => Fault::Cancelled { executed },
            };
            self.fail(turn, child, fault);
        }
    }

    /// Removes a call and everything that names it.
    pub(crate) fn forget(&mut self, key: CallKey) {
        let Some(call) = self.calls.find(key) else { return };
        if !call.has_let_go() {
            self.drop_backlogs(key);
            self.leave_server(key);
        }
        let Some(call) = self.calls.find_mut(key) else { return };
        let (policies, timer, parent) = (call.policies.take(), call.timer, call.parent);
        let subtree = call.server_stamps.subtree.max(1);
        let client = std::mem::replace(&mut call.client, ClientEnd::VACANT);
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

    /// Throws away what waits in a call, which has the ends it waits for.
    pub(crate) fn drop_backlogs(&mut self, key: CallKey) {
        let Some(call) = self.calls.find(key) else { return };
        if call.request.is_at_rest() && call.response.is_at_rest() {
            return;
        }
        self.drop_backlog(key, Direction::Request);
        self.drop_backlog(key, Direction::Response);
    }

    fn drop_backlog(&mut self, key: CallKey, direction: Direction) {
        if let Some(mut kept) = self.take_gathered(key, direction) {
            self.drop_item(&mut kept);
        }
        let Some(call) = self.calls.find_mut(key) else { return };
        let half = call.half(direction);
        let backlog = std::mem::take(&mut half.backlog);
        if let Some((session, bytes)) = half.share.end() {
            streams_hold_less(self, session, bytes);
        }
        for mut item in backlog {
            self.unaccount(key, direction, &item);
            self.drop_item(&mut item);
        }
    }
}

impl<'a> Item<'a> {
    /// A finish without its message, to be handed over again if there is no room.
    pub fn without_body(&self) -> Item<'static> {
        match self {
            Item::Finish { code, execution, metadata, .. } => {
                let metadata = Cow::Owned(metadata.to_vec());
                Item::Finish { code: *code, execution: *execution, body: None, metadata }
            }
            _ => Item::HalfClose,
        }
    }

    /// A finish of code alone.
    pub fn without_words(&self) -> Item<'static> {
        match self {
            Item::Finish { code, execution, .. } => {
                Item::Finish { code: *code, execution: *execution, body: None, metadata: Cow::Borrowed(&[]) }
            }
            _ => Item::HalfClose,
        }
    }
}
