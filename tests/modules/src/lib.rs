//! Policy modules for tests: where cargo has built those in Rust, and how those in C are compiled.
//!
//! Whoever depends on this crate has the modules built beside its own tests:
//!
//! * `token_bucket_1`, `token_bucket_2`: the examples in `examples/modules`;
//! * `faulty`: passes calls, counts them, and does wrong on order.
//!
//! `field_check.c`, also an example, and `hostile.c`, which is whatever its macros make of it, are compiled by the
//! machine's C compiler into a folder of the test's. Tests that need it fail without one and say so: it is the ABI's
//! other language.
//!
//! Nothing here is linked with the modules: they are only built.
#![forbid(unsafe_code)]

mod built;

pub use built::{FAULTY, TOKEN_BUCKET_1, TOKEN_BUCKET_2, compiled, field_check, hostile, rust};
