//! Who waits for the next change of what is served, and is woken by it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Counts changes; shards announce them, watchers wait for them.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    /// Those who wait, by the watcher's number: one that is dropped leaves nothing behind.
    waiting: BTreeMap<u64, Waker>,
    watchers: u64,
}

/// Waits for changes of what the daemon's services are ([`Daemon::services`](crate::Daemon::services)), one after the
/// other; changes between two looks count as one.
#[derive(Debug)]
pub struct Watcher {
    changes: Arc<Changes>,
    number: u64,
    seen: u64,
}

impl Changes {
    /// Something has changed: every watcher is woken.
    pub fn announce(&self) {
        let waiting = {
            let mut state = self.lock();
            state.count += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// A watcher for what happens from now on.
    pub fn watch(self: &Arc<Self>) -> Watcher {
        let mut state = self.lock();
        state.watchers += 1;
        Watcher { changes: Arc::clone(self), number: state.watchers, seen: state.count }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// Waits until something has changed since this was last asked, or since the watcher was made.
    ///
    /// # Cancel safety
    /// Safe: a change not told is told next time.
    pub async fn changed(&mut self) {
        poll_fn(|cx| self.poll_changed(cx)).await;
    }

    /// As [`Watcher::changed`], for hand-written futures.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.changes.lock();
        if state.count != self.seen {
            self.seen = state.count;
            return Poll::Ready(());
        }
        state.waiting.insert(self.number, cx.waker().clone());
        Poll::Pending
    }

    /// Whether something has changed and was not told yet; tells it.
    pub fn has_changed(&mut self) -> bool {
        self.poll_changed(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.changes.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that no change is missed and that watchers who leave leave nothing behind.
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU64);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_change_is_told_once() {
        let (changes, count) = (Arc::new(Changes::default()), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let mut watcher = changes.watch();
        assert!(watcher.poll_changed(&mut cx).is_pending());
        changes.announce();
        changes.announce();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(watcher.poll_changed(&mut cx).is_ready());
        assert!(watcher.poll_changed(&mut cx).is_pending(), "two changes between two looks are one");
        assert!(!changes.watch().has_changed(), "what was before is not told");
    }

    #[test]
    fn who_leaves_leaves_nothing() {
        let changes = Arc::new(Changes::default());
        for _ in 0..100 {
            assert!(!changes.watch().has_changed());
        }
        assert!(changes.lock().waiting.is_empty());
    }
}
