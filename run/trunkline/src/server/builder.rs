//! What a server serves, and its start.

use super::handle::ServerHandle;
use super::routes::Offer;
use super::service::Service;
use super::shared::Shared;
#[cfg(feature = "signals")]
use super::signals;
use super::worker::Worker;
use crate::hub::{Connect, Connector, Hub, Role};
use crate::intercept::ServerInterceptor;
use crate::kick::Kick;
use crate::opaque;
use crate::settings::Settings;
use crate::wait::Wait;
use std::fmt;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use trunkline_call::Status;

/// Most workers. Each has a thread and a session; more than the largest hosts have cores help nobody.
const WORKERS_MAX: usize = 256;

/// What is run around a worker's loop.
type Scope = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// What handlers find around them.
#[derive(Clone)]
enum Around {
    Nothing,
    Scope(Scope),
    /// The runtime `spawn` is called in, or one of the server's own.
    #[cfg(feature = "tokio")]
    Tokio,
}

/// Serves calls from this host and, through its daemon, from everywhere.
///
/// Each worker is a thread with a session of its own. A handler is first polled by the thread that received its call
/// and mostly finishes there; what waits is kept by that thread and polled when woken. So a handler must not block
/// for long (it may use [`Wait`] for calls it makes). There is one worker unless [`ServerBuilder::workers`] says
/// otherwise. Handlers that use tokio's timers or sockets are served by [`ServerBuilder::in_tokio`].
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
    around: Around,
    interceptors: Vec<Arc<dyn ServerInterceptor>>,
    tells_callers: bool,
    #[cfg_attr(not(feature = "signals"), allow(dead_code, reason = "nobody listens for signals"))]
    signals: bool,
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
            around: Around::Nothing,
            interceptors: Vec::new(),
            tells_callers: false,
            signals: true,
        }
    }

    /// A server whose handlers may use tokio: [`ServerBuilder::in_tokio`].
    #[cfg(feature = "tokio")]
    pub fn in_tokio() -> ServerBuilder {
        Self::builder().in_tokio()
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

    /// Shows each call of the server's generated services to `interceptor` before it is handled. Of several, the one
    /// added first comes first; a service's own ([`Intercept`](crate::Intercept)) come after them.
    pub fn with_interceptor(mut self, interceptor: impl ServerInterceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Whether handlers and interceptors are told who calls ([`Incoming::caller`](crate::Incoming::caller)); they are
    /// not unless it is said here, as it costs each call some metadata. A daemon that does not know the question does
    /// not tell. Opaque services find it in the metadata, under `trunkline-caller`.
    pub fn tell_callers(mut self, yes: bool) -> Self {
        self.tells_callers = yes;
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

    /// The daemon that gives these connections, wherever its socket is: for what a daemon serves itself. Servers with
    /// the same `connect` share what looks after their sessions.
    #[doc(hidden)]
    pub fn connect_with(mut self, connect: Arc<Connect>) -> Self {
        self.settings.given = Some(Connector(connect));
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
        self.around = Around::Scope(Arc::new(scope));
        self
    }

    /// Runs handlers where tokio's timers, sockets and `spawn` work: in the runtime the server is started in, or, if it
    /// is started outside of one, in a runtime of its own with a thread for those. Handlers are still polled by the
    /// server's workers. Of a current-thread runtime, timers and sockets move only while that runtime runs.
    ///
    /// Needs the cargo feature `tokio`, and of tokio itself the features the handlers use (`time`, `net`).
    #[cfg(feature = "tokio")]
    pub fn in_tokio(mut self) -> Self {
        self.around = Around::Tokio;
        self
    }

    /// Whether [`ServerBuilder::run`] stops gracefully on SIGTERM and SIGINT; it does unless told otherwise here.
    pub fn stop_on_signals(mut self, yes: bool) -> Self {
        self.signals = yes;
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

    /// Serves until `shutdown` is ready, then takes no new calls, gives those in flight [`ServerBuilder::grace`] to
    /// finish, and returns. `tokio::signal::ctrl_c()` makes such a future, and so does a channel's receiver.
    ///
    /// # Errors
    /// As [`ServerBuilder::serve`].
    ///
    /// # Cancel safety
    /// Dropping it stops the server.
    pub async fn serve_with_shutdown(self, shutdown: impl Future) -> Result<(), Status> {
        let grace = self.grace;
        let server = self.spawn()?;
        let ended = {
            let (mut finished, mut shutdown) = (pin!(server.finished()), pin!(shutdown));
            poll_fn(|cx| match finished.as_mut().poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending => shutdown.as_mut().poll(cx).map(|_| None),
            })
            .await
        };
        match ended {
            Some(outcome) => outcome,
            None => server.shutdown(grace).await,
        }
    }

    /// [`ServerBuilder::serve`] on this thread, until the process is told to end: at the first SIGTERM or SIGINT the
    /// server takes no new calls, gives those in flight [`ServerBuilder::grace`] to finish, and this returns. A second
    /// signal ends the process at once.
    ///
    /// A signal that the program catches or ignores before this is called is left to it, and so are both after
    /// [`stop_on_signals(false)`](ServerBuilder::stop_on_signals) or without the cargo feature `signals` (on by
    /// default). Handlers installed later run beside this one, if they call the one they find, as those of signal-hook
    /// and tokio do. A child forked meanwhile has this handler until it executes another program. If it runs a server
    /// itself, the first of these signals stops that; else the first that it gets stops neither it nor its parent's
    /// server, and the second ends it.
    ///
    /// # Errors
    /// As [`ServerBuilder::serve`].
    pub fn run(self) -> Result<(), Status> {
        #[cfg(feature = "signals")]
        if self.signals {
            let grace = self.grace;
            // Before anybody can call: a signal that comes while the server starts stops it, too.
            let (server, _told) = self.begin(|shared| signals::tell(shared, grace))?;
            return server.wait();
        }
        self.serve().wait()
    }

    /// Serves in the background.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is no thread or descriptor for a worker. FAILED_PRECONDITION when the environment
    /// says what cannot be meant (`TRUNKLINE_HEAP_BYTES=much`).
    pub fn spawn(self) -> Result<ServerHandle, Status> {
        self.begin(|_| ()).map(|(server, ())| server)
    }

    /// Starts the workers; `before` is called when there is something to stop and nothing runs yet.
    pub(super) fn begin<T>(
        self,
        before: impl FnOnce(&Arc<Shared>) -> T,
    ) -> Result<(ServerHandle, T), Status> {
        crate::settings::check_environment()?;
        let name = self.settings.name();
        let hub = Hub::of(self.settings.daemon(), &name);
        let kicks: Result<Vec<_>, _> = (0..self.workers).map(|_| Kick::new()).collect();
        let kicks = kicks.map_err(|error| no_worker(&error))?;
        let interceptors = &self.interceptors;
        let services = self.services.into_iter().map(|offer| offer.after(interceptors)).collect();
        let shared = Shared::new(services, kicks.clone(), self.grace);
        let handle = ServerHandle::new(Arc::clone(&shared), self.grace);
        let role = Role { stands_by: self.stands_by, tells_callers: self.tells_callers };
        let scope = self.around.scope()?;
        let before = before(&shared);
        let mut refused = None;
        for (index, kick) in kicks.into_iter().enumerate() {
            let lane = hub.worker_lane(&name, Arc::clone(&kick), role);
            let worker = Worker::new(Arc::clone(&shared), Arc::clone(hub.reactor()), lane, kick);
            let scope = scope.clone();
            let ended = Ended(Arc::clone(&shared));
            let thread = std::thread::Builder::new().name(format!("trunkline-worker-{index}"));
            if let Err(error) = thread.spawn(move || run(worker, scope, ended)) {
                refused = Some(error);
            }
        }
        refused.map_or(Ok((handle, before)), |error| Err(no_worker(&error)))
    }
}

impl Around {
    /// What is run around each worker's loop.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is no thread or descriptor for a runtime.
    fn scope(self) -> Result<Option<Scope>, Status> {
        match self {
            Self::Nothing => Ok(None),
            Self::Scope(scope) => Ok(Some(scope)),
            #[cfg(feature = "tokio")]
            Self::Tokio => within_tokio().map(Some),
        }
    }
}

/// Enters tokio's runtime: the one this is called in, else a new one that lives as long as the workers.
#[cfg(feature = "tokio")]
fn within_tokio() -> Result<Scope, Status> {
    use tokio::runtime::{Builder, Handle};
    if let Ok(runtime) = Handle::try_current() {
        return Ok(Arc::new(move |run| {
            let _entered = runtime.enter();
            run();
        }));
    }
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().thread_name("trunkline-tokio").build();
    let runtime =
        runtime.map_err(|error| Status::resource_exhausted(format!("starting a tokio runtime: {error}")))?;
    Ok(Arc::new(move |run| {
        let _entered = runtime.enter();
        run();
    }))
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
