//! The project's rules, held by a program.
//!
//! A rule that matters and is not checked is a wish. `cargo xtask tidy` reads the whole work tree and says, with file
//! and line, which rule is broken and what to write instead; `make test` runs it, so a change that breaks one does not
//! land. Rules a compiler or clippy can hold are theirs; these are the ones about this project: who may depend on whom,
//! where `unsafe` may stand, how long a function may get, what a document may claim.
//!
//! # The way of the data
//! [`Tree`] is every path and the text of every Rust file, document and manifest, so rules are pure functions from
//! a tree to [`Finding`]s and their tests need no files. [`source`] is as much of a Rust reader as the rules need:
//! it tells code from comments and strings, finds functions, and knows which lines are tests. [`packages`] are the
//! crates and their layers. One file per rule is in [`rules`]. [`suite`] runs this and every other check and sums
//! up: `make test`; [`counts`] compares instruction counts: `make counts`, and says whose they are. [`pages`] makes
//! pages from data, [`life`] ARCHITECTURE's life of a call from marks in the code, [`site`] a site of all of them:
//! `make docs`; [`deb`] makes the Debian package: `make deb`; [`crates`] packages what others depend on: `make crates`.
//!
//! # The ratchet
//! What was too long when the rule came is listed in `tools/xtask/ratchet.toml` with its length. An entry may only
//! shrink: a file that grew past it fails, and so does one that got better, until the entry is lowered (`--update` does
//! that). New entries are written by hand, with a reason, or better not at all.
//!
//! # Limits
//! This is a reader of text, not a compiler: code made by macros is not seen, and a lint that needs types belongs
//! elsewhere.
#![forbid(unsafe_code)]

pub mod counts;
pub mod crates;
pub mod deb;
mod finding;
pub mod imports;
pub mod life;
mod owners;
pub mod packages;
pub mod pages;
pub mod ratchet;
mod rewrap;
pub mod rules;
pub mod site;
pub mod source;
pub mod suite;
mod tree;

pub use finding::Finding;
pub use rewrap::rewrap;
pub use tree::Tree;
