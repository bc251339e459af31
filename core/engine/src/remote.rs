//! Endpoints of other daemons: dialled when first needed, kept, dialled again after a pause when lost.

use crate::names::Names;
use crate::r2p2_remote::R2p2Remote;
use crate::registry::MethodKey;
use crate::snapshot::{RemoteRow, RemoteState, SLOTS_PER_PART, TableRows};
use crate::table::Table;
use crate::waiting_line::{WaitingLine, may_join};
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey};
use core::net::SocketAddrV4;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use trunkline_call::Instant;

/// The two connections of an endpoint. Calls with large requests take the bulk lane, so that a small call never shares
/// a socket buffer with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum LaneIndex {
    Small = 0,
    Bulk = 1,
}

impl LaneIndex {
    /// The lane a call takes that opens with so many bytes, if it has any, and bulk are those above others.
    pub fn of(body_bytes: Option<u32>, bulk_bytes: u32) -> Self {
        if body_bytes.is_some_and(|bytes| bytes > bulk_bytes) { Self::Bulk } else { Self::Small }
    }
}

/// An endpoint to connect to, for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// What this connection will be. Where TLS is spoken, ALPN has the last word
    /// ([`crate::Engine::dialled_speaks_grpc`]).
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
    pub(crate) lanes: [LaneConnection; 2],
    #[serde(skip)]
    pub(crate) pool: Pool,
    /// Reached over R2P2: instead of lanes and pool.
    pub(crate) r2p2: Option<R2p2Remote>,
    /// Calls that wait for a connection.
    pub(crate) waiting: WaitingLine,
    failures: u32,
    /// No dialling before this instant; calls meanwhile fail with `last_error`.
    pub(crate) not_before: Instant,
    pub(crate) last_error: String,
    /// Before this instant, what it says of other connections is not heard.
    #[serde(skip)]
    pub(crate) redial_not_before: Instant,
    /// A timer is set for `not_before`: calls that are ready to wait are in line.
    pub(crate) wakes: bool,
    /// Only names and targets of applications brought it up: it goes when no name stands for it and no application has
    /// it any more.
    #[serde(rename = "named_only")]
    passing: bool,
    /// It is among those that may go.
    #[serde(skip)]
    is_unwanted: bool,
}

/// How many calls may wait in a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineLimits {
    /// About so many of each source, by the limits of the host.
    pub each: usize,
    /// So many of all, by policy.
    pub all: usize,
}

/// The connections of an endpoint that speaks gRPC.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Those that are up and not leaving.
    pub open: Vec<GrpcKey>,
    pub dialling: Option<GrpcKey>,
    /// A peer took a connection and left before it was up, and none was up since.
    left_early: bool,
}

impl Pool {
    /// With one connection.
    #[cfg(test)]
    pub fn of_open(peer: GrpcKey) -> Self {
        Self { open: vec![peer], ..Self::default() }
    }

    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub fn is_unused(&self) -> bool {
        self.open.is_empty() && self.dialling.is_none()
    }

    pub fn is_dialling(&self) -> bool {
        self.dialling.is_some()
    }

    /// What is dialled leaves before it is up. Whether that says nothing of the endpoint: a peer that leaves in good
    /// order, as one that is replaced does, is no peer that cannot be reached. It counts once, until one is up again.
    pub fn excuse_dialling(&mut self) -> bool {
        self.dialling = None;
        !std::mem::replace(&mut self.left_early, true)
    }

    /// What was dialled is up.
    pub fn dialled(&mut self, key: GrpcKey) {
        self.dialling = self.dialling.filter(|dialling| *dialling != key);
        self.open.push(key);
        self.left_early = false;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum LaneConnection {
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
    /// The call that was in a line last: it has tried to go on since, or does so now.
    #[serde(skip)]
    going_on: Option<CallKey>,
    #[serde(skip)]
    pub jitter: Jitter,
    /// Of endpoints nobody has called yet.
    #[serde(skip)]
    speaks_at_first: Speaks,
    /// Passing ones that may have nobody any more.
    #[serde(skip)]
    unwanted: Vec<RemoteKey>,
    /// To be dialled by the host.
    #[serde(skip)]
    dials: VecDeque<Dial>,
    /// Addresses reached over R2P2 that are endpoints no more, for as long as it takes to say so.
    #[serde(skip)]
    forgotten: Vec<SocketAddrV4>,
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
        moved.dials = std::mem::take(&mut self.dials);
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
        let key = self.known(endpoint).or_else(|| self.insert(endpoint, limit))?;
        if let Some(remote) = self.table.find_mut(key) {
            remote.passing = false;
        }
        Some(key)
    }

    /// An endpoint's key, if it is known.
    pub fn known(&self, endpoint: &str) -> Option<RemoteKey> {
        self.by_endpoint.get(endpoint).copied()
    }

    /// An endpoint that an application has bound: known before, or made and to be forgotten with the last that has it.
    pub fn intern_bound(&mut self, endpoint: &str, limit: usize) -> Option<RemoteKey> {
        self.known(endpoint).or_else(|| self.insert(endpoint, limit))
    }

    /// Nobody has a route to an endpoint any more.
    pub fn release(&mut self, key: RemoteKey) {
        if let Some(remote) = self.table.find_mut(key).filter(|remote| remote.passing)
            && !std::mem::replace(&mut remote.is_unwanted, true)
        {
            self.unwanted.push(key);
        }
    }

    /// Of endpoints that were handed over, those go that nothing has: no configured service, no application, no name.
    pub fn find_unbound(
        &mut self,
        is_configured: impl Fn(RemoteKey) -> bool,
        is_bound: impl Fn(RemoteKey) -> bool,
    ) {
        let Self { table, unwanted, .. } = self;
        unwanted.clear();
        for (key, remote) in table.iter_mut() {
            remote.passing = !is_configured(key);
            remote.is_unwanted = remote.passing && !is_bound(key);
            if remote.is_unwanted {
                unwanted.push(key);
            }
        }
    }

    /// Forgets endpoints that may go, once nothing goes there and no name stands for them. Those with connections that
    /// are to be closed first.
    pub fn forget_unwanted(
        &mut self,
        is_bound: impl Fn(RemoteKey) -> bool,
        is_there: impl Fn(CallKey) -> bool,
    ) -> Vec<RemoteKey> {
        let mut connected = Vec::new();
        // A name that goes leaves what it stood for, which is no name.
        while let Some(key) = self.unwanted.pop() {
            let Some(remote) = self.table.find_mut(key) else { continue };
            remote.is_unwanted = false;
            if !remote.passing || is_bound(key) || self.names.stand_for(key) {
                continue;
            }
            remote.waiting.retain(&is_there);
            if remote.is_unused() {
                self.forget(key);
            } else {
                connected.push(key);
            }
        }
        connected.iter().for_each(|key| self.release(*key));
        connected
    }

    /// The next address reached over R2P2 that was forgotten.
    pub fn poll_forgotten(&mut self) -> Option<SocketAddrV4> {
        self.forgotten.pop()
    }

    fn forget(&mut self, key: RemoteKey) {
        let Some(remote) = self.table.remove(key) else { return };
        self.forgotten.extend(remote.r2p2.map(|r2p2| r2p2.target));
        self.by_endpoint.remove(&remote.endpoint);
        // What only this name stood for may go, too.
        self.names.remove(key, &remote.endpoint).into_iter().for_each(|endpoint| self.release(endpoint));
    }

    fn insert(&mut self, endpoint: &str, limit: usize) -> Option<RemoteKey> {
        if self.table.len() >= limit {
            return None;
        }
        let r2p2 = R2p2Remote::of(endpoint);
        let endpoint: Arc<str> = endpoint.into();
        let key = self.table.insert(Remote {
            endpoint: Arc::clone(&endpoint),
            speaks: if r2p2.is_some() { Speaks::R2p2 } else { self.speaks_at_first },
            lanes: [LaneConnection::Idle; 2],
            pool: Pool::default(),
            r2p2,
            waiting: WaitingLine::default(),
            failures: 0,
            not_before: Instant::default(),
            last_error: String::new(),
            redial_not_before: Instant::default(),
            wakes: false,
            passing: true,
            is_unwanted: false,
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
        self.known(endpoint).or_else(|| self.insert(endpoint, limit))
    }

    /// The name written so, if it is one and known.
    pub fn named(&self, text: &str) -> Option<RemoteKey> {
        self.by_endpoint.get(text).copied().filter(|key| self.names.contains(*key))
    }

    /// What is known of methods that are forgotten is forgotten, too.
    pub fn forget_methods(&mut self, knows: impl Fn(MethodKey) -> bool) {
        let over_r2p2 = self.table.iter_mut().filter_map(|(_, remote)| remote.r2p2.as_mut());
        over_r2p2.for_each(|r2p2| r2p2.forget(&knows));
    }

    /// A call of this source waits for a connection. `waits` says of those that do whether they still do.
    pub fn line_up(
        &mut self,
        remote: RemoteKey,
        call: CallKey,
        source: Arc<str>,
        waits: impl Fn(CallKey) -> bool,
    ) {
        if let Some(remote) = self.table.find_mut(remote) {
            remote.waiting.leave_if_over(waits);
            remote.waiting.push(source, call);
        }
    }

    /// Takes a call out of the line whose turn it is.
    pub fn next_in_line(&mut self, remote: RemoteKey) -> Option<CallKey> {
        self.table.find_mut(remote)?.waiting.pop()
    }

    /// A call that was in a line tries to go on.
    pub fn goes_on(&mut self, call: CallKey) {
        self.going_on = Some(call);
    }

    /// Whether one more call may wait in a line.
    pub fn has_room_in_line(
        &self,
        remote: RemoteKey,
        call: CallKey,
        limits: LineLimits,
        source: impl FnOnce() -> Arc<str>,
    ) -> bool {
        let line = self.table.find(remote).map(|remote| &remote.waiting);
        line.filter(|line| line.len() < limits.all)
            .is_some_and(|line| may_join(line, limits.each, self.going_on == Some(call), source))
    }

    /// The host is to dial.
    pub fn dial(&mut self, dial: Dial) {
        self.dials.push_back(dial);
    }

    /// What the host is to dial next.
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.dials.pop_front()
    }

    /// Whether the host is to dial, or to look a name up.
    pub fn has_to_connect(&self) -> bool {
        !self.dials.is_empty() || !self.names.wanted.is_empty()
    }

    /// Asks for a name, if it is one and nobody has been asked.
    pub fn ask_name(&mut self, key: RemoteKey) {
        if let Some(text) = self.table.find(key).map(|remote| Arc::clone(&remote.endpoint)) {
            self.names.ask(key, &text);
        }
    }

    /// An endpoint could not be reached, or was lost: those that know it by a name look again.
    pub fn ask_names_of(&mut self, endpoint: RemoteKey) {
        for key in self.names.of(endpoint) {
            self.ask_name(key);
        }
    }

    /// What a name stands for by now; the name's key if it is known, and whether it stands for others than before.
    pub fn looked_up(
        &mut self,
        name: &str,
        found: Result<&[String], &str>,
        limit: usize,
    ) -> Option<(RemoteKey, bool)> {
        let key = self.named(name)?;
        let known = match found {
            Ok([]) => Err("the name has no addresses".to_owned()),
            Ok(endpoints) => self.intern_all(endpoints, limit),
            Err(why) => Err(why.to_owned()),
        };
        let left = self.names.answer(key, known);
        let has_changed = left.is_some();
        left.into_iter().flatten().for_each(|endpoint| self.release(endpoint));
        Some((key, has_changed))
    }

    fn intern_all(&mut self, endpoints: &[String], limit: usize) -> Result<Vec<RemoteKey>, String> {
        let intern = |endpoint: &String| self.intern_named(endpoint, limit);
        let known: Vec<RemoteKey> = endpoints.iter().filter_map(intern).collect();
        if known.is_empty() { Err(format!("endpoints limit of {limit} reached")) } else { Ok(known) }
    }

    /// No dialling for a while, longer each time.
    pub fn dial_failed(&mut self, now: Instant, remote: RemoteKey, why: &str) {
        let Self { table, jitter, .. } = self;
        let Some(remote) = table.find_mut(remote) else { return };
        remote.last_error = why.to_owned();
        remote.not_before = now.plus_ns(jitter.spread(remote.pause_ns()));
        remote.failures = remote.failures.saturating_add(1);
    }

    /// As it was written, for people; empty if it is forgotten.
    pub fn label(&self, remote: RemoteKey) -> String {
        self.table.find(remote).map_or_else(String::new, |remote| remote.endpoint.to_string())
    }

    /// The connections that are up of an endpoint that speaks gRPC.
    pub fn pooled(&self, remote: RemoteKey) -> &[GrpcKey] {
        self.table.find(remote).map_or(&[], |remote| &remote.pool.open)
    }

    /// What is known of an endpoint that is reached over R2P2.
    pub fn r2p2_mut(&mut self, remote: RemoteKey) -> Option<&mut R2p2Remote> {
        self.table.find_mut(remote)?.r2p2.as_mut()
    }

    /// Where R2P2 is spoken behind an endpoint, if it is.
    pub fn r2p2_target(&self, remote: RemoteKey) -> Option<SocketAddrV4> {
        self.table.find(remote)?.r2p2.as_ref().map(|r2p2| r2p2.target)
    }

    pub fn find(&self, remote: RemoteKey) -> Option<&Remote> {
        self.table.find(remote)
    }

    /// What operators see of those in the next slots.
    pub fn snapshot(&self, from: usize) -> TableRows<RemoteRow> {
        let row = |(key, remote): (RemoteKey, &Remote)| RemoteRow {
            id: key.to_bits(),
            endpoint: Arc::clone(&remote.endpoint),
            state: remote.state(),
        };
        let (part, left) = self.table.part(from, SLOTS_PER_PART);
        TableRows::of((part.map(row), left))
    }

    /// Those that have answered over R2P2, with where that is.
    pub fn over_r2p2(&self) -> impl Iterator<Item = (RemoteKey, &Arc<str>, SocketAddrV4)> {
        self.table.iter().filter_map(|(key, remote)| {
            let r2p2 = remote.r2p2.as_ref().filter(|r2p2| r2p2.is_there())?;
            Some((key, &remote.endpoint, r2p2.target))
        })
    }

    pub fn find_mut(&mut self, remote: RemoteKey) -> Option<&mut Remote> {
        self.table.find_mut(remote)
    }
}

impl Remote {
    /// The connections of its lanes that are up.
    pub fn open_lanes(&self) -> impl Iterator<Item = PeerKey> {
        self.lanes
            .iter()
            .filter_map(|lane| if let LaneConnection::Open(peer) = lane { Some(*peer) } else { None })
    }

    fn state(&self) -> RemoteState {
        let any = |what: fn(&LaneConnection) -> bool| self.lanes.iter().any(what);
        let by_r2p2 = |what: fn(&R2p2Remote) -> bool| self.r2p2.as_ref().is_some_and(what);
        let open = any(|lane| matches!(lane, LaneConnection::Open(_))) || self.pool.is_open();
        let dialling = any(|lane| matches!(lane, LaneConnection::Dialling(_))) || self.pool.is_dialling();
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
        self.lanes[lane as usize] == LaneConnection::Dialling(peer)
    }

    /// Whether it has shown, by a connection that is there, that it speaks the native protocol.
    pub(crate) fn is_open_natively(&self) -> bool {
        self.lanes.iter().any(|lane| matches!(lane, LaneConnection::Open(_)))
    }

    fn is_unused(&self) -> bool {
        self.lanes == [LaneConnection::Idle; 2] && self.pool.is_unused() && self.waiting.len() == 0
    }

    /// Whether a call can be had there: over a connection of its kind that is there, or over one that may be made. That
    /// another connection could not be made says nothing about those there are.
    pub(crate) fn is_reachable(&self, now: Instant, lane: LaneIndex) -> bool {
        self.not_before <= now
            || match self.speaks {
                Speaks::Grpc => self.pool.is_open(),
                Speaks::R2p2 => self.r2p2.as_ref().is_some_and(R2p2Remote::is_there),
                Speaks::Native | Speaks::Unknown => {
                    matches!(self.lanes[lane as usize], LaneConnection::Open(_))
                }
            }
    }

    fn pause_ns(&self) -> u64 {
        (PAUSE_MIN_NS << self.failures.min(10)).min(PAUSE_MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that an endpoint whose connection is there can be reached, whatever became of a further one.
    use super::*;

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
        remote.lanes[LaneIndex::Small as usize] = LaneConnection::Open(PeerKey::from_bits(1));
        remote.lanes[LaneIndex::Bulk as usize] = LaneConnection::Dialling(PeerKey::from_bits(2));
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
