//! What measures and tests have in common: processes of their own, what those cost, medians over rounds.
//!
//! * [`Child`] is a process that ends with its handle, [`Talker`] one that answers lines with lines. [`once_there`],
//!   [`wait_for_file`] and [`wait_until_it_listens`] wait for one that starts, as long as that may take.
//! * [`cpu_ns`], [`idle_cpu_ns`], [`pss_bytes`] and [`Machine`] read from `/proc`, by pid and from outside, what
//!   processes cost and what the machine did meanwhile.
//! * [`Spread`] is a figure over rounds: the median, with the least and the most. [`short`] writes a number with the
//!   digits that matter.
//!
//! Nothing here knows what is measured, and nothing asserts a time.
//!
//! # Invariants
//! * A process is ended by its pid, and only by who started it.
//!
//! # Limits
//! * A process has a minute to start.
#![forbid(unsafe_code)]

mod child;
mod costs;
mod spread;

pub use child::{
    Child, Failure, Serving, Talker, free_port, once_there, own_address, wait_for_file,
    wait_until_it_listens, write_file,
};
pub use costs::{Machine, cpu_ns, idle_cpu_ns, pss_bytes};
pub use spread::{Spread, cell, short, us};
