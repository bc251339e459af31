//! Which worker gets which request.
//!
//! A [`Dispatcher`] stands in front of workers that each work on a few requests at once, and decides: this one now, or
//! wait, or not at all. The router of `core/r2p2`, the simulator and the daemon's engine ask the same code. It does not
//! know what a request is (a `T` that comes back), how it travels, or what a worker is made of; it counts what is
//! outstanding where, and is told when something is done.
//!
//! # Policies
//! *Random*, *round-robin*, *power of two* (the less loaded of two drawn) and *join-shortest-queue* send a request on
//! at once, so that it may wait behind a long one. *JBSQ(n)* (Kogias et al., USENIX ATC 2019) lets a worker have at
//! most n outstanding, the one in work included; the rest wait in one queue here, and its head goes to the worker with
//! most free places. JBSQ(1) is a single queue, JBSQ(∞) is join-shortest-queue. The smallest n that keeps workers busy
//! while word of a finished request travels is best; [`Bound::Auto`] measures it (`bound.rs`). While a queue is old it
//! goes one further, and puts a worker's second request behind the first that is expected to end soonest, by the
//! service times there were (`remaining.rs`); behind one that has outlived most others it puts none. While it is young
//! and some wait, a second goes only behind a first that is about to end, so that it is there when that one has ended.
//!
//! *Classes*: workers may be reserved for a class, so that short requests never stand behind long ones (Demoulin et
//! al., *When Idling is Ideal*, SOSP 2021). *Sticky* requests go to the worker their key hashes to, as long as it is
//! there (rendezvous hashing: one worker more or less moves only its own share).
//!
//! *Sources*: who has many requests waiting delays its own. Those that wait stand in lines, one for each source
//! ([`Dispatcher::submit_of`]), and the lines are served in turn (`lines.rs`). While one source waits alone that is one
//! queue.
//!
//! # The way of a request
//! [`Dispatcher::submit`] (`dispatcher.rs`) picks from `pool.rs`, where workers lie by load so that a pick costs the
//! same for ten and for a thousand, or puts it into `queue.rs`. [`Dispatcher::release`] frees a place;
//! [`Dispatcher::poll`] then gives out what waited. [`Dispatcher::withdraw`] takes out one that is not wanted any more.
//!
//! # Invariants
//! * What is outstanding at a worker is what was given to it and not released, never less than zero.
//! * Under JBSQ(n) no worker has more than n times its slots, sticky requests apart.
//! * Requests of one source and class are given out in the order they came, and between two of a source each other one
//!   that waits, for workers that may take it, has one.
//! * Nothing waits while a worker may take it, but for a
//!   second behind a first that is about to end: that is looked at whenever something ends, not as time passes.
//!
//! # Limits
//! [`Settings`]: requests waiting, time waiting. At a limit a request comes back with a [`Refusal`].
#![forbid(unsafe_code)]

mod bound;
mod dispatcher;
mod lines;
mod policy;
mod pool;
mod queue;
mod remaining;

pub use bound::{Bound, BoundEstimate};
pub use dispatcher::{Dispatch, Dispatcher, Refusal, Settings, Verdict};
pub use lines::WaitingKey;
pub use policy::{Policy, UnknownPolicy};
pub use pool::{CLASSES_MAX, Class, Reservation, WorkerKey};
