//! Singular fields.

use super::extent_reader::{ExtentReader, word};
use super::output::{Free, put_block, put_top, put_varint, take};
use super::table::{EmitEntry, Tag};
use crate::CheckErrorKind as Kind;
use crate::transcode::copy::{SHORT_BYTES, copy, copy_utf8, ends_with_ascii, is_utf8};

/// How a scalar's stored bytes become wire bytes.
pub(super) trait Scalar {
    /// Bytes of a slot or array element.
    const BYTES: u32;
    /// Fixed-size on the wire, and then the same bytes there and here.
    const FIXED: bool = false;
    /// What the varint is of, given the stored bytes as an unsigned number.
    fn to_wire(stored: u64) -> u64;
}

macro_rules! scalar {
    ($name:ident, $bytes:literal, $fixed:literal, $to_wire:expr) => {
        pub(super) struct $name;
        impl Scalar for $name {
            const BYTES: u32 = $bytes;
            const FIXED: bool = $fixed;
            #[inline(always)]
            fn to_wire(stored: u64) -> u64 {
                $to_wire(stored)
            }
        }
    };
}

scalar!(Uint32, 4, false, |v| v);
scalar!(Int32, 4, false, |v| v as u32 as i32 as i64 as u64);
scalar!(Varint64, 8, false, |v| v);
scalar!(Zigzag32, 4, false, |v| {
    let v = v as u32 as i32;
    u64::from(((v << 1) ^ (v >> 31)) as u32)
});
scalar!(Zigzag64, 8, false, |v| {
    let v = v as i64;
    ((v << 1) ^ (v >> 63)) as u64
});
scalar!(Bool, 1, false, |v| u64::from(v != 0));
scalar!(Fixed32, 4, true, |v| v);
scalar!(Fixed64, 8, true, |v| v);

/// The stored bytes of a scalar at `at`; 0 out of range, which a slot or element never is.
#[inline(always)]
pub(super) fn load<S: Scalar>(bytes: &[u8], at: u32) -> u64 {
    let at = at as usize;
    match S::BYTES {
        8 => match bytes.get(at..at + 8).map(TryInto::try_into) {
            Some(Ok(value)) => u64::from_le_bytes(value),
            _ => 0,
        },
        4 => u64::from(word(bytes, at as u32)),
        _ => u64::from(bytes.get(at).copied().unwrap_or(0)),
    }
}

impl ExtentReader<'_> {
    #[inline(always)]
    pub(super) fn scalar<'o, S: Scalar>(
        &mut self,
        entry: &EmitEntry,
        block: &[u8],
        free: Free<'o>,
    ) -> Free<'o> {
        let stored = load::<S>(block, entry.slot);
        if stored == 0 && entry.skip_zero {
            return free;
        }
        put_scalar::<S>(free, entry.tag, stored)
    }

    #[inline(never)]
    pub(super) fn closed_enum<'o>(&mut self, entry: &EmitEntry, block: &[u8], free: Free<'o>) -> Free<'o> {
        if !self.tables.declares(entry, word(block, entry.slot)) {
            return self.fault(Kind::Enum, 0, entry.number);
        }
        self.scalar::<Int32>(entry, block, free)
    }

    #[inline(always)]
    pub(super) fn string<'o, const TEXT: bool>(
        &mut self,
        entry: &EmitEntry,
        block: &[u8],
        free: Free<'o>,
    ) -> Free<'o> {
        let (at, len) = (word(block, entry.slot), word(block, entry.slot + 4));
        if len == 0 && entry.skip_zero {
            return free;
        }
        self.put_string::<TEXT>(entry, at, len, free)
    }

    /// Writes a tag, a length and the bytes.
    #[inline(always)]
    pub(super) fn put_string<'o, const TEXT: bool>(
        &mut self,
        entry: &EmitEntry,
        at: u32,
        len: u32,
        free: Free<'o>,
    ) -> Free<'o> {
        let Ok(bytes) = self.range(at, len, 1, 1) else { return self.in_field(entry.number) };
        let free = match self.extent.get(..(at + len) as usize).and_then(<[u8]>::last_chunk) {
            Some(block) if bytes.len().wrapping_sub(1) < SHORT_BYTES => {
                if TEXT && !ends_with_ascii(block, bytes.len()) && !is_utf8(bytes) {
                    return self.fault(Kind::Utf8, at, entry.number);
                }
                put_block(free, block, bytes.len())
            }
            _ => self.put_long_string::<TEXT>(entry, at, bytes, free),
        };
        put_varint(free, u64::from(len), entry.tag)
    }

    #[inline(never)]
    fn put_long_string<'o, const TEXT: bool>(
        &mut self,
        entry: &EmitEntry,
        at: u32,
        bytes: &[u8],
        free: Free<'o>,
    ) -> Free<'o> {
        let Some((free, room)) = take(free, bytes.len()) else { return &mut [] };
        if !TEXT {
            copy(room, bytes);
        } else if !copy_utf8(room, bytes) {
            return self.fault(Kind::Utf8, at, entry.number);
        }
        free
    }
}

/// Writes a tag and a value.
#[inline(always)]
pub(super) fn put_scalar<S: Scalar>(free: Free<'_>, tag: Tag, stored: u64) -> Free<'_> {
    if !S::FIXED {
        return put_varint(free, S::to_wire(stored), tag);
    }
    if S::BYTES == 8 {
        return put_top(put_top(free, stored, 8), tag.top, tag.bytes());
    }
    if tag.bytes() <= 4 {
        return put_top(free, stored << 32 | tag.top >> 32, 4 + tag.bytes());
    }
    put_top(put_top(free, stored << 32, 4), tag.top, tag.bytes())
}
