//! What a connection is told at birth, and the limits it announces.

use std::ops::RangeInclusive;
use trunkline_call::Metadata;

/// Which side of the connection this is: it decides the parity of stream ids and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Side {
    /// Connected: opens odd streams.
    Initiator,
    /// Accepted: opens even streams.
    Acceptor,
}

/// Settings of one connection, usually shared by many.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of this host in the peer's logs and reports; at most [`Config::NODE_NAME_BYTES_MAX`] are sent.
    pub node_name: String,
    /// Hash of the boot id: two daemons with equal ids read the same clock.
    pub clock_id: u64,
    /// What this side accepts. Announced in HELLO and held against the peer.
    pub limits: Limits,
    /// Features this side offers; those both offer are used.
    pub features: Features,
    /// Longest part of a message in one frame this side sends, if the peer takes as much. A small call waits for at
    /// most one of these; 64 KiB is 50 µs at 10 Gbit/s. A lane that carries no small calls may use more.
    pub segment_bytes: u32,
    /// Messages above this size are received in place ([`crate::Connection::wanted`]); smaller ones arrive whole,
    /// borrowed from the read buffer. At most [`Config::PLACEMENT_BYTES_MAX`].
    pub placement_bytes_min: u32,
    /// Bytes one connection may have waiting for its socket before commands that carry a message are refused.
    pub queue_bytes_max: u64,
    /// Message bytes one stream may have waiting for its window before it is refused more. One message of any size is
    /// always taken when nothing waits.
    pub stream_queue_bytes_max: u64,
    /// A connection without a complete HELLO after this time is closed.
    pub hello_timeout_ns: u64,
    /// After this time without a byte from the peer, ask whether it is there. Zero: never.
    pub keepalive_ns: u64,
    /// How long to wait for any byte after asking. gRPC's default is 20 s.
    pub keepalive_timeout_ns: u64,
    /// How long calls may go on after GO-AWAY.
    pub drain_timeout_ns: u64,
}

/// What one side accepts, as announced in HELLO. Values outside the format's bounds are brought within them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Message bytes a new stream may have under way in one direction before the receiver grants more.
    pub stream_window_bytes: u32,
    /// Message bytes all streams together may have under way; given back as soon as bytes are handed up.
    pub connection_window_bytes: u32,
    /// Longest part of a message in one frame.
    pub segment_bytes_max: u32,
    /// Longest message.
    pub message_bytes_max: u32,
    /// Longest metadata block.
    pub metadata_bytes_max: u32,
    /// Streams the other side may have open at once.
    pub streams_max: u32,
    /// Methods the other side may announce. An index is 16 bits.
    pub methods_max: u32,
}

/// Optional parts of the protocol, one bit each. Only bits both sides offer are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Features(pub u64);

impl Config {
    /// Longest node name.
    pub const NODE_NAME_BYTES_MAX: usize = 255;
    /// Largest [`Config::placement_bytes_min`]: header, blocks and body of a message that arrives whole must fit in
    /// [`crate::INPUT_BYTES_MIN`] beside the longest metadata.
    pub const PLACEMENT_BYTES_MAX: u32 = 24 << 10;
}

impl Limits {
    /// Smallest windows and segments a peer may announce. Below this, frames would be mostly headers, and a sender that
    /// avoids tiny segments could wait for a grant that never comes.
    pub const WINDOW_BYTES_MIN: u32 = 64 << 10;
    /// Largest window. Windows are kept below 2^31 so that additions never wrap.
    pub const WINDOW_BYTES_MAX: u32 = i32::MAX as u32;
    /// Longest message the format allows.
    pub const MESSAGE_BYTES_MAX: u32 = i32::MAX as u32;
    /// Smallest and largest [`Limits::segment_bytes_max`].
    pub const SEGMENT_BYTES: RangeInclusive<u32> = 1024..=1 << 24;
    /// Most streams at once.
    pub const STREAMS_MAX: u32 = 1 << 16;
    /// Most methods.
    pub const METHODS_MAX: u32 = 1 << 16;
}

impl Limits {
    /// The same limits, within what the format allows.
    pub(crate) fn within_bounds(self) -> Self {
        let window = Self::WINDOW_BYTES_MIN..=Self::WINDOW_BYTES_MAX;
        let clamp = |value: u32, range: &RangeInclusive<u32>| value.clamp(*range.start(), *range.end());
        Self {
            stream_window_bytes: clamp(self.stream_window_bytes, &window),
            connection_window_bytes: clamp(self.connection_window_bytes, &window),
            segment_bytes_max: clamp(self.segment_bytes_max, &Self::SEGMENT_BYTES),
            message_bytes_max: self.message_bytes_max.min(Self::MESSAGE_BYTES_MAX),
            metadata_bytes_max: self.metadata_bytes_max.min(Metadata::BYTES_MAX as u32),
            streams_max: self.streams_max.min(Self::STREAMS_MAX),
            methods_max: self.methods_max.min(Self::METHODS_MAX),
        }
    }
}

impl Features {
    /// Every frame behind HELLO carries a CRC-32C.
    pub const CHECKSUM: Self = Self(1);
    /// Every CALL names who makes it ([`crate::Connection::announce_caller`]).
    pub const CALLERS: Self = Self(2);

    /// Whether all of `other`'s bits are here.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These, and the bits of another.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These, but for the bits of another.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The bits both have.
    pub fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Default for Config {
    fn default() -> Self {
        const S: u64 = 1_000_000_000;
        Self {
            node_name: String::new(),
            clock_id: 0,
            limits: Limits::default(),
            features: Features::default(),
            segment_bytes: 64 << 10,
            placement_bytes_min: 16 << 10,
            queue_bytes_max: 64 << 20,
            stream_queue_bytes_max: 1 << 20,
            hello_timeout_ns: 10 * S,
            keepalive_ns: 30 * S,
            keepalive_timeout_ns: 20 * S,
            drain_timeout_ns: 30 * S,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 64 << 20,
            segment_bytes_max: 1 << 20,
            message_bytes_max: Self::MESSAGE_BYTES_MAX,
            metadata_bytes_max: Metadata::BYTES_MAX as u32,
            streams_max: 4096,
            methods_max: 4096,
        }
    }
}
