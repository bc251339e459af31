//! Reading and building messages by descriptor, for tools and tests that have no generated code.
//!
//! Slower than generated code by the lookups, and otherwise the same: both stand on [`View`](crate::View) and
//! [`Block`](crate::Block).

mod builder;
mod value;
mod view;

pub use builder::{DynamicBuilder, MismatchError};
pub use value::{DynamicList, Value};
pub use view::DynamicView;
