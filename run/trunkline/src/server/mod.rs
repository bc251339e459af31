//! Serving calls.

mod answer;
mod builder;
mod call;
mod delivered;
mod handle;
mod meter;
mod routes;
mod service;
mod shared;
#[cfg(feature = "signals")]
mod signals;
mod tasks;
mod worker;

pub(crate) use answer::Answer;
pub use answer::Handling;
pub use builder::{Server, ServerBuilder};
pub(crate) use call::Call;
pub use delivered::Delivered;
pub use handle::ServerHandle;
pub use service::Service;
