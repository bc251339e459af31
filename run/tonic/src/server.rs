//! Serving what tonic has generated.

use crate::respond::handle;
use crate::words::StdError;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tonic::server::NamedService;
use tower_layer::{Identity, Layer, Stack};
use tower_service::Service;
use trunkline::codegen::Handling;
use trunkline::opaque::{self, Delivered};
use trunkline::{ServerBuilder, ServerHandle, Status};

/// A server of tonic's services: under the host's daemon, or one inside this process.
///
/// Handlers run as tasks of the tokio runtime in which the server is started. With [`Server::in_place`] they run where
/// their call arrives, which saves a hand-over between threads.
#[derive(Clone)]
pub struct Server<L = Identity> {
    builder: ServerBuilder,
    adders: Vec<Adder>,
    layer: L,
    in_place: bool,
    grace: Duration,
}

/// Adds a service to a server once it is known where handlers run.
type Adder = Arc<dyn Fn(ServerBuilder, Place) -> ServerBuilder + Send + Sync>;

/// Where handlers run.
#[derive(Clone, Debug)]
enum Place {
    /// As tasks of a runtime.
    Runtime(Handle),
    /// On the thread of the worker that received the call.
    Worker,
}

impl Server {
    /// A server with nothing to serve yet.
    pub fn builder() -> Self {
        Self {
            builder: trunkline::Server::builder(),
            adders: Vec::new(),
            layer: Identity::new(),
            in_place: false,
            grace: ServerBuilder::GRACE,
        }
    }
}

impl<L> Server<L> {
    /// Puts a layer of tower's around the services that are added from here on, inside the layers before it.
    pub fn layer<N>(self, layer: N) -> Server<Stack<N, L>> {
        let Self { builder, adders, layer: outer, in_place, grace } = self;
        Server { builder, adders, layer: Stack::new(layer, outer), in_place, grace }
    }

    /// Adds a generated service.
    pub fn add_service<S, B>(self, service: S) -> Self
    where
        S: NamedService,
        L: Layer<S>,
        L::Service:
            Service<Request<tonic::body::Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request<tonic::body::Body>>>::Error: Into<StdError> + Send,
        <L::Service as Service<Request<tonic::body::Body>>>::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError>,
    {
        self.add_as(S::NAME, service)
    }

    /// Adds a service under a full name (`package.Service`): one that does not know its own, such as
    /// `tonic::service::Routes`, once per service in it.
    pub fn add_as<S, B>(mut self, name: &str, service: S) -> Self
    where
        L: Layer<S>,
        L::Service:
            Service<Request<tonic::body::Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request<tonic::body::Body>>>::Error: Into<StdError> + Send,
        <L::Service as Service<Request<tonic::body::Body>>>::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError>,
    {
        let name = name.to_owned();
        let service = self.layer.layer(service);
        self.adders.push(Arc::new(move |builder: ServerBuilder, place| {
            builder.add_opaque_service(Adapter { name: name.clone(), service: service.clone(), place })
        }));
        self
    }

    /// The name operators see; the program's file name if none is given.
    pub fn name(mut self, name: &str) -> Self {
        self.builder = self.builder.name(name);
        self
    }

    /// The daemon's socket, instead of `TRUNKLINE_SOCKET` and the default places.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.builder = self.builder.socket(path);
        self
    }

    /// Whether the daemon runs inside this process, instead of `TRUNKLINE_EMBEDDED` and of looking for one.
    pub fn embedded(mut self, embedded: bool) -> Self {
        self.builder = self.builder.embedded(embedded);
        self
    }

    /// Threads that receive calls; 1 if not said. Handlers do not run on them unless [`Server::in_place`] says so.
    pub fn workers(mut self, workers: usize) -> Self {
        self.builder = self.builder.workers(workers);
        self
    }

    /// How long calls in flight may take to finish when the server is dropped.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.builder = self.builder.grace(grace);
        self.grace = grace;
        self
    }

    /// Runs handlers on the threads that receive calls, inside the runtime's context. They may use its timers and
    /// sockets, and must not compute or block for long: the calls that arrived at the same thread wait.
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// Serves until the future is dropped, then finishes calls in flight in the background. Waits for a daemon if there
    /// is none, and attaches anew whenever it comes back.
    ///
    /// # Errors
    /// FAILED_PRECONDITION when the daemon does not take a service; INTERNAL outside of a tokio runtime;
    /// RESOURCE_EXHAUSTED when there is no thread for a worker.
    ///
    /// # Cancel safety
    /// Dropping it stops the server.
    pub async fn serve(self) -> Result<(), Status> {
        self.spawn()?.finished().await
    }

    /// As [`Server::serve`], until `signal` is ready; then waits for calls in flight, as long as [`Server::grace`]
    /// says.
    ///
    /// # Errors
    /// As there.
    pub async fn serve_with_shutdown(self, signal: impl Future<Output = ()>) -> Result<(), Status> {
        let grace = self.grace;
        let handle = self.spawn()?;
        let mut signal = pin!(signal);
        let mut finished = pin!(handle.finished());
        let ended = std::future::poll_fn(|cx| match signal.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => finished.as_mut().poll(cx).map(Some),
        });
        match ended.await {
            Some(outcome) => outcome,
            None => handle.shutdown(grace).await,
        }
    }

    /// Serves in the background.
    ///
    /// # Errors
    /// INTERNAL outside of a tokio runtime; RESOURCE_EXHAUSTED when there is no thread for a worker.
    pub fn spawn(self) -> Result<ServerHandle, Status> {
        let runtime = Handle::try_current()
            .map_err(|_| Status::internal("a tonic server must be started in a tokio runtime"))?;
        let (place, builder) = if self.in_place {
            let scope = move |run: &mut dyn FnMut()| {
                let _entered = runtime.enter();
                run();
            };
            (Place::Worker, self.builder.worker_scope(scope))
        } else {
            (Place::Runtime(runtime), self.builder)
        };
        self.adders.iter().fold(builder, |builder, add| add(builder, place.clone())).spawn()
    }
}

impl<L> fmt::Debug for Server<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("builder", &self.builder)
            .field("services", &self.adders.len())
            .field("in_place", &self.in_place)
            .finish()
    }
}

/// One of tonic's services as one of ours.
struct Adapter<S> {
    name: String,
    service: S,
    place: Place,
}

impl<S, B> opaque::Service for Adapter<S>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<StdError> + Send,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, call: Delivered) -> Handling {
        let work = handle(self.service.clone(), call);
        match &self.place {
            Place::Runtime(runtime) => {
                drop(runtime.spawn(work));
                Box::pin(std::future::ready(()))
            }
            Place::Worker => Box::pin(work),
        }
    }
}
