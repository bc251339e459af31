//! Waiting for time to pass, inside a handler.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A future that is ready when its time has passed. Dropping it forgets it.
///
/// All pauses of a process share one thread, which sleeps until the next is over.
#[derive(Debug)]
pub struct Pause {
    until: Instant,
    number: Option<u64>,
}

static CLOCK: LazyLock<&'static Clock> = LazyLock::new(|| {
    let clock: &'static Clock = Box::leak(Box::default());
    let thread = std::thread::Builder::new().name("pauses".into());
    // Without a thread pauses would never end; with `running` unset they end at once, which hurries whoever waits.
    clock.lock().running = thread.spawn(|| clock.run()).is_ok();
    clock
});

#[derive(Debug, Default)]
struct Clock {
    book: Mutex<Book>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Book {
    pauses: BTreeMap<(Instant, u64), Waker>,
    count: u64,
    running: bool,
}

impl Pause {
    /// Starts to pause.
    pub fn of(time: Duration) -> Self {
        Self { until: Instant::now() + time, number: None }
    }
}

impl Clock {
    fn run(&self) {
        let mut book = self.lock();
        loop {
            let now = Instant::now();
            let later = book.pauses.split_off(&(now, u64::MAX));
            let over = std::mem::replace(&mut book.pauses, later);
            drop(book);
            over.into_values().for_each(Waker::wake);
            book = self.lock();
            let next = book.pauses.first_key_value().map(|((until, _), _)| *until);
            book = match next {
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    self.news.wait_timeout(book, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.news.wait(book).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut book = CLOCK.lock();
        if !book.running || self.until <= Instant::now() {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            book.count += 1;
            book.count
        });
        book.pauses.insert((self.until, number), cx.waker().clone());
        if book.pauses.first_key_value().is_some_and(|(key, _)| *key == (self.until, number)) {
            CLOCK.news.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            CLOCK.lock().pauses.remove(&(self.until, number));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that pauses end in their order and that dropped ones are forgotten.
    use super::*;
    use trunkline::block_on;

    #[test]
    fn pauses_end() {
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(3600));
        let began = Instant::now();
        let mut endless = Box::pin(Pause::of(long));
        assert!(endless.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        block_on(Pause::of(short));
        assert!(began.elapsed() >= short);
        let key = (endless.until, endless.number.unwrap());
        assert!(CLOCK.lock().pauses.contains_key(&key));
        drop(endless);
        assert!(!CLOCK.lock().pauses.contains_key(&key));
    }
}
