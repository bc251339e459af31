//! Interceptors of a service: what happens to each call before it is handled.

use std::fmt;
use std::sync::Arc;
use trunkline_call::{Caller, Deadline, Metadata, Status};

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
