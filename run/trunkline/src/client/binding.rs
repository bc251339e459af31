//! Agreeing with the daemon on numbers for the methods of a service.

use crate::codegen::ServiceDescription;
use crate::session::{BindingId, Session, unavailable};
use parking_lot::Mutex;
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, LazyLock};
use trunkline_call::{Code, Execution, RouteIndex, Status};
use trunkline_control::{Bind, CallMethod};
use trunkline_shm::create_blob;

/// A service called through one target.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) id: BindingId,
    pub(crate) service: &'static ServiceDescription,
    target: Arc<str>,
}

/// Ids by service (its address) and target. Grows with the number of different pairs a program uses.
static IDS: LazyLock<Mutex<Ids>> = LazyLock::new(Mutex::default);

type Ids = HashMap<(usize, Arc<str>), BindingId>;

impl Binding {
    /// The binding of `service` through `target`. The same pair has the same id everywhere in the process, so clients
    /// may be made as often as one likes.
    pub(crate) fn new(service: &'static ServiceDescription, target: &Arc<str>) -> Self {
        let mut ids = IDS.lock();
        let next = BindingId(ids.len() as u64 + 1);
        let key = (std::ptr::from_ref(service) as usize, Arc::clone(target));
        let id = *ids.entry(key).or_insert(next);
        Self { id, service, target: Arc::clone(target) }
    }

    /// Makes sure that calls of the service can be submitted through `session`. Tasks that come while another binds
    /// wait for it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, not executed, with the daemon's reason; UNAVAILABLE when the session ends first.
    pub(crate) async fn make(&self, session: &Arc<Session>) -> Result<(), Status> {
        while poll_fn(|cx| session.poll_claim(self.id, cx)).await {
            let mut claim = Claim { session, id: self.id, routes: None };
            claim.routes = Some(self.bind(session).await?);
        }
        Ok(())
    }

    async fn bind(&self, session: &Arc<Session>) -> Result<Arc<[RouteIndex]>, Status> {
        let set = self.service.descriptor_set;
        let blob = create_blob(set).map_err(|error| unavailable(&error.to_string()))?;
        let call = |path: &str| CallMethod { path: path.to_owned(), target: self.target.to_string() };
        let calls: Vec<_> = self.service.methods.iter().map(|method| call(method.path)).collect();
        let wanted = calls.len();
        let bind = Bind { descriptor_set_bytes: set.len() as u64, serves: Vec::new(), calls };
        let bound = session.bind(bind, blob.as_fd())?.await?;
        if !bound.error.is_empty() {
            return Err(refused(self.service.name, &bound.error));
        }
        if bound.calls.len() != wanted {
            return Err(refused(self.service.name, "the daemon numbered another count of methods"));
        }
        Ok(bound.calls.into_iter().map(RouteIndex).collect())
    }
}

/// The daemon does not take a service as it is described.
pub(crate) fn refused(service: &str, why: &str) -> Status {
    Status::new(Code::FailedPrecondition, format!("binding {service}: {why}"))
        .with_execution(Execution::NotExecuted)
}

/// Being the one who binds; when that ends, however it ends, the others look again.
struct Claim<'a> {
    session: &'a Arc<Session>,
    id: BindingId,
    routes: Option<Arc<[RouteIndex]>>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.session.settle_claim(self.id, self.routes.take());
    }
}
