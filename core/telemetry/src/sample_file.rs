//! The file of sampled calls: their messages, to be sent again (docs/replay.md has the table).
//!
//! Entries stand one behind the other, each with a frame of 24 bytes that has a mark, a version, a length and two
//! checksums. So files are joined by appending, a file that was cut short loses its last entry alone, and what follows
//! damage is found by the mark.

use std::collections::BTreeMap;
use std::fmt;
use trunkline_call::Code;

/// A call with its messages, as protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSample {
    /// The host whose daemon kept it.
    pub host: String,
    /// `/package.Service/Method`
    pub path: String,
    /// That host served it for another; it made it otherwise.
    pub served: bool,
    /// When it began, milliseconds since 1970.
    pub began_unix_ms: u64,
    /// From its entry into the daemon to its answer, in nanoseconds.
    pub duration_ns: u64,
    /// The time it was given, in nanoseconds; 0 for no end.
    pub timeout_ns: u64,
    /// How it ended.
    pub code: Code,
    /// The number of the [`SampleEntry::Schema`] that declares its types; 0 if nobody knew them.
    pub schema: u64,
    /// Names of fields that were emptied in its messages.
    pub redacted: Vec<String>,
    /// Some of them had a value.
    pub emptied: bool,
    /// The request.
    pub request: Vec<u8>,
    /// The response; `None` if there was none, or it was too large to be kept.
    pub response: Option<Vec<u8>>,
}

/// One entry of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleEntry {
    /// A call.
    Call(CallSample),
    /// Types: a descriptor set, by its number.
    Schema(u64, Vec<u8>),
}

/// What is wrong with a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleFault {
    /// Bytes that belong to no entry.
    NoEntry,
    /// An entry whose end is missing.
    CutShort,
    /// An entry whose bytes are not those that were written.
    Checksum,
    /// An entry of another version.
    Version(u16),
    /// An entry that says nothing that can be.
    Content,
}

/// How much of a file could not be used, by what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleFaults(BTreeMap<SampleFault, u64>);

/// Reads the entries of a file one by one; what is not sound is counted and passed over.
#[derive(Debug)]
pub struct SampleFileReader<'a> {
    bytes: &'a [u8],
    at: usize,
    damaged: u64,
    /// What was passed over so far.
    pub faults: SampleFaults,
}

/// Every frame begins with this.
const MARK: [u8; 6] = *b"TRKSMP";
/// The version of what is written here.
const VERSION: u16 = 1;
const FRAME_BYTES: usize = 24;
const CALL: u8 = 1;
const SCHEMA: u8 = 2;
/// Bytes of a call before its texts.
const HEAD_BYTES: usize = 56;
/// With more damaged entries than this the rest of a file is not looked at: each may cost a checksum of all that an
/// entry may have, wherever in the file it begins.
const DAMAGED_MAX: u64 = 256;
/// No text in an entry is longer.
const TEXT_BYTES_MAX: usize = 4096;

impl CallSample {
    /// Names of fields that are told.
    pub const REDACTED_MAX: usize = 256;

    /// Bytes of request and response together that an entry has room for.
    pub const MESSAGES_BYTES_MAX: usize = 15 << 20;
}

impl SampleEntry {
    /// No entry is longer; a longer one is not read.
    pub const BYTES_MAX: usize = 16 << 20;

    /// The entry as bytes; `None` if it is longer than an entry may be, or a text in it.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (kind, body) = match self {
            Self::Call(call) => (CALL, encode_call(call)?),
            Self::Schema(number, descriptors) => (SCHEMA, [&number.to_le_bytes()[..], descriptors].concat()),
        };
        if body.len() > Self::BYTES_MAX {
            return None;
        }
        let mut out = Vec::with_capacity(FRAME_BYTES + body.len());
        out.extend(MARK);
        out.extend(VERSION.to_le_bytes());
        out.extend([kind, 0, 0, 0]);
        out.extend((body.len() as u32).to_le_bytes());
        out.extend(crc32fast::hash(&body).to_le_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out.extend(body);
        Some(out)
    }

    fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        match kind {
            CALL => decode_call(body).map(Self::Call),
            SCHEMA => {
                let (number, descriptors) = body.split_first_chunk()?;
                Some(Self::Schema(u64::from_le_bytes(*number), descriptors.to_vec()))
            }
            _ => None,
        }
    }
}

fn encode_call(call: &CallSample) -> Option<Vec<u8>> {
    let response = call.response.as_deref().unwrap_or_default();
    let flags = u8::from(call.response.is_some()) | u8::from(call.emptied) << 1;
    let redacted = u16::try_from(call.redacted.len()).ok()?;
    if call.redacted.len() > CallSample::REDACTED_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(HEAD_BYTES + 256 + call.request.len() + response.len());
    for word in [call.began_unix_ms, call.duration_ns, call.timeout_ns, call.schema] {
        out.extend(word.to_le_bytes());
    }
    out.extend([call.code.number() as u8, u8::from(call.served), flags, 0]);
    out.extend(redacted.to_le_bytes());
    out.extend([0; 10]);
    out.extend(u32::try_from(call.request.len()).ok()?.to_le_bytes());
    out.extend(u32::try_from(response.len()).ok()?.to_le_bytes());
    for text in [&call.host, &call.path].into_iter().chain(&call.redacted) {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        out.extend((text.len() as u16).to_le_bytes());
        out.extend(text.as_bytes());
    }
    out.extend(&call.request);
    out.extend(response);
    Some(out)
}

fn decode_call(body: &[u8]) -> Option<CallSample> {
    let (head, mut rest) = body.split_first_chunk::<HEAD_BYTES>()?;
    let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
    let [code, served, flags, _] = head[32..36].try_into().expect("four bytes");
    let redacted = usize::from(u16::from_le_bytes([head[36], head[37]]));
    if code > 16 || served > 1 || redacted > CallSample::REDACTED_MAX {
        return None;
    }
    let host = text(&mut rest)?;
    let path = text(&mut rest)?;
    let redacted = (0..redacted).map(|_| text(&mut rest)).collect::<Option<Vec<String>>>()?;
    let (request, response) = rest.split_at_checked(word(48))?;
    let has_response = flags & 1 != 0;
    if response.len() != word(52) || (!has_response && !response.is_empty()) || !is_path(&path) {
        return None;
    }
    Some(CallSample {
        host,
        path,
        served: served == 1,
        began_unix_ms: long(0),
        duration_ns: long(8),
        timeout_ns: long(16),
        code: Code::from_number(code.into()),
        schema: long(24),
        redacted,
        emptied: flags & 2 != 0,
        request: request.to_vec(),
        response: has_response.then(|| response.to_vec()),
    })
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let (len, after) = rest.split_first_chunk()?;
    let len = usize::from(u16::from_le_bytes(*len));
    let (text, after) = after.split_at_checked(len).filter(|_| len <= TEXT_BYTES_MAX)?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

/// `/package.Service/Method`, in letters that can be sent.
fn is_path(path: &str) -> bool {
    let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    parts.is_some_and(|(service, method)| is_name(service) && is_name(method) && !method.contains('/'))
}

impl<'a> SampleFileReader<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, damaged: 0, faults: SampleFaults::default() }
    }

    /// The entry whose frame is at `self.at`, if it is sound.
    fn entry(&mut self, frame: &[u8; FRAME_BYTES]) -> Option<SampleEntry> {
        let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let version = u16::from_le_bytes([frame[6], frame[7]]);
        let begin = self.at + FRAME_BYTES;
        let body = self.bytes.get(begin..begin + word(12) as usize);
        let fault = match body {
            None => SampleFault::CutShort,
            Some(body) if crc32fast::hash(body) != word(16) => SampleFault::Checksum,
            Some(body) => {
                self.at = begin + body.len();
                let entry = SampleEntry::decode(frame[8], body).filter(|_| version == VERSION);
                if entry.is_none() {
                    let is_other = version != VERSION;
                    let fault = if is_other { SampleFault::Version(version) } else { SampleFault::Content };
                    self.faults.note(fault, 1);
                }
                return entry;
            }
        };
        self.faults.note(fault, 1);
        self.damaged += 1;
        // What was appended behind an entry that was cut short is still there.
        let next = self.next_mark(self.at + 1);
        self.at = if self.damaged > DAMAGED_MAX { self.bytes.len() } else { next };
        None
    }

    fn next_mark(&self, from: usize) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        let found = rest.windows(MARK.len()).position(|window| window == MARK);
        found.map_or(self.bytes.len(), |found| from + found)
    }
}

impl Iterator for SampleFileReader<'_> {
    type Item = SampleEntry;

    fn next(&mut self) -> Option<SampleEntry> {
        while self.at < self.bytes.len() {
            match frame(&self.bytes[self.at..]) {
                Some(frame) => {
                    if let Some(entry) = self.entry(&frame) {
                        return Some(entry);
                    }
                }
                None => {
                    let next = self.next_mark(self.at + 1);
                    self.faults.note(SampleFault::NoEntry, (next - self.at) as u64);
                    self.at = next;
                }
            }
        }
        None
    }
}

/// The frame at the beginning of these bytes, if one is.
fn frame(bytes: &[u8]) -> Option<[u8; FRAME_BYTES]> {
    let frame: &[u8; FRAME_BYTES] = bytes.first_chunk()?;
    let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let is_sound = frame[..MARK.len()] == MARK
        && crc32fast::hash(&frame[..20]) == word(20)
        && word(12) as usize <= SampleEntry::BYTES_MAX;
    is_sound.then_some(*frame)
}

impl SampleFaults {
    fn note(&mut self, fault: SampleFault, count: u64) {
        // Versions come from the file, of which there may be very many.
        let is_counted = self.0.len() < 64 || self.0.contains_key(&fault);
        *self.0.entry(if is_counted { fault } else { SampleFault::Content }).or_default() += count;
    }

    /// Whether everything could be used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is wrong, and how often; bytes where they belong to no entry.
    pub fn list(&self) -> impl Iterator<Item = (SampleFault, u64)> {
        self.0.iter().map(|(fault, count)| (*fault, *count))
    }
}

impl fmt::Display for SampleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEntry => f.write_str("bytes that belong to no entry"),
            Self::CutShort => f.write_str("entries cut short"),
            Self::Checksum => f.write_str("entries with a wrong checksum"),
            Self::Version(version) => {
                write!(f, "entries of version {version} (this program reads {VERSION})")
            }
            Self::Content => f.write_str("entries that say nothing that can be"),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that entries come back, and that what is wrong with a file costs what it is wrong with.
    use super::*;
    use proptest::prelude::*;

    fn call(n: u8) -> SampleEntry {
        SampleEntry::Call(sample(n))
    }

    fn sample(n: u8) -> CallSample {
        CallSample {
            host: "alpha".into(),
            path: "/a.B/C".into(),
            served: n % 2 == 1,
            began_unix_ms: 1,
            duration_ns: 2,
            timeout_ns: 3,
            code: Code::from_number((n % 17).into()),
            schema: 7,
            redacted: vec!["password".into(); usize::from(n % 3)],
            emptied: n.is_multiple_of(2),
            request: vec![n; usize::from(n)],
            response: (!n.is_multiple_of(4)).then(|| vec![n, 1]),
        }
    }

    fn read(bytes: &[u8]) -> (Vec<SampleEntry>, Vec<(String, u64)>) {
        let mut reader = SampleFileReader::new(bytes);
        let entries = reader.by_ref().collect();
        (entries, reader.faults.list().map(|(fault, count)| (fault.to_string(), count)).collect())
    }

    #[test]
    fn entries_come_back() {
        let entries: Vec<_> = (0..20).map(call).chain([SampleEntry::Schema(7, vec![1, 2, 3])]).collect();
        let file: Vec<u8> = entries.iter().flat_map(|entry| entry.encode().unwrap()).collect();
        assert_eq!(read(&file), (entries, vec![]));
        assert_eq!(read(&[]), (vec![], vec![]));
        let long = SampleEntry::Call(CallSample { path: "/".repeat(5000), ..sample(3) });
        assert_eq!(long.encode(), None);
        assert_eq!(SampleEntry::Schema(1, vec![0; SampleEntry::BYTES_MAX]).encode(), None);
    }

    #[test]
    fn what_is_wrong_is_passed_over_and_named() {
        let sound = call(3).encode().unwrap();
        let mut later = sound.clone();
        later[6] = 9;
        let check = crc32fast::hash(&later[..20]);
        later[20..24].copy_from_slice(&check.to_le_bytes());
        let mut wrong = sound.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let no_path = CallSample { path: "a.B/C".into(), ..sample(3) };
        let no_path = SampleEntry::Call(no_path).encode().unwrap();
        let file = [b"#!", &later[..], &wrong, &no_path, b"rest", &sound, &sound[..sound.len() - 1]].concat();
        let (entries, faults) = read(&file);
        assert_eq!(entries, [call(3)]);
        let expected = [
            ("bytes that belong to no entry", 6),
            ("entries cut short", 1),
            ("entries with a wrong checksum", 1),
            ("entries of version 9 (this program reads 1)", 1),
            ("entries that say nothing that can be", 1),
        ];
        // Bytes between entries belong to what is passed over before them.
        let named: Vec<&str> = faults.iter().map(|(fault, _)| fault.as_str()).collect();
        assert_eq!(named, expected.map(|(fault, _)| fault));
    }

    proptest! {
        #[test]
        fn damage_costs_the_entry_it_is_in(at in 0..1000_usize, flip in 1..=255_u8, cut in 0..1000_usize) {
            let entries = [call(1), call(2), call(5)];
            let parts = entries.each_ref().map(|entry| entry.encode().unwrap());
            let whole = parts.concat();
            let mut file = whole.clone();
            let at = at % file.len();
            file[at] ^= flip;
            let (back, faults) = read(&file);
            prop_assert_eq!(back.len(), 2);
            prop_assert!(!faults.is_empty() && back.iter().all(|entry| entries.contains(entry)));
            let cut = cut % whole.len();
            let (back, _) = read(&whole[..cut]);
            let mut ends = parts.iter().scan(0, |end, part| { *end += part.len(); Some(*end) });
            prop_assert_eq!(back.len(), ends.by_ref().take_while(|end| *end <= cut).count());
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), with_mark in any::<bool>()) {
            let bytes = if with_mark { [&MARK[..], &bytes].concat() } else { bytes };
            let (entries, faults) = read(&bytes);
            prop_assert!(entries.is_empty() && faults.is_empty() == bytes.is_empty());
        }
    }
}
