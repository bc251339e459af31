//! What a connection tells its owner.

use trunkline_call::{Code, Encoding, Execution, SERVER_TRAILER_BYTES, VouchedCaller};

/// A stream: one call on one connection. Odd ids were opened by the initiator, even ones by the acceptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct StreamId(pub u32);

/// A method announced on this connection; each direction has its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct MethodIndex(pub u16);

/// Somebody who makes calls, as named on this connection; each direction has its own numbers, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct CallerNumber(pub u16);

/// The server's stamps as they travel ([`trunkline_call::ServerStamps::encode`]).
pub type Trailer = [u8; SERVER_TRAILER_BYTES];

/// Something the peer said. Borrows from the read buffer, not from the connection: commands may be given while it is
/// held.
///
/// `tag` is the owner's own name for the stream, given to `open_call` or `set_tag`; zero before that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The peer's HELLO is here ([`crate::Connection::peer`]): calls may be opened.
    Established,
    /// The peer opens a call. Unless `message` is cut, it is wholly here.
    Call(IncomingCall<'a>),
    /// A message of an open stream, or its beginning.
    Message { stream: StreamId, tag: u64, message: Incoming<'a>, end: bool },
    /// Response metadata, before any response message.
    Headers { stream: StreamId, tag: u64, metadata: &'a [u8] },
    /// The call ended well. The stream is gone, or will be with the last [`Event::Chunk`] of a cut message.
    Result {
        stream: StreamId,
        tag: u64,
        message: Option<Incoming<'a>>,
        metadata: &'a [u8],
        trailer: Option<&'a Trailer>,
    },
    /// The call ended otherwise. The stream is gone.
    Error {
        stream: StreamId,
        tag: u64,
        code: Code,
        execution: Execution,
        metadata: &'a [u8],
        trailer: Option<&'a Trailer>,
    },
    /// No more request messages.
    HalfClose { stream: StreamId, tag: u64 },
    /// The caller gave up. The stream is gone.
    Cancelled { stream: StreamId, tag: u64, code: Code },
    /// Bytes of a message that began as [`Arriving::Cut`], at `offset` in it; with `last`, it is complete. Empty when
    /// the host has read them into place ([`crate::Connection::placed`]).
    Chunk { stream: StreamId, tag: u64, offset: u32, bytes: &'a [u8], last: bool },
    /// The peer names a method it will call. Answer with `answer_schema`.
    Schema { method: MethodIndex, path: &'a str, request_fingerprint: u64, response_fingerprint: u64 },
    /// What the peer has for a method announced here. May come again when it changes there.
    SchemaAnswer { method: MethodIndex, found: bool, request_fingerprint: u64, response_fingerprint: u64 },
    /// The peer names somebody who makes calls on its host, instead of whoever had this number before.
    Caller { number: CallerNumber, caller: VouchedCaller },
    /// The answer to a `ping`, or to a question of the keep-alive.
    Pong { payload: u64 },
    /// The peer would rather have new calls on another connection. It takes them here as before.
    Redial,
    /// The peer takes no new calls. Those it did not take follow as [`Notice::Ended`].
    GoAway { code: Code },
    /// The peer ends the connection. Nothing follows but [`crate::ProtocolError::Closed`]; call `lost`.
    Closed { code: Code, why: &'a str },
}

/// A call a peer opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingCall<'a> {
    /// The new stream.
    pub stream: StreamId,
    /// Which method, of those the peer announced.
    pub method: MethodIndex,
    /// Who makes it, of those the peer has named; `None` if it does not say.
    pub caller: Option<CallerNumber>,
    /// Time left when the frame was written, in nanoseconds.
    pub deadline_remaining_ns: Option<u64>,
    /// Whether the caller wants the server's stamps with the outcome.
    pub stamps_wanted: bool,
    /// Encoded metadata; empty if there is none.
    pub metadata: &'a [u8],
    /// The first request message.
    pub message: Option<Incoming<'a>>,
    /// Whether it is the last one.
    pub end: bool,
}

/// A message a peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// How it is written.
    pub encoding: Encoding,
    /// The bytes, or that they will come.
    pub body: Arriving<'a>,
}

/// How a message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// In [`Event::Chunk`]s, `total` bytes together. The number is the peer's claim, within the limit this side
    /// announced: refuse the call if there is no room, and the connection skips what still comes.
    Cut {
        /// Length of the message in bytes.
        total: u32,
    },
}

/// Something that happened to what was sent. Taken with [`crate::Connection::poll_notice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Notice {
    /// A [`crate::Body::Shared`] is no longer needed: wholly handed to the socket, or given up. Exactly once for each.
    BodyDone { token: u64 },
    /// After [`crate::Refused::QueueFull`]: there is room again.
    Writable,
    /// After [`crate::Refused::StreamQueueFull`]: there is room again.
    StreamWritable { stream: StreamId, tag: u64 },
    /// A call opened here ended without an answer: the peer left before it took it, or the connection was lost.
    Ended { stream: StreamId, tag: u64, execution: Execution },
    /// A call opened by the peer has nobody to answer to: the connection was lost.
    Orphaned { stream: StreamId, tag: u64 },
}
