//! The 16-byte header every frame begins with, frame types and flags (docs/native-protocol.md, "Frames").

use crate::ProtocolError;
use std::fmt;

/// First four bytes of every frame, `TRK1` when read as bytes: catches loss of framing and foreign protocols.
pub const PREAMBLE: u32 = u32::from_le_bytes(*b"TRK1");

/// Size of the fixed header.
pub const HEADER_BYTES: usize = 16;

/// Size of the DEADLINE block.
pub(crate) const DEADLINE_BYTES: usize = 8;

/// Size of the TOTAL block, and of the length before the METADATA block.
pub(crate) const U32_BYTES: usize = 4;

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
}

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

/// The fixed header.
///
/// `0 u32 preamble, 4 u8 type, 5 u8 flags, 6 u16 code, 8 u32 stream, 12 u32 length`, little endian. `code` is a method
/// index or a status, by type; `length` counts everything behind the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// What the frame says.
    pub frame: FrameType,
    /// Which blocks follow, and what is special.
    pub flags: u8,
    /// Method index, status code or reason, by type; else zero.
    pub code: u16,
    /// Which stream; zero is the connection.
    pub stream: u32,
    /// Bytes behind the header: blocks and body.
    pub length: u32,
}

impl Header {
    /// Whether less than a header can be the beginning of one: a peer that speaks something else may say no more than a
    /// few bytes (an empty SETTINGS frame of HTTP/2 has nine) and wait.
    ///
    /// # Errors
    /// [`ProtocolError::Preamble`] of what is there, the rest taken for zeros.
    pub(crate) fn check_beginning(bytes: &[u8]) -> Result<(), ProtocolError> {
        let preamble = PREAMBLE.to_le_bytes();
        let len = bytes.len().min(preamble.len());
        if bytes[..len] == preamble[..len] {
            return Ok(());
        }
        let mut found = [0; 4];
        found[..len].copy_from_slice(&bytes[..len]);
        Err(ProtocolError::Preamble { found: u32::from_le_bytes(found) })
    }

    /// Reads a header a peer sent.
    ///
    /// # Errors
    /// A [`ProtocolError`] for a wrong preamble, an unknown type, or a flag the type does not allow.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, ProtocolError> {
        let u32_at = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        let preamble = u32_at(0);
        if preamble != PREAMBLE {
            return Err(ProtocolError::Preamble { found: preamble });
        }
        let frame = FrameType::from_number(bytes[4]).ok_or(ProtocolError::FrameType { number: bytes[4] })?;
        let flags = bytes[5];
        if flags & !frame.flags_allowed() != 0 {
            return Err(ProtocolError::Flags { frame, flags, allowed: frame.flags_allowed() });
        }
        let code = u16::from_le_bytes([bytes[6], bytes[7]]);
        Ok(Self { frame, flags, code, stream: u32_at(8), length: u32_at(12) })
    }

    /// Writes the header.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&PREAMBLE.to_le_bytes());
        out[4] = self.frame as u8;
        out[5] = self.flags;
        out[6..8].copy_from_slice(&self.code.to_le_bytes());
        out[8..12].copy_from_slice(&self.stream.to_le_bytes());
        out[12..16].copy_from_slice(&self.length.to_le_bytes());
        out
    }

    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl FrameType {
    /// Every type, by number.
    pub const ALL: [Self; 17] = [
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
    //! Shows that numbers, types and headers correspond, and that foreign bytes are named for what they are.
    use super::*;

    #[test]
    fn every_type_has_its_number() {
        for (index, frame) in FrameType::ALL.into_iter().enumerate() {
            assert_eq!(frame as usize, index + 1);
            assert_eq!(FrameType::from_number(frame as u8), Some(frame));
        }
        assert_eq!(FrameType::from_number(0), None);
        assert_eq!(FrameType::from_number(18), None);
    }

    #[test]
    fn header_round_trip() {
        let header = Header { frame: FrameType::Call, flags: 0x4d, code: 7, stream: 9, length: 1 << 20 };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        assert_eq!(&header.encode()[..4], b"TRK1");
    }

    #[test]
    fn foreign_bytes_are_refused_by_name() {
        assert!(matches!(Header::decode(b"GET / HTTP/1.1\r\n"), Err(ProtocolError::Preamble { .. })));
        for (bytes, sound) in [
            (&b""[..], true),
            (b"T", true),
            (b"TRK1\x01", true),
            (b"P", false),
            (b"TRK2", false),
            (&[0; 9], false),
        ] {
            assert_eq!(Header::check_beginning(bytes).is_ok(), sound, "{bytes:?}");
        }
        let mut bytes = Header { frame: FrameType::Ping, flags: 0, code: 0, stream: 0, length: 8 }.encode();
        bytes[5] = flag::END;
        let error = Header::decode(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "PING frame: flags 0x01 are set, only 0x80 are allowed");
        bytes[4] = 99;
        assert_eq!(Header::decode(&bytes), Err(ProtocolError::FrameType { number: 99 }));
    }
}
