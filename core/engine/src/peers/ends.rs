//! Who is connected, who has something to send, and what they have announced.

use crate::announcers::Announcers;
use crate::call::{Call, ServerEnd};
use crate::gateway_client::CallRights;
use crate::grpc::PeerIdentity;
use crate::heaps::Heaps;
use crate::held::{HeldBudget, Holding, source_of_peer};
use crate::limits::Limits;
use crate::peer::{HostClaim, Lent, Offered, Peer, PeerFault, UnwantedPeer, claim_of, reported_name};
use crate::registry::{MethodKey, MethodTypes};
use crate::remote::LaneIndex;
use crate::snapshot::{PeerRow, SLOTS_PER_PART, TableRows};
use crate::table::{Key, Table};
use crate::vouching::{CallersHeard, Hosts};
use crate::{CallKey, PeerKey, RemoteKey, SessionKey};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use trunkline_call::entry::Span;
use trunkline_call::{Instant, Status};
use trunkline_native::{Chunk, Config, Connection, Features, MethodIndex, SharedRange, Side};

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

/// A call whose request is at the socket, for [`crate::Engine::note_sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCall(pub(super) CallKey);

impl SentCall {
    /// Which it is.
    pub(crate) fn key(self) -> CallKey {
        self.0
    }
}

/// All connections to other daemons.
#[derive(Debug)]
pub(crate) struct PeerEnds {
    pub(super) table: Table<Peer>,
    /// Send-heap ranges connections read from, by the token the connection knows.
    pub(super) lent: Table<Lent>,
    /// What peers have announced, and which of them are to be told again who serves that.
    pub announcers: Announcers,
    configs: NativeConfigs,
    /// Those that are daemons of the operator's hosts.
    hosts: Hosts,
    /// Those with something to transmit, or to be closed.
    transmitting: VecDeque<PeerKey>,
    /// Those to be closed: nobody calls there any more.
    unwanted: Vec<UnwantedPeer>,
}

/// The settings of connections: those that carry small calls, and the bulk lanes.
#[derive(Debug)]
struct NativeConfigs {
    small: Arc<Config>,
    bulk: Arc<Config>,
}

/// On a lane without small calls a segment may be as long as one turn writes.
const BULK_SEGMENT_BYTES: u32 = 1 << 20;

impl NativeConfigs {
    fn new(limits: &Limits, node_name: &str, clock_id: u64) -> Self {
        let mut small = Config { node_name: node_name.to_owned(), clock_id, ..Config::default() };
        small.limits.stream_window_bytes = limits.stream_window_bytes;
        small.limits.message_bytes_max = limits.message_bytes;
        small.queue_bytes_max = limits.connection_queue_bytes as u64;
        small.features = Features::CALLERS;
        let bulk = Config { segment_bytes: BULK_SEGMENT_BYTES, ..small.clone() };
        Self { small: Arc::new(small), bulk: Arc::new(bulk) }
    }

    fn of(&self, lane: Option<LaneIndex>) -> Arc<Config> {
        match lane {
            Some(LaneIndex::Bulk) => Arc::clone(&self.bulk),
            Some(LaneIndex::Small) | None => Arc::clone(&self.small),
        }
    }
}

impl Piece<'_> {
    fn lent(lent: &Table<Lent>, range: SharedRange) -> Self {
        let found = lent.find(Key::from_bits(range.token));
        // A range lives until the connection says it is done with it, so it is always found.
        let (session, base) = found.map_or((Key::from_bits(0), 0), |lent| (lent.session, lent.span.offset));
        Self::Shared { session, span: Span { offset: base + range.offset, len: range.len } }
    }
}

impl PeerEnds {
    /// Nobody is connected. `node_name` and `clock_id` are what peers are told about this host.
    pub fn new(limits: &Limits, node_name: &str, clock_id: u64) -> Self {
        Self {
            table: Table::new(),
            lent: Table::new(),
            announcers: Announcers::default(),
            configs: NativeConfigs::new(limits, node_name, clock_id),
            hosts: Hosts::default(),
            transmitting: VecDeque::new(),
            unwanted: Vec::new(),
        }
    }

    /// Takes in a connection: accepted, or the lane of an endpoint that is being dialled.
    pub fn insert(&mut self, now: Instant, label: String, lane: Option<(RemoteKey, LaneIndex)>) -> PeerKey {
        let holding = Holding::of(source_of_peer(&label, lane.is_some()));
        let side = if lane.is_some() { Side::Initiator } else { Side::Acceptor };
        let config = self.configs.of(lane.map(|(_, lane)| lane));
        let key = self.table.insert(Peer::new(Connection::new(side, config, now), label, lane, holding));
        self.transmit(key);
        key
    }

    /// What is handed over: connections, and what they read.
    pub fn export(&self) -> (&Table<Peer>, &Table<Lent>) {
        (&self.table, &self.lent)
    }

    /// Goes on with connections of another process, and with what they read. Those whose state cannot be that of a
    /// connection, and why.
    pub fn take_up(&mut self, mut table: Table<Peer>, lent: Table<Lent>) -> Vec<(PeerKey, &'static str)> {
        let mut left_out = Vec::new();
        for (key, peer) in table.iter_mut() {
            let config = self.configs.of(peer.lane.map(|(_, lane)| lane));
            let taken = std::mem::replace(&mut peer.connection, placeholder()).take_up(config);
            match taken {
                Ok(connection) => peer.connection = connection,
                Err(unsound) => left_out.push((key, unsound.0)),
            }
            peer.is_host = self.hosts.include(peer.identity.proven());
            if !peer.is_host {
                peer.callers_heard = CallersHeard::default();
            }
            for (index, offered) in &peer.offered {
                self.announcers.enter(&offered.path, key, *index);
            }
        }
        (self.table, self.lent) = (table, lent);
        left_out
    }

    /// Blocks that connections read.
    pub fn lent(&self) -> impl Iterator<Item = &Lent> {
        self.lent.iter().map(|(_, lent)| lent)
    }

    /// Types that were agreed on with connections.
    pub fn types(&self) -> impl Iterator<Item = &Arc<MethodTypes>> {
        self.table
            .iter()
            .flat_map(|(_, peer)| peer.offered.values())
            .filter_map(|offered| offered.agreed.as_ref())
    }

    /// The same, to be replaced.
    pub fn types_mut(&mut self) -> impl Iterator<Item = &mut Arc<MethodTypes>> {
        let offered = self.table.iter_mut().flat_map(|(_, peer)| peer.offered.values_mut());
        offered.filter_map(|offered| offered.agreed.as_mut())
    }

    /// Books what is held for them in the accounts of this process.
    pub fn book_again(&mut self, held: &mut HeldBudget) {
        self.table.iter_mut().for_each(|(_, peer)| peer.book_again(held));
    }

    /// Blocks that are being written lie in other heaps now.
    pub fn rename_blocks(&mut self, heaps: &dyn Heaps) {
        for (_, peer) in self.table.iter_mut() {
            peer.assemblies.values_mut().for_each(|assembly| assembly.rename(heaps));
        }
    }

    /// Counts anew what arrives. `arrives` counts what of it arrives in a session's heap, and says how much that is.
    pub fn count_assemblies(
        &mut self,
        heaps: &dyn Heaps,
        mut arrives: impl FnMut(SessionKey, u32) -> Option<u32>,
    ) {
        for (_, peer) in self.table.iter_mut() {
            (peer.assembling_bytes, peer.missing_bytes) = (0, 0);
            for assembly in peer.assemblies.values_mut() {
                peer.assembling_bytes += assembly.private_bytes();
                peer.missing_bytes += assembly.missing_bytes();
                let Some((session, bytes)) = assembly.place.usual_bytes(heaps) else { continue };
                if let Some(counted) = arrives(session, bytes) {
                    assembly.counted = counted;
                }
            }
        }
    }

    /// What reports call each peer that has said hello, and whether it reads the same clock.
    pub fn names_in_reports(&self) -> Vec<(PeerKey, String, bool)> {
        let mut named = Vec::new();
        // Of each name two claims that differ are enough to tell a third apart.
        let mut before: HashMap<&str, Vec<HostClaim<'_>>> = HashMap::new();
        for (key, peer) in self.table.iter() {
            let Some(claim) = claim_of(peer) else { continue };
            let same = before.entry(claim.name).or_default();
            named.push((
                key,
                reported_name(claim, same.iter().copied()),
                self.has_same_clock(claim.clock_id),
            ));
            if same.len() < 2 && same.iter().all(|other| other.clock_id != claim.clock_id) {
                same.push(claim);
            }
        }
        named
    }

    /// Offers checksums on connections made from now on, or does not.
    pub fn offer_checksums(&mut self, offered: bool) {
        let NativeConfigs { small, bulk } = &mut self.configs;
        for config in [small, bulk] {
            let features = &mut Arc::make_mut(config).features;
            *features = if offered {
                features.with(Features::CHECKSUM)
            } else {
                features.without(Features::CHECKSUM)
            };
        }
    }

    /// Says which peers are daemons of the operator's hosts.
    pub fn know_hosts(&mut self, hosts: Hosts) {
        self.hosts = hosts;
    }

    /// A peer has proved who it is.
    pub fn identified(&mut self, key: PeerKey, identity: PeerIdentity) {
        if let Some(peer) = self.table.find_mut(key) {
            peer.is_host = self.hosts.include(identity.proven());
            peer.identity = identity;
        }
    }

    /// Says what a peer may call as a user of this host.
    pub fn has_rights(&mut self, key: PeerKey, rights: CallRights) {
        if let Some(peer) = self.table.find_mut(key) {
            peer.rights = Some(rights);
        }
    }

    /// Takes a connection out that is over, with what it has announced.
    pub fn remove(&mut self, key: PeerKey) -> Option<Peer> {
        let peer = self.table.remove(key)?;
        for (index, offered) in &peer.offered {
            self.announcers.leave(&offered.path, key, *index);
        }
        Some(peer)
    }

    /// After every change of a connection: what is held for it, what it wants to send, and when it wants the clock, if
    /// it is not booked for that.
    pub fn settle(&mut self, held: &mut HeldBudget, now: Instant, key: PeerKey) -> Option<Instant> {
        let peer = self.table.find_mut(key)?;
        let held_bytes = peer.held_bytes();
        held.settle(&mut peer.holding, held_bytes);
        if peer.connection.wants_write() && !std::mem::replace(&mut peer.in_line, true) {
            self.transmitting.push_back(key);
        }
        if peer.has_left() {
            self.unwanted.push(UnwantedPeer::uncalled(key));
        }
        let at = peer.connection.next_timeout()?;
        let is_booked = peer.timer_at.is_some_and(|set| set <= at && set > now);
        (!is_booked).then(|| *peer.timer_at.insert(at))
    }

    /// Puts a connection in line for the host to transmit.
    pub fn transmit(&mut self, key: PeerKey) {
        if let Some(peer) = self.table.find_mut(key)
            && !peer.in_line
        {
            peer.in_line = true;
            self.transmitting.push_back(key);
        }
    }

    /// The next in that line.
    pub fn poll_transmitting(&mut self) -> Option<PeerKey> {
        let key = self.transmitting.pop_front()?;
        if let Some(peer) = self.table.find_mut(key) {
            peer.in_line = false;
        }
        Some(key)
    }

    /// Whether somebody is in that line.
    pub fn has_to_transmit(&self) -> bool {
        !self.transmitting.is_empty()
    }

    /// What a connection writes next, in order: about `bytes_max`.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        key: PeerKey,
        bytes_max: usize,
    ) -> impl Iterator<Item = Piece<'_>> {
        let Self { table, lent, .. } = self;
        let chunks = table.find_mut(key).map(|peer| peer.connection.poll_transmit(now, bytes_max));
        chunks.into_iter().flatten().map(|chunk| match chunk {
            Chunk::Bytes(bytes) => Piece::Bytes(bytes),
            Chunk::Shared(range) => Piece::lent(lent, range),
        })
    }

    /// Nobody calls there any more: the host is to close it.
    pub fn close(&mut self, key: PeerKey) {
        self.unwanted.push(UnwantedPeer::uncalled(key));
    }

    /// A connection is at its end for this reason: the host is to write what is queued, which says so, and to close it.
    pub fn give_up(&mut self, key: PeerKey, why: String) {
        self.unwanted.push(UnwantedPeer { key, why: why.into(), is_told: true });
    }

    /// A connection is over for this reason: the host is to close it, if it has not.
    pub fn has_ended(&mut self, key: PeerKey, why: String) {
        self.unwanted.push(UnwantedPeer { key, why: why.into(), is_told: false });
    }

    /// The next to be closed.
    pub fn poll_unwanted(&mut self) -> Option<UnwantedPeer> {
        self.unwanted.pop()
    }

    /// Another connection has its place: it is closed with the last of its calls.
    pub fn replaced(&mut self, key: PeerKey) {
        let Some(peer) = self.table.find_mut(key) else { return };
        peer.is_replaced = true;
        if peer.has_left() {
            self.unwanted.push(UnwantedPeer::uncalled(key));
        }
    }

    /// This side takes no new calls any more: all are told.
    pub fn go_away(&mut self, now: Instant) {
        let keys: Vec<PeerKey> = self.table.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(peer) = self.table.find_mut(key) {
                peer.connection.go_away(now, trunkline_call::Code::Unavailable);
            }
            self.transmit(key);
        }
    }

    /// A peer announces a method. `false`: it is gone, or is closed because its source may have no more of them.
    pub fn take_offer(
        &mut self,
        held: &mut HeldBudget,
        key: PeerKey,
        index: MethodIndex,
        offered: Offered,
    ) -> bool {
        let Some(peer) = self.table.find_mut(key) else { return false };
        let (path, before) = (Arc::clone(&offered.path), peer.offered.get(&index));
        let before = before.map(|before| Arc::clone(&before.path));
        if let Err(full) = peer.take_offer(held, index, offered) {
            let status = full.fault().status();
            let why = format!("method {} announced: {}", index.0, status.message());
            peer.connection.close(status.code(), &why);
            peer.closed_for = Some(PeerFault(why));
            return false;
        }
        before.into_iter().for_each(|before| self.announcers.leave(&before, key, index));
        self.announcers.enter(&path, key, index);
        true
    }

    /// Tells a peer what there is here for a method it has announced, if that is not what it was told last.
    pub fn answer(
        &mut self,
        key: PeerKey,
        index: MethodIndex,
        (method, types): (Option<MethodKey>, Option<Arc<MethodTypes>>),
    ) {
        let fingerprints =
            types.as_ref().map_or([0; 2], |types| [types.input.fingerprint(), types.output.fingerprint()]);
        let Some(peer) = self.table.find_mut(key) else { return };
        let Some(offered) = peer.offered.get_mut(&index) else { return };
        offered.method = method;
        // Those it holds are kept when they are gone here: what it sends by them can still be read.
        offered.agreed = types
            .filter(|types| types.input.fingerprint() == offered.fingerprints[0])
            .or(offered.agreed.take());
        // What was said last holds until it changes.
        if offered.answered.replace(fingerprints) != Some(fingerprints) {
            let [request, response] = fingerprints;
            let _ = peer.connection.answer_schema(index, request != 0, request, response);
        }
    }

    /// Forgets methods that are not known here any more.
    pub fn forget_methods(&mut self, knows: impl Fn(MethodKey) -> bool) {
        self.table.iter_mut().for_each(|(_, peer)| peer.forget_methods(&knows));
    }

    /// What reports call a peer that has said hello, and whether it reads the same clock.
    pub fn reported_as(&self, key: PeerKey) -> Option<(String, bool)> {
        let claim = self.table.find(key).and_then(claim_of)?;
        let others = self.table.iter().filter(|(other, _)| *other != key);
        let name = reported_name(claim, others.filter_map(|(_, other)| claim_of(other)));
        Some((name, self.has_same_clock(claim.clock_id)))
    }

    /// Whether this is the clock of this host.
    pub fn has_same_clock(&self, clock_id: u64) -> bool {
        self.configs.small.clock_id == clock_id
    }

    /// A status made here for a caller elsewhere: who reads it there is to know which host speaks.
    pub fn said_here(&self, status: &Status) -> Status {
        const NAME_CHARS_MAX: usize = 64;
        let name = &self.configs.small.node_name;
        if name.is_empty() {
            return status.clone();
        }
        let name: String = name.chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect();
        let message = format!("{} (node {name})", status.message());
        Status::new(status.code(), message).with_execution(status.execution())
    }

    /// Whether a call has a place on a connection, and is still in its queue.
    pub fn is_unsent(&self, call: &Call) -> bool {
        let ServerEnd::Peer { peer, stream } = call.server else { return false };
        self.find(peer).is_some_and(|peer| peer.connection.is_unsent(stream))
    }

    /// Closes a connection over which no calls go.
    pub fn close_unused(&mut self, key: PeerKey) {
        if self.find(key).is_some_and(|peer| peer.connection.stream_count() == 0) {
            self.close(key);
        }
    }

    /// A large message that a connection was let send waits, for which it goes on paying. Whether it is there.
    pub fn hold_waiting(&mut self, key: PeerKey, bytes: usize) -> bool {
        let peer = self.table.find_mut(key);
        peer.map(|peer| peer.assembling_bytes += bytes).is_some()
    }

    /// So many bytes of large messages are not held for a connection any more.
    pub fn release_waiting(&mut self, held: &mut HeldBudget, key: PeerKey, bytes: usize) {
        let Some(peer) = self.table.find_mut(key) else { return };
        peer.assembling_bytes = peer.assembling_bytes.saturating_sub(bytes);
        let held_bytes = peer.held_bytes();
        held.settle(&mut peer.holding, held_bytes);
    }

    /// What operators see of those in the next slots, and the bytes of messages that they put together.
    pub fn snapshot(
        &self,
        endpoint: impl Fn(RemoteKey) -> Option<Arc<str>>,
        from: usize,
    ) -> (TableRows<PeerRow>, u64) {
        let mut bytes = 0;
        let (peers, left) = self.table.part(from, SLOTS_PER_PART);
        let rows = peers.map(|(key, peer)| {
            bytes += peer.assembling_bytes as u64;
            peer.row(key, &endpoint)
        });
        (TableRows::of((rows, left)), bytes)
    }

    pub fn find(&self, key: PeerKey) -> Option<&Peer> {
        self.table.find(key)
    }

    pub fn find_mut(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.table.find_mut(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (PeerKey, &Peer)> {
        self.table.iter()
    }
}

/// Stands where a connection is being looked at.
fn placeholder() -> Connection {
    Connection::new(Side::Acceptor, Arc::new(Config::default()), Instant::default())
}
