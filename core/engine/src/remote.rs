//! Endpoints of other daemons: dialled when first needed, kept, dialled again after a pause when lost.

use crate::call::{Direction, Item, ServerEnd};
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::grpc_pool::Pool;
use crate::limits::WAITING;
use crate::names::Names;
use crate::observe::{RemoteRow, RemoteState};
use crate::pass::{Blocker, Refusal};
use crate::r2p2_remote::R2p2Remote;
use crate::table::Table;
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey};
use core::net::SocketAddrV4;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use trunkline_call::{Fault, Instant};

/// The two connections of an endpoint. Calls with large requests take the bulk lane, so that a small call never shares
/// a socket buffer with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum LaneIndex {
    Small = 0,
    Bulk = 1,
}

/// An endpoint to connect to, for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// What this connection will be. Where TLS is spoken, ALPN has the last word ([`Engine::dialled_speaks_grpc`]).
    pub connection: Dialled,
    /// `tcp://host:port` or `unix:path`.
    pub endpoint: Arc<str>,
    /// What it speaks is known. Otherwise a native connection is asked for by what every server of HTTP/2 accepts
    /// (`trunkline_native::PROBE`), where TLS does not say.
    pub is_known: bool,
}

/// The peer a dialled connection will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialled {
    /// Another daemon, or so it is hoped: the native protocol is spoken first.
    Native(PeerKey),
    /// A gRPC server: HTTP/2 is spoken.
    Grpc(GrpcKey),
}

/// What an endpoint speaks, as far as is known. Nobody configures it: it is asked whether it speaks the native
/// protocol, and taken for a gRPC server if it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Speaks {
    #[default]
    Unknown,
    Native,
    Grpc,
    /// By its scheme: nothing else comes as datagrams.
    R2p2,
}

/// One endpoint.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Remote {
    pub(crate) endpoint: Arc<str>,
    pub(crate) speaks: Speaks,
    lanes: [Lane; 2],
    #[serde(skip)]
    pub(crate) pool: Pool,
    /// Reached over R2P2: instead of lanes and pool.
    pub(crate) r2p2: Option<R2p2Remote>,
    /// Calls that wait for a connection, in order.
    pub(crate) waiting: VecDeque<CallKey>,
    failures: u32,
    /// No dialling before this instant; calls meanwhile fail with `last_error`.
    pub(crate) not_before: Instant,
    pub(crate) last_error: String,
    /// A timer is set for `not_before`: calls that are ready to wait are in line.
    wakes: bool,
    /// Only names brought it up; it goes when none stands for it any more.
    named_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Lane {
    Idle,
    Dialling(PeerKey),
    Open(PeerKey),
}

/// Pause after the first failed dial; doubles up to [`PAUSE_MAX_NS`]. (gRPC's connection-backoff.md starts at 1 s;
/// inside a data centre a daemon restarts in milliseconds.)
const PAUSE_MIN_NS: u64 = 20_000_000;
const PAUSE_MAX_NS: u64 = 5_000_000_000;

/// All endpoints.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Remotes {
    table: Table<Remote>,
    #[serde(skip)]
    by_endpoint: HashMap<Arc<str>, RemoteKey>,
    pub names: Names,
    #[serde(skip)]
    pub jitter: Jitter,
    /// Of endpoints nobody has called yet.
    #[serde(skip)]
    speaks_at_first: Speaks,
}

/// Numbers that differ from host to host: without them, hosts that lost the same server would come back together.
#[derive(Debug, Default)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub fn seed(&mut self, seed: u64) {
        self.0 = seed;
    }

    /// `ns`, give or take a fifth, as gRPC's connection-backoff.md has it; unchanged without a seed.
    fn spread(&mut self, ns: u64) -> u64 {
        if self.0 == 0 {
            return ns;
        }
        // Xorshift (Marsaglia 2003): its period spares zero.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ns - ns / 5 + self.0 % (2 * ns / 5).max(1)
    }
}

impl Remotes {
    /// What endpoints are taken to speak until they have shown it.
    pub fn speak_at_first(&mut self, speaks: Speaks) {
        self.speaks_at_first = speaks;
        if speaks == Speaks::Grpc {
            let streams = self.table.iter_mut().filter(|(_, remote)| remote.r2p2.is_none());
            streams.for_each(|(_, remote)| remote.speaks = speaks);
        }
    }

    /// Takes the place of these, with endpoints that were handed over. `false`: they contradict themselves.
    pub fn take_up(&mut self, mut moved: Self) -> bool {
        (moved.jitter.0, moved.speaks_at_first) = (self.jitter.0, self.speaks_at_first);
        for (key, remote) in moved.table.iter_mut() {
            if !remote.r2p2.as_ref().is_some_and(|known| known.is_of(&remote.endpoint)) {
                remote.r2p2 = R2p2Remote::of(&remote.endpoint);
            }
            if moved.by_endpoint.insert(Arc::clone(&remote.endpoint), key).is_some() {
                return false;
            }
        }
        moved.names.take_up(|key| moved.table.find(key).map(|remote| Arc::clone(&remote.endpoint)));
        *self = moved;
        true
    }

    /// Every endpoint.
    pub fn keys(&self) -> Vec<RemoteKey> {
        self.table.iter().map(|(key, _)| key).collect()
    }

    /// What it speaks is open again: another program may listen there by now.
    pub fn unlearn(&mut self, remote: RemoteKey) {
        if let Some(remote) = self.table.find_mut(remote) {
            remote.speaks = self.speaks_at_first;
        }
    }

    /// The endpoint's key, made if new; `None` at the limit.
    pub fn intern(&mut self, endpoint: &str, limit: usize) -> Option<RemoteKey> {
        if let Some(key) = self.by_endpoint.get(endpoint).copied() {
            if let Some(remote) = self.table.find_mut(key) {
                remote.named_only = false;
            }
            return Some(key);
        }
        if self.table.len() >= limit {
            return None;
        }
        let r2p2 = R2p2Remote::of(endpoint);
        let endpoint: Arc<str> = endpoint.into();
        let key = self.table.insert(Remote {
            endpoint: Arc::clone(&endpoint),
            speaks: if r2p2.is_some() { Speaks::R2p2 } else { self.speaks_at_first },
            lanes: [Lane::Idle; 2],
            pool: Pool::default(),
            r2p2,
            waiting: VecDeque::new(),
            failures: 0,
            not_before: Instant::default(),
            last_error: String::new(),
            wakes: false,
            named_only: false,
        });
        if Names::is_name(&endpoint) {
            self.names.add(key, &endpoint);
        }
        self.by_endpoint.insert(endpoint, key);
        Some(key)
    }

    /// An endpoint a name stands for: known before, or made and to be forgotten with it. A name stands for no names.
    pub fn intern_named(&mut self, endpoint: &str, limit: usize) -> Option<RemoteKey> {
        if Names::is_name(endpoint) {
            return None;
        }
        let known = self.by_endpoint.get(endpoint).copied();
        let key = known.or_else(|| self.intern(endpoint, limit))?;
        if known.is_none()
            && let Some(remote) = self.table.find_mut(key)
        {
            remote.named_only = true;
        }
        Some(key)
    }

    /// The name written so, if it is one and known.
    pub fn named(&self, text: &str) -> Option<RemoteKey> {
        self.by_endpoint.get(text).copied().filter(|key| self.names.contains(*key))
    }

    /// Forgets endpoints no name stands for any more, once nothing goes there.
    pub fn forget_unnamed(&mut self) {
        let gone = |key: &RemoteKey, remote: &Remote| {
            remote.named_only && remote.is_unused() && !self.names.stand_for(*key)
        };
        let gone: Vec<_> =
            self.table.iter().filter(|(key, remote)| gone(key, remote)).map(|(key, _)| key).collect();
        for key in gone {
            if let Some(remote) = self.table.remove(key) {
                self.by_endpoint.remove(&remote.endpoint);
            }
        }
    }

    pub fn line_up(&mut self, remote: RemoteKey, call: CallKey) {
        if let Some(remote) = self.table.find_mut(remote) {
            remote.waiting.push_back(call);
        }
    }

    pub fn find(&self, remote: RemoteKey) -> Option<&Remote> {
        self.table.find(remote)
    }

    /// Every endpoint, for operators.
    pub fn rows(&self) -> Vec<RemoteRow> {
        let row = |(key, remote): (RemoteKey, &Remote)| RemoteRow {
            id: key.to_bits(),
            endpoint: Arc::clone(&remote.endpoint),
            state: remote.state(),
        };
        self.table.iter().map(row).collect()
    }

    /// Those that have answered over R2P2, with where that is.
    pub fn over_r2p2(&self) -> impl Iterator<Item = (RemoteKey, &Remote, SocketAddrV4)> {
        self.table.iter().filter_map(|(key, remote)| {
            let r2p2 = remote.r2p2.as_ref().filter(|r2p2| r2p2.is_there())?;
            Some((key, remote, r2p2.target))
        })
    }

    pub fn find_mut(&mut self, remote: RemoteKey) -> Option<&mut Remote> {
        self.table.find_mut(remote)
    }
}

impl Remote {
    fn state(&self) -> RemoteState {
        let any = |what: fn(&Lane) -> bool| self.lanes.iter().any(what);
        let by_r2p2 = |what: fn(&R2p2Remote) -> bool| self.r2p2.as_ref().is_some_and(what);
        let open = any(|lane| matches!(lane, Lane::Open(_))) || self.pool.is_open();
        let dialling = any(|lane| matches!(lane, Lane::Dialling(_))) || self.pool.is_dialling();
        if open || by_r2p2(R2p2Remote::is_there) {
            RemoteState::Ready
        } else if dialling || by_r2p2(R2p2Remote::is_greeting) {
            RemoteState::Connecting
        } else if self.failures > 0 {
            RemoteState::Failing
        } else {
            RemoteState::Idle
        }
    }

    /// A connection is up, and this is what it speaks.
    pub(crate) fn connected(&mut self, speaks: Speaks) {
        self.speaks = speaks;
        self.failures = 0;
    }

    /// Whether a connection is being dialled for it.
    pub(crate) fn dials(&self, lane: LaneIndex, peer: PeerKey) -> bool {
        self.lanes[lane as usize] == Lane::Dialling(peer)
    }

    /// Whether it has shown, by a connection that is there, that it speaks the native protocol.
    fn is_open_natively(&self) -> bool {
        self.lanes.iter().any(|lane| matches!(lane, Lane::Open(_)))
    }

    fn is_unused(&self) -> bool {
        self.lanes == [Lane::Idle; 2] && self.pool.is_unused() && self.waiting.is_empty()
    }

    /// Whether a call can be had there: over a connection of its kind that is there, or over one that may be made. That
    /// another connection could not be made says nothing about those there are.
    pub(crate) fn is_reachable(&self, now: Instant, lane: LaneIndex) -> bool {
        self.not_before <= now
            || match self.speaks {
                Speaks::Grpc => self.pool.is_open(),
                Speaks::R2p2 => self.r2p2.as_ref().is_some_and(R2p2Remote::is_there),
                Speaks::Native | Speaks::Unknown => matches!(self.lanes[lane as usize], Lane::Open(_)),
            }
    }

    fn pause_ns(&self) -> u64 {
        (PAUSE_MIN_NS << self.failures.min(10)).min(PAUSE_MAX_NS)
    }
}

impl Engine {
    // LIFE: 9
    /// A call for an endpoint: over the open connection of its lane, or in line until there is one.
    pub(crate) fn hand_to_remote<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: Item<'a>,
    ) -> Result<(), Refusal<'a>> {
        let lane = self.lane_of(&item);
        let waiting_max = self.pending_max(key);
        let Some(remote) = self.remotes.table.find_mut(remote_key) else {
            self.drop_item(item);
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        match remote.speaks {
            Speaks::Grpc => return self.hand_to_pool(turn, key, remote_key, item),
            Speaks::R2p2 | Speaks::Native if item.is_packed() => {
                return self.hand_over_unpacked(Direction::Request, item, |this, plain| {
                    this.hand_to_remote(turn, key, remote_key, plain)
                });
            }
            Speaks::R2p2 => return self.hand_to_r2p2_remote(turn, key, remote_key, item),
            Speaks::Unknown | Speaks::Native => {}
        }
        match remote.lanes[lane as usize] {
            Lane::Open(peer) => return self.open_at_peer(turn, key, peer, item),
            Lane::Dialling(_) if remote.waiting.len() < waiting_max => {}
            Lane::Dialling(_) => {
                self.drop_item(item);
                let limit = waiting_max as u64;
                return Err(Refusal::Fault(Fault::Limit { name: WAITING, limit }));
            }
            Lane::Idle if remote.not_before > turn.now => return Err(self.unreachable(key, remote_key, item)),
            Lane::Idle => self.dial(turn.now, remote_key, lane),
        }
        Err(Refusal::Blocked(item, Blocker::Remote(remote_key)))
    }

    /// The lane a call takes by what it opens with, where the endpoint has lanes.
    pub(crate) fn lane_of(&self, opening: &Item<'_>) -> LaneIndex {
        let bulk = opening.body().is_some_and(|body| body.len() > self.limits.bulk_body_bytes);
        if bulk { LaneIndex::Bulk } else { LaneIndex::Small }
    }

    /// Nobody is to be dialled there for a while: the call fails, or waits if it is ready to.
    pub(crate) fn unreachable<'a>(
        &mut self,
        key: CallKey,
        remote_key: RemoteKey,
        item: Item<'a>,
    ) -> Refusal<'a> {
        let waits = self.calls.find(key).is_some_and(|call| call.waits_for_ready);
        let limit = self.pending_max(key);
        let fault = match self.remotes.table.find_mut(remote_key) {
            Some(remote) if waits && remote.waiting.len() < limit => {
                if !std::mem::replace(&mut remote.wakes, true) {
                    self.timers.insert(remote.not_before, Due::Remote(remote_key));
                }
                return Refusal::Blocked(item, Blocker::Remote(remote_key));
            }
            Some(_) if waits => Fault::Limit { name: WAITING, limit: limit as u64 },
            Some(remote) => {
                Fault::Unreachable { endpoint: remote.endpoint.to_string(), why: remote.last_error.clone() }
            }
            None => Fault::NoRoute { what: "endpoint".into() },
        };
        self.drop_item(item);
        Refusal::Fault(fault)
    }

    /// It may be dialled again: those in line try.
    pub(crate) fn wake_remote(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        if let Some(remote) = self.remotes.table.find_mut(remote_key) {
            remote.wakes = false;
        }
        self.serve_line(turn, remote_key);
    }

    fn dial(&mut self, now: Instant, remote_key: RemoteKey, lane: LaneIndex) {
        let peer = self.new_outgoing_peer(now, remote_key, lane);
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        remote.lanes[lane as usize] = Lane::Dialling(peer);
        let (connection, is_known) = (Dialled::Native(peer), remote.is_open_natively());
        self.dials.push_back(Dial { connection, endpoint: Arc::clone(&remote.endpoint), is_known });
    }

    /// A dialled connection said hello: those in line go on.
    pub(crate) fn lane_open(
        &mut self,
        turn: &mut Turn<'_>,
        remote_key: RemoteKey,
        lane: LaneIndex,
        peer: PeerKey,
    ) {
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        remote.lanes[lane as usize] = Lane::Open(peer);
        remote.connected(Speaks::Native);
        self.serve_line(turn, remote_key);
    }

    /// A connection ended or never came about. Calls on it are ended by whoever noticed; those in line go another way,
    /// or fail here if there is none.
    ///
    /// `silent`: whoever answers there has not shown that it speaks the native protocol, so it may well speak gRPC.
    pub(crate) fn lane_lost(
        &mut self,
        turn: &mut Turn<'_>,
        remote_key: RemoteKey,
        lane: LaneIndex,
        peer: PeerKey,
        why: &str,
        silent: bool,
    ) {
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        let lost = remote.lanes[lane as usize];
        if lost != Lane::Open(peer) && lost != Lane::Dialling(peer) {
            return;
        }
        remote.lanes[lane as usize] = Lane::Idle;
        let is_daemon = remote.is_open_natively();
        self.ask_names_of(remote_key);
        if lost == Lane::Open(peer) {
            // Another program may listen there by now. To ask again costs nothing.
            if !is_daemon {
                self.remotes.unlearn(remote_key);
            }
            return;
        }
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        if silent && !is_daemon {
            remote.speaks = Speaks::Grpc;
        } else {
            self.dial_failed(turn.now, remote_key, why);
        }
        self.serve_line(turn, remote_key);
    }

    /// The lane's connection turned out to be something else.
    pub(crate) fn lane_given_up(&mut self, remote_key: RemoteKey, lane: LaneIndex) {
        if let Some(remote) = self.remotes.table.find_mut(remote_key) {
            remote.lanes[lane as usize] = Lane::Idle;
        }
    }

    /// No dialling for a while, longer each time.
    pub(crate) fn dial_failed(&mut self, now: Instant, remote_key: RemoteKey, why: &str) {
        let Remotes { table, jitter, .. } = &mut self.remotes;
        let Some(remote) = table.find_mut(remote_key) else { return };
        remote.last_error = why.to_owned();
        remote.not_before = now.plus_ns(jitter.spread(remote.pause_ns()));
        remote.failures = remote.failures.saturating_add(1);
    }

    /// Tries every call in line once: each goes, fails, or joins the line again.
    pub(crate) fn serve_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        for key in std::mem::take(&mut remote.waiting) {
            if self.waits_for_remote(key) {
                self.unblock(turn, key, Direction::Request);
            }
        }
    }

    pub(crate) fn waits_for_remote(&self, key: CallKey) -> bool {
        self.calls.find(key).is_some_and(|call| matches!(call.server, ServerEnd::Cluster { .. }))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that an endpoint whose connection is there can be reached, whatever became of a further one.
    use super::*;
    use crate::GrpcKey;

    #[test]
    fn a_connection_that_cannot_be_made_says_nothing_about_those_there_are() {
        let (now, later) = (Instant(1), Instant(1 + PAUSE_MAX_NS));
        let mut remotes = Remotes::default();
        let native = remotes.intern("tcp://10.0.0.7:80", 9).unwrap();
        let r2p2 = remotes.intern("r2p2://10.0.0.7:80", 9).unwrap();
        let both = |remote: &Remote, now| {
            [LaneIndex::Small, LaneIndex::Bulk].map(|lane| remote.is_reachable(now, lane))
        };
        let remote = remotes.table.find_mut(native).unwrap();
        assert_eq!(both(remote, now), [true, true], "nobody has tried yet");
        remote.not_before = later;
        assert_eq!((both(remote, now), both(remote, later)), ([false, false], [true, true]));
        remote.lanes[LaneIndex::Small as usize] = Lane::Open(PeerKey::from_bits(1));
        remote.lanes[LaneIndex::Bulk as usize] = Lane::Dialling(PeerKey::from_bits(2));
        assert_eq!(both(remote, now), [true, false]);
        remote.speaks = Speaks::Grpc;
        assert_eq!(both(remote, now), [false, false]);
        remote.pool = Pool::of_open(GrpcKey::from_bits(3));
        assert_eq!(both(remote, now), [true, true]);
        let remote = remotes.table.find_mut(r2p2).unwrap();
        remote.not_before = later;
        assert_eq!(both(remote, now), [false, false], "it has not answered a greeting");
    }
}
