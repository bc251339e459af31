//! The 16-byte header every frame begins with (docs/native-protocol.md, "Frames").

use crate::ProtocolError;
use crate::frame_type::FrameType;

/// First four bytes of every frame, `TRK1` when read as bytes: catches loss of framing and foreign protocols.
pub const PREAMBLE: u32 = u32::from_le_bytes(*b"TRK1");

/// Size of the fixed header.
pub const HEADER_BYTES: usize = 16;

/// Size of the DEADLINE block.
pub(crate) const DEADLINE_BYTES: usize = 8;

/// Size of the TOTAL block, and of the length before the METADATA block.
pub(crate) const U32_BYTES: usize = 4;

/// Windows beyond this are a peer's counting error. One full grant on top of one full window fits.
pub(crate) const WINDOW_SUM_MAX: u64 = 1 << 32;

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

/// A value above the limit this side announced.
pub(crate) fn check_limit(
    header: &Header,
    name: &'static str,
    value: u32,
    limit: u32,
) -> Result<(), ProtocolError> {
    if value <= limit {
        return Ok(());
    }
    let (value, limit) = (value.into(), limit.into());
    Err(ProtocolError::Limit { frame: header.frame, stream: header.stream, field: name, value, limit })
}

/// A field with a value that cannot be.
pub(crate) fn field(header: &Header, field: &'static str, value: u64, rule: &'static str) -> ProtocolError {
    ProtocolError::Field { frame: header.frame, stream: header.stream, field, value, rule }
}

/// A frame that cannot come now.
pub(crate) fn out_of_place(header: &Header, why: &'static str) -> ProtocolError {
    ProtocolError::OutOfPlace { frame: header.frame, stream: header.stream, why }
}

/// A window after a grant.
pub(crate) fn check_window(header: &Header, window: u64) -> Result<(), ProtocolError> {
    if window > WINDOW_SUM_MAX {
        return Err(field(header, "window after the grant", window, "at most 2^32"));
    }
    Ok(())
}

/// Reads fixed fields of a body whose length has been checked; past its end they are zero.
pub(crate) struct FixedFields<'a>(pub &'a [u8]);

impl FixedFields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((value, rest)) = self.0.split_first_chunk::<N>() else { return [0; N] };
        self.0 = rest;
        *value
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

#[cfg(test)]
mod tests {
    //! Shows that bytes and headers correspond, and that foreign bytes are named for what they are.
    use super::*;
    use crate::frame_type::flag;

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
