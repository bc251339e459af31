//! Ending operations under way from another thread.

use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

/// A flag that operations look at whenever they are polled: those of one call, or of all calls it was given to.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    waiting: Mutex<WaitingOperations>,
}

/// Who waits, each in a place of its own. A call has two at most; more are of several calls with one flag.
#[derive(Debug, Default)]
struct WaitingOperations {
    two: [Option<Waker>; 2],
    more: Vec<Option<Waker>>,
}

/// An operation that waits, until it goes.
struct WaitingPlace<'a> {
    flag: &'a Flag,
    at: Option<usize>,
}

impl Cancel {
    /// Ends what is under way, and whatever begins later.
    pub fn set(&self) {
        // SYNC: Release pairs with the Acquire in `is_set`; an operation looks again after it has put down its waker
        // under the lock that is taken here.
        self.0.is_set.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.two.into_iter().chain(waiting.more).flatten().for_each(Waker::wake);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }

    /// Runs `work` until it is ready or this is set; `None` then, and `work` is dropped.
    pub async fn or<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let mut place = WaitingPlace { flag: &self.0, at: None };
        poll_fn(|cx| {
            if self.is_set() {
                return Poll::Ready(None);
            }
            // Most are ready, and wait for nothing.
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            place.wait(cx.waker());
            if self.is_set() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

impl WaitingPlace<'_> {
    fn wait(&mut self, waker: &Waker) {
        let mut waiting = self.flag.waiting.lock();
        let at = *self.at.get_or_insert_with(|| waiting.free());
        match waiting.place(at) {
            Some(Some(old)) => old.clone_from(waker),
            Some(none) => *none = Some(waker.clone()),
            // It was set meanwhile, and all were told.
            None => {}
        }
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let Some(at) = self.at else { return };
        let mut waiting = self.flag.waiting.lock();
        let left = waiting.place(at).and_then(Option::take);
        while let Some(None) = waiting.more.last() {
            waiting.more.pop();
        }
        drop(waiting);
        drop(left);
    }
}

impl WaitingOperations {
    fn free(&mut self) -> usize {
        let places = self.two.iter().chain(&self.more);
        let at = places.take_while(|place| place.is_some()).count();
        if at == self.two.len() + self.more.len() {
            self.more.push(None);
        }
        at
    }

    fn place(&mut self, at: usize) -> Option<&mut Option<Waker>> {
        match at.checked_sub(self.two.len()) {
            None => self.two.get_mut(at),
            Some(at) => self.more.get_mut(at),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that an operation ends when it is told to, before and while it waits.
    use super::*;
    use std::future::{pending, ready};
    use std::pin::Pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};
    use trunkline::Wait;

    #[test]
    fn what_waits_ends_and_what_is_ready_does_not() {
        let cancel = Cancel::default();
        assert_eq!(cancel.or(ready(1)).wait(), Some(1));
        let other = cancel.clone();
        let waits = std::thread::spawn(move || other.or(pending::<()>()).wait());
        cancel.set();
        assert_eq!(waits.join().unwrap(), None);
        assert_eq!(cancel.or(ready(1)).wait(), None, "nothing begins after it");
    }

    /// Polls operations by hand: each has a waker that counts.
    #[test]
    fn all_that_wait_end_and_who_has_gone_is_not_woken() {
        struct Woken(AtomicUsize);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        const OPERATIONS: usize = 7;
        let cancel = Cancel::default();
        let counts: Vec<_> = (0..OPERATIONS).map(|_| Arc::new(Woken(AtomicUsize::new(0)))).collect();
        type Work<'a> = Pin<Box<dyn Future<Output = Option<()>> + 'a>>;
        let poll = |work: &mut Work<'_>, count: &Arc<Woken>| {
            work.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
        };
        let mut works: Vec<Option<Work<'_>>> =
            (0..OPERATIONS).map(|_| Some(Box::pin(cancel.or(pending::<()>())) as _)).collect();
        for (work, count) in works.iter_mut().flatten().zip(&counts) {
            assert_eq!((poll(work, count), poll(work, count)), (Poll::Pending, Poll::Pending));
        }
        let gone = [0, 3, OPERATIONS - 1];
        gone.iter().for_each(|at| works[*at] = None);
        cancel.set();
        for (at, count) in counts.iter().enumerate() {
            assert_eq!(count.0.load(Ordering::Relaxed), usize::from(!gone.contains(&at)), "operation {at}");
        }
        for (work, count) in works.iter_mut().zip(&counts) {
            assert!(work.as_mut().is_none_or(|work| poll(work, count) == Poll::Ready(None)));
        }
    }
}
