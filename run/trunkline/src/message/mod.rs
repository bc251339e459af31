//! Messages on their way: owned structs, messages built in place, messages read in place, and what goes with them.

mod body;
mod built;
mod bytes;
mod incoming;
mod received;
mod request;
mod response;
mod space;

pub use body::Outgoing;
pub(crate) use body::{Body, Hurdle, Sendable};
pub use built::Built;
pub(crate) use bytes::Raw;
pub use incoming::Incoming;
pub(crate) use incoming::Said;
pub(crate) use incoming::time_left;
pub use received::Received;
pub(crate) use request::Within;
pub use request::{IntoRequest, Request};
pub use response::Response;
pub use space::SendExtent;
