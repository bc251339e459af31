//! Who serves what: methods by path, the sessions that serve them, and the schemas they were bound with.

use crate::SessionKey;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_call::{Pattern, RouteIndex};
use trunkline_message::Transcoder;
use trunkline_schema::{MessageIndex, Schema};
use trunkline_telemetry::MethodIndex;

/// A schema and its transcoding tables, built once per descriptor set and shared by every session that sends the same.
#[derive(Debug)]
pub struct BoundSchema {
    /// Types, layouts, services.
    pub schema: Arc<Schema>,
    /// Tables for protobuf in and out.
    pub transcoder: Transcoder,
}

impl BoundSchema {
    /// Builds the tables for a schema.
    pub fn new(schema: Schema) -> Self {
        let schema = Arc::new(schema);
        let transcoder = Transcoder::new(Arc::clone(&schema));
        Self { schema, transcoder }
    }
}

/// A message type of one schema.
#[derive(Clone, Debug)]
pub struct MessageType {
    /// Where it is defined.
    pub schema: Arc<BoundSchema>,
    /// Which it is.
    pub index: MessageIndex,
    /// Equal fingerprints: extents may pass unchanged.
    pub fingerprint: u64,
}

impl MessageType {
    /// The type at `index` of `schema`.
    pub fn new(schema: &Arc<BoundSchema>, index: MessageIndex) -> Self {
        let fingerprint = schema.schema.fingerprint(index);
        Self { schema: Arc::clone(schema), index, fingerprint }
    }
}

/// A method as one session sees it: calls it or serves it with these types.
#[derive(Clone, Debug)]
pub struct MethodTypes {
    /// `/package.Service/Method`.
    pub path: Arc<str>,
    /// Request.
    pub input: MessageType,
    /// Response.
    pub output: MessageType,
    /// Who streams.
    pub pattern: Pattern,
}

/// Services of this package are the host's own (the admin API): no peer reaches them, and only the daemon's own process
/// may serve them.
const OWN_PACKAGE: &str = "trunkline.";

/// Whether a service, by its full name, is one of the host's own.
pub fn is_own_service(full_name: &str) -> bool {
    full_name.starts_with(OWN_PACKAGE)
}

/// Names a path for the life of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MethodKey(pub u32);

/// One session's service of one method.
#[derive(Clone, Debug)]
pub struct Server {
    /// Who.
    pub session: SessionKey,
    /// What its delivered calls carry.
    pub route: RouteIndex,
    /// With which types.
    pub types: Arc<MethodTypes>,
}

/// Every path somebody on this host calls or serves.
#[derive(Debug, Default)]
pub struct Registry {
    by_path: HashMap<Arc<str>, MethodKey>,
    methods: Vec<MethodEntry>,
}

#[derive(Debug)]
struct MethodEntry {
    path: Arc<str>,
    number: MethodIndex,
    servers: Vec<Server>,
    next: usize,
}

impl Registry {
    /// The key of a path, made if new. Only bound sessions call this, so its growth is bounded by their routes.
    pub fn intern(&mut self, path: &Arc<str>, number: impl FnOnce() -> MethodIndex) -> MethodKey {
        if let Some(key) = self.by_path.get(path) {
            return *key;
        }
        let key = MethodKey(self.methods.len() as u32);
        self.methods.push(MethodEntry {
            path: Arc::clone(path),
            number: number(),
            servers: Vec::new(),
            next: 0,
        });
        self.by_path.insert(Arc::clone(path), key);
        key
    }

    /// The key of a path somebody here has named. Peers ask with this: their paths never grow the registry, and the
    /// host's own services are unknown to them.
    pub fn key_of(&self, path: &str) -> Option<MethodKey> {
        if is_own_service(path.trim_start_matches('/')) {
            return None;
        }
        self.by_path.get(path).copied()
    }

    /// Adds a server of a method.
    pub fn serve(&mut self, method: MethodKey, server: Server) {
        self.methods[method.0 as usize].servers.push(server);
    }

    /// Takes a session out of every method it serves: it drains or is gone.
    pub fn withdraw(&mut self, session: SessionKey) {
        for method in &mut self.methods {
            method.servers.retain(|server| server.session != session);
        }
    }

    /// Whether some session of this host serves any method of the service.
    pub fn serves_service(&self, service: &str) -> bool {
        let of_service = |entry: &&MethodEntry| crate::start::service_of(&entry.path) == service;
        self.methods.iter().filter(of_service).any(|entry| !entry.servers.is_empty())
    }

    /// Every method with its servers.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &[Server])> {
        self.methods.iter().map(|entry| (&entry.path, entry.servers.as_slice()))
    }

    /// The method's number in reports.
    pub fn number(&self, method: MethodKey) -> MethodIndex {
        self.methods[method.0 as usize].number
    }

    /// The path of a method.
    pub fn path(&self, method: MethodKey) -> &Arc<str> {
        &self.methods[method.0 as usize].path
    }

    /// The sessions that serve a method.
    pub fn servers(&self, method: MethodKey) -> &[Server] {
        &self.methods[method.0 as usize].servers
    }

    /// The servers of a method starting behind the one picked last: round-robin, to be searched for one with room.
    pub fn rotate(&mut self, method: MethodKey) -> impl Iterator<Item = &Server> {
        let entry = &mut self.methods[method.0 as usize];
        let start = entry.next;
        entry.next = if entry.servers.is_empty() { 0 } else { (start + 1) % entry.servers.len() };
        let (before, behind) = entry.servers.split_at(start.min(entry.servers.len()));
        behind.iter().chain(before)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that peers know the paths somebody here has named, but not the host's own.
    use super::*;

    #[test]
    fn own_services_are_unknown_to_peers() {
        let mut registry = Registry::default();
        for path in ["/a.v1.Trunkline/List", "/trunkline.admin.v1.Admin/List"] {
            registry.intern(&path.into(), || MethodIndex(0));
        }
        assert!(registry.key_of("/a.v1.Trunkline/List").is_some());
        assert!(registry.key_of("/trunkline.admin.v1.Admin/List").is_none());
        assert!(registry.key_of("/a.v1.Trunkline/Other").is_none());
    }
}
