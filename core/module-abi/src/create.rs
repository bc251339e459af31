//! What an instance is made from, and what it asks for.

use crate::value::{Slice, Value};
use std::ffi::c_void;

/// One value of the configuration: `rate = 5` is `rate`, `limits.burst = 2` is `limits.burst`, the first of
/// `tenants = ["a", "b"]` is `tenants.0`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The way to it, parts joined by dots.
    pub key: Slice,
    /// The value: bool, int, double or text.
    pub value: Value,
}

/// What an instance is made from.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Size of this struct.
    pub struct_bytes: u32,
    /// How many pairs there are.
    pub pairs_count: u32,
    /// The pairs, in the order of their keys.
    pub pairs: *const Pair,
    /// The policy's name.
    pub policy: Slice,
}

/// Where the message's type has no such field, the value is [`KIND_NONE`](crate::KIND_NONE), and the policy is not
/// refused.
pub const FIELD_OPTIONAL: u32 = 1;

/// Something an instance wants to see of every call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// An expression as in docs/policy.md: `request.tenant`, `metadata.tier`, `size(request.items)`.
    pub expression: Slice,
    /// The kind of value it must have.
    pub kind: u32,
    /// [`FIELD_OPTIONAL`] or zero.
    pub flags: u32,
}

/// The instance wants `finish` to be called when a call it let pass has ended.
pub const WANTS_END: u32 = 1;
/// The instance wants to see the call's metadata.
pub const WANTS_METADATA: u32 = 2;

/// What came of `create`; the daemon lends it zeroed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// Size of this struct.
    pub struct_bytes: u32,
    /// [`WANTS_END`], [`WANTS_METADATA`].
    pub wants: u32,
    /// Handed to every other callback. May be null.
    pub instance: *mut c_void,
    /// What it wants to see of every call; lies there until `destroy`.
    pub fields: *const Field,
    /// How many there are.
    pub fields_count: u32,
    /// Zero.
    pub reserved: u32,
}
