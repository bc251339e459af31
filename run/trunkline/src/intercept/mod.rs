//! What happens to every call of a client or a service before it is made or handled: credentials added, callers
//! checked, calls refused.

mod client;
mod server;
mod service;

pub(crate) use client::ClientInterceptors;
pub use client::{ClientCall, ClientInterceptor};
pub(crate) use server::ServerInterceptors;
pub use server::{ServerCall, ServerInterceptor};
pub use service::{Intercept, Intercepted};
