//! Methods as callers from elsewhere name them: by their paths.

use crate::limits::Limits;
use crate::opaque::is_path;
use crate::registry::{Called, service_of};
use crate::routing::Routing;
use crate::shard::ShardLinks;
use crate::{cluster::Clusters, registry::Registry, service_users::ServiceUsers};
use trunkline_call::{ClientStamps, Code, Fault, Instant, Pattern, ServerStamps};
use trunkline_telemetry::{MethodIndex, PeerIndex, Record, Side, Telemetry};

/// The owners that know what a path stands for, and whether that is served here.
pub(crate) struct CalledPaths<'e> {
    pub registry: &'e mut Registry,
    pub telemetry: &'e mut Telemetry,
    pub shards: &'e ShardLinks,
    pub service_users: &'e ServiceUsers,
    pub clusters: &'e Clusters,
    pub limits: &'e Limits,
}

impl CalledPaths<'_> {
    /// The method meant by a path, if somebody here has named it or serves its service as a whole.
    pub fn called(&mut self, path: &str) -> Option<Called> {
        let Self { registry, telemetry, shards, limits, .. } = self;
        let max = limits.methods_learned_per_service;
        let called = registry.called(path, max, |path| telemetry.method(path));
        if called.is_some() || !shards.elsewhere.has_whole(service_of(path)) || !is_path(path) {
            return called;
        }
        let method = registry.learn_forwarded(path, max, |path| telemetry.method(path));
        let shared = &**registry.path(method) != path;
        Some(Called { method, path: shared.then(|| path.into()) })
    }

    /// The method meant by a path, if it is served on this host.
    ///
    /// # Errors
    /// Why a call of it is not taken.
    pub fn served(&mut self, path: &str) -> Result<(Called, Pattern), Fault> {
        let Some(called) = self.called(path) else { return Err(self.unknown(path)) };
        let method = called.method;
        match self.routing().types_served(method) {
            Some(types) => Ok((called, types.pattern)),
            // Somebody served it and is away: to try again is sound, and UNIMPLEMENTED would say it is not.
            None if self.registry.was_served(method) => {
                Err(Fault::NoRoute { what: service_of(path).to_owned() })
            }
            None => Err(self.unknown(path)),
        }
    }

    /// A call that was refused before it was one is in the books all the same, as served: a host is to know what it
    /// sheds. Names that nobody here has bound are told together.
    #[cold]
    pub fn note_refused(
        &mut self,
        arrived: Instant,
        now: Instant,
        (path, peer): (&str, PeerIndex),
        code: Code,
    ) {
        let Self { registry, telemetry, .. } = self;
        let method = registry.key_of(path).map_or(MethodIndex::OTHER, |method| registry.number(method));
        let server = ServerStamps {
            k7: arrived,
            d8: now,
            a10: now,
            a11: now,
            d12: now,
            k14: now,
            ..Default::default()
        };
        let record = Record {
            side: Side::Served,
            method,
            peer,
            code,
            request_bytes: 0,
            response_bytes: 0,
            client: ClientStamps::default(),
            server: Some(server),
            is_stream: false,
        };
        telemetry.record_refused(now, &record);
    }

    /// Why a call of a service is not taken that has endpoints here, if it has.
    pub fn unserved(&self, path: &str) -> Option<Fault> {
        let service = service_of(path);
        self.clusters.of_service(service).filter(|_| !self.routing().serves_service(service))?;
        let why = "its endpoints are for applications of this host; calls from elsewhere are forwarded only where \
                   gateway.listen in the daemon's configuration says";
        Some(Fault::Unreachable { endpoint: service.to_owned(), why: why.into() })
    }

    /// Those who know who serves what.
    pub fn routing(&self) -> Routing<'_> {
        let Self { registry, shards, service_users, clusters, .. } = self;
        Routing { registry, shards, service_users, clusters }
    }

    fn unknown(&self, path: &str) -> Fault {
        self.unserved(path).unwrap_or_else(|| Fault::NoMethod { path: path.to_owned() })
    }
}
