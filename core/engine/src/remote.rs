//! Endpoints of other daemons: dialled when first needed, kept, dialled again after a pause when lost.

use crate::call::{Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::observe::{RemoteRow, RemoteState};
use crate::pass::{Blocker, Refusal};
use crate::table::Table;
use crate::{CallKey, PeerKey, RemoteKey};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use trunkline_call::{Fault, Instant};

/// The two connections of an endpoint. Calls with large requests take the bulk lane, so that a small call never shares
/// a socket buffer with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneIndex {
    Small = 0,
    Bulk = 1,
}

/// An endpoint to connect to, for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// The peer this connection will be, to be named in [`Engine::handle_dialled`].
    pub peer: PeerKey,
    /// `tcp://host:port` or `unix:path`.
    pub endpoint: Arc<str>,
}

/// One endpoint.
#[derive(Debug)]
pub struct Remote {
    pub(crate) endpoint: Arc<str>,
    lanes: [Lane; 2],
    /// Calls that wait for a connection, in order.
    waiting: VecDeque<CallKey>,
    failures: u32,
    /// No dialling before this instant; calls meanwhile fail with `last_error`.
    not_before: Instant,
    last_error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    table: Table<Remote>,
    by_endpoint: HashMap<Arc<str>, RemoteKey>,
    by_service: HashMap<String, (Vec<RemoteKey>, usize)>,
}

impl Remotes {
    /// The endpoint's key, made if new; `None` at the limit.
    pub fn intern(&mut self, endpoint: &str, limit: usize) -> Option<RemoteKey> {
        if let Some(key) = self.by_endpoint.get(endpoint) {
            return Some(*key);
        }
        if self.table.len() >= limit {
            return None;
        }
        let endpoint: Arc<str> = endpoint.into();
        let key = self.table.insert(Remote {
            endpoint: Arc::clone(&endpoint),
            lanes: [Lane::Idle; 2],
            waiting: VecDeque::new(),
            failures: 0,
            not_before: Instant::default(),
            last_error: String::new(),
        });
        self.by_endpoint.insert(endpoint, key);
        Some(key)
    }

    pub fn configure(&mut self, service: &str, remotes: Vec<RemoteKey>) {
        self.by_service.insert(service.to_owned(), (remotes, 0));
    }

    /// A configured endpoint of the service, round-robin.
    pub fn of_service(&mut self, service: &str) -> Option<RemoteKey> {
        let (remotes, next) = self.by_service.get_mut(service)?;
        let picked = remotes.get(*next % remotes.len().max(1)).copied();
        *next = next.wrapping_add(1);
        picked
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
}

impl Remote {
    fn state(&self) -> RemoteState {
        let any = |what: fn(&Lane) -> bool| self.lanes.iter().any(what);
        if any(|lane| matches!(lane, Lane::Open(_))) {
            RemoteState::Ready
        } else if any(|lane| matches!(lane, Lane::Dialling(_))) {
            RemoteState::Connecting
        } else if self.failures > 0 {
            RemoteState::Failing
        } else {
            RemoteState::Idle
        }
    }

    fn pause_ns(&self) -> u64 {
        (PAUSE_MIN_NS << self.failures.min(10)).min(PAUSE_MAX_NS)
    }
}

impl Engine {
    /// A call for an endpoint: over the open connection of its lane, or in line until there is one.
    pub(crate) fn hand_to_remote<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: Item<'a>,
    ) -> Result<(), Refusal<'a>> {
        let bulk = item.body().is_some_and(|body| body.len() > self.limits.bulk_body_bytes);
        let lane = if bulk { LaneIndex::Bulk } else { LaneIndex::Small };
        let waiting_max = self.limits.calls_waiting_per_endpoint;
        let Some(remote) = self.remotes.table.find_mut(remote_key) else {
            self.drop_item(item);
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        match remote.lanes[lane as usize] {
            Lane::Open(peer) => return self.open_at_peer(turn, key, peer, item),
            Lane::Dialling(_) if remote.waiting.len() < waiting_max => {}
            Lane::Dialling(_) => {
                self.drop_item(item);
                let limit = waiting_max as u64;
                return Err(Refusal::Fault(Fault::Limit { name: "calls waiting for a connection", limit }));
            }
            Lane::Idle if remote.not_before > turn.now => {
                let (endpoint, why) = (remote.endpoint.to_string(), remote.last_error.clone());
                self.drop_item(item);
                return Err(Refusal::Fault(Fault::Unreachable { endpoint, why }));
            }
            Lane::Idle => self.dial(turn.now, remote_key, lane),
        }
        Err(Refusal::Blocked(item, Blocker::Remote(remote_key)))
    }

    fn dial(&mut self, now: Instant, remote_key: RemoteKey, lane: LaneIndex) {
        let peer = self.new_outgoing_peer(now, remote_key, lane);
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        remote.lanes[lane as usize] = Lane::Dialling(peer);
        self.dials.push_back(Dial { peer, endpoint: Arc::clone(&remote.endpoint) });
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
        remote.failures = 0;
        self.serve_line(turn, remote_key);
    }

    /// A connection ended or never came about. Calls on it are ended by whoever noticed; those in line fail here if
    /// nothing is left to wait for.
    pub(crate) fn lane_lost(
        &mut self,
        turn: &mut Turn<'_>,
        remote_key: RemoteKey,
        lane: LaneIndex,
        peer: PeerKey,
        why: &str,
    ) {
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        let lost = remote.lanes[lane as usize];
        if lost != Lane::Open(peer) && lost != Lane::Dialling(peer) {
            return;
        }
        remote.lanes[lane as usize] = Lane::Idle;
        if lost == Lane::Open(peer) {
            return;
        }
        remote.last_error = why.to_owned();
        remote.not_before = turn.now.plus_ns(remote.pause_ns());
        remote.failures = remote.failures.saturating_add(1);
        self.serve_line(turn, remote_key);
    }

    /// Tries every call in line once: each goes, fails, or joins the line again.
    fn serve_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.remotes.table.find_mut(remote_key) else { return };
        for key in std::mem::take(&mut remote.waiting) {
            let waits =
                self.calls.find(key).is_some_and(|call| matches!(call.server, ServerEnd::Remote { .. }));
            if waits {
                self.unblock(turn, key, Direction::Request);
            }
        }
    }
}
