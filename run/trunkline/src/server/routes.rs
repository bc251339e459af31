//! Which service and method a delivered call's route means.

use super::service::Service;
use crate::intercept::{Intercepted, ServerInterceptor};
use crate::opaque;
use crate::refusals::refused;
use crate::session::{IdMap, Session};
use bytes::Bytes;
use std::sync::Arc;
use trunkline_call::{Code, RouteIndex, Status};

/// A service that was added to a server.
#[derive(Clone)]
pub(super) enum Offer {
    Typed(Arc<dyn Service>),
    Opaque(Arc<dyn opaque::Service>),
}

impl Offer {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Typed(service) => service.description().name,
            Self::Opaque(service) => service.name(),
        }
    }

    /// The service behind these interceptors, the first of which sees a call first.
    pub(super) fn after(self, interceptors: &[Arc<dyn ServerInterceptor>]) -> Self {
        match self {
            Self::Typed(service) => {
                let behind = |service: Arc<dyn Service>, interceptor: &Arc<dyn ServerInterceptor>| {
                    Arc::new(Intercepted::new(service, Arc::clone(interceptor))) as Arc<dyn Service>
                };
                Self::Typed(interceptors.iter().rev().fold(service, behind))
            }
            opaque => opaque,
        }
    }

    fn served(&self, path: &str) -> Option<Served> {
        match self {
            Self::Typed(service) => {
                let method = service.description().methods.iter().position(|method| method.path == path)?;
                Some(Served::Method(Arc::clone(service), method))
            }
            Self::Opaque(service) if service.types().is_some() => {
                Some(Served::Path(Arc::clone(service), path.into()))
            }
            Self::Opaque(service) => Some(Served::Service(Arc::clone(service))),
        }
    }

    /// The descriptors of its types, if they are said.
    fn descriptor_set(&self) -> Option<Bytes> {
        match self {
            Self::Typed(service) => Some(Bytes::from_static(service.description().descriptor_set)),
            Self::Opaque(service) => service.types().map(opaque::Types::descriptor_set),
        }
    }
}

/// Routes of the services bound to one session.
#[derive(Default)]
pub(super) struct Routes {
    by_route: IdMap<RouteIndex, Served>,
    /// Services that the daemon refuses and answers itself, with why.
    left_out: Vec<(Box<str>, Status)>,
}

/// Packages of services that a daemon answers where an application may not: every gRPC program brings them.
const STOOD_IN_FOR: [&str; 4] = ["grpc.health.", "grpc.reflection.", "grpc.channelz.", "xds.service.orca."];

/// What a route stands for.
#[derive(Clone)]
pub(super) enum Served {
    /// A method of a service.
    Method(Arc<dyn Service>, usize),
    /// A service as a whole.
    Service(Arc<dyn opaque::Service>),
    /// A method, by its path, of a service whose types are read at run time.
    Path(Arc<dyn opaque::Service>, Arc<str>),
}

impl Routes {
    /// Announces every service on `session`. Those that the daemon stands in for may be refused: the others are served.
    ///
    /// # Errors
    /// FAILED_PRECONDITION or PERMISSION_DENIED with the daemon's reason; UNAVAILABLE when the session ends first.
    pub(super) async fn bind(session: &Arc<Session>, services: &[Offer]) -> Result<Self, Status> {
        let mut routes = Self::default();
        for service in services {
            let name = service.name();
            match routes.bind_one(session, service).await {
                Err(why) if why.code() == Code::PermissionDenied && is_stood_in_for(name) => {
                    routes.left_out.push((name.into(), why));
                }
                bound => bound?,
            }
        }
        match routes.left_out.len() {
            left_out if left_out > 0 && left_out == services.len() => Err(routes.left_out.swap_remove(0).1),
            _ => Ok(routes),
        }
    }

    /// Services that are not served, for the daemon answers them itself.
    pub(super) fn left_out(&self) -> &[(Box<str>, Status)] {
        &self.left_out
    }

    pub(super) fn find(&self, route: RouteIndex) -> Option<&Served> {
        self.by_route.get(&route)
    }

    async fn bind_one(&mut self, session: &Arc<Session>, offer: &Offer) -> Result<(), Status> {
        let set = offer.descriptor_set();
        let bound = session.bind(vec![offer.name().to_owned()], set.as_deref())?.await?;
        if !bound.error.is_empty() {
            return Err(refused(offer.name(), &bound));
        }
        for bound in bound.serves {
            if let Some(served) = offer.served(&bound.path) {
                self.by_route.insert(RouteIndex(bound.route), served);
            }
        }
        Ok(())
    }
}

fn is_stood_in_for(service: &str) -> bool {
    STOOD_IN_FOR.iter().any(|package| service.starts_with(package))
}
