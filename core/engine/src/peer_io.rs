//! Bytes of connections: the host reads and writes sockets, the engine says what, and what it means.

use crate::call::{Call, Direction, ServerEnd};
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::gateway_client::CallRights;
use crate::held::{Holding, source_of_peer};
use crate::peer::{Lent, Peer};
use crate::remote::{Dialled, LaneIndex};
use crate::table::{Key, Table};
use crate::unproven::Unproven;
use crate::vouching::{CallersHeard, CallersSaid};
use crate::{CallKey, Heaps, PeerFault, PeerIdentity, PeerKey, RemoteKey, SessionKey};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::entry::Span;
use trunkline_call::{Execution, Instant, KeyedMap};
use trunkline_native::{Chunk, Config, Connection, Input, SharedRange, Side};

/// A piece of what a connection writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The engine's own bytes.
    Bytes(&'a [u8]),
    /// A range of a session's send heap, for the kernel to read.
    Shared {
        /// Whose heap.
        session: SessionKey,
        /// The range.
        span: Span,
    },
}

/// A call whose request is at the socket, for [`Engine::note_sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCall(CallKey);

impl Piece<'_> {
    fn lent(lent: &Table<Lent>, range: SharedRange) -> Self {
        let found = lent.find(Key::from_bits(range.token));
        // A range lives until the connection says it is done with it, so it is always found.
        let (session, base) = found.map_or((Key::from_bits(0), 0), |lent| (lent.session, lent.span.offset));
        Self::Shared { session, span: Span { offset: base + range.offset, len: range.len } }
    }
}

impl Engine {
    /// Takes in a connection somebody made to us. `label` is its address, for operators.
    pub fn accept_peer(&mut self, now: Instant, label: String) -> PeerKey {
        let config = Arc::clone(&self.native.small);
        self.insert_peer(Side::Acceptor, config, now, label, None)
    }

    /// A connection has its socket: the other end is asked from now on.
    pub fn peer_connected(&mut self, now: Instant, key: PeerKey) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.connection.connected(now);
        }
    }

    /// Says who the other end of a connection has proved to be, by its certificate or the kernel's word.
    pub fn peer_identified(&mut self, key: PeerKey, identity: PeerIdentity) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.is_host = self.hosts.include(identity.proven());
            peer.identity = identity;
        }
    }

    /// Says what the other end of a connection may call as a user of this host. One of the operator's daemons calls for
    /// others, whose rights it has looked at itself.
    pub fn peer_has_rights(&mut self, key: PeerKey, rights: CallRights) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.rights = Some(rights);
        }
    }

    /// Whether a connection has said its hello.
    pub fn has_greeted(&self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.connection.peer().is_some())
    }

    /// Whether a connection was made by this side.
    pub fn was_dialled(&self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.lane.is_some())
    }

    /// A dialled endpoint did not answer. (One that did speaks for itself, by its hello.)
    pub fn handle_dial_failed(&mut self, turn: &mut Turn<'_>, connection: Dialled, why: &str) {
        match connection {
            Dialled::Native(key) => self.lose_peer(turn, key, why, false),
            Dialled::Grpc(key) => self.grpc_lost(turn, key, why),
        }
    }

    /// Bytes of a connection, known to be there since `arrived` (before they were read, so that reading counts as stack
    /// and not as wire). The read buffer begins with what [`Engine::resume`] put there.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer broke the protocol. The host transmits what is still queued (the reason, for the
    /// peer), closes the socket and calls [`Engine::peer_lost`].
    pub fn handle_input(
        &mut self,
        turn: &mut Turn<'_>,
        key: PeerKey,
        arrived: Instant,
        bytes: &[u8],
    ) -> Result<(), PeerFault> {
        self.arrived = arrived;
        self.discard_abandoned(turn);
        let mut input = Input::new(bytes);
        loop {
            let Some(peer) = self.peers.find_mut(key) else { return Ok(()) };
            match peer.connection.handle_bytes(turn.now, &mut input) {
                Ok(Some(event)) => self.handle_event(turn, key, event),
                Ok(None) => break,
                Err(error) => {
                    peer.is_corrupted = error.is_corruption();
                    let closed_for = peer.closed_for.take();
                    self.transmit(key);
                    return Err(closed_for.unwrap_or_else(|| PeerFault(error.to_string())));
                }
            }
        }
        self.settle_peer(turn, key);
        Ok(())
    }

    /// Puts the beginning of a cut frame to the front of the read buffer: the host reads behind it.
    pub fn resume(&mut self, key: PeerKey, buffer: &mut [u8]) -> usize {
        self.peers.find_mut(key).map_or(0, |peer| peer.connection.resume(buffer))
    }

    /// The memory the next bytes of the socket belong in, if they are the body of a large message: the host may read
    /// straight into it and report with [`Engine::placed`].
    pub fn wanted<'a>(&'a mut self, heaps: &'a mut dyn Heaps, key: PeerKey) -> Option<&'a mut [u8]> {
        let placement = self.peers.find(key)?.connection.wanted()?;
        self.assembly_room(heaps, key, placement.stream, placement.offset, placement.bytes)
    }

    /// So many bytes, known to be there since `arrived`, were read into the memory [`Engine::wanted`] named.
    pub fn placed(&mut self, turn: &mut Turn<'_>, key: PeerKey, arrived: Instant, bytes: usize) {
        self.arrived = arrived;
        let Some(peer) = self.peers.find_mut(key) else { return };
        if let Some(event) = peer.connection.placed(turn.now, bytes as u32) {
            self.handle_event(turn, key, event);
        }
        self.settle_peer(turn, key);
    }

    /// Whether a connection is for large messages only.
    pub fn is_bulk(&self, key: PeerKey) -> bool {
        let lane = self.peers.find(key).and_then(|peer| peer.lane);
        matches!(lane, Some((_, LaneIndex::Bulk)))
    }

    /// A connection with bytes to write.
    pub fn poll_transmitting(&mut self) -> Option<PeerKey> {
        let key = self.transmitting.pop_front()?;
        if let Some(peer) = self.peers.find_mut(key) {
            peer.in_line = false;
        }
        Some(key)
    }

    /// What to write next, in order: about `bytes_max`.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        key: PeerKey,
        bytes_max: usize,
    ) -> impl Iterator<Item = Piece<'_>> {
        let Self { peers, lent, .. } = self;
        let chunks = peers.find_mut(key).map(|peer| peer.connection.poll_transmit(now, bytes_max));
        chunks.into_iter().flatten().map(|chunk| match chunk {
            Chunk::Bytes(bytes) => Piece::Bytes(bytes),
            Chunk::Shared(range) => Piece::lent(lent, range),
        })
    }

    /// The socket took so many of those bytes. The call whose request ended with the last of them, if one did.
    pub fn transmitted(&mut self, turn: &mut Turn<'_>, key: PeerKey, bytes: usize) -> Option<SentCall> {
        let mut last = None;
        if let Some(peer) = self.peers.find_mut(key) {
            peer.connection.transmitted(bytes);
            while let Some(sent) = peer.connection.poll_sent() {
                let key = CallKey::from_bits(sent.tag);
                if let Some(call) = self.calls.find_mut(key) {
                    call.client_stamps.d4 = sent.at;
                }
                last = sent.is_last.then_some(SentCall(key));
            }
        }
        self.settle_peer(turn, key);
        last
    }

    /// The kernel says when the last byte of a call's request left this host.
    pub fn note_sent(&mut self, call: SentCall, at: Instant) {
        if let Some(call) = self.calls.find_mut(call.0)
            && matches!(call.server, ServerEnd::Peer { .. })
        {
            call.client_stamps.k6 = at;
        }
    }

    /// The connection is over: its calls end, those that never left as *not executed*.
    pub fn peer_lost(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str) {
        self.lose_peer(turn, key, why, true);
    }

    /// The same; `silent`: whoever was reached has not shown that it speaks the native protocol.
    pub(crate) fn lose_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str, silent: bool) {
        let Some(peer) = self.peers.find_mut(key) else { return };
        peer.connection.lost();
        let lane = peer.lane;
        self.take_notices(turn, key);
        let Some(mut peer) = self.peers.remove(key) else { return };
        for (_, assembly) in peer.assemblies.drain() {
            self.arrives_no_more(&assembly);
            self.abandoned.extend(assembly.block());
        }
        self.held.leave(std::mem::take(&mut peer.holding));
        self.announces_no_more(key, &peer);
        // A call that waited to be opened there has sent nothing: it goes elsewhere, by another connection.
        let (unsent, begun) = std::mem::take(&mut peer.blocked)
            .into_iter()
            .partition::<Vec<_>, _>(|(call, direction)| self.is_unsent(*call, *direction));
        for (call, _) in begun {
            let executed = self.calls.find(call).map_or(Execution::Unknown, Call::execution);
            self.fail(turn, call, peer.lost_with(executed));
        }
        self.discard_abandoned(turn);
        if let Some((remote, lane)) = lane {
            self.lane_lost(turn, remote, lane, key, why, silent);
        }
        for (call, direction) in unsent {
            self.unblock(turn, call, direction);
        }
        self.note_host_left(turn.now, peer.telemetry);
        self.go_on(turn);
    }

    /// Whether nothing of a call's request has been given to anybody.
    fn is_unsent(&self, key: CallKey, direction: Direction) -> bool {
        let waits = |call: &Call| !call.handed_over && !matches!(call.server, ServerEnd::Peer { .. });
        direction == Direction::Request && self.calls.find(key).is_some_and(waits)
    }

    pub(crate) fn new_outgoing_peer(&mut self, now: Instant, remote: RemoteKey, lane: LaneIndex) -> PeerKey {
        let label = self.remotes.find(remote).map_or_else(String::new, |remote| remote.endpoint.to_string());
        let config = match lane {
            LaneIndex::Small => &self.native.small,
            LaneIndex::Bulk => &self.native.bulk,
        };
        self.insert_peer(Side::Initiator, Arc::clone(config), now, label, Some((remote, lane)))
    }

    /// Puts a connection in line for the host to transmit.
    pub fn transmit(&mut self, key: PeerKey) {
        if let Some(peer) = self.peers.find_mut(key)
            && !peer.in_line
        {
            peer.in_line = true;
            self.transmitting.push_back(key);
        }
    }

    /// After every change of a connection: what it noticed, what it wants to send, when it wants the clock.
    pub(crate) fn settle_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        self.take_notices(turn, key);
        self.serve_queues(turn);
        let Some(peer) = self.peers.find_mut(key) else { return };
        if !peer.blocked.is_empty() && peer.connection.may_open().is_ok() {
            self.unblock_peer(turn, key);
        }
        let Some(peer) = self.peers.find_mut(key) else { return };
        let held_bytes = peer.held_bytes();
        self.held.settle(&mut peer.holding, held_bytes);
        if peer.connection.wants_write() {
            self.transmit(key);
        }
        let Some(peer) = self.peers.find_mut(key) else { return };
        if let Some(at) = peer.connection.next_timeout()
            && peer.timer_at.is_none_or(|set| at < set || set <= turn.now)
        {
            peer.timer_at = Some(at);
            self.timers.insert(at, Due::Peer(key));
        }
        if peer.has_left() {
            self.unwanted.push(key);
        }
    }

    /// What became of what was sent.
    fn take_notices(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        while let Some(notice) = self.peers.find_mut(key).and_then(|peer| peer.connection.poll_notice()) {
            self.handle_notice(turn, key, notice);
        }
    }

    /// Receive blocks of messages that will never be complete go back to their heaps.
    #[inline]
    pub(crate) fn discard_abandoned(&mut self, turn: &mut Turn<'_>) {
        if self.abandoned.is_empty() {
            return;
        }
        for (session, offset) in self.abandoned.drain(..) {
            turn.heaps.discard(session, offset);
        }
    }

    fn insert_peer(
        &mut self,
        side: Side,
        config: Arc<Config>,
        now: Instant,
        label: String,
        lane: Option<(RemoteKey, LaneIndex)>,
    ) -> PeerKey {
        let holding = Holding::of(source_of_peer(&label, lane.is_some()));
        let key = self.peers.insert(Peer {
            connection: Connection::new(side, config, now),
            lane,
            label,
            identity: PeerIdentity::default(),
            is_host: false,
            rights: None,
            is_corrupted: false,
            closed_for: None,
            callers_said: CallersSaid::default(),
            callers_heard: CallersHeard::default(),
            announced: KeyedMap::default(),
            answers: KeyedMap::default(),
            unproven: Unproven::default(),
            renews_at: Instant::default(),
            offered: KeyedMap::default(),
            assemblies: KeyedMap::default(),
            assembling_bytes: 0,
            missing_bytes: 0,
            is_looked_at: false,
            holding,
            blocked: VecDeque::new(),
            is_asked_to_redial: false,
            is_replaced: false,
            in_line: false,
            timer_at: None,
            telemetry: trunkline_telemetry::PeerIndex::OTHER,
        });
        self.transmit(key);
        key
    }
}
