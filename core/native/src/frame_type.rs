//! Frame types and flags (docs/native-protocol.md, "Frames").

use std::fmt;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum FrameType {
    /// First frame of both sides: versions, features, limits, name.
    Hello = 1,
    /// Opens a stream, perhaps with the first request message.
    Call = 2,
    /// A message of an open stream, in either direction.
    Message = 3,
    /// The call ended well, with a message.
    Result = 4,
    /// The call ended well, without a message.
    VoidResult = 5,
    /// The call ended otherwise.
    Error = 6,
    /// No more request messages.
    HalfClose = 7,
    /// The caller gives up.
    Cancel = 8,
    /// More bytes may be sent, on a stream or (stream 0) on the connection.
    Window = 9,
    /// Are you there?
    Ping = 10,
    /// Yes.
    Pong = 11,
    /// Names a method and the fingerprints of its types.
    Schema = 12,
    /// What the server has under that name.
    SchemaAck = 13,
    /// No new calls above this stream, please.
    GoAway = 14,
    /// Last frame: why the connection ends.
    Close = 15,
    /// The next part of a cut message.
    Segment = 16,
    /// Response metadata before the first response message.
    Headers = 17,
    /// Names who makes calls on the sender's host.
    Caller = 18,
}

/// What every MESSAGE costs its windows beside its bytes, so that a flood of empty messages is bounded too. Calls are
/// bounded by the limit on streams, outcomes by one per stream: they cost their bytes alone.
pub const MESSAGE_COST_BYTES: u32 = 64;

/// Flag bits. A type allows some of them ([`FrameType::flags_allowed`]); any other is a protocol error.
pub(crate) mod flag {
    /// The sender's side of the stream is complete with this frame's message.
    pub const END: u8 = 0x01;
    /// The body is protobuf; without it, a linear extent without its header.
    pub const PROTOBUF: u8 = 0x02;
    /// DEADLINE block: u64, remaining nanoseconds.
    pub const DEADLINE: u8 = 0x04;
    /// On CALL: the caller asks for the server's stamps (no block). On an outcome: STAMPS block, 64 bytes.
    pub const STAMPS: u8 = 0x08;
    /// METADATA block: u32 length, then the encoded pairs.
    pub const METADATA: u8 = 0x10;
    /// TOTAL block: u32, length of a message of which this frame carries only the beginning.
    pub const TOTAL: u8 = 0x20;
    /// On CALL: the body is the first request message; without it there is none yet.
    pub const MESSAGE: u8 = 0x40;
    /// CHECKSUM block: u32, CRC-32C. On every type but HELLO, and only if both sides offered it.
    pub const CHECKSUM: u8 = 0x80;
}

impl FrameType {
    /// Every type, by number.
    pub const ALL: [Self; 18] = [
        Self::Hello,
        Self::Call,
        Self::Message,
        Self::Result,
        Self::VoidResult,
        Self::Error,
        Self::HalfClose,
        Self::Cancel,
        Self::Window,
        Self::Ping,
        Self::Pong,
        Self::Schema,
        Self::SchemaAck,
        Self::GoAway,
        Self::Close,
        Self::Segment,
        Self::Headers,
        Self::Caller,
    ];

    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The flags version 1 allows on this type.
    pub fn flags_allowed(self) -> u8 {
        use flag::{CHECKSUM, DEADLINE, END, MESSAGE, METADATA, PROTOBUF, STAMPS, TOTAL};
        let own = match self {
            Self::Hello => return 0,
            Self::Call => END | PROTOBUF | DEADLINE | STAMPS | METADATA | TOTAL | MESSAGE,
            Self::Message => END | PROTOBUF | TOTAL,
            Self::Result => PROTOBUF | STAMPS | METADATA | TOTAL,
            Self::VoidResult | Self::Error => STAMPS | METADATA,
            Self::Headers => METADATA,
            _ => 0,
        };
        own | CHECKSUM
    }

    /// Whether the body is (a part of) a message, under flow control.
    pub(crate) fn carries_message(self) -> bool {
        matches!(self, Self::Call | Self::Message | Self::Result | Self::Segment)
    }

    /// What a frame with a message costs its windows beside the bytes in it.
    pub(crate) fn cost_bytes(self) -> u32 {
        if self == Self::Message { MESSAGE_COST_BYTES } else { 0 }
    }

    /// Whether the frame belongs to a stream; the others are the connection's (WINDOW may be either).
    pub(crate) fn is_of_stream(self) -> bool {
        use FrameType::{Call, Cancel, Error, HalfClose, Headers, Message, Result, Segment, VoidResult};
        matches!(self, Call | Message | Result | VoidResult | Error | HalfClose | Cancel | Segment | Headers)
    }

    /// The name in documents and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hello => "HELLO",
            Self::Call => "CALL",
            Self::Message => "MESSAGE",
            Self::Result => "RESULT",
            Self::VoidResult => "VOID-RESULT",
            Self::Error => "ERROR",
            Self::HalfClose => "HALF-CLOSE",
            Self::Cancel => "CANCEL",
            Self::Window => "WINDOW",
            Self::Ping => "PING",
            Self::Pong => "PONG",
            Self::Schema => "SCHEMA",
            Self::SchemaAck => "SCHEMA-ACK",
            Self::GoAway => "GO-AWAY",
            Self::Close => "CLOSE",
            Self::Segment => "SEGMENT",
            Self::Headers => "HEADERS",
            Self::Caller => "CALLER",
        }
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    //! Shows that numbers and types correspond.
    use super::*;

    #[test]
    fn every_type_has_its_number() {
        for (index, frame) in FrameType::ALL.into_iter().enumerate() {
            assert_eq!(frame as usize, index + 1);
            assert_eq!(FrameType::from_number(frame as u8), Some(frame));
        }
        assert_eq!(FrameType::from_number(0), None);
        assert_eq!(FrameType::from_number(19), None);
    }
}
