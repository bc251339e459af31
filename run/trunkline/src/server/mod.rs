//! Serving calls.

mod call;
mod delivered;
mod handle;
mod routes;
mod shared;
mod tasks;
mod worker;

pub(crate) use call::Call;
pub(crate) use delivered::Answer;
pub use delivered::{Delivered, Handling};
pub use handle::ServerHandle;

use crate::codegen::Service;
use crate::hub::Hub;
use crate::kick::Kick;
use crate::opaque;
use crate::settings::Settings;
use crate::wait::Wait;
use routes::Offer;
use shared::Shared;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::Status;
use worker::Worker;

/// Most workers. Each has a thread and a session; more than the largest hosts have cores help nobody.
const WORKERS_MAX: usize = 256;

/// What is run around a worker's loop.
type Scope = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// Serves calls from this host and, through its daemon, from everywhere.
///
/// Each worker is a thread with a session of its own. A handler is first polled by the thread that received its call
/// and mostly finishes there; what waits is kept by that thread and polled when woken. So a handler must not block
/// for long (it may use [`Wait`] for calls it makes).
///
/// ```no_run
/// # use trunkline::codegen::Service;
/// # async fn example(greeter: impl Service) -> Result<(), trunkline::Status> {
/// trunkline::Server::builder().name("greeter").add_service(greeter).workers(2).serve().await
/// # }
/// ```
#[derive(Debug)]
pub struct Server(());

/// Settings of a [`Server`].
#[derive(Clone)]
pub struct ServerBuilder {
    settings: Settings,
    services: Vec<Offer>,
    workers: usize,
    stands_by: bool,
    grace: Duration,
    scope: Option<Scope>,
}

impl Server {
    /// A server with nothing to serve yet.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            settings: Settings::default(),
            services: Vec::new(),
            workers: 1,
            stands_by: false,
            grace: ServerBuilder::GRACE,
            scope: None,
        }
    }
}

impl ServerBuilder {
    /// How long calls in flight may take to finish when a server is dropped or told to stop without a limit.
    pub const GRACE: Duration = Duration::from_secs(10);

    /// Adds a generated service.
    pub fn add_service(mut self, service: impl Service) -> Self {
        self.services.push(Offer::Typed(Arc::new(service)));
        self
    }

    /// Adds a service whose messages only the application can read.
    pub fn add_opaque_service(mut self, service: impl opaque::Service) -> Self {
        self.services.push(Offer::Opaque(Arc::new(service)));
        self
    }

    /// Threads that run handlers, from 1 to 256; 1 if not said.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, WORKERS_MAX);
        self
    }

    /// The name operators see; the program's file name if none is given.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = Some(name.to_owned());
        self
    }

    /// Serves only while no other application serves the same services: a stand-in, as the daemon itself is for the
    /// services every gRPC server is expected to have.
    pub fn stand_by(mut self) -> Self {
        self.stands_by = true;
        self
    }

    /// The daemon's socket, instead of `TRUNKLINE_SOCKET` and the default places.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.socket = Some(path.into());
        self
    }

    /// Whether the daemon runs inside this process, instead of `TRUNKLINE_EMBEDDED` and of looking for one.
    pub fn embedded(mut self, embedded: bool) -> Self {
        self.settings.embedded = Some(embedded);
        self
    }

    /// How long calls in flight may take to finish when the server is dropped.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs every worker inside `scope`, which calls its argument once: to enter another executor's context, so that
    /// handlers can use its timers and sockets.
    pub fn worker_scope(mut self, scope: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.scope = Some(Arc::new(scope));
        self
    }

    /// Serves until the future is dropped, then finishes calls in flight in the background (see
    /// [`ServerBuilder::grace`]). Waits for a daemon if there is none, and attaches anew whenever it comes back.
    ///
    /// # Errors
    /// FAILED_PRECONDITION when the daemon does not take a service as it is described; RESOURCE_EXHAUSTED when there is
    /// no thread for a worker.
    ///
    /// # Cancel safety
    /// Dropping it stops the server.
    pub async fn serve(self) -> Result<(), Status> {
        self.spawn()?.finished().await
    }

    /// [`ServerBuilder::serve`] on this thread.
    ///
    /// # Errors
    /// As there.
    pub fn run(self) -> Result<(), Status> {
        self.serve().wait()
    }

    /// Serves in the background.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is no thread or descriptor for a worker.
    pub fn spawn(self) -> Result<ServerHandle, Status> {
        let name = self.settings.name();
        let hub = Hub::of(self.settings.daemon(), &name);
        let kicks: Result<Vec<_>, _> = (0..self.workers).map(|_| Kick::new()).collect();
        let kicks = kicks.map_err(|error| no_worker(&error))?;
        let shared = Shared::new(self.services, kicks.clone());
        let handle = ServerHandle::new(Arc::clone(&shared), self.grace);
        let mut refused = None;
        for (index, kick) in kicks.into_iter().enumerate() {
            let lane = hub.worker_lane(&name, Arc::clone(&kick), self.stands_by);
            let worker = Worker::new(Arc::clone(&shared), lane, kick);
            let scope = self.scope.clone();
            let ended = Ended(Arc::clone(&shared));
            let thread = std::thread::Builder::new().name(format!("trunkline-worker-{index}"));
            if let Err(error) = thread.spawn(move || run(worker, scope, ended)) {
                refused = Some(error);
            }
        }
        refused.map_or(Ok(handle), |error| Err(no_worker(&error)))
    }
}

/// Tells that a worker has ended, also when its thread could not be started or panics.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Status::internal("a worker panicked outside of any handler"));
        }
        self.0.worker_ended();
    }
}

fn run(worker: Worker, scope: Option<Scope>, ended: Ended) {
    let mut outcome = Ok(());
    let mut worker = Some(worker);
    let mut run = || {
        if let Some(worker) = worker.take() {
            outcome = worker.run();
        }
    };
    match scope {
        Some(scope) => scope(&mut run),
        None => run(),
    }
    if let Err(status) = outcome {
        ended.0.fail(status);
    }
}

fn no_worker(error: &dyn fmt::Display) -> Status {
    Status::resource_exhausted(format!("starting a worker: {error}"))
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services: Vec<_> = self.services.iter().map(Offer::name).collect();
        f.debug_struct("ServerBuilder")
            .field("settings", &self.settings)
            .field("services", &services)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
