//! What a native connection says, as what follows for the calls it is about. `end.rs` is the way back.

use super::{PeerEnds, SentCall};
use crate::assembly::{Assembly, AssemblyPlace, Shape};
use crate::call::{Body, Call, Calls, ClientEnd, Direction, Item, ServerEnd};
use crate::called_paths::CalledPaths;
use crate::due::Due;
use crate::end_event::{EndEvent, LongMessage};
use crate::grpc::GrpcEnds;
use crate::held::HeldBudget;
use crate::host_numbers::HostNumbers;
use crate::invariants::Invariants;
use crate::peer::Offered;
use crate::registry::{Called, service_of};
use crate::sessions::SessionEnds;
use crate::source::{CallSources, made_for};
use crate::target::Target;
use crate::vouching::PeerRule;
use crate::{CallKey, Heaps, PeerKey};
use std::borrow::Cow;
use std::collections::BTreeMap;
use trunkline_call::{Code, Deadline, Encoding, Execution, Fault, Instant, Status, TimerTable};
use trunkline_native::{
    Arriving, Event, Failure, Incoming, IncomingCall, MethodIndex, Notice, StreamId, Trailer,
};
use trunkline_telemetry::PeerIndex;

/// The owners that native connections concern, and when what comes was first known to be there.
pub(crate) struct PeerEvents<'e> {
    pub peers: &'e mut PeerEnds,
    pub calls: &'e mut Calls,
    pub sessions: &'e mut SessionEnds,
    pub held: &'e mut HeldBudget,
    pub invariants: &'e mut Invariants,
    pub timers: &'e mut TimerTable<Due>,
    pub limits_met: &'e mut BTreeMap<&'static str, u64>,
    pub host_numbers: &'e mut HostNumbers,
    pub grpc: &'e GrpcEnds,
    pub peer_rules: &'e [PeerRule],
    pub paths: CalledPaths<'e>,
    pub arrived: Instant,
}

/// What a connection had that is over.
#[derive(Debug)]
pub(crate) struct LostPeer {
    /// Calls that waited to be opened there. They have sent nothing: they go elsewhere, by another connection.
    pub unsent: Vec<CallKey>,
    /// Other calls of which something waited, and how they end.
    pub begun: Vec<(CallKey, Fault)>,
    /// Its number in reports.
    pub number: PeerIndex,
}

impl PeerEvents<'_> {
    /// What a peer has said: what `follows` from it is written there.
    #[inline(always)]
    pub fn take<'b>(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        peer: PeerKey,
        event: Event<'b>,
        follows: &mut EndEvent<'b>,
    ) {
        let passes =
            |tag, direction, item| EndEvent::Passes { call: CallKey::from_bits(tag), direction, item };
        match event {
            Event::Call(call) => self.handle_call(now, peer, call, follows),
            Event::Result { stream, tag, message, metadata, trailer } => {
                let call = CallKey::from_bits(tag);
                self.note_answer(now, peer, call, trailer, true);
                result_of((peer, stream), call, message, metadata, follows);
            }
            Event::Message { stream, tag, message, end } => {
                let call = CallKey::from_bits(tag);
                self.handle_message((peer, stream), call, message, end, follows);
            }
            Event::Headers { tag, metadata, .. } => {
                let item = Item::Headers { metadata: Cow::Borrowed(metadata) };
                *follows = passes(tag, Direction::Response, item);
            }
            Event::Error { tag, code, execution, metadata, trailer, .. } => {
                let is_there = trailer.is_some() && ![Code::Unimplemented, Code::Unavailable].contains(&code);
                self.note_answer(now, peer, CallKey::from_bits(tag), trailer, is_there);
                let metadata = Cow::Borrowed(metadata);
                let item = Item::Finish { code, execution, body: None, metadata };
                *follows = passes(tag, Direction::Response, item);
            }
            Event::HalfClose { tag, .. } => *follows = passes(tag, Direction::Request, Item::HalfClose),
            Event::Cancelled { tag, code, .. } => {
                *follows = EndEvent::Cancelled { call: CallKey::from_bits(tag), code };
            }
            Event::Chunk { stream, offset, bytes, last, .. } => {
                let said = self.handle_chunk(now, heaps, (peer, stream), (offset, bytes, last));
                said.into_iter().for_each(|said| *follows = said);
            }
            said => self.handle_rest(peer, said).into_iter().for_each(|said| *follows = said),
        }
    }

    /// What is no call's, and seldom said.
    #[inline(never)]
    fn handle_rest<'b>(&mut self, key: PeerKey, event: Event<'b>) -> Option<EndEvent<'b>> {
        match event {
            Event::Established => self.handle_established(key),
            Event::Schema { method, path, request_fingerprint, response_fingerprint } => {
                self.handle_schema(key, method, path, [request_fingerprint, response_fingerprint]);
                None
            }
            Event::SchemaAnswer { method, request_fingerprint, .. } => {
                self.peers.find_mut(key)?.answers.insert(method, request_fingerprint);
                None
            }
            Event::Caller { number, caller } => {
                // Nothing is kept of what is not believed.
                let peer = self.peers.find_mut(key).filter(|peer| peer.is_host)?;
                peer.callers_heard.hear(number, caller);
                None
            }
            Event::Redial => Some(EndEvent::WantsAnother(key)),
            Event::GoAway { .. } => {
                let (remote, lane) = self.peers.find(key)?.lane?;
                Some(EndEvent::LaneLeft { remote, lane, peer: key })
            }
            Event::Closed { code, why } => {
                if let Some(peer) = self.peers.find_mut(key) {
                    // Its checksums say so: it has read what was not written here.
                    peer.is_corrupted = code == Code::DataLoss && peer.connection.has_checksums();
                }
                Some(EndEvent::PeerClosed { peer: key, why: format!("peer closed: {code}: {why}") })
            }
            _ => None,
        }
    }

    fn handle_established<'b>(&mut self, key: PeerKey) -> Option<EndEvent<'b>> {
        let (name, has_same_clock) = self.peers.reported_as(key)?;
        let number = self.paths.telemetry.peer(&name, has_same_clock);
        let peer = self.peers.find_mut(key)?;
        self.host_numbers.leave(std::mem::replace(&mut peer.telemetry, number));
        self.host_numbers.join(number);
        let (remote, lane) = peer.lane?;
        Some(EndEvent::LaneUp { remote, lane, peer: key })
    }

    fn handle_schema(&mut self, key: PeerKey, index: MethodIndex, path: &str, fingerprints: [u64; 2]) {
        let method = self.paths.registry.key_of(path);
        let types = method.and_then(|method| self.paths.routing().types_agreed(method));
        let offered = Offered { path: path.into(), method, fingerprints, answered: None, agreed: None };
        if self.peers.take_offer(self.held, key, index, offered) {
            self.peers.answer(key, index, (method, types));
        }
    }

    // LIFE: 13 | begins on host B, with stations 4 to 7 there; a large message is put together first, in the receive
    // heap it is meant for | complete (d8) |
    fn handle_call<'b>(
        &mut self,
        now: Instant,
        peer: PeerKey,
        incoming: IncomingCall<'b>,
        follows: &mut EndEvent<'b>,
    ) {
        let stream = incoming.stream;
        let Some(found) = self.peers.find_mut(peer) else { return };
        let offered = found.offered.get(&incoming.method).cloned();
        if let Some(offered) = &offered
            && let Err(status) = found.may_call(self.peer_rules, service_of(&offered.path))
        {
            return self.refuse(now, (peer, stream), &offered.path, &status);
        }
        if let Err(full) = found.hold(self.held, 0) {
            if let Fault::Limit { name, .. } = &full {
                *self.limits_met.entry(name).or_default() += 1;
            }
            let path = offered.as_ref().map_or("", |offered| &*offered.path);
            return self.refuse(now, (peer, stream), path, &full.status());
        }
        let called = offered.as_ref().and_then(|offered| match offered.method {
            Some(method) => Some(Called { method, path: None }),
            None => self.paths.called(&offered.path),
        });
        let Some(Called { method, path }) = called else {
            let path = offered.map_or_else(String::new, |offered| offered.path.to_string());
            let fault = self.uncalled(path.clone());
            return self.refuse(now, (peer, stream), &path, &fault.status());
        };
        let deadline =
            incoming.deadline_remaining_ns.map_or(Deadline::NONE, |ns| Deadline::at(now.plus_ns(ns)));
        let (key, call) = self.calls.renew();
        call.begin(method, ClientEnd::Peer { peer, stream }, deadline);
        (call.server_stamps.k7, call.server_stamps.d8) = (self.arrived, now);
        call.path = path;
        if let Some(offered) = offered {
            (call.offered, call.agreed) = (Some(offered.fingerprints), offered.agreed);
        }
        if let Some(peer) = self.peers.find_mut(peer) {
            peer.connection.set_tag(stream, key.to_bits());
            if let Some(number) = incoming.caller.filter(|_| peer.is_host) {
                call.caller = peer.callers_heard.find(number).cloned();
            }
        }
        begun(peer, key, incoming, follows);
    }

    /// Why a method of this path is not called here.
    #[cold]
    fn uncalled(&self, path: String) -> Fault {
        let service = service_of(&path).to_owned();
        if self.paths.routing().serves_service(&service) {
            Fault::NoMethod { path }
        } else {
            self.paths.unserved(&path).unwrap_or(Fault::NoRoute { what: service })
        }
    }

    /// Refuses a stream a peer opened, before it became a call of this path.
    #[cold]
    fn refuse(&mut self, now: Instant, (peer, stream): (PeerKey, StreamId), path: &str, status: &Status) {
        let trunkline_grpc::Outcome { code, execution, metadata } =
            trunkline_grpc::Outcome::of(&self.peers.said_here(status));
        if let Some(found) = self.peers.find_mut(peer) {
            self.paths.note_refused(self.arrived, now, (path, found.telemetry), code);
            let failure = Failure { code, execution, metadata: &metadata, trailer: None };
            let _ = found.connection.abort(now, stream, &failure);
        }
        self.peers.transmit(peer);
    }

    /// The answer to a call begins to arrive. It `is_there`: the peer has the method.
    fn note_answer(
        &mut self,
        now: Instant,
        peer: PeerKey,
        key: CallKey,
        trailer: Option<&Trailer>,
        is_there: bool,
    ) {
        let Some(call) = self.calls.find_mut(key) else { return };
        call.answer_begins(self.arrived, now, trailer);
        if is_there {
            self.peers.answered(peer, call.method);
        }
    }

    /// A message on a stream: a call's caller says requests there, its server responses, by which it shows that it has
    /// the method.
    fn handle_message<'b>(
        &mut self,
        (of, on): (PeerKey, StreamId),
        call: CallKey,
        message: Incoming<'b>,
        end: bool,
        follows: &mut EndEvent<'b>,
    ) {
        let mut direction = Direction::Response;
        if let Some(call) = self.calls.find(call) {
            match call.client {
                ClientEnd::Peer { peer, stream } if peer == of && stream == on => {
                    direction = Direction::Request;
                }
                _ => self.peers.answered(of, call.method),
            }
        }
        let (shape, encoding) = (Shape::Message { end }, message.encoding);
        *follows = match message.body {
            Arriving::Whole(bytes) => {
                let body = whole(bytes, encoding, shape.own_cost());
                EndEvent::Passes { call, direction, item: Item::Message { body, end } }
            }
            Arriving::Cut { total } => {
                EndEvent::Long(LongMessage { peer: of, stream: on, call, direction, encoding, total, shape })
            }
        };
    }

    /// Begins to put a message together, whose call is settled.
    ///
    /// # Errors
    /// What ends its call.
    pub fn begin_message(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        message: LongMessage,
    ) -> Result<(), Fault> {
        let LongMessage { peer, stream, call: key, direction, encoding, total, shape } = message;
        let Self { peers, calls, sessions, held, grpc, paths, .. } = self;
        let place = match calls.find(key) {
            Some(call) => {
                let source = || CallSources { sessions, peers, grpc }.of_maker(made_for(calls, call));
                sessions.place_for(heaps, (call, direction), (encoding, total), &shape, source)
            }
            None => AssemblyPlace::Private(Vec::new()),
        };
        let counted = place.usual_bytes(heaps);
        let assembly = Assembly::new(key, direction, encoding, total, place, shape);
        let bytes_max = paths.limits.assembling_bytes_per_peer;
        if !peers.begin_assembly(held, bytes_max, (peer, stream), assembly)? {
            return Ok(());
        }
        if let Some((session, bytes)) = counted
            && let Some(session) = sessions.find_mut(session)
        {
            peers.count_arriving((peer, stream), session.arrives(bytes));
        }
        self.look_at_messages_in_time(now, peer);
        self.peers.transmit(peer);
        Ok(())
    }

    /// Bytes of a message that is arriving; empty when the host has read them into place itself.
    fn handle_chunk<'b>(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        on: (PeerKey, StreamId),
        (offset, bytes, last): (u32, &[u8], bool),
    ) -> Option<EndEvent<'b>> {
        let done = match self.peers.take_chunk(self.held, heaps, on, offset, bytes, last) {
            Ok(done) => done?,
            Err((call, fault)) => return Some(EndEvent::Failed { call, fault }),
        };
        self.sessions.arrives_no_more(self.invariants, &done);
        let (key, direction) = (done.call, done.direction);
        let (shape, body) = done.into_body();
        let opens = matches!(shape, Shape::Open { .. });
        let item = shape.into_item(Some(body));
        let passes = |item| EndEvent::Passes { call: key, direction, item };
        let Some(call) = self.calls.find_mut(key) else { return Some(passes(item)) };
        call.message_is_whole(direction, self.arrived, now);
        Some(match call.server {
            _ if !opens => passes(item),
            ServerEnd::Nobody => EndEvent::Opens { call: key, target: Target::Here, opening: item },
            _ => EndEvent::OpensSettled { call: key, policies: call.policies.take(), opening: item },
        })
    }

    /// What became of what was sent.
    pub fn take_notice<'b>(&mut self, peer: PeerKey, notice: Notice) -> Option<EndEvent<'b>> {
        match notice {
            Notice::BodyDone { token } => self.body_done(token),
            Notice::Writable => Some(EndEvent::Writable(peer)),
            Notice::StreamWritable { tag, .. } => {
                let call = CallKey::from_bits(tag);
                let direction = match self.calls.find(call).map(|call| &call.server) {
                    Some(ServerEnd::Peer { .. }) => Direction::Request,
                    _ => Direction::Response,
                };
                Some(EndEvent::Room { call, direction })
            }
            Notice::Ended { tag, execution, .. } => {
                let lost = || Fault::ConnectionLost { endpoint: String::new(), executed: execution };
                let fault = self.peers.find(peer).map_or_else(lost, |peer| peer.lost_with(execution));
                Some(EndEvent::Failed { call: CallKey::from_bits(tag), fault })
            }
            Notice::Orphaned { tag, .. } => {
                Some(EndEvent::Cancelled { call: CallKey::from_bits(tag), code: Code::Cancelled })
            }
        }
    }

    /// A connection no longer reads a send-heap range: its block goes back, and the sender may send as much again.
    fn body_done<'b>(&mut self, token: u64) -> Option<EndEvent<'b>> {
        let Self { peers, sessions, held, invariants, .. } = self;
        let lent = peers.body_done(token)?;
        sessions.give_back(lent.session, lent.block);
        if let Some(session) = sessions.find_mut(lent.session) {
            session.lent_no_more(invariants);
        }
        // The calls of a session that is gone have ended: nobody gets what is given for them below.
        sessions.retire_if_unlent(held, lent.session);
        Some(EndEvent::Credit { call: lent.call, direction: lent.direction, bytes: lent.window_bytes })
    }

    /// The socket took so many bytes. The call whose request ended with the last of them, if one did.
    pub fn transmitted(&mut self, key: PeerKey, bytes: usize) -> Option<SentCall> {
        let peer = self.peers.find_mut(key)?;
        peer.connection.transmitted(bytes);
        let mut last = None;
        while let Some(sent) = peer.connection.poll_sent() {
            let key = CallKey::from_bits(sent.tag);
            if let Some(call) = self.calls.find_mut(key) {
                call.client_stamps.d4 = sent.at;
            }
            last = sent.is_last.then_some(SentCall(key));
        }
        last
    }

    /// Takes a connection out that is over, with what was arriving on it.
    pub fn remove(&mut self, key: PeerKey) -> Option<LostPeer> {
        let Self { peers, calls, sessions, held, invariants, .. } = self;
        let mut peer = peers.remove(key)?;
        for (_, assembly) in peer.assemblies.drain() {
            sessions.give_up(invariants, &assembly);
        }
        held.leave(std::mem::take(&mut peer.holding));
        let (mut unsent, mut begun) = (Vec::new(), Vec::new());
        for (key, direction) in peer.blocked.take() {
            let call = calls.find(key);
            if direction == Direction::Request && call.is_some_and(is_unsent) {
                unsent.push(key);
            } else {
                begun.push((key, peer.lost_with(call.map_or(Execution::Unknown, Call::execution))));
            }
        }
        Some(LostPeer { unsent, begun, number: peer.telemetry })
    }

    /// Takes the calls out of a connection's line that were not opened there: its peer takes none any more.
    pub fn take_unsent(&mut self, key: PeerKey) -> Vec<CallKey> {
        let Self { peers, calls, .. } = self;
        let Some(peer) = peers.find_mut(key) else { return Vec::new() };
        let is_unsent = |&(key, direction): &(CallKey, Direction)| {
            direction == Direction::Request && calls.find(key).is_some_and(is_unsent)
        };
        let (unsent, others): (Vec<_>, Vec<_>) = peer.blocked.take().into_iter().partition(is_unsent);
        others.into_iter().for_each(|other| peer.blocked.push(other, |_| true));
        unsent.into_iter().map(|(key, _)| key).collect()
    }

    /// Has somebody look in a while whether the large messages of a connection go on.
    pub fn look_at_messages_in_time(&mut self, now: Instant, key: PeerKey) {
        let Some(stall_ns) = self.paths.limits.message_stall_ns() else { return };
        if self.peers.is_to_be_looked_at(key) {
            self.timers.insert(now.plus_ns(stall_ns), Due::Assemblies(key));
        }
    }

    /// Calls whose large messages do not go on. Somebody looks again later while there are any.
    pub fn stalled(&mut self, now: Instant, key: PeerKey) -> Vec<CallKey> {
        let stalled = self.peers.stalled(key);
        self.look_at_messages_in_time(now, key);
        stalled
    }
}

/// Whether nothing of a call has been sent, so that it may go elsewhere.
fn is_unsent(call: &Call) -> bool {
    !call.handed_over && !matches!(call.server, ServerEnd::Peer { .. })
}

/// What follows from a call that has begun, with its message or the beginning of one: small ones go on at once, large
/// ones are put together where they will lie.
#[inline(always)]
fn begun<'b>(peer: PeerKey, call: CallKey, incoming: IncomingCall<'b>, follows: &mut EndEvent<'b>) {
    let IncomingCall { stream, message, metadata, end, .. } = incoming;
    let body = match message {
        None => None,
        Some(Incoming { encoding, body: Arriving::Whole(bytes) }) => Some(whole(bytes, encoding, 0)),
        Some(Incoming { encoding, body: Arriving::Cut { total } }) => {
            let (direction, shape) = (Direction::Request, Shape::Open { metadata: metadata.to_vec(), end });
            let long = LongMessage { peer, stream, call, direction, encoding, total, shape };
            *follows = EndEvent::Long(long);
            return;
        }
    };
    let opening = Item::Open { metadata: Cow::Borrowed(metadata), body, end };
    *follows = EndEvent::Opens { call, target: Target::Here, opening };
}

// LIFE: 19 | read as at 12, and matched to the call | (k15, d16) | 7 response wire
/// The answer to a call, or what is to be put together first.
#[inline(always)]
fn result_of<'b>(
    (peer, stream): (PeerKey, StreamId),
    call: CallKey,
    message: Option<Incoming<'b>>,
    metadata: &'b [u8],
    follows: &mut EndEvent<'b>,
) {
    let direction = Direction::Response;
    let body = match message {
        None => None,
        Some(Incoming { encoding, body: Arriving::Whole(bytes) }) => Some(whole(bytes, encoding, 0)),
        Some(Incoming { encoding, body: Arriving::Cut { total } }) => {
            let shape = Shape::Finish { metadata: metadata.to_vec() };
            let long = LongMessage { peer, stream, call, direction, encoding, total, shape };
            *follows = EndEvent::Long(long);
            return;
        }
    };
    let (code, execution, metadata) = (Code::Ok, Execution::Executed, Cow::Borrowed(metadata));
    *follows = EndEvent::Passes { call, direction, item: Item::Finish { code, execution, body, metadata } };
}

/// A message that is here; its frame took so much more of the window.
fn whole(bytes: &[u8], encoding: Encoding, own_cost: u32) -> Body<'_> {
    let charged = bytes.len() as u32 + own_cost;
    Body::Wire { bytes: Cow::Borrowed(bytes), encoding, charged, compressed: false }
}
