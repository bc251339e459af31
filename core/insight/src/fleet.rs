//! The calls of all blocks that were read, under common numbers.

use crate::block::{BlockHead, BlockReader, RecordBlock};
use crate::driven::DrivenCalls;
use crate::estimate::WeightedValues;
use crate::faults::{Faults, FileFault};
pub use crate::fleet_call::FleetCall;
use crate::recorded::{RecordedPeers, RecordedServers};
use crate::twice::RecordedTimes;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use trunkline_call::Code;
use trunkline_telemetry::{Coverage, FlightRow, RecordedTrace, Side, is_own_method};

/// Most calls that are read at once: about 800 MB.
pub const CALLS_MAX: usize = 4_000_000;
/// Most blocks that are read at once, and about what their heads take: a host writes 17,280 blocks a day.
const HEADS_MAX: usize = 1_000_000;
const HEAD_BYTES_MAX: usize = 1 << 30;
/// Most methods and codes, block by block, of which handlers said late what they took: 24 MB.
const LATE_MAX: usize = 1_000_000;
/// No handlers of a method take more in a block.
const LATE_SECONDS_MAX: f64 = 1e9;
/// A method with fewer calls that ended well has no percentiles to speak of (as in the study).
pub const METHOD_CALLS_MIN: usize = 100;

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Paths of methods by number.
    pub methods: Vec<String>,
    /// The blocks' heads, as they stood in the files.
    pub heads: Vec<BlockHead>,
    /// The calls.
    pub calls: Vec<FleetCall>,
    /// Traces of calls that belong to one.
    pub traces: Vec<FleetTrace>,
    /// What handlers took whose calls were over before them: those calls do not have it.
    pub late: Vec<FleetLateHandler>,
    /// What could not be used.
    pub faults: Faults,
    numbers: BTreeMap<String, u32>,
    /// About what the heads take.
    head_bytes: usize,
    times: RecordedTimes,
}

/// What became of a file's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileContents {
    /// Blocks that were added.
    pub blocks: usize,
    /// Blocks all of which another file had before.
    pub told_before: usize,
}

/// What became of a block.
#[derive(Clone, Copy, Debug)]
enum BlockOutcome {
    /// It is there, less the calls that another recording has.
    Added,
    /// Another recording of the same daemon has all of it.
    ToldBefore,
    /// There was no room.
    LeftOut,
}

/// Processor time of handlers of a method whose calls had ended before, in one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetLateHandler {
    /// Number of the method in [`Fleet::methods`].
    pub method: u32,
    /// Number of the block in [`Fleet::heads`].
    pub block: u32,
    /// How the calls ended.
    pub code: Code,
    /// In seconds.
    pub seconds: f64,
}

/// The trace of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetTrace {
    /// Number of the call in [`Fleet::calls`].
    pub call: u32,
    /// What was recorded.
    pub trace: RecordedTrace,
}

/// A method's calls that ended well, as a figure looks at them.
#[derive(Clone, Debug)]
pub struct MethodValues {
    /// Number of the method.
    pub method: u32,
    /// One value a call.
    pub values: WeightedValues,
}

/// Calls of one side that are divided whole: those that were made, if they are enough to say something. Of a call that
/// was served its host knows the server's part alone, and calls that it made meanwhile lie within that: both added
/// up would tell wires for less than they are, and time twice.
#[derive(Clone, Debug)]
pub struct DividedCalls<'f> {
    /// Made, or served.
    pub side: Side,
    /// The calls.
    pub calls: Vec<&'f FleetCall>,
    /// Methods that have calls of the other side alone.
    pub left_out: usize,
}

impl DividedCalls<'_> {
    /// What there is to say of that, if there is.
    pub fn words(&self) -> Option<String> {
        match (self.side, self.left_out) {
            (Side::Served, _) => Some(
                "Calls that were served: the server's part of them. Wires, and their callers' queues, are not known."
                    .into(),
            ),
            (_, 0) => None,
            (_, left_out) => Some(format!(
                "Calls that were made; {left_out} methods whose calls were served here, and made by hosts that are \
                 not recorded, are left out: their wires are not known."
            )),
        }
    }
}

impl Fleet {
    /// Reads a file and adds what it holds. What it has of a time and daemon that another file had before is left out.
    pub fn read(&mut self, bytes: &[u8]) -> FileContents {
        self.times.begin_file();
        let mut contents = FileContents::default();
        let mut reader = BlockReader::new(bytes);
        for block in reader.by_ref() {
            match self.take_in(block) {
                BlockOutcome::Added => contents.blocks += 1,
                BlockOutcome::ToldBefore => contents.told_before += 1,
                BlockOutcome::LeftOut => {}
            }
        }
        self.faults.merge(&reader.faults);
        contents
    }

    /// Adds a block. Calls of daemons' own services are left out: who records makes some.
    pub fn add(&mut self, block: RecordBlock) {
        self.take_in(block);
    }

    fn take_in(&mut self, block: RecordBlock) -> BlockOutcome {
        let RecordBlock { mut head, rows, traces } = block;
        if self.heads.len() >= HEADS_MAX || self.head_bytes + head.bytes() > HEAD_BYTES_MAX {
            self.faults.note(FileFault::TooManyBlocks, 1);
            return BlockOutcome::LeftOut;
        }
        // They are looked up call by call.
        head.peers.sort_unstable();
        head.peers.dedup_by_key(|(number, _)| *number);
        let methods = head.methods.iter().filter(|(_, name)| !is_own_method(name));
        let names: BTreeMap<u32, u32> = methods.map(|(number, name)| (*number, self.number(name))).collect();
        let number = self.heads.len() as u32;
        let named = rows.iter().filter_map(|call| Some((&call.row, *names.get(&call.row.method.0)?)));
        let told = self.times.told_before(&head, named.clone());
        let is_new = |row: &FlightRow, method: u32| !self.times.is_told(&told, row, method);
        let new_of =
            |row: &FlightRow| names.get(&row.method.0).copied().filter(|method| is_new(row, *method));
        let new: Vec<Option<u32>> = rows.iter().map(|call| new_of(&call.row)).collect();
        let count = new.iter().flatten().count();
        let before = named.clone().count() - count;
        self.faults.note(FileFault::ToldBefore, before as u64);
        // Of a block of calls that were told late nothing is left; another one's head says what its host did.
        let is_told = before > 0 && (told.has_times() || head.calls_seen == 0);
        if count == 0 && (is_told || told.is_copy()) {
            return BlockOutcome::ToldBefore;
        }
        let room = CALLS_MAX - self.calls.len();
        self.times.note(&head, number, named.take(room));
        self.head_bytes += head.bytes();
        self.faults.note(FileFault::TooMany, rows.len().saturating_sub(room) as u64);
        let mut traces = traces.into_iter().peekable();
        for (place, (call, new)) in rows.iter().zip(new).take(room).enumerate() {
            let trace = traces.next_if(|(of, _)| *of as usize == place);
            let Some(method) = new else { continue };
            let own = trace.map(|(_, trace)| {
                self.traces.push(FleetTrace { call: self.calls.len() as u32, trace });
                self.traces.len() as u32 - 1
            });
            self.calls.push(FleetCall {
                method,
                block: number,
                weight: call.weight.into(),
                ancestors: call.ancestors,
                trace: own,
                row: call.row,
            });
        }
        let late = head.late_handlers.iter().filter(|_| !told.any()).filter_map(|(method, code, seconds)| {
            let is_sound = usize::from(*code) < Code::ALL.len() && (0.0..=LATE_SECONDS_MAX).contains(seconds);
            let (method, code) = (*names.get(method)?, Code::from_number(*code));
            is_sound.then_some(FleetLateHandler { method, block: number, code, seconds: *seconds })
        });
        let room = LATE_MAX.saturating_sub(self.late.len());
        self.late.extend(late.take(room));
        self.heads.push(head);
        BlockOutcome::Added
    }

    /// How many trees of calls its own stands for; its weight if it is in none. Of a call that is kept for itself,
    /// while its tree is not, the calls above are told by none.
    pub fn tree_weight(&self, call: &FleetCall) -> f64 {
        let trace = call.trace.and_then(|number| self.traces.get(number as usize));
        trace.map_or(call.weight, |own| own.trace.weight.into())
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.methods.len() as u32;
        self.methods.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Every call once, however it ended: where it was made, and where it was served if the host that made it is none
    /// of those recorded.
    pub fn each_once(&self) -> impl Iterator<Item = &FleetCall> + Clone {
        let recorded = RecordedPeers::of(&self.heads, &self.calls);
        self.calls.iter().filter(move |call| match call.row.side {
            Side::Made => true,
            Side::Served => !recorded.by_name(call) && !recorded.by_address(call),
            Side::Attempt => false,
        })
    }

    /// What tells of handlers' processor time, each handler once, whatever became of the call it was for: where it was
    /// served, and where the call was made if the handler was on that host, or on one that tells of no call of the
    /// method that it served. Over R2P2 a caller may know the address of a router and not that of the server: there it
    /// is as [`Self::each_once`] has it.
    pub fn handlers(&self) -> impl Iterator<Item = &FleetCall> + Clone {
        let recorded = RecordedPeers::of(&self.heads, &self.calls);
        let servers = RecordedServers::of(&self.heads, &self.calls);
        self.calls.iter().filter(move |call| match call.row.side {
            Side::Made => call.row.components.coverage == Coverage::OneHost || !servers.tell_of(call),
            Side::Served => !recorded.by_address(call),
            Side::Attempt => false,
        })
    }

    /// Of each call once, those that ended well and did not stream: how long a stream takes is up to its ends. The
    /// completion time of a call that was served is the server's part of it: of a method that recorded hosts and others
    /// call, those that stand for more calls are looked at.
    pub fn good(&self) -> impl Iterator<Item = &FleetCall> + Clone {
        let looked_at = self.side_weights(|_| true).into_iter().map(heavier_side);
        let looked_at: Rc<[Side]> = looked_at.collect();
        self.each_once()
            .filter(|call| is_good(call))
            .filter(move |call| looked_at[call.method as usize] == call.row.side)
    }

    /// Calls, each once, that are so, by method: what those made stand for, and those served.
    pub(crate) fn side_weights(&self, is_so: impl Fn(&FleetCall) -> bool) -> Vec<[f64; 2]> {
        let mut weights = vec![[0.0; 2]; self.methods.len()];
        for call in self.each_once().filter(|call| is_so(call)) {
            weights[call.method as usize][usize::from(call.row.side == Side::Served)] += call.weight;
        }
        weights
    }

    /// Of these, those in which every component there is was measured.
    pub fn whole(&self) -> impl Iterator<Item = &FleetCall> + Clone {
        self.good().filter(|call| is_whole(call))
    }

    /// Calls that are so, of one side, in which every component there is was measured.
    pub fn divided(&self, is_so: impl Fn(&FleetCall) -> bool) -> DividedCalls<'_> {
        let of_side = |side: Side| {
            let calls = self.each_once().filter(|call| call.row.side == side && is_good(call));
            calls.filter(|call| is_whole(call) && is_so(call)).collect::<Vec<_>>()
        };
        let (made, served) = (of_side(Side::Made), of_side(Side::Served));
        let are_made = made.len() >= METHOD_CALLS_MIN || served.is_empty();
        let (side, calls, others) =
            if are_made { (Side::Made, made, served) } else { (Side::Served, served, made) };
        let methods = |calls: &[&FleetCall]| calls.iter().map(|call| call.method).collect::<BTreeSet<_>>();
        let left_out = methods(&others).difference(&methods(&calls)).count();
        DividedCalls { side, calls, left_out }
    }

    /// Which ends of the calls are told of: `made`, `served` or both.
    pub fn sides(&self) -> String {
        let is_any = |side: Side| self.each_once().any(|call| call.row.side == side);
        let sides = [Side::Made, Side::Served].into_iter().filter(|side| is_any(*side));
        sides.map(Side::name).collect::<Vec<_>>().join(" and ")
    }

    /// Values of calls by method, of methods that have enough of them.
    pub fn by_method<'a>(
        &'a self,
        calls: impl Iterator<Item = &'a FleetCall>,
        value: impl Fn(&FleetCall) -> Option<f64>,
    ) -> Vec<MethodValues> {
        self.weighed_by_method(calls, |call| Some((value(call)?, call.weight)))
    }

    /// Calls above calls that ended well, by method.
    pub fn above_by_method(&self) -> Vec<MethodValues> {
        self.weighed_by_method(self.good(), |call| {
            let weight = self.tree_weight(call);
            Some((f64::from(call.ancestors?), (weight > 0.0).then_some(weight)?))
        })
    }

    fn weighed_by_method<'a>(
        &'a self,
        calls: impl Iterator<Item = &'a FleetCall>,
        value: impl Fn(&FleetCall) -> Option<(f64, f64)>,
    ) -> Vec<MethodValues> {
        let mut found: Vec<Vec<(f64, f64)>> = vec![Vec::new(); self.methods.len()];
        for call in calls {
            if let Some(weighed) = value(call) {
                found[call.method as usize].push(weighed);
            }
        }
        let enough = found.into_iter().enumerate().filter(|(_, values)| values.len() >= METHOD_CALLS_MIN);
        enough
            .map(|(method, values)| MethodValues {
                method: method as u32,
                values: WeightedValues::of(values),
            })
            .collect()
    }

    /// The path of a method.
    pub fn name(&self, method: u32) -> &str {
        self.methods.get(method as usize).map_or("(other)", String::as_str)
    }

    /// The service of a method: what stands between the slashes of its path.
    pub fn service(&self, method: u32) -> &str {
        let name = self.name(method);
        name.trim_start_matches('/').split_once('/').map_or(name, |(service, _)| service)
    }

    /// The name of a call's other host.
    pub fn peer(&self, call: &FleetCall) -> &str {
        let peers = self.heads.get(call.block as usize).map(|head| &head.peers);
        let place =
            |peers: &Vec<(u32, String)>| peers.binary_search_by_key(&call.row.peer.0, |peer| peer.0).ok();
        let known = peers.and_then(|peers| peers.get(place(peers)?));
        known.map_or("(other)", |(_, name)| name)
    }

    /// Whether any of it was drawn and not measured.
    pub fn is_generated(&self) -> bool {
        self.heads.iter().any(|head| head.generated)
    }

    /// Clusters that hosts say they are of.
    pub fn clusters(&self) -> BTreeSet<&str> {
        self.heads.iter().map(|head| head.cluster.as_str()).filter(|cluster| !cluster.is_empty()).collect()
    }

    /// How the calls were made, if they were made after the shape of others.
    pub fn driven(&self) -> Option<DrivenCalls> {
        self.heads.iter().find_map(|head| head.driven)
    }

    /// Calls the kept ones stand for.
    pub fn weight(&self) -> f64 {
        self.each_once().map(|call| call.weight).sum()
    }

    /// Calls nobody looked at before they were overwritten.
    pub fn lost(&self) -> u64 {
        self.heads.iter().fold(0, |lost, head| lost.saturating_add(head.calls_lost))
    }

    /// Hosts, each once.
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.heads.iter().map(|head| head.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// How well the clocks of calls between hosts are known of each other; `None` if there are none.
    pub fn clock_bound(&self) -> Option<ClockBound> {
        let between = self.each_once().filter(|call| call.row.components.coverage == Coverage::Whole);
        let (mut sum, mut known, mut unknown) = (0.0, 0.0, 0.0);
        for call in between {
            match call.row.half_width_ns {
                u32::MAX => unknown += call.weight,
                ns => {
                    sum += f64::from(ns) * call.weight;
                    known += call.weight;
                }
            }
        }
        let mean_ns = (known > 0.0).then(|| sum / known);
        (known + unknown > 0.0).then(|| ClockBound { mean_ns, unknown: unknown / (known + unknown) })
    }
}

/// How well clocks are known of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockBound {
    /// How much the two wires of a call may have to give each other, on average; `None` if nothing is known of any.
    pub mean_ns: Option<f64>,
    /// The part of the calls of whose other clock nothing was known, as of the first between two hosts.
    pub unknown: f64,
}

/// The side whose calls stand for more: made, or served.
pub(crate) fn heavier_side([made, served]: [f64; 2]) -> Side {
    if made >= served { Side::Made } else { Side::Served }
}

/// Whether a call ended well and did not stream.
pub(crate) fn is_good(call: &FleetCall) -> bool {
    call.row.code == Code::Ok && !call.row.is_stream
}

/// Whether every component there is was measured.
pub(crate) fn is_whole(call: &FleetCall) -> bool {
    let coverage = call.row.components.coverage;
    match call.row.side {
        Side::Served => coverage == Coverage::ServerOnly,
        Side::Made | Side::Attempt => coverage.is_whole(),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that hosts' numbers for one method become one, and that a call told by both ends counts once.
    use super::*;
    use crate::block::tests::block;

    #[test]
    fn hosts_numbers_are_made_common() {
        let (a, mut b) = (block("a", 150), block("b", 150));
        b.head.methods = vec![(8, "/a.B/D".into()), (3, "/a.B/C".into())];
        b.rows.iter_mut().take(10).for_each(|call| call.row.method.0 = 8);
        let mut fleet = Fleet::default();
        fleet.read(&[a.encode(), b.encode(), vec![1]].concat());
        assert_eq!(fleet.methods, ["/a.B/C", "/a.B/D"]);
        assert_eq!((fleet.hosts(), fleet.calls.len(), fleet.service(1)), (vec!["a", "b"], 300, "a.B"));
        let methods = fleet.by_method(fleet.good(), |call| Some(call.total_s()));
        assert_eq!(methods.len(), 1, "ten calls have no percentiles");
        assert!(!fleet.faults.is_empty());
    }

    #[test]
    fn however_many_are_lost_they_are_counted() {
        let (mut a, mut b) = (block("a", 1), block("b", 1));
        (a.head.calls_lost, b.head.calls_lost) = (u64::MAX, 2);
        let mut fleet = Fleet::default();
        fleet.add(a);
        fleet.add(b);
        assert_eq!(fleet.lost(), u64::MAX);
    }

    #[test]
    fn a_call_told_by_both_ends_counts_once() {
        let (a, mut b) = (block("a", 20), block("b", 20));
        b.rows.iter_mut().for_each(|call| call.row.side = Side::Served);
        b.head.peers.iter_mut().for_each(|(_, name)| "a".clone_into(name));
        let mut fleet = Fleet::default();
        fleet.add(a);
        fleet.add(b.clone());
        assert_eq!((fleet.calls.len(), fleet.weight()), (40, 20.0));
        let mut served = Fleet::default();
        served.add(b);
        assert_eq!((served.sides().as_str(), served.weight()), ("served", 20.0));
    }

    /// Several daemons of one machine have one name, and a file may hold only what was made: what was served is told
    /// by nobody else then.
    #[test]
    fn a_handler_counts_where_its_call_was_made_if_nobody_tells_of_serving_it() {
        let mut made = block("a", 20);
        made.head.peers.iter_mut().for_each(|(_, name)| "a".clone_into(name));
        let mut served = made.clone();
        served.rows.iter_mut().for_each(|call| {
            (call.row.side, call.row.components.coverage) = (Side::Served, Coverage::ServerOnly);
        });
        let mut fleet = Fleet::default();
        fleet.add(made);
        assert_eq!(fleet.handlers().count(), 20);
        fleet.add(served);
        assert_eq!(fleet.handlers().filter(|call| call.row.side == Side::Served).count(), 20);
        assert_eq!(fleet.handlers().count(), 20);
    }

    #[test]
    fn a_call_over_r2p2_told_by_both_ends_counts_once() {
        let (mut a, mut b) = (block("a", 20), block("b", 25));
        a.head.addresses = vec!["10.0.0.1".into(), "10.1.0.1".into()];
        a.head.peers = vec![(1, "r2p2 10.0.0.2:8000".into())];
        b.head.addresses = vec!["10.0.0.2".into()];
        b.head.peers = vec![(1, "r2p2 10.0.0.1".into()), (2, "r2p2 10.0.0.10".into())];
        for (n, call) in b.rows.iter_mut().enumerate() {
            (call.row.side, call.row.components.coverage) = (Side::Served, Coverage::ServerOnly);
            call.row.peer.0 = if n < 20 { 1 } else { 2 };
        }
        let mut fleet = Fleet::default();
        fleet.read(&[a.encode(), b.encode()].concat());
        assert_eq!((fleet.calls.len(), fleet.weight()), (45, 25.0), "five are of a host nobody recorded");
        assert!(fleet.handlers().eq(fleet.each_once()), "a router may stand between");
    }

    /// Over loopback an address names nobody. Daemons of one network namespace are known by that.
    #[test]
    fn calls_over_r2p2_within_a_host_count_once() {
        let within = |namespace: &str| {
            let (mut a, mut b) = (block("a", 20), block("b", 25));
            for head in [&mut a.head, &mut b.head] {
                (head.boot_id, head.network_namespace) = ("boot".into(), "net:[1]".into());
            }
            b.head.network_namespace = namespace.into();
            a.head.peers = vec![(1, "r2p2 127.0.0.1:8000".into())];
            b.head.peers = vec![(1, "r2p2 127.0.0.1".into())];
            b.head.methods.push((9, "/a.B/Other".into()));
            for (n, call) in b.rows.iter_mut().enumerate() {
                (call.row.side, call.row.components.coverage) = (Side::Served, Coverage::ServerOnly);
                // Of these no recorded daemon makes any.
                call.row.method.0 = if n < 20 { call.row.method.0 } else { 9 };
            }
            let mut fleet = Fleet::default();
            fleet.read(&[a.encode(), b.encode()].concat());
            assert!(fleet.handlers().eq(fleet.each_once()));
            (fleet.calls.len(), fleet.weight())
        };
        assert_eq!(within("net:[1]"), (45, 25.0));
        assert_eq!(within("net:[2]"), (45, 45.0), "each has a loopback of its own");
        assert_eq!(within(""), (45, 45.0), "a recording of before does not say");
    }

    #[test]
    fn a_first_call_without_a_clock_leaves_the_bound_of_all_others() {
        let mut one = block("a", 100);
        one.rows.iter_mut().for_each(|call| {
            (call.row.components.coverage, call.row.half_width_ns) = (Coverage::Whole, 500);
        });
        one.rows[0].row.half_width_ns = u32::MAX;
        let mut fleet = Fleet::default();
        fleet.add(one.clone());
        assert_eq!(fleet.clock_bound(), Some(ClockBound { mean_ns: Some(500.0), unknown: 0.01 }));
        one.rows.truncate(1);
        let mut fleet = Fleet::default();
        fleet.add(one);
        assert_eq!(fleet.clock_bound(), Some(ClockBound { mean_ns: None, unknown: 1.0 }));
        assert_eq!(Fleet::default().clock_bound(), None);
    }

    #[test]
    fn two_recordings_of_one_time_count_its_calls_once() {
        let (mut whole, mut later) = (block("a", 150), block("a", 200));
        whole.head.ended_ns = 150_500;
        later.rows.drain(..100);
        later.head.began_ns = later.rows[0].row.at.0;
        let mut fleet = Fleet::default();
        fleet.read(&whole.encode());
        fleet.read(&later.encode());
        assert_eq!(fleet.weight(), 200.0, "fifty of them were told before");
        assert!(fleet.faults.to_string().starts_with("50 calls of a time"), "{}", fleet.faults);
        fleet.read(&[whole.encode(), later.encode()].concat());
        assert_eq!((fleet.weight(), fleet.heads.len()), (200.0, 2));
        // Another daemon of the machine has its name, and other calls.
        let mut other = whole.clone();
        other.rows.iter_mut().for_each(|call| call.row.at.0 += 1);
        fleet.read(&other.encode());
        assert_eq!(fleet.weight(), 350.0);
    }

    #[test]
    fn of_a_block_of_calls_told_late_single_calls_are_told_before() {
        // One recording was told late of two calls; the other has all of their time, and one of the two.
        let mut late = block("a", 100);
        late.rows = vec![late.rows[10], late.rows[60]];
        (late.head.calls_seen, late.head.began_ns, late.head.ended_ns) = (0, 11_000, 61_000);
        let mut whole = block("a", 100);
        whole.rows.remove(10);
        let mut fleet = Fleet::default();
        fleet.read(&late.encode());
        assert_eq!(fleet.read(&whole.encode()), FileContents { blocks: 1, told_before: 0 });
        assert_eq!(fleet.weight(), 100.0);
        let mut other_way = Fleet::default();
        other_way.read(&whole.encode());
        other_way.read(&late.encode());
        assert_eq!(other_way.weight(), 100.0);
    }

    #[test]
    fn what_a_recording_was_told_late_at_its_beginning_is_single_calls() {
        // A call each 100 ms. B began at 41.5 s, and was told late of the call of 40.6 s.
        let at = |block: &mut RecordBlock, from_ms: u64| {
            for (n, call) in block.rows.iter_mut().enumerate() {
                call.row.at.0 = (from_ms + 100 * n as u64) * 1_000_000;
            }
            (block.head.began_ns, block.head.ended_ns) =
                (block.rows[0].row.at.0, (from_ms + 100 * block.rows.len() as u64) * 1_000_000);
        };
        let (mut whole, mut later) = (block("a", 50), block("a", 60));
        at(&mut whole, 37_000);
        at(&mut later, 40_600);
        later.rows.drain(1..9);
        let mut fleet = Fleet::default();
        fleet.read(&later.encode());
        fleet.read(&whole.encode());
        assert_eq!(fleet.weight(), (52 + 36 + 8) as f64, "those of 40.7 to 41.4 s are in one only");
        assert_eq!(fleet.heads.len(), 2);
    }

    #[test]
    fn a_copy_of_a_recording_adds_nothing_and_is_told_apart_from_no_recording() {
        let mut idle = block("a", 0);
        (idle.head.began_ns, idle.head.ended_ns) = (400_000, 500_000);
        let file = [block("a", 100).encode(), idle.encode()].concat();
        let mut fleet = Fleet::default();
        assert_eq!(fleet.read(&file), FileContents { blocks: 2, told_before: 0 });
        assert_eq!(fleet.read(&file), FileContents { blocks: 0, told_before: 2 });
        assert_eq!(fleet.read(b"no recording"), FileContents::default());
        assert_eq!((fleet.heads.len(), fleet.weight()), (2, 100.0));
    }

    /// What heads say of their times decides nothing of the work: each call is entered once, and looked up once.
    #[test]
    fn blocks_of_all_times_are_looked_up_call_by_call() {
        let all_times = |calls: u64, n: u64| {
            let mut block = block("a", calls);
            block.rows.iter_mut().for_each(|call| call.row.at.0 += n * 1_000_000_000);
            (block.head.began_ns, block.head.ended_ns) = (n, u64::MAX);
            block.encode()
        };
        let mut fleet = Fleet::default();
        fleet.read(&(0..100).flat_map(|n| all_times(100, n)).collect::<Vec<_>>());
        fleet.read(&(1_000..101_000).flat_map(|n| all_times(0, n)).collect::<Vec<_>>());
        assert_eq!((fleet.calls.len(), fleet.heads.len()), (10_000, 100_100));
    }

    #[test]
    fn whole_calls_and_servers_parts_are_not_added_up() {
        let (made, mut served) = (block("a", 150), block("a", 200));
        served.head.methods.iter_mut().for_each(|(_, name)| "/front.v1.Front/Page".clone_into(name));
        served.head.peers.iter_mut().for_each(|(_, name)| "10.9.9.9".clone_into(name));
        served.rows.iter_mut().for_each(|call| {
            (call.row.side, call.row.components.coverage) = (Side::Served, Coverage::ServerOnly);
        });
        let mut fleet = Fleet::default();
        fleet.add(served);
        let alone = fleet.divided(|_| true);
        assert_eq!((alone.side, alone.calls.len(), alone.left_out), (Side::Served, 200, 0));
        assert!(alone.words().is_some_and(|words| words.contains("the server's part")));
        fleet.add(made);
        let both = fleet.divided(|_| true);
        assert_eq!((both.side, both.calls.len(), both.left_out), (Side::Made, 150, 1));
        assert!(both.words().is_some_and(|words| words.contains("1 methods")));
        let front = fleet.divided(|call| fleet.name(call.method).contains("front"));
        assert_eq!((front.side, front.calls.len()), (Side::Served, 200));
    }

    #[test]
    fn a_served_call_is_left_out_only_if_its_caller_is_recorded() {
        // A backend serves 15 calls for a host that is recorded and 150 for one that is not, and makes 20 itself.
        let (a, mut b, mut own) = (block("a", 15), block("b", 165), block("b", 20));
        b.rows.iter_mut().for_each(|call| {
            (call.row.side, call.row.components.coverage) = (Side::Served, Coverage::ServerOnly);
        });
        let other = b.head.peers[0].0 + 1;
        b.head.peers = vec![(other - 1, "a".into()), (other, "10.0.0.9".into())];
        b.rows.iter_mut().skip(15).for_each(|call| call.row.peer.0 = other);
        own.head.methods.iter_mut().for_each(|(_, name)| "/database.v1.Rows/Read".clone_into(name));
        let mut looks_on = own.clone();
        looks_on
            .head
            .methods
            .iter_mut()
            .for_each(|(_, name)| "/trunkline.admin.v1.Admin/Calls".clone_into(name));
        let mut fleet = Fleet::default();
        [a, b, own, looks_on].into_iter().for_each(|block| fleet.add(block));
        assert_eq!((fleet.each_once().count(), fleet.sides().as_str()), (15 + 150 + 20, "made and served"));
        assert_eq!(fleet.methods, ["/a.B/C", "/database.v1.Rows/Read"]);
        let of = |method: u32| fleet.whole().filter(move |call| call.method == method);
        assert!(of(0).count() == 150 && of(0).all(|call| call.row.side == Side::Served), "most are served");
        assert!(of(1).count() == 20 && of(1).all(|call| call.row.side == Side::Made));
    }
}
