//! Who makes a call, and what the session that serves it is told with its opening.

use crate::call::{Call, ClientEnd};
use crate::engine::Engine;
use crate::opaque;
use crate::r2p2::label_of;
use crate::registry::MethodTypes;
use crate::source::{CallSources, made_for};
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
    let Engine { calls, sessions, peers, grpc, registry, .. } = engine;
    let told = sessions.find(to).is_some_and(|session| session.told_callers);
    if !told && !types.whole_service {
        return Cow::Borrowed(metadata);
    }
    let Some(call) = calls.find(key) else { return Cow::Borrowed(metadata) };
    let metadata = if told {
        let made = made_for(calls, call);
        let caller = made.and_then(|made| CallSources { sessions, peers, grpc }.caller(made));
        Cow::Owned(naming(caller, metadata))
    } else {
        Cow::Borrowed(metadata)
    };
    if !types.whole_service {
        return metadata;
    }
    let path = call.path.as_deref().unwrap_or_else(|| registry.path(call.method));
    Cow::Owned(opaque::named(path, &metadata))
}

/// A call's metadata with who makes it, whatever it says of that itself.
fn naming(caller: Option<Caller>, metadata: &[u8]) -> Vec<u8> {
    // It was read when the call came in; what cannot be read is nobody's to believe.
    let mut decoded = Metadata::decode(metadata).unwrap_or_default();
    decoded.remove(trunkline_call::CALLER_KEY);
    if let Some(caller) = caller {
        caller.put_into(&mut decoded);
    }
    let mut named = Vec::with_capacity(decoded.encoded_len());
    decoded.encode(&mut named);
    named
}

impl CallSources<'_> {
    /// Who makes a call. `None` of a copy, which nobody makes, and where the caller has gone; of an attempt whoever
    /// makes [its call](made_for) is asked.
    pub fn caller(&self, call: &Call) -> Option<Caller> {
        match &call.client {
            ClientEnd::Session { session, .. } => {
                let session = self.sessions.find(*session)?;
                Some(Caller::application(&session.label, &session.identity))
            }
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => None,
            ClientEnd::Peer { peer, .. } => {
                let peer = self.peers.find(*peer)?;
                let node = peer.connection.peer().map_or_else(String::new, |said| said.node_name.to_string());
                let (address, identity) = (peer.label.clone(), peer.identity.proven().to_owned());
                let vouched = call.caller.as_deref().cloned().map(Box::new);
                Some(Caller::Daemon { address, node, identity, vouched })
            }
            ClientEnd::Grpc { peer, .. } => {
                let peer = self.grpc.find(*peer)?;
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
}
