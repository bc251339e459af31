//! The library of applications as a C ABI: `libtrunkline` and [`trunkline.h`](../include/trunkline.h).
//!
//! Every language that can call C calls and serves through this: unary calls and streams over protobuf bytes, through
//! [`trunkline::opaque`]. Whoever generated code for the messages encodes and decodes them. Where a channel or a
//! service has a schema, messages are linear: read where the daemon put them, and built in memory of the send heap
//! ([`memory`]).
//!
//! # The way of a call
//! A function checks its arguments ([`foreign`]), finds the objects behind its handles ([`handles`]), and does one
//! operation of `trunkline-bindings`: waits for it, or begins it in a completion queue. What comes of it is an object
//! behind a new handle.
//!
//! # Invariants
//! * Nothing unwinds into the caller: [`entry`] turns a panic into INTERNAL.
//! * A handle is a number, not an address: index and generation of a place in a table. A handle of nothing, of another
//!   kind, or used after its end is INVALID_ARGUMENT. No function frees what another thread works with.
//! * Foreign memory is read and written in `foreign.rs` only, after null and alignment are checked. What C cannot know,
//!   the length of a buffer, is the caller's promise.
//! * Functions may be used on any thread. Two operations of one kind on one call at a time are FAILED_PRECONDITION.
//! * Structures that may grow begin with their size, enumerations are `uint32_t`, and an exported symbol stays.
//!
//! # Checks
//! With `TRUNKLINE_CHECKS=1` every misuse is told on standard error, with the function's name, and each received
//! message is a block of `malloc`, as is memory to build in: valgrind and the address sanitizer see their use after
//! `tl_message_release` and after what was built was sent.
//!
//! # Limits
//! [`handles::HANDLES_MAX`] handles at a time. Bytes to send are copied twice: into the library, and into the heap they
//! are sent from; what was built in memory of the library is not copied, nor is what is received.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
mod call;
mod channel;
mod checks;
mod context;
pub mod entry;
mod event;
pub mod foreign;
mod forks;
pub mod handles;
mod lookup;
mod memory;
mod message;
mod metadata;
mod objects;
mod queue;
mod schema;
mod server;
mod status;
