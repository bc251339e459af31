//! A call as a module sees it, what it answers, and how the call ended.

use crate::value::{Slice, Value, Words};
use std::ffi::c_void;

/// The application makes the call.
pub const SIDE_CLIENT: u32 = 0;
/// The application serves it.
pub const SIDE_SERVER: u32 = 1;

/// The method takes a stream of requests: there may be no message yet.
pub const CALL_STREAMS: u32 = 1;

/// `deadline_ns` of a call that has none.
pub const NO_DEADLINE: u64 = u64::MAX;

/// A pair of the call's metadata.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MetadataPair {
    /// Lower-case ASCII.
    pub key: Slice,
    /// Printable ASCII, or any bytes if the key ends in `-bin`.
    pub value: Slice,
}

/// A call that begins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Size of this struct.
    pub struct_bytes: u32,
    /// [`SIDE_CLIENT`] or [`SIDE_SERVER`].
    pub side: u32,
    /// [`CALL_STREAMS`] or zero.
    pub flags: u32,
    /// How many metadata pairs there are.
    pub metadata_count: u32,
    /// How many values there are: as many as fields were asked for.
    pub values_count: u32,
    /// Zero.
    pub reserved: u32,
    /// The daemon's clock: it only goes forward, counts nanoseconds, and begins anywhere.
    pub now_ns: u64,
    /// By the same clock; [`NO_DEADLINE`] if there is none.
    pub deadline_ns: u64,
    /// Size of the request as its sender encoded it; 0 if there is none yet.
    pub request_bytes: u64,
    /// `/package.Service/Method`
    pub path: Slice,
    /// The application that makes the call, or the one that serves it, whichever side this is.
    pub application: Slice,
    /// Who calls, as far as it is proven.
    pub peer_identity: Slice,
    /// Where the call comes from; empty for this host.
    pub peer_address: Slice,
    /// The metadata, if the instance wants to see it.
    pub metadata: *const MetadataPair,
    /// Values of the fields, in the order they were asked for.
    pub values: *const Value,
}

/// The call goes on.
pub const VERDICT_PASS: u32 = 0;
/// The call ends with `code` and `message`; its handler never hears of it.
pub const VERDICT_DENY: u32 = 1;

/// What a module says about a call; the daemon lends it with a verdict of [`VERDICT_PASS`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Size of this struct.
    pub struct_bytes: u32,
    /// [`VERDICT_PASS`] or [`VERDICT_DENY`].
    pub verdict: u32,
    /// The status code of a denied call, 1 to 16.
    pub code: u32,
    /// Zero.
    pub reserved: u32,
    /// Anything; handed back when the call ends.
    pub token: u64,
    /// Room for words to the caller of a denied call.
    pub message: Words,
    /// First argument of `add_metadata`.
    pub context: *mut c_void,
    /// Adds a pair to the metadata of a call that passes. 0, or 1 if the pair is not legal or there are too many.
    pub add_metadata: Option<unsafe extern "C" fn(context: *mut c_void, key: Slice, value: Slice) -> i32>,
}

/// How a call ended that the module had let pass.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Size of this struct.
    pub struct_bytes: u32,
    /// Its status code, 0 to 16.
    pub code: u32,
    /// The daemon's clock.
    pub now_ns: u64,
    /// From `decide` to its end.
    pub elapsed_ns: u64,
    /// What `decide` answered.
    pub token: u64,
}
