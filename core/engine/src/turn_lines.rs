//! Those that wait for one thing: a line for each source, and the lines in turn.
//!
//! Whoever serves them goes on with the first of each source until it has to go on waiting. So what one source wants
//! too much of, or too large a piece of, is in nobody else's way.

use crate::call_line::{LineCheck, once};
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use trunkline_call::KeyedMap;

/// Lines of those that wait. No more lines than there are entries.
#[derive(Debug, serde::Deserialize)]
#[serde(from = "VecDeque<E>", bound(deserialize = "E: serde::Deserialize<'de> + Copy + Eq + Hash"))]
pub(crate) struct TurnLines<E> {
    lines: KeyedMap<Arc<str>, VecDeque<E>>,
    /// The next first.
    turns: VecDeque<Arc<str>>,
    /// Those whose first has had to go on waiting since they are served.
    passed: VecDeque<Arc<str>>,
    /// Who has come last, and where to.
    last: Option<(Arc<str>, E)>,
    len: usize,
    check: LineCheck,
}

impl<E: Copy + Eq + Hash> TurnLines<E> {
    /// Entries in them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// One of this source joins the end of its line.
    pub fn push(&mut self, source: Arc<str>, entry: E) {
        let line = self.lines.entry(Arc::clone(&source)).or_insert_with(|| {
            self.turns.push_back(Arc::clone(&source));
            VecDeque::new()
        });
        line.push_back(entry);
        self.len += 1;
        self.last = Some((source, entry));
    }

    /// Takes the first of the source whose turn it is. A source that has had to go on waiting has none until
    /// [`ParkedLines::end_round`].
    pub fn pop(&mut self) -> Option<E> {
        let source = self.turns.pop_front()?;
        let line = self.lines.get_mut(&source)?;
        let entry = line.pop_front()?;
        self.len -= 1;
        self.last = None;
        if line.is_empty() {
            self.lines.remove(&source);
        } else {
            self.turns.push_back(source);
        }
        Some(entry)
    }

    /// Whether the one that was taken has joined again, as nobody has since: it is the first of its line then, which
    /// has no turn any more in this round.
    pub fn waits_again(&mut self, entry: E) -> bool {
        let Some((source, _)) = self.last.take().filter(|(_, last)| *last == entry) else { return false };
        self.lines.get_mut(&source).into_iter().for_each(|line| line.rotate_right(1));
        if let Some(turn) = self.turns.iter().rposition(|one| *one == source) {
            self.turns.remove(turn);
            self.passed.push_back(source);
        }
        true
    }

    /// Everybody has turns again. Who has had to go on waiting comes behind those that were not asked.
    pub fn end_round(&mut self) {
        self.turns.append(&mut self.passed);
    }

    /// Takes all, in turn.
    pub fn drain(&mut self) -> Vec<E> {
        let mut all = std::mem::take(self);
        all.end_round();
        std::iter::from_fn(|| all.pop()).collect()
    }

    /// How many of a source wait.
    pub fn of(&self, source: &str) -> usize {
        self.lines.get(source).map_or(0, VecDeque::len)
    }

    /// Before one joins: those leave that do not wait any more, if the lines have doubled since they last did.
    pub fn leave_if_over(&mut self, waits: impl Fn(E) -> bool) {
        if self.check.is_due(self.len) {
            self.retain(waits);
            self.check.done(self.len);
        }
    }

    /// Those that are not to be kept leave, and whoever stands there twice does so once.
    pub fn retain(&mut self, keeps: impl Fn(E) -> bool) {
        self.last = None;
        let mut keeps = once(keeps);
        self.lines.retain(|_, line| {
            line.retain(&mut keeps);
            !line.is_empty()
        });
        let Self { lines, turns, passed, .. } = self;
        turns.retain(|source| lines.contains_key(source));
        passed.retain(|source| lines.contains_key(source));
        self.len = self.lines.values().map(VecDeque::len).sum();
    }

    pub fn entries(&self) -> impl Iterator<Item = E> {
        let lines = self.turns.iter().chain(&self.passed).filter_map(|source| self.lines.get(source));
        lines.flatten().copied()
    }
}

/// Of another process nobody knows whose they are: they are one line.
impl<E: Copy + Eq + Hash> From<VecDeque<E>> for TurnLines<E> {
    fn from(entries: VecDeque<E>) -> Self {
        let mut lines = Self::default();
        entries.into_iter().for_each(|entry| lines.push("".into(), entry));
        lines
    }
}

impl<E: serde::Serialize + Copy + Eq + Hash> serde::Serialize for TurnLines<E> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

impl<E> Default for TurnLines<E> {
    fn default() -> Self {
        Self {
            lines: KeyedMap::default(),
            turns: VecDeque::new(),
            passed: VecDeque::new(),
            last: None,
            len: 0,
            check: LineCheck::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that sources have turns, that each is served until its first has to go on waiting, and that nothing is
    //! lost.
    use super::*;
    use crate::CallKey;
    use crate::call::Direction;
    use crate::table::Key;
    use proptest::prelude::*;

    type Lines = TurnLines<(CallKey, Direction)>;

    fn entry(number: u64) -> (CallKey, Direction) {
        (Key::from_bits(number << 32 | 1), Direction::Request)
    }

    /// Serves until each source's first has to go on waiting: who of those that come is served.
    fn serve(parked: &mut Lines, fits: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut served = Vec::new();
        while let Some(entry) = parked.pop() {
            let number = entry.0.to_bits() >> 32;
            if fits(number) {
                served.push(number);
            } else {
                parked.push(format!("source {}", number / 100).into(), entry);
                assert!(parked.waits_again(entry));
            }
        }
        parked.end_round();
        served
    }

    fn parked(numbers: &[u64]) -> Lines {
        let mut parked = Lines::default();
        numbers
            .iter()
            .for_each(|number| parked.push(format!("source {}", number / 100).into(), entry(*number)));
        parked
    }

    #[test]
    fn a_large_one_at_the_head_keeps_only_its_own_source_waiting() {
        let mut parked = parked(&[100, 101, 102, 200, 103, 300, 201]);
        assert_eq!(serve(&mut parked, |number| number != 101), [100, 200, 300, 201]);
        assert_eq!((serve(&mut parked, |_| false), parked.len()), (vec![], 3));
        assert_eq!(serve(&mut parked, |_| true), [101, 102, 103]);
        assert_eq!((parked.len(), parked.lines.len(), parked.turns.len()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn who_is_not_kept_leaves_and_takes_its_line_along(
            numbers in prop::collection::vec(0u64..500, 0..100),
            passed in any::<u64>(),
            left_out in 0u64..5,
        ) {
            let mut lines = parked(&numbers);
            let mut kept: Vec<u64> = numbers.clone();
            for number in serve(&mut lines, |number| (passed >> (number % 64)) & 1 == 1) {
                kept.remove(kept.iter().position(|one| *one == number).unwrap());
            }
            lines.retain(|(key, _)| (key.to_bits() >> 32) % 5 != left_out);
            kept.retain(|number| number % 5 != left_out);
            // Whoever stood there twice does so once.
            kept.sort_unstable();
            kept.dedup();
            for source in 0..5 {
                let of = kept.iter().filter(|number| **number / 100 == source).count();
                prop_assert_eq!(lines.of(&format!("source {source}")), of);
            }
            prop_assert_eq!((lines.len(), lines.turns.len()), (kept.len(), lines.lines.len()));
            let mut left: Vec<_> = lines.drain().into_iter().map(|(key, _)| key.to_bits() >> 32).collect();
            left.sort_unstable();
            prop_assert_eq!(left, kept);
            prop_assert!(lines.len() == 0 && lines.lines.is_empty() && lines.turns.is_empty());
        }

        #[test]
        fn each_source_keeps_its_order_and_nothing_is_lost(
            steps in prop::collection::vec((0u64..5, any::<u64>(), any::<bool>()), 1..200),
        ) {
            let (mut lines, mut waiting) = (Lines::default(), Vec::<u64>::new());
            for (serial, (source, drawn, serves)) in (0..).zip(steps) {
                if serves {
                    let served = serve(&mut lines, |number| (drawn >> (number % 64)) & 1 == 1);
                    for number in served {
                        let first = waiting.iter().position(|one| one / 100 == number / 100);
                        prop_assert_eq!(first.map(|at| waiting.remove(at)), Some(number));
                    }
                } else {
                    let number = source * 100 + serial % 100;
                    lines.push(format!("source {}", number / 100).into(), entry(number));
                    waiting.push(number);
                }
                prop_assert_eq!(lines.len(), waiting.len());
                prop_assert_eq!(lines.entries().count(), waiting.len());
                prop_assert_eq!(lines.turns.len(), lines.lines.len());
            }
            let mut left: Vec<_> = lines.drain().into_iter().map(|(key, _)| key.to_bits() >> 32).collect();
            left.sort_unstable();
            waiting.sort_unstable();
            prop_assert_eq!(left, waiting);
        }
    }
}
