//! Connections of endpoints as they come and go: which are to be dialled, and what follows for the calls in line.
//!
//! [`Remotes`] is told what became of a connection, and answers what is to be done. `reach.rs` does it: it makes and
//! closes connections, and says whose calls in line go on.

use crate::remote::{Dial, Dialled, LaneConnection, LaneIndex, Remote, Remotes, Speaks};
use crate::{GrpcKey, PeerKey, RemoteKey};
use std::sync::Arc;
use trunkline_call::{Fault, Instant};

/// An endpoint's wish for other connections is heard again after so long.
const REDIAL_NS: u64 = 100_000_000;

/// What is to be done about a native connection that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneOpened {
    /// Nobody has its endpoint any more: it is to be closed.
    Unwanted,
    /// It has its lane, and this one has it no more.
    Replaces(PeerKey),
    /// It has its lane.
    First,
}

/// What is to be done about a native connection that ended or never came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneLost {
    /// Nothing: it does not have the lane, or nobody has the endpoint any more.
    NotItsLane,
    /// Nobody was in line for it; the endpoint may go.
    WasOpen,
    /// Calls in line go another way.
    WasDialled,
}

impl Remotes {
    /// Nobody is to be dialled there for a while. A call that is ready to wait does, if it may: it goes on when that
    /// instant comes, for which nobody has set a timer yet.
    ///
    /// # Errors
    /// What ends the call.
    pub fn back_off(
        &mut self,
        remote: RemoteKey,
        ready: Option<Result<(), Fault>>,
    ) -> Result<Option<Instant>, Fault> {
        let Some(remote) = self.find_mut(remote) else {
            return Err(Fault::NoRoute { what: "endpoint".into() });
        };
        let unreachable =
            || Fault::Unreachable { endpoint: remote.endpoint.to_string(), why: remote.last_error.clone() };
        ready.unwrap_or_else(|| Err(unreachable()))?;
        let is_awaited = std::mem::replace(&mut remote.wakes, true);
        Ok((!is_awaited).then_some(remote.not_before))
    }

    /// It may be dialled again.
    pub fn wake(&mut self, remote: RemoteKey) {
        if let Some(remote) = self.find_mut(remote) {
            remote.wakes = false;
        }
    }

    /// A native connection is up.
    pub fn handle_lane_open(&mut self, remote: RemoteKey, lane: LaneIndex, peer: PeerKey) -> LaneOpened {
        let Some(remote) = self.find_mut(remote) else { return LaneOpened::Unwanted };
        let before = std::mem::replace(&mut remote.lanes[lane as usize], LaneConnection::Open(peer));
        remote.connected(Speaks::Native);
        match before {
            LaneConnection::Open(before) => LaneOpened::Replaces(before),
            LaneConnection::Idle | LaneConnection::Dialling(_) => LaneOpened::First,
        }
    }

    /// A native connection ended or never came about; `silent`: whoever answers there has not shown that it speaks the
    /// native protocol, so it may well speak gRPC.
    pub fn handle_lane_lost(
        &mut self,
        now: Instant,
        (key, lane, peer): (RemoteKey, LaneIndex, PeerKey),
        why: &str,
        silent: bool,
    ) -> LaneLost {
        let Some(remote) = self.find_mut(key) else { return LaneLost::NotItsLane };
        let lost = remote.lanes[lane as usize];
        if lost != LaneConnection::Open(peer) && lost != LaneConnection::Dialling(peer) {
            return LaneLost::NotItsLane;
        }
        remote.lanes[lane as usize] = LaneConnection::Idle;
        let is_daemon = remote.is_open_natively();
        let was_open = lost == LaneConnection::Open(peer);
        let is_grpc = !was_open && silent && !is_daemon;
        if is_grpc {
            remote.speaks = Speaks::Grpc;
        }
        self.ask_names_of(key);
        if was_open {
            // Another program may listen there by now. To ask again costs nothing.
            if !is_daemon {
                self.unlearn(key);
            }
            return LaneLost::WasOpen;
        }
        if !is_grpc {
            self.dial_failed(now, key, why);
        }
        LaneLost::WasDialled
    }

    /// A connection that was dialled as native is this one, which speaks gRPC. Another than the one the lane goes by is
    /// none of its affair.
    pub fn handle_lane_speaks_grpc(
        &mut self,
        remote: RemoteKey,
        lane: LaneIndex,
        (peer, grpc): (PeerKey, GrpcKey),
    ) {
        let Some(remote) = self.find_mut(remote) else { return };
        remote.speaks = Speaks::Grpc;
        remote.pool.dialling.get_or_insert(grpc);
        if remote.dials(lane, peer) {
            remote.lanes[lane as usize] = LaneConnection::Idle;
        }
    }

    /// A connection of a pool is up.
    pub fn handle_pooled_ready(&mut self, remote: RemoteKey, key: GrpcKey) {
        if let Some(remote) = self.find_mut(remote) {
            remote.connected(Speaks::Grpc);
            remote.pool.dialled(key);
        }
    }

    /// A connection of a pool takes no new calls.
    pub fn handle_pooled_leaving(&mut self, now: Instant, remote_key: RemoteKey, key: GrpcKey) {
        let Some(remote) = self.find_mut(remote_key) else { return };
        remote.pool.open.retain(|open| *open != key);
        if remote.pool.dialling == Some(key) && !remote.pool.excuse_dialling() {
            self.dial_failed(now, remote_key, "it takes connections and leaves at once");
        }
    }

    /// A connection of a pool ended, or never came about. `false` if nobody has the endpoint any more.
    pub fn handle_pooled_lost(
        &mut self,
        now: Instant,
        remote_key: RemoteKey,
        key: GrpcKey,
        why: &str,
    ) -> bool {
        self.ask_names_of(remote_key);
        let Some(remote) = self.find_mut(remote_key) else { return false };
        remote.pool.open.retain(|open| *open != key);
        if remote.pool.dialling == Some(key) {
            remote.pool.dialling = None;
            self.dial_failed(now, remote_key, why);
        }
        true
    }

    /// Forgets that an endpoint speaks gRPC when no connection shows it any more: a daemon that answered nothing when
    /// it was asked, or was older then, is found out when it is dialled next. Whether that was so.
    pub fn unlearn_unused(&mut self, remote_key: RemoteKey) -> bool {
        let remote = self.find(remote_key);
        let is_unused = remote.is_some_and(|remote| remote.speaks == Speaks::Grpc && remote.pool.is_unused());
        if is_unused {
            self.unlearn(remote_key);
        }
        is_unused
    }

    /// A connection is to be made that is to have this lane.
    pub fn dial_lane(&mut self, remote: RemoteKey, lane: LaneIndex, peer: PeerKey) {
        let Some(remote) = self.find_mut(remote) else { return };
        remote.lanes[lane as usize] = LaneConnection::Dialling(peer);
        let (connection, is_known) = (Dialled::Native(peer), remote.is_open_natively());
        let endpoint = Arc::clone(&remote.endpoint);
        self.dial(Dial { connection, endpoint, is_known });
    }

    /// A connection that was being dialled for this lane in another process is dialled anew: whatever was known of its
    /// endpoint, to ask again costs nothing. `false` if it was not being dialled.
    pub fn dial_lane_anew(&mut self, remote: RemoteKey, lane: LaneIndex, peer: PeerKey) -> bool {
        let remote = self.find(remote).filter(|remote| remote.dials(lane, peer));
        let Some(endpoint) = remote.map(|remote| Arc::clone(&remote.endpoint)) else { return false };
        self.dial(Dial { connection: Dialled::Native(peer), endpoint, is_known: false });
        true
    }

    /// The endpoint to dial in place of a connection, if that has its lane and [`REDIAL_NS`] allows another.
    pub fn redial(
        &mut self,
        now: Instant,
        remote: RemoteKey,
        lane: LaneIndex,
        peer: PeerKey,
    ) -> Option<Arc<str>> {
        let remote = self.find_mut(remote)?;
        if remote.lanes[lane as usize] != LaneConnection::Open(peer) || remote.redial_not_before > now {
            return None;
        }
        remote.redial_not_before = now.plus_ns(REDIAL_NS);
        Some(Arc::clone(&remote.endpoint))
    }

    /// Whether calls are in line for a pool. Every call touches its connection several times; there is seldom a line.
    pub fn has_pool_line(&self, remote: RemoteKey) -> bool {
        let has_line = |remote: &Remote| remote.speaks == Speaks::Grpc && remote.waiting.len() > 0;
        self.find(remote).is_some_and(has_line)
    }

    /// The endpoint to dial for one more connection of a pool, one at a time, if the limit and the last failure allow
    /// it.
    pub fn grow_pool(&self, now: Instant, remote: RemoteKey, connections_max: usize) -> Option<Arc<str>> {
        let remote = self.find(remote)?;
        let has_all = remote.pool.is_dialling() || remote.pool.open.len() >= connections_max;
        (!has_all && remote.not_before <= now).then(|| Arc::clone(&remote.endpoint))
    }

    /// A connection is to be made that joins a pool.
    pub fn dial_pooled(&mut self, remote: RemoteKey, endpoint: Arc<str>, peer: GrpcKey) {
        self.dial(Dial { connection: Dialled::Grpc(peer), endpoint, is_known: true });
        if let Some(remote) = self.find_mut(remote) {
            remote.pool.dialling = Some(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what follows from a connection that comes, goes, or never was.
    use super::*;

    #[test]
    fn a_connection_is_told_by_its_lane() {
        let (now, lane) = (Instant(1), LaneIndex::Small);
        let mut remotes = Remotes::default();
        let remote = remotes.intern("tcp://10.0.0.7:80", 9).unwrap();
        let [first, second, third] = [1, 2, 3].map(PeerKey::from_bits);
        remotes.dial_lane(remote, lane, first);
        assert!(remotes.poll_dial().is_some_and(|dial| dial.connection == Dialled::Native(first)));
        assert_eq!(remotes.handle_lane_open(remote, lane, first), LaneOpened::First);
        assert!(remotes.redial(now, remote, lane, second).is_none(), "it has not the lane");
        assert!(remotes.redial(now, remote, lane, first).is_some());
        assert!(remotes.redial(now, remote, lane, first).is_none(), "too soon");
        assert_eq!(remotes.handle_lane_open(remote, lane, second), LaneOpened::Replaces(first));
        let mut lost = |peer, silent| remotes.handle_lane_lost(now, (remote, lane, peer), "gone", silent);
        assert_eq!((lost(first, false), lost(second, false)), (LaneLost::NotItsLane, LaneLost::WasOpen));
        assert_eq!(lost(second, false), LaneLost::NotItsLane, "once");
        remotes.dial_lane(remote, lane, third);
        assert!(!remotes.dial_lane_anew(remote, lane, second) && remotes.dial_lane_anew(remote, lane, third));
        let lost = remotes.handle_lane_lost(now, (remote, lane, third), "silent", true);
        let speaks = remotes.find(remote).map(|remote| remote.speaks);
        assert_eq!((lost, speaks), (LaneLost::WasDialled, Some(Speaks::Grpc)));
        assert!(remotes.unlearn_unused(remote) && !remotes.unlearn_unused(remote));
    }

    #[test]
    fn a_pool_grows_one_connection_at_a_time() {
        let mut remotes = Remotes::default();
        let remote = remotes.intern("tcp://10.0.0.7:80", 9).unwrap();
        let grow = |remotes: &Remotes| remotes.grow_pool(Instant(1), remote, 2);
        for number in [1, 2] {
            let endpoint = grow(&remotes).unwrap();
            remotes.dial_pooled(remote, endpoint, GrpcKey::from_bits(number));
            assert_eq!(grow(&remotes), None, "one is being dialled");
            remotes.handle_pooled_ready(remote, GrpcKey::from_bits(number));
        }
        assert_eq!(grow(&remotes), None, "the limit");
        assert!(remotes.handle_pooled_lost(Instant(1), remote, GrpcKey::from_bits(1), "gone"));
        assert!(grow(&remotes).is_some());
    }
}
