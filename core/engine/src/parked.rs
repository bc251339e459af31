//! Calls that wait for room in a session's receive heap: a line for each source, and the lines in turn.
//!
//! Whoever serves them goes on with the first of each source until it has to go on waiting. So what one source wants
//! too much of, or too large a piece of, is in nobody else's way.

use crate::CallKey;
use crate::call::Direction;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::KeyedMap;

type Entry = (CallKey, Direction);

/// Calls that wait for a session's receive heap.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(from = "VecDeque<(CallKey, Direction)>")]
pub(crate) struct ParkedCalls {
    /// For room of which there is none.
    pub room: ParkedLines,
    /// Openings for others of their source to be released, of which it has its part.
    pub openings: ParkedLines,
}

/// Lines of those that wait. No more lines than calls.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(from = "VecDeque<(CallKey, Direction)>")]
pub(crate) struct ParkedLines {
    lines: KeyedMap<Arc<str>, VecDeque<Entry>>,
    /// The next first.
    turns: VecDeque<Arc<str>>,
    /// Those whose first has had to go on waiting since they are served.
    passed: VecDeque<Arc<str>>,
    /// Who has come last, and where to.
    last: Option<(Arc<str>, Entry)>,
    len: usize,
}

impl ParkedLines {
    /// Calls in them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A call of this source joins the end of its line.
    pub fn push(&mut self, source: Arc<str>, entry: Entry) {
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
    pub fn pop(&mut self) -> Option<Entry> {
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
    pub fn waits_again(&mut self, entry: Entry) -> bool {
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

    /// Takes all.
    pub fn drain(&mut self) -> Vec<Entry> {
        let all = std::mem::take(self);
        all.entries().collect()
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        let lines = self.turns.iter().chain(&self.passed).filter_map(|source| self.lines.get(source));
        lines.flatten().copied()
    }
}

impl ParkedCalls {
    /// Calls that wait.
    pub fn len(&self) -> usize {
        self.room.len() + self.openings.len()
    }

    /// Takes all.
    pub fn drain(&mut self) -> Vec<Entry> {
        let mut all = self.room.drain();
        all.append(&mut self.openings.drain());
        all
    }
}

/// Of another process nobody knows whose they are: they are one line.
impl From<VecDeque<Entry>> for ParkedLines {
    fn from(entries: VecDeque<Entry>) -> Self {
        let mut lines = Self::default();
        entries.into_iter().for_each(|entry| lines.push("".into(), entry));
        lines
    }
}

impl From<VecDeque<Entry>> for ParkedCalls {
    fn from(entries: VecDeque<Entry>) -> Self {
        Self { room: entries.into(), ..Self::default() }
    }
}

impl serde::Serialize for ParkedLines {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

impl serde::Serialize for ParkedCalls {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all: Vec<Entry> = self.room.entries().chain(self.openings.entries()).collect();
        serializer.collect_seq(all)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that sources have turns, that each is served until its first has to go on waiting, and that nothing is
    //! lost.
    use super::*;
    use crate::table::Key;
    use proptest::prelude::*;

    fn entry(number: u64) -> Entry {
        (Key::from_bits(number << 32 | 1), Direction::Request)
    }

    /// Serves until each source's first has to go on waiting: who of those that come is served.
    fn serve(parked: &mut ParkedLines, fits: impl Fn(u64) -> bool) -> Vec<u64> {
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

    fn parked(numbers: &[u64]) -> ParkedLines {
        let mut parked = ParkedLines::default();
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
        fn each_source_keeps_its_order_and_nothing_is_lost(
            steps in prop::collection::vec((0u64..5, any::<u64>(), any::<bool>()), 1..200),
        ) {
            let (mut lines, mut waiting) = (ParkedLines::default(), Vec::<u64>::new());
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
