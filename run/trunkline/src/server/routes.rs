//! Which service and method a delivered call's route means.

use crate::client::refused;
use crate::codegen::Service;
use crate::session::{Session, unavailable};
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_call::{RouteIndex, Status};
use trunkline_control::Bind;
use trunkline_shm::create_blob;

/// Routes of the services bound to one session.
#[derive(Default)]
pub(super) struct Routes {
    by_route: HashMap<RouteIndex, Served>,
}

/// A method of a service.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) service: Arc<dyn Service>,
    pub(super) method: usize,
}

impl Routes {
    /// Announces every service on `session`.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with the daemon's reason; UNAVAILABLE when the session ends first.
    pub(super) async fn bind(session: &Arc<Session>, services: &[Arc<dyn Service>]) -> Result<Self, Status> {
        let mut routes = Self::default();
        for service in services {
            routes.bind_one(session, service).await?;
        }
        Ok(routes)
    }

    pub(super) fn find(&self, route: RouteIndex) -> Option<&Served> {
        self.by_route.get(&route)
    }

    async fn bind_one(&mut self, session: &Arc<Session>, service: &Arc<dyn Service>) -> Result<(), Status> {
        let description = service.description();
        let set = description.descriptor_set;
        let blob = create_blob(set).map_err(|error| unavailable(&error.to_string()))?;
        let serves = vec![description.name.to_owned()];
        let bind = Bind { descriptor_set_bytes: set.len() as u64, serves, calls: Vec::new() };
        let bound = session.bind(bind, blob.as_fd())?.await?;
        if !bound.error.is_empty() {
            return Err(refused(description.name, &bound.error));
        }
        for served in bound.serves {
            let method = description.methods.iter().position(|method| method.path == served.path);
            if let Some(method) = method {
                let service = Arc::clone(service);
                self.by_route.insert(RouteIndex(served.route), Served { service, method });
            }
        }
        Ok(())
    }
}
