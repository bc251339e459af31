//! Calls that wait for room in a session's receive heap, by source and in turn (`turn_lines.rs`).

use crate::CallKey;
use crate::call::Direction;
use crate::turn_lines::TurnLines;
use std::collections::VecDeque;

type Entry = (CallKey, Direction);
/// Calls that wait for one thing.
pub(crate) type ParkedLines = TurnLines<Entry>;

/// Calls that wait for a session's receive heap.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(from = "VecDeque<(CallKey, Direction)>")]
pub(crate) struct ParkedCalls {
    /// For room of which there is none.
    pub room: ParkedLines,
    /// Openings for others of their source to be released, of which it has its part.
    pub openings: ParkedLines,
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

impl From<VecDeque<Entry>> for ParkedCalls {
    fn from(entries: VecDeque<Entry>) -> Self {
        Self { room: entries.into(), ..Self::default() }
    }
}

impl serde::Serialize for ParkedCalls {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all: Vec<Entry> = self.room.entries().chain(self.openings.entries()).collect();
        serializer.collect_seq(all)
    }
}
