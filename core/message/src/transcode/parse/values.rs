//! Singular fields, and fields nobody knows: whatever nests no further.
//!
//! Unknown fields are stepped over, and their bytes kept with the message.

use super::arena::Arena;
use super::build::ParseTables;
use super::kept::keep;
use super::level::{Halt, Level, Next};
use super::reader::WireReader;
use super::scalar::{Scalar, Varint32};
use super::table::ParseEntry;
use super::wire::Head;
use crate::transcode::copy::{SHORT_BYTES, copy, copy_utf8, is_utf8, starts_with_ascii};
use crate::transcode::error::DecodeErrorKind as Kind;

/// What moves values from the wire to the message.
pub(super) struct Values<'a> {
    pub reader: WireReader<'a>,
    pub tables: &'a ParseTables,
    pub arena: Arena<'a>,
}

impl<'a> Values<'a> {
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
            Err(overlong) => self.reader.overlong(overlong, head.value_at, head.tag).into(),
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
        let Ok((from, until)) = self.reader.delimited(head, level.end()) else { return Next::FAILED };
        let Ok(at) = self.place_string::<TEXT>(from, until) else {
            return self.reader.in_field(head.value_at, head.tag).into();
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
        let block = self.reader.wire.window(from);
        if TEXT && !starts_with_ascii(block, len) && !is_utf8(self.reader.wire.range(from, until)) {
            return Err(self.reader.fault(Kind::Utf8, from, 0));
        }
        Ok(self.arena.append_block(block, len as u32)?)
    }

    /// An empty string has no place: {0, 0}, told from an absent one by its presence bit.
    #[inline(never)]
    fn place_long_string<const TEXT: bool>(&mut self, from: u32, until: u32) -> Result<u32, Halt> {
        if from == until {
            return Ok(0);
        }
        let bytes = self.reader.wire.range(from, until);
        let (at, room) = self.arena.append(until - from)?;
        if !TEXT {
            copy(room, bytes);
        } else if !copy_utf8(room, bytes) {
            return Err(self.reader.fault(Kind::Utf8, from, 0));
        }
        Ok(at)
    }

    /// Steps over a field nobody knows and keeps it, unless it is the end of the group being read.
    #[cold]
    #[inline(never)]
    pub(super) fn unknown(&mut self, level: Level, at: u32) -> Next {
        let Ok(head) = self.reader.head(at) else { return Next::FAILED };
        if level.is_group() && head.tag == self.reader.group_end && head.value_at <= level.end() {
            return Next::group_ended(head.value_at);
        }
        let kept =
            self.reader.skip(head, level).and_then(|until| self.keep(level, at, until).map(|()| until));
        kept.into()
    }

    /// Steps over a field that a map's entry does not have. It is not kept: an entry is a pair to whoever reads the
    /// map, and has no place for more.
    #[cold]
    #[inline(never)]
    pub(super) fn dropped(&mut self, level: Level, at: u32) -> Next {
        self.reader.head(at).and_then(|head| self.reader.skip(head, level)).into()
    }

    /// Adds the wire's bytes from a field's tag to `until` to the block's unknown bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn keep(&mut self, level: Level, at: u32, until: u32) -> Result<(), Halt> {
        if until > level.end() {
            return Err(self.reader.fault(Kind::Truncated, at, 0));
        }
        Ok(keep(&mut self.arena, level.base, self.reader.wire.range(at, until))?)
    }
}
