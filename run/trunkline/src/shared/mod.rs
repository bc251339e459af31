//! What the types of [`wkt`](crate::wkt) and [`rpc`](crate::rpc) can do. The types themselves are generated, from
//! `proto/google/` here and at the root; `tests/codegen/tests/shared.rs` holds them to that, and writes them.

mod any;
mod convert;
mod details;
pub mod rpc;
mod time;

pub use any::AnyError;
pub use details::{ErrorDetails, StatusDetails};
pub use time::TimeError;
