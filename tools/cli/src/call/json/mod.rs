//! JSON to protobuf and back, by descriptor: protobuf's JSON mapping (protobuf.dev/programming-guides/json).
//!
//! What the mapping gives several forms is read in all of them; what has no form in it, in either direction, is an
//! error that names field and reason. Nothing is rounded, cut off or left out in silence.

mod known;
mod number;
mod read;
mod requests;
mod write;

pub use requests::{JsonError, Requests, Style, to_json};

#[cfg(test)]
mod tests;
