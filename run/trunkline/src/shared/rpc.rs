//! The types of `google.rpc`.

include!("google.rpc.rs");
