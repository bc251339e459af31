//! The file of records: blocks one behind the other, each whole in itself (docs/insight.md has the table).
//!
//! A block is a frame of 24 bytes, a head in JSON, rows of fixed width, and the traces of those that have one. Files
//! are joined by appending one to the other. What follows a damaged block is found by the frame's mark, and nothing of
//! a block is used whose checksum is wrong.

use crate::driven::DrivenCalls;
pub use crate::faults::VERSION;
use crate::faults::{Faults, FileFault};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trunkline_call::printable;
use trunkline_telemetry::{RecordedCall, RecordedTrace, RowFault};

/// Every frame begins with this.
pub const MARK: [u8; 6] = *b"TRKREC";
/// Bytes before the head.
pub const FRAME_BYTES: usize = 24;
/// No head is larger.
pub const HEAD_BYTES_MAX: usize = 4 << 20;
/// No block has more bytes of rows.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// No row is wider, whatever later versions add.
const ROW_BYTES_MAX: usize = 1024;
/// Names in a head, of methods and of hosts each.
const NAMES_MAX: usize = 1 << 16;

/// Addresses of a host.
const ADDRESSES_MAX: usize = 1024;
/// Variables, stages and components that a head tells, each: there are some dozen.
pub(crate) const NAMED_MAX: usize = 64;

/// What a block says of its rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockHead {
    /// The host whose daemon had the calls.
    pub host: String,
    /// Where the host stands, if who recorded said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Version of the daemon.
    #[serde(default)]
    pub version: String,
    /// Nobody made these calls: they were drawn from published distributions.
    #[serde(default)]
    pub generated: bool,
    /// These calls were made after the shape of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driven: Option<DrivenCalls>,
    /// Wall clock when the block began, milliseconds since 1970.
    #[serde(default)]
    pub began_unix_ms: u64,
    /// Nanoseconds to add to `began_unix_ms`.
    #[serde(default)]
    pub began_unix_ns: u32,
    /// The host's monotonic clock when the block began.
    pub began_ns: u64,
    /// And when it ended.
    pub ended_ns: u64,
    /// Calls that ended in that time, kept or not.
    pub calls_seen: u64,
    /// Calls that were overwritten before somebody looked.
    #[serde(default)]
    pub calls_lost: u64,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Traces behind the rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub traces: usize,
    /// Bytes of a trace.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trace_bytes: usize,
    /// Names of methods by number.
    pub methods: Vec<(u32, String)>,
    /// Names of other hosts by number.
    pub peers: Vec<(u32, String)>,
    /// Addresses of the host by which others know it that do not hear its name, as over R2P2; no loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The kernel's boot id: daemons that have it in common run on one machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// The daemon's network namespace, as its machine's kernel names it: those of one share loopback addresses.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub network_namespace: String,
    /// Measured at the host in that time: `cpu_percent`, `cpu_seconds` and so on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, f64>,
    /// Shares of all processor cycles, by stage of the call's path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cycles: BTreeMap<String, f64>,
    /// Processor time of the daemon's threads in that time by stage, in seconds, with what lies in no stage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub daemon_seconds: BTreeMap<String, f64>,
    /// Processor time of the processes of applications that were attached in that time, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_seconds: Option<f64>,
    /// Processor time of handlers whose calls were over before them, and have it in no row: number of the method, gRPC
    /// code, seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_handlers: Vec<(u32, u16, f64)>,
}

impl BlockHead {
    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.methods.iter().chain(&self.peers).map(|(_, name)| name.len() + 32);
        let names = names.chain(self.addresses.iter().map(|address| address.len() + 32));
        let numbers = [&self.variables, &self.cycles, &self.daemon_seconds];
        let numbers = numbers.into_iter().flat_map(BTreeMap::keys).map(|name| name.len() + 64);
        let own = [&self.host, &self.cluster, &self.version, &self.boot_id, &self.network_namespace];
        let own = own.map(String::len).iter().sum::<usize>() + size_of::<Self>();
        own + names.chain(numbers).sum::<usize>() + 16 * self.late_handlers.len()
    }
}

/// A block with its sound rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordBlock {
    /// What it says.
    pub head: BlockHead,
    /// The rows.
    pub rows: Vec<RecordedCall>,
    /// The traces of rows that belong to one: place in `rows` and trace, in the order of places.
    pub traces: Vec<(u32, RecordedTrace)>,
}

/// Bytes of a trace and its row's place.
const TRACE_BYTES: usize = 4 + RecordedTrace::BYTES;

impl RecordBlock {
    /// The block as bytes.
    ///
    /// # Panics
    /// With more rows and traces than [`BODY_BYTES_MAX`] has room for.
    pub fn encode(&self) -> Vec<u8> {
        let traces = self.traces.len();
        let trace_bytes = if traces > 0 { TRACE_BYTES } else { 0 };
        let head = BlockHead { row_bytes: RecordedCall::BYTES, traces, trace_bytes, ..self.head.clone() };
        let head = serde_json::to_vec(&head).expect("a head is text and numbers");
        let mut body = Vec::with_capacity(self.rows.len() * RecordedCall::BYTES + traces * TRACE_BYTES);
        self.rows.iter().for_each(|row| row.encode(&mut body));
        for (place, trace) in &self.traces {
            body.extend(place.to_le_bytes());
            trace.encode(&mut body);
        }
        assert!(head.len() <= HEAD_BYTES_MAX && body.len() <= BODY_BYTES_MAX, "a block is too large");
        let mut out = Vec::with_capacity(FRAME_BYTES + head.len() + body.len());
        out.extend(MARK);
        out.extend(VERSION.to_le_bytes());
        out.extend((head.len() as u32).to_le_bytes());
        out.extend((body.len() as u32).to_le_bytes());
        out.extend(checksum(&[&head, &body]).to_le_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out.extend(head);
        out.extend(body);
        out
    }
}

/// Reads the blocks of a file one by one.
#[derive(Debug)]
pub struct BlockReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes of which a checksum was made for nothing.
    wasted: usize,
    /// What was passed over so far.
    pub faults: Faults,
}

/// The lengths of a frame that is sound.
struct Frame {
    version: u16,
    head: usize,
    body: usize,
    checksum: u32,
}

impl<'a> BlockReader<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, wasted: 0, faults: Faults::default() }
    }

    fn block(&mut self, frame: &Frame) -> Option<RecordBlock> {
        let start = self.at + FRAME_BYTES;
        let end = start + frame.head + frame.body;
        if end > self.bytes.len() {
            self.faults.note(FileFault::CutShort, 1);
            // What was appended behind a block that was cut short is still there.
            self.at = self.next_mark(self.at + 1);
            return None;
        }
        let (head, body) = self.bytes[start..end].split_at(frame.head);
        if checksum(&[head, body]) != frame.checksum {
            self.faults.note(FileFault::Checksum, 1);
            self.wasted += end - start;
            // It may be one that was cut short, and others were appended. A file of frames that lie within each other's
            // blocks would have every byte looked at as often as there are frames: two looks it gets, and no more.
            let looks_inside = self.wasted <= self.bytes.len().saturating_mul(2);
            self.at = if looks_inside { self.next_mark(self.at + 1) } else { end };
            return None;
        }
        self.at = end;
        if !(1..=VERSION).contains(&frame.version) {
            self.faults.note(FileFault::Version(frame.version), 1);
            return None;
        }
        let Some((head, left_out)) = head_of(head) else {
            self.faults.note(FileFault::Head, 1);
            return None;
        };
        self.faults.note(FileFault::TooManyNames, left_out as u64);
        Some(self.rows(head, body))
    }

    /// The rows that are sound; the others are counted.
    fn rows(&mut self, head: BlockHead, body: &[u8]) -> RecordBlock {
        let has_sound_clock = head.began_ns <= head.ended_ns;
        if !has_sound_clock {
            self.faults.note(FileFault::ClockBackwards, 1);
        }
        let methods: BTreeMap<u32, ()> = head.methods.iter().map(|(number, _)| (*number, ())).collect();
        let peers: BTreeMap<u32, ()> = head.peers.iter().map(|(number, _)| (*number, ())).collect();
        // Traces are behind the rows, and as many as there are bytes for.
        let trace_bytes = head.traces.saturating_mul(head.trace_bytes).min(body.len());
        let (body, traces) = body.split_at(body.len() - trace_bytes);
        let mut rows = Vec::with_capacity(body.len() / head.row_bytes);
        let chunks = body.chunks_exact(head.row_bytes);
        if !chunks.remainder().is_empty() {
            self.faults.note(FileFault::PartOfRow, 1);
        }
        // Where each row of the file is among the sound ones.
        let mut places = Vec::with_capacity(rows.capacity());
        for bytes in chunks {
            places.push(None);
            match RecordedCall::decode(bytes) {
                Err(fault) => self.faults.note(FileFault::Row(fault), 1),
                Ok(call) => {
                    let at = call.row.at.0;
                    if !methods.contains_key(&call.row.method.0) || !peers.contains_key(&call.row.peer.0) {
                        self.faults.note(FileFault::NoName, 1);
                    } else if has_sound_clock && !(head.began_ns..=head.ended_ns).contains(&at) {
                        self.faults.note(FileFault::OutsideOfBlock, 1);
                    } else {
                        places.pop();
                        places.push(Some(rows.len() as u32));
                        rows.push(call);
                    }
                }
            }
        }
        let traces = self.traces(&head, traces, &places);
        RecordBlock { head, rows, traces }
    }

    /// The sound traces of sound rows.
    fn traces(
        &mut self,
        head: &BlockHead,
        bytes: &[u8],
        places: &[Option<u32>],
    ) -> Vec<(u32, RecordedTrace)> {
        let mut traces: Vec<(u32, RecordedTrace)> = Vec::new();
        // At least as wide as this version's, or there are none.
        for bytes in bytes.chunks_exact(head.trace_bytes.max(TRACE_BYTES)) {
            let (place, bytes) = bytes.split_at(4);
            let place = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
            let place = places.get(place as usize).copied().ok_or(RowFault::Trace);
            match place.and_then(|place| Ok((place, RecordedTrace::decode(bytes)?))) {
                Err(fault) => self.faults.note(FileFault::Trace(fault), 1),
                // Its row is counted already.
                Ok((None, _)) => {}
                Ok((Some(place), trace)) if traces.last().is_none_or(|(last, _)| *last < place) => {
                    traces.push((place, trace));
                }
                Ok(_) => self.faults.note(FileFault::Trace(RowFault::Trace), 1),
            }
        }
        traces
    }

    fn next_mark(&self, from: usize) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        let found = rest.windows(MARK.len()).position(|window| window == MARK);
        found.map_or(self.bytes.len(), |found| from + found)
    }
}

impl Iterator for BlockReader<'_> {
    type Item = RecordBlock;

    fn next(&mut self) -> Option<RecordBlock> {
        while self.at < self.bytes.len() {
            match Frame::read(&self.bytes[self.at..]) {
                Some(frame) => {
                    if let Some(block) = self.block(&frame) {
                        return Some(block);
                    }
                }
                None => {
                    let next = self.next_mark(self.at + 1);
                    self.faults.note(FileFault::NoBlock, (next - self.at) as u64);
                    self.at = next;
                }
            }
        }
        None
    }
}

impl Frame {
    /// The frame at the beginning of these bytes, if one is.
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..MARK.len()] != MARK || crc32fast::hash(&bytes[..20]) != word(20) {
            return None;
        }
        let (head, body) = (word(8) as usize, word(12) as usize);
        let version = u16::from_le_bytes([bytes[6], bytes[7]]);
        let fits = head <= HEAD_BYTES_MAX && body <= BODY_BYTES_MAX;
        fits.then_some(Self { version, head, body, checksum: word(16) })
    }
}

/// A head, and how many of its variables, stages and components were left out because it has too many.
fn head_of(bytes: &[u8]) -> Option<(BlockHead, usize)> {
    let mut head: BlockHead = serde_json::from_slice(bytes).ok()?;
    for name in [&mut head.host, &mut head.cluster, &mut head.version] {
        *name = printable(name);
    }
    for (_, name) in head.methods.iter_mut().chain(&mut head.peers) {
        *name = printable(name);
    }
    head.addresses.truncate(ADDRESSES_MAX);
    let mut left_out = 0;
    for named in [&mut head.variables, &mut head.cycles, &mut head.daemon_seconds] {
        left_out += named.len().saturating_sub(NAMED_MAX);
        let kept = std::mem::take(named).into_iter().take(NAMED_MAX);
        *named = kept.map(|(name, value)| (printable(&name), value)).collect();
    }
    let is_sound = (RecordedCall::BYTES..=ROW_BYTES_MAX).contains(&head.row_bytes)
        && (head.traces == 0 || (TRACE_BYTES..=ROW_BYTES_MAX).contains(&head.trace_bytes))
        && head.methods.len() <= NAMES_MAX
        && head.peers.len() <= NAMES_MAX;
    is_sound.then_some((head, left_out))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks this way")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

#[cfg(test)]
pub(crate) mod tests {
    //! Shows that blocks come back, from several hosts in one file, and that what is wrong is passed over and named.
    use super::*;
    use proptest::prelude::*;
    use trunkline_call::Instant;
    use trunkline_telemetry::{CallTrace, FlightRow, MethodIndex, PeerIndex};

    /// A block of so many calls, one a microsecond.
    pub(crate) fn block(host: &str, calls: u64) -> RecordBlock {
        let mut bytes = vec![0; RecordedCall::BYTES];
        bytes[108..112].copy_from_slice(&1.0_f32.to_le_bytes());
        let call = RecordedCall::decode(&bytes).unwrap();
        let row = |n: u64| FlightRow {
            at: Instant(1_000 * (n + 1)),
            method: MethodIndex(3),
            peer: PeerIndex(1),
            ..call.row
        };
        let head = BlockHead {
            host: host.into(),
            began_ns: 0,
            ended_ns: 1_000 * (calls + 1),
            calls_seen: calls,
            row_bytes: RecordedCall::BYTES,
            methods: vec![(3, "/a.B/C".into())],
            peers: vec![(1, "(local)".into())],
            ..BlockHead::default()
        };
        let rows = (0..calls).map(|n| RecordedCall { row: row(n), ..call }).collect();
        RecordBlock { head, rows, traces: Vec::new() }
    }

    fn read(bytes: &[u8]) -> (Vec<RecordBlock>, Vec<(String, u64)>) {
        let mut reader = BlockReader::new(bytes);
        let blocks = reader.by_ref().collect();
        (blocks, reader.faults.list().map(|(fault, count)| (fault.to_string(), count)).collect())
    }

    #[test]
    fn files_of_several_hosts_are_joined_by_appending() {
        let (a, b) = (block("a", 5), block("b", 7));
        let file = [a.encode(), b.encode()].concat();
        assert_eq!(read(&file), (vec![a, b], vec![]));
        assert_eq!(read(&[]), (vec![], vec![]));
    }

    #[test]
    fn of_very_many_variables_some_are_kept() {
        let mut one = block("a", 5);
        one.head.variables = (0..10_000).map(|n| (format!("v{n:06}"), f64::from(n))).collect();
        one.head.cycles = one.head.variables.clone();
        let (blocks, faults) = read(&one.encode());
        assert_eq!(blocks[0].head.variables.len(), NAMED_MAX);
        assert_eq!(blocks[0].head.cycles.len(), NAMED_MAX);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].1, 2 * (10_000 - NAMED_MAX as u64));
    }

    #[test]
    fn what_is_cut_short_is_named_and_the_rest_used() {
        let (a, b) = (block("a", 5), block("b", 7));
        let mut file = [a.encode(), b.encode()].concat();
        file.pop();
        assert_eq!(read(&file), (vec![a.clone()], vec![("blocks cut short".into(), 1)]));
        // Something was appended to a file that had been cut short.
        file.extend(a.encode());
        assert_eq!(read(&file), (vec![a.clone(), a], vec![("blocks with a wrong checksum".into(), 1)]));
    }

    #[test]
    fn another_version_a_wrong_checksum_and_other_bytes_are_passed_over() {
        let sound = block("a", 2).encode();
        let mut later = sound.clone();
        later[6] = 9;
        let frame = crc32fast::hash(&later[..20]);
        later[20..24].copy_from_slice(&frame.to_le_bytes());
        let mut wrong = sound.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let file = [b"#!", &later[..], &wrong, b"rest", &sound].concat();
        let (blocks, faults) = read(&file);
        assert_eq!(blocks, [block("a", 2)]);
        let expected = [
            ("bytes that belong to no block", 2),
            ("blocks of version 9 (this program reads 1 to 2)", 1),
            ("blocks with a wrong checksum", 1),
        ];
        assert_eq!(faults, expected.map(|(fault, count)| (fault.to_owned(), count)));
    }

    /// The bytes of a block as an earlier version wrote it.
    fn of_version_1(block: &RecordBlock) -> Vec<u8> {
        let mut bytes = block.encode();
        bytes[6] = 1;
        let frame = crc32fast::hash(&bytes[..20]);
        bytes[20..24].copy_from_slice(&frame.to_le_bytes());
        bytes
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        let old = block("a", 4);
        let file = [of_version_1(&old), traced("b", 4).encode()].concat();
        assert_eq!(read(&file), (vec![old, traced("b", 4)], vec![]));
    }

    /// A block in which every second call belongs to a trace.
    pub(crate) fn traced(host: &str, calls: u64) -> RecordBlock {
        let mut one = block(host, calls);
        let ids = |n: u64| CallTrace { trace: (n + 1).into(), span: n + 100, ..CallTrace::default() };
        let trace = |n: u64| RecordedTrace { ids: ids(n), weight: 1.0, ..RecordedTrace::default() };
        one.traces = (0..calls).step_by(2).map(|n| (n as u32, trace(n))).collect();
        (one.head.traces, one.head.trace_bytes) = (one.traces.len(), TRACE_BYTES);
        one
    }

    #[test]
    fn traces_are_those_of_sound_rows() {
        let mut one = traced("a", 6);
        // A row that is none, so its trace is nobody's; the others move up.
        one.rows[0].weight = 0.0;
        one.traces.push((99, one.traces[0].1));
        one.traces.push((4, one.traces[2].1));
        let (blocks, faults) = read(&one.encode());
        let places: Vec<_> = blocks[0].traces.iter().map(|(place, trace)| (*place, trace.ids.span)).collect();
        assert_eq!(places, [(1, 102), (3, 104)]);
        let expected = [
            ("calls with a weight below one", 1),
            ("traces of calls with a trace without an id, or of no call", 2),
        ];
        assert_eq!(faults, expected.map(|(fault, count)| (fault.to_owned(), count)));
    }

    #[test]
    fn impossible_rows_are_counted_by_what_is_wrong() {
        let mut one = block("a", 6);
        one.rows[1].row.at = Instant(1_000_000);
        one.rows[2].row.method = MethodIndex(99);
        one.rows[3].weight = 0.0;
        // It is written as one of thirty days.
        one.rows[4].row.components.ns[0] = u64::MAX;
        let (blocks, faults) = read(&one.encode());
        assert_eq!(blocks[0].rows.len(), 3);
        let expected = [
            ("calls with a weight below one", 1),
            ("calls of a method or host without a name", 1),
            ("calls that ended outside of their block's time", 1),
        ];
        assert_eq!(faults, expected.map(|(fault, count)| (fault.to_owned(), count)));
        // A clock that ran backwards says nothing of when, but durations are sound.
        let mut back = block("a", 3);
        (back.head.began_ns, back.head.ended_ns) = (50, 20);
        let (blocks, faults) = read(&back.encode());
        assert_eq!((blocks[0].rows.len(), faults.len()), (3, 1), "{faults:?}");
        assert!(faults[0].0.contains("ran backwards"), "{faults:?}");
    }

    /// A file may come from anywhere, and its names are shown to people.
    #[test]
    fn names_do_nothing_to_a_terminal() {
        let mut one = block("a\u{1b}[2J", 1);
        one.head.methods = vec![(3, "/a.B/\u{202e}C".into())];
        let (blocks, faults) = read(&one.encode());
        assert_eq!(blocks[0].head.host, "a\u{fffd}[2J");
        assert_eq!((blocks[0].head.methods[0].1.as_str(), faults.len()), ("/a.B/\u{fffd}C", 0));
    }

    /// A frame every 64 bytes, each of which claims all that follows.
    #[test]
    fn frames_within_each_other_cost_no_more_than_a_few_looks_at_the_file() {
        const FRAMES: usize = 4_000;
        let mut file = vec![0; FRAMES * 64];
        for at in (0..file.len()).step_by(64) {
            let body = (file.len() - at - FRAME_BYTES) as u32;
            file[at..at + MARK.len()].copy_from_slice(&MARK);
            file[at + 6..at + 8].copy_from_slice(&VERSION.to_le_bytes());
            file[at + 12..at + 16].copy_from_slice(&body.to_le_bytes());
            let checksum = crc32fast::hash(&file[at..at + 20]);
            file[at + 20..at + 24].copy_from_slice(&checksum.to_le_bytes());
        }
        let mut reader = BlockReader::new(&file);
        assert!(reader.next().is_none());
        assert!(reader.wasted > 0 && reader.wasted <= 3 * file.len(), "{} of {}", reader.wasted, file.len());
    }

    proptest! {
        #[test]
        fn damage_costs_the_block_it_is_in(at in 0..1500_usize, flip in 1..=255_u8, cut in 0..1500_usize) {
            let blocks: Vec<_> = ["a", "b", "c"].iter().map(|host| block(host, 3)).collect();
            let whole: Vec<u8> = blocks.iter().flat_map(RecordBlock::encode).collect();
            let mut file = whole.clone();
            let at = at % file.len();
            file[at] ^= flip;
            let (read_back, faults) = read(&file);
            prop_assert_eq!(read_back.len(), 2);
            prop_assert!(!faults.is_empty());
            prop_assert!(read_back.iter().all(|block| blocks.contains(block)));
            let cut = cut % whole.len();
            let (read_back, _) = read(&whole[..cut]);
            prop_assert_eq!(read_back.len(), cut * 3 / whole.len());
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), with_mark in any::<bool>()) {
            let bytes = if with_mark { [&MARK[..], &bytes].concat() } else { bytes };
            let (blocks, faults) = read(&bytes);
            prop_assert!(blocks.is_empty() && faults.is_empty() == bytes.is_empty());
        }
    }
}
