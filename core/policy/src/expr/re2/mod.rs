//! Patterns of `matches`: RE2's syntax (github.com/google/re2/wiki/Syntax), which CEL demands, said in the syntax that
//! the regex library reads.
//!
//! `translate` reads a pattern and writes another, `class` reads what stands in brackets and behind backslashes,
//! `scripts` has the names of scripts.

mod class;
mod scripts;
mod translate;

pub(super) use translate::translate;
