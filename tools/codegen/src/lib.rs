//! Source code from protobuf descriptors.
//!
//! One `FileDescriptorSet` in, one file of Rust per protobuf package out. `trunkline-build` calls this from a
//! `build.rs`, `protoc-gen-trunkline` from protoc; neither adds anything to what is generated.
//!
//! # Way of the data
//! 1. [`model`] reads the descriptors (names, comments, order of declaration) and the schema made of them (presence,
//!    slots, fingerprints) into a tree that knows no language: packages, messages, fields, services.
//! 2. `rust` settles every name (keywords, collisions, modules), then renders package by package, one file per thing
//!    rendered: plain structs, enums, oneofs, views, builders, the `Message` impl, clients, servers.
//!
//! Another language is another renderer beside `rust`; it shares the model and nothing else. `cpp` writes clients and
//! services over `trunkline.hpp`, with the messages of protobuf's own compiler. `python` writes messages, stubs and
//! services over `trunkline.linear`.
//!
//! # What this room does not know
//! It reads and writes no file, runs no program and formats by its own hand. It does not compute layouts or
//! fingerprints: those are `core/schema`'s, and appear in generated code as constants that tests compare with the
//! run-time schema. It does not depend on the library its output uses; the words the two share are those of
//! `trunkline::codegen`.
//!
//! # Invariants
//! * The output depends on descriptors and options only: same input, same bytes.
//! * Descriptors need not be trusted: what is written as code has been checked to be an identifier or a number, what is
//!   written as text is escaped, and a comment stays one.
//! * The output mentions only the runtime path ([`Options::runtime`]), `::core`, `::std` and paths of its own tree.
#![forbid(unsafe_code)]

mod cpp;
mod error;
pub mod model;
mod options;
mod python;
mod rust;

pub use cpp::{CppHeader, generate_cpp, generate_cpp_grpc, generate_cpp_linear};
pub use error::CodegenError;
pub use options::Options;
pub use python::{PythonModule, generate_python};
pub use rust::{GeneratedFile, generate, module_tree, self_contained};
