//! Times that two recordings of one daemon have both: its calls of then count once.

use crate::block::BlockHead;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use trunkline_telemetry::FlightRow;

/// What blocks of hosts were recorded, and which calls they have. Daemons of one machine may have one name: where two
/// recordings have a call in common they are of one daemon. Each call is entered once and looked up once, so the work
/// is that of the calls, whatever files say of their times.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedTimes {
    hosts: HashMap<String, HostCalls>,
    /// When blocks were recorded, by their number.
    blocks: BTreeMap<u32, RecordedBlock>,
    /// Of the file that is read.
    file: u32,
    /// Nobody who writes a file knows it.
    keys: RandomState,
}

/// The calls and blocks of one host.
#[derive(Clone, Debug, Default)]
struct HostCalls {
    /// By what tells a call from all others of its daemon, as a hash: the block that has it.
    calls: HashMap<u64, u32>,
    /// By beginning and end: the file that has a block of just this time.
    times: HashMap<[u64; 2], u32>,
    /// The last file that had a block of the host.
    last_file: u32,
}

/// A recording's first block begins with calls that ended so long before it was begun, as far as they were told late:
/// others of then it does not have.
const TOLD_LATE_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct RecordedBlock {
    file: u32,
    /// Beginning and end, if the block holds what ended then: one of calls that were told late says nothing of others.
    time: Option<[u64; 2]>,
}

/// Which of a block's calls another recording of its daemon has told before.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldCalls {
    /// Times of which all is told, in order and apart from each other: by end, the beginning.
    times: BTreeMap<u64, u64>,
    /// Single calls, as hashes.
    calls: Vec<u64>,
    /// Another recording has a block of just this time.
    is_copy: bool,
}

impl RecordedTimes {
    /// What follows is another recording.
    pub fn begin_file(&mut self) {
        self.file += 1;
    }

    /// Notes a block: when it was recorded, and its calls with their methods.
    pub fn note<'r>(
        &mut self,
        head: &BlockHead,
        block: u32,
        rows: impl Iterator<Item = (&'r FlightRow, u32)>,
    ) {
        let time = [head.began_ns, head.ended_ns];
        let of_host = self.hosts.entry(host_of(head)).or_default();
        let is_first = std::mem::replace(&mut of_host.last_file, self.file) != self.file;
        let whole_from_ns = head.began_ns.saturating_add(if is_first { TOLD_LATE_NS } else { 0 });
        let mut has_calls = false;
        for (row, method) in rows {
            has_calls = true;
            of_host.calls.entry(self.keys.hash_one(identity(row, method))).or_insert(block);
        }
        of_host.times.entry(time).or_insert(self.file);
        let is_of_its_time = head.calls_seen > 0 || !has_calls;
        let time = is_of_its_time.then_some([whole_from_ns, head.ended_ns]);
        self.blocks.insert(block, RecordedBlock { file: self.file, time });
    }

    /// Which calls of a block, with their methods, another recording of the same daemon has: all of the times of which
    /// it has one, and single ones that it was told late.
    pub fn told_before<'r>(
        &self,
        head: &BlockHead,
        rows: impl Iterator<Item = (&'r FlightRow, u32)>,
    ) -> ToldCalls {
        let mut told = ToldCalls::default();
        let Some(of_host) = self.hosts.get(&host_of(head)) else {
            return told;
        };
        let is_late = head.calls_seen == 0;
        for (row, method) in rows {
            let hash = self.keys.hash_one(identity(row, method));
            let known = of_host.calls.get(&hash).and_then(|block| self.blocks.get(block));
            match known.filter(|block| block.file != self.file) {
                Some(RecordedBlock { time: Some(time), .. }) if !is_late => {
                    told.calls.push(hash);
                    told.add(*time);
                }
                Some(_) => told.calls.push(hash),
                None => {}
            }
        }
        let same = of_host.times.get(&[head.began_ns, head.ended_ns]);
        told.is_copy = same.is_some_and(|file| *file != self.file);
        told.calls.sort_unstable();
        told
    }

    /// Whether a call of a block is one of those.
    pub fn is_told(&self, told: &ToldCalls, row: &FlightRow, method: u32) -> bool {
        let begins = told.times.range(row.at.0..).next().map(|(_, began_ns)| *began_ns);
        begins.is_some_and(|began_ns| began_ns <= row.at.0)
            || !told.calls.is_empty()
                && told.calls.binary_search(&self.keys.hash_one(identity(row, method))).is_ok()
    }
}

impl ToldCalls {
    /// Whether any call is told.
    pub fn any(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether another recording has a block of just this time.
    pub fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Whether another recording has whole times of it, and not only single calls.
    pub fn has_times(&self) -> bool {
        !self.times.is_empty()
    }

    /// Adds a time; what it overlaps becomes one with it.
    fn add(&mut self, [mut began_ns, mut ended_ns]: [u64; 2]) {
        if began_ns > ended_ns {
            return;
        }
        while let Some((&end, &begin)) =
            self.times.range(began_ns..).next().filter(|(_, begin)| **begin <= ended_ns)
        {
            if begin <= began_ns && ended_ns <= end {
                return;
            }
            self.times.remove(&end);
            (began_ns, ended_ns) = (began_ns.min(begin), ended_ns.max(end));
        }
        self.times.insert(ended_ns, began_ns);
    }
}

fn host_of(head: &BlockHead) -> String {
    format!("{}\n{}", head.host, head.addresses.join("\n"))
}

/// What tells a call from all others of its daemon.
fn identity(row: &FlightRow, method: u32) -> impl std::hash::Hash {
    (row.at.0, method, row.side as u8, row.components.ns)
}

#[cfg(test)]
mod tests {
    //! Shows which calls of a block were told before.
    use super::*;

    #[test]
    fn times_that_overlap_are_one() {
        let mut told = ToldCalls::default();
        for time in [[10, 20], [30, 40], [12, 18], [50, 60], [20, 30], [45, 47]] {
            told.add(time);
        }
        assert_eq!(told.times, BTreeMap::from([(40, 10), (47, 45), (60, 50)]));
        told.add([9, 8]);
        told.add([0, u64::MAX]);
        assert_eq!(told.times, BTreeMap::from([(u64::MAX, 0)]));
    }
}
