//! What an HTTP/2 connection to a peer that speaks gRPC says, as what follows for the calls it is about.
//!
//! The connection may be one a gRPC client made to us (its streams are calls for sessions of this host, or for
//! endpoints: `gateway.rs`) or one dialled for an endpoint (its streams are calls sessions made). Either way a stream
//! is one call; `end.rs` is the way back. Requests of clients become calls in `openings.rs`.

use super::ends::{GrpcEnds, HeldAccounts};
use super::incoming::{EndedBody, NextMessage, body_of, of_cardinality, of_framing};
use super::openings::target_of;
use super::outgoing::SentOn;
use super::stream::{Ending, WebStream};
use crate::call::{Body, Call, Calls, Direction, Item, ServerEnd};
use crate::cluster::Clusters;
use crate::convert::Scratch;
use crate::due::Due;
use crate::end_event::EndEvent;
use crate::held::HeldBudget;
use crate::invariants::Invariants;
use crate::limits::UNSENT;
use crate::packing::Arrived;
use crate::peers::PeerEnds;
use crate::source::made_for;
use crate::{CallKey, GrpcKey};
use std::borrow::Cow;
use std::collections::BTreeMap;
use trunkline_call::{Code, Execution, Fault, Instant, Metadata, TimerTable};
use trunkline_grpc::compress::Encoding;
use trunkline_grpc::response::{self, ResponseHead};
use trunkline_grpc::{Event, Outcome, Reason, ResetBy};
use trunkline_telemetry::PeerIndex;

/// Messages of one stream that may wait as items; the rest waits as bytes. An empty message takes five bytes of the
/// window and a hundred as an item.
const MESSAGES_WAITING_MAX: usize = 16;
/// Times a request the server has not seen is sent again. The specification says once.
const TRANSPARENT_RETRIES_MAX: u32 = 1;

/// The owners that HTTP/2 connections concern, and when what comes was first known to be there.
pub(crate) struct GrpcEvents<'e> {
    pub grpc: &'e mut GrpcEnds,
    pub calls: &'e mut Calls,
    pub clusters: &'e mut Clusters,
    pub held: &'e mut HeldBudget,
    pub invariants: &'e mut Invariants,
    pub timers: &'e mut TimerTable<Due>,
    pub limits_met: &'e mut BTreeMap<&'static str, u64>,
    pub scratch: &'e Scratch,
    pub peers: &'e PeerEnds,
    pub arrived: Instant,
}

/// What a connection had that is over.
#[derive(Debug)]
pub(crate) struct LostGrpc {
    /// How the calls that were made over it end.
    pub made: Vec<(CallKey, Fault)>,
    /// Calls that waited for room on it, of which nothing was sent.
    pub unsent: Vec<CallKey>,
    /// Its number in reports.
    pub number: PeerIndex,
}

impl GrpcEvents<'_> {
    /// What has happened on a connection; requests of clients are not for here.
    pub fn take(&mut self, now: Instant, peer: GrpcKey, event: Event) -> Option<EndEvent<'static>> {
        let at = |tag| WebStream { peer, tag };
        match event {
            Event::Ready { streams_max } => {
                let remote = self.grpc.handle_ready(peer, streams_max);
                Some(EndEvent::PoolReady { remote, peer })
            }
            Event::Request { .. } => None,
            Event::Response { stream, head, end } => self.handle_response(at(stream), &head, end),
            Event::Data { stream, bytes, end } => {
                let at = at(stream);
                let is_wanted = self.grpc.handle_data(self.held, at, bytes, end);
                is_wanted.then_some(EndEvent::Reads { at, end })
            }
            Event::Trailers { stream, trailers } => {
                let outcome = self.grpc.read_trailers(&trailers);
                self.handle_ending(at(stream), Ending::Outcome(outcome))
            }
            Event::Reset { stream, reason, by } => self.handle_reset(now, at(stream), reason, by),
            Event::Sent { stream, bytes } => {
                let Self { grpc, held, invariants, .. } = self;
                let sent = grpc.handle_sent(&mut HeldAccounts { held, invariants }, at(stream), bytes)?;
                Some(EndEvent::Sent(sent))
            }
            Event::Written { stream, at: written } => {
                let call = self.grpc.stream(at(stream))?.call?;
                self.calls.find_mut(call)?.client_stamps.d4 = written;
                None
            }
            Event::GoAway { .. } => {
                let remote = self.grpc.handle_leaving(peer)?;
                Some(EndEvent::PoolLeaves { remote, peer })
            }
            Event::StreamsMax { streams_max } => {
                self.grpc.handle_streams_max(peer, streams_max);
                None
            }
        }
    }

    /// A gRPC server answers.
    fn handle_response(
        &mut self,
        at: WebStream,
        head: &http::response::Parts,
        end: bool,
    ) -> Option<EndEvent<'static>> {
        let Self { grpc, calls, .. } = self;
        let answer = grpc.handle_response(at, head, end)?;
        let key = answer.call;
        if let Some(accepts) = answer.refused
            && let Some(call) = calls.find(key).and_then(|call| made_for(calls, call))
        {
            grpc.pass_refusal_on(call, accepts);
        }
        match answer.head {
            ResponseHead::Headers { metadata, encoding, .. } => {
                Some(EndEvent::AnswerBegins { call: key, encoding, metadata })
            }
            ResponseHead::Ended(outcome) => self.handle_ending(at, Ending::Outcome(outcome)),
        }
    }

    /// The head of an answer, when attempts know that there is one.
    pub fn begin_answer(
        &mut self,
        key: CallKey,
        encoding: Encoding,
        metadata: Vec<u8>,
    ) -> Option<EndEvent<'static>> {
        let call = self.calls.find(key)?;
        self.grpc.pass_encoding_on(call, encoding);
        // A head without metadata says nothing to the application, unless that waits for the answer to begin.
        let words = match metadata.is_empty() {
            true => call.is_made_opaque().then(|| Metadata::NO_PAIRS.to_vec())?,
            false => metadata,
        };
        let item = Item::Headers { metadata: Cow::Owned(words) };
        Some(EndEvent::Passes { call: key, direction: Direction::Response, item })
    }

    /// The head of a request that does not stream waits for its message; `end`: there is none. Where no more may be
    /// held for its sender, a call ends.
    pub fn keep_opening(
        &mut self,
        now: Instant,
        at: WebStream,
        metadata: Vec<u8>,
        end: bool,
    ) -> Option<EndEvent<'static>> {
        self.grpc.keep_opening(self.held, at, metadata);
        if end {
            return self.handle_ending(at, Ending::Body);
        }
        let (call, fault) = self.grpc.may_hold_unfinished(self.held, self.timers, now, at).err()?;
        Some(EndEvent::Failed { call, fault })
    }

    /// A direction ended: what of it waits goes first.
    fn handle_ending(&mut self, at: WebStream, ending: Ending) -> Option<EndEvent<'static>> {
        self.grpc.handle_ending(at, ending).then_some(EndEvent::Reads { at, end: true })
    }

    /// With its end, an answer makes what is left of its request nobody's business: the call, and what its sender may
    /// send more.
    pub fn stop_asking(&mut self, at: WebStream) -> Option<(CallKey, u32)> {
        let Self { grpc, held, invariants, .. } = self;
        grpc.stop_asking(&mut HeldAccounts { held, invariants }, at)
    }

    /// The next message of a stream that is complete, as long as the application keeps up, and then the end. The
    /// message lies in `place` from then on.
    pub fn next<'m>(
        &mut self,
        now: Instant,
        at: WebStream,
        place: &'m mut Option<Arrived>,
    ) -> Option<EndEvent<'m>> {
        let Self { grpc, calls, scratch, held, timers, arrived, .. } = self;
        let key = grpc.stream(at)?.call?;
        let call = calls.find_mut(key)?;
        let direction = if call.comes_by(at) { Direction::Request } else { Direction::Response };
        loop {
            if call.half(direction).backlog.len() >= MESSAGES_WAITING_MAX || grpc.unpacks_later(at) {
                let (call, fault) = grpc.may_hold_waiting(held, at).err()?;
                return Some(EndEvent::Failed { call, fault });
            }
            match grpc.next_message(held, &scratch.long, at, call, direction) {
                Ok(NextMessage::Whole { message, charged, end }) => {
                    call.note_complete(direction, *arrived, now);
                    let item = Item::Message { body: body_of(place.insert(message), charged), end };
                    return Some(EndEvent::Passes { call: key, direction, item });
                }
                Ok(NextMessage::Kept) => {}
                Ok(NextMessage::TooMany) => {
                    return Some(malformed(key, call, direction, of_cardinality(2, direction)));
                }
                Ok(NextMessage::Nothing) => break,
                Err(fault) => return Some(malformed(key, call, direction, of_framing(&fault, direction))),
            }
        }
        // Nothing complete is left: an end that was told takes effect.
        match grpc.drain(held, timers, now, at) {
            Ok(true) => {}
            Ok(false) => return None,
            Err((call, fault)) => return Some(EndEvent::Failed { call, fault }),
        }
        let ended = grpc.end_body(held, at, direction)?;
        call.note_complete(direction, *arrived, now);
        ended_as(key, call, direction, ended, place, (*arrived, now))
    }

    /// The stream is over before its time.
    fn handle_reset(
        &mut self,
        now: Instant,
        at: WebStream,
        reason: Reason,
        by: ResetBy,
    ) -> Option<EndEvent<'static>> {
        let made = self.grpc.is_dialled(at.peer);
        let stream = self.grpc.stream(at);
        let answered = stream.is_some_and(|stream| stream.incoming.answered);
        // The answer is whole and waits its turn: what comes of the request is nobody's business.
        let waits = stream.is_some_and(|stream| stream.call.is_some() && stream.incoming.ended.is_some());
        let refused = made && reason == Reason::REFUSED_STREAM && !answered;
        if refused && let Some(again) = self.send_again(now, at) {
            return Some(again);
        }
        if made && waits {
            return None;
        }
        let Self { grpc, calls, held, invariants, arrived, .. } = self;
        let call = grpc.drop_stream(&mut HeldAccounts { held, invariants }, at)?.call?;
        let found = calls.find_mut(call)?;
        if !made {
            return Some(EndEvent::Cancelled { call, code: Code::Cancelled });
        }
        let late = found.deadline.has_passed(now);
        let outcome = response::of_reset(reason, by, answered);
        if late && outcome.code == Code::Cancelled {
            // The server's clock struck first.
            let fault = Fault::DeadlinePassed { executed: outcome.execution };
            return Some(EndEvent::Failed { call, fault });
        }
        // What of the response waits for the application goes first, as it would have had it been taken in time.
        Some(finished(call, found, outcome, None, (*arrived, now)))
    }

    /// The server says it has not seen a request. What follows if it is sent again.
    fn send_again(&mut self, now: Instant, at: WebStream) -> Option<EndEvent<'static>> {
        let Self { grpc, calls, clusters, held, invariants, .. } = self;
        let key = grpc.stream(at)?.call?;
        let call = calls.find_mut(key)?;
        let placed = call.placed?;
        let is_over = call.outcome.is_some() || call.resent >= TRANSPARENT_RETRIES_MAX;
        if call.is_made_for_another() || is_over {
            return None;
        }
        let mut stream = grpc.drop_stream(&mut HeldAccounts { held, invariants }, at)?;
        // What is sent again is kept here: its sender has it back now, for it hears nothing when that leaves.
        let (_, credit) = stream.outgoing.give_up();
        let Some(replay) = stream.replay.take() else {
            let endpoint = grpc.find(at.peer).map_or_else(String::new, |peer| peer.label.clone());
            let fault = Fault::ConnectionLost { endpoint, executed: Execution::NotExecuted };
            return Some(EndEvent::Failed { call: key, fault });
        };
        let code = Some(Code::Unavailable);
        if let Some(left) = call.leave_endpoint(code) {
            clusters.finished(now, left, code, &[]);
        }
        call.resent += 1;
        call.server = ServerEnd::Cluster { cluster: placed.cluster };
        call.handed_over = false;
        (call.request.bytes, call.request.messages) = (0, 0);
        let items = replay.into_items(stream.outgoing.encoding, stream.outgoing.ended);
        for item in items.into_iter().rev() {
            call.request.backlog.push_front(item);
        }
        Some(EndEvent::Sent(SentOn { call: key, direction: Direction::Request, credit, has_room: true }))
    }

    /// Takes a connection out that is over, whose streams had these calls.
    pub fn remove(&mut self, key: GrpcKey, calls: &[CallKey]) -> Option<LostGrpc> {
        let unsent = self.take_unsent(key);
        let lost = self.grpc.remove(self.held, self.timers, key)?;
        let is_made_here = lost.remote.is_some();
        let how = |key: &CallKey| {
            // Its end may be here and wait for the application to have room.
            let call = self.calls.find(*key).filter(|call| !call.response.ended)?;
            let (endpoint, executed) = (lost.label.clone(), call.execution());
            Some((*key, Fault::ConnectionLost { endpoint, executed }))
        };
        let made = calls.iter().filter(|_| is_made_here).filter_map(how).collect();
        Some(LostGrpc { made, unsent, number: lost.telemetry })
    }

    /// Takes the calls out of a connection's line that have no stream there: its peer takes none any more.
    pub fn take_unsent(&mut self, key: GrpcKey) -> Vec<CallKey> {
        let Self { grpc, calls, .. } = self;
        let is_unsent = |&(key, direction): &(CallKey, Direction)| {
            direction == Direction::Request && calls.find(key).is_some_and(|call| !call.handed_over)
        };
        grpc.take_blocked(key, is_unsent).into_iter().map(|(key, _)| key).collect()
    }

    /// Calls whose messages do not go on. Answers are dropped whose deadlines have passed before they left.
    pub fn sweep(&mut self, now: Instant, key: GrpcKey) -> Vec<CallKey> {
        let Self { grpc, held, invariants, timers, limits_met, peers, .. } = self;
        let swept = grpc.sweep(timers, now, key);
        if !swept.late.is_empty() {
            let status = Fault::DeadlinePassed { executed: Execution::Executed }.status();
            let outcome = Outcome::of(&peers.said_here(&status));
            let mut accounts = HeldAccounts { held, invariants };
            for at in swept.late {
                *limits_met.entry(UNSENT).or_default() += 1;
                grpc.cut_off(&mut accounts, at, &outcome);
                grpc.remove_stream(&mut accounts, at);
            }
        }
        swept.stalled
    }
}

/// What follows from the end of a direction.
fn ended_as<'m>(
    key: CallKey,
    call: &mut Call,
    direction: Direction,
    ended: EndedBody,
    place: &'m mut Option<Arrived>,
    times: (Instant, Instant),
) -> Option<EndEvent<'m>> {
    let EndedBody { outcome, streams, message, opening } = ended;
    *place = message;
    let body = place.as_ref().map(|message| body_of(message, 0));
    Some(match (outcome, direction) {
        (Err(outcome), _) => malformed(key, call, direction, outcome),
        (Ok(_), Direction::Request) if streams => {
            EndEvent::Passes { call: key, direction, item: Item::HalfClose }
        }
        (Ok(_), Direction::Request) => {
            let opening = Item::Open { metadata: Cow::Owned(opening?), body, end: true };
            EndEvent::Opens { call: key, target: target_of(call), opening }
        }
        (Ok(outcome), Direction::Response) => {
            let body = body.filter(|_| outcome.code == Code::Ok);
            finished(key, call, outcome, body, times)
        }
    })
}

// LIFE: 19 gRPC
/// The outcome of a call made at a gRPC server, behind whatever of the response still waits.
fn finished<'m>(
    key: CallKey,
    call: &mut Call,
    outcome: Outcome<'static>,
    body: Option<Body<'m>>,
    (arrived, now): (Instant, Instant),
) -> EndEvent<'m> {
    (call.client_stamps.k15, call.client_stamps.d16) = (arrived, now);
    let Outcome { code, execution, metadata } = outcome;
    let item = Item::Finish { code, execution, body, metadata };
    EndEvent::Passes { call: key, direction: Direction::Response, item }
}

/// The end of a call whose body is not well formed. What a request's handler has seen of the call is known here.
fn malformed(
    key: CallKey,
    call: &Call,
    direction: Direction,
    outcome: Outcome<'static>,
) -> EndEvent<'static> {
    let execution = if direction == Direction::Request { call.execution() } else { outcome.execution };
    EndEvent::Ended { call: key, outcome: Outcome { execution, ..outcome } }
}
