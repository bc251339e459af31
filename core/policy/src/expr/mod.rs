//! Expressions over a call, in the syntax of the Common Expression Language (github.com/google/cel-spec).
//!
//! An expression is cut (`lex`, `text`), parsed (`parse` to `ast`), type-checked (`check`, `member`, `call`) into a
//! tree of field offsets (`node`), and evaluated over linear messages (`eval`, `value`). That allocates nothing, unless
//! it asks how many keys a large map has. `re2` reads patterns.
//!
//! The language is CEL's, less what would have to make new values: no joined strings, no map or message literals, no
//! `filter` and `map`, no timestamps. Patterns of `matches` are literals, so that they are compiled beforehand.

mod ast;
mod call;
mod check;
mod error;
mod eval;
mod expression;
mod inputs;
mod keys;
mod lex;
mod member;
mod metadata;
mod node;
mod parse;
mod re2;
mod steps;
mod text;
mod types;
mod value;

pub(crate) use error::did_you_mean;
pub use error::{EvalError, ExprError, STEPS_MAX};
pub use expression::{Expression, Program};
pub use inputs::{FieldValue, Inputs, ValueKind, Wanted};
