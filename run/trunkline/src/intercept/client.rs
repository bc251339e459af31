//! Interceptors of a channel: what happens to each call before it is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::{Metadata, Status};

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
