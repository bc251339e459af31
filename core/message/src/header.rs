//! The 24 bytes in front of a message in memory.

use crate::bytes::{read_u32, read_u64};

/// Size of the header, and so the offset of the root block.
pub const HEADER_BYTES: usize = 24;

/// The longest extent: offsets stay positive in an `i32` for languages without `u32`.
pub const EXTENT_BYTES_MAX: usize = 1 << 31;

/// Version of the format.
pub const FORMAT_VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"TL";

/// What a header says.
///
/// ```text
/// 0 'T' 'L'   2 u8 version = 1   3 u8 flags = 0   4 u32 total length   8 u32 root = 24   12 u32 zero
/// 16 u64 fingerprint
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the extent, header included.
    pub total_bytes: u32,
    /// Fingerprint of the root's type.
    pub fingerprint: u64,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("{0} bytes are no linear message: the header alone has {HEADER_BYTES}")]
    Short(usize),
    /// The first two bytes are not `TL`.
    #[error("the bytes do not begin with the linear message's magic")]
    Magic,
    /// A version other than [`FORMAT_VERSION`].
    #[error("linear message version {0} is not known here")]
    Version(u8),
    /// Flags, root offset or reserved bytes are not what version 1 demands.
    #[error("the header's {0} is not what version {FORMAT_VERSION} demands")]
    Reserved(&'static str),
}

impl Header {
    /// The header as bytes.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let [t, l] = MAGIC;
        let first = u32::from_le_bytes([t, l, FORMAT_VERSION, 0]);
        for (word, value) in bytes.chunks_exact_mut(4).zip([first, self.total_bytes, HEADER_BYTES as u32, 0])
        {
            word.copy_from_slice(&value.to_le_bytes());
        }
        if let Some(last) = bytes.last_chunk_mut::<8>() {
            *last = self.fingerprint.to_le_bytes();
        }
        bytes
    }

    /// Writes the header at the start of an extent; does nothing if there is no room.
    pub fn write(self, extent: &mut [u8]) {
        if let Some(start) = extent.first_chunk_mut::<HEADER_BYTES>() {
            *start = self.to_bytes();
        }
    }

    /// Reads a header that need not be trusted.
    ///
    /// # Errors
    /// [`HeaderError`] unless it is a version 1 header. Length and fingerprint are returned as they stand.
    pub fn read(extent: &[u8]) -> Result<Self, HeaderError> {
        let header: &[u8; HEADER_BYTES] = extent.first_chunk().ok_or(HeaderError::Short(extent.len()))?;
        let [t, l, version, flags, ..] = *header;
        match () {
            () if [t, l] != MAGIC => Err(HeaderError::Magic),
            () if version != FORMAT_VERSION => Err(HeaderError::Version(version)),
            () if flags != 0 => Err(HeaderError::Reserved("flags")),
            () if read_u32(header, 8) != HEADER_BYTES as u32 => Err(HeaderError::Reserved("root offset")),
            () if read_u32(header, 12) != 0 => Err(HeaderError::Reserved("reserved word")),
            () => Ok(Self { total_bytes: read_u32(header, 4), fingerprint: read_u64(header, 16) }),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows the byte layout, and that each byte version 1 fixes is held to it.
    use super::*;

    const HEADER: Header = Header { total_bytes: 0x0102_0304, fingerprint: 0x1122_3344_5566_7788 };

    #[test]
    fn layout() {
        let expected = [
            b'T', b'L', 1, 0, 4, 3, 2, 1, 24, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22,
            0x11,
        ];
        assert_eq!(HEADER.to_bytes(), expected);
        assert_eq!(Header::read(&expected), Ok(HEADER));
    }

    #[test]
    fn fixed_bytes_are_held() {
        for at in [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15] {
            let mut bytes = HEADER.to_bytes();
            bytes[at] ^= 0x40;
            assert!(Header::read(&bytes).is_err(), "byte {at}");
        }
        assert_eq!(Header::read(&HEADER.to_bytes()[..23]), Err(HeaderError::Short(23)));
    }
}
