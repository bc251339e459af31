//! Calls that wait for one thing, in the order they came; and when those that wait no more leave a line.
//!
//! A call that ends is not looked for in the lines it stands in: that would cost every call something. Its entry is
//! passed over when its turn comes. Where no turn comes, because nothing goes on, those that joined would only become
//! more; so whoever joins a line that has doubled has all leave it that do not wait. That is one look for each that
//! joins, and a line is never longer than twice those that wait in it, and a few.

use std::collections::VecDeque;
use std::hash::Hash;
use trunkline_call::KeyedSet;

/// A line that short is not looked through.
const ENTRIES_MIN: usize = 64;

/// When a line is looked through next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineCheck {
    at: usize,
}

impl LineCheck {
    /// Whether a line of so many entries is to be looked through.
    #[inline]
    pub fn is_due(self, entries: usize) -> bool {
        entries >= self.at.max(ENTRIES_MIN)
    }

    /// So many are left.
    pub fn done(&mut self, entries: usize) {
        self.at = 2 * entries;
    }
}

/// Those that are kept when a line is looked through: that wait, each once.
pub(crate) fn once<E: Copy + Eq + Hash>(waits: impl Fn(E) -> bool) -> impl FnMut(&E) -> bool {
    let mut seen = KeyedSet::default();
    move |entry| waits(*entry) && seen.insert(*entry)
}

/// A line.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct CallLine<E> {
    entries: VecDeque<E>,
    #[serde(skip)]
    check: LineCheck,
}

impl<E: Copy + Eq + Hash> CallLine<E> {
    /// One joins the end. `waits` says of those in it whether they still do.
    pub fn push(&mut self, entry: E, waits: impl Fn(E) -> bool) {
        if self.check.is_due(self.entries.len()) {
            self.entries.retain(once(waits));
            self.check.done(self.entries.len());
        }
        self.entries.push_back(entry);
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<E> {
        self.entries.pop_front()
    }

    /// Whether the one that was taken has joined again, and nobody since: it has to wait on, and does so in front.
    pub fn waits_again(&mut self, entry: E) -> bool {
        let again = self.entries.back() == Some(&entry);
        if again {
            self.entries.rotate_right(1);
        }
        again
    }

    /// Takes all.
    pub fn take(&mut self) -> VecDeque<E> {
        std::mem::take(&mut self.entries)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

impl<E> Default for CallLine<E> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), check: LineCheck::default() }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a line keeps who waits, in order and once, and is no longer than twice those.
    use super::*;

    #[test]
    fn who_waits_no_more_leaves_a_line_in_which_nothing_goes_on() {
        let mut line = CallLine::default();
        // Every hundredth waits on, and joins twice.
        let waits = |number: u32| number.is_multiple_of(100);
        for number in 0..10_000 {
            line.push(number, waits);
            if waits(number) {
                line.push(number, waits);
            }
            let waiting = number as usize / 100 + 1;
            assert!(line.len() <= 2 * (waiting + ENTRIES_MIN), "{number}: {}", line.len());
        }
        line.check = LineCheck::default();
        line.push(10_000, waits);
        let left: Vec<u32> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(left, (0..=100).map(|number| 100 * number).collect::<Vec<_>>());
    }

    #[test]
    fn who_has_to_wait_on_does_so_in_front() {
        let mut line = CallLine::default();
        (1..4).for_each(|number| line.push(number, |_| true));
        assert_eq!(line.pop(), Some(1));
        assert!(!line.waits_again(1));
        line.push(1, |_| true);
        assert!(line.waits_again(1));
        assert_eq!((line.pop(), line.take(), line.is_empty()), (Some(1), VecDeque::from([2, 3]), true));
    }
}
