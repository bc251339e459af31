//! What comes with an error beside its code and message (`google.rpc`): the same types in every crate.
//!
//! [`StatusDetails`](crate::StatusDetails) puts them into a [`Status`](crate::Status) and reads them out of one.

pub use crate::shared::ErrorDetails;
pub use crate::shared::rpc::*;
