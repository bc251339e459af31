//! Waiting on a thread with a limit.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// What becomes of `work` within `limit`; `None` if that is nothing. It is polled on this thread, which sleeps in
/// between: for what others bring about, and not for calls, whose own thread it would have to be.
pub fn wait_within<F: Future>(work: F, limit: Duration) -> Option<F::Output> {
    let mut work = pin!(work);
    let waker = Waker::from(Arc::new(ParkedThread(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let began = Instant::now();
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut cx) {
            return Some(done);
        }
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

struct ParkedThread(Thread);

impl Wake for ParkedThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what comes in time is there, and that nothing is waited for longer.
    use super::*;
    use std::future::{pending, poll_fn};
    use std::sync::mpsc::channel;

    #[test]
    fn what_comes_in_time_is_there_and_what_does_not_is_not() {
        assert_eq!(wait_within(pending::<()>(), Duration::from_millis(10)), None);
        let (tells, told) = channel::<Waker>();
        let wakes = thread::spawn(move || told.recv().unwrap().wake());
        let mut is_second = false;
        let work = poll_fn(|cx| {
            if std::mem::replace(&mut is_second, true) {
                return Poll::Ready(7);
            }
            tells.send(cx.waker().clone()).unwrap();
            Poll::Pending
        });
        assert_eq!(wait_within(work, Duration::MAX), Some(7));
        wakes.join().unwrap();
    }
}
