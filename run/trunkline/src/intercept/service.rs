//! A service with an interceptor before it.

use super::server::ServerInterceptor;
use crate::description::ServiceDescription;
use crate::server::{Delivered, Handling, Service};
use std::fmt;
use std::sync::Arc;

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

impl<S: fmt::Debug> fmt::Debug for Intercepted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepted").field("service", &self.service).finish_non_exhaustive()
    }
}
