//! State on its way from one version of a module to the next.

use crate::value::Slice;
use std::ffi::c_void;

/// Where exported state goes, in as many pieces as the module likes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sink {
    /// Size of this struct.
    pub struct_bytes: u32,
    /// Zero.
    pub reserved: u32,
    /// First argument of `write`.
    pub context: *mut c_void,
    /// Takes the next piece. 0, or 1 if there is no more room: the state is then too large to be handed over.
    pub write: Option<unsafe extern "C" fn(context: *mut c_void, piece: Slice) -> i32>,
}

/// State as another version, or this one, has exported it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Size of this struct.
    pub struct_bytes: u32,
    /// `state_format` of the module that exported it.
    pub format: u32,
    /// The state.
    pub bytes: Slice,
}
