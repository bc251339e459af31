//! Singular fields.

use std::slice::ChunksExactMut;

use super::arena::Arena;
use super::level::{Halt, Level, Next};
use super::table::ParseEntry;
use super::walk::Parser;
use super::wire::Head;
use crate::transcode::copy::{SHORT_BYTES, copy, copy_utf8, is_utf8, starts_with_ascii};
use crate::transcode::error::DecodeErrorKind as Kind;
use crate::transcode::varint::{Overlong, WINDOW, unzigzag32, unzigzag64, varint, word32, word64};

/// How a scalar looks on the wire and in its slot.
pub(super) trait Scalar {
    /// Bytes of a slot or array element.
    const BYTES: u32;
    /// The value at `at` of a window and its length on the wire.
    fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong>;
}

macro_rules! scalar {
    ($name:ident, $bytes:literal, $convert:expr) => {
        pub(super) struct $name;
        impl Scalar for $name {
            const BYTES: u32 = $bytes;
            #[inline(always)]
            fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
                let (v, n) = varint(window, at)?;
                Ok(($convert(v), n))
            }
        }
    };
}

scalar!(Varint32, 4, |v| v);
scalar!(Varint64, 8, |v| v);
scalar!(Zigzag32, 4, |v| u64::from(unzigzag32(v as u32)));
scalar!(Zigzag64, 8, unzigzag64);
scalar!(Bool, 1, |v| u64::from(v != 0));

pub(super) struct Fixed32;
impl Scalar for Fixed32 {
    const BYTES: u32 = 4;
    #[inline(always)]
    fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
        Ok((u64::from(word32(window, at)), 4))
    }
}

pub(super) struct Fixed64;
impl Scalar for Fixed64 {
    const BYTES: u32 = 8;
    #[inline(always)]
    fn read(window: &[u8; WINDOW], at: usize) -> Result<(u64, u32), Overlong> {
        Ok((word64(window, at), 8))
    }
}

impl Arena<'_> {
    /// The elements between two offsets.
    #[inline(always)]
    pub(super) fn cells<S: Scalar>(&mut self, from: u32, until: u32) -> ChunksExactMut<'_, u8> {
        self.between(from, until).chunks_exact_mut(S::BYTES as usize)
    }

    /// Writes the low bytes of `value`, as many as a scalar takes.
    #[inline(always)]
    pub(super) fn put_scalar<S: Scalar>(&mut self, at: u32, value: u64) {
        match S::BYTES {
            8 => self.put(at, value.to_le_bytes()),
            4 => self.put(at, (value as u32).to_le_bytes()),
            _ => self.put(at, [value as u8]),
        }
    }
}

/// Writes a scalar to an array's element, which is as long as it.
#[inline(always)]
pub(super) fn put_cell<S: Scalar>(cell: &mut [u8], value: u64) {
    for (to, from) in cell.iter_mut().zip(value.to_le_bytes()) {
        *to = from;
    }
}

impl<'a> Parser<'a> {
    #[inline(always)]
    pub(super) fn scalar<S: Scalar>(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        head: Head<'_>,
        present: &mut u64,
    ) -> Next {
        match S::read(head.window, 1) {
            Ok((value, n)) => {
                self.arena.put_scalar::<S>(level.base + entry.slot, value);
                *present |= entry.presence();
                Next::at(head.value_at + n)
            }
            Err(overlong) => self.overlong(overlong, head.value_at, head.tag).into(),
        }
    }

    /// A value the enum does not have goes to the unknown bytes and leaves the field as it was.
    #[inline(always)]
    pub(super) fn closed_enum(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        at: u32,
        head: Head<'_>,
        present: &mut u64,
    ) -> Next {
        match head.varint() {
            Ok((value, n)) if self.tables.is_value(entry, value as u32) => {
                self.arena.put_scalar::<Varint32>(level.base + entry.slot, value);
                *present |= entry.presence();
                Next::at(head.value_at + n)
            }
            _ => self.unknown(level, at),
        }
    }

    #[inline(always)]
    pub(super) fn string<const TEXT: bool>(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        head: Head<'_>,
        present: &mut u64,
    ) -> Next {
        let Ok((from, until)) = self.delimited(head, level.end()) else { return Next::FAILED };
        let Ok(at) = self.place_string::<TEXT>(from, until) else {
            return self.in_field(head.value_at, head.tag).into();
        };
        self.arena.put_pair(level.base + entry.slot, at, until - from);
        *present |= entry.presence();
        Next::at(until)
    }

    /// Copies a string into the arena; returns where it is. Those of 1 to 16 bytes are moved as one block.
    #[inline(always)]
    pub(super) fn place_string<const TEXT: bool>(&mut self, from: u32, until: u32) -> Result<u32, Halt> {
        let len = (until - from) as usize;
        if len.wrapping_sub(1) >= SHORT_BYTES {
            return self.place_long_string::<TEXT>(from, until);
        }
        let block = self.wire.window(from);
        if TEXT && !starts_with_ascii(block, len) && !is_utf8(self.wire.range(from, until)) {
            return Err(self.fault(Kind::Utf8, from, 0));
        }
        Ok(self.arena.append_block(block, len as u32)?)
    }

    /// An empty string has no place: {0, 0}, told from an absent one by its presence bit.
    #[inline(never)]
    fn place_long_string<const TEXT: bool>(&mut self, from: u32, until: u32) -> Result<u32, Halt> {
        if from == until {
            return Ok(0);
        }
        let bytes = self.wire.range(from, until);
        let (at, room) = self.arena.append(until - from)?;
        if !TEXT {
            copy(room, bytes);
        } else if !copy_utf8(room, bytes) {
            return Err(self.fault(Kind::Utf8, from, 0));
        }
        Ok(at)
    }

    /// A message field; a second occurrence is merged into the first.
    #[inline(always)]
    pub(super) fn submessage(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        head: Head<'_>,
        present: &mut u64,
    ) -> Next {
        let Ok((from, until)) = self.delimited(head, level.end()) else { return Next::FAILED };
        let table = self.tables.child(entry);
        let Ok(block) = self.child_block(level.base + entry.slot, table.block_bytes) else {
            return Next::FAILED;
        };
        *present |= entry.presence();
        self.message(table, Level::new(block, until), from)
    }

    /// The block in a message slot, made if there is none.
    #[inline(always)]
    pub(super) fn child_block(&mut self, slot: u32, bytes: u32) -> Result<u32, Halt> {
        let block = self.arena.word(slot);
        if block != 0 {
            return Ok(block);
        }
        let block = self.arena.block(bytes)?;
        self.arena.put(slot, block.to_le_bytes());
        Ok(block)
    }
}
