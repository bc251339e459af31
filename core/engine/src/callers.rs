//! Who makes a call, for sessions that have asked to be told. Each delivered call of theirs costs a look at its
//! metadata and some bytes more; the calls of others cost nothing.

use crate::SessionKey;
use crate::call::ClientEnd;
use crate::engine::Engine;
use trunkline_call::{Caller, Metadata};

impl Engine {
    /// Has a session told who makes the calls delivered to it, in metadata that no caller can set: see
    /// [`trunkline_call::CALLER_KEY`].
    pub fn tell_callers(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.find_mut(key) {
            session.told_callers = true;
        }
    }

    /// A call's metadata with who makes it, whatever it says of that itself.
    pub(crate) fn naming_caller(&self, client: &ClientEnd, metadata: &[u8]) -> Vec<u8> {
        // It was read when the call came in; what cannot be read is nobody's to believe.
        let mut decoded = Metadata::decode(metadata).unwrap_or_default();
        decoded.remove(trunkline_call::CALLER_KEY);
        if let Some(caller) = self.caller(client) {
            caller.put_into(&mut decoded);
        }
        let mut named = Vec::with_capacity(decoded.encoded_len());
        decoded.encode(&mut named);
        named
    }

    /// Who makes a call. `None` of a copy, which nobody makes, and where the caller has gone.
    fn caller(&self, client: &ClientEnd) -> Option<Caller> {
        match client {
            ClientEnd::Session { session, .. } => {
                let session = self.sessions.find(*session)?;
                Some(Caller::application(&session.label, &session.identity))
            }
            // Attempts are made of calls, not of attempts.
            ClientEnd::Attempt { call, .. } => match &self.calls.find(*call)?.client {
                ClientEnd::Attempt { .. } => None,
                client => self.caller(client),
            },
            ClientEnd::Mirror { .. } => None,
            ClientEnd::Peer { peer, .. } => {
                let peer = self.peers.find(*peer)?;
                let node = peer.connection.peer().map_or_else(String::new, |said| said.node_name.to_string());
                Some(Caller::Daemon { address: peer.label.clone(), node })
            }
            ClientEnd::Grpc { peer, .. } => {
                let peer = self.grpc_peers.find(*peer)?;
                Some(Caller::Grpc {
                    address: peer.label.clone(),
                    identity: peer.identity.proven().to_owned(),
                    encrypted: peer.identity.encrypted,
                })
            }
            ClientEnd::R2p2 { request } => Some(Caller::R2p2 { address: Self::r2p2_label(request.client()) }),
        }
    }
}
