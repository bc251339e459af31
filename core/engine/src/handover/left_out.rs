//! What of a state this program does not go on with, because it is stricter than the one that wrote it, or because it
//! does not hold together: whoever it belongs to ends, everybody else goes on. Only what belongs to nobody has the
//! whole state refused.

use super::sound::{connection_is_sound, session_is_sound};
use crate::call::{Calls, ClientEnd, ServerEnd};
use crate::peers::PeerEnds;
use crate::registry::Registry;
use crate::session::Route;
use crate::sessions::SessionEnds;
use crate::{CallKey, PeerKey, SessionKey};
use std::collections::{BTreeMap, HashMap};

/// Sessions and connections to end, from the taking over to the going on. As many at most as there are.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    sessions: HashMap<SessionKey, LeftOutReason>,
    peers: Vec<(PeerKey, String)>,
}

/// A session that does not go on, to be told so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutSession {
    /// Its key.
    pub session: SessionKey,
    /// Its application.
    pub label: String,
    /// Why.
    pub reason: LeftOutReason,
}

/// Why a session does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOutReason {
    /// A schema it has bound, by its place among those that were given, does not define a type it uses.
    #[error("{message}, which it has bound, is no message for this program")]
    Schema {
        /// The schema.
        schema: usize,
        /// The full name.
        message: String,
    },
    /// Its part of the state contradicts itself.
    #[error("what was handed over of it contradicts itself")]
    Unsound,
}

impl LeftOut {
    /// A connection ends.
    pub fn connection(&mut self, key: PeerKey, why: &str) {
        self.peers.push((key, why.to_owned()));
    }

    /// Sessions that use types which are `unknown` here, by number, end.
    pub fn untyped(
        &mut self,
        unknown: &BTreeMap<u64, LeftOutReason>,
        sessions: &SessionEnds,
        registry: &Registry,
    ) {
        if unknown.is_empty() {
            return;
        }
        for (key, session) in sessions.iter() {
            let mut types = session.routes.iter().filter_map(|route| match route {
                Route::Calls { types, .. } => Some(types),
                Route::Serves => None,
            });
            let reason = types.find_map(|types| unknown.get(&types.number));
            reason.into_iter().for_each(|reason| self.note(key, reason));
        }
        for (_, server) in registry.every_server() {
            let reason = unknown.get(&server.types.number);
            reason.into_iter().for_each(|reason| self.note(server.session, reason));
        }
    }

    /// Sessions and connections that do not hold together end.
    pub fn unsound(&mut self, sessions: &mut SessionEnds, peers: &PeerEnds, registry: &Registry) {
        for (key, session) in sessions.iter_mut() {
            if !session_is_sound(session, registry) {
                session.routes.retain(|route| match route {
                    Route::Calls { method, .. } => registry.knows(*method),
                    Route::Serves => true,
                });
                self.note(key, &LeftOutReason::Unsound);
            }
        }
        for (key, peer) in peers.iter() {
            if !connection_is_sound(peer) {
                self.connection(key, "messages that arrive are longer than any");
            }
        }
    }

    /// Why a session ends, if it does.
    pub fn session(&self, key: SessionKey) -> Option<&LeftOutReason> {
        self.sessions.get(&key)
    }

    /// The connections that end, and why.
    pub fn into_connections(self) -> Vec<(PeerKey, String)> {
        self.peers
    }

    /// The sessions that end, to be told so.
    pub fn sessions_told(&self, sessions: &SessionEnds) -> Vec<LeftOutSession> {
        let told = sessions.iter().filter_map(|(key, session)| {
            let reason = self.session(key)?.clone();
            Some(LeftOutSession { session: key, label: session.label.clone(), reason })
        });
        told.collect()
    }

    /// The connections that end, by their labels, and why.
    pub fn connections_told(&self, peers: &PeerEnds) -> Vec<(String, String)> {
        let told = self.peers.iter();
        told.filter_map(|(key, why)| Some((peers.find(*key)?.label.clone(), why.clone()))).collect()
    }

    fn note(&mut self, key: SessionKey, reason: &LeftOutReason) {
        self.sessions.entry(key).or_insert_with(|| reason.clone());
    }
}

/// The calls on a connection, and whether its other end has made them.
pub(super) fn calls_over(calls: &Calls, key: PeerKey) -> Vec<(CallKey, bool)> {
    let over = calls.iter().filter_map(|(at, call)| match (&call.client, &call.server) {
        (ClientEnd::Peer { peer, .. }, _) if *peer == key => Some((at, true)),
        (_, ServerEnd::Peer { peer, .. }) if *peer == key => Some((at, false)),
        _ => None,
    });
    over.collect()
}
