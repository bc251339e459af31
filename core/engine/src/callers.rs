//! Who makes a call, and what the session that serves it is told with its opening.

use crate::call::{Call, ClientEnd};
use crate::engine::Engine;
use crate::opaque;
use crate::r2p2::label_of;
use crate::registry::MethodTypes;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use trunkline_call::{Caller, Metadata};

/// An opening's metadata for a session, which serves it by these types: with who makes the call, if it is told
/// that, and of a service that is served as a whole the path before it.
#[inline(always)]
pub(crate) fn words<'i>(
    engine: &Engine,
    key: CallKey,
    to: SessionKey,
    types: &MethodTypes,
    metadata: &'i [u8],
) -> Cow<'i, [u8]> {
    let told = engine.sessions.find(to).is_some_and(|session| session.told_callers);
    if !told && !types.whole_service {
        return Cow::Borrowed(metadata);
    }
    let Some(call) = engine.calls.find(key) else { return Cow::Borrowed(metadata) };
    let metadata =
        if told { Cow::Owned(naming_caller(engine, call, metadata)) } else { Cow::Borrowed(metadata) };
    if !types.whole_service {
        return metadata;
    }
    let path = call.path.as_deref().unwrap_or_else(|| engine.registry.path(call.method));
    Cow::Owned(opaque::named(path, &metadata))
}

/// A call's metadata with who makes it, whatever it says of that itself.
fn naming_caller(engine: &Engine, call: &Call, metadata: &[u8]) -> Vec<u8> {
    // It was read when the call came in; what cannot be read is nobody's to believe.
    let mut decoded = Metadata::decode(metadata).unwrap_or_default();
    decoded.remove(trunkline_call::CALLER_KEY);
    if let Some(caller) = caller(engine, call) {
        caller.put_into(&mut decoded);
    }
    let mut named = Vec::with_capacity(decoded.encoded_len());
    decoded.encode(&mut named);
    named
}

/// Who makes a call. `None` of a copy, which nobody makes, and where the caller has gone.
pub(crate) fn caller(engine: &Engine, call: &Call) -> Option<Caller> {
    match &call.client {
        ClientEnd::Session { session, .. } => {
            let session = engine.sessions.find(*session)?;
            Some(Caller::application(&session.label, &session.identity))
        }
        // Attempts are made of calls, not of attempts.
        ClientEnd::Attempt { call, .. } => match engine.calls.find(*call)? {
            Call { client: ClientEnd::Attempt { .. }, .. } => None,
            call => caller(engine, call),
        },
        ClientEnd::Mirror { .. } => None,
        ClientEnd::Peer { peer, .. } => {
            let peer = engine.peers.find(*peer)?;
            let node = peer.connection.peer().map_or_else(String::new, |said| said.node_name.to_string());
            let (address, identity) = (peer.label.clone(), peer.identity.proven().to_owned());
            let vouched = call.caller.as_deref().cloned().map(Box::new);
            Some(Caller::Daemon { address, node, identity, vouched })
        }
        ClientEnd::Grpc { peer, .. } => {
            let peer = engine.grpc.find(*peer)?;
            Some(Caller::Grpc {
                address: peer.label.clone(),
                identity: peer.identity.proven().to_owned(),
                encrypted: peer.identity.encrypted,
            })
        }
        ClientEnd::R2p2 { request } => Some(Caller::R2p2 { address: label_of(request.client()) }),
        ClientEnd::Shard { origin, .. } => origin.caller(),
    }
}
