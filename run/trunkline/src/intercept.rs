//! What happens to every call of a client or a service before it is made or handled: credentials added, callers
//! checked, calls refused.

use crate::codegen::{Delivered, Handling, Service, ServiceDescription};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::{Caller, Deadline, Metadata, Status};

/// Sees calls before they are made. Given to [`Channel::with_interceptor`](crate::Channel::with_interceptor); any
/// closure of this form is one.
///
/// ```
/// # use trunkline::{Channel, ClientCall, Status};
/// let channel = Channel::local().with_interceptor(|call: &mut ClientCall<'_>| {
///     call.metadata_mut().insert("authorization", "Bearer 7f3a")?;
///     Ok(())
/// });
/// ```
pub trait ClientInterceptor: Send + Sync + 'static {
    /// Looks at a call that is about to be made, once, and may add to it.
    ///
    /// # Errors
    /// The status the call ends with instead of being made.
    fn intercept(&self, call: &mut ClientCall<'_>) -> Result<(), Status>;
}

impl<F: Fn(&mut ClientCall<'_>) -> Result<(), Status> + Send + Sync + 'static> ClientInterceptor for F {
    fn intercept(&self, call: &mut ClientCall<'_>) -> Result<(), Status> {
        self(call)
    }
}

/// A call that is about to be made.
#[derive(Debug)]
pub struct ClientCall<'c> {
    pub(crate) path: &'c str,
    pub(crate) target: &'c str,
    pub(crate) metadata: &'c mut Metadata,
    pub(crate) limit: Option<Duration>,
}

impl ClientCall<'_> {
    /// `/package.Service/Method`.
    pub fn path(&self) -> &str {
        self.path
    }

    /// Where the channel's calls go; empty for whoever serves the service.
    pub fn target(&self) -> &str {
        self.target
    }

    /// Metadata of the request (gRPC: headers).
    pub fn metadata(&self) -> &Metadata {
        self.metadata
    }

    /// The metadata, to add to or change.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.metadata
    }

    /// Ends the call when this time has passed since its stub was entered, if nothing ends it earlier.
    pub fn limit(&mut self, timeout: Duration) {
        self.limit = Some(self.limit.map_or(timeout, |limit| limit.min(timeout)));
    }
}

/// Sees calls before they are handled. Given to [`ServerBuilder::with_interceptor`] for all services of a server, or to
/// [`Intercept::with_interceptor`] for one; any closure of this form is one.
///
/// [`ServerBuilder::with_interceptor`]: crate::ServerBuilder::with_interceptor
///
/// ```
/// # use trunkline::{Server, ServerCall, Status};
/// let server = Server::builder().with_interceptor(|call: &mut ServerCall<'_>| match call.metadata().text("tenant") {
///     Some(_) => Ok(()),
///     None => Err(Status::unauthenticated("say which tenant you are")),
/// });
/// ```
pub trait ServerInterceptor: Send + Sync + 'static {
    /// Looks at a call that is about to be handled, and may change what its handler sees. It runs on the worker's
    /// thread, and must not block.
    ///
    /// # Errors
    /// The status the call is answered with instead of being handled.
    fn intercept(&self, call: &mut ServerCall<'_>) -> Result<(), Status>;
}

impl<F: Fn(&mut ServerCall<'_>) -> Result<(), Status> + Send + Sync + 'static> ServerInterceptor for F {
    fn intercept(&self, call: &mut ServerCall<'_>) -> Result<(), Status> {
        self(call)
    }
}

/// A call that is about to be handled.
#[derive(Debug)]
pub struct ServerCall<'c> {
    pub(crate) path: &'static str,
    pub(crate) metadata: &'c mut Metadata,
    pub(crate) caller: Option<&'c Caller>,
    pub(crate) deadline: Deadline,
}

impl ServerCall<'_> {
    /// `/package.Service/Method`.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Metadata of the request (gRPC: headers).
    pub fn metadata(&self) -> &Metadata {
        self.metadata
    }

    /// The metadata as the handler gets it.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.metadata
    }

    /// Who calls, if the server [asked to be told](crate::ServerBuilder::tell_callers).
    pub fn caller(&self) -> Option<&Caller> {
        self.caller
    }

    /// When the call must have ended.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }
}

/// Puts an interceptor before a service.
pub trait Intercept: Service + Sized {
    /// The service, with `interceptor` before each of its calls. Of several, the one added last comes first.
    fn with_interceptor(self, interceptor: impl ServerInterceptor) -> Intercepted<Self> {
        Intercepted::new(self, Arc::new(interceptor))
    }
}

impl<S: Service> Intercept for S {}

/// A service with an interceptor before it.
pub struct Intercepted<S> {
    service: S,
    interceptor: Arc<dyn ServerInterceptor>,
}

impl<S> Intercepted<S> {
    pub(crate) fn new(service: S, interceptor: Arc<dyn ServerInterceptor>) -> Self {
        Self { service, interceptor }
    }
}

impl<S: Service> Service for Intercepted<S> {
    fn description(&self) -> &'static ServiceDescription {
        self.service.description()
    }

    fn call(&self, method: usize, call: Delivered) -> Handling {
        let path = self.description().methods.get(method).map_or("", |method| method.path);
        self.service.call(method, call.after(Arc::clone(&self.interceptor), path))
    }
}

impl Service for Arc<dyn Service> {
    fn description(&self) -> &'static ServiceDescription {
        (**self).description()
    }

    fn call(&self, method: usize, call: Delivered) -> Handling {
        (**self).call(method, call)
    }
}

impl<S: fmt::Debug> fmt::Debug for Intercepted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepted").field("service", &self.service).finish_non_exhaustive()
    }
}

/// Interceptors of a channel, in the order in which they see a call.
#[derive(Clone, Default)]
pub(crate) struct ClientInterceptors(Vec<Arc<dyn ClientInterceptor>>);

impl ClientInterceptors {
    pub(crate) fn with(&self, interceptor: impl ClientInterceptor) -> Self {
        let mut all = self.0.clone();
        all.push(Arc::new(interceptor));
        Self(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn intercept(&self, call: &mut ClientCall<'_>) -> Result<(), Status> {
        self.0.iter().try_for_each(|interceptor| interceptor.intercept(call))
    }
}

impl fmt::Debug for ClientInterceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} interceptors", self.0.len())
    }
}

/// Interceptors of a delivered call, with the path of its method.
#[derive(Default)]
pub(crate) struct ServerInterceptors(Vec<(Arc<dyn ServerInterceptor>, &'static str)>);

impl ServerInterceptors {
    pub(crate) fn push(&mut self, interceptor: Arc<dyn ServerInterceptor>, path: &'static str) {
        self.0.push((interceptor, path));
    }

    pub(crate) fn intercept(
        &self,
        metadata: &mut Metadata,
        caller: Option<&Caller>,
        deadline: Deadline,
    ) -> Result<(), Status> {
        for (interceptor, path) in &self.0 {
            interceptor.intercept(&mut ServerCall { path, metadata, caller, deadline })?;
        }
        Ok(())
    }
}

impl fmt::Debug for ServerInterceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} interceptors", self.0.len())
    }
}
