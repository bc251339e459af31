//! Messages that cross to another shard: private copies, for which their senders pay until they are used.

use super::crossing::{CrossedBody, Payer, ShardIndex};
use super::links::{ShardLine, ShardLinks};
use super::origin::payer_of;
use crate::SessionKey;
use crate::call::{Body, Call, Direction, Item};
use crate::convert::{private, seal};
use crate::convert_error::conversion_fault;
use crate::ends::{Blocker, Refusal};
use crate::grpc::GrpcEnds;
use crate::heaps::Heaps;
use crate::held::Holding;
use crate::invariants::Invariants;
use crate::limits::Limits;
use crate::owners::Owners;
use crate::peers::PeerEnds;
use crate::registry::{MethodTypes, Registry};
use crate::sessions::SessionEnds;
use std::sync::Arc;
use trunkline_call::Fault;
use trunkline_call::entry::Payload;

/// The owners that an item concerns which crosses.
pub(super) struct CrossingOwners<'e> {
    pub shards: &'e mut ShardLinks,
    pub sessions: &'e mut SessionEnds,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
    pub registry: &'e Registry,
    pub invariants: &'e mut Invariants,
    pub limits: &'e Limits,
}

impl<'e> CrossingOwners<'e> {
    /// These of all owners.
    #[inline]
    pub fn of(owners: &'e mut Owners) -> Self {
        let Owners { shards, sessions, peers, grpc, registry, invariants, limits, .. } = owners;
        Self { shards, sessions, peers, grpc, registry, invariants, limits }
    }

    /// The same owners, lent on. Where that is rare, nobody has them together in memory before.
    #[inline(always)]
    fn lent(&mut self) -> CrossingOwners<'_> {
        let Self { shards, sessions, peers, grpc, registry, invariants, limits } = self;
        CrossingOwners { shards, sessions, peers, grpc, registry, invariants, limits }
    }

    /// The message of an item that crosses now, if it has one: a private copy of it, which its sender pays for until it
    /// is used.
    #[inline(always)]
    pub fn cross(
        &mut self,
        heaps: &dyn Heaps,
        (call, direction): (&mut Call, Direction),
        to: ShardIndex,
        item: &Item<'_>,
        copy: &mut Option<Box<CrossedBody>>,
    ) -> Result<(), Refusal> {
        if self.shards.is_full(to) {
            return Err(Refusal::Blocked(Blocker::Shard(ShardLine::Link(to))));
        }
        let len = match item.body() {
            // Nearly always.
            Some(&Body::Lent { session, payload }) => {
                *copy = Some(self.cross_lent(heaps, direction, session, payload)?);
                payload.span.len
            }
            Some(body) => {
                *copy = Some(self.lent().cross_other(heaps, call, direction, body)?);
                body.len()
            }
            None => {
                *copy = None;
                return Ok(());
            }
        };
        call.half(direction).count(len);
        Ok(())
    }

    /// The same of a message that lies in a session's heap, which gets its block back.
    #[inline(always)]
    fn cross_lent(
        &mut self,
        heaps: &dyn Heaps,
        direction: Direction,
        session: SessionKey,
        payload: Payload,
    ) -> Result<Box<CrossedBody>, Refusal> {
        let (payer, bytes) = (Payer::Session(session), u64::from(payload.span.len));
        self.charge(payer, bytes)?;
        let mut copy = self.shards.bodies.take();
        if let Err(error) = seal(heaps, session, payload.span, &mut copy.bytes) {
            self.shards.discharge(payer, bytes);
            return Err(Refusal::Fault(conversion_fault(error, direction)));
        }
        (copy.encoding, copy.compression) = (payload.encoding, payload.compression);
        (copy.charged, copy.from, copy.payer) = (payload.window_bytes(), self.shards.own(), payer);
        self.sessions.give_back(session, payload.span);
        Ok(copy)
    }

    /// The same of any other.
    fn cross_other(
        mut self,
        heaps: &dyn Heaps,
        call: &Call,
        direction: Direction,
        body: &Body<'_>,
    ) -> Result<Box<CrossedBody>, Refusal> {
        // What comes from one shard and goes to another is paid for already.
        if let Body::Crossed(crossed) = body {
            return Ok(crossed.clone());
        }
        let lent = body.lent();
        let payer = match lent {
            Some((session, _)) => Some(Payer::Session(session)),
            None => payer_of(call, direction),
        };
        let payer = payer.ok_or(Refusal::Fault(Fault::Ended))?;
        let bytes = crossing_bytes(body);
        self.charge(payer, bytes)?;
        match self.private_copy(heaps, call, direction, payer, body) {
            Ok(crossed) => {
                if crossed.bytes.len() as u64 != bytes {
                    self.invariants.note("a message crosses with the bytes its sender is charged");
                }
                if let Some((session, payload)) = lent {
                    self.sessions.give_back(session, payload.span);
                }
                Ok(crossed)
            }
            Err(fault) => {
                self.shards.discharge(payer, bytes);
                Err(Refusal::Fault(fault))
            }
        }
    }

    /// So many bytes of a sender cross, if they may.
    #[inline(always)]
    fn charge(&mut self, payer: Payer, bytes: u64) -> Result<(), Refusal> {
        let Self { shards, sessions, peers, grpc, limits, .. } = self;
        let whose = || {
            let holding = match payer {
                Payer::Session(session) => sessions.find(session).map(|session| &session.holding),
                Payer::Peer(peer) => peers.find(peer).map(|peer| &peer.holding),
                Payer::Grpc(peer) => grpc.find(peer).map(|peer| &peer.holding),
                Payer::R2p2 => None,
            };
            holding.map_or_else(Holding::default, Holding::for_the_same)
        };
        let may_cross = shards.charge_if_room(payer, bytes, limits.parked_bytes_per_session, whose);
        if may_cross { Ok(()) } else { Err(Refusal::Blocked(Blocker::Shard(ShardLine::Sender(payer)))) }
    }

    fn private_copy(
        &mut self,
        heaps: &dyn Heaps,
        call: &Call,
        direction: Direction,
        payer: Payer,
        body: &Body<'_>,
    ) -> Result<Box<CrossedBody>, Fault> {
        // What a session lends has its header.
        let is_headerless = matches!(body, Body::Wire { .. });
        let types = if is_headerless { sent_types(call, direction) } else { None };
        let sent = types.as_ref().map(|types| types.of(direction));
        let mut copy = self.shards.bodies.take();
        copy.encoding = private(heaps, sent, body, &mut copy.bytes)
            .map_err(|error| conversion_fault(error, direction))?;
        (copy.charged, copy.compression) = (body.window_cost(), body.compression());
        (copy.from, copy.payer) = (self.shards.own(), payer);
        Ok(copy)
    }
}

/// Bytes of a body's private copy: a linear message has its header there.
fn crossing_bytes(body: &Body<'_>) -> u64 {
    let header = if let Body::Wire { encoding, .. } = body { Body::header_bytes(*encoding) } else { 0 };
    u64::from(body.len()) + u64::from(header)
}

/// The types of the messages of one direction, if anybody knows them.
pub(super) fn sent_types(call: &Call, direction: Direction) -> Option<Arc<MethodTypes>> {
    let known = call.sender_types(direction);
    if direction == Direction::Response {
        // What a peer sends back without its header is of the type that its caller told it.
        return known.or_else(|| call.receiver_types(direction));
    }
    if known.is_some() {
        return known;
    }
    // A peer that was told them later than it has sent this: it holds them all the same.
    let agreed = || {
        let receiver = call.receiver_types(direction)?;
        let same = call.offered.is_some_and(|[request, _]| request == receiver.input.fingerprint());
        same.then_some(receiver)
    };
    call.agreed.clone().or_else(agreed)
}
