//! Ends that say the same in a different number of items.
//!
//! A method with one message in a direction is said in one item: the opening with the request, the finish with the
//! response. An end that does not know the method's pattern (an opaque application, a gRPC connection) opens without a
//! message, sends messages, and ends. Where such an end meets a session that is typed, or R2P2, which carries one
//! request and one reply, items are joined here before they take the road; and a response in a finish is split off for
//! a caller whose responses stream.
//!
//! ```text
//!   request, one message     Open · Message · HalfClose   ▶  Open with it, end
//!   response, one message    Message · Finish             ▶  Finish with it
//!   response, many           Finish with a message        ▶  Message · Finish
//! ```
//!
//! None, or more than one, where there must be one ends the call as UNIMPLEMENTED, as gRPC's status codes say; a
//! request is complete before its call begins (`start.rs`), so before policies judge it and its handler sees any of it.
//! What is kept meanwhile is one message: in its sender's heap, in a receive block, or charged to the connection it
//! came from.

use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::engine::Engine;
use crate::limits::ARRIVING;
use crate::registry::MethodTypes;
use crate::shard::ShardStage;
use crate::{CallKey, GrpcKey, PeerKey, SessionKey};
use trunkline_call::{Code, Execution, Fault};

/// What becomes of an item.
pub(crate) enum Gathered<'a> {
    /// It waits for the rest.
    Kept,
    /// It goes on, alone or with what was kept.
    One(Item<'a>),
    /// It goes on as two.
    Two(Item<'a>, Item<'a>),
}

impl Engine {
    /// Whether this direction leads over R2P2, which expects items in another shape than they may come in.
    pub(crate) fn joins_by_r2p2(&self, key: CallKey, direction: Direction) -> bool {
        let call = self.calls.find(key);
        call.is_some_and(|call| self.has_one_message_by_r2p2(call, direction).is_some())
    }

    /// Brings an item into the shape its receiver expects.
    pub(crate) fn gather<'a>(
        &mut self,
        key: CallKey,
        direction: Direction,
        item: Item<'a>,
    ) -> Result<Gathered<'a>, Fault> {
        let Some(call) = self.calls.find(key) else { return Ok(Gathered::One(item)) };
        let gathers = call.half_of(direction).gathered.is_some();
        match call.has_one_message(direction).or_else(|| self.has_one_message_by_r2p2(call, direction)) {
            None => Ok(Gathered::One(item)),
            Some(true) if !gathers && is_whole(&item) => Ok(Gathered::One(item)),
            Some(true) if direction == Direction::Request => self.gather_request(key, item),
            Some(true) => self.gather_response(key, item),
            Some(false) => Ok(split(item)),
        }
    }

    /// R2P2 carries one request and one reply. A typed caller whose method streams is told so when it opens.
    fn has_one_message_by_r2p2(&self, call: &Call, direction: Direction) -> Option<bool> {
        let there = match (direction, &call.client, &call.server) {
            (
                Direction::Request,
                ClientEnd::Session { types, .. }
                | ClientEnd::Attempt { types, .. }
                | ClientEnd::Shard { types: Some(types), .. }
                | ClientEnd::Grpc { types: Some(types), .. },
                ServerEnd::Cluster { cluster },
            ) => types.input.is_opaque() && self.is_reached_by_r2p2(*cluster),
            (Direction::Response, ClientEnd::R2p2 { .. }, _) => true,
            _ => false,
        };
        there.then_some(true)
    }

    /// Throws away what was kept.
    pub(crate) fn drop_gathered(&mut self, key: CallKey, direction: Direction) {
        if let Some(mut kept) = self.take_gathered(key, direction) {
            self.drop_item(&mut kept);
        }
    }

    pub(crate) fn gather_request<'a>(&mut self, key: CallKey, item: Item<'a>) -> Result<Gathered<'a>, Fault> {
        let opening = match self.take_gathered(key, Direction::Request) {
            Some(Item::Open { metadata, body, .. }) => Some((metadata, body)),
            _ => None,
        };
        match (opening, item) {
            (None, Item::Open { body: None, end: true, .. }) => Err(cardinality(Direction::Request, 0)),
            (None, opening @ Item::Open { .. }) => self.keep_item(key, Direction::Request, opening),
            (Some((metadata, None)), Item::Message { body, end }) => {
                let opening = Item::Open { metadata, body: Some(body), end };
                match end {
                    true => Ok(Gathered::One(opening)),
                    false => self.keep_item(key, Direction::Request, opening),
                }
            }
            (Some((metadata, Some(body))), Item::HalfClose) => {
                Ok(Gathered::One(Item::Open { metadata, body: Some(body), end: true }))
            }
            (Some((_, None)), Item::HalfClose) => Err(cardinality(Direction::Request, 0)),
            (opening, mut item) => {
                if let Some((metadata, body)) = opening {
                    self.drop_item(&mut Item::Open { metadata, body, end: false });
                }
                self.drop_item(&mut item);
                Err(cardinality(Direction::Request, 2))
            }
        }
    }

    fn gather_response<'a>(&mut self, key: CallKey, item: Item<'a>) -> Result<Gathered<'a>, Fault> {
        let kept = match self.take_gathered(key, Direction::Response) {
            Some(Item::Message { body, .. }) => Some(body),
            _ => None,
        };
        match (kept, item) {
            (None, message @ Item::Message { .. }) => self.keep_item(key, Direction::Response, message),
            (Some(body), Item::Finish { code: Code::Ok, execution, body: None, metadata }) => {
                Ok(Gathered::One(Item::Finish { code: Code::Ok, execution, body: Some(body), metadata }))
            }
            (Some(body), mut item @ (Item::Message { .. } | Item::Finish { code: Code::Ok, .. })) => {
                self.drop_item(&mut Item::Message { body, end: false });
                self.drop_item(&mut item);
                Err(cardinality(Direction::Response, 2))
            }
            (Some(body), finish @ Item::Finish { .. }) => {
                self.drop_item(&mut Item::Message { body, end: false });
                Ok(Gathered::One(finish))
            }
            (Some(body), item) => {
                self.keep_item(key, Direction::Response, Item::Message { body, end: false })?;
                Ok(Gathered::One(item))
            }
            (None, item) => Ok(Gathered::One(item)),
        }
    }

    fn keep_item<'a>(
        &mut self,
        key: CallKey,
        direction: Direction,
        mut item: Item<'_>,
    ) -> Result<Gathered<'a>, Fault> {
        if let Err(fault) = self.charge(key, direction, &item) {
            self.drop_item(&mut item);
            return Err(fault);
        }
        match self.calls.find_mut(key) {
            Some(call) => call.half(direction).gathered = Some(Box::new(item.into_owned())),
            None => self.drop_item(&mut item),
        }
        Ok(Gathered::Kept)
    }

    pub(crate) fn take_gathered(&mut self, key: CallKey, direction: Direction) -> Option<Item<'static>> {
        let kept = self.calls.find_mut(key)?.half(direction).gathered.take()?;
        if let Some(peer) = self.sending_peer(key, direction) {
            self.holds_less(peer, kept.parked_bytes());
        } else if let Some((peer, bytes)) = self.grpc_holder(key, direction, &kept) {
            self.grpc.hold_less(peer, bytes);
        }
        Some(*kept)
    }

    fn charge(&mut self, key: CallKey, direction: Direction, item: &Item<'_>) -> Result<(), Fault> {
        let limit = self.limits.assembling_bytes_per_peer;
        let full = Fault::Limit { name: ARRIVING, limit: limit as u64 };
        if let Some(peer) = self.sending_peer(key, direction) {
            let Self { peers, held, .. } = self;
            let Some(peer) = peers.find_mut(peer) else { return Ok(()) };
            let more = item.parked_bytes();
            return if peer.assembling_bytes + more > limit { Err(full) } else { peer.hold(held, more) };
        }
        match self.grpc_holder(key, direction, item) {
            Some((peer, bytes)) => self.grpc.hold(peer, bytes),
            None => Ok(()),
        }
    }

    /// The gRPC connection that sends in this direction, and the bytes of an item that the daemon holds for it: without
    /// what still takes of the stream's window, and what is counted with its stream.
    fn grpc_holder(&self, key: CallKey, direction: Direction, item: &Item<'_>) -> Option<(GrpcKey, usize)> {
        let at = self.calls.find(key)?.grpc_sender(direction)?;
        Some((at.peer, item.body()?.uncharged_bytes()))
    }

    /// The native connection that sends in this direction.
    pub(crate) fn sending_peer(&self, key: CallKey, direction: Direction) -> Option<PeerKey> {
        self.calls.find(key)?.native_sender(direction)
    }

    /// So many bytes of large messages are not held for a connection any more.
    pub(crate) fn holds_less(&mut self, peer: PeerKey, bytes: usize) {
        if let Some(peer) = self.peers.find_mut(peer) {
            peer.assembling_bytes = peer.assembling_bytes.saturating_sub(bytes);
            let held_bytes = peer.held_bytes();
            self.held.settle(&mut peer.holding, held_bytes);
        }
    }

    /// Bytes of large messages the daemon holds for a connection.
    pub(crate) fn held_by(&mut self, peer: PeerKey) -> Option<&mut usize> {
        Some(&mut self.peers.find_mut(peer)?.assembling_bytes)
    }
}

impl Call {
    /// The native connection that sends in this direction.
    pub fn native_sender(&self, direction: Direction) -> Option<PeerKey> {
        match (direction, &self.client, &self.server) {
            (Direction::Request, ClientEnd::Peer { peer, .. }, _)
            | (Direction::Response, _, ServerEnd::Peer { peer, .. }) => Some(*peer),
            _ => None,
        }
    }

    /// Whether this direction leads to another shard.
    pub fn crosses(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => matches!(self.server, ServerEnd::Shard { .. }),
            Direction::Response => matches!(self.client, ClientEnd::Shard { .. }),
        }
    }

    /// The session this direction leads to, if it leads to one.
    pub fn receiver(&self, direction: Direction) -> Option<SessionKey> {
        match direction {
            Direction::Request => self.handler(),
            Direction::Response => self.maker().map(|(session, _)| session),
        }
    }

    /// Whether an item is to be joined with others, or split, for the session this direction leads to; `None` of other
    /// ends.
    #[inline]
    pub fn reshapes(&self, direction: Direction, item: &Item<'_>) -> Option<bool> {
        // All of it is there, nearly always, as a method with one message has it.
        let is_all = is_whole(item) && self.half_of(direction).gathered.is_none();
        self.has_one_message(direction).map(|one| !(one && is_all))
    }

    /// Whether the typed session this direction leads to has one message in it; `None` for other ends, which take
    /// items as they come.
    fn has_one_message(&self, direction: Direction) -> Option<bool> {
        let typed =
            |types: &MethodTypes, streams: bool| (!types.of(direction).is_opaque()).then_some(!streams);
        match (direction, &self.client, &self.server) {
            // It has all of the request, or what it has not yet is joined there: the session that sends it has moved.
            (Direction::Request, _, ServerEnd::Shard { stage: ShardStage::Accepted, .. }) => None,
            (Direction::Request, _, ServerEnd::Session { types, .. } | ServerEnd::Shard { types, .. }) => {
                typed(types, types.pattern.client_streams())
            }
            // Of an answer nobody wants nothing is kept.
            (Direction::Response, ClientEnd::Mirror { .. }, _) => None,
            (Direction::Response, ClientEnd::Session { types, .. } | ClientEnd::Attempt { types, .. }, _) => {
                typed(types, types.pattern.server_streams())
            }
            _ => None,
        }
    }
}

/// Whether an item needs nothing before it or behind it.
pub(crate) fn is_whole(item: &Item<'_>) -> bool {
    match item {
        Item::Open { body, end, .. } => body.is_some() && *end,
        Item::Finish { .. } | Item::Headers { .. } => true,
        Item::Message { .. } | Item::HalfClose => false,
    }
}

fn split(item: Item<'_>) -> Gathered<'_> {
    match item {
        Item::Finish { code: Code::Ok, execution, body: Some(body), metadata } => Gathered::Two(
            Item::Message { body, end: false },
            Item::Finish { code: Code::Ok, execution, body: None, metadata },
        ),
        item => Gathered::One(item),
    }
}

fn cardinality(direction: Direction, messages: usize) -> Fault {
    let (why, executed) = match (direction, messages) {
        (Direction::Request, 0) => ("no request, and the method takes one", Execution::NotExecuted),
        (Direction::Request, _) => {
            ("more than one request, and the method takes one", Execution::NotExecuted)
        }
        (Direction::Response, _) => ("more than one response, and the method gives one", Execution::Executed),
    };
    Fault::Cardinality { why, executed }
}
