//! Little-endian words at byte offsets, out of range reading as zero and writing as nothing.
//!
//! Every access to an extent goes through here, so "never panics on any bytes" is argued once. An offset out of
//! range cannot happen in a verified message; in any other, a default is as good an answer as there is.

#[cfg(target_endian = "big")]
compile_error!("arrays of a linear message are read in place as little endian");

// Sums of two u32 are used as offsets.
const _: () = assert!(usize::BITS >= 64, "offsets are summed without overflow");

/// The `N` bytes at an offset. (An end that wrapped lies before its start, which `get` refuses; and a single range
/// is a single comparison.)
#[inline(always)]
pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..at.wrapping_add(N))?.first_chunk::<N>()
}

#[inline]
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    chunk(bytes, at).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

#[inline]
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    chunk(bytes, at).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// `{offset, length or count}` at an offset.
#[inline]
pub(crate) fn read_pair(bytes: &[u8], at: usize) -> (u32, u32) {
    let word = read_u64(bytes, at);
    (word as u32, (word >> 32) as u32)
}

/// `{offset, length or count}` as the word that is stored.
#[inline]
pub(crate) fn pair(offset: u32, count: u32) -> [u8; 8] {
    (u64::from(offset) | u64::from(count) << 32).to_le_bytes()
}

#[inline]
pub(crate) fn write<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(target) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *target = value;
    }
}

/// `length` bytes at an offset.
#[inline]
pub(crate) fn slice(bytes: &[u8], at: u32, length: usize) -> Option<&[u8]> {
    bytes.get(at as usize..(at as usize).checked_add(length)?)
}
