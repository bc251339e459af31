//! Agreeing with the daemon on numbers for the methods of a service.

use crate::codegen::ServiceDescription;
use crate::session::{BindingId, Session};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, LazyLock};
use trunkline_call::{Code, Execution, RouteIndex, Status};
use trunkline_control::CallMethod;

/// A service, or one method of it, called through one target.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) id: BindingId,
    what: What,
    target: Arc<str>,
}

/// What is bound.
#[derive(Clone, Debug)]
enum What {
    /// Every method of a generated service.
    Service(&'static ServiceDescription),
    /// The method at a path, whose types are not said.
    Method(Arc<str>),
}

/// A service by its address, a method by its path.
#[derive(PartialEq, Eq, Hash)]
enum Name {
    Service(usize),
    Method(Arc<str>),
}

/// Ids by what is called and target. Grows with the number of different pairs a program uses.
static IDS: LazyLock<Mutex<Ids>> = LazyLock::new(Mutex::default);

type Ids = HashMap<(Name, Arc<str>), BindingId>;

impl Binding {
    /// The binding of `service` through `target`. The same pair has the same id everywhere in the process, so clients
    /// may be made as often as one likes.
    pub(crate) fn new(service: &'static ServiceDescription, target: &Arc<str>) -> Self {
        let name = Name::Service(std::ptr::from_ref(service) as usize);
        Self { id: id_of(name, target), what: What::Service(service), target: Arc::clone(target) }
    }

    /// The binding of the method at `path` through `target`, its types unsaid.
    pub(crate) fn of_method(path: &str, target: &Arc<str>) -> Self {
        let path = Arc::<str>::from(path);
        let id = id_of(Name::Method(Arc::clone(&path)), target);
        Self { id, what: What::Method(path), target: Arc::clone(target) }
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
        let (name, set, paths) = match &self.what {
            What::Service(service) => {
                let paths: Vec<&str> = service.methods.iter().map(|method| method.path).collect();
                (service.name, Some(service.descriptor_set), paths)
            }
            What::Method(path) => (&**path, None, vec![&**path]),
        };
        let call = |path: &str| CallMethod { path: path.to_owned(), target: self.target.to_string() };
        let calls: Vec<_> = paths.into_iter().map(call).collect();
        let wanted = calls.len();
        let bound = session.bind(Vec::new(), calls, set)?.await?;
        if !bound.error.is_empty() {
            return Err(refused(name, &bound.error));
        }
        if bound.calls.len() != wanted {
            return Err(refused(name, "the daemon numbered another count of methods"));
        }
        Ok(bound.calls.into_iter().map(RouteIndex).collect())
    }
}

fn id_of(name: Name, target: &Arc<str>) -> BindingId {
    let mut ids = IDS.lock();
    let next = BindingId(ids.len() as u64 + 1);
    *ids.entry((name, Arc::clone(target))).or_insert(next)
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
