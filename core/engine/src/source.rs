//! For whom a call is made, where room is shared: a user of this host or a tenant, an endpoint, the address of a peer.
//!
//! All of R2P2 is one source: nothing proves the address of a datagram. An attempt is made for whom its call is, and a
//! copy for nobody.

use crate::CallKey;
use crate::call::{Call, Calls, ClientEnd};
use crate::grpc::GrpcEnds;
use crate::held::source_of_peer;
use crate::peers::PeerEnds;
use crate::r2p2::label_of;
use crate::sessions::SessionEnds;
use crate::shard::Origin;
use std::sync::Arc;
use trunkline_balance::key_of;
use trunkline_telemetry::SpanSource;

const R2P2: &str = "r2p2";

/// Where it is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSources<'e> {
    pub sessions: &'e SessionEnds,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
}

impl CallSources<'_> {
    /// The source of a call; nobody's if it or who made it has gone.
    #[cold]
    pub fn of_key(&self, calls: &Calls, key: CallKey) -> Arc<str> {
        self.of_maker(made_for_key(calls, key))
    }

    /// The source of a call that somebody makes; nobody's if it has gone.
    #[cold]
    pub fn of_maker(&self, call: Option<&Call>) -> Arc<str> {
        call.map_or_else(|| "".into(), |call| self.of(call))
    }

    /// The source of a call; nobody's if who made it has gone. Of an attempt whoever makes [its call](made_for) is
    /// asked.
    #[cold]
    pub fn of(&self, call: &Call) -> Arc<str> {
        let booked = match &call.client {
            ClientEnd::Session { session, .. } => {
                self.sessions.find(*session).map(|session| &session.holding)
            }
            ClientEnd::Peer { peer, .. } => self.peers.find(*peer).map(|peer| &peer.holding),
            ClientEnd::Grpc { peer, .. } => self.grpc.find(*peer).map(|peer| &peer.holding),
            ClientEnd::R2p2 { .. } => return R2P2.into(),
            ClientEnd::Shard { origin, .. } => return source_of_origin(origin),
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => None,
        };
        booked.map_or_else(|| "".into(), |holding| Arc::clone(holding.source()))
    }

    /// By whom room for spans of a call of this method is shared: its source, and the application that makes it; where
    /// the other host does not say which that is, calls of one method are taken for those of one.
    #[cold]
    pub fn of_spans(&self, call: &Call, method: &str) -> SpanSource {
        let source = key_of(self.of(call).as_bytes());
        let (is_here, application) = match (&call.client, &call.caller) {
            (ClientEnd::Session { .. }, _) => (true, self.caller_of(call)),
            (_, Some(caller)) => (false, key_of(format!("{} {}", caller.identity, caller.name).as_bytes())),
            (_, None) => (false, key_of(method.as_bytes())),
        };
        SpanSource::new(is_here, source, application)
    }

    /// What a caller's sticky calls have in common: an application's process, or a peer's address.
    #[cold]
    pub fn caller_of(&self, call: &Call) -> u64 {
        let label = match &call.client {
            ClientEnd::Session { session, .. } => {
                self.sessions.find(*session).map(|session| session.label.as_str())
            }
            ClientEnd::Peer { peer, .. } => self.peers.find(*peer).map(|peer| peer.label.as_str()),
            ClientEnd::Grpc { peer, .. } => self.grpc.find(*peer).map(|peer| peer.label.as_str()),
            ClientEnd::R2p2 { request } => return key_of(label_of(request.client()).as_bytes()),
            ClientEnd::Shard { origin, .. } => Some(origin.label()),
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => None,
        };
        key_of(label.unwrap_or_default().as_bytes())
    }
}

/// The call that somebody makes: an attempt is made for another.
pub(crate) fn made_for<'c>(calls: &'c Calls, call: &'c Call) -> Option<&'c Call> {
    match call.client {
        ClientEnd::Attempt { call, .. } => calls.find(call),
        _ => Some(call),
    }
}

fn made_for_key(calls: &Calls, key: CallKey) -> Option<&Call> {
    calls.find(key).and_then(|call| made_for(calls, call))
}

/// Whether the answer to a call, or to the call it is an attempt of, is for a gRPC client: who cannot follow to another
/// process, and is waited for.
pub(crate) fn is_for_grpc_client(calls: &Calls, key: CallKey) -> bool {
    made_for_key(calls, key).is_some_and(Call::is_forwarded)
}

/// The source of a call from another shard.
fn source_of_origin(origin: &Origin) -> Arc<str> {
    match origin {
        Origin::Application { identity, .. } => (&**identity).into(),
        Origin::Daemon { address, .. } | Origin::Grpc { address, .. } => {
            source_of_peer(address, false).into()
        }
        Origin::R2p2 { .. } => R2P2.into(),
        Origin::Gone => "".into(),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a peer is one source whatever port it calls from, and all of R2P2 another.
    use super::*;

    #[test]
    fn callers_of_another_shard_are_told_apart_by_what_they_cannot_choose() {
        let daemon = |address: &str| Origin::Daemon {
            address: address.into(),
            node: "n".into(),
            identity: "".into(),
            vouched: None,
        };
        assert_eq!(
            source_of_origin(&daemon("tcp://10.0.0.1:4711")),
            source_of_origin(&daemon("tcp://10.0.0.1:4712"))
        );
        assert_ne!(
            source_of_origin(&daemon("tcp://10.0.0.1:4711")),
            source_of_origin(&daemon("tcp://10.0.0.2:4711"))
        );
        let r2p2 = |address: &str| Origin::R2p2 { address: address.into() };
        assert_eq!(
            source_of_origin(&r2p2("r2p2://10.0.0.1:1")),
            source_of_origin(&r2p2("r2p2://10.0.0.2:1"))
        );
    }
}
