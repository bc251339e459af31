//! Waking futures at times to the microsecond, which no executor here does: a thread that sleeps until the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Wakes whoever waits. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Timer {
    shared: Arc<Waiting>,
}

/// A wait for a time.
#[derive(Debug)]
pub struct Until<'a> {
    at: Instant,
    /// The entry of the last poll.
    entry: Option<u64>,
    shared: &'a Waiting,
}

#[derive(Debug, Default)]
struct Waiting {
    state: Mutex<WaitState>,
    changed: Condvar,
}

/// Who waits: an entry for each, until its time.
#[derive(Debug, Default)]
struct WaitState {
    times: BinaryHeap<Reverse<(Instant, u64)>>,
    wakers: std::collections::HashMap<u64, Waker>,
    number: u64,
    is_over: bool,
}

/// Has the sleeps of this thread end on time, and not 50 µs late, as those of other threads may.
pub(super) fn wake_on_time() {
    // Where it may not be said, they end late.
    let _is_set = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

impl Timer {
    /// Starts the thread.
    pub fn start() -> Self {
        let shared = Arc::new(Waiting::default());
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            wake_on_time();
            own.run();
        });
        Self { shared }
    }

    /// Ready when this time has come.
    pub fn until(&self, at: Instant) -> Until<'_> {
        Until { at, entry: None, shared: &self.shared }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Future for Until<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let mut state = self.shared.state();
        // What woke whoever waits was something else: its entry is still there.
        if let Some(waker) = self.entry.and_then(|entry| state.wakers.get_mut(&entry)) {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        let number = state.number;
        state.number += 1;
        let is_next = state.times.peek().is_none_or(|Reverse((next, _))| self.at < *next);
        state.times.push(Reverse((self.at, number)));
        state.wakers.insert(number, cx.waker().clone());
        drop(state);
        self.entry = Some(number);
        if is_next {
            self.shared.changed.notify_one();
        }
        Poll::Pending
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.is_over {
            let now = Instant::now();
            let next = state.times.peek().map(|Reverse((at, _))| *at);
            state = match next {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) if at > now => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state)
                }
                Some(_) => {
                    let number = state.times.pop().map_or(0, |Reverse((_, number))| number);
                    let waker = state.wakers.remove(&number);
                    // Not under the lock: who is woken may wait again at once.
                    drop(state);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                    self.state()
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that waits end in the order of their times, and none before.
    use super::*;
    use futures_util::StreamExt;
    use futures_util::stream::FuturesUnordered;
    use std::time::Duration;
    use trunkline::Wait;

    /// Whatever wakes it besides, a wait takes the room of one.
    #[test]
    fn a_wait_that_is_asked_often_has_one_entry() {
        let timer = Timer::start();
        let mut wait = std::pin::pin!(timer.until(Instant::now() + Duration::from_secs(3600)));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            assert_eq!(wait.as_mut().poll(&mut cx), Poll::Pending);
        }
        let state = timer.shared.state();
        assert_eq!((state.times.len(), state.wakers.len()), (1, 1));
    }

    #[test]
    fn waits_end_in_order() {
        let timer = Timer::start();
        let began = Instant::now();
        let wait = async |after_ms: u64| {
            let at = began + Duration::from_millis(after_ms);
            timer.until(at).await;
            (after_ms, Instant::now() >= at)
        };
        let mut waits: FuturesUnordered<_> = [30, 0, 10, 20].map(wait).into_iter().collect();
        let ended = async {
            let mut ended = Vec::new();
            while let Some(one) = waits.next().await {
                ended.push(one);
            }
            ended
        };
        assert_eq!(ended.wait(), [(0, true), (10, true), (20, true), (30, true)]);
    }
}
