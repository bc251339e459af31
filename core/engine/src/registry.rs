//! Who serves what: methods by path, the sessions that serve them, and the schemas they were bound with.

use crate::SessionKey;
use crate::opaque::is_path;
use http::uri::PathAndQuery;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_call::{Pattern, RouteIndex};
use trunkline_message::Transcoder;
use trunkline_policy::Plan;
use trunkline_schema::{MessageIndex, Schema};
use trunkline_telemetry::MethodIndex;

/// A schema and its transcoding tables, built once per descriptor set and shared by every session that sends the same.
#[derive(Debug)]
pub struct BoundSchema {
    /// Types, layouts, services.
    pub schema: Arc<Schema>,
    /// Tables for protobuf in and out.
    pub transcoder: Transcoder,
    /// The descriptor set it was built from, for a host that hands it over.
    pub source: Option<Arc<[u8]>>,
}

impl BoundSchema {
    /// Builds the tables for a schema.
    pub fn new(schema: Schema) -> Self {
        let schema = Arc::new(schema);
        let transcoder = Transcoder::new(Arc::clone(&schema));
        Self { schema, transcoder, source: None }
    }

    /// The same, and what it was built from.
    pub fn with_source(schema: Schema, source: Arc<[u8]>) -> Self {
        Self { source: Some(source), ..Self::new(schema) }
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

/// The messages of a method in one direction, as one session has them in shared memory.
#[derive(Clone, Debug)]
pub enum Form {
    /// Linear extents of this type.
    Typed(MessageType),
    /// Protobuf of a type that only the application knows.
    Opaque,
}

impl Form {
    /// What is told to peers; zero, which never equals anything, for a type nobody here knows.
    pub fn fingerprint(&self) -> u64 {
        match self {
            Self::Typed(of) => of.fingerprint,
            Self::Opaque => 0,
        }
    }

    /// Whether only the application knows the type.
    pub fn is_opaque(&self) -> bool {
        matches!(self, Self::Opaque)
    }
}

/// A method as one session sees it: calls it or serves it with these types.
#[derive(Clone, Debug)]
pub struct MethodTypes {
    /// Its number among all that were ever bound here: what it is called when it is handed over.
    pub number: u32,
    /// `/package.Service/Method`, or `/package.Service/*`.
    pub path: Arc<str>,
    /// Request.
    pub input: Form,
    /// Response.
    pub output: Form,
    /// Who streams. An opaque method may stream both ways.
    pub pattern: Pattern,
    /// Whether this stands for every method of a service, so that each call delivered must name its own.
    pub whole_service: bool,
}

impl MethodTypes {
    /// A method, or a whole service, of which nothing is known but the path.
    pub fn opaque(path: &str, whole_service: bool) -> Self {
        let pattern = Pattern::Bidirectional;
        Self {
            number: 0,
            path: path.into(),
            input: Form::Opaque,
            output: Form::Opaque,
            pattern,
            whole_service,
        }
    }
}

/// Services of this package are the host's own (the admin API): no peer reaches them, and only the daemon's own process
/// may serve them.
const OWN_PACKAGE: &str = "trunkline.";

/// Whether a service, by its full name, is one of the host's own.
pub fn is_own_service(full_name: &str) -> bool {
    full_name.starts_with(OWN_PACKAGE)
}

/// Whether a method of the host's own services only looks; all others of them change something.
pub fn is_reading(path: &str) -> bool {
    path.starts_with("/trunkline.admin.v1.Admin/")
}

/// `package.Service` of `/package.Service/Method`.
pub(crate) fn service_of(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_once('/').map_or(path, |(service, _)| service)
}

/// Names a path for the life of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct MethodKey(pub u32);

/// A method that a peer calls.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub method: MethodKey,
    /// Its path, if `method` stands for others too.
    pub path: Option<Box<str>>,
}

/// One session's service of one method.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Server {
    /// Who.
    pub session: SessionKey,
    /// What its delivered calls carry.
    pub route: RouteIndex,
    /// With which types.
    pub types: Arc<MethodTypes>,
    /// Only while nobody else does.
    pub stands_by: bool,
    /// The policies its calls pass.
    #[serde(skip)]
    pub plan: Option<Arc<Plan>>,
}

/// Every path somebody on this host calls or serves.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Registry {
    #[serde(skip)]
    by_path: HashMap<Arc<str>, MethodKey>,
    methods: Vec<MethodEntry>,
    /// Counts the changes of who serves what; by two, so that a bit is left to the engine.
    version: u64,
    /// Services somebody serves as a whole, by full name.
    opaque: HashMap<Box<str>, OpaqueService>,
    /// Services of which clients of the gateway have named methods, by full name.
    #[serde(default)]
    forwarded: HashMap<Box<str>, ForwardedService>,
}

/// A service whose methods only its clients and its endpoints know.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct ForwardedService {
    /// `/package.Service/*`.
    all: MethodKey,
    /// Methods clients have named.
    learned: usize,
}

/// A service whose methods only its servers know.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct OpaqueService {
    /// `/package.Service/*`.
    all: MethodKey,
    servers: Vec<Server>,
    /// Methods peers have named.
    learned: usize,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct MethodEntry {
    path: Arc<str>,
    /// The path as a request to a gRPC server carries it, if one could.
    #[serde(skip)]
    http_path: Option<PathAndQuery>,
    #[serde(skip, default = "unnumbered")]
    number: MethodIndex,
    /// Those who stand by are behind the others.
    servers: Vec<Server>,
    next: usize,
    /// Somebody serves it, or has.
    ever_served: bool,
}

fn unnumbered() -> MethodIndex {
    MethodIndex(0)
}

impl Registry {
    /// Makes what follows from the rest of a registry that was handed over. `false`: it contradicts itself.
    pub fn take_up(&mut self, mut number: impl FnMut(&Arc<str>) -> MethodIndex) -> bool {
        for (index, entry) in self.methods.iter_mut().enumerate() {
            entry.number = number(&entry.path);
            entry.http_path = trunkline_grpc::request::path(&entry.path);
            let key = MethodKey(index as u32);
            if self.by_path.insert(Arc::clone(&entry.path), key).is_some() {
                return false;
            }
        }
        let all = self.opaque.values().map(|service| service.all);
        let all = all.chain(self.forwarded.values().map(|service| service.all)).collect::<Vec<_>>();
        self.version <= u64::MAX / 2 && all.into_iter().all(|method| self.knows(method))
    }

    /// Whether a key names a method.
    pub fn knows(&self, method: MethodKey) -> bool {
        (method.0 as usize) < self.methods.len()
    }

    /// Every server there is written down, to be changed.
    pub fn every_server_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        let whole = self.opaque.values_mut().flat_map(|service| &mut service.servers);
        self.methods.iter_mut().flat_map(|entry| &mut entry.servers).chain(whole)
    }

    /// The same, to be looked at.
    pub fn every_server(&self) -> impl Iterator<Item = &Server> {
        let whole = self.opaque.values().flat_map(|service| &service.servers);
        self.methods.iter().flat_map(|entry| &entry.servers).chain(whole)
    }

    /// The key of a path, made if new. Only bound sessions call this, so its growth is bounded by their routes. (What
    /// peers name is bounded by [`Registry::learn`].)
    pub fn intern(&mut self, path: &Arc<str>, number: impl FnOnce() -> MethodIndex) -> MethodKey {
        if let Some(key) = self.by_path.get(path) {
            return *key;
        }
        let key = MethodKey(self.methods.len() as u32);
        let servers = self.opaque_servers(path).to_vec();
        self.methods.push(MethodEntry {
            path: Arc::clone(path),
            http_path: trunkline_grpc::request::path(path),
            number: number(),
            ever_served: !servers.is_empty(),
            servers,
            next: 0,
        });
        self.by_path.insert(Arc::clone(path), key);
        key
    }

    /// Whether a server of a method is one of the daemon's own: of the host's own services, or one that stands by.
    pub fn is_of_the_house(&self, method: MethodKey, server: &Server) -> bool {
        server.stands_by || is_own_service(self.path(method).trim_start_matches('/'))
    }

    /// Whether all that a session serves is of that kind, and it serves something.
    pub fn serves_for_the_house(&self, session: SessionKey) -> bool {
        let mut served = self.all_servers().filter(|(_, server)| server.session == session).peekable();
        served.peek().is_some() && served.all(|(method, server)| self.is_of_the_house(method, server))
    }

    /// The key of a path somebody here has named. Peers ask with this: their paths never grow the registry, and the
    /// host's own services are unknown to them.
    pub fn key_of(&self, path: &str) -> Option<MethodKey> {
        if is_own_service(path.trim_start_matches('/')) {
            return None;
        }
        self.by_path.get(path).copied()
    }

    /// The key of a path of the host's own services, for those who may ask them.
    pub fn own_key_of(&self, path: &str) -> Option<MethodKey> {
        self.by_path.get(path).copied()
    }

    /// Adds a server of a method.
    pub fn serve(&mut self, method: MethodKey, server: Server) {
        let entry = &mut self.methods[method.0 as usize];
        let at = if server.stands_by { entry.servers.len() } else { entry.first_in_line() };
        entry.servers.insert(at, server);
        entry.ever_served = true;
        self.version += 2;
    }

    /// Adds a server of a whole service: of every method that was named, and of those that will be.
    pub fn serve_all(&mut self, service: &str, all: MethodKey, server: Server) {
        let of_service = |entry: &MethodEntry| service_of(&entry.path) == service;
        for index in 0..self.methods.len() {
            if of_service(&self.methods[index]) {
                self.serve(MethodKey(index as u32), server.clone());
            }
        }
        let new = || OpaqueService { all, servers: Vec::new(), learned: 0 };
        let servers = &mut self.opaque.entry(service.into()).or_insert_with(new).servers;
        servers.push(server);
        servers.sort_by_key(|server| server.stands_by);
    }

    /// The key of a path a peer has named and nobody here has: its own, while its service, served as a whole, has
    /// fewer than `max` such methods; then that of the service. `None` if nobody serves it so.
    pub fn learn(
        &mut self,
        path: &str,
        max: usize,
        number: impl FnOnce(&Arc<str>) -> MethodIndex,
    ) -> Option<MethodKey> {
        let service = self.opaque.get_mut(service_of(path))?;
        if service.servers.is_empty() {
            return None;
        }
        if service.learned >= max {
            return Some(service.all);
        }
        service.learned += 1;
        let path = Arc::from(path);
        Some(self.intern(&path, || number(&path)))
    }

    /// The method a peer means by a path, if somebody here has named it or serves its service as a whole. Peers make
    /// the registry grow no further than `max` methods of each such service.
    pub(crate) fn called(
        &mut self,
        path: &str,
        max: usize,
        number: impl FnOnce(&Arc<str>) -> MethodIndex,
    ) -> Option<Called> {
        if let Some(method) = self.key_of(path) {
            return Some(Called { method, path: None });
        }
        if !is_path(path) {
            return None;
        }
        let method = self.learn(path, max, number)?;
        let shared = &**self.path(method) != path;
        Some(Called { method, path: shared.then(|| path.into()) })
    }

    /// The key of a path of a service that has endpoints, which a client of the gateway has named and nobody here has:
    /// its own, while its service has fewer than `max` such methods; then that of the service.
    pub fn learn_forwarded(
        &mut self,
        path: &str,
        max: usize,
        mut number: impl FnMut(&Arc<str>) -> MethodIndex,
    ) -> MethodKey {
        let service = service_of(path);
        let known = self.forwarded.get_mut(service).map(|service| {
            service.learned += 1;
            (service.all, service.learned)
        });
        let (all, learned) = known.unwrap_or_else(|| {
            let path = Arc::from(format!("/{service}/*"));
            let all = self.intern(&path, || number(&path));
            self.forwarded.insert(service.into(), ForwardedService { all, learned: 1 });
            (all, 1)
        });
        if learned > max {
            if let Some(service) = self.forwarded.get_mut(service) {
                service.learned = learned - 1;
            }
            return all;
        }
        let path = Arc::from(path);
        self.intern(&path, || number(&path))
    }

    fn opaque_servers(&self, path: &str) -> &[Server] {
        let service = self.opaque.get(service_of(path));
        service.map_or(&[], |service| service.servers.as_slice())
    }

    /// Takes a session out of every method it serves: it drains or is gone.
    pub fn withdraw(&mut self, session: SessionKey) {
        let mut left = 0;
        for method in &mut self.methods {
            left += method.servers.len();
            method.servers.retain(|server| server.session != session);
            left -= method.servers.len();
        }
        for service in self.opaque.values_mut() {
            service.servers.retain(|server| server.session != session);
        }
        self.version += if left > 0 { 2 } else { 0 };
    }

    /// Counts the changes of who serves what. Even.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether some session of this host serves any method of the service.
    pub fn serves_service(&self, service: &str) -> bool {
        let of_service = |entry: &&MethodEntry| service_of(&entry.path) == service;
        self.methods.iter().filter(of_service).any(|entry| !entry.servers.is_empty())
    }

    /// Every method somebody serves or has served, with those who do now.
    pub fn ever_served(&self) -> impl Iterator<Item = (&Arc<str>, &[Server])> {
        let served = self.methods.iter().filter(|entry| entry.ever_served);
        served.map(|entry| (&entry.path, entry.servers.as_slice()))
    }

    /// Every method with its servers.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &[Server])> {
        self.methods.iter().map(|entry| (&entry.path, entry.servers.as_slice()))
    }

    /// Every server of every method.
    pub fn all_servers(&self) -> impl Iterator<Item = (MethodKey, &Server)> {
        let methods = (0..).map(MethodKey).zip(&self.methods);
        methods.flat_map(|(key, entry)| entry.servers.iter().map(move |server| (key, server)))
    }

    /// Sets the policies a server's calls pass.
    pub fn set_plan(&mut self, method: MethodKey, session: SessionKey, plan: Option<Arc<Plan>>) {
        let servers = &mut self.methods[method.0 as usize].servers;
        for server in servers.iter_mut().filter(|server| server.session == session) {
            server.plan.clone_from(&plan);
        }
    }

    /// The method's number in reports.
    pub fn number(&self, method: MethodKey) -> MethodIndex {
        self.methods[method.0 as usize].number
    }

    /// The path of a method.
    pub fn path(&self, method: MethodKey) -> &Arc<str> {
        &self.methods[method.0 as usize].path
    }

    /// The path as a request to a gRPC server carries it.
    pub fn http_path(&self, method: MethodKey) -> Option<&PathAndQuery> {
        self.methods[method.0 as usize].http_path.as_ref()
    }

    /// Whether somebody here has ever served a method: if nobody does now, it is away and not unknown.
    pub fn was_served(&self, method: MethodKey) -> bool {
        self.methods[method.0 as usize].ever_served
    }

    /// The sessions that serve a method.
    pub fn servers(&self, method: MethodKey) -> &[Server] {
        &self.methods[method.0 as usize].servers
    }

    /// Those of them that get calls: those who stand by are not among them while anybody else is.
    pub fn in_line(&self, method: MethodKey) -> &[Server] {
        let entry = &self.methods[method.0 as usize];
        match entry.first_in_line() {
            0 => &entry.servers,
            regular => &entry.servers[..regular],
        }
    }

    /// The servers of a method starting behind the one picked last: round-robin, to be searched for one with room.
    /// Those who stand by are not among them while anybody else is.
    pub fn rotate(&mut self, method: MethodKey) -> impl Iterator<Item = &Server> {
        let entry = &mut self.methods[method.0 as usize];
        let count = match entry.first_in_line() {
            0 => entry.servers.len(),
            regular => regular,
        };
        let servers = &entry.servers[..count];
        let start = entry.next.min(count);
        entry.next = if count == 0 { 0 } else { (start + 1) % count };
        let (before, behind) = servers.split_at(start);
        behind.iter().chain(before)
    }
}

impl MethodEntry {
    /// The first of those who stand by; as many serve without that.
    fn first_in_line(&self) -> usize {
        self.servers.partition_point(|server| !server.stands_by)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that peers know the paths somebody here has named, but not the host's own, and who is picked.
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

    #[test]
    fn who_stands_by_serves_only_alone() {
        let (mut registry, mut table) = (Registry::default(), crate::Table::new());
        let method = registry.intern(&"/a.B/C".into(), || MethodIndex(0));
        let mut key = || table.insert(crate::session::Session::new(String::new(), 0));
        let (daemon, first, second) = (key(), key(), key());
        let schema = Schema::from_proto_source("a.proto", "syntax = \"proto3\"; message M {}").unwrap();
        let schema = Arc::new(BoundSchema::new(schema));
        let input = Form::Typed(MessageType::new(&schema, MessageIndex(0)));
        let types = Arc::new(MethodTypes {
            number: 0,
            path: "/a.B/C".into(),
            output: input.clone(),
            input,
            pattern: Pattern::Unary,
            whole_service: false,
        });
        let server = |session, stands_by| Server {
            session,
            route: RouteIndex(0),
            types: Arc::clone(&types),
            stands_by,
            plan: None,
        };
        let picked = |registry: &mut Registry| {
            let mut picked: Vec<_> =
                (0..4).map(|_| registry.rotate(method).next().unwrap().session).collect();
            picked.dedup();
            picked
        };
        assert_eq!(registry.ever_served().count(), 0);
        registry.serve(method, server(daemon, true));
        assert_eq!(picked(&mut registry), [daemon]);
        registry.serve(method, server(first, false));
        assert_eq!(picked(&mut registry), [first]);
        registry.serve(method, server(second, false));
        let both = picked(&mut registry);
        assert!(both.len() == 4 && !both.contains(&daemon), "in turn: {both:?}");
        let before = registry.version();
        for gone in [first, second] {
            registry.withdraw(gone);
        }
        assert_eq!(picked(&mut registry), [daemon]);
        assert_ne!(registry.version(), before);
        registry.withdraw(daemon);
        let after = registry.version();
        registry.withdraw(daemon);
        assert_eq!(registry.version(), after, "nothing has changed");
        assert_eq!(registry.ever_served().count(), 1, "it is remembered");
    }
}
