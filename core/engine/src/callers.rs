//! Who makes a call, and what the session that serves it is told with its opening.

use crate::call::{Call, ClientEnd};
use crate::lent_call::LentCall;
use crate::opaque;
use crate::r2p2::label_of;
use crate::registry::Registry;
use crate::source::CallSources;
use std::borrow::Cow;
use trunkline_call::Caller;

/// An opening's metadata for a session: with who makes the call, if it is `told` that, and of a service that is served
/// as a whole the path before it.
#[cold]
pub(crate) fn words(
    (lent, sources): (&LentCall<'_>, CallSources<'_>),
    registry: &Registry,
    (told, whole_service): (bool, bool),
    metadata: &[u8],
) -> Vec<u8> {
    let metadata = if told {
        // Whatever it says of that itself.
        let caller = lent.made_for().and_then(|made| sources.caller(made));
        Cow::Owned(Caller::named_in(caller.as_ref(), metadata))
    } else {
        Cow::Borrowed(metadata)
    };
    if !whole_service {
        return metadata.into_owned();
    }
    let path = lent.call.path.as_deref().unwrap_or_else(|| registry.path(lent.call.method));
    opaque::named(path, &metadata)
}

impl CallSources<'_> {
    /// Who makes a call. `None` of a copy, which nobody makes, and where the caller has gone; of an attempt whoever
    /// makes [its call](LentCall::made_for) is asked.
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
