//! The two halves of a stream, on either side of a call.

mod push;
mod receiver;
mod sender;

pub(crate) use push::{Push, push};
pub use receiver::Receiver;
pub use sender::Sender;
