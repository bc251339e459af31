//! `grpc.reflection`: the descriptors of what is served, for tools that have none.
//!
//! `files.rs` indexes one descriptor set, byte for byte as an application brought it; `catalog.rs` is all of them and
//! answers questions; `service.rs` gives both published versions of the service the same answers.

mod catalog;
mod files;
mod service;

pub use files::{File, Files};
pub(crate) use service::ReflectionService;
