//! What bindings for other languages share: calls as operations, and a completion queue with a descriptor.
//!
//! Other languages have no futures of Rust's. They wait on a thread, or they have an event loop that watches
//! descriptors. This crate turns calls of [`trunkline::opaque`] into operations that serve both: each is a future that
//! owns what it needs, so that a binding waits for it ([`trunkline::Wait`]) or gives it to a [`CompletionQueue`].
//!
//! # The way of a call
//! * Caller: [`CallOpening`] opens a call ([`client`]); what comes of it is an [`OpenCall`] with operations to send and
//!   to receive, or for a call of one request and one response at once an [`Answered`].
//! * Server: [`server::Adapter`] gives each call of a service as a [`DeliveredCall`] to whoever the binding says, on
//!   the thread of the worker that received it. Its operations may be used on any thread.
//! * What an operation works with is in a [`Tray`] while none runs. A second operation of the same kind finds the
//!   tray empty and is refused, so no operation waits for another and no lock is held while one waits.
//! * [`Cancel`] ends operations under way from any thread.
//!
//! # The queue
//! [`CompletionQueue`] polls operations on the threads that ask it for events, and has no thread of its own. Its
//! descriptor is readable while there is something to do, so `poll`, epoll, asyncio and libuv can watch it.
//!
//! # What this crate does not know
//! Foreign pointers, handles, languages. It has no unsafe code.
//!
//! # Limits
//! Events wait in the queue until they are taken: at most one for each operation under way and each delivered call,
//! which the daemon bounds.
#![forbid(unsafe_code)]

mod cancel;
pub mod client;
mod queue;
pub mod server;
mod tray;
mod within;

pub use cancel::Cancel;
pub use client::{Answered, CallEvent, CallOpening, OpenCall};
pub use queue::{CompletionQueue, Waited};
pub use server::DeliveredCall;
pub use tray::{Borrowed, Tray};
pub use within::wait_within;
