//! Calls that wait for a connection to an endpoint: a line for each source, and the lines in turn.
//!
//! One source may have about the limit while it is alone, and others find room beside it ([`crate::shared_room`]). Who
//! goes on first is not who has come first but whose turn it is: one that waits with thousands of calls is in nobody
//! else's way.

use crate::CallKey;
use crate::shared_room::{SharedRoom, is_anybodys, may_take};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::KeyedMap;

/// The lines of one endpoint, or of a name. No more lines than calls.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(from = "VecDeque<CallKey>")]
pub(crate) struct WaitingLine {
    lines: KeyedMap<Arc<str>, VecDeque<CallKey>>,
    /// The next first.
    turns: VecDeque<Arc<str>>,
    len: usize,
}

impl WaitingLine {
    /// Calls in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a call may wait, of which about `limit` may for each source. One that has waited before, here or for the
    /// name that stands for this endpoint, `goes_on` waiting while all together have room.
    pub fn has_room(&self, limit: usize, goes_on: bool, source: impl FnOnce() -> Arc<str>) -> bool {
        let (used, limit) = (self.len as u64, limit as u64);
        if is_anybodys(used, 1, limit) || goes_on && used < SharedRoom::whole(limit) {
            return true;
        }
        let source = source();
        let held = self.lines.get(&source).map_or(0, VecDeque::len) as u64;
        may_take(used, (1, held), limit, &source)
    }

    /// A call of this source joins the end of its line.
    pub fn push(&mut self, source: Arc<str>, call: CallKey) {
        let line = self.lines.entry(Arc::clone(&source)).or_insert_with(|| {
            self.turns.push_back(source);
            VecDeque::new()
        });
        line.push_back(call);
        self.len += 1;
    }

    /// Takes the first of the source whose turn it is.
    pub fn pop(&mut self) -> Option<CallKey> {
        let source = self.turns.pop_front()?;
        let line = self.lines.get_mut(&source)?;
        let call = line.pop_front();
        self.len -= usize::from(call.is_some());
        if line.is_empty() {
            self.lines.remove(&source);
        } else {
            self.turns.push_back(source);
        }
        call
    }

    /// Takes all, in the order of their turns.
    pub fn take_all(&mut self) -> Vec<CallKey> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Those that are not to be kept leave.
    pub fn retain(&mut self, keeps: impl Fn(CallKey) -> bool) {
        self.lines.retain(|_, line| {
            line.retain(|call| keeps(*call));
            !line.is_empty()
        });
        self.turns.retain(|source| self.lines.contains_key(source));
        self.len = self.lines.values().map(VecDeque::len).sum();
    }
}

/// Of another process nobody knows whose they are: they are one line.
impl From<VecDeque<CallKey>> for WaitingLine {
    fn from(calls: VecDeque<CallKey>) -> Self {
        let mut line = Self::default();
        calls.into_iter().for_each(|call| line.push("".into(), call));
        line
    }
}

impl serde::Serialize for WaitingLine {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lines = self.turns.iter().filter_map(|source| self.lines.get(source));
        serializer.collect_seq(lines.flatten())
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a source with thousands of calls keeps nobody out and goes first of nobody, and that nothing is lost.
    use super::*;
    use crate::table::Key;
    use proptest::prelude::*;

    fn call(number: u64) -> CallKey {
        Key::from_bits(number << 32 | 1)
    }

    fn number(call: CallKey) -> u64 {
        call.to_bits() >> 32
    }

    #[test]
    fn one_source_leaves_room_and_turns_to_others() {
        let (mut line, limit) = (WaitingLine::default(), 4096);
        let mut next = 1;
        for source in ["uid:1", "uid:2", "10.0.0.1"] {
            while line.has_room(limit, false, || source.into()) {
                line.push(source.into(), call(next));
                next += 1;
            }
            assert!(line.lines[source].len() >= 64, "{source}");
        }
        assert!((3_800..=4_400).contains(&line.lines["uid:1"].len()), "alone it has about all");
        assert!(line.len() <= limit * 15 / 8, "{}", line.len());
        let firsts: Vec<u64> = (0..3).filter_map(|_| line.pop()).map(number).collect();
        assert!(firsts[0] == 1 && firsts[1] > 3_800 && firsts[2] > firsts[1], "{firsts:?}");
        // The one that was taken has its place, whoever has come meanwhile.
        assert!(line.pop().is_some());
        while line.has_room(limit, false, || "uid:2".into()) {
            line.push("uid:2".into(), call(next));
            next += 1;
        }
        assert!(line.has_room(limit, true, || "uid:1".into()));
        assert!(!line.has_room(limit, false, || "uid:1".into()));
    }

    proptest! {
        #[test]
        fn nothing_is_lost(
            steps in prop::collection::vec((0..6_u8, 0..5_u64), 1..200),
        ) {
            let (mut line, mut there, mut next) = (WaitingLine::default(), Vec::new(), 0);
            for (step, source) in steps {
                match step {
                    0..4 => {
                        next += 1;
                        line.push(format!("uid:{source}").into(), call(next));
                        there.push((source, next));
                    }
                    4 => {
                        let taken = line.pop().map(number);
                        prop_assert_eq!(taken.is_none(), there.is_empty());
                        // The first of its source.
                        let of = there.iter().find(|(_, one)| Some(*one) == taken).copied();
                        let first = there.iter().find(|(source, _)| Some(*source) == of.map(|of| of.0)).copied();
                        prop_assert_eq!(of, first);
                        there.retain(|(_, one)| Some(*one) != taken);
                    }
                    _ => {
                        line.retain(|one| number(one) % 5 != source);
                        there.retain(|(_, one)| one % 5 != source);
                    }
                }
                prop_assert_eq!(line.len(), there.len());
            }
            let mut left: Vec<u64> = line.take_all().into_iter().map(number).collect();
            let mut expected: Vec<u64> = there.into_iter().map(|(_, one)| one).collect();
            left.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(left, expected);
            prop_assert!(line.is_empty() && line.lines.is_empty() && line.turns.is_empty());
        }
    }
}
