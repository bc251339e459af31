//! Tasks that wait for one event, each with a place of its own, so that one that stops waiting leaves nothing behind.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes a task. A waker is its executor's code and may panic: that harms its own task, not those whose turn is next,
/// nor the thread that wakes, which may be the one all of this process's calls need.
pub(crate) fn wake(waker: Waker) {
    if caught(|| waker.wake()).is_none() {
        caught(|| tracing::error!("a task was not woken: its executor's waker panicked"));
    }
}

/// What other people's code gives; nothing if it panics.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => return Some(done),
        Err(payload) => payload,
    };
    // So may what it panicked with.
    drop(catch_unwind(AssertUnwindSafe(|| drop(payload))));
    None
}

/// Who waits for an event. As long as those who wait, and no longer.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    waiting: BTreeMap<u64, Waker>,
    next_place: u64,
}

/// A place among those who wait; empty until it is waited in.
#[derive(Debug, Default)]
pub(crate) struct WakerPlace(Option<u64>);

impl Wakers {
    /// Waits in `place`, with this waker instead of an earlier one.
    pub(crate) fn park(&mut self, place: &mut WakerPlace, waker: &Waker) {
        let place = *place.0.get_or_insert_with(|| {
            self.next_place += 1;
            self.next_place
        });
        match self.waiting.get_mut(&place) {
            Some(parked) => parked.clone_from(waker),
            None => drop(self.waiting.insert(place, waker.clone())),
        }
    }

    /// Gives a place up.
    pub(crate) fn leave(&mut self, place: &mut WakerPlace) {
        if let Some(place) = place.0.take() {
            self.waiting.remove(&place);
        }
    }

    /// Everybody, in the order in which they came, to be woken once no lock is held.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a waker that panics harms nobody but its task.
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(AtDrop);
        }
    }

    struct AtDrop;

    impl Drop for AtDrop {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("so does what it panics with");
            }
        }
    }

    #[test]
    fn those_behind_one_that_panics_are_woken() {
        let kick = crate::kick::Kick::new().unwrap();
        [Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&kick))].into_iter().for_each(wake);
        assert!(kick.take());
    }
}
