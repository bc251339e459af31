//! Who makes a call, in the words that go to another shard with it, and who pays for what crosses.

use super::crossing::{Origin, Payer};
use crate::CallKey;
use crate::call::{ClientEnd, Direction, ServerEnd};
use crate::callers::caller;
use crate::engine::Engine;
use std::sync::Arc;

/// Who makes a call, for the shard it goes to.
pub(crate) fn origin_of(engine: &mut Engine, key: CallKey) -> Option<Arc<Origin>> {
    let call = engine.calls.find(key)?;
    Some(match &call.client {
        ClientEnd::Session { session, .. } => {
            let session = *session;
            engine
                .sessions
                .find_mut(session)
                .map_or_else(|| Arc::new(Origin::Gone), |found| Arc::clone(found.origin()))
        }
        ClientEnd::Shard { origin, .. } => Arc::clone(origin),
        _ => Arc::new(Origin::of(caller(engine, call))),
    })
}

/// Who pays for the messages of a call that cross in this direction: whoever sends them.
pub(super) fn payer_of(engine: &Engine, key: CallKey, direction: Direction) -> Option<Payer> {
    let call = engine.calls.find(key)?;
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
