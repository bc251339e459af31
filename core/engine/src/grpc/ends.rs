//! The owner of what speaks gRPC, and what concerns a connection as a whole.

use super::peer::{GrpcPeer, PeerIdentity};
use super::settings::GrpcSettings;
use super::stream::{GrpcStream, WebStream};
use super::unpacking::Unpacking;
use crate::due::Due;
use crate::gateway_client::CallRights;
use crate::held::{HELD_STEP_BYTES, HeldBudget};
use crate::invariants::Invariants;
use crate::item::Direction;
use crate::limits::Limits;
use crate::operator::Operator;
use crate::snapshot::{PeerRow, SLOTS_PER_PART, TableRows};
use crate::table::Table;
use crate::{CallKey, GrpcKey, RemoteKey};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{Instant, TimerTable};
use trunkline_grpc::{Command, Reason, StreamTag};

/// Everything here that speaks gRPC.
#[derive(Debug)]
pub(crate) struct GrpcEnds {
    pub(super) peers: Table<GrpcPeer>,
    pub(super) settings: GrpcSettings,
    pub(super) limits: Limits,
    /// What connections are to do next.
    commands: VecDeque<(GrpcKey, Command)>,
    /// Connections whose streams or queues changed, each once.
    touched: Vec<GrpcKey>,
    pub(super) unpacking: Unpacking,
    leaving: GrpcLeaving,
}

/// The accounts of all ends: what is held for whom, and which of our own rules was found broken.
#[derive(Debug)]
pub(crate) struct HeldAccounts<'e> {
    pub held: &'e mut HeldBudget,
    pub invariants: &'e mut Invariants,
}

/// How far gRPC connections have been emptied before a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcLeft {
    /// What the step waits for: calls of clients that were told first; then connections of clients, and calls made.
    pub unfinished: usize,
    /// Calls under way.
    pub calls: usize,
}

/// How far connections have been emptied for a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GrpcLeaving {
    #[default]
    No,
    /// Those who were there have been told.
    Told,
    /// Nothing new is begun.
    Held,
}

impl GrpcEnds {
    /// Without connections, and with the usual settings.
    pub fn new(limits: &Limits) -> Self {
        Self {
            peers: Table::new(),
            settings: GrpcSettings::default(),
            limits: limits.clone(),
            commands: VecDeque::new(),
            touched: Vec::new(),
            unpacking: Unpacking::default(),
            leaving: GrpcLeaving::default(),
        }
    }

    /// Says how gRPC is spoken.
    pub fn configure(&mut self, settings: GrpcSettings) {
        self.settings = settings;
    }

    /// Goes on after others, of which no connection came along: no key of those is a key here.
    pub fn come_after(&mut self, next_generations: Vec<u32>) {
        self.peers = Table::after(next_generations);
    }

    /// A dialled connection is up. The endpoint whose calls it takes from now on, if that is new.
    pub fn handle_ready(&mut self, key: GrpcKey, streams_max: u32) -> Option<RemoteKey> {
        let peer = self.peers.find_mut(key)?;
        peer.streams_max = streams_max;
        // One that leaves already takes no calls.
        let is_new = !peer.leaving && !std::mem::replace(&mut peer.ready, true);
        let remote = peer.remote.filter(|_| is_new);
        self.touch(key);
        remote
    }

    /// The peer takes so many streams at once.
    pub fn handle_streams_max(&mut self, key: GrpcKey, streams_max: u32) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.streams_max = streams_max;
        }
        self.touch(key);
    }

    /// The peer takes no new streams: those it has go on. The endpoint it is of, which has one connection less.
    pub fn handle_leaving(&mut self, key: GrpcKey) -> Option<RemoteKey> {
        let peer = self.peers.find_mut(key)?;
        peer.leaving = true;
        let remote = peer.remote;
        self.touch(key);
        remote
    }

    /// The connection is over: the calls of its streams, and the endpoint it was of. It stays known until it is
    /// removed.
    pub fn handle_lost(&mut self, key: GrpcKey) -> Option<(Vec<CallKey>, Option<RemoteKey>)> {
        let peer = self.peers.find_mut(key)?;
        let streams = std::mem::take(&mut peer.streams);
        Some((streams.into_values().filter_map(|stream| stream.call).collect(), peer.remote))
    }

    /// Takes a connection in.
    pub fn insert(&mut self, peer: GrpcPeer) -> GrpcKey {
        self.peers.insert(peer)
    }

    /// Takes a connection out, and what it had out of the books.
    pub fn remove(
        &mut self,
        held: &mut HeldBudget,
        timers: &mut TimerTable<Due>,
        key: GrpcKey,
    ) -> Option<GrpcPeer> {
        let mut peer = self.peers.remove(key)?;
        held.leave(std::mem::take(&mut peer.holding));
        if let Some((_, timer)) = peer.sweep.take() {
            timers.cancel(timer);
        }
        Some(peer)
    }

    /// A dialled connection proved who it is.
    pub fn identify(&mut self, key: GrpcKey, identity: PeerIdentity) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.identity = identity;
        }
    }

    /// A connection is an operator's.
    pub fn note_operator(&mut self, key: GrpcKey, operator: Operator) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.operator = Some(operator);
        }
    }

    /// What a client may call, and whether it came to the gateway.
    pub fn note_client(&mut self, key: GrpcKey, client: CallRights, forwards: bool) {
        if let Some(peer) = self.peers.find_mut(key) {
            (peer.client, peer.forwards) = (Some(client), forwards);
        }
    }

    /// Has a connection do something.
    pub fn command(&mut self, key: GrpcKey, command: Command) {
        self.commands.push_back((key, command));
    }

    /// Clients are to make no new calls.
    pub fn turn_clients_away(&mut self) {
        let taken = self.peers.iter().filter(|(_, peer)| peer.remote.is_none());
        self.commands.extend(taken.map(|(key, _)| (key, Command::GoAway)));
    }

    /// Begins a step of emptying connections, or goes on with it.
    pub fn leave(&mut self, hold: bool) -> GrpcLeft {
        let begins = std::mem::replace(&mut self.leaving, GrpcLeaving::Told) == GrpcLeaving::No;
        if hold {
            self.leaving = GrpcLeaving::Held;
        }
        if begins || hold {
            let untold = self.peers.iter_mut().filter(|(_, peer)| peer.remote.is_none() && !peer.leaving);
            self.commands.extend(untold.map(|(key, peer)| {
                peer.leaving = true;
                (key, Command::GoAway)
            }));
        }
        let (mut left, mut told, mut clients, mut made) = (GrpcLeft::default(), 0, 0, 0);
        for (_, peer) in self.peers.iter() {
            let streams = peer.streams.len();
            left.calls += streams;
            match peer.remote {
                Some(_) => made += streams,
                None => {
                    clients += 1;
                    told += if peer.leaving { streams } else { 0 };
                }
            }
        }
        left.unfinished = if hold { clients + made } else { told };
        left
    }

    /// Connections are emptied no more. Whether calls were held.
    pub fn stay(&mut self) -> bool {
        std::mem::take(&mut self.leaving) == GrpcLeaving::Held
    }

    /// Nobody calls over a connection any more: it ends with its streams.
    pub fn leave_unwanted(&mut self, key: GrpcKey) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.leaving = true;
        }
        self.touch(key);
    }

    /// A call waits for room in a connection's queue. `waits` says of those that do whether they still do.
    pub fn line_up(
        &mut self,
        key: GrpcKey,
        entry: (CallKey, Direction),
        waits: impl Fn((CallKey, Direction)) -> bool,
    ) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.blocked.push(entry, waits);
        }
    }

    /// Takes those of a connection's line that `goes` says it of.
    pub fn take_blocked(
        &mut self,
        key: GrpcKey,
        goes: impl Fn(&(CallKey, Direction)) -> bool,
    ) -> Vec<(CallKey, Direction)> {
        let Some(peer) = self.peers.find_mut(key) else { return Vec::new() };
        let (taken, others): (Vec<_>, Vec<_>) = peer.blocked.take().into_iter().partition(goes);
        others.into_iter().for_each(|other| peer.blocked.push(other, |_| true));
        taken
    }

    /// A connection has changed, and is looked at before long.
    pub fn touch(&mut self, key: GrpcKey) {
        if let Some(peer) = self.peers.find_mut(key)
            && !std::mem::replace(&mut peer.touched, true)
        {
            self.touched.push(key);
        }
    }

    /// The streams of a connection are looked at then, at the latest.
    pub fn sweep_by(&mut self, timers: &mut TimerTable<Due>, key: GrpcKey, at: Instant) {
        let Some(peer) = self.peers.find_mut(key) else { return };
        if peer.sweep.is_some_and(|(set, _)| set <= at) {
            return;
        }
        let timer = timers.insert(at, Due::Sweep(key));
        if let Some((_, before)) = peer.sweep.replace((at, timer)) {
            timers.cancel(before);
        }
    }

    /// What a connection is to do next.
    pub fn poll_command(&mut self) -> Option<(GrpcKey, Command)> {
        self.commands.pop_front()
    }

    /// The next connection that has changed.
    pub fn poll_touched(&mut self) -> Option<GrpcKey> {
        while let Some(key) = self.touched.pop() {
            if let Some(peer) = self.peers.find_mut(key) {
                peer.touched = false;
                return Some(key);
            }
        }
        None
    }

    /// The next of those that wait for room on a connection, if there is room.
    pub fn poll_unblocked(&mut self, held: &mut HeldBudget, key: GrpcKey) -> Option<(CallKey, Direction)> {
        if self.peers.find(key)?.blocked.is_empty() || !self.has_room(held, key) {
            return None;
        }
        self.peers.find_mut(key)?.blocked.pop()
    }

    /// Closes a connection that is left and has nothing to do. The endpoint it was dialled for.
    pub fn close_if_left(&mut self, key: GrpcKey) -> Option<RemoteKey> {
        let peer = self.peers.find_mut(key)?;
        let remote = peer.remote?;
        if peer.leaving && peer.streams.is_empty() && !std::mem::replace(&mut peer.closed, true) {
            self.command(key, Command::Close { reason: Reason::NO_ERROR });
        }
        Some(remote)
    }

    /// The next stream that has a message to unpack, after others have had their turn.
    pub fn poll_unpacked(&mut self) -> Option<WebStream> {
        while let Some(peer) = self.unpacking.poll_waiting() {
            let Some(found) = self.peers.find_mut(peer) else { continue };
            let Some(tag) = found.unpacks.pop_front() else { continue };
            if !found.unpacks.is_empty() {
                self.unpacking.wait(peer);
            }
            if let Some(stream) = found.streams.get_mut(&tag) {
                stream.incoming.unpacks_later = false;
                return Some(WebStream { peer, tag });
            }
        }
        None
    }

    /// The others have had their turn. Whether anybody waits for it.
    pub fn begin_unpacking(&mut self) -> bool {
        let is_waited_for = self.unpacking.is_waited_for();
        if is_waited_for {
            self.unpacking.begin_turn();
        }
        is_waited_for
    }

    /// Whether messages wait to be unpacked.
    pub fn has_to_unpack(&self) -> bool {
        self.unpacking.is_waited_for()
    }

    /// Whether any connection has changed.
    #[inline]
    pub fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Whether calls to gRPC servers wait for the engine that takes over.
    pub fn is_held(&self) -> bool {
        self.leaving == GrpcLeaving::Held
    }

    /// A connection.
    pub fn find(&self, key: GrpcKey) -> Option<&GrpcPeer> {
        self.peers.find(key)
    }

    /// Whether calls of this host are made over a connection.
    pub fn is_dialled(&self, key: GrpcKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.remote.is_some())
    }

    /// Every connection.
    pub fn iter(&self) -> impl Iterator<Item = (GrpcKey, &GrpcPeer)> {
        self.peers.iter()
    }

    /// What operators see of those in the next slots, and the bytes of messages that arrive over them.
    pub fn snapshot(
        &self,
        endpoint: impl Fn(RemoteKey) -> Option<Arc<str>>,
        from: usize,
    ) -> (TableRows<PeerRow>, u64) {
        let mut bytes = 0;
        let (peers, left) = self.peers.part(from, SLOTS_PER_PART);
        let rows = peers.map(|(key, peer)| {
            bytes += peer.arriving_bytes as u64;
            peer.row(key, &endpoint)
        });
        (TableRows::of((rows, left)), bytes)
    }

    /// What [`GrpcEnds::come_after`] is told elsewhere.
    pub fn next_generations(&self) -> Vec<u32> {
        self.peers.next_generations()
    }

    /// A stream.
    pub fn stream(&self, at: WebStream) -> Option<&GrpcStream> {
        self.peers.find(at.peer)?.streams.get(&at.tag).map(Box::as_ref)
    }

    pub(super) fn stream_mut(&mut self, at: WebStream) -> Option<&mut GrpcStream> {
        self.peers.find_mut(at.peer)?.streams.get_mut(&at.tag).map(Box::as_mut)
    }

    /// Of these connections the one with the fewest streams, if it takes one more.
    pub fn with_room(&self, open: &[GrpcKey]) -> Option<GrpcKey> {
        let queue_max = self.limits.connection_queue_bytes as u64;
        let room = |key: &GrpcKey| {
            let peer = self.peers.find(*key)?;
            (peer.streams.len() < peer.streams_max as usize && peer.queued_bytes < queue_max)
                .then_some((peer.streams.len(), *key))
        };
        open.iter().filter_map(room).min_by_key(|(streams, _)| *streams).map(|(_, key)| key)
    }

    /// Whether a connection takes another message: its own queue has room, and so has the budget of where it leads.
    /// What waits goes on when something of its queue has left.
    pub(super) fn has_room(&mut self, held: &mut HeldBudget, key: GrpcKey) -> bool {
        let Some(peer) = self.peers.find_mut(key) else { return true };
        let queued_bytes = peer.queued_bytes;
        queued_bytes < self.limits.connection_queue_bytes as u64
            && (queued_bytes < HELD_STEP_BYTES || peer.book(held).is_ok())
    }

    /// A name for a stream that is opened here.
    pub(super) fn next_tag(peer: &mut GrpcPeer) -> StreamTag {
        peer.tags_used += 1;
        StreamTag(StreamTag::OWN | peer.tags_used)
    }
}
