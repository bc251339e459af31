//! Times that two recordings of one daemon have both: its calls of then count once.

use crate::block::BlockHead;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_telemetry::{Component, FlightRow};

/// A block is about five seconds; of one that began earlier than this its end is not looked for.
const BLOCK_NS_MAX: u64 = 600_000_000_000;
/// Most blocks that one is held against: a file may say anything of times.
const BLOCKS_MAX: usize = 256;

/// When blocks of hosts were recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedTimes {
    /// By host, beginning and number of the block: its end, and the file it is of.
    by_host: BTreeMap<(String, u64, u32), (u64, u32)>,
    file: u32,
}

/// What tells a call from all others of its daemon.
type CallIdentity = (u64, u32, u8, [u64; Component::COUNT]);

impl RecordedTimes {
    /// What follows is another recording.
    pub fn begin_file(&mut self) {
        self.file += 1;
    }

    /// Notes when a block was recorded.
    pub fn note(&mut self, head: &BlockHead, block: u32) {
        self.by_host.insert((host_of(head), head.began_ns, block), (head.ended_ns, self.file));
    }

    /// Times within that of a block, which has these calls and methods, in which another recording of the same daemon
    /// has its calls. Daemons of one machine may have one name: where they have a call in common they are one.
    pub fn told_before(
        &self,
        head: &BlockHead,
        rows: impl Iterator<Item = (FlightRow, u32)> + Clone,
        calls_of: impl Fn(u32) -> Vec<(FlightRow, u32)>,
    ) -> Vec<[u64; 2]> {
        let host = host_of(head);
        let from = (host.clone(), head.began_ns.saturating_sub(BLOCK_NS_MAX), 0);
        let known = self.by_host.range(from..=(host, head.ended_ns, u32::MAX)).rev().take(BLOCKS_MAX);
        let known = known.filter(|(_, (ended_ns, file))| *ended_ns >= head.began_ns && *file != self.file);
        let is_same = |block: u32, time: [u64; 2]| {
            let own = calls_of(block).into_iter().map(|(row, method)| identity(&row, method));
            let own: BTreeSet<CallIdentity> = own.collect();
            let mut within = rows.clone().filter(|(row, _)| is_within(row, time));
            within.any(|(row, method)| own.contains(&identity(&row, method)))
        };
        let times = known.map(|((_, began_ns, block), (ended_ns, _))| (*block, [*began_ns, *ended_ns]));
        times.filter(|(block, time)| is_same(*block, *time)).map(|(_, time)| time).collect()
    }
}

/// Whether a call ended in that time.
pub(crate) fn is_within(row: &FlightRow, [from_ns, to_ns]: [u64; 2]) -> bool {
    (from_ns..=to_ns).contains(&row.at.0)
}

fn host_of(head: &BlockHead) -> String {
    format!("{}\n{}", head.host, head.addresses.join("\n"))
}

fn identity(row: &FlightRow, method: u32) -> CallIdentity {
    (row.at.0, method, row.side as u8, row.components.ns)
}
