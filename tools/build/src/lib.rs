//! Stubs from `.proto` files, in a `build.rs`.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), trunkline_build::BuildError> {
//!     trunkline_build::compile_protos(&["proto/greeter.proto"], &["proto"])
//! }
//! ```
//!
//! The crate then includes what was generated and needs no dependency but `trunkline`:
//!
//! ```text
//! pub mod greeter {
//!     trunkline::include_proto!("greeter.v1");
//! }
//! ```
//!
//! One file `<package>.rs` is written per package, imported packages included. One that refers to others brings them
//! along in a module `packages`. `trunkline_protos.rs` includes each package once, as nested modules
//! (`trunkline::include_protos!()`), for when several packages refer to each other or to the same one. Protobuf's
//! well-known types are the library's (`trunkline::wkt`).
//!
//! This room compiles `.proto` files (protox; no protoc is needed), writes files below `OUT_DIR` and tells Cargo what
//! they depend on. What the code looks like is `tools/codegen`'s business; [`Builder`] passes choices on to it.
//!
//! # Invariants
//! * Cargo runs the script again when a `.proto` file that was read has changed, and only then.
//! * A mistake in a `.proto` file ends the build with file, line, column and the offending text; nothing is written.
#![forbid(unsafe_code)]

mod builder;
mod error;

pub use builder::{Builder, compile_protos};
pub use error::BuildError;
