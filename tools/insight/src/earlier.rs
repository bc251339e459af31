//! Recorded calls that ended before their block began, in a block of their own.

use trunkline_insight::RecordBlock;
use trunkline_telemetry::RecordedCall;

/// A call that ended so long before a block is in none of its time; less may be between two looks at the clock.
const APART_NS: u64 = 1_000_000_000;

/// Takes calls out that ended well before the block began: their applications kept the responses, and told it late.
/// In a block of their own they are when they were, and what the host did meanwhile stays that of the block's time.
pub fn earlier_calls(block: &mut RecordBlock) -> Option<RecordBlock> {
    let until_ns = block.head.began_ns.saturating_sub(APART_NS);
    let is_earlier = |call: &RecordedCall| call.row.at.0 < until_ns;
    if !block.rows.iter().any(is_earlier) {
        return None;
    }
    let mut earlier = RecordBlock { head: block.head.clone(), ..RecordBlock::default() };
    let mut places = Vec::with_capacity(block.rows.len());
    let mut kept = Vec::with_capacity(block.rows.len());
    for call in block.rows.drain(..) {
        let (is_earlier, rows) =
            if is_earlier(&call) { (true, &mut earlier.rows) } else { (false, &mut kept) };
        places.push((is_earlier, rows.len() as u32));
        rows.push(call);
    }
    block.rows = kept;
    for (place, trace) in std::mem::take(&mut block.traces) {
        match places.get(place as usize) {
            Some((true, place)) => earlier.traces.push((*place, trace)),
            Some((false, place)) => block.traces.push((*place, trace)),
            None => {}
        }
    }
    let ats = || earlier.rows.iter().map(|call| call.row.at.0);
    let head = &mut earlier.head;
    let (first_ns, last_ns) = (ats().min()?, ats().max()?);
    let unix_ns = u128::from(head.began_unix_ms) * 1_000_000 + u128::from(head.began_unix_ns);
    let unix_ns = unix_ns.saturating_sub(u128::from(head.began_ns - first_ns));
    (head.began_unix_ms, head.began_unix_ns) = ((unix_ns / 1_000_000) as u64, (unix_ns % 1_000_000) as u32);
    (head.began_ns, head.ended_ns) = (first_ns, last_ns);
    // They were seen in the other.
    (head.calls_seen, head.calls_lost) = (0, 0);
    Some(earlier)
}

#[cfg(test)]
mod tests {
    //! Shows which calls are taken out, and that traces go with theirs.
    use super::*;
    use trunkline_insight::BlockHead;
    use trunkline_telemetry::RecordedTrace;

    const SECOND_NS: u64 = 1_000_000_000;

    fn call(at_ns: u64) -> RecordedCall {
        let mut bytes = [0; RecordedCall::BYTES];
        bytes[..8].copy_from_slice(&at_ns.to_le_bytes());
        bytes[108..112].copy_from_slice(&1.0_f32.to_le_bytes());
        RecordedCall::decode(&bytes).unwrap()
    }

    #[test]
    fn calls_that_were_told_late_are_in_a_block_of_their_own_time() {
        let head = BlockHead {
            began_ns: 100 * SECOND_NS,
            began_unix_ms: 1_000_000,
            calls_seen: 7,
            ..BlockHead::default()
        };
        let trace = |weight: f32| RecordedTrace { weight, ..RecordedTrace::default() };
        let rows = [102, 40, 103, 10, 104].map(|second| call(second * SECOND_NS)).to_vec();
        let traces = vec![(1, trace(1.0)), (2, trace(2.0)), (3, trace(3.0))];
        let mut block = RecordBlock { head, rows, traces };
        let earlier = earlier_calls(&mut block).unwrap();
        let ats =
            |block: &RecordBlock| block.rows.iter().map(|call| call.row.at.0 / SECOND_NS).collect::<Vec<_>>();
        assert_eq!((ats(&block), ats(&earlier)), (vec![102, 103, 104], vec![40, 10]));
        let placed = |block: &RecordBlock| {
            block.traces.iter().map(|(place, trace)| (*place, trace.weight)).collect::<Vec<_>>()
        };
        assert_eq!((placed(&block), placed(&earlier)), (vec![(1, 2.0)], vec![(0, 1.0), (1, 3.0)]));
        let BlockHead { began_ns, ended_ns, began_unix_ms, calls_seen, .. } = earlier.head;
        assert_eq!((began_ns, ended_ns), (10 * SECOND_NS, 40 * SECOND_NS));
        assert_eq!((began_unix_ms, calls_seen, block.head.calls_seen), (910_000, 0, 7));
        assert_eq!(earlier_calls(&mut block), None);
    }
}
