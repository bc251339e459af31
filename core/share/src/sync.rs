//! The one door to atomics: loom's under `cfg(loom)`, the standard ones otherwise.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
