//! Processor time of handlers, for the server's part of a call's record.
//!
//! The thread's clock costs 170 ns to read, twice per poll: more than a short handler may cost on top. So handlers are
//! read where the last one took long, and one in [`SPARSE`] else; what is not read says nothing, and is not in any
//! mean.

use crate::clock;
use std::cell::Cell;

/// Handlers of which one is read while they are short.
const SPARSE: u32 = 16;
/// From this time on a handler is long: reading the clock twice is below one percent of it.
const LONG_NS: u64 = 50_000;

thread_local! {
    static METER: Meter = const { Meter::new() };
}

/// A worker thread's.
struct Meter {
    /// The handler that is being polled, if it is read: what the thread's clock would have said at its start.
    running: Cell<Option<u64>>,
    /// Handlers since one was read.
    unread: Cell<u32>,
    was_long: Cell<bool>,
}

impl Meter {
    const fn new() -> Self {
        Self { running: Cell::new(None), unread: Cell::new(0), was_long: Cell::new(false) }
    }
}

/// What one handler has taken in the polls that are over; `None` if it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTaken(Option<u64>);

impl CpuTaken {
    /// Of a handler that begins on this thread.
    pub fn begin() -> Self {
        METER.with(|meter| {
            let unread = meter.unread.get() + 1;
            let reads = meter.was_long.get() || unread >= SPARSE;
            meter.unread.set(if reads { 0 } else { unread });
            Self(reads.then_some(0))
        })
    }

    /// What it has taken in polls that are over; 0 if it is not read.
    pub fn ns(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// Runs one poll of it.
    pub fn during<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        let Some(before) = self.0 else { return poll() };
        let began = clock::thread_cpu_ns().saturating_sub(before);
        METER.with(|meter| meter.running.set(Some(began)));
        let result = poll();
        METER.with(|meter| meter.running.set(None));
        self.0 = Some(clock::thread_cpu_ns().saturating_sub(began));
        result
    }
}

/// What the handler that is being polled on this thread has taken, and took to be answered; 0 if it is not read.
pub(super) fn taken_ns(answered_after_ns: u64) -> u64 {
    METER.with(|meter| {
        meter.was_long.set(answered_after_ns >= LONG_NS);
        meter.running.get().map_or(0, |began| clock::thread_cpu_ns().saturating_sub(began))
    })
}

#[cfg(test)]
mod tests {
    //! Shows who is read, and that the time between two polls is nobody's.
    use super::*;

    /// Works for so long on this thread.
    fn spin(ns: u64) {
        let until = clock::thread_cpu_ns() + ns;
        while clock::thread_cpu_ns() < until {}
    }

    #[test]
    fn short_handlers_are_read_now_and_then() {
        let read = (0..160).filter(|_| CpuTaken::begin().0.is_some()).count();
        assert_eq!(read, 10);
        taken_ns(LONG_NS);
        assert_eq!(
            (CpuTaken::begin().0, CpuTaken::begin().0),
            (Some(0), Some(0)),
            "behind a long one all are"
        );
        taken_ns(LONG_NS - 1);
        assert_eq!(CpuTaken::begin().0, None);
    }

    #[test]
    fn polls_add_up_and_what_is_between_does_not_count() {
        taken_ns(LONG_NS);
        let mut taken = CpuTaken::begin();
        taken.during(|| spin(2_000_000));
        assert_eq!(taken_ns(LONG_NS), 0, "no handler is being polled");
        spin(20_000_000);
        let told = taken.during(|| {
            spin(1_000_000);
            taken_ns(LONG_NS)
        });
        assert!(told >= 3_000_000, "{told} ns of two polls");
        assert!(told < 20_000_000, "{told} ns contain what was between");
        assert!(taken.0 >= Some(told));
    }
}
