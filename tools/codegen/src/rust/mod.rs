//! The Rust half: a model's packages as source text.

mod builder;
mod bytes;
mod docs;
mod enums;
mod ident;
mod linear;
mod literal;
mod message;
mod names;
mod oneof;
mod package;
mod plan;
mod scope;
mod service;
mod shared;
mod structs;
mod tree;
mod types;
mod view;
mod writer;

pub use package::{GeneratedFile, generate};
pub use tree::{module_tree, self_contained};
