//! Copies of strings, and whether what is copied is UTF-8.
//!
//! Most strings are a few bytes long: those up to sixteen are moved as one block of sixteen by whoever has room for it
//! (the surplus is overwritten by what comes next), and a block of sixteen is looked at as a number. Long strings are
//! checked a piece at a time just before the piece is copied, while it is in the nearest cache.

use simdutf8::basic::from_utf8;

/// Strings up to here are copied as a block of this length.
pub(super) const SHORT_BYTES: usize = 16;

/// How much is checked before it is copied: a quarter of a small first-level cache.
const PIECE_BYTES: usize = 8 << 10;

/// Each byte's high bit, which ASCII does not have.
const HIGH_BITS: u128 = u128::from_le_bytes([0x80; 16]);

/// Whether the first `len` (1..=16) bytes of a block are ASCII.
#[inline(always)]
pub(super) fn starts_with_ascii(block: &[u8; SHORT_BYTES], len: usize) -> bool {
    let beyond = 128 - 8 * len as u32;
    (u128::from_le_bytes(*block) & HIGH_BITS) << (beyond & 127) == 0
}

/// Whether the last `len` (1..=16) bytes of a block are ASCII.
#[inline(always)]
pub(super) fn ends_with_ascii(block: &[u8; SHORT_BYTES], len: usize) -> bool {
    let before = 128 - 8 * len as u32;
    (u128::from_le_bytes(*block) & HIGH_BITS) >> (before & 127) == 0
}

/// Below this, a plain look for high bits beats the call into vector code.
const VECTOR_BYTES: usize = 64;

/// Whether `bytes` is UTF-8.
#[inline(never)]
pub(super) fn is_utf8(bytes: &[u8]) -> bool {
    bytes.len() < VECTOR_BYTES && bytes.is_ascii() || from_utf8(bytes).is_ok()
}

/// Copies `from` to `to`, which is as long.
#[inline(always)]
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    if let 16..=32 = from.len() { copy_ends::<16>(to, from) } else { to.copy_from_slice(from) }
}

/// Copies by two moves that overlap in the middle, which reach any length from N to 2N.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(a), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        *to = *a;
    }
    if let (Some(z), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
        *to = *z;
    }
}

/// Copies `from` to `to`, which is as long, and says whether it is UTF-8. If it is not, what was copied is of no use.
#[inline(always)]
pub(super) fn copy_utf8(to: &mut [u8], from: &[u8]) -> bool {
    if from.len() > PIECE_BYTES {
        return copy_long_utf8(to, from);
    }
    let is_utf8 = is_utf8(from);
    copy(to, from);
    is_utf8
}

#[inline(never)]
fn copy_long_utf8(to: &mut [u8], from: &[u8]) -> bool {
    let mut at = 0;
    while let (Some(piece), Some(room)) = (from.get(at..at + PIECE_BYTES), to.get_mut(at..at + PIECE_BYTES))
        && from_utf8(piece).is_ok()
    {
        room.copy_from_slice(piece);
        at += PIECE_BYTES;
    }
    // What is left begins with a character, and with the one that the end of the last piece would have cut in two.
    let (Some(rest), Some(room)) = (from.get(at..), to.get_mut(at..)) else { return false };
    copy(room, rest);
    from_utf8(rest).is_ok()
}

#[cfg(test)]
mod tests {
    //! The quick looks agree with the standard library, wherever in a string the odd byte is.
    use super::*;

    fn check(bytes: &[u8]) {
        let mut to = vec![0; bytes.len()];
        let expected = std::str::from_utf8(bytes).is_ok();
        assert_eq!(is_utf8(bytes), expected, "{bytes:02x?}");
        assert_eq!(copy_utf8(&mut to, bytes), expected, "{bytes:02x?}");
        assert!(!expected || to == bytes);
    }

    #[test]
    fn short_and_long_strings_with_one_odd_byte() {
        for len in (1..=70).chain([PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5]) {
            let mut bytes = vec![b'a'; len];
            check(&bytes);
            for at in (0..len.min(70)).chain([len / 2, len - 1]) {
                bytes[at] = 0xc3;
                check(&bytes);
                if at + 1 < len {
                    bytes[at + 1] = 0xa4;
                    check(&bytes);
                    bytes[at + 1] = b'a';
                }
                bytes[at] = b'a';
            }
        }
    }

    #[test]
    fn a_character_across_two_pieces() {
        let mut text = "a".repeat(PIECE_BYTES - 1);
        text.push('\u{20ac}');
        text.push_str(&"b".repeat(2 * PIECE_BYTES));
        check(text.as_bytes());
    }

    #[test]
    fn blocks_are_looked_at_as_far_as_they_count() {
        for odd in 0..16 {
            let mut block = [b'a'; 16];
            block[odd] = 0x80;
            for len in 1..=16 {
                assert_eq!(starts_with_ascii(&block, len), odd >= len);
                assert_eq!(ends_with_ascii(&block, len), odd < 16 - len);
            }
        }
    }
}
