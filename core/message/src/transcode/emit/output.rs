//! Writing from the end.
//!
//! The part of the buffer that is still free is handed from write to write: each takes it and returns what is left. So
//! it stays in registers, and a write costs one comparison. What does not fit leaves nothing free, and then nothing
//! else fits either: a failure is looked for once per message, not once per write.

use super::table::Tag;
use crate::transcode::copy::SHORT_BYTES;
use crate::transcode::varint::varint_bytes;

/// The part of the buffer that is still free; what was written lies behind it. Empty, it means failure: a write that
/// succeeds leaves at least a byte.
pub(super) type Free<'a> = &'a mut [u8];

/// Bytes at the start of the buffer that must stay free. Small fields are written eight bytes at a time and never end
/// up longer than fifteen, so one comparison settles both.
pub const HEADROOM_BYTES: usize = 16;

/// The bit that says that a varint goes on, in each of eight bytes.
const MORE: u64 = 0x8080_8080_8080_8080;

/// Writes the `bytes` (at most 8) uppermost bytes of `word`.
#[inline(always)]
pub(super) fn put_top(free: Free<'_>, word: u64, bytes: usize) -> Free<'_> {
    if free.len() < HEADROOM_BYTES {
        return &mut [];
    }
    if let Some(last) = free.last_chunk_mut::<8>() {
        *last = word.to_le_bytes();
    }
    let left = free.len() - bytes % HEADROOM_BYTES;
    &mut free[..left]
}

/// Writes the last `bytes` (at most 16) bytes of `block`.
#[inline(always)]
pub(super) fn put_block<'a>(free: Free<'a>, block: &[u8; SHORT_BYTES], bytes: usize) -> Free<'a> {
    match free.len().checked_sub(bytes) {
        Some(left @ 1..) if free.len() >= HEADROOM_BYTES => {
            if let Some(last) = free.last_chunk_mut() {
                *last = *block;
            }
            free.get_mut(..left).unwrap_or_default()
        }
        _ => &mut [],
    }
}

/// Takes `bytes` off: what is left, and what was taken; `None` if that does not fit.
#[inline(always)]
pub(super) fn take(free: Free<'_>, bytes: usize) -> Option<(Free<'_>, &mut [u8])> {
    match free.len().checked_sub(bytes) {
        Some(left @ 1..) => free.split_at_mut_checked(left),
        _ => None,
    }
}

/// Writes `bytes`.
#[inline(always)]
pub(super) fn put_bytes<'a>(free: Free<'a>, bytes: &[u8]) -> Free<'a> {
    match take(free, bytes.len()) {
        Some((free, room)) => {
            room.copy_from_slice(bytes);
            free
        }
        None => &mut [],
    }
}

/// Writes `v` as a varint, and in front of it the tag.
///
/// One and two bytes, which is what most values, lengths and enums take, are written in place; the rest stays out of
/// the way of the loop over fields, whose speed is that of fetching its instructions.
#[inline(always)]
pub(super) fn put_varint(free: Free<'_>, v: u64, tag: Tag) -> Free<'_> {
    if v < 0x80 {
        return put_top(free, v << 56 | tag.top >> 8, 1 + tag.bytes());
    }
    if v < 0x4000 {
        let word = (v & 0x7f) << 48 | (v >> 7) << 56 | 0x80_0000_0000_0000;
        return put_top(free, word | tag.top >> 16, 2 + tag.bytes());
    }
    put_long_varint_out(free, v, tag.top, tag.bytes())
}

/// As [`put_varint`], for the loops over arrays, in which values of three bytes are as common.
#[inline(always)]
pub(super) fn put_element(free: Free<'_>, v: u64, tag: Tag) -> Free<'_> {
    if v < 0x4000 { put_varint(free, v, tag) } else { put_long_varint(free, v, tag.top, tag.bytes()) }
}

#[inline(never)]
fn put_long_varint_out(free: Free<'_>, v: u64, tag: u64, tag_bytes: usize) -> Free<'_> {
    put_long_varint(free, v, tag, tag_bytes)
}

/// Three bytes and more.
#[inline(always)]
fn put_long_varint(free: Free<'_>, v: u64, tag: u64, tag_bytes: usize) -> Free<'_> {
    if v < 0x20_0000 {
        let word = (v & 0x7f) << 40 | (v & 0x3f80) << 41 | (v >> 14) << 56 | 0x80_8000_0000_0000;
        return put_top(free, word | tag >> 24, 3 + tag_bytes);
    }
    let bytes = varint_bytes(v);
    if bytes > 8 {
        return put_longest_varint(free, v, tag, tag_bytes);
    }
    let unused = 64 - 8 * bytes;
    let word = (spread(v) | MORE & (u64::MAX >> ((unused + 8) & 63))) << (unused & 63);
    let bytes = bytes as usize;
    if bytes + tag_bytes <= 8 {
        return put_top(free, word | tag >> ((8 * bytes) & 63), bytes + tag_bytes);
    }
    put_top(put_top(free, word, bytes), tag, tag_bytes)
}

/// Nine and ten bytes: negative int32 and int64, hashes.
#[inline(never)]
fn put_longest_varint(free: Free<'_>, v: u64, tag: u64, tag_bytes: usize) -> Free<'_> {
    let high = v >> 56;
    let free = if high < 0x80 {
        put_top(free, high << 56, 1)
    } else {
        put_top(free, (high & 0x7f | 0x80) << 48 | (high >> 7) << 56, 2)
    };
    let free = put_top(free, spread(v) | MORE, 8);
    put_top(free, tag, tag_bytes)
}

/// Deals the low 56 bits out to eight bytes, seven to each.
#[inline(always)]
fn spread(v: u64) -> u64 {
    let x = v & 0x0fff_ffff | (v & 0x00ff_ffff_f000_0000) << 4;
    let x = x & 0x0000_3fff_0000_3fff | (x & 0x0fff_c000_0fff_c000) << 2;
    x & 0x007f_007f_007f_007f | (x & 0x3f80_3f80_3f80_3f80) << 1
}

#[cfg(test)]
mod tests {
    //! Varints and tags of every length come out as the definition has them.
    use super::*;

    fn reference(v: u64) -> Vec<u8> {
        let mut v = v;
        let mut out = Vec::new();
        while v > 0x7f {
            out.push(v as u8 | 0x80);
            v >>= 7;
        }
        out.push(v as u8);
        out
    }

    #[test]
    fn every_length_of_value_behind_every_length_of_tag() {
        for number in [1, 15, 16, 2047, 2048, 1 << 18, 1 << 25, (1 << 29) - 1] {
            let tag = Tag::new(number, 5);
            for bits in 0..=64 {
                let v = if bits == 0 {
                    0
                } else {
                    u64::MAX >> (64 - bits) & 0xd5d5_5555_aaaa_9999 | 1 << (bits - 1)
                };
                let mut buffer = [0x11; 40];
                let from = put_varint(&mut buffer, v, tag).len();
                let wanted = [reference(u64::from(number << 3 | 5)), reference(v)].concat();
                assert_eq!(&buffer[from..], wanted, "number {number}, {bits} bits");
            }
        }
    }

    #[test]
    fn what_does_not_fit_leaves_nothing() {
        let mut buffer = [0; HEADROOM_BYTES + 1];
        let free = put_top(&mut buffer, 0, 1);
        let free = put_top(free, 0, 1);
        assert_eq!(free.len(), HEADROOM_BYTES - 1);
        let free = put_top(free, 0, 1);
        assert!(free.is_empty());
        assert!(put_bytes(free, &[]).is_empty());
        assert!(put_bytes(&mut buffer, &[0; HEADROOM_BYTES + 1]).is_empty());
        assert!(put_block(&mut buffer, &[0; SHORT_BYTES], SHORT_BYTES).len() == 1);
        assert!(put_block(&mut buffer[..SHORT_BYTES], &[0; SHORT_BYTES], SHORT_BYTES).is_empty());
    }
}
