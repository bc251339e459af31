//! What policies and the access log may know of a call, from those who own its ends.

use crate::admission::{AccessRecord, CallFacts};
use crate::call::{Call, ClientEnd, Item, ServerEnd};
use crate::gateway::Gateway;
use crate::gateway_client::APPLICATION;
use crate::r2p2::label_of;
use crate::registry::{Form, MessageType, Registry};
use crate::session::Session;
use crate::source::CallSources;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Fault, Instant, VouchedCaller};

impl<'e> CallSources<'e> {
    /// What policies may know of a call, whose message has these types.
    pub fn facts(
        self,
        call: &'e Call,
        registry: &'e Registry,
        types: [Option<MessageType>; 2],
    ) -> CallFacts<'e> {
        let maker = call.maker().and_then(|(session, _)| self.sessions.find(session));
        let handler = call.handler().and_then(|session| self.sessions.find(session));
        let mut facts = CallFacts {
            applications: [applicant(call, maker), application(call, handler)],
            peer_address: Cow::Borrowed(""),
            peer_identity: "",
            caller: None,
            path: call.path.as_deref().unwrap_or(registry.path(call.method)),
            deadline: call.deadline,
            types,
        };
        match call.client {
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => {}
            ClientEnd::R2p2 { request } => facts.peer_address = label_of(request.client()).into(),
            ClientEnd::Session { .. } => {
                facts.peer_identity = maker.map_or("", |session| &*session.identity);
                facts.caller = maker.map(|session| &*session.caller);
            }
            ClientEnd::Shard { ref origin, .. } => {
                let (address, identity) = origin.address_and_identity();
                (facts.peer_address, facts.peer_identity) = (address.into(), identity);
                facts.caller = origin.described();
            }
            ClientEnd::Peer { peer, .. } => {
                if let Some(peer) = self.peers.find(peer) {
                    facts.peer_address = peer.label.as_str().into();
                    facts.peer_identity = peer.identity.proven();
                }
                facts.caller = call.caller.as_deref();
            }
            ClientEnd::Grpc { peer, .. } => {
                if let Some(peer) = self.grpc.find(peer) {
                    facts.peer_address = peer.label.as_str().into();
                    facts.peer_identity = peer.identity.proven();
                }
            }
        }
        facts
    }

    /// The line of the access log about a call that has ended, if it has one.
    pub fn access_record(
        self,
        now: Instant,
        call: &Call,
        registry: &Registry,
        code: Code,
    ) -> Option<AccessRecord> {
        let caller = match &call.client {
            ClientEnd::Session { session, .. } => self.sessions.find(*session)?.label.clone(),
            ClientEnd::Peer { peer, .. } => {
                let peer = self.peers.find(*peer)?;
                named(&peer.label, peer.identity.proven(), call.caller.as_deref())
            }
            ClientEnd::Grpc { peer, .. } => {
                let peer = self.grpc.find(*peer)?;
                named(&peer.label, peer.identity.proven(), None)
            }
            // Attempts and copies are not logged; the call they are made for is.
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => return None,
            ClientEnd::R2p2 { request } => label_of(request.client()),
            // Its own shard writes the line, unless only policies here want one.
            ClientEnd::Shard { logged: true, .. } => return None,
            ClientEnd::Shard { origin, .. } if origin.is_elsewhere() => {
                named(origin.label(), origin.address_and_identity().1, origin.described())
            }
            ClientEnd::Shard { origin, .. } => origin.label().to_owned(),
        };
        Some(AccessRecord {
            path: match &call.path {
                Some(path) => path.clone().into(),
                None => Arc::clone(registry.path(call.method)),
            },
            caller,
            code,
            duration_ns: now.since_ns(call.entered(now)),
            request_bytes: call.request.bytes,
            response_bytes: call.response.bytes,
        })
    }
}

/// The types of a message policies look at, as it was sent and as the server has it; none if nobody knows what was
/// sent.
///
/// # Errors
/// It cannot become one of the server's.
pub(crate) fn types_to_read(
    gateway: &Gateway,
    call: &Call,
    item: &Item<'_>,
) -> Result<[Option<MessageType>; 2], Fault> {
    if let ServerEnd::Session { types, .. } = &call.server
        && !call.bridgeable(types, item)
    {
        let why = "the server that shared the caller's schema is gone".into();
        return Err(Fault::SchemaMismatch { why });
    }
    let typed = |form| match form {
        Form::Typed(of) => Some(of),
        Form::Opaque => None,
    };
    let served = match &call.server {
        ServerEnd::Session { types, .. } => typed(types.input.clone()),
        _ => None,
    };
    // What comes from an end that knows no type is protobuf, and of the server's type if of any.
    let sent = gateway.request_form(call).and_then(typed).or_else(|| served.clone());
    Ok([sent, served])
}

/// A caller from elsewhere in the access log: its address, who it has proved to be, and who calls by its word.
fn named(address: &str, identity: &str, vouched: Option<&VouchedCaller>) -> String {
    let vouched = vouched.map(|caller| format!(": {caller}"));
    match (identity, vouched.unwrap_or_default()) {
        ("", _) => address.to_owned(),
        (identity, vouched) => format!("{address} ({identity}{vouched})"),
    }
}

/// What policies know the application at an end of a call by.
fn application<'s>(call: &Call, session: Option<&'s Session>) -> &'s str {
    match session {
        Some(session) => session.application(),
        None if call.is_forwarded() => APPLICATION,
        None => "",
    }
}

/// The same of the one that makes a call: it may be on another shard by now.
fn applicant<'s>(call: &'s Call, maker: Option<&'s Session>) -> &'s str {
    match &call.client {
        ClientEnd::Shard { origin, .. } if call.has_moved() => origin.application(),
        _ => application(call, maker),
    }
}
