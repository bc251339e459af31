//! What an HTTP/2 connection says and is told.

use bytes::Bytes;
use http::{HeaderMap, request, response};
use std::fmt;
use trunkline_call::Instant;

/// Names a stream of one connection for its whole life. The side that opens the stream chooses it: the connection for
/// streams the peer opens, the engine for those it opens itself (the top bit keeps them apart).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct StreamTag(pub u64);

/// An HTTP/2 error code (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(pub u32);

/// What happened on a connection. Everything of one stream comes in order; after `Trailers`, `Reset`, or an `end`
/// nothing more comes in that direction of the stream.
#[derive(Debug)]
pub enum Event {
    /// The connection is up: as a client, streams may be opened.
    Ready {
        /// Streams the peer takes at once, as far as known.
        streams_max: u32,
    },
    /// The peer opened a stream (server role).
    Request {
        /// Its name from now on.
        stream: StreamTag,
        /// Method, path, headers.
        head: Box<request::Parts>,
        /// No body follows.
        end: bool,
    },
    /// The peer answered (client role). Interim (1xx) answers are not told.
    Response {
        /// On which stream.
        stream: StreamTag,
        /// Status and headers.
        head: Box<response::Parts>,
        /// No body follows: in gRPC, a trailers-only answer.
        end: bool,
    },
    /// Body bytes. They count against the windows until [`Command::Release`].
    Data {
        /// On which stream.
        stream: StreamTag,
        /// At most one DATA frame's worth; empty when only `end` is told.
        bytes: Bytes,
        /// The last of the body.
        end: bool,
    },
    /// The end of the body, with trailers.
    Trailers {
        /// On which stream.
        stream: StreamTag,
        /// The trailers.
        trailers: HeaderMap,
    },
    /// The stream ended early, reset by the peer or by the connection's own rules.
    Reset {
        /// Which stream.
        stream: StreamTag,
        /// Why.
        reason: Reason,
        /// By whom.
        by: ResetBy,
    },
    /// Bytes given by [`Command::Data`] are at the socket: so many fewer are queued. Nothing is said of bytes that are
    /// dropped: those of a stream that was reset, by either side, or cut off, and of one whose answer has ended (client
    /// role).
    Sent {
        /// On which stream.
        stream: StreamTag,
        /// Bytes that left.
        bytes: usize,
    },
    /// A request is at the socket (client role): its head, and its first message if that was given before the head had
    /// left. Each once; nothing is said of one that never gets so far.
    Written {
        /// On which stream.
        stream: StreamTag,
        /// When the write began that took its last byte.
        at: Instant,
    },
    /// No new streams are to be opened: the peer takes none, or has been asked to bear as many resets as it may. Those
    /// at or below its last stream go on; every other one is told by `Reset` with REFUSED_STREAM.
    GoAway {
        /// NO_ERROR when the peer is merely leaving.
        reason: Reason,
        /// Its debug data, for a person.
        debug: Bytes,
    },
    /// The number of streams the peer takes at once has changed.
    StreamsMax {
        /// The new number.
        streams_max: u32,
    },
}

/// Who has ended a stream early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetBy {
    /// The peer, or what it has said of streams it does not answer.
    Peer,
    /// This side: what came on it breaks the rules of HTTP/2, or it could not be opened.
    Us,
    /// This side: what came on it is above what this key sets.
    Limit(&'static str),
}

/// What a connection is to do. Commands for a stream that is over are ignored, and so is [`Command::Data`] on one whose
/// answer has ended (client role).
#[derive(Debug)]
pub enum Command {
    /// Open a stream (client role).
    Request {
        /// Its name, chosen by the engine with the top bit set.
        stream: StreamTag,
        /// Method, path, headers.
        head: Box<request::Parts>,
        /// No body follows.
        end: bool,
    },
    /// Answer (server role).
    Response {
        /// Which stream.
        stream: StreamTag,
        /// Status and headers.
        head: Box<response::Parts>,
        /// No body follows.
        end: bool,
    },
    /// Send body bytes; queued within the peer's windows, and told by [`Event::Sent`] as they leave.
    Data {
        /// On which stream.
        stream: StreamTag,
        /// The bytes.
        bytes: Bytes,
        /// The last of the body.
        end: bool,
    },
    /// End the body with trailers, behind the data queued before.
    Trailers {
        /// On which stream.
        stream: StreamTag,
        /// The trailers.
        trailers: HeaderMap,
    },
    /// End the body with trailers now; queued data is dropped (server role, behind the head). Where some of it is on
    /// its way to a socket that takes nothing, the stream is reset (CANCEL), for nothing else drops that.
    CutOff {
        /// Which stream.
        stream: StreamTag,
        /// The trailers.
        trailers: HeaderMap,
    },
    /// End the stream at once; queued data is dropped.
    Reset {
        /// Which stream.
        stream: StreamTag,
        /// Why.
        reason: Reason,
    },
    /// Received bytes are dealt with: the peer may send as many more.
    Release {
        /// On which stream.
        stream: StreamTag,
        /// How many.
        bytes: usize,
    },
    /// Take no new streams from the peer, end when those in flight are over.
    GoAway,
    /// End now.
    Close {
        /// The GOAWAY's code.
        reason: Reason,
    },
}

impl StreamTag {
    /// Set in tags the engine chose.
    pub const OWN: u64 = 1 << 63;
}

impl Reason {
    /// Graceful.
    pub const NO_ERROR: Self = Self(0x0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// Our own fault.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// Windows were overrun.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// Not processed at all: safe to send again.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// Nobody waits for it any more.
    pub const CANCEL: Self = Self(0x8);
    /// The peer asks too much.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// TLS is not good enough.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0x0 => "NO_ERROR",
            0x1 => "PROTOCOL_ERROR",
            0x2 => "INTERNAL_ERROR",
            0x3 => "FLOW_CONTROL_ERROR",
            0x4 => "SETTINGS_TIMEOUT",
            0x5 => "STREAM_CLOSED",
            0x6 => "FRAME_SIZE_ERROR",
            0x7 => "REFUSED_STREAM",
            0x8 => "CANCEL",
            0x9 => "COMPRESSION_ERROR",
            0xa => "CONNECT_ERROR",
            0xb => "ENHANCE_YOUR_CALM",
            0xc => "INADEQUATE_SECURITY",
            0xd => "HTTP_1_1_REQUIRED",
            unknown => return write!(f, "error code {unknown:#x}"),
        })
    }
}
