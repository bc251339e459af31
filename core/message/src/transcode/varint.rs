//! Base-128 varints, read out of a fixed window so that no byte is bounds-checked twice.
//!
//! A window is 16 bytes: a tag takes at most 5 and a varint at most 10, so one load decides a whole scalar field.
//! Offsets into it are masked to 0..=7, which lets the compiler prove every access.

/// Bytes the parser looks at in one step.
pub(super) const WINDOW: usize = 16;
/// A varint that does not end within ten bytes, or a length that does not end within five.
pub(super) struct Overlong;

const STOP_BITS: u64 = 0x8080_8080_8080_8080;

/// The eight bytes at `at` (0..=7) of a window, as a little-endian word.
#[inline(always)]
pub(super) fn word64(window: &[u8; WINDOW], at: usize) -> u64 {
    let at = at & 7;
    let mut word = [0; 8];
    word.copy_from_slice(&window[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The four bytes at `at` (0..=7) of a window, as a little-endian word.
#[inline(always)]
pub(super) fn word32(window: &[u8; WINDOW], at: usize) -> u32 {
    let at = at & 7;
    let mut word = [0; 4];
    word.copy_from_slice(&window[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Reads the varint at `at` (0..=7): its value and its length in bytes.
///
/// Up to three bytes are told apart by branches: most values are that short, and the position of the next field then
/// does not wait for this one's bytes. The rest is gathered without branches, out of the way.
#[inline(always)]
pub(super) fn varint(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
    let word = word64(window, at);
    if word & 0x80 == 0 {
        return Ok((word & 0x7f, 1));
    }
    if word & 0x8000 == 0 {
        return Ok((word & 0x7f | (word & 0x7f00) >> 1, 2));
    }
    if word & 0x80_0000 == 0 {
        return Ok((word & 0x7f | (word & 0x7f00) >> 1 | (word & 0x7f_0000) >> 2, 3));
    }
    varint_long(word, window, at)
}

/// Four bytes and more, out of the way of the loop over fields.
#[inline(never)]
fn varint_long(word: u64, window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
    let stops = !word & STOP_BITS;
    if stops == 0 {
        return varint_longest(word, window, at);
    }
    let below_stop = stops ^ (stops - 1);
    Ok((gather(word & below_stop), stops.trailing_zeros() / 8 + 1))
}

/// Nine- and ten-byte varints: negative int32 and int64, hashes. What goes beyond 64 bits is dropped, as C++ does.
#[inline(never)]
fn varint_longest(word: u64, window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
    let at = at & 7;
    let low = gather(word);
    let ninth = u64::from(window[at + 8]);
    if ninth < 0x80 {
        return Ok((low | ninth << 56, 9));
    }
    // `at` is at most 5 here (a tag's length), so the tenth byte is in the window; `get` says so to the compiler.
    match window.get(at + 9) {
        Some(&tenth) if tenth < 0x80 => Ok((low | (ninth & 0x7f) << 56 | u64::from(tenth) << 63, 10)),
        _ => Err(Overlong),
    }
}

/// Reads the varint at `at` (0..=7) as a length, for which five bytes have to do.
#[inline(always)]
pub(super) fn length(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
    let word = word64(window, at);
    if word & 0x80 == 0 {
        return Ok((word & 0x7f, 1));
    }
    if word & 0x8000 == 0 {
        return Ok((word & 0x7f | (word & 0x7f00) >> 1, 2));
    }
    long_length(window, at)
}

#[inline(never)]
fn long_length(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
    match varint(window, at) {
        Ok((length, n @ ..=5)) => Ok((length, n)),
        _ => Err(Overlong),
    }
}

/// Packs the low seven bits of each of eight bytes: three rounds that halve the number of gaps.
#[inline(always)]
fn gather(word: u64) -> u64 {
    let x = word & 0x7f7f_7f7f_7f7f_7f7f;
    let x = x & 0x007f_007f_007f_007f | (x & 0x7f00_7f00_7f00_7f00) >> 1;
    let x = x & 0x0000_3fff_0000_3fff | (x & 0x3fff_0000_3fff_0000) >> 2;
    x & 0x0fff_ffff | (x & 0x0fff_ffff_0000_0000) >> 4
}

/// Undoes zigzag: 0, 1, 2, 3 are 0, -1, 1, -2.
#[inline(always)]
pub(super) fn unzigzag32(v: u32) -> u32 {
    (v >> 1) ^ (v & 1).wrapping_neg()
}

/// Undoes zigzag on 64 bits.
#[inline(always)]
pub(super) fn unzigzag64(v: u64) -> u64 {
    (v >> 1) ^ (v & 1).wrapping_neg()
}

/// Bytes `v` takes as a varint.
#[inline(always)]
pub(super) fn varint_bytes(v: u64) -> u32 {
    ((63 - (v | 1).leading_zeros()) * 9 + 73) / 64
}

#[cfg(test)]
mod tests {
    //! Every length of varint reads back at every place a tag can leave it, and too long ones are refused.
    use super::*;

    fn write(mut v: u64, pad_to: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while v >= 0x80 {
            out.push(v as u8 | 0x80);
            v >>= 7;
        }
        out.push(v as u8);
        while out.len() < pad_to {
            *out.last_mut().unwrap() |= 0x80;
            out.push(0);
        }
        out
    }

    fn window(at: usize, bytes: &[u8]) -> [u8; WINDOW] {
        let mut w = [0x55; WINDOW];
        w[at..at + bytes.len()].copy_from_slice(bytes);
        w
    }

    #[test]
    fn reads_every_length_at_every_offset() {
        for bits in 0..=64 {
            let v = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
            for at in 0..=5 {
                for pad in 0..=10 {
                    let bytes = write(v ^ (v >> 1 & 0x2a2a_2a2a), pad);
                    let (got, len) = varint(&window(at, &bytes), at).ok().unwrap();
                    assert_eq!(
                        (got, len as usize),
                        (v ^ (v >> 1 & 0x2a2a_2a2a), bytes.len()),
                        "{bits} {at} {pad}"
                    );
                }
            }
            assert_eq!(varint_bytes(v) as usize, write(v, 0).len());
        }
    }

    #[test]
    fn refuses_what_does_not_end() {
        assert!(varint(&[0xff; WINDOW], 5).is_err());
        assert!(varint(&window(1, &[0x80; 11]), 1).is_err());
        assert!(length(&window(1, &[0x81, 0x80, 0x80, 0x80, 0x80, 0]), 1).is_err());
        assert!(matches!(length(&window(1, &[0x81, 0x80, 0x80, 0x80, 0]), 1), Ok((1, 5))));
    }

    #[test]
    fn drops_what_goes_beyond_64_bits() {
        let bytes = [&[0xff; 9][..], &[0x7e]].concat();
        assert!(matches!(varint(&window(1, &bytes), 1), Ok((0x7fff_ffff_ffff_ffff, 10))));
    }

    #[test]
    fn zigzag_matches_its_definition() {
        for v in [0i64, -1, 1, -2, 2, i64::MAX, i64::MIN, i32::MAX as i64, i32::MIN as i64] {
            assert_eq!(unzigzag64(((v << 1) ^ (v >> 63)) as u64) as i64, v);
            let v = v as i32;
            assert_eq!(unzigzag32(((v << 1) ^ (v >> 31)) as u32) as i32, v);
        }
    }
}
