//! Protobuf's well-known types, the same in every crate: what generated code means by `google.protobuf.Timestamp` and
//! its siblings.
//!
//! | type | converts from and to |
//! |---|---|
//! | [`Timestamp`] | [`SystemTime`](std::time::SystemTime) |
//! | [`Duration`] | [`std::time::Duration`] |
//! | [`Struct`], [`Value`], [`ListValue`] | maps, lists and their elements |
//! | [`StringValue`] and the other wrappers | what they wrap |
//! | [`FieldMask`] | names |
//! | [`Any`] | any generated message: [`Any::pack`], [`Any::unpack`] |
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use trunkline::wkt;
//!
//! # fn main() -> Result<(), wkt::TimeError> {
//! let now = SystemTime::now();
//! assert_eq!(SystemTime::try_from(wkt::Timestamp::from(now))?, now);
//! assert_eq!(wkt::Duration::try_from(Duration::from_millis(1500))?, wkt::Duration { seconds: 1, nanos: 500_000_000 });
//! # Ok(())
//! # }
//! ```
//!
//! Types of this module are what `trunkline-build` and `protoc-gen-trunkline` refer to unless told otherwise
//! (`shared_types(false)`, `extern_path`).

pub use crate::shared::{AnyError, TimeError};

include!("shared/google.protobuf.rs");
