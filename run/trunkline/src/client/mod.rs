//! Making calls.

mod attempt;
mod bidirectional;
mod binding;
mod client_streaming;
mod draft;
mod made;
mod opening;
pub(crate) mod outcome;
mod server_streaming;
mod starting;
mod stub;
mod target;
mod unary;

pub use bidirectional::Bidirectional;
pub use client_streaming::ClientStreaming;
pub use server_streaming::ServerStreaming;
pub use stub::ClientCore;
pub use unary::Unary;

pub(crate) use attempt::start;
pub(crate) use binding::Binding;
pub(crate) use client_streaming::send_on;
pub(crate) use draft::Draft;
pub(crate) use made::{Arrival, OpenStream};
pub(crate) use opening::{Half, Opening, Start};
pub(crate) use starting::Starting;
pub(crate) use target::Target;
