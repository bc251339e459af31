//! The table a module exports.

use crate::call::{Answer, Call, End};
use crate::create::{Config, Created};
use crate::state::{Sink, State};
use crate::value::{Slice, Words};
use std::ffi::c_void;

/// What the members below mean.
pub const ABI_VERSION: u32 = 1;
/// `TRKPOLCY`, read as a little-endian number: what a table begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TRKPOLCY");
/// The name of the data a module exports.
pub const SYMBOL: &str = "TRUNKLINE_POLICY_MODULE";

/// What a callback returns when it has done what it was asked.
pub const DONE: i32 = 0;
/// It understands and will not: a configuration it cannot use, a state it cannot read. Its words say why.
pub const REFUSED: i32 = 1;
/// It is broken. Its words say how; the module is not called again. So is any other number.
pub const FAULT: i32 = 2;

/// Makes an instance. Called from one thread, the other callbacks possibly from another, never two at once.
pub type Create = unsafe extern "C" fn(config: *const Config, out: *mut Created, words: *mut Words) -> i32;
/// Takes an instance away.
pub type Destroy = unsafe extern "C" fn(instance: *mut c_void);
/// Decides about a call that begins.
pub type Decide = unsafe extern "C" fn(
    instance: *mut c_void,
    call: *const Call,
    answer: *mut Answer,
    words: *mut Words,
) -> i32;
/// Hears how a call ended.
pub type Finish = unsafe extern "C" fn(instance: *mut c_void, end: *const End, words: *mut Words) -> i32;
/// Writes an instance's state into the sink. The instance goes on as if nothing had been asked.
pub type Export = unsafe extern "C" fn(instance: *const c_void, sink: *const Sink, words: *mut Words) -> i32;
/// Takes over state. Called once at most, before the first call.
pub type Import = unsafe extern "C" fn(instance: *mut c_void, state: *const State, words: *mut Words) -> i32;

/// How every version of the table begins, and will.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_VERSION`] of the header it was built with.
    pub abi_version: u32,
    /// Size of the table in that header.
    pub table_bytes: u32,
}

/// The table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What it begins with.
    pub head: Head,
    /// The module's name: state is handed over only between modules of one name.
    pub name: Slice,
    /// Its version, for people.
    pub version: Slice,
    /// Which form its exported state has.
    pub state_format: u32,
    /// Zero.
    pub reserved: u32,
    /// Needed.
    pub create: Option<Create>,
    /// Needed.
    pub destroy: Option<Destroy>,
    /// Needed.
    pub decide: Option<Decide>,
    /// Needed by instances that want the end of calls.
    pub finish: Option<Finish>,
    /// None: it has no state.
    pub export_state: Option<Export>,
    /// None: it takes none.
    pub import_state: Option<Import>,
}
