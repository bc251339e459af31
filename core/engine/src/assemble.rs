//! Large messages of other daemons, from the first chunk to the item they become.

use crate::assembly::{Assembly, AssemblyPlace, Shape, is_usual};
use crate::call::{Body, ClientEnd, Direction, ServerEnd};
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::limits::{ARRIVING, MESSAGE_BYTES, STALLED};
use crate::receive_room::{has_share, opening_may_have};
use crate::registry::Form;
use crate::target::Target;
use crate::{CallKey, Heaps, PeerKey, SessionKey};
use trunkline_call::{Encoding, Fault, Instant};
use trunkline_native::StreamId;

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
            Some(session) => self.place_for(turn, call, session, direction, encoding, total, &shape),
            None => AssemblyPlace::Private(Vec::new()),
        };
        let limit = self.limits.assembling_bytes_per_peer;
        let Some(found) = self.peers.find_mut(peer) else { return };
        if matches!(place, AssemblyPlace::Private(_)) {
            let full = Fault::Limit { name: ARRIVING, limit: limit as u64 };
            let fits = found.assembling_bytes + total as usize <= limit;
            let may = if fits { found.await_bytes(&mut self.held, total as usize) } else { Err(full) };
            if let Err(fault) = may {
                return self.fail(turn, call, fault);
            }
        }
        // There is room for all of it, so the peer may send all of it, however small its window is.
        let ahead = found.connection.make_room(stream, total);
        let counted = place.usual_bytes(turn.heaps);
        let assembly = Assembly::new(call, direction, encoding, total, place, shape, ahead);
        let counted = counted.map_or(0, |(session, bytes)| self.arrives(session, bytes));
        if let Some(found) = self.peers.find_mut(peer) {
            found.assemblies.insert(stream, Assembly { counted, ..assembly });
        }
        self.look_at_assemblies_in_time(turn.now, peer);
        self.transmit(peer);
    }

    /// Where a message goes that is meant for a session as it comes: into its receive heap if it may and there is room.
    #[allow(clippy::too_many_arguments, reason = "the fields of one Assembly, from one caller")]
    fn place_for(
        &self,
        turn: &mut Turn<'_>,
        call: CallKey,
        session: SessionKey,
        direction: Direction,
        encoding: Encoding,
        total: u32,
        shape: &Shape,
    ) -> AssemblyPlace {
        let header_bytes = Body::header_bytes(encoding);
        let streams = matches!(shape, Shape::Message { .. });
        let may = self.may_arrive(turn, session, total.saturating_add(header_bytes))
            && (!streams || has_share(self, turn, call, session, direction, total))
            && (!matches!(shape, Shape::Open { .. })
                || opening_may_have(self, turn, call, session, total).is_some());
        match may {
            true => AssemblyPlace::for_message(turn.heaps, session, header_bytes, total),
            false => AssemblyPlace::Private(Vec::new()),
        }
    }

    /// So many bytes of a session's receive heap are for a message that is not whole. How many of them are counted.
    fn arrives(&mut self, session: SessionKey, bytes: u32) -> u32 {
        let Some(session) = self.sessions.find_mut(session) else { return 0 };
        session.arriving_bytes += bytes;
        bytes
    }

    /// Whether a message of which nothing has come yet may have so many bytes of a session's receive heap: of what the
    /// usual messages share, those that are complete always have half.
    fn may_arrive(&self, turn: &Turn<'_>, session: SessionKey, bytes: u32) -> bool {
        let Some(found) = self.sessions.find(session) else { return false };
        let arriving_bytes = u64::from(found.arriving_bytes) + u64::from(bytes);
        !is_usual(turn.heaps, session, bytes)
            || arriving_bytes <= u64::from(turn.heaps.receive_usual(session) / 2)
    }

    /// Has somebody look in a while whether the large messages of a connection go on.
    pub(crate) fn look_at_assemblies_in_time(&mut self, now: Instant, key: PeerKey) {
        let Some(stall_ns) = self.limits.message_stall_ns() else { return };
        let peer = self.peers.find_mut(key).filter(|peer| !peer.assemblies.is_empty());
        let Some(peer) = peer else { return };
        if !std::mem::replace(&mut peer.is_looked_at, true) {
            self.timers.insert(now.plus_ns(stall_ns), Due::Assemblies(key));
        }
    }

    /// Ends calls whose large messages do not go on, and looks again later while there are any.
    pub(crate) fn look_at_assemblies(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let Some(peer) = self.peers.find_mut(key) else { return };
        peer.is_looked_at = false;
        let stalled = peer.assemblies.values_mut().filter_map(|one| one.has_stalled().then_some(one.call));
        let stalled: Vec<CallKey> = stalled.collect();
        let limit = self.limits.message_stall_s.into();
        self.look_at_assemblies_in_time(turn.now, key);
        for call in stalled {
            self.fail(turn, call, Fault::Limit { name: STALLED, limit });
        }
        self.discard_abandoned(turn);
    }

    /// A large message is complete, or will never be.
    fn take_assembly(&mut self, peer: PeerKey, stream: StreamId) -> Option<Assembly> {
        let assembly = self.peers.find_mut(peer)?.take_assembly(stream)?;
        self.arrives_no_more(&assembly);
        Some(assembly)
    }

    /// What it takes of its session's receive heap is not counted as arriving any more.
    pub(crate) fn arrives_no_more(&mut self, assembly: &Assembly) {
        if let Some((session, _)) = assembly.block()
            && let Some(session) = self.sessions.find_mut(session)
        {
            let left = session.arriving_bytes.checked_sub(assembly.counted);
            session.arriving_bytes = self.invariants.left(left, "messages that arrive in a heap are counted");
        }
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
        let Self { peers, held, .. } = self;
        let Some(found) = peers.find_mut(peer) else { return };
        let may = found.take_bytes(held, stream, offset as usize + bytes.len());
        let Some(assembly) = found.assemblies.get_mut(&stream) else { return };
        if let Err(fault) = may {
            let call = assembly.call;
            return self.fail(turn, call, fault);
        }
        if let Some(into) = assembly.room(turn.heaps, offset, bytes.len()) {
            into.copy_from_slice(bytes);
        }
        if !last {
            return;
        }
        let Some(done) = self.take_assembly(peer, stream) else { return };
        let (key, direction) = (done.call, done.direction);
        let (shape, body) = done.into_body();
        if let Some(call) = self.calls.find_mut(key) {
            match direction {
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
        self.pass_shape(turn, key, direction, shape, Some(body));
    }

    /// The memory the next `len` bytes of a message belong in, for the host to read the socket into. None where nothing
    /// more may be held for its sender: what comes ends the call.
    pub(crate) fn assembly_room<'a>(
        &'a mut self,
        heaps: &'a mut dyn Heaps,
        peer: PeerKey,
        stream: StreamId,
        offset: u32,
        len: u32,
    ) -> Option<&'a mut [u8]> {
        let Self { peers, held, .. } = self;
        let found = peers.find_mut(peer)?;
        found.take_bytes(held, stream, offset as usize + len as usize).ok()?;
        found.assemblies.get_mut(&stream)?.room(heaps, offset, len as usize)
    }

    /// Gives up a message that is arriving: its call is gone.
    pub(crate) fn abandon_assembly(&mut self, peer: PeerKey, stream: StreamId) {
        let assembly = self.take_assembly(peer, stream);
        self.abandoned.extend(assembly.and_then(|assembly| assembly.block()));
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
