//! Who serves what: methods by path, the sessions that serve them, and the schemas they were bound with.

use crate::SessionKey;
use crate::known_services::WholeService;
pub use crate::method_types::{BoundSchema, Form, MessageType, MethodTypes};
use crate::methods::MethodTable;
pub(crate) use crate::methods::service_of;
pub use crate::methods::{MethodKey, is_own_service};
use crate::opaque::is_path;
use crate::servers;
pub use crate::servers::{Server, Servers};
use crate::snapshot::{SLOTS_PER_PART, ServedMethod, TableRows};
use http::uri::PathAndQuery;
use serde::ser::SerializeStruct;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use trunkline_call::RouteIndex;
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
#[derive(Debug, Default, serde::Deserialize)]
#[serde(from = "RegistryImage")]
pub struct Registry {
    methods: MethodTable,
    /// The methods each session serves, each once; of a service that it serves as a whole the one that stands for all.
    served_by: HashMap<SessionKey, Vec<MethodKey>>,
    /// Counts the changes of who serves what; by two, so that a bit is left to the engine.
    version: u64,
    /// Services of which clients of the gateway have named methods, by full name.
    forwarded: HashMap<Box<str>, ForwardedService>,
}

/// What of it is handed over.
#[derive(serde::Deserialize)]
struct RegistryImage {
    methods: MethodTable,
    version: u64,
    /// Services somebody serves as a whole, or has, by full name.
    opaque: HashMap<Box<str>, WholeImage>,
    #[serde(default)]
    forwarded: HashMap<Box<str>, ForwardedService>,
}

#[derive(serde::Deserialize)]
struct WholeImage {
    all: MethodKey,
    servers: Vec<Server>,
    learned: usize,
}

/// A method, and who serves it.
pub struct MethodRow<'a> {
    /// Where it is in the table.
    pub slot: usize,
    /// Its path.
    pub path: &'a Arc<str>,
    /// All who serve it.
    pub servers: Servers<'a>,
    /// Those who are written down here. A server of a whole service is so once, with the method that stands for all:
    /// who looks at those of every method looks at each server once.
    pub written: Servers<'a>,
    /// Whether somebody serves it, or has.
    pub was_served: bool,
}

/// A service whose methods only its clients and its endpoints know.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct ForwardedService {
    /// `/package.Service/*`.
    all: MethodKey,
    /// Methods clients have named.
    learned: usize,
}

impl From<RegistryImage> for Registry {
    fn from(image: RegistryImage) -> Self {
        let RegistryImage { mut methods, version, opaque, forwarded } = image;
        let whole = |WholeImage { all, servers, learned }| WholeService {
            all,
            servers,
            learned,
            resting: Vec::new(),
        };
        methods.know_services(opaque.into_iter().map(|(name, image)| (name, whole(image))));
        Self { methods, served_by: HashMap::new(), version, forwarded }
    }
}

impl serde::Serialize for Registry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct WholeImage<'a> {
            all: MethodKey,
            servers: &'a [Server],
            learned: usize,
        }
        let opaque = self.methods.every_whole().filter(|whole| self.methods.knows(whole.all));
        let opaque = opaque.map(|WholeService { all, servers, learned, .. }| {
            (service_of(self.path(*all)), WholeImage { all: *all, servers, learned: *learned })
        });
        let mut image = serializer.serialize_struct("Registry", 4)?;
        image.serialize_field("methods", &self.methods)?;
        image.serialize_field("version", &self.version)?;
        image.serialize_field("opaque", &opaque.collect::<HashMap<&str, WholeImage<'_>>>())?;
        image.serialize_field("forwarded", &self.forwarded)?;
        image.end()
    }
}

impl Registry {
    /// Makes what follows from the rest of a registry that was handed over. `false`: it contradicts itself.
    pub fn take_up(&mut self, number: impl FnMut(&Arc<str>) -> MethodIndex) -> bool {
        if !self.methods.take_up(number) {
            return false;
        }
        let Self { methods, served_by, .. } = self;
        for (key, entry) in methods.iter() {
            for server in methods.written(key, entry).iter() {
                note_served(served_by, server.session, key);
            }
        }
        let all = self.forwarded.values().map(|service| service.all).collect::<Vec<_>>();
        all.iter().for_each(|method| self.methods.keep(*method));
        let is_sound = |whole: &WholeService| whole.servers.is_empty() || self.methods.knows(whole.all);
        self.version <= u64::MAX / 2
            && all.into_iter().all(|method| self.knows(method))
            && self.methods.every_whole().all(is_sound)
    }

    /// Whether somebody serves a service as a whole.
    pub fn has_whole(&self) -> bool {
        self.methods.every_whole().any(|whole| !whole.servers.is_empty())
    }

    /// Counts the routes to methods anew: those of every session that was handed over, and what other shards serve.
    pub fn count_routes(&mut self, routes: impl Iterator<Item = MethodKey>) {
        routes.for_each(|method| self.methods.hold(method));
        self.methods.find_unused();
    }

    /// A session has a route to a method from now on, or another shard serves it.
    pub fn hold(&mut self, method: MethodKey) {
        self.methods.hold(method);
    }

    /// A session has one route less to a method, or no other shard serves it any more.
    pub fn release(&mut self, method: MethodKey) {
        self.methods.release(method);
    }

    /// Whether so many methods are not called or served any more that it is time to forget some.
    pub fn has_many_unused(&self) -> bool {
        self.methods.has_many_unused()
    }

    /// Forgets methods nobody calls or serves any more, but for those of calls in flight and those served last.
    pub fn forget_unused(&mut self, in_flight: &HashSet<MethodKey>) {
        self.methods.forget_unused(in_flight);
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

    /// Every server, to be changed.
    pub fn every_server_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        self.methods.every_server_mut()
    }

    /// The same in the same order, to be looked at, each with what it serves: of a whole service, the method that
    /// stands for all.
    pub fn every_server(&self) -> impl Iterator<Item = (MethodKey, &Server)> {
        self.methods.every_server()
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
        let servers = self.methods_of(session).iter().flat_map(|method| self.written(*method).iter());
        servers.filter(move |server| server.session == session).map(|server| &server.types)
    }

    /// The types of what a session serves, by its routes: found in one walk, because each of them has as many servers
    /// as there are sessions that serve it.
    pub fn types_by_route(&self, session: SessionKey) -> HashMap<u32, &Arc<MethodTypes>> {
        let servers = self.methods_of(session).iter().flat_map(|method| self.written(*method).iter());
        let own = servers.filter(|server| server.session == session);
        own.map(|server| (server.route.0, &server.types)).collect()
    }

    /// The route by which a session serves a service as a whole, if it does.
    pub fn route_of_whole(&self, session: SessionKey, service: &str) -> Option<RouteIndex> {
        let servers = &self.methods.whole(service)?.servers;
        servers.iter().find(|server| server.session == session).map(|server| server.route)
    }

    /// The servers that are written down with a method.
    fn written(&self, method: MethodKey) -> Servers<'_> {
        self.methods.written(method, self.methods.get(method))
    }

    /// The methods a session serves.
    fn methods_of(&self, session: SessionKey) -> &[MethodKey] {
        self.served_by.get(&session).map_or(&[], Vec::as_slice)
    }

    /// The key of a path, made if new. Only for bound sessions, of this shard or of others, so its growth is bounded by
    /// their routes: what they named is forgotten when they have gone. (What peers name is bounded by
    /// [`Registry::learn`].) Whoever uses the key for long [holds](Registry::hold) it.
    pub fn intern(&mut self, path: &Arc<str>, number: impl FnOnce() -> MethodIndex) -> MethodKey {
        if let Some(key) = self.methods.key_of(path) {
            if let Some(entry) = self.methods.find_mut(key).filter(|entry| entry.number == MethodIndex::OTHER)
            {
                entry.number = number();
            }
            return key;
        }
        self.methods.insert(path, number())
    }

    /// The same for a call that comes from another shard: forgotten some time after it, unless somebody has a route.
    pub fn intern_for_call(&mut self, path: &Arc<str>, number: impl FnOnce() -> MethodIndex) -> MethodKey {
        let method = self.intern(path, number);
        self.methods.note_unused(method);
        method
    }

    /// Whether a server of a method is one of the daemon's own: of the host's own services, or one that stands by.
    pub fn is_of_the_house(&self, method: MethodKey, server: &Server) -> bool {
        server.stands_by || self.is_own(method)
    }

    /// Whether all that a session serves is of that kind, and it serves something.
    pub fn serves_for_the_house(&self, session: SessionKey) -> bool {
        let methods = self.methods_of(session);
        let is_ours = |method: &MethodKey| {
            let mut own = self.written(*method).iter().filter(|server| server.session == session);
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
        servers::enter(&mut entry.servers, server);
        entry.ever_served = true;
        self.version += 2;
    }

    /// Adds a server of a whole service: of every method that was named, and of those that will be. `all` stands for
    /// them.
    pub fn serve_all(&mut self, all: MethodKey, server: Server) {
        note_served(&mut self.served_by, server.session, all);
        self.methods.serve_all(all, server);
        self.version += 2;
    }

    /// The key of a path a peer has named and nobody here has: its own, while its service, served as a whole, has
    /// fewer than `max` such methods; then that of the service. `None` if nobody serves it so.
    pub fn learn(
        &mut self,
        path: &str,
        max: usize,
        number: impl FnOnce(&Arc<str>) -> MethodIndex,
    ) -> Option<MethodKey> {
        let service = self.methods.whole(service_of(path)).filter(|whole| !whole.servers.is_empty())?;
        if service.learned >= max {
            return Some(service.all);
        }
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

    /// Takes a session out of every method it serves: it drains or is gone. Whether it served any.
    pub fn withdraw(&mut self, session: SessionKey) -> bool {
        let Some(served) = self.served_by.remove(&session) else { return false };
        served.into_iter().for_each(|method| self.methods.withdraw(method, session));
        self.version += 2;
        true
    }

    /// Counts the changes of who serves what. Even.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Every method somebody serves or has served, and who.
    pub fn ever_served(&self) -> impl Iterator<Item = MethodRow<'_>> {
        self.iter_from(0).filter(|row| row.was_served)
    }

    /// Every method from this slot on.
    pub fn iter_from(&self, slot: usize) -> impl Iterator<Item = MethodRow<'_>> {
        self.methods.iter_from(slot).map(|(method, entry)| MethodRow {
            slot: method.slot(),
            path: &entry.path,
            servers: self.methods.servers(entry),
            written: self.methods.written(method, entry),
            was_served: self.methods.was_served(entry),
        })
    }

    /// What operators see of the methods from this slot on that are served. One that many serve counts for as many.
    pub(crate) fn snapshot(&self, from: usize) -> TableRows<ServedMethod> {
        let (mut looked, mut rows) = (0, Vec::new());
        for row in self.iter_from(from) {
            if looked >= SLOTS_PER_PART {
                return TableRows { rows, left: Some(row.slot) };
            }
            looked += 1 + row.written.len() / 4;
            if !row.servers.is_empty() {
                rows.push((Arc::clone(row.path), row.written.iter().map(|server| server.session).collect()));
            }
        }
        TableRows { rows, left: None }
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
        self.methods.was_served(self.methods.get(method))
    }

    /// The sessions that serve a method.
    #[inline]
    pub fn servers(&self, method: MethodKey) -> Servers<'_> {
        self.methods.servers(self.methods.get(method))
    }

    /// The route by which a session serves a method with types of this number.
    pub fn route_of(&self, method: MethodKey, session: SessionKey, number: u64) -> Option<RouteIndex> {
        let mut servers = self.servers(method).iter();
        let server = servers.find(|server| server.session == session && server.types.number == number);
        server.map(|server| server.route)
    }

    /// Those of them that get calls: those who stand by are not among them while anybody else is.
    #[inline]
    pub fn in_line(&self, method: MethodKey) -> Servers<'_> {
        self.servers(method).in_line()
    }

    /// Who serves a call: the session it has a place at, or the next in turn that has room.
    pub(crate) fn pick(
        &self,
        method: MethodKey,
        place: Option<SessionKey>,
        has_room: impl Fn(SessionKey) -> bool,
    ) -> Picked {
        let servers = self.servers(method);
        if let Some(server) = servers.only_one() {
            return if has_room(server.session) { Picked::one(server) } else { Picked::Full };
        }
        if let Some(place) = place.filter(|place| has_room(*place))
            && let Some(server) = servers.iter().find(|server| server.session == place)
        {
            return Picked::one(server);
        }
        let mut none = Picked::Nobody;
        for server in self.in_turn(method) {
            if has_room(server.session) {
                return Picked::one(server);
            }
            none = Picked::Full;
        }
        none
    }

    /// The servers of a method from the one on whose turn it is: to be searched for one with room. Those who stand by
    /// are not among them while anybody else is.
    fn in_turn(&self, method: MethodKey) -> impl Iterator<Item = &Server> {
        let servers = self.in_line(method);
        servers.starting_at(self.methods.get(method).next.min(servers.len()))
    }

    /// One of those that serve a method was picked in turn: the next has its turn.
    #[inline]
    pub fn advance(&mut self, method: MethodKey) {
        let count = self.in_line(method).len();
        if count > 1
            && let Some(entry) = self.methods.find_mut(method)
        {
            entry.next = (entry.next.min(count) + 1) % count;
        }
    }
}

/// Who of those that serve a method gets a call.
#[derive(Debug)]
pub(crate) enum Picked {
    /// This session, by this route and with these types.
    One(SessionKey, RouteIndex, Arc<MethodTypes>),
    /// None of them has room.
    Full,
    /// Nobody serves it.
    Nobody,
}

impl Picked {
    fn one(server: &Server) -> Self {
        Self::One(server.session, server.route, Arc::clone(&server.types))
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

    fn types(path: &str, whole_service: bool) -> Arc<MethodTypes> {
        let schema = Schema::from_proto_source("a.proto", "syntax = \"proto3\"; message M {}").unwrap();
        let schema = Arc::new(BoundSchema::new(schema));
        let input = Form::Typed(MessageType::new(&schema, MessageIndex(0)));
        let (output, pattern) = (input.clone(), Pattern::Unary);
        Arc::new(MethodTypes { number: 0, path: path.into(), output, input, pattern, whole_service })
    }

    fn sessions(count: usize) -> Vec<SessionKey> {
        let mut table = crate::Table::new();
        (0..count).map(|_| table.insert(crate::session::Session::new(String::new(), 0))).collect()
    }

    fn server(session: SessionKey, types: &Arc<MethodTypes>, stands_by: bool) -> Server {
        Server { session, route: RouteIndex(0), types: Arc::clone(types), stands_by, plan: None }
    }

    /// Whose turn it is, who has had it then.
    fn take_turn(registry: &mut Registry, method: MethodKey) -> SessionKey {
        let session = registry.in_turn(method).next().unwrap().session;
        registry.advance(method);
        session
    }

    #[test]
    fn who_stands_by_serves_only_alone() {
        let mut registry = Registry::default();
        let method = registry.intern(&"/a.B/C".into(), || MethodIndex(0));
        let [daemon, first, second] = sessions(3)[..] else { unreachable!() };
        let types = types("/a.B/C", false);
        let server = |session, stands_by| server(session, &types, stands_by);
        let picked = |registry: &mut Registry| {
            let mut picked: Vec<_> = (0..4).map(|_| take_turn(registry, method)).collect();
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
    /// A service that these serve as a whole, and so many of its methods, named by callers and by peers in turn.
    fn whole(sessions: &[SessionKey], methods: usize) -> (Registry, MethodKey, Vec<MethodKey>) {
        let mut registry = Registry::default();
        let all = registry.intern(&"/a.B/*".into(), || MethodIndex(0));
        let types = types("/a.B/*", true);
        sessions.iter().for_each(|session| registry.serve_all(all, server(*session, &types, false)));
        let methods = (0..methods).map(|at| {
            let path: Arc<str> = format!("/a.B/M{at}").into();
            match at % 2 {
                0 => registry.learn(&path, usize::MAX, |_| MethodIndex(1)).unwrap(),
                _ => {
                    let method = registry.intern(&path, || MethodIndex(1));
                    registry.hold(method);
                    method
                }
            }
        });
        let methods = methods.collect();
        (registry, all, methods)
    }

    #[test]
    fn who_serves_all_of_a_service_is_written_down_once_however_many_methods_are_named() {
        let sessions = sessions(100);
        let (mut registry, all, methods) = whole(&sessions, 1000);
        assert_eq!((registry.every_server().count(), registry.served_by[&sessions[7]].len()), (100, 1));
        assert_eq!(registry.iter_from(0).map(|row| row.written.len()).sum::<usize>(), 100);
        assert!(methods.iter().all(|method| registry.servers(*method).len() == 100));
        assert!(methods.iter().all(|method| registry.was_served(*method)));
        let turns: HashSet<SessionKey> = (0..100).map(|_| take_turn(&mut registry, methods[3])).collect();
        assert_eq!(turns.len(), 100, "each in turn");
        assert_eq!(registry.in_turn(methods[3]).count(), 100);
        sessions[1..].iter().for_each(|session| assert!(registry.withdraw(*session)));
        assert!(methods.iter().all(|method| registry.servers(*method).only_one().is_some()));
        assert_eq!(registry.services_of(sessions[0]), ["a.B"]);
        registry.withdraw(sessions[0]);
        assert!(methods.iter().chain([&all]).all(|method| registry.servers(*method).is_empty()));
        assert!(
            registry.was_served(methods[0]) && registry.learn("/a.B/New", 9, |_| MethodIndex(1)).is_none()
        );
    }

    #[test]
    fn those_who_serve_a_method_by_its_name_stand_beside_those_who_serve_all() {
        let [one, other, daemon] = sessions(3)[..] else { unreachable!() };
        let (mut registry, all, methods) = whole(&[one], 2);
        registry.serve(methods[0], server(other, &types("/a.B/M0", false), false));
        registry.serve_all(all, server(daemon, &types("/a.B/*", true), true));
        registry.serve(methods[0], server(one, &types("/a.B/M0", false), false));
        assert_eq!(registry.types_served_by(one).count(), 2, "each once, whoever serves the service as well");
        registry.methods.withdraw(methods[0], one);
        let count = |registry: &Registry, at: usize| {
            (registry.servers(methods[at]).len(), registry.in_line(methods[at]).len())
        };
        assert_eq!((count(&registry, 0), count(&registry, 1)), ((3, 2), (2, 1)));
        let picked: Vec<_> = (0..3).map(|_| take_turn(&mut registry, methods[0])).collect();
        assert!(picked[0] != picked[1] && picked[0] == picked[2] && !picked.contains(&daemon), "{picked:?}");
        registry.withdraw(one);
        assert_eq!((count(&registry, 0), count(&registry, 1)), ((2, 1), (1, 1)));
        registry.withdraw(other);
        assert_eq!(registry.in_line(methods[0]).only_one().unwrap().session, daemon);
    }

    #[test]
    fn methods_that_only_whole_services_use_are_forgotten_after_those_who_served_them() {
        let sessions = sessions(1);
        let (mut registry, all, methods) = whole(&sessions, 5000);
        methods.iter().for_each(|method| registry.release(*method));
        registry.forget_unused(&HashSet::new());
        assert!(methods.iter().all(|method| registry.knows(*method)), "somebody serves them");
        assert!(!registry.has_many_unused());
        registry.withdraw(sessions[0]);
        assert!(registry.has_many_unused());
        // Back before they are forgotten, and gone again.
        registry.serve_all(all, server(sessions[0], &types("/a.B/*", true), false));
        registry.forget_unused(&HashSet::new());
        assert!(methods.iter().all(|method| registry.knows(*method)) && !registry.has_many_unused());
        registry.withdraw(sessions[0]);
        registry.forget_unused(&HashSet::new());
        assert_eq!(methods.iter().filter(|method| registry.knows(**method)).count(), 1024 - 1);
        // Those that peers had named were unused for longest.
        assert_eq!(registry.methods.whole("a.B").unwrap().learned, 0);
    }

    /// What one engine writes, with what an older one wrote with each method; read by another.
    fn handed_over(registry: &Registry, is_older: bool) -> Registry {
        let mut image = ciborium::Value::serialized(registry).unwrap();
        if is_older {
            let find = |value: &ciborium::Value, name: &str| {
                let map = value.as_map().unwrap();
                map.iter().position(|(key, _)| key.as_text() == Some(name)).unwrap()
            };
            let (opaque, methods) = (find(&image, "opaque"), find(&image, "methods"));
            let map = image.as_map_mut().unwrap();
            let service = map[opaque].1.as_map().unwrap()[0].1.clone();
            let servers = service.as_map().unwrap()[find(&service, "servers")].1.clone();
            for entry in map[methods].1.as_array_mut().unwrap() {
                let at = find(entry, "servers");
                entry.as_map_mut().unwrap()[at].1 = servers.clone();
            }
        }
        image.deserialized().unwrap()
    }

    #[test]
    fn a_whole_service_is_handed_over_by_engines_of_both_kinds() {
        let sessions = sessions(10);
        let (registry, _, methods) = whole(&sessions, 20);
        for is_older in [false, true] {
            let mut next = handed_over(&registry, is_older);
            next.every_server_mut().for_each(|server| server.types = types("/a.B/*", true));
            assert!(next.take_up(|_| MethodIndex(1)));
            methods.iter().skip(1).step_by(2).for_each(|method| next.hold(*method));
            assert_eq!((next.every_server().count(), next.served_by[&sessions[3]].len()), (10, 1));
            assert!(methods.iter().all(|method| next.servers(*method).len() == 10), "{is_older}");
            sessions.iter().for_each(|session| assert!(next.withdraw(*session)));
            assert!(methods.iter().all(|method| next.servers(*method).is_empty()), "{is_older}");
        }
    }
}
