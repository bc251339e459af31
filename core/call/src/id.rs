//! What a call is known by.

use std::fmt;

/// A call within one session: chosen by the application for calls it makes, by the daemon for calls it delivers.
///
/// The top bit tells the two apart, so neither side can collide with the other and a stale or forged id from the
/// wrong direction is recognised without a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CallId(pub u64);

impl CallId {
    /// Set on ids the daemon chose (calls delivered to a serving application).
    pub const DELIVERED: u64 = 1 << 63;

    /// Whether the daemon chose this id.
    pub fn is_delivered(self) -> bool {
        self.0 & Self::DELIVERED != 0
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.is_delivered() { "delivered" } else { "made" };
        write!(f, "{side}:{}", self.0 & !Self::DELIVERED)
    }
}

/// A (target, method) pair agreed at bind time, so that entries carry a number instead of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RouteIndex(pub u32);

/// How the bytes of a message are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Encoding {
    /// A linear extent (docs/linear.md): checked and read in place.
    Linear = 0,
    /// Protobuf wire bytes.
    Protobuf = 1,
}

/// The four calling patterns of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pattern {
    /// One request, one response.
    Unary,
    /// Many requests, one response.
    ClientStreaming,
    /// One request, many responses.
    ServerStreaming,
    /// Many of both, in any order.
    Bidirectional,
}

impl Pattern {
    /// The pattern of a method that streams on the named sides.
    pub fn of(client_streaming: bool, server_streaming: bool) -> Self {
        match (client_streaming, server_streaming) {
            (false, false) => Self::Unary,
            (true, false) => Self::ClientStreaming,
            (false, true) => Self::ServerStreaming,
            (true, true) => Self::Bidirectional,
        }
    }

    /// Whether the client may send more than one message.
    pub fn client_streams(self) -> bool {
        matches!(self, Self::ClientStreaming | Self::Bidirectional)
    }

    /// Whether the server may send more than one message.
    pub fn server_streams(self) -> bool {
        matches!(self, Self::ServerStreaming | Self::Bidirectional)
    }
}
