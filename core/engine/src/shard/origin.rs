//! Who makes a call, in the words that go to another shard with it, and who pays for what crosses.

use super::crossing::{Origin, Payer};
use crate::call::{Call, ClientEnd, Direction, ServerEnd};
use crate::grpc::GrpcEnds;
use crate::peers::PeerEnds;
use crate::sessions::SessionEnds;
use crate::source::CallSources;
use std::sync::Arc;

/// Who makes a call, for the shard it goes to. Attempts go to none.
pub(super) fn origin_of(
    (sessions, peers, grpc): (&mut SessionEnds, &PeerEnds, &GrpcEnds),
    call: &Call,
) -> Arc<Origin> {
    match &call.client {
        ClientEnd::Session { session, .. } => sessions
            .find_mut(*session)
            .map_or_else(|| Arc::new(Origin::Gone), |found| Arc::clone(found.origin())),
        ClientEnd::Shard { origin, .. } => Arc::clone(origin),
        _ => Arc::new(Origin::of(CallSources { sessions, peers, grpc }.caller(call))),
    }
}

/// Who pays for the messages of a call that cross in this direction: whoever sends them.
pub(super) fn payer_of(call: &Call, direction: Direction) -> Option<Payer> {
    match (direction, &call.client) {
        (Direction::Response, _) => match call.server {
            ServerEnd::Session { session, .. } => Some(Payer::Session(session)),
            ServerEnd::Peer { peer, .. } => Some(Payer::Peer(peer)),
            ServerEnd::Grpc { peer, .. } => Some(Payer::Grpc(peer)),
            ServerEnd::R2p2 { .. } => Some(Payer::R2p2),
            ServerEnd::Nobody | ServerEnd::Cluster { .. } | ServerEnd::Attempts | ServerEnd::Shard { .. } => {
                None
            }
        },
        (Direction::Request, ClientEnd::Session { session, .. }) => Some(Payer::Session(*session)),
        (Direction::Request, ClientEnd::Peer { peer, .. }) => Some(Payer::Peer(*peer)),
        (Direction::Request, ClientEnd::Grpc { peer, .. }) => Some(Payer::Grpc(*peer)),
        (Direction::Request, ClientEnd::R2p2 { .. }) => Some(Payer::R2p2),
        (
            Direction::Request,
            ClientEnd::Shard { .. } | ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. },
        ) => None,
    }
}
