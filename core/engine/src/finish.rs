//! Every way a call can end.

use crate::call::{ClientEnd, Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::session::Session;
use crate::submit::delivered_id;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use trunkline_call::entry::Completion;
use trunkline_call::{CallId, Code, Execution, Fault, Instant, Status};
use trunkline_grpc::Outcome;

impl Engine {
    /// The infrastructure ends a call: the client end gets the fault's status, the server end is told to stop.
    pub(crate) fn fail(&mut self, turn: &mut Turn<'_>, key: CallKey, fault: Fault) {
        let mut status = fault.status();
        let handed_over = self.calls.find(key).is_some_and(|call| call.handed_over);
        if handed_over && status.execution() == Execution::NotExecuted && !fault.knows_execution() {
            // A limit that strikes in the middle of a stream: the handler has been at work for long.
            status = status.with_execution(Execution::Unknown);
        }
        self.end(turn, key, &status);
    }

    /// The caller does not want the call any more: nobody answers it, the server end is told, children end too.
    pub(crate) fn cancel(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        self.cancel_as(turn, key, Code::Cancelled);
    }

    /// The same, when the caller's side says why: its deadline may have passed there first.
    pub(crate) fn cancel_as(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        self.tell_balancer(turn.now, key, None, &[]);
        self.stop_server(turn, key, code);
        self.end_children(turn, key, code);
        self.police_end(turn.now, key, code);
        self.forget(key);
    }

    /// The deadline of a call passed.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        self.note_attempts(key);
        let Some(call) = self.calls.find_mut(key) else { return };
        call.timer = None;
        if call.outcome.is_none() {
            let executed = call.execution();
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
        self.stop_server(turn, key, code);
        self.end_children(turn, key, code);
        let Some(call) = self.calls.find_mut(key) else { return };
        call.server_measured = false;
        call.response.ended = true;
        let item = Item::Finish { code, execution, body: None, metadata: Cow::Borrowed(&outcome.metadata) };
        self.drop_backlog(key, Direction::Request);
        self.drop_backlog(key, Direction::Response);
        self.finish_now(turn, key, item);
    }

    /// Hands the end over; if there is no room for its words, the code alone must do, for an end is never held back.
    fn finish_now(&mut self, turn: &mut Turn<'_>, key: CallKey, item: Item<'_>) {
        let Some(call) = self.calls.find(key) else { return };
        match call.client.clone() {
            ClientEnd::Attempt { call, .. } => {
                if let Some(item) = self.answer_of_attempt(turn, call, key, item) {
                    self.finish_now(turn, key, item);
                }
            }
            ClientEnd::Mirror { .. } => self.discard_answer(turn.now, key, item),
            ClientEnd::Session { session, id, types } => {
                if self.hand_to_client(turn, key, session, id, &types, item.without_body()).is_err() {
                    let bare = item.without_words();
                    let _ = self.hand_to_client(turn, key, session, id, &types, bare);
                }
            }
            ClientEnd::Peer { peer, stream } => self.finish_to_peer(turn, key, peer, stream, &item),
            ClientEnd::Grpc { peer, stream } => self.finish_to_grpc(turn.now, key, peer, stream, &item),
            ClientEnd::R2p2 { request } => self.finish_to_r2p2(turn, key, request, &item),
        }
    }

    /// The application took a call's last completion: the record is whole, the call is history.
    pub(crate) fn conclude(&mut self, now: Instant, key: CallKey, a18: Instant) {
        let Some(call) = self.calls.find_mut(key) else { return };
        if call.outcome.is_none() || a18 == Instant::default() {
            return;
        }
        call.client_stamps.a18 = a18;
        self.record(key, now);
        self.forget(key);
    }

    /// Tells the server end that nobody waits any more, if it does not know.
    fn stop_server(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        let Some(call) = self.calls.find(key) else { return };
        match call.server.clone() {
            ServerEnd::Session { session, .. } if call.handed_over => {
                self.complete(session, Completion::Cancelled { call: delivered_id(key), code });
            }
            ServerEnd::Peer { peer, stream } => self.cancel_at_peer(turn, peer, stream, code),
            // Its stream is reset, or its request cancelled, when the call leaves it.
            ServerEnd::Grpc { .. } | ServerEnd::R2p2 { .. } => {}
            ServerEnd::Attempts => self.give_up_attempts(turn, key, code),
            ServerEnd::Nobody | ServerEnd::Cluster { .. } | ServerEnd::Session { .. } => {}
        }
        self.leave_server(key);
    }

    /// The server end is through with the call: it makes room for another.
    pub(crate) fn leave_server(&mut self, key: CallKey) {
        self.give_place_back(key);
        self.stop_waiting(key);
        let Some(call) = self.calls.find_mut(key) else { return };
        match std::mem::replace(&mut call.server, ServerEnd::Nobody) {
            ServerEnd::Session { session, .. } => {
                if self.sessions.find_mut(session).is_some_and(Session::undeliver) {
                    self.complete(session, Completion::Drained);
                }
            }
            ServerEnd::Peer { peer, stream } => {
                self.forget_stream(peer, stream);
            }
            ServerEnd::Grpc { peer, stream } => self.forget_grpc_stream(peer, stream),
            ServerEnd::R2p2 { name, .. } => self.forget_r2p2_call(key, name),
            ServerEnd::Nobody | ServerEnd::Cluster { .. } | ServerEnd::Attempts => {}
        }
    }

    /// Calls a handler made end with the call it handled.
    fn end_children(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        let Some(call) = self.calls.find_mut(key) else { return };
        for child in std::mem::take(&mut call.children) {
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
        self.drop_backlog(key, Direction::Request);
        self.drop_backlog(key, Direction::Response);
        self.leave_server(key);
        let Some(mut call) = self.calls.remove(key) else { return };
        if let Some(policed) = call.policed.take() {
            self.dismiss(key, policed, None);
        }
        if let Some(timer) = call.timer {
            self.timers.cancel(timer);
        }
        if let Some(parent) = call.parent.and_then(|parent| self.calls.find_mut(parent)) {
            parent.children.retain(|child| *child != key);
        }
        match call.client {
            ClientEnd::Attempt { .. } => {}
            ClientEnd::Mirror { bytes, .. } => self.forget_copy(bytes),
            ClientEnd::Session { session, id, .. } => self.forget_made(session, id),
            ClientEnd::Peer { peer, stream } => self.forget_stream(peer, stream),
            ClientEnd::Grpc { peer, stream } => self.forget_grpc_stream(peer, stream),
            ClientEnd::R2p2 { request } => self.forget_r2p2_request(request),
        }
    }

    fn forget_made(&mut self, session: SessionKey, id: CallId) {
        if let Some(session) = self.sessions.find_mut(session) {
            session.made.remove(&id);
        }
    }

    fn drop_backlog(&mut self, key: CallKey, direction: Direction) {
        self.drop_gathered(key, direction);
        let Some(call) = self.calls.find_mut(key) else { return };
        let backlog = std::mem::take(&mut call.half(direction).backlog);
        for item in backlog {
            self.unaccount(key, direction, &item);
            self.drop_item(item);
        }
    }
}

impl<'a> Item<'a> {
    /// A finish without its message, to be handed over again if there is no room.
    fn without_body(&self) -> Item<'static> {
        match self {
            Item::Finish { code, execution, metadata, .. } => {
                let metadata = Cow::Owned(metadata.to_vec());
                Item::Finish { code: *code, execution: *execution, body: None, metadata }
            }
            _ => Item::HalfClose,
        }
    }

    /// A finish of code alone.
    fn without_words(&self) -> Item<'static> {
        match self {
            Item::Finish { code, execution, .. } => {
                Item::Finish { code: *code, execution: *execution, body: None, metadata: Cow::Borrowed(&[]) }
            }
            _ => Item::HalfClose,
        }
    }
}
