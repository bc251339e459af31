//! What services there are, for those who tell others: health checks, reflection.

use crate::registry::{BoundSchema, Form, MessageType, Registry, is_own_service, service_of};
use std::collections::{BTreeMap, HashSet};
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

impl Registry {
    /// Every service that was ever served here and may be known outside (not the host's own), by name.
    pub(crate) fn service_states(&self, draining: bool) -> Vec<ServiceState> {
        // Each with the schemas it has already: as many sessions may serve it, each with a schema of its own.
        let mut states: BTreeMap<&str, (ServiceState, HashSet<*const BoundSchema>)> = BTreeMap::new();
        for row in self.ever_served() {
            let name = service_of(row.path);
            if is_own_service(name) {
                continue;
            }
            let new = || {
                let state = ServiceState { name: name.to_owned(), serving: false, schemas: Vec::new() };
                (state, HashSet::new())
            };
            let (state, known) = states.entry(name).or_insert_with(new);
            state.serving |= !row.servers.is_empty() && !draining;
            for server in row.written.iter() {
                // An application that keeps its types to itself has none to tell.
                let Form::Typed(MessageType { schema, .. }) = &server.types.input else { continue };
                if known.insert(Arc::as_ptr(schema)) {
                    state.schemas.push(Arc::clone(schema));
                }
            }
        }
        states.into_values().map(|(state, _)| state).collect()
    }
}
