//! What services there are, for those who tell others: health checks, reflection.

use crate::engine::Engine;
use crate::registry::{BoundSchema, Form, MessageType};
use crate::{SessionKey, is_own_service};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A service somebody here serves, or has served.
#[derive(Clone, Debug)]
pub struct ServiceState {
    /// Full name.
    pub name: String,
    /// Whether a call of it would find a session: somebody serves it, and the daemon is not draining.
    pub serving: bool,
    /// Its types, as the sessions that serve it now have them: one for each descriptor set.
    pub schemas: Vec<Arc<BoundSchema>>,
}

impl Engine {
    /// Every service that was ever served here and may be known outside (not the host's own), by name.
    pub fn services(&self) -> Vec<ServiceState> {
        let mut states: BTreeMap<&str, ServiceState> = BTreeMap::new();
        for (path, servers) in self.registry.ever_served() {
            let name = crate::start::service_of(path);
            if is_own_service(name) {
                continue;
            }
            let new = || ServiceState { name: name.to_owned(), serving: false, schemas: Vec::new() };
            let state = states.entry(name).or_insert_with(new);
            state.serving |= !servers.is_empty() && !self.draining;
            for server in servers {
                // An application that keeps its types to itself has none to tell.
                let Form::Typed(MessageType { schema, .. }) = &server.types.input else { continue };
                if !state.schemas.iter().any(|known| Arc::ptr_eq(known, schema)) {
                    state.schemas.push(Arc::clone(schema));
                }
            }
        }
        states.into_values().collect()
    }

    /// A number that is another whenever [`Engine::services`] may say something else.
    pub fn services_version(&self) -> u64 {
        self.registry.version() + u64::from(self.draining)
    }

    /// Whether no new calls are taken.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// What this session serves, it serves only while no other session does: the daemon's own form of a service that
    /// applications may bring themselves. To be said before it binds.
    pub fn stand_by(&mut self, session: SessionKey) {
        if let Some(session) = self.sessions.find_mut(session) {
            session.stands_by = true;
        }
    }
}
