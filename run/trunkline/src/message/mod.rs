//! Messages on their way: owned structs, messages built in place, messages read in place, and what goes with them.

mod body;
mod built;
mod bytes;
mod incoming;
mod metadata;
mod received;
mod request;
mod response;
mod space;
mod within;

pub use body::Outgoing;
pub(crate) use body::{Body, NotPlaced, Sendable};
pub use built::Built;
pub(crate) use bytes::Raw;
pub use incoming::Incoming;
pub(crate) use incoming::Said;
pub(crate) use incoming::time_left;
pub(crate) use metadata::{encoded, write_bytes, write_metadata};
pub use received::Received;
pub use request::{IntoRequest, Request};
pub use response::Response;
pub use space::SendExtent;
pub(crate) use within::Within;
