//! Large messages on their way in, put together where they will lie.

use crate::call::{Body, ClientEnd, Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::limits::{ARRIVING, MESSAGE_BYTES};
use crate::registry::Form;
use crate::session::Target;
use crate::{CallKey, Heaps, PeerKey, SessionKey};
use std::borrow::Cow;
use trunkline_call::entry::Span;
use trunkline_call::{Code, Encoding, Execution, Fault};
use trunkline_native::{MESSAGE_COST_BYTES, StreamId};

/// One large message that is arriving.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Assembly {
    call: CallKey,
    direction: Direction,
    encoding: Encoding,
    pub(crate) total: u32,
    place: Place,
    shape: Shape,
    /// Bytes of the sender's window that were given back before they were consumed.
    pub(crate) ahead: u32,
}

/// Where its bytes go.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Place {
    /// A block of the receive heap it is meant for; the socket is read straight into it.
    Heap { session: SessionKey, block: Span, header_bytes: u32 },
    /// The daemon's own memory, because the heap was full or the bytes need converting. Grows as bytes come, never
    /// ahead on the peer's word.
    Private(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// What the message is part of.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Shape {
    Open { metadata: Vec<u8>, end: bool },
    Message { end: bool },
    Finish { metadata: Vec<u8> },
}

impl Shape {
    /// What the frame took of its sender's window beside the message's bytes.
    pub fn own_cost(&self) -> u32 {
        if matches!(self, Self::Message { .. }) { MESSAGE_COST_BYTES } else { 0 }
    }

    pub fn into_item(self, body: Option<Body<'_>>) -> Item<'_> {
        match (self, body) {
            (Self::Open { metadata, end }, body) => Item::Open { metadata: Cow::Owned(metadata), body, end },
            (Self::Message { end }, Some(body)) => Item::Message { body, end },
            (Self::Message { .. }, None) => Item::HalfClose,
            (Self::Finish { metadata }, body) => {
                let metadata = Cow::Owned(metadata);
                Item::Finish { code: Code::Ok, execution: Execution::Executed, body, metadata }
            }
        }
    }
}

impl Engine {
    // LIFE: 13
    /// Finds room for a message of which the peer says it has `total` bytes.
    #[allow(clippy::too_many_arguments, reason = "the fields of one Assembly, from one caller")]
    pub(crate) fn begin_assembly(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        call: CallKey,
        direction: Direction,
        encoding: Encoding,
        total: u32,
        shape: Shape,
    ) {
        if direction == Direction::Response {
            if self.discard_long_answer(turn, call) {
                return;
            }
            self.response_begun(turn, call);
        }
        let settled = match &shape {
            Shape::Open { metadata, .. } => self.settle(turn, call, Target::Here, metadata, total),
            _ if total > self.limits.message_bytes => {
                Err(Fault::Limit { name: MESSAGE_BYTES, limit: self.limits.message_bytes.into() })
            }
            _ => Ok(()),
        };
        if let Err(fault) = settled {
            return self.fail(turn, call, fault);
        }
        let place = match self.receiver(call, direction, encoding) {
            Some(session)
                if !matches!(shape, Shape::Message { .. })
                    || self.has_share(turn, call, session, direction, total) =>
            {
                place_for(turn, session, Body::header_bytes(encoding), total)
            }
            _ => Place::Private(Vec::new()),
        };
        let limit = self.limits.assembling_bytes_per_peer;
        let Some(found) = self.peers.find_mut(peer) else { return };
        if matches!(place, Place::Private(_)) {
            if found.assembling_bytes + total as usize > limit {
                return self.fail(turn, call, Fault::Limit { name: ARRIVING, limit: limit as u64 });
            }
            found.assembling_bytes += total as usize;
        }
        // There is room for all of it, so the peer may send all of it, however small its window is.
        let ahead = found.connection.make_room(stream, total);
        found.assemblies.insert(stream, Assembly { call, direction, encoding, total, place, shape, ahead });
        self.transmit(peer);
    }

    /// Bytes of a message that is arriving; empty when the host has read them into place itself.
    pub(crate) fn handle_chunk(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        offset: u32,
        bytes: &[u8],
        last: bool,
    ) {
        let Some(assembly) = self.peers.find_mut(peer).and_then(|peer| peer.assemblies.get_mut(&stream))
        else {
            return;
        };
        if let Some(into) = assembly.room(turn.heaps, offset, bytes.len()) {
            into.copy_from_slice(bytes);
        }
        if !last {
            return;
        }
        let Some(done) = self.take_assembly(peer, stream) else { return };
        let charged = (done.total + done.shape.own_cost()).saturating_sub(done.ahead);
        let body = match done.place {
            Place::Heap { session, block, .. } => {
                Body::Placed { session, block, encoding: done.encoding, charged }
            }
            Place::Private(bytes) => {
                Body::Wire { bytes: Cow::Owned(bytes), encoding: done.encoding, charged }
            }
        };
        if let Some(call) = self.calls.find_mut(done.call) {
            match done.direction {
                Direction::Request => {
                    call.server_stamps.k7 = self.arrived;
                    call.server_stamps.d8 = turn.now;
                }
                Direction::Response => {
                    call.client_stamps.k15 = self.arrived;
                    call.client_stamps.d16 = turn.now;
                }
            }
        }
        self.pass_shape(turn, done.call, done.direction, done.shape, Some(body));
    }

    /// The memory the next `len` bytes of a message belong in, for the host to read the socket into.
    pub(crate) fn assembly_room<'a>(
        &'a mut self,
        heaps: &'a mut dyn Heaps,
        peer: PeerKey,
        stream: StreamId,
        offset: u32,
        len: u32,
    ) -> Option<&'a mut [u8]> {
        let assembly = self.peers.find_mut(peer)?.assemblies.get_mut(&stream)?;
        assembly.room(heaps, offset, len as usize)
    }

    /// Gives up a message that is arriving: its call is gone.
    pub(crate) fn abandon_assembly(&mut self, peer: PeerKey, stream: StreamId) {
        let assembly = self.take_assembly(peer, stream);
        self.abandoned.extend(assembly.and_then(|assembly| assembly.block()));
    }

    fn take_assembly(&mut self, peer: PeerKey, stream: StreamId) -> Option<Assembly> {
        let peer = self.peers.find_mut(peer)?;
        let assembly = peer.assemblies.remove(&stream)?;
        if matches!(assembly.place, Place::Private(_)) {
            peer.assembling_bytes = peer.assembling_bytes.saturating_sub(assembly.total as usize);
        }
        Some(assembly)
    }

    /// The session a message of this direction is meant for, if it takes the message as it comes.
    fn receiver(&self, key: CallKey, direction: Direction, encoding: Encoding) -> Option<SessionKey> {
        let call = self.calls.find(key)?;
        let (session, form) = match (direction, &call.client, &call.server) {
            (Direction::Response, ClientEnd::Session { session, types, .. }, _) => (*session, &types.output),
            (Direction::Request, _, ServerEnd::Session { session, types }) => (*session, &types.input),
            _ => return None,
        };
        let as_it_comes = match (encoding, form) {
            (Encoding::Protobuf, form) => form.is_opaque(),
            (Encoding::Linear, Form::Opaque) => false,
            (Encoding::Linear, Form::Typed(wanted)) => {
                direction == Direction::Response
                    || call.agreed_input().is_none_or(|of| of == wanted.fingerprint)
            }
        };
        as_it_comes.then_some(session)
    }
}

fn place_for(turn: &mut Turn<'_>, session: SessionKey, header_bytes: u32, total: u32) -> Place {
    let Some(len) = total.checked_add(header_bytes) else { return Place::Private(Vec::new()) };
    match turn.heaps.allocate(session, len.max(1)) {
        Some(offset) => Place::Heap { session, block: Span { offset, len }, header_bytes },
        None => Place::Private(Vec::new()),
    }
}

impl Assembly {
    /// The receive block it fills, if it has one.
    pub fn block(&self) -> Option<(SessionKey, u32)> {
        match &self.place {
            Place::Heap { session, block, .. } => Some((*session, block.offset)),
            Place::Private(_) => None,
        }
    }

    /// Bytes of the daemon's own memory it may take.
    pub fn private_bytes(&self) -> usize {
        if matches!(self.place, Place::Private(_)) { self.total as usize } else { 0 }
    }

    /// Its block has another name.
    pub fn rename(&mut self, heaps: &dyn Heaps) {
        if let Place::Heap { session, block, .. } = &mut self.place {
            block.offset = heaps.renamed(*session, block.offset);
        }
    }

    /// The bytes `offset..offset + len` of the message, if they are within what was announced.
    fn room<'a>(&'a mut self, heaps: &'a mut dyn Heaps, offset: u32, len: usize) -> Option<&'a mut [u8]> {
        let end = (offset as usize).checked_add(len).filter(|end| *end <= self.total as usize)?;
        match &mut self.place {
            Place::Heap { session, block, header_bytes } => {
                let (bytes, header) = (heaps.receive_block(*session, *block), *header_bytes as usize);
                bytes.get_mut(header + offset as usize..header + end)
            }
            Place::Private(bytes) => {
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes.get_mut(offset as usize..end)
            }
        }
    }
}
