//! The one door to atomics and to the clock: loom's under `cfg(loom)`, the standard ones otherwise.
//!
//! Nothing in this crate names `std::sync::atomic` for words that two sides share except through here, so that
//! what the models check is what runs. Loom's types do not have the layout of the words they stand for; the
//! memory that holds them is therefore chosen in [`crate::ring_memory`].

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicU32, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use crate::clock::monotonic_ns;

/// Time stands still in a model.
#[cfg(loom)]
pub(crate) fn monotonic_ns() -> u64 {
    1
}
