//! Agreeing with the daemon on numbers for the methods of a service.

use crate::description::ServiceDescription;
use crate::opaque::Types;
use crate::session::{Agreement, BindingId, Session};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trunkline_call::Status;
use trunkline_control::CallMethod;
use trunkline_shm::PerProcess;

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
    /// The method at a path, by types that were read at run time.
    TypedMethod(Arc<str>, Types),
}

/// A service by its address, a method by its path, and by its types if they are said.
#[derive(PartialEq, Eq, Hash)]
enum Name {
    Service(usize),
    Method(Arc<str>),
    TypedMethod(Arc<str>, Types),
}

/// Ids by what is called and target. Grows with the number of different pairs a program uses.
static IDS: PerProcess<Mutex<Ids>> = PerProcess::new();

/// The last id given. A forked child goes on counting, so that none means two things in it: it has its parent's
/// clients, too.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

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

    /// The binding of the method at `path` through `target`, as `types` declares it.
    pub(crate) fn of_typed_method(path: &str, types: &Types, target: &Arc<str>) -> Self {
        let path = Arc::<str>::from(path);
        let id = id_of(Name::TypedMethod(Arc::clone(&path), types.clone()), target);
        Self { id, what: What::TypedMethod(path, types.clone()), target: Arc::clone(target) }
    }

    /// Makes sure that calls of the service can be submitted through `session`. Whoever comes while it is being bound
    /// waits for the same answer.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, PERMISSION_DENIED or RESOURCE_EXHAUSTED, not executed, with the daemon's reason;
    /// UNAVAILABLE when the session ends first.
    pub(crate) async fn make(&self, session: &Arc<Session>) -> Result<(), Status> {
        session.agree(self.id, || self.proposal()).await
    }

    /// `/package.Service/Method` of a method by its index.
    pub(crate) fn path(&self, method: usize) -> &str {
        match &self.what {
            What::Service(service) => service.methods.get(method).map_or("", |method| method.path),
            What::Method(path) | What::TypedMethod(path, _) => path,
        }
    }

    fn proposal(&self) -> Agreement {
        let (name, set, paths) = match &self.what {
            What::Service(service) => {
                let paths: Vec<&str> = service.methods.iter().map(|method| method.path).collect();
                (service.name.into(), Some(Bytes::from_static(service.descriptor_set)), paths)
            }
            What::Method(path) => (Arc::clone(path), None, vec![&**path]),
            What::TypedMethod(path, types) => (Arc::clone(path), Some(types.descriptor_set()), vec![&**path]),
        };
        let call = |path: &str| CallMethod { path: path.to_owned(), target: self.target.to_string() };
        Agreement { name, calls: paths.into_iter().map(call).collect(), set }
    }
}

fn id_of(name: Name, target: &Arc<str>) -> BindingId {
    let mut ids = IDS.get().lock();
    let next = || BindingId(LAST_ID.fetch_add(1, Ordering::Relaxed) + 1);
    *ids.entry((name, Arc::clone(target))).or_insert_with(next)
}

#[cfg(test)]
mod tests {
    //! Shows that ids are those of one process, and that a forked child takes no lock of its parent's.
    use super::*;
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::time::{Duration, Instant};

    fn id(path: &str) -> BindingId {
        Binding::of_method(path, &"".into()).id
    }

    /// Waits for a child, not for ever.
    fn exit_status(child: i32) -> Option<i32> {
        let child = Pid::from_raw(child)?;
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
                return status.exit_status();
            }
            std::thread::yield_now();
        }
        kill_process(child, Signal::KILL).unwrap();
        None
    }

    #[test]
    fn a_child_gives_ids_of_its_own_while_its_parent_is_giving_some() {
        let known = id("/a/b");
        assert_eq!(id("/a/b"), known);
        let ids = IDS.get().lock();
        match fork::fork().unwrap() {
            fork::Fork::Child => {
                let own = [id("/c/d"), id("/a/b")];
                let fresh = own[0] != own[1] && !own.contains(&known);
                std::process::exit(if fresh { 0 } else { 1 });
            }
            fork::Fork::Parent(child) => assert_eq!(exit_status(child), Some(0)),
        }
        drop(ids);
        assert_eq!(id("/a/b"), known);
    }
}
