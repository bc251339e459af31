//! What of a state this program does not go on with, because it is stricter than the one that wrote it, or because it
//! does not hold together: whoever it belongs to ends, everybody else goes on. Only what belongs to nobody has the whole
//! state refused.

use super::sound::{connection_is_sound, session_is_sound};
use crate::call::{Call, ClientEnd, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::session::Route;
use crate::table::Table;
use crate::{CallKey, PeerKey, SessionKey};
use std::collections::{BTreeMap, HashMap};
use trunkline_call::Fault;

/// Sessions and connections to end, from [`Engine::take_over`] to [`Engine::go_on_elsewhere`]. As many at most as there
/// are.
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
}

impl Engine {
    /// The sessions that do not go on here. To be asked between [`Engine::take_over`] and
    /// [`Engine::go_on_elsewhere`]: their memory is to be left behind.
    pub fn left_out(&self) -> Vec<LeftOutSession> {
        let left_out = self.sessions.iter().filter_map(|(key, session)| {
            let reason = self.left_out.sessions.get(&key)?.clone();
            Some(LeftOutSession { session: key, label: session.label.clone(), reason })
        });
        left_out.collect()
    }

    /// The name of a session's application, with its process.
    pub fn label_of(&self, key: SessionKey) -> String {
        self.sessions.find(key).map_or_else(String::new, |session| session.label.clone())
    }

    /// The connections that do not go on here, with why, in the same time.
    pub fn left_out_connections(&self) -> Vec<(String, String)> {
        let peers = self.left_out.peers.iter();
        peers.filter_map(|(key, why)| Some((self.peers.find(*key)?.label.clone(), why.clone()))).collect()
    }

    /// Leaves out the sessions that use types which are `unknown` here, by number.
    pub(super) fn leave_out_untyped(&mut self, unknown: &BTreeMap<u32, LeftOutReason>) {
        if unknown.is_empty() {
            return;
        }
        for (key, session) in self.sessions.iter() {
            let types = session.routes.iter().filter_map(|route| match route {
                Route::Calls { types, .. } => Some(types),
                Route::Serves => None,
            });
            let reason = types.filter_map(|types| unknown.get(&types.number)).next();
            reason.into_iter().for_each(|reason| self.left_out.note(key, reason));
        }
        for (_, server) in self.registry.every_server() {
            let reason = unknown.get(&server.types.number);
            reason.into_iter().for_each(|reason| self.left_out.note(server.session, reason));
        }
    }

    /// Leaves out sessions and connections that do not hold together.
    pub(super) fn leave_out_unsound(&mut self) {
        let Self { sessions, peers, registry, left_out, .. } = self;
        for (key, session) in sessions.iter_mut() {
            if !session_is_sound(session, registry) {
                session.routes.retain(|route| match route {
                    Route::Calls { method, .. } => registry.knows(*method),
                    Route::Serves => true,
                });
                left_out.note(key, &LeftOutReason::Unsound);
            }
        }
        for (key, peer) in peers.iter() {
            if !connection_is_sound(peer) {
                left_out.connection(key, "messages that arrive are longer than any");
            }
        }
    }

    /// Whether a session goes on here, as far as its state is concerned.
    pub(super) fn is_left_out(&self, key: SessionKey) -> bool {
        self.left_out.sessions.contains_key(&key)
    }

    /// Connections that are left out end, with the calls on them, of which they know nothing any more.
    pub(super) fn lose_left_out(&mut self, turn: &mut Turn<'_>) {
        for (key, why) in std::mem::take(&mut self.left_out).peers {
            let Some(endpoint) = self.peers.find(key).map(|peer| peer.label.clone()) else { continue };
            for (call, is_made_there) in calls_over(&self.calls, key) {
                match self.calls.find(call) {
                    Some(_) if is_made_there => self.cancel(turn, call),
                    Some(found) => {
                        let executed = found.execution();
                        let endpoint = endpoint.clone();
                        self.fail(turn, call, Fault::ConnectionLost { endpoint, executed });
                    }
                    None => {}
                }
            }
            self.peer_lost(turn, key, &why);
        }
    }
}

impl LeftOut {
    fn note(&mut self, key: SessionKey, reason: &LeftOutReason) {
        self.sessions.entry(key).or_insert_with(|| reason.clone());
    }
}

/// The calls on a connection, and whether its other end has made them.
fn calls_over(calls: &Table<Call>, key: PeerKey) -> Vec<(CallKey, bool)> {
    let over = calls.iter().filter_map(|(at, call)| match (&call.client, &call.server) {
        (ClientEnd::Peer { peer, .. }, _) if *peer == key => Some((at, true)),
        (_, ServerEnd::Peer { peer, .. }) if *peer == key => Some((at, false)),
        _ => None,
    });
    over.collect()
}
