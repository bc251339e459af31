//! Those who pay for what waits in calls: sessions, connections, and what waits for other shards.
//!
//! Which of them it is the call says ([`WaitCharge`]), and each of them counts for itself. [`WaitAccounts`] is lent
//! them, to have items charged and discharged of a call that somebody has at hand.

use crate::CallKey;
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::call_ends::WaitCharge;
use crate::grpc::GrpcEnds;
use crate::half::Backlog;
use crate::held::HeldBudget;
use crate::invariants::Invariants;
use crate::item::ItemWay;
use crate::limits::{ARRIVING, CROSSING, Limits};
use crate::peers::PeerEnds;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::source::CallSources;
use trunkline_call::Fault;

/// Those who pay.
pub(crate) struct WaitAccounts<'e> {
    pub sessions: &'e mut SessionEnds,
    pub peers: &'e mut PeerEnds,
    pub grpc: &'e mut GrpcEnds,
    pub shards: &'e mut ShardLinks,
    pub held: &'e mut HeldBudget,
    pub invariants: &'e mut Invariants,
    pub limits: &'e Limits,
}

impl WaitAccounts<'_> {
    /// Counts the bytes a waiting item makes the daemon hold against whoever pays for it.
    ///
    /// # Errors
    /// That one has too much already.
    pub fn charge(&mut self, way: ItemWay, call: &mut Call, item: &Item<'_>) -> Result<(), Fault> {
        let ItemWay { key, direction } = way;
        let Self { sessions, peers, grpc, shards, held, limits, .. } = self;
        let bytes = item.parked_bytes();
        match call.charge_for(direction, limits.is_large(bytes)) {
            WaitCharge::Nobody => Ok(()),
            WaitCharge::Session(session) => {
                let bytes_max = limits.parked_bytes_per_session as u64;
                let source = |sessions: &SessionEnds| CallSources { sessions, peers, grpc }.of(call);
                sessions.hold_waiting(held, (key, session), bytes as u64, bytes_max, source)
            }
            WaitCharge::Answer(session) => {
                let bytes_max = limits.assembling_bytes_per_peer;
                call.response.large_waits |= sessions.hold_answer(held, session, bytes, bytes_max)?;
                Ok(())
            }
            WaitCharge::Native(peer) => {
                if peers.hold_waiting(peer, bytes) {
                    call.half(direction).large_of = Some(peer);
                }
                Ok(())
            }
            WaitCharge::Grpc(peer) => grpc.hold(peer, item.body().map_or(0, Body::uncharged_bytes)),
            WaitCharge::Crossing => {
                let limit = limits.parked_bytes_per_session;
                let fits = shards.park(bytes, limit);
                if fits { Ok(()) } else { Err(Fault::Limit { name: CROSSING, limit: limit as u64 }) }
            }
        }
    }

    /// An item that waited in a call does so no more, and nobody pays for it.
    pub fn discharge(&mut self, key: CallKey, call: &Call, direction: Direction, item: &Item<'_>) {
        let bytes = item.parked_bytes();
        match call.charge_of(direction, self.limits.is_large(bytes)) {
            WaitCharge::Nobody => {}
            WaitCharge::Session(session) => {
                self.sessions.release_waiting((self.held, self.invariants), (key, session), bytes as u64);
            }
            WaitCharge::Answer(session) => {
                self.sessions.release_answer((self.held, self.invariants), session, bytes);
            }
            WaitCharge::Native(peer) => self.peers.release_waiting(self.held, peer, bytes),
            WaitCharge::Grpc(peer) => {
                self.grpc.hold_less(peer, item.body().map_or(0, Body::uncharged_bytes));
            }
            WaitCharge::Crossing => self.shards.unpark(bytes),
        }
    }

    /// Takes out what waits as items in one direction of a call.
    pub fn take_backlog(&mut self, key: CallKey, call: &mut Call, direction: Direction) -> Backlog {
        let backlog = std::mem::take(&mut call.half(direction).backlog);
        backlog.iter().for_each(|item| self.discharge(key, call, direction, item));
        backlog
    }

    /// Charges an item that is kept until the rest of its message has come to the connection it came from.
    ///
    /// # Errors
    /// More is kept for that one already than may.
    pub fn keep(&mut self, call: &Call, direction: Direction, item: &Item<'_>) -> Result<(), Fault> {
        let (limit, bytes) = (self.limits.assembling_bytes_per_peer, item.parked_bytes());
        let native = call.native_sender(direction).and_then(|peer| self.peers.find_mut(peer));
        match (native, call.grpc_sender(direction), item.body()) {
            (Some(peer), ..) if peer.assembling_bytes + bytes > limit => {
                Err(Fault::Limit { name: ARRIVING, limit: limit as u64 })
            }
            (Some(peer), ..) => peer.hold(self.held, bytes),
            // Without what still takes of the stream's window, and what is counted with its stream.
            (None, Some(at), Some(body)) => self.grpc.hold(at.peer, body.uncharged_bytes()),
            _ => Ok(()),
        }
    }

    /// Whether a session sends in this direction that may send another message as it is.
    pub fn may_send_on(&self, call: &Call, direction: Direction) -> bool {
        let sender = match (direction, &call.client, &call.server) {
            (Direction::Request, ClientEnd::Session { session, .. }, _)
            | (Direction::Response, _, ServerEnd::Session { session, .. }) => self.sessions.find(*session),
            _ => None,
        };
        let window = sender.map(|session| i64::from(session.told.stream_window_bytes(self.limits)));
        window.is_some_and(|window| call.half_of(direction).charged < window)
    }

    /// Takes out what is kept so of a direction; nobody is charged with it any more.
    pub fn take_kept(&mut self, call: &mut Call, direction: Direction) -> Option<Item<'static>> {
        let kept = call.half(direction).gathered.take()?;
        match (call.native_sender(direction), call.grpc_sender(direction), kept.body()) {
            (Some(peer), ..) => self.peers.release_waiting(self.held, peer, kept.parked_bytes()),
            (None, Some(at), Some(body)) => self.grpc.hold_less(at.peer, body.uncharged_bytes()),
            _ => {}
        }
        Some(*kept)
    }

    /// Takes out all that waits in one direction of a call, and gives its part of its receiver's heap back.
    pub fn take_all(
        &mut self,
        key: CallKey,
        call: &mut Call,
        direction: Direction,
    ) -> impl Iterator<Item = Item<'static>> + use<> {
        let kept = self.take_kept(call, direction);
        let backlog = self.take_backlog(key, call, direction);
        if let Some((session, bytes)) = call.half(direction).share.end() {
            self.sessions.streams_hold_less(self.invariants, session, bytes);
        }
        kept.into_iter().chain(backlog)
    }
    /// Takes out all that waits in a call, which has the ends it waits for.
    pub fn take_waiting(
        &mut self,
        key: CallKey,
        call: &mut Call,
    ) -> impl Iterator<Item = Item<'static>> + use<> {
        let request = self.take_all(key, call, Direction::Request);
        request.chain(self.take_all(key, call, Direction::Response))
    }
}
