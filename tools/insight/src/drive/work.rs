//! Handlers that take processor time: as much as they are to, by the clock of the thread they are polled on.

use rustix::time::{ClockId, clock_gettime};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// So long a handler works before others on its thread have their turn.
const WORK_SLICE: Duration = Duration::from_micros(200);

/// What a handler has taken, in nanoseconds. It is polled by one thread.
#[derive(Debug)]
pub(super) struct Worked {
    /// In polls that are over.
    before: AtomicU64,
    /// What the thread's clock said when the poll began that goes on.
    began: AtomicU64,
}

/// No poll goes on.
const NONE: u64 = u64::MAX;

impl Default for Worked {
    fn default() -> Self {
        Self { before: AtomicU64::new(0), began: AtomicU64::new(NONE) }
    }
}

impl Worked {
    /// The same future, with what its polls take.
    pub async fn count<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            self.began.store(thread_ns(), Ordering::Relaxed);
            let polled = future.as_mut().poll(cx);
            self.before.store(self.taken_ns(), Ordering::Relaxed);
            self.began.store(NONE, Ordering::Relaxed);
            polled
        })
        .await
    }

    /// Works until it has taken so much, a slice after the other.
    pub async fn until(&self, wanted: Duration) {
        while self.taken() < wanted {
            let until = wanted.min(self.taken() + WORK_SLICE);
            while self.taken() < until {
                std::hint::spin_loop();
            }
            if until < wanted {
                others().await;
            }
        }
    }

    fn taken(&self) -> Duration {
        Duration::from_nanos(self.taken_ns())
    }

    fn taken_ns(&self) -> u64 {
        let before = self.before.load(Ordering::Relaxed);
        match self.began.load(Ordering::Relaxed) {
            NONE => before,
            began => before + thread_ns().saturating_sub(began),
        }
    }
}

/// Lets others on this thread have their turn.
pub(super) async fn others() {
    let mut is_again = false;
    poll_fn(|cx| match std::mem::replace(&mut is_again, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

#[cfg(test)]
mod tests {
    //! Shows that a handler takes what it is to, and that what others take on its thread is not its.
    use super::*;
    use trunkline::Wait;

    #[test]
    fn a_handler_takes_what_it_is_to_take() {
        let (worked, other) = (Worked::default(), Worked::default());
        let wanted = Duration::from_millis(3);
        let both = async {
            let one = worked.count(worked.until(wanted));
            let two = other.count(other.until(2 * wanted));
            futures_util::future::join(one, two).await;
        };
        let began = thread_ns();
        both.wait();
        let all = Duration::from_nanos(thread_ns() - began);
        for (of, wanted) in [(&worked, wanted), (&other, 2 * wanted)] {
            assert!(of.taken() >= wanted && of.taken() < all, "{:?} of {all:?}", of.taken());
        }
        assert!(worked.taken() + other.taken() <= all);
    }
}
