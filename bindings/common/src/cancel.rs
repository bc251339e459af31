//! Ending operations under way from another thread.

use futures_util::task::AtomicWaker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// A flag that operations of one call look at whenever they are polled. At most one operation of each side at a time.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    sending: AtomicWaker,
    receiving: AtomicWaker,
}

/// Which operation of a call: what it waits for is one waker per side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationSide {
    /// Opening and sending.
    Sending,
    /// Receiving.
    Receiving,
}

impl Cancel {
    /// Ends what is under way, and whatever begins later.
    pub fn set(&self) {
        // SYNC: Release pairs with the Acquire in `is_set`; an operation that registers its waker after the two calls
        // of `wake` sees the flag, by the ordering AtomicWaker promises.
        self.0.is_set.store(true, Ordering::Release);
        self.0.sending.wake();
        self.0.receiving.wake();
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }

    /// Runs `work` until it is ready or this is set; `None` then, and `work` is dropped.
    pub async fn or<F: Future>(&self, side: OperationSide, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let waker = match side {
                OperationSide::Sending => &self.0.sending,
                OperationSide::Receiving => &self.0.receiving,
            };
            waker.register(cx.waker());
            if self.is_set() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    //! Shows that an operation ends when it is told to, before and while it waits.
    use super::*;
    use std::future::{pending, ready};
    use trunkline::Wait;

    #[test]
    fn what_waits_ends_and_what_is_ready_does_not() {
        let cancel = Cancel::default();
        assert_eq!(cancel.or(OperationSide::Sending, ready(1)).wait(), Some(1));
        let other = cancel.clone();
        let waits = std::thread::spawn(move || other.or(OperationSide::Receiving, pending::<()>()).wait());
        cancel.set();
        assert_eq!(waits.join().unwrap(), None);
        assert_eq!(cancel.or(OperationSide::Sending, ready(1)).wait(), None, "nothing begins after it");
    }
}
