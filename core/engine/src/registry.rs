//! Who serves what: methods by path, the sessions that serve them, and the schemas they were bound with.

use crate::SessionKey;
pub use crate::method_types::{BoundSchema, Form, MessageType, MethodTypes};
use crate::methods::MethodTable;
pub(crate) use crate::methods::service_of;
pub use crate::methods::{MethodKey, Server, is_own_service};
use crate::opaque::is_path;
use http::uri::PathAndQuery;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use trunkline_call::RouteIndex;
use trunkline_policy::Plan;
use trunkline_telemetry::MethodIndex;

/// Whether a method of the host's own services only looks; all others of them change something.
pub fn is_reading(path: &str) -> bool {
    path.starts_with("/trunkline.admin.v1.Admin/")
}

/// A method that a peer calls.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub method: MethodKey,
    /// Its path, if `method` stands for others too.
    pub path: Option<Box<str>>,
}

/// Every path somebody on this host calls or serves.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Registry {
    methods: MethodTable,
    /// The methods each session serves, each once.
    #[serde(skip)]
    served_by: HashMap<SessionKey, Vec<MethodKey>>,
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

impl Registry {
    /// Makes what follows from the rest of a registry that was handed over. `false`: it contradicts itself.
    pub fn take_up(&mut self, number: impl FnMut(&Arc<str>) -> MethodIndex) -> bool {
        if !self.methods.take_up(number) {
            return false;
        }
        let Self { methods, served_by, .. } = self;
        for (key, entry) in methods.iter() {
            for server in &entry.servers {
                note_served(served_by, server.session, key);
            }
        }
        let all = self.opaque.values().map(|service| service.all);
        let all = all.chain(self.forwarded.values().map(|service| service.all)).collect::<Vec<_>>();
        all.iter().for_each(|method| self.methods.keep(*method));
        self.version <= u64::MAX / 2 && all.into_iter().all(|method| self.knows(method))
    }

    /// Counts the routes to methods anew: those of every session that was handed over.
    pub fn count_routes(&mut self, routes: impl Iterator<Item = MethodKey>) {
        routes.for_each(|method| self.methods.hold(method));
        self.methods.find_unused();
    }

    /// A session has a route to a method from now on.
    pub fn hold(&mut self, method: MethodKey) {
        self.methods.hold(method);
    }

    /// A session has one route less to a method.
    pub fn release(&mut self, method: MethodKey) {
        self.methods.release(method);
    }

    /// Whether so many methods are not called or served any more that it is time to forget some.
    pub fn has_many_unused(&self) -> bool {
        self.methods.has_many_unused()
    }

    /// Forgets methods nobody calls or serves any more, but for those of calls in flight and those served last.
    pub fn forget_unused(&mut self, in_flight: &HashSet<MethodKey>) {
        let Self { methods, opaque, .. } = self;
        methods.forget_unused(in_flight, |path| {
            if let Some(service) = opaque.get_mut(service_of(path)) {
                service.learned = service.learned.saturating_sub(1);
            }
        });
    }

    /// About how many methods have a number in reports that nobody needs.
    pub fn idle_numbers(&self) -> usize {
        self.methods.idle_numbers()
    }

    /// Methods nobody uses have no number in reports from now on, but for those of calls in flight.
    pub fn give_numbers_back(&mut self, in_flight: &HashSet<MethodKey>) {
        self.methods.give_numbers_back(in_flight);
    }

    /// Gives numbers in reports to methods that are used and have none.
    pub fn number_again(&mut self, number: impl FnMut(&Arc<str>) -> MethodIndex) {
        self.methods.number_again(number);
    }

    /// The numbers in reports that methods have.
    pub fn numbers(&self) -> HashSet<MethodIndex> {
        self.methods.iter().map(|(_, entry)| entry.number).collect()
    }

    /// Whether a key names a method.
    pub fn knows(&self, method: MethodKey) -> bool {
        self.methods.knows(method)
    }

    /// Every server there is written down, to be changed.
    pub fn every_server_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        let whole = self.opaque.values_mut().flat_map(|service| &mut service.servers);
        self.methods.entries_mut().flat_map(|entry| &mut entry.servers).chain(whole)
    }

    /// The same, to be looked at.
    pub fn every_server(&self) -> impl Iterator<Item = &Server> {
        let whole = self.opaque.values().flat_map(|service| &service.servers);
        self.methods.iter().flat_map(|(_, entry)| &entry.servers).chain(whole)
    }

    /// The services a session serves, by full name.
    pub fn services_of(&self, session: SessionKey) -> Vec<String> {
        let mut services: Vec<&str> =
            self.methods_of(session).iter().map(|method| service_of(self.path(*method))).collect();
        services.sort_unstable();
        services.dedup();
        services.into_iter().map(str::to_owned).collect()
    }

    /// The types of the methods a session serves.
    pub fn types_served_by(&self, session: SessionKey) -> impl Iterator<Item = &Arc<MethodTypes>> {
        let servers = self.methods_of(session).iter().flat_map(|method| self.servers(*method));
        servers.filter(move |server| server.session == session).map(|server| &server.types)
    }

    /// The types of what a session serves, by its routes: found in one walk, because each of them has as many servers
    /// as there are sessions that serve it.
    pub fn types_by_route(&self, session: SessionKey) -> HashMap<u32, &Arc<MethodTypes>> {
        let servers = self.methods_of(session).iter().flat_map(|method| self.servers(*method));
        let own = servers.filter(|server| server.session == session);
        own.map(|server| (server.route.0, &server.types)).collect()
    }

    /// The route by which a session serves a service as a whole, if it does.
    pub fn route_of_whole(&self, session: SessionKey, service: &str) -> Option<RouteIndex> {
        let servers = &self.opaque.get(service)?.servers;
        servers.iter().find(|server| server.session == session).map(|server| server.route)
    }

    /// The methods a session serves.
    fn methods_of(&self, session: SessionKey) -> &[MethodKey] {
        self.served_by.get(&session).map_or(&[], Vec::as_slice)
    }

    /// The key of a path, made if new. Only bound sessions call this, so its growth is bounded by their routes: what
    /// they named is forgotten when they have gone. (What peers name is bounded by [`Registry::learn`].)
    pub fn intern(&mut self, path: &Arc<str>, number: impl FnOnce() -> MethodIndex) -> MethodKey {
        if let Some(key) = self.methods.key_of(path) {
            if let Some(entry) = self.methods.find_mut(key).filter(|entry| entry.number == MethodIndex::OTHER)
            {
                entry.number = number();
            }
            return key;
        }
        let key = self.methods.insert(path, number());
        let servers = self.opaque_servers(path).to_vec();
        for server in &servers {
            note_served(&mut self.served_by, server.session, key);
        }
        if let Some(entry) = self.methods.find_mut(key) {
            entry.ever_served = !servers.is_empty();
            entry.servers = servers;
        }
        key
    }

    /// Whether a server of a method is one of the daemon's own: of the host's own services, or one that stands by.
    pub fn is_of_the_house(&self, method: MethodKey, server: &Server) -> bool {
        server.stands_by || self.is_own(method)
    }

    /// Whether all that a session serves is of that kind, and it serves something.
    pub fn serves_for_the_house(&self, session: SessionKey) -> bool {
        let methods = self.methods_of(session);
        let is_ours = |method: &MethodKey| {
            let mut own = self.servers(*method).iter().filter(|server| server.session == session);
            own.all(|server| self.is_of_the_house(*method, server))
        };
        !methods.is_empty() && methods.iter().all(is_ours)
    }

    /// The key of a path somebody here has named. Peers ask with this: their paths never grow the registry, and the
    /// host's own services are unknown to them.
    pub fn key_of(&self, path: &str) -> Option<MethodKey> {
        if is_own_service(path.trim_start_matches('/')) {
            return None;
        }
        self.methods.key_of(path)
    }

    /// The key of a path of the host's own services, for those who may ask them.
    pub fn own_key_of(&self, path: &str) -> Option<MethodKey> {
        self.methods.key_of(path)
    }

    /// Adds a server of a method.
    pub fn serve(&mut self, method: MethodKey, server: Server) {
        note_served(&mut self.served_by, server.session, method);
        let Some(entry) = self.methods.find_mut(method) else { return };
        let at = if server.stands_by { entry.servers.len() } else { entry.first_in_line() };
        entry.servers.insert(at, server);
        entry.ever_served = true;
        self.version += 2;
    }

    /// Adds a server of a whole service: of every method that was named, and of those that will be.
    pub fn serve_all(&mut self, service: &str, all: MethodKey, server: Server) {
        for method in self.methods.of_service(service).to_vec() {
            self.serve(method, server.clone());
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
        let method = self.intern(&path, || number(&path));
        self.methods.learned(method);
        Some(method)
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
            self.methods.keep(all);
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
        let method = self.intern(&path, || number(&path));
        self.methods.keep(method);
        method
    }

    fn opaque_servers(&self, path: &str) -> &[Server] {
        let service = self.opaque.get(service_of(path));
        service.map_or(&[], |service| service.servers.as_slice())
    }

    /// Takes a session out of every method it serves: it drains or is gone. Whether it served any.
    pub fn withdraw(&mut self, session: SessionKey) -> bool {
        let Some(served) = self.served_by.remove(&session) else { return false };
        for method in served {
            let Some(entry) = self.methods.find_mut(method) else { continue };
            entry.servers.retain(|server| server.session != session);
            let whole = entry.path.strip_suffix("/*").map(|path| service_of(path).to_owned());
            if let Some(service) = whole
                && let Some(known) = self.opaque.get_mut(&*service)
            {
                known.servers.retain(|server| server.session != session);
                if known.servers.is_empty() {
                    self.opaque.remove(&*service);
                }
            }
            self.methods.note_unused(method);
        }
        self.version += 2;
        true
    }

    /// Counts the changes of who serves what. Even.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Every method somebody serves or has served, with those who do now.
    pub fn ever_served(&self) -> impl Iterator<Item = (&Arc<str>, &[Server])> {
        let served = self.methods.iter().filter(|(_, entry)| entry.ever_served);
        served.map(|(_, entry)| (&entry.path, entry.servers.as_slice()))
    }

    /// Every method from this slot on: its slot, its path, its servers.
    pub fn iter_from(&self, slot: usize) -> impl Iterator<Item = (usize, &Arc<str>, &[Server])> {
        self.methods.iter_from(slot).map(|(slot, entry)| (slot, &entry.path, entry.servers.as_slice()))
    }

    /// Every server of every method.
    pub fn all_servers(&self) -> impl Iterator<Item = (MethodKey, &Server)> {
        self.methods.iter().flat_map(|(key, entry)| entry.servers.iter().map(move |server| (key, server)))
    }

    /// Sets the policies a server's calls pass.
    pub fn set_plan(&mut self, method: MethodKey, session: SessionKey, plan: Option<Arc<Plan>>) {
        let Some(entry) = self.methods.find_mut(method) else { return };
        for server in entry.servers.iter_mut().filter(|server| server.session == session) {
            server.plan.clone_from(&plan);
        }
    }

    /// The method's number in reports.
    pub fn number(&self, method: MethodKey) -> MethodIndex {
        self.methods.get(method).number
    }

    /// Whether a method is one of the host's own services'.
    #[inline]
    pub fn is_own(&self, method: MethodKey) -> bool {
        self.methods.get(method).is_own
    }

    /// The path of a method.
    pub fn path(&self, method: MethodKey) -> &Arc<str> {
        &self.methods.get(method).path
    }

    /// The path as a request to a gRPC server carries it.
    pub fn http_path(&self, method: MethodKey) -> Option<&PathAndQuery> {
        self.methods.get(method).http_path.as_ref()
    }

    /// Whether somebody here has ever served a method: if nobody does now, it is away and not unknown.
    pub fn was_served(&self, method: MethodKey) -> bool {
        self.methods.get(method).ever_served
    }

    /// The sessions that serve a method.
    #[inline]
    pub fn servers(&self, method: MethodKey) -> &[Server] {
        &self.methods.get(method).servers
    }

    /// Those of them that get calls: those who stand by are not among them while anybody else is.
    pub fn in_line(&self, method: MethodKey) -> &[Server] {
        let entry = self.methods.get(method);
        match entry.first_in_line() {
            0 => &entry.servers,
            regular => &entry.servers[..regular],
        }
    }

    /// The servers of a method starting behind the one picked last: round-robin, to be searched for one with room.
    /// Those who stand by are not among them while anybody else is.
    pub fn rotate(&mut self, method: MethodKey) -> impl Iterator<Item = &Server> {
        let Some(entry) = self.methods.find_mut(method) else { return [].iter().chain(&[]) };
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

/// A session serves a method: it is in the session's list once, however often it serves it.
fn note_served(served_by: &mut HashMap<SessionKey, Vec<MethodKey>>, session: SessionKey, method: MethodKey) {
    let methods = served_by.entry(session).or_default();
    if methods.last() != Some(&method) {
        methods.push(method);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that peers know the paths somebody here has named, but not the host's own, and who is picked.
    use super::*;
    use trunkline_call::Pattern;
    use trunkline_schema::{MessageIndex, Schema};

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
