//! What a peer can do wrong, and what a command can be refused for.

use crate::FrameType;
use thiserror::Error;

/// Why a connection had to end. The stream of bytes is unusable afterwards; a CLOSE frame saying this is queued.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A frame does not begin with the preamble: framing is lost, or the peer speaks something else.
    #[error(
        "preamble is {found:#010x}, not 0x314b5254 (\"TRK1\"): framing is lost or the peer speaks another protocol"
    )]
    Preamble {
        /// What stood there.
        found: u32,
    },
    /// A type this version does not know.
    #[error("frame type is {number}: not one of version 1")]
    FrameType {
        /// What stood there.
        number: u8,
    },
    /// A flag the type does not allow.
    #[error("{frame} frame: flags {flags:#04x} are set, only {allowed:#04x} are allowed")]
    Flags {
        /// The frame at fault.
        frame: FrameType,
        /// Its flags.
        flags: u8,
        /// What could be set.
        allowed: u8,
    },
    /// A field with a value that cannot be.
    #[error("{frame} frame on stream {stream}: {field} is {value}, must be {rule}")]
    Field {
        /// The frame at fault.
        frame: FrameType,
        /// Its stream.
        stream: u32,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it had to be.
        rule: &'static str,
    },
    /// A field above the limit this side announced.
    #[error("{frame} frame on stream {stream}: {field} is {value}, limit {limit}")]
    Limit {
        /// The frame at fault.
        frame: FrameType,
        /// Its stream.
        stream: u32,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// A frame that may not come on this stream now.
    #[error("{frame} frame on stream {stream}: {why}")]
    OutOfPlace {
        /// The frame at fault.
        frame: FrameType,
        /// Its stream.
        stream: u32,
        /// Why not.
        why: &'static str,
    },
    /// The two sides share no version.
    #[error("peer speaks versions {peer_min} to {peer_max}, this side {own_min} to {own_max}")]
    Version {
        /// Lowest the peer speaks.
        peer_min: u16,
        /// Highest the peer speaks.
        peer_max: u16,
        /// Lowest spoken here.
        own_min: u16,
        /// Highest spoken here.
        own_max: u16,
    },
    /// No complete HELLO in time.
    #[error("no HELLO within {after_ns} ns")]
    HelloTimeout {
        /// The limit.
        after_ns: u64,
    },
    /// Nothing came for too long, not even the answer to a ping: the connection is half open.
    #[error("peer silent for {after_ns} ns after a ping")]
    PeerSilent {
        /// The limit.
        after_ns: u64,
    },
    /// Calls were still open when the drain time was over.
    #[error("streams still open {after_ns} ns after GO-AWAY")]
    DrainTimeout {
        /// The limit.
        after_ns: u64,
    },
    /// The peer makes us answer and does not read the answers.
    #[error("{queued_bytes} bytes wait for a peer that does not read, limit {limit}")]
    PeerNotReading {
        /// Bytes queued.
        queued_bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A frame's checksum does not match its bytes.
    #[error("{frame} frame on stream {stream}: CRC-32C is {found:#010x}, its bytes give {computed:#010x}")]
    Checksum {
        /// The frame at fault.
        frame: FrameType,
        /// Its stream.
        stream: u32,
        /// What the frame says.
        found: u32,
        /// What its bytes say.
        computed: u32,
    },
    /// The peer said CLOSE, or this side did.
    #[error("connection closed")]
    Closed,
}

impl ProtocolError {
    /// Whether bytes were changed on their way, by a checksum, and nobody is to blame but the way.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Checksum { .. })
    }
}

/// The state that was handed over contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the state of a connection is unsound: {0}")]
pub struct Unsound(pub &'static str);

/// Why a command was not taken. Nothing was queued; a body stays with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The peer's HELLO is not here yet. [`crate::Event::Established`] says when.
    #[error("hello is not complete")]
    NotEstablished,
    /// One side said GO-AWAY or CLOSE: no new calls here.
    #[error("connection is draining")]
    Draining,
    /// The stream is gone: ended, cancelled, or never was.
    #[error("no such stream")]
    NoStream,
    /// The stream's state does not allow it: this side has ended, or it is the other side's to say.
    #[error("stream does not allow this now")]
    OutOfPlace,
    /// The peer has begun to say how the call ended: it wants nothing more of the request.
    #[error("the call is being answered already")]
    Answered,
    /// The peer takes no more streams at once. Wait for one to end.
    #[error("peer's limit of {limit} concurrent streams reached")]
    Streams {
        /// The peer's limit.
        limit: u32,
    },
    /// The connection's send queue is full. [`crate::Notice::Writable`] says when there is room.
    #[error("send queue of the connection is full, limit {limit} bytes")]
    QueueFull {
        /// The limit.
        limit: u64,
    },
    /// The stream's send queue is full. [`crate::Notice::StreamWritable`] says when there is room.
    #[error("send queue of the stream is full, limit {limit} bytes")]
    StreamQueueFull {
        /// The limit.
        limit: u64,
    },
    /// The message is longer than the peer takes.
    #[error("message exceeds the peer's limit of {limit} bytes")]
    MessageTooLarge {
        /// The peer's limit.
        limit: u32,
    },
    /// The metadata is longer than the peer takes.
    #[error("metadata exceeds the peer's limit of {limit} bytes")]
    MetadataTooLarge {
        /// The peer's limit.
        limit: u32,
    },
    /// The method index was not announced by [`crate::Connection::announce_schema`].
    #[error("method was not announced")]
    UnknownMethod,
    /// The peer takes no more methods on this connection.
    #[error("peer's limit of {limit} methods reached")]
    Methods {
        /// The peer's limit.
        limit: u32,
    },
    /// The method's path is empty or too long.
    #[error("method path must have 1 to {limit} bytes")]
    PathLength {
        /// The longest.
        limit: u32,
    },
    /// A linear body where the ends have not agreed on the type's fingerprint.
    #[error("the ends have not agreed on this type's fingerprint: send protobuf")]
    NotAgreed,
    /// Checksums were negotiated and the body is not ours to read: send it as [`crate::Body::Inline`] or `Owned`.
    #[error("checksums need a body that cannot change")]
    SharedBody,
}
