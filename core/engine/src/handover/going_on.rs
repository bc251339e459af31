//! What becomes of those that could not come along with a state, of what is on them, and of what waits here.

use super::left_out::calls_over;
use crate::call::{Call, Calls, ClientEnd, Direction, Item, ServerEnd};
use crate::due::Due;
use crate::end_event::EndEvent;
use crate::handover::awaited::{Awaited, WAIT_NS};
use crate::handover::left_out::LeftOut;
use crate::heaps::Heaps;
use crate::limits::Limits;
use crate::peers::PeerEnds;
use crate::r2p2::R2p2;
use crate::registry::Registry;
use crate::remote::Remotes;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::{CallKey, PeerKey, SessionKey};
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_call::{Code, Execution, Fault, Instant, TimerTable};

/// What the host could bring along.
pub struct Brought<'a> {
    /// Whether there is a socket for a connection.
    pub socket: &'a dyn Fn(PeerKey) -> bool,
    /// Whether there is memory for a session.
    pub memory: &'a dyn Fn(SessionKey) -> bool,
}

/// The owners of what came along, and of what did not.
pub(super) struct MovedOwners<'e> {
    pub sessions: &'e mut SessionEnds,
    pub peers: &'e mut PeerEnds,
    pub r2p2: &'e mut R2p2,
    pub remotes: &'e mut Remotes,
    pub calls: &'e mut Calls,
    pub shards: &'e mut ShardLinks,
    pub left_out: &'e mut LeftOut,
    pub awaited: &'e mut Awaited,
    pub timers: &'e mut TimerTable<Due>,
    pub registry: &'e Registry,
    pub limits: &'e Limits,
}

/// Sessions that serve nothing here.
pub(super) struct NotServing {
    /// Nobody takes the place of these.
    pub withdrawn: Vec<SessionKey>,
    /// The daemon's own, whose successors are waited for: nobody else may take their names meanwhile.
    pub awaited: Vec<SessionKey>,
}

/// A call over a connection that does not go on.
#[derive(Clone, Copy)]
pub(super) struct CallOver {
    pub call: CallKey,
    /// Whether the other end of the connection has made it.
    pub is_made_there: bool,
}

impl MovedOwners<'_> {
    /// The sessions that do not go on here.
    pub fn sessions_behind(&self, brought: &Brought<'_>) -> Vec<SessionKey> {
        let keys = self.sessions.iter().map(|(key, _)| key);
        keys.filter(|key| self.left_out.session(*key).is_some() || !(brought.memory)(*key)).collect()
    }

    /// These stay behind, and some the daemon before this one has waited for itself.
    pub fn stop_serving(&mut self, now: Instant, behind: &[SessionKey]) -> NotServing {
        let until = now.plus_ns(WAIT_NS);
        let gone = self.registry.every_server().map(|(_, server)| server.session);
        let gone: HashSet<SessionKey> = gone.filter(|key| self.sessions.find(*key).is_none()).collect();
        let all = behind.iter().copied().chain(gone);
        let (awaited, withdrawn) = all.partition(|key| self.registry.serves_for_the_house(*key));
        let stopped = NotServing { withdrawn, awaited };
        stopped.awaited.iter().for_each(|key| self.awaited.leave(*key, until));
        if self.awaited.is_active() {
            self.timers.insert(until, Due::Awaited);
        }
        stopped
    }

    /// What waits and what arrives is counted anew: another version may have counted otherwise.
    pub fn count_what_waits(&mut self, heaps: &dyn Heaps) {
        let large_bytes = self.limits.stream_window_bytes as usize;
        let Self { sessions, peers, calls, shards, .. } = self;
        shards.unpark(shards.parked_bytes());
        sessions.reset_counts();
        peers.count_assemblies(heaps, |session, bytes| {
            let session = sessions.find_mut(session)?;
            Some(session.arrives(bytes))
        });
        for (_, call) in calls.iter() {
            for direction in [Direction::Request, Direction::Response] {
                let half = call.half_of(direction);
                if let (Some(peer), Some(kept)) = (call.native_sender(direction), half.gathered.as_deref()) {
                    peers.hold_waiting(peer, kept.parked_bytes());
                }
                let session = call.receiver(direction);
                for bytes in half.backlog.iter().map(Item::parked_bytes) {
                    let is_large = bytes > large_bytes;
                    if let Some(peer) = half.large_of.filter(|_| is_large) {
                        peers.hold_waiting(peer, bytes);
                    } else if let Some(session) = session {
                        sessions.count_waiting(session, bytes, is_large && half.large_waits);
                    } else if call.crosses(direction) {
                        shards.park(bytes, usize::MAX);
                    }
                }
            }
        }
    }

    /// Receive heaps were made anew: their blocks have other names.
    pub fn rename_blocks(&mut self, heaps: &dyn Heaps) {
        self.calls.iter_mut().for_each(|(_, call)| call.rename_blocks(heaps));
        self.peers.rename_blocks(heaps);
    }

    /// The calls, of which some have an end that could not come along ([`MovedOwners::end_behind`]).
    pub fn calls_here(&mut self) -> Vec<CallKey> {
        self.r2p2.disown_strays();
        self.calls.iter().map(|(key, _)| key).collect()
    }

    /// How a call ends one of whose ends could not come along.
    pub fn end_behind(&self, key: CallKey) -> Option<EndEvent<'static>> {
        match left_behind(self.calls.find(key)?, self.r2p2)? {
            LeftBehind::Client => Some(EndEvent::Cancelled { call: key, code: Code::Cancelled }),
            LeftBehind::Server => {
                let endpoint = "a connection that stayed with the daemon before this one".to_owned();
                let fault = Fault::ConnectionLost { endpoint, executed: Execution::Unknown };
                Some(EndEvent::Failed { call: key, fault })
            }
        }
    }

    /// The connections that are left out, and why.
    pub fn take_left_out(&mut self) -> Vec<(PeerKey, String)> {
        std::mem::take(self.left_out).into_connections()
    }

    /// What a connection is called that is left out, and the calls on it, of which it knows nothing any more.
    pub fn over_left_out(&self, key: PeerKey) -> Option<(Arc<str>, Vec<CallOver>)> {
        let label = Arc::from(self.peers.find(key)?.label.as_str());
        let over = calls_over(self.calls, key).into_iter();
        Some((label, over.map(|(call, is_made_there)| CallOver { call, is_made_there }).collect()))
    }

    /// How a call ends over a connection that is left out.
    pub fn end_over(&self, endpoint: &str, over: CallOver) -> Option<EndEvent<'static>> {
        let CallOver { call: key, is_made_there } = over;
        let call = self.calls.find(key)?;
        if is_made_there {
            return Some(EndEvent::Cancelled { call: key, code: Code::Cancelled });
        }
        let fault = Fault::ConnectionLost { endpoint: endpoint.to_owned(), executed: call.execution() };
        Some(EndEvent::Failed { call: key, fault })
    }

    /// Whether a connection without a socket is dialled again: while it was being dialled nothing was said on it.
    pub fn dials_again(&mut self, key: PeerKey) -> bool {
        let lane = self.peers.find(key).and_then(|peer| peer.lane);
        lane.is_some_and(|(remote, lane)| self.remotes.dial_lane_anew(remote, lane, key))
    }

    /// Calls that wait for a worker. They begin again: who is free is this engine's to find out.
    pub fn queued(&self) -> Vec<CallKey> {
        self.calls.iter().filter(|(_, call)| call.queued.is_some()).map(|(key, _)| key).collect()
    }
}

/// The end of a call that could not come along.
enum LeftBehind {
    Client,
    Server,
}

fn left_behind(call: &Call, r2p2: &R2p2) -> Option<LeftBehind> {
    let client_left = match call.client {
        // Copies stay with who made them, too: nobody waits for them.
        ClientEnd::Grpc { .. } | ClientEnd::Mirror { .. } => true,
        ClientEnd::R2p2 { request } => !r2p2.can_answer(request),
        _ => false,
    };
    let server_left = match call.server {
        // Its end may be here and wait for the application to have room.
        ServerEnd::Grpc { .. } => !call.response.ended,
        ServerEnd::R2p2 { name, .. } => !r2p2.makes(name),
        _ => false,
    };
    let server_left = server_left.then_some(LeftBehind::Server);
    if client_left { Some(LeftBehind::Client) } else { server_left }
}
