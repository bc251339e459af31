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
//! came from. It takes nothing of its sender's window: what follows is the end, or a second message that ends the call,
//! and would wait for ever for the first to be used.

use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::registry::MethodTypes;
use crate::shard::ShardStage;
use crate::{PeerKey, SessionKey};
use trunkline_call::{Code, Execution, Fault};

/// What becomes of an item and of what was kept of its direction.
#[derive(Debug, Default)]
pub(crate) struct Gathered<'a> {
    /// What waits for the rest.
    pub kept: Option<Item<'a>>,
    /// What goes on, in order.
    pub goes: [Option<Item<'a>>; 2],
    /// What is thrown away.
    pub dropped: [Option<Item<'a>>; 2],
    /// Why the call ends.
    pub fault: Option<Fault>,
}

impl<'a> Gathered<'a> {
    fn keep(item: Item<'a>) -> Self {
        Self { kept: Some(item), ..Self::default() }
    }

    fn go(item: Item<'a>) -> Self {
        Self { goes: [Some(item), None], ..Self::default() }
    }

    fn wrong(direction: Direction, messages: usize, dropped: [Option<Item<'a>>; 2]) -> Self {
        Self { dropped, fault: Some(cardinality(direction, messages)), ..Self::default() }
    }
}

/// Joins an item with what was kept of its direction, which has one message.
pub(crate) fn gather<'a>(direction: Direction, kept: Option<Item<'static>>, item: Item<'a>) -> Gathered<'a> {
    match direction {
        Direction::Request => gather_request(kept, item),
        Direction::Response => gather_response(kept, item),
    }
}

fn gather_request<'a>(kept: Option<Item<'static>>, item: Item<'a>) -> Gathered<'a> {
    let direction = Direction::Request;
    let opening = match kept {
        Some(Item::Open { metadata, body, .. }) => Some((metadata, body)),
        _ => None,
    };
    match (opening, item) {
        (None, Item::Open { body: None, end: true, .. }) => Gathered::wrong(direction, 0, [None, None]),
        (None, opening @ Item::Open { .. }) => Gathered::keep(opening),
        (Some((metadata, None)), Item::Message { body, end }) => {
            let opening = Item::Open { metadata, body: Some(body), end };
            if end { Gathered::go(opening) } else { Gathered::keep(opening) }
        }
        (Some((metadata, Some(body))), Item::HalfClose) => {
            Gathered::go(Item::Open { metadata, body: Some(body), end: true })
        }
        (Some((_, None)), Item::HalfClose) => Gathered::wrong(direction, 0, [None, None]),
        (opening, item) => {
            let opening = opening.map(|(metadata, body)| Item::Open { metadata, body, end: false });
            Gathered::wrong(direction, 2, [opening, Some(item)])
        }
    }
}

fn gather_response<'a>(kept: Option<Item<'static>>, item: Item<'a>) -> Gathered<'a> {
    let body = match kept {
        Some(Item::Message { body, .. }) => Some(body),
        _ => None,
    };
    match (body, item) {
        (None, message @ Item::Message { .. }) => Gathered::keep(message),
        (Some(body), Item::Finish { code: Code::Ok, execution, body: None, metadata }) => {
            Gathered::go(Item::Finish { code: Code::Ok, execution, body: Some(body), metadata })
        }
        (Some(body), item @ (Item::Message { .. } | Item::Finish { code: Code::Ok, .. })) => {
            let kept = Item::Message { body, end: false };
            Gathered::wrong(Direction::Response, 2, [Some(kept), Some(item)])
        }
        (Some(body), finish @ Item::Finish { .. }) => {
            let dropped = [Some(Item::Message { body, end: false }), None];
            Gathered { dropped, ..Gathered::go(finish) }
        }
        (Some(body), item) => {
            Gathered { kept: Some(Item::Message { body, end: false }), ..Gathered::go(item) }
        }
        (None, item) => Gathered::go(item),
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

    /// Whether this direction leads over R2P2, which carries one request and one reply. A typed caller whose method
    /// streams is told so when it opens.
    pub fn leads_over_r2p2(
        &self,
        direction: Direction,
        is_reached_so: impl FnOnce(ClusterKey) -> bool,
    ) -> bool {
        match (direction, &self.client, &self.server) {
            (
                Direction::Request,
                ClientEnd::Session { types, .. }
                | ClientEnd::Attempt { types, .. }
                | ClientEnd::Shard { types: Some(types), .. }
                | ClientEnd::Grpc { types: Some(types), .. },
                ServerEnd::Cluster { cluster },
            ) => types.input.is_opaque() && is_reached_so(*cluster),
            (Direction::Response, ClientEnd::R2p2 { .. }, _) => true,
            _ => false,
        }
    }

    /// Whether the typed session this direction leads to has one message in it; `None` for other ends, which take
    /// items as they come.
    pub fn has_one_message(&self, direction: Direction) -> Option<bool> {
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
            // So that one message crosses, with the end, and a second is seen where it is said.
            (Direction::Response, ClientEnd::Shard { types: Some(types), .. }, _) => {
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

/// An end for a caller whose responses stream.
pub(crate) fn split(item: Item<'_>) -> [Option<Item<'_>>; 2] {
    match item {
        Item::Finish { code: Code::Ok, execution, body: Some(body), metadata } => [
            Some(Item::Message { body, end: false }),
            Some(Item::Finish { code: Code::Ok, execution, body: None, metadata }),
        ],
        item => [Some(item), None],
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

#[cfg(test)]
mod tests {
    //! Lists what becomes of items in a direction that has one message, and that nothing of them is lost on the way.
    use super::*;
    use std::borrow::Cow;
    use trunkline_call::Encoding;

    fn body() -> crate::item::Body<'static> {
        crate::item::Body::Wire {
            bytes: Cow::Borrowed(b"m"),
            encoding: Encoding::Protobuf,
            charged: 0,
            compressed: false,
        }
    }

    fn open(with: bool, end: bool) -> Item<'static> {
        Item::Open { metadata: Cow::Borrowed(&[]), body: with.then(body), end }
    }

    fn message(end: bool) -> Item<'static> {
        Item::Message { body: body(), end }
    }

    fn finish(code: Code) -> Item<'static> {
        let metadata = Cow::Borrowed(&[][..]);
        Item::Finish { code, execution: Execution::Executed, body: None, metadata }
    }

    fn headers() -> Item<'static> {
        Item::Headers { metadata: Cow::Borrowed(&[]) }
    }

    /// Items one after another, and how each goes: kept, on, thrown away, and whether it ends the call.
    fn said(direction: Direction, items: Vec<Item<'static>>) -> Vec<[usize; 4]> {
        let mut kept = None;
        let of = |items: &[Option<Item<'_>>; 2]| items.iter().flatten().count();
        let step = |item| {
            let gathered = gather(direction, kept.take(), item);
            kept = gathered.kept.map(Item::into_owned);
            let [goes, dropped] = [of(&gathered.goes), of(&gathered.dropped)];
            [usize::from(kept.is_some()), goes, dropped, usize::from(gathered.fault.is_some())]
        };
        items.into_iter().map(step).collect()
    }

    const KEPT: [usize; 4] = [1, 0, 0, 0];
    const GOES: [usize; 4] = [0, 1, 0, 0];

    #[test]
    fn a_request_of_one_message() {
        for (items, expected) in [
            (vec![open(false, false), message(true)], vec![KEPT, GOES]),
            (vec![open(false, false), message(false), Item::HalfClose], vec![KEPT, KEPT, GOES]),
            (vec![open(true, false), Item::HalfClose], vec![KEPT, GOES]),
            (vec![open(false, true)], vec![[0, 0, 0, 1]]),
            (vec![open(false, false), Item::HalfClose], vec![KEPT, [0, 0, 0, 1]]),
            (vec![open(true, false), message(true)], vec![KEPT, [0, 0, 2, 1]]),
        ] {
            assert_eq!(said(Direction::Request, items), expected);
        }
    }

    #[test]
    fn a_response_of_one_message() {
        for (items, expected) in [
            (vec![message(false), finish(Code::Ok)], vec![KEPT, GOES]),
            (vec![message(false), headers(), finish(Code::Ok)], vec![KEPT, [1, 1, 0, 0], GOES]),
            (vec![finish(Code::Ok)], vec![GOES]),
            (vec![message(false), finish(Code::Internal)], vec![KEPT, [0, 1, 1, 0]]),
            (vec![message(false), message(false)], vec![KEPT, [0, 0, 2, 1]]),
        ] {
            assert_eq!(said(Direction::Response, items), expected);
        }
    }
}
