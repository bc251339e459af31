//! A call as its ends and its items see it: the types of its messages, what a connection says of it, whether an item
//! goes on and who pays for it while it waits, and what there is to give back in the end.

use crate::admission::CallPolicies;
use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::Placed;
use crate::registry::{Form, MethodTypes};
use crate::shard::ShardStage;
use crate::{CallKey, GrpcKey, PeerKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{
    ClientStamps, Code, Deadline, Encoding, Instant, SERVER_TRAILER_BYTES, ServerStamps, TimerKey,
    WorkerChoice,
};
use trunkline_grpc::service_config::MethodConfig;
use trunkline_native::{StreamId, Trailer};
use trunkline_policy::Class;
use trunkline_telemetry::PeerIndex;

/// Who pays for an item that waits in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCharge {
    /// It is bounded where it comes from.
    Nobody,
    /// The session it leads to, of what waits for its receive heap.
    Session(SessionKey),
    /// The session it leads to, which does not read its large answers.
    Answer(SessionKey),
    /// The native connection it came from, which was let send a large message.
    Native(PeerKey),
    /// The gRPC connection it came from, with what it does not take of its window.
    Grpc(GrpcKey),
    /// What waits for other shards.
    Crossing,
}

/// What becomes of an item that comes next in its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemTurn {
    /// It is handed over.
    Now,
    /// It waits behind others, or for what its policies wait for.
    Later,
    /// It waits until then.
    At(Instant),
    /// It is handed over unless calls of another class are about.
    Paced(Class),
}

/// What a call that is over gives back.
pub(crate) struct ReleasedParts {
    pub policies: Option<Box<CallPolicies>>,
    pub timer: Option<TimerKey>,
    pub parent: Option<CallKey>,
    /// Calls below it and itself.
    pub subtree: u32,
}

impl Call {
    /// What it gives back when it is over, and its ends are through with it.
    pub fn take_released(&mut self) -> ReleasedParts {
        ReleasedParts {
            policies: self.policies.take(),
            timer: self.timer,
            parent: self.parent,
            subtree: self.server_stamps.subtree.max(1),
        }
    }

    /// Its client end, which is through with it: it is to be released.
    #[inline]
    pub fn take_client(&mut self) -> ClientEnd {
        std::mem::replace(&mut self.client, ClientEnd::VACANT)
    }

    /// Its server end, which is through with it: it is to be released.
    #[inline]
    pub fn take_server(&mut self) -> ServerEnd {
        std::mem::replace(&mut self.server, ServerEnd::Nobody)
    }

    /// Whether nothing waits in it, in neither direction.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.request.is_at_rest() && self.response.is_at_rest()
    }

    /// Its answer leaves by a gRPC connection. The stamps of a call that was forwarded are those of whoever served it,
    /// by another clock.
    #[inline]
    pub fn leaves_by_grpc(&mut self, now: Instant) {
        if !self.is_forwarded() {
            self.server_stamps.k14 = now;
        }
    }

    /// The application that made it gets its end now.
    #[inline]
    pub fn ends_for_application(&mut self, now: Instant, code: Code) {
        self.outcome = Some(code);
        self.answer_goes(now);
    }

    /// Whoever it was made for gets its answer now. If it waited for its reader, what came after it was ready is the
    /// client's receive queue.
    #[inline]
    pub fn answer_goes(&mut self, now: Instant) {
        let waited = self.client_stamps.d17 != Instant::default();
        let ready = if waited { self.answer_was_ready().min(now) } else { now };
        if matches!(self.server, ServerEnd::Session { .. }) {
            self.server_stamps.k14 = ready;
            (self.client_stamps.k15, self.client_stamps.d16) = (ready, ready);
        }
        self.client_stamps.d17 = ready;
    }

    /// What of it began to wait is not all of the answer if that was not here yet.
    #[cold]
    fn answer_was_ready(&self) -> Instant {
        let is_served_here = matches!(self.server, ServerEnd::Session { .. });
        let came = if is_served_here { self.server_stamps.d12 } else { self.client_stamps.d16 };
        self.client_stamps.d17.max(came)
    }

    /// An item of its request waited so long here before it went on: `for_room` in its server's receive heap, or for
    /// anything else.
    pub fn note_request_wait(&mut self, waited_ns: u64, for_room: bool) {
        let is_attempt = matches!(self.client, ClientEnd::Attempt { .. });
        if for_room && self.maker().is_some() && self.server_stamps.d9 == Instant::default() {
            self.note_receive_wait(waited_ns);
        } else if self.is_made_here() || is_attempt {
            self.client_stamps.wait_ns = self.client_stamps.wait_ns.saturating_add(waited_ns);
        } else {
            self.note_receive_wait(waited_ns);
        }
    }

    /// An item of its answer waited so long here before it went on: `for_reader`, that is for whoever gets it, or for
    /// its turn there. Of those who read elsewhere their host says it. What is there already a peer may have said, who
    /// may say anything.
    pub fn note_answer_wait(&mut self, now: Instant, waited_ns: u64, for_reader: bool) {
        if for_reader && (self.maker().is_some() || self.is_forwarded()) {
            return self.answer_waits_since(now.minus_ns(waited_ns));
        }
        self.server_stamps.wait_ns = self.server_stamps.wait_ns.saturating_add(waited_ns);
    }

    fn answer_waits_since(&mut self, since: Instant) {
        let stamps = &mut self.client_stamps;
        stamps.d17 = if stamps.d17 == Instant::default() { since } else { stamps.d17 };
    }

    /// Its request waited so long in front of the server. What comes after it was delivered is the application's time.
    pub fn note_receive_wait(&mut self, waited_ns: u64) {
        if self.server_stamps.d9 == Instant::default() {
            self.receive_wait_ns = self.receive_wait_ns.saturating_add(waited_ns);
        }
    }

    /// A call of an application of this host ends: whether the server's stamps say how far it was there. Of calls that
    /// are served for others the server's record says it.
    pub fn ends_at_server(&mut self, now: Instant) -> bool {
        let is_of_host = matches!(self.client, ClientEnd::Session { .. } | ClientEnd::Shard { .. });
        is_of_host && (self.ends_in_queue(now) || self.ends_before_reader(now) || self.ends_at_handler(now))
    }

    /// Its answer has come and waits for its reader.
    fn ends_before_reader(&mut self, now: Instant) -> bool {
        let (true, Some(since)) = (self.server_measured, self.response.waiting_since) else { return false };
        if self.maker().is_some() {
            self.answer_waits_since(since);
            self.answer_goes(now);
        }
        true
    }

    /// It was delivered: from then on its handler had it, here or on another shard. What has moved since with its
    /// session is elsewhere for all that is known.
    fn ends_at_handler(&mut self, now: Instant) -> bool {
        let handed = match (&self.client, &self.server) {
            (_, ServerEnd::Session { .. }) if self.handed_over => self.server_stamps.d9,
            (ClientEnd::Session { .. }, ServerEnd::Shard { stage, .. })
                if *stage != ShardStage::Chosen && self.moves == 0 =>
            {
                self.client_stamps.d3
            }
            _ => return false,
        };
        if handed == Instant::default() {
            return false;
        }
        let server = &mut self.server_stamps;
        if server.d9 == Instant::default() {
            (server.k7, server.d8, server.d9) = (handed, handed, handed);
        }
        (server.d12, server.k14) = (now, now);
        (self.client_stamps.k15, self.client_stamps.d16) = (now, now);
        true
    }

    /// If it waits for a worker, or for room at one, all of that was the server's receive queue.
    fn ends_in_queue(&mut self, now: Instant) -> bool {
        let waits_for_room = self.request.waits_for_room && !self.handed_over;
        let waits = self.queued.is_some_and(|queued| queued.for_worker) || waits_for_room;
        let (true, Some(since)) = (waits, self.request.waiting_since) else { return false };
        let since = since.minus_ns(self.receive_wait_ns);
        let (client, server) = (&mut self.client_stamps, &mut self.server_stamps);
        // Of a call from another shard that one has the client's.
        if matches!(self.client, ClientEnd::Session { .. }) {
            (client.d3, client.d4, client.k6, client.k15, client.d16) = (since, since, since, now, now);
        }
        (server.k7, server.d8, server.d9) = (since, since, since);
        (server.a10, server.a11, server.d12, server.k14) = (now, now, now, now);
        true
    }

    /// It ends while its attempts are under way: it was as far as this one, and where that is.
    pub fn comes_as_far_as(&mut self, attempt: Option<(ClientStamps, PeerIndex)>) {
        if let Some((stamps, peer)) = attempt {
            self.client_stamps = stamps;
            // One that has come to no connection is where its call was found to be.
            self.peer_index = if peer == PeerIndex::LOCAL { self.peer_index } else { peer };
        }
    }

    /// Calls its handler has made: they end with it.
    pub fn take_children(&mut self) -> Vec<CallKey> {
        std::mem::take(&mut self.children)
    }

    /// Whether its caller is on another host, or a client of the gateway.
    pub fn is_for_elsewhere(&self) -> bool {
        match &self.client {
            ClientEnd::Peer { .. } | ClientEnd::Grpc { .. } | ClientEnd::R2p2 { .. } => true,
            ClientEnd::Shard { origin, .. } => origin.is_elsewhere(),
            ClientEnd::Session { .. } | ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => false,
        }
    }

    /// Whether an item that has come goes on. One that is held until some instant is so once; `planted` is another.
    #[inline]
    pub fn turn_of(&mut self, direction: Direction, planted: Option<Instant>) -> ItemTurn {
        if !self.half_of(direction).backlog.is_empty() {
            return ItemTurn::Later;
        }
        let Some(policies) = self.policies.as_deref_mut() else {
            return planted.map_or(ItemTurn::Now, ItemTurn::At);
        };
        if policies.queued.is_some() {
            return ItemTurn::Later;
        }
        let until = planted.max(policies.held_until.take());
        let unless_held = || policies.class.map_or(ItemTurn::Now, ItemTurn::Paced);
        until.map_or_else(unless_held, ItemTurn::At)
    }

    /// Who is to pay for an item that begins to wait. A large message was let in as such, against its connection: more
    /// than one window of a stream fits nowhere else. A large request stays there. A large answer is its caller's from
    /// now on, who does not read: others have answers from there, too.
    pub fn charge_for(&self, direction: Direction, is_large: bool) -> WaitCharge {
        match (self.native_sender(direction).filter(|_| is_large), self.receiver(direction)) {
            (Some(_), Some(session)) if direction == Direction::Response => WaitCharge::Answer(session),
            (Some(peer), _) => WaitCharge::Native(peer),
            (None, Some(session)) => WaitCharge::Session(session),
            (None, None) => self.charge_on_the_way(direction),
        }
    }

    /// Who pays for an item that has waited.
    pub fn charge_of(&self, direction: Direction, is_large: bool) -> WaitCharge {
        let half = self.half_of(direction);
        match (half.large_of.filter(|_| is_large), self.receiver(direction)) {
            (Some(peer), _) => WaitCharge::Native(peer),
            (None, Some(session)) if is_large && half.large_waits => WaitCharge::Answer(session),
            (None, Some(session)) => WaitCharge::Session(session),
            (None, None) => self.charge_on_the_way(direction),
        }
    }

    /// Who pays for an item that has waited between two connections, or between two shards.
    fn charge_on_the_way(&self, direction: Direction) -> WaitCharge {
        if self.crosses(direction) {
            return WaitCharge::Crossing;
        }
        self.forwarded_from(direction).map_or(WaitCharge::Nobody, WaitCharge::Grpc)
    }

    /// It leaves the endpoint it was given, where it ended so: what the balancer is told. In vain, it is not for it
    /// again.
    pub fn leave_endpoint(&mut self, code: Option<Code>) -> Option<Placed> {
        let placed = self.placed.take()?;
        if code.is_some_and(|code| code != Code::Ok) {
            self.tried.push(placed.endpoint);
        }
        Some(placed)
    }

    /// Which worker it wants: what the operator of this host says of calls that are served here (`served`), else of
    /// those that are made here, else the call itself. What is wrong with its metadata is said at its admission.
    pub fn choice_of_worker(&self, served: WorkerChoice, opening: &Item<'_>) -> WorkerChoice {
        let made = self.policies.as_ref().map_or(WorkerChoice::default(), |policies| policies.choice());
        let asked = match opening {
            // It was asked for where it comes from.
            _ if matches!(self.client, ClientEnd::Shard { .. }) => WorkerChoice::default(),
            Item::Open { metadata, .. } => WorkerChoice::read(metadata).unwrap_or_default(),
            _ => WorkerChoice::default(),
        };
        served.or(made).or(asked).or(self.choice)
    }

    /// What the service's users have said about calls such as this one, which is made here.
    pub fn configure(&mut self, now: Instant, config: &MethodConfig) {
        if let Some(timeout_ns) = config.timeout_ns {
            self.deadline = self.deadline.earlier(Deadline::at(now.plus_ns(timeout_ns)));
        }
        self.waits_for_ready |= config.wait_for_ready.unwrap_or(false);
        let longest = [config.request_bytes_max, config.response_bytes_max];
        self.message_bytes_max = longest.map(|bytes| bytes.unwrap_or(u32::MAX));
    }

    /// The types of the session that sends in this direction, or of a call that is forwarded.
    pub fn sender_types(&self, direction: Direction) -> Option<Arc<MethodTypes>> {
        self.types_sent(direction).cloned()
    }

    pub fn types_sent(&self, direction: Direction) -> Option<&Arc<MethodTypes>> {
        match direction {
            Direction::Request => match &self.client {
                ClientEnd::Session { types, .. }
                | ClientEnd::Attempt { types, .. }
                | ClientEnd::Mirror { types, .. } => Some(types),
                ClientEnd::Grpc { types, .. } | ClientEnd::Shard { types, .. } => types.as_ref(),
                ClientEnd::Peer { .. } | ClientEnd::R2p2 { .. } => None,
            },
            Direction::Response => match &self.server {
                ServerEnd::Session { types, .. } | ServerEnd::Shard { types, .. } => Some(types),
                ServerEnd::Nobody
                | ServerEnd::Cluster { .. }
                | ServerEnd::Attempts
                | ServerEnd::Peer { .. }
                | ServerEnd::Grpc { .. }
                | ServerEnd::R2p2 { .. } => None,
            },
        }
    }

    /// The form of the messages the end has that sends in this direction, as far as it is known with the call; linear
    /// ones of a peer have the type this host told it of.
    pub fn form_sent(&self, direction: Direction) -> Option<&Form> {
        let types = match (direction, &self.client) {
            (Direction::Request, ClientEnd::Peer { .. } | ClientEnd::R2p2 { .. }) => self.agreed.as_ref(),
            // What it is follows from the gateway's settings.
            (Direction::Request, ClientEnd::Grpc { .. }) => None,
            _ => self.types_sent(direction),
        };
        types.map(|types| types.of(direction))
    }

    /// Whether messages stream in this direction.
    pub fn streams(&self, direction: Direction) -> bool {
        let types = self.types_sent(direction).or_else(|| self.types_sent(direction.opposite()));
        types.is_some_and(|types| match direction {
            Direction::Request => types.pattern.client_streams(),
            Direction::Response => types.pattern.server_streams(),
        })
    }

    /// Those of the end the direction leads to.
    pub fn receiver_types(&self, direction: Direction) -> Option<Arc<MethodTypes>> {
        self.sender_types(direction.opposite())
    }

    /// The session a message of this direction is meant for, if that takes it as it comes from another daemon.
    pub fn taken_as_it_comes(&self, direction: Direction, encoding: Encoding) -> Option<SessionKey> {
        let (session, form) = match (direction, &self.client, &self.server) {
            (Direction::Response, ClientEnd::Session { session, types, .. }, _) => (*session, &types.output),
            (Direction::Request, _, ServerEnd::Session { session, types }) => (*session, &types.input),
            _ => return None,
        };
        let as_it_comes = match (encoding, form) {
            (Encoding::Protobuf, form) => form.is_opaque(),
            (Encoding::Linear, Form::Opaque) => false,
            (Encoding::Linear, Form::Typed(wanted)) => {
                direction == Direction::Response
                    || self.agreed_input().is_none_or(|of| of == wanted.fingerprint)
            }
        };
        as_it_comes.then_some(session)
    }

    /// A stream at a peer is its server end from now on.
    pub fn opened_at(&mut self, peer: PeerKey, stream: StreamId, number: Option<PeerIndex>, now: Instant) {
        self.server = ServerEnd::Peer { peer, stream };
        self.handed_over = true;
        self.peer_index = number.unwrap_or(self.peer_index);
        self.client_stamps.d3 = now;
    }

    /// The response begins to arrive: from here on time is response stack, and the server's part is known.
    pub fn answer_begins(&mut self, arrived: Instant, now: Instant, trailer: Option<&Trailer>) {
        (self.client_stamps.k15, self.client_stamps.d16) = (arrived, now);
        if let Some(trailer) = trailer {
            self.server_stamps = ServerStamps::decode(trailer);
            self.server_measured = true;
        }
    }

    /// A large message is here.
    pub fn message_is_whole(&mut self, direction: Direction, arrived: Instant, now: Instant) {
        match direction {
            Direction::Request => (self.server_stamps.k7, self.server_stamps.d8) = (arrived, now),
            Direction::Response => (self.client_stamps.k15, self.client_stamps.d16) = (arrived, now),
        }
    }

    /// The server's stamps. The connection says in them when they leave.
    pub fn trailer(&mut self, now: Instant) -> [u8; SERVER_TRAILER_BYTES] {
        self.server_stamps.k14 = now;
        trunkline_telemetry::settle(&self.server_stamps).encode()
    }
}

impl MethodTypes {
    /// The form of messages in this direction.
    pub fn of(&self, direction: Direction) -> &Form {
        match direction {
            Direction::Request => &self.input,
            Direction::Response => &self.output,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that whoever is charged with what waits is discharged of it.
    use super::*;
    use crate::registry::MethodKey;
    use crate::table::Key;
    use trunkline_call::{CallId, Deadline};
    use trunkline_grpc::StreamTag;

    #[test]
    fn who_pays_for_what_waits_is_who_has_paid() {
        let types = || Arc::new(MethodTypes::opaque("/a.B/C", false));
        let (session, peer) = (Key::from_bits(1), Key::from_bits(2));
        let native = |stream| (ClientEnd::Peer { peer, stream }, ServerEnd::Peer { peer, stream });
        let (caller, server) = native(StreamId(3));
        let maker = ClientEnd::Session { session, id: CallId(4), types: types() };
        let handler = ServerEnd::Session { session, types: types() };
        let forwarded = |types| ClientEnd::Grpc { peer: Key::from_bits(5), stream: StreamTag(6), types };
        let cluster = || ServerEnd::Cluster { cluster: Key::from_bits(7) };
        let of_session = WaitCharge::Session(session);
        for (client, server, direction, expected) in [
            (caller.clone(), handler, Direction::Request, [of_session, WaitCharge::Native(peer)]),
            (maker, server.clone(), Direction::Response, [of_session, WaitCharge::Answer(session)]),
            (caller, cluster(), Direction::Request, [WaitCharge::Nobody, WaitCharge::Native(peer)]),
            (
                forwarded(Some(types())),
                cluster(),
                Direction::Request,
                [WaitCharge::Grpc(Key::from_bits(5)); 2],
            ),
            (forwarded(None), cluster(), Direction::Request, [WaitCharge::Nobody; 2]),
        ] {
            let mut call = Call::new(MethodKey::NOTHING, client, server, Deadline::NONE);
            for (is_large, expected) in [false, true].into_iter().zip(expected) {
                let charged = call.charge_for(direction, is_large);
                assert_eq!(charged, expected, "{call:?}");
                match charged {
                    WaitCharge::Native(peer) => call.half(direction).large_of = Some(peer),
                    WaitCharge::Answer(_) => call.half(direction).large_waits = true,
                    _ => {}
                }
                assert_eq!(call.charge_of(direction, is_large), charged, "{call:?}");
            }
        }
    }
}
