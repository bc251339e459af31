//! The 64-byte entries of the submission and completion rings (docs/shared-memory.md).
//!
//! An entry is eight little-endian 64-bit words. The first word is always
//! `kind: u8 | flags: u8 | code: u16 | route: u32` (low to high). What a word means depends on the kind; words a kind
//! does not use are zero. Everything here comes from another process: `decode` accepts any 64 bytes and refuses unknown
//! kinds.
//!
//! | word | Call | Message | Headers | Finish | Release |
//! |---|---|---|---|---|---|
//! | 0 | kind, flags, compression, route | kind, flags, compression | kind | kind, flags, code | kind |
//! | 1 | call | call | call | call | call |
//! | 2 | payload offset, length | payload | — | payload | block offset, length |
//! | 3 | metadata offset, length | — | metadata | metadata | metadata block offset, length |
//! | 4 | deadline | — | — | a10 | a18 |
//! | 5 | a0 | — | — | CPU ns | — |
//! | 6 | a1 | a1 | — | a11 | — |
//! | 7 | parent call | — | — | subtree, compression | — |

use crate::{CallId, Code, Deadline, Encoding, Execution, Instant, RouteIndex};

/// One ring entry as it lies in shared memory.
pub type Entry = [u64; 8];

/// A range in a heap, in bytes. Length zero means *nothing there*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span {
    /// From the start of the heap.
    pub offset: u32,
    /// In bytes.
    pub len: u32,
}

/// A message in a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Payload {
    /// Where it lies.
    pub span: Span,
    /// How it is written.
    pub encoding: Encoding,
    /// What is said of its compression.
    #[cfg_attr(feature = "serde", serde(default))]
    pub compression: MessageCompression,
}

/// What an entry says of how its message is compressed towards a gRPC peer, or came from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MessageCompression {
    /// Nothing. By an application: it is compressed as its call says.
    #[default]
    Unsaid = 0,
    /// To an application: it came compressed from a gRPC peer. By an application it says nothing.
    Compressed = 1,
    /// By an application: it is not to be compressed, whatever its call says.
    Plain = 2,
}

/// What a protobuf message takes from its stream's window besides its bytes: its entry and the smallest block. A linear
/// message is never empty; an empty protobuf message has to cost something, or a stream of them would know no limit.
pub const PROTOBUF_COST_BYTES: u32 = 64;

impl MessageCompression {
    /// Of a message of a gRPC peer.
    pub fn came(compressed: bool) -> Self {
        if compressed { Self::Compressed } else { Self::Unsaid }
    }

    /// What a number of another process means; one of a later version says nothing.
    pub fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Compressed,
            2 => Self::Plain,
            _ => Self::Unsaid,
        }
    }
}

impl Payload {
    /// A message of whose compression nothing is said.
    pub fn new(span: Span, encoding: Encoding) -> Self {
        Self { span, encoding, compression: MessageCompression::Unsaid }
    }

    /// The block to be returned for it in a receive heap. An empty protobuf message has one too, and its return says
    /// one byte: a length of zero would say that there is none.
    pub fn block(&self) -> Span {
        match self.encoding {
            Encoding::Linear => self.span,
            Encoding::Protobuf => Span { len: self.span.len.max(1), ..self.span },
        }
    }

    /// What this message takes from its sender's window on a stream.
    pub fn window_bytes(&self) -> u32 {
        match self.encoding {
            Encoding::Linear => self.span.len,
            Encoding::Protobuf => self.span.len.saturating_add(PROTOBUF_COST_BYTES),
        }
    }
}

/// What an application says to its daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// Start a call; with `end`, the request side is complete.
    Call(Call),
    /// A message on an open stream; with `end`, this side is complete.
    Message { call: CallId, payload: Payload, end: bool, a1: Instant },
    /// This side of the stream is complete.
    HalfClose { call: CallId },
    /// The caller gives up.
    Cancel { call: CallId },
    /// Response headers of a delivered call.
    Headers { call: CallId, metadata: Span },
    /// The handler's end of a delivered call.
    Finish(Finish),
    /// A receive block is no longer needed; after a call's last completion, `a18` says when it was taken.
    Release { call: CallId, block: Span, metadata: Span, a18: Instant },
    /// This session serves no new calls (graceful shutdown); calls in flight go on. With `answer` the daemon says
    /// [`Completion::Drained`]; applications that do not know that word do not ask for it.
    Drain { answer: bool },
}

/// What the daemon says to an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A call for a service this session serves.
    Call(Call),
    /// A message on an open stream.
    Message { call: CallId, payload: Payload, end: bool },
    /// The other side of the stream is complete.
    HalfClose { call: CallId },
    /// A delivered call is no longer wanted (cancelled, past its deadline, caller gone).
    Cancelled { call: CallId, code: Code },
    /// Response headers.
    Headers { call: CallId, metadata: Span },
    /// The end of a call this application made. Message, details and trailing metadata are in the metadata block under
    /// `grpc-message` and `grpc-status-details-bin`.
    Finish(Finish),
    /// Send blocks the daemon no longer needs; zero offsets are padding (offset 0 is never a block).
    Freed { offsets: [u32; FREED_MAX] },
    /// More bytes may be sent on this stream.
    Credit { call: CallId, bytes: u32 },
    /// The daemon is leaving: start no new calls on this session, attach anew.
    GoAway,
    /// The answer to [`Submission::Drain`], once: no call is delivered behind it, and every one before it has ended.
    Drained,
}

/// Most send blocks one [`Completion::Freed`] returns.
pub const FREED_MAX: usize = 14;

/// The start of a call, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Target and method.
    pub route: RouteIndex,
    /// The call.
    pub call: CallId,
    /// The first request message, if it is there already.
    pub payload: Option<Payload>,
    /// Request metadata.
    pub metadata: Span,
    /// Whether the request side is complete.
    pub end: bool,
    /// Made: whether it waits for a connection until its deadline, instead of failing when there is none to be had.
    pub wait_for_ready: bool,
    /// When the call must have ended.
    pub deadline: Deadline,
    /// Made: stub entered (a0). Delivered: published by the daemon (d9).
    pub entered: Instant,
    /// Made: submission published (a1). Delivered: zero.
    pub published: Instant,
    /// Made: the delivered call whose handler makes this one, or zero. Delivered: zero.
    pub parent: CallId,
}

/// The end of a call, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub code: Code,
    /// Whether the handler may have run.
    pub execution: Execution,
    /// The response of a call whose server side does not stream.
    pub payload: Option<Payload>,
    /// Trailing metadata, status message and details.
    pub metadata: Span,
    /// By a handler: when it took the call (a10). To a caller: zero.
    pub taken: Instant,
    /// By a handler: when it published this entry (a11). To a caller: zero.
    pub published: Instant,
    /// By a handler: CPU time it used, in nanoseconds, 0 if unknown.
    pub cpu_ns: u64,
    /// By a handler: calls it made, with theirs.
    pub subtree: u32,
}

/// Why an entry was refused. The daemon detaches a session that sends one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The kind is not one of this version.
    UnknownKind(u8),
    /// A flag is not one of this version.
    UnknownFlags(u8),
}

/// Bytes of the message an entry of an application brings, as it says; zero if it brings none.
pub fn message_bytes(entry: &Entry) -> u32 {
    let has_message = match entry[0] as u8 {
        kind::CALL | kind::FINISH => (entry[0] >> 8) as u8 & flag::PAYLOAD != 0,
        kind::MESSAGE => true,
        _ => false,
    };
    if has_message { span(entry[2]).len } else { 0 }
}

/// Bytes an entry of an application brings, as it says: of its message, and of its metadata.
pub fn carried_bytes(entry: &Entry) -> u32 {
    match entry[0] as u8 {
        kind::CALL | kind::FINISH | kind::HEADERS => message_bytes(entry).saturating_add(span(entry[3]).len),
        _ => message_bytes(entry),
    }
}

/// Whether an entry of an application is one that a server sends on a call it was given.
pub fn is_answer(entry: &Entry) -> bool {
    matches!(entry[0] as u8, kind::MESSAGE | kind::HEADERS | kind::FINISH)
}

/// Whether an entry of an application is what goes before the messages of a call.
pub fn is_headers(entry: &Entry) -> bool {
    entry[0] as u8 == kind::HEADERS
}

/// Bytes of the blocks an entry of an application gives back and does nothing else, as it says; zero if it does not.
pub fn returned_bytes(entry: &Entry) -> u32 {
    match entry[0] as u8 {
        kind::RELEASE => span(entry[2]).len.saturating_add(span(entry[3]).len),
        _ => 0,
    }
}

/// Whether an entry of an application does nothing but give back a block it has been lent.
pub fn gives_back(entry: &Entry) -> bool {
    returned_bytes(entry) != 0
}

mod kind {
    pub const CALL: u8 = 1;
    pub const MESSAGE: u8 = 2;
    pub const HALF_CLOSE: u8 = 3;
    pub const CANCEL: u8 = 4;
    pub const HEADERS: u8 = 5;
    pub const FINISH: u8 = 6;
    pub const RELEASE: u8 = 7;
    pub const DRAIN: u8 = 8;
    pub const FREED: u8 = 9;
    pub const CREDIT: u8 = 10;
    pub const GO_AWAY: u8 = 11;
}

mod flag {
    pub const END: u8 = 1;
    pub const PAYLOAD: u8 = 2;
    pub const PROTOBUF: u8 = 4;
    pub const WAIT_FOR_READY: u8 = 8;
    /// Two bits: [`crate::Execution`].
    pub const EXECUTION_SHIFT: u8 = 4;
    pub const ALL: u8 = END | PAYLOAD | PROTOBUF | WAIT_FOR_READY | 3 << EXECUTION_SHIFT;
}

impl Submission {
    /// Reads an entry an application wrote.
    ///
    /// # Errors
    /// [`EntryError`] for kinds and flags this version does not know.
    #[inline]
    pub fn decode(entry: &Entry) -> Result<Self, EntryError> {
        let word = First::decode(entry)?;
        let call = CallId(entry[1]);
        Ok(match word.kind {
            kind::CALL => Self::Call(Call::decode(entry, word)),
            kind::MESSAGE => Self::Message {
                call,
                payload: payload(entry, word.flags, word.code),
                end: word.end(),
                a1: Instant(entry[6]),
            },
            kind::HALF_CLOSE => Self::HalfClose { call },
            kind::CANCEL => Self::Cancel { call },
            kind::HEADERS => Self::Headers { call, metadata: span(entry[3]) },
            kind::FINISH => Self::Finish(Finish::decode(entry, word)),
            kind::RELEASE => Self::Release {
                call,
                block: span(entry[2]),
                metadata: span(entry[3]),
                a18: Instant(entry[4]),
            },
            kind::DRAIN => Self::Drain { answer: entry[2] == 1 },
            other => return Err(EntryError::UnknownKind(other)),
        })
    }

    /// Writes the entry.
    pub fn encode(&self) -> Entry {
        match *self {
            Self::Call(ref call) => call.encode(),
            Self::Message { call, payload, end, a1 } => {
                let mut entry = message(call, payload, end);
                entry[6] = a1.0;
                entry
            }
            Self::HalfClose { call } => plain(kind::HALF_CLOSE, call),
            Self::Cancel { call } => plain(kind::CANCEL, call),
            Self::Headers { call, metadata } => headers(call, metadata),
            Self::Finish(ref finish) => finish.encode(),
            Self::Release { call, block, metadata, a18 } => {
                [kind::RELEASE.into(), call.0, unspan(block), unspan(metadata), a18.0, 0, 0, 0]
            }
            Self::Drain { answer } => [kind::DRAIN.into(), 0, answer.into(), 0, 0, 0, 0, 0],
        }
    }
}

impl Completion {
    /// Reads an entry the daemon wrote.
    ///
    /// # Errors
    /// [`EntryError`] for kinds and flags this version does not know.
    pub fn decode(entry: &Entry) -> Result<Self, EntryError> {
        let word = First::decode(entry)?;
        let call = CallId(entry[1]);
        Ok(match word.kind {
            kind::CALL => Self::Call(Call::decode(entry, word)),
            kind::MESSAGE => {
                Self::Message { call, payload: payload(entry, word.flags, word.code), end: word.end() }
            }
            kind::HALF_CLOSE => Self::HalfClose { call },
            kind::CANCEL => Self::Cancelled { call, code: Code::from_number(word.code) },
            kind::HEADERS => Self::Headers { call, metadata: span(entry[3]) },
            kind::FINISH => Self::Finish(Finish::decode(entry, word)),
            kind::FREED => Self::Freed { offsets: freed(entry) },
            kind::CREDIT => Self::Credit { call, bytes: entry[2] as u32 },
            kind::GO_AWAY => Self::GoAway,
            kind::DRAIN => Self::Drained,
            other => return Err(EntryError::UnknownKind(other)),
        })
    }

    /// Writes the entry.
    pub fn encode(&self) -> Entry {
        match *self {
            Self::Call(ref call) => call.encode(),
            Self::Message { call, payload, end } => message(call, payload, end),
            Self::HalfClose { call } => plain(kind::HALF_CLOSE, call),
            Self::Cancelled { call, code } => {
                let mut entry = plain(kind::CANCEL, call);
                entry[0] |= u64::from(code.number()) << 16;
                entry
            }
            Self::Headers { call, metadata } => headers(call, metadata),
            Self::Finish(ref finish) => finish.encode(),
            Self::Freed { ref offsets } => {
                let mut entry = [u64::from(kind::FREED), 0, 0, 0, 0, 0, 0, 0];
                for (word, pair) in entry[1..].iter_mut().zip(offsets.chunks_exact(2)) {
                    *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
                }
                entry
            }
            Self::Credit { call, bytes } => [kind::CREDIT.into(), call.0, bytes.into(), 0, 0, 0, 0, 0],
            Self::GoAway => plain(kind::GO_AWAY, CallId(0)),
            Self::Drained => plain(kind::DRAIN, CallId(0)),
        }
    }
}

impl Call {
    #[inline]
    fn decode(entry: &Entry, word: First) -> Self {
        Self {
            route: RouteIndex(word.route),
            call: CallId(entry[1]),
            payload: optional_payload(entry, word.flags, word.code),
            metadata: span(entry[3]),
            end: word.end(),
            wait_for_ready: word.flags & flag::WAIT_FOR_READY != 0,
            deadline: Deadline::from_wire(entry[4]),
            entered: Instant(entry[5]),
            published: Instant(entry[6]),
            parent: CallId(entry[7]),
        }
    }

    fn encode(&self) -> Entry {
        let first = First {
            kind: kind::CALL,
            flags: payload_flags(self.payload) | end_flag(self.end) | wait_flag(self.wait_for_ready),
            code: compression_code(self.payload),
            route: self.route.0,
        };
        [
            first.encode(),
            self.call.0,
            payload_word(self.payload),
            unspan(self.metadata),
            self.deadline.to_wire(),
            self.entered.0,
            self.published.0,
            self.parent.0,
        ]
    }
}

impl Finish {
    #[inline]
    fn decode(entry: &Entry, word: First) -> Self {
        Self {
            call: CallId(entry[1]),
            code: Code::from_number(word.code),
            execution: Execution::from_number(word.flags >> flag::EXECUTION_SHIFT),
            payload: optional_payload(entry, word.flags, (entry[7] >> 32) as u16),
            metadata: span(entry[3]),
            taken: Instant(entry[4]),
            published: Instant(entry[6]),
            cpu_ns: entry[5],
            subtree: entry[7] as u32,
        }
    }

    fn encode(&self) -> Entry {
        let flags = payload_flags(self.payload) | (self.execution as u8) << flag::EXECUTION_SHIFT;
        let first = First { kind: kind::FINISH, flags, code: self.code.number(), route: 0 };
        [
            first.encode(),
            self.call.0,
            payload_word(self.payload),
            unspan(self.metadata),
            self.taken.0,
            self.cpu_ns,
            self.published.0,
            u64::from(self.subtree) | u64::from(compression_code(self.payload)) << 32,
        ]
    }
}

/// The first word of every entry.
#[derive(Clone, Copy)]
struct First {
    kind: u8,
    flags: u8,
    code: u16,
    route: u32,
}

impl First {
    #[inline]
    fn decode(entry: &Entry) -> Result<Self, EntryError> {
        let word = entry[0];
        let flags = (word >> 8) as u8;
        if flags & !flag::ALL != 0 {
            return Err(EntryError::UnknownFlags(flags));
        }
        Ok(Self { kind: word as u8, flags, code: (word >> 16) as u16, route: (word >> 32) as u32 })
    }

    fn encode(self) -> u64 {
        u64::from(self.kind)
            | u64::from(self.flags) << 8
            | u64::from(self.code) << 16
            | u64::from(self.route) << 32
    }

    fn end(self) -> bool {
        self.flags & flag::END != 0
    }
}

fn plain(kind: u8, call: CallId) -> Entry {
    [kind.into(), call.0, 0, 0, 0, 0, 0, 0]
}

fn headers(call: CallId, metadata: Span) -> Entry {
    [kind::HEADERS.into(), call.0, 0, unspan(metadata), 0, 0, 0, 0]
}

fn message(call: CallId, payload: Payload, end: bool) -> Entry {
    let flags = payload_flags(Some(payload)) | end_flag(end);
    [
        First { kind: kind::MESSAGE, flags, code: compression_code(Some(payload)), route: 0 }.encode(),
        call.0,
        unspan(payload.span),
        0,
        0,
        0,
        0,
        0,
    ]
}

fn freed(entry: &Entry) -> [u32; FREED_MAX] {
    std::array::from_fn(|i| (entry[1 + i / 2] >> (32 * (i % 2))) as u32)
}

fn end_flag(end: bool) -> u8 {
    if end { flag::END } else { 0 }
}

fn wait_flag(wait_for_ready: bool) -> u8 {
    if wait_for_ready { flag::WAIT_FOR_READY } else { 0 }
}

fn payload_flags(payload: Option<Payload>) -> u8 {
    match payload.map(|p| p.encoding) {
        None => 0,
        Some(Encoding::Linear) => flag::PAYLOAD,
        Some(Encoding::Protobuf) => flag::PAYLOAD | flag::PROTOBUF,
    }
}

fn compression_code(payload: Option<Payload>) -> u16 {
    payload.map_or(0, |payload| payload.compression as u16)
}

fn payload_word(payload: Option<Payload>) -> u64 {
    payload.map_or(0, |p| unspan(p.span))
}

fn payload(entry: &Entry, flags: u8, compression: u16) -> Payload {
    let encoding = if flags & flag::PROTOBUF != 0 { Encoding::Protobuf } else { Encoding::Linear };
    Payload { span: span(entry[2]), encoding, compression: MessageCompression::from_number(compression) }
}

fn optional_payload(entry: &Entry, flags: u8, compression: u16) -> Option<Payload> {
    (flags & flag::PAYLOAD != 0).then(|| payload(entry, flags, compression))
}

fn span(word: u64) -> Span {
    Span { offset: word as u32, len: (word >> 32) as u32 }
}

fn unspan(span: Span) -> u64 {
    u64::from(span.offset) | u64::from(span.len) << 32
}

#[cfg(test)]
mod tests {
    //! Shows that every kind survives its entry, and that any 64 bytes decode to a value or a typed refusal.
    use super::*;
    use proptest::prelude::*;

    fn payload_of(len: u32) -> Option<Payload> {
        let compression = MessageCompression::Compressed;
        Some(Payload { compression, ..Payload::new(Span { offset: 64, len }, Encoding::Protobuf) })
    }

    fn call() -> Call {
        Call {
            route: RouteIndex(7),
            call: CallId(CallId::DELIVERED | 9),
            payload: payload_of(5),
            metadata: Span { offset: 128, len: 12 },
            end: true,
            wait_for_ready: true,
            deadline: Deadline::at(Instant(99)),
            entered: Instant(1),
            published: Instant(2),
            parent: CallId(3),
        }
    }

    fn finish() -> Finish {
        Finish {
            call: CallId(4),
            code: Code::Aborted,
            execution: Execution::Unknown,
            payload: None,
            metadata: Span::default(),
            taken: Instant(10),
            published: Instant(11),
            cpu_ns: 12,
            subtree: 13,
        }
    }

    #[test]
    fn compression_is_where_older_versions_do_not_look() {
        let plain = Payload { compression: MessageCompression::Plain, ..payload_of(5).unwrap() };
        let answer = Submission::Finish(Finish { payload: Some(plain), ..finish() });
        assert_eq!(Submission::decode(&answer.encode()), Ok(answer));
        let mut entries =
            [answer, Submission::Call(Call { payload: Some(plain), ..call() })].map(|s| s.encode());
        entries[0][7] &= u64::from(u32::MAX);
        entries[1][0] &= !(0xffff << 16);
        for entry in entries {
            let (Submission::Finish(Finish { payload, .. }) | Submission::Call(Call { payload, .. })) =
                Submission::decode(&entry).unwrap()
            else {
                panic!("another kind")
            };
            assert_eq!(payload.unwrap(), Payload::new(plain.span, plain.encoding));
        }
        assert_eq!(MessageCompression::from_number(77), MessageCompression::Unsaid, "a later version's");
    }

    #[test]
    fn submissions_round_trip() {
        let id = CallId(1);
        let message = Payload::new(Span { offset: 8, len: 9 }, Encoding::Linear);
        for submission in [
            Submission::Call(call()),
            Submission::Message { call: id, payload: message, end: true, a1: Instant(4) },
            Submission::HalfClose { call: id },
            Submission::Cancel { call: id },
            Submission::Headers { call: id, metadata: message.span },
            Submission::Finish(finish()),
            Submission::Release { call: id, block: message.span, metadata: message.span, a18: Instant(5) },
            Submission::Drain { answer: false },
            Submission::Drain { answer: true },
        ] {
            assert_eq!(Submission::decode(&submission.encode()), Ok(submission));
        }
    }

    /// What is paid for is what is there, and what nobody's answer is its caller does not pay.
    #[test]
    fn bytes_are_those_of_messages_that_are_there() {
        let mut claims = Submission::Finish(finish()).encode();
        assert_eq!(message_bytes(&claims), 0);
        claims[2] = u64::MAX;
        assert_eq!(message_bytes(&claims), 0, "it says that it has no message");
        let made = Submission::Finish(Finish { payload: payload_of(5), ..finish() }).encode();
        assert_eq!((message_bytes(&made), is_answer(&made)), (5, true));
        let metadata = Span { offset: 0, len: 7 };
        let made = Finish { payload: payload_of(5), metadata, ..finish() };
        assert_eq!(carried_bytes(&Submission::Finish(made).encode()), 12);
        let call = CallId(1);
        assert_eq!(
            carried_bytes(&Submission::Call(Call { payload: None, metadata, ..self::call() }).encode()),
            7
        );
        assert_eq!(carried_bytes(&Submission::Headers { call, metadata }.encode()), 7);
        let release = Submission::Release { call, block: metadata, metadata, a18: Instant(0) };
        assert_eq!(carried_bytes(&release.encode()), 0, "that was paid when it came");
        for of_callers in [Submission::HalfClose { call: CallId(1) }, Submission::Cancel { call: CallId(1) }]
        {
            let mut entry = of_callers.encode();
            entry[2] = u64::MAX;
            assert_eq!((message_bytes(&entry), is_answer(&entry)), (0, false));
        }
    }

    #[test]
    fn completions_round_trip() {
        let id = CallId(1);
        let message = Payload::new(Span { offset: 8, len: 0 }, Encoding::Linear);
        for completion in [
            Completion::Call(call()),
            Completion::Message { call: id, payload: message, end: false },
            Completion::HalfClose { call: id },
            Completion::Cancelled { call: id, code: Code::DeadlineExceeded },
            Completion::Headers { call: id, metadata: message.span },
            Completion::Finish(finish()),
            Completion::Freed { offsets: std::array::from_fn(|i| i as u32 * 64) },
            Completion::Credit { call: id, bytes: 70_000 },
            Completion::GoAway,
            Completion::Drained,
        ] {
            assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
        }
    }

    proptest! {
        #[test]
        fn any_entry_decodes_or_is_refused(entry in any::<[u64; 8]>(), low in 0u64..16) {
            let mut entry = entry;
            let _ = Submission::decode(&entry);
            entry[0] = low;
            let _ = Submission::decode(&entry);
            let _ = Completion::decode(&entry);
        }
    }
}
