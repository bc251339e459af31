//! Calls that wait for a connection to an endpoint, or for a name: by source and in turn (`turn_lines.rs`).
//!
//! One source may have about the limit while it is alone, and others find room beside it ([`crate::shared_room`]).

use crate::CallKey;
use crate::shared_room::{SharedRoom, is_anybodys, may_take};
use crate::turn_lines::TurnLines;
use std::sync::Arc;

/// The line of one endpoint, or of a name.
pub(crate) type WaitingLine = TurnLines<CallKey>;

/// Whether a call may wait in a line, in which about `limit` of each source may. One that has waited before, here or
/// for the name that stands for this endpoint, `goes_on` waiting while all together have room.
pub(crate) fn may_join(
    line: &WaitingLine,
    limit: usize,
    goes_on: bool,
    source: impl FnOnce() -> Arc<str>,
) -> bool {
    let (used, limit) = (line.len() as u64, limit as u64);
    if is_anybodys(used, 1, limit) || goes_on && used < SharedRoom::whole(limit) {
        return true;
    }
    let source = source();
    may_take(used, (1, line.of(&source) as u64), limit, &source)
}

#[cfg(test)]
mod tests {
    //! Shows that a source with thousands of calls keeps nobody out and goes first of nobody.
    use super::*;
    use crate::table::Key;

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
            while may_join(&line, limit, false, || source.into()) {
                line.push(source.into(), call(next));
                next += 1;
            }
            assert!(line.of(source) >= 64, "{source}");
        }
        assert!((3_800..=4_400).contains(&line.of("uid:1")), "alone it has about all");
        assert!(line.len() <= limit * 15 / 8, "{}", line.len());
        let firsts: Vec<u64> = (0..3).filter_map(|_| line.pop()).map(number).collect();
        assert!(firsts[0] == 1 && firsts[1] > 3_800 && firsts[2] > firsts[1], "{firsts:?}");
        // The one that was taken has its place, whoever has come meanwhile.
        assert!(line.pop().is_some());
        while may_join(&line, limit, false, || "uid:2".into()) {
            line.push("uid:2".into(), call(next));
            next += 1;
        }
        assert!(may_join(&line, limit, true, || "uid:1".into()));
        assert!(!may_join(&line, limit, false, || "uid:1".into()));
    }
}
