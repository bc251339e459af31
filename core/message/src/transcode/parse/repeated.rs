//! Repeated fields that are not packed, but for messages.
//!
//! How many elements will come is not known, but elements of one field mostly stand in one *run*. A run of scalars is
//! written straight to the top of the arena, which needs no count; a run of strings (or messages, in `walk`) is counted
//! first, by hopping over the lengths.

use super::level::{Halt, Level};
use super::scalar::*;
use super::table::ParseEntry;
use super::values::Values;
use super::wire::TagBytes;

/// Bytes of a string's element in its array.
const STRING_BYTES: u32 = 8;

impl Values<'_> {
    /// A run of scalars.
    #[inline(never)]
    pub(super) fn run<S: Scalar>(&mut self, entry: &ParseEntry, level: Level, at: u32) -> Result<u32, Halt> {
        let mut head = self.reader.head(at)?;
        let wire = self.reader.wire;
        let tag = TagBytes::at(&wire, at, head);
        let slot = level.base + entry.slot;
        let mut array = self.arena.open::<S>(slot);
        let end = 'run: loop {
            for cell in self.arena.cells::<S>(array.at, array.room) {
                let (value, n) = match S::read(head.window, 1) {
                    Ok(read) => read,
                    Err(overlong) => return Err(self.reader.overlong(overlong, head.value_at, head.tag)),
                };
                put_cell::<S>(cell, value);
                array.at += S::BYTES;
                let next = head.value_at + n;
                let window = wire.window(next);
                if next >= level.end() || !tag.starts(window) {
                    break 'run next;
                }
                head.value_at = next + tag.bytes;
                head.window = if tag.bytes == 1 { window } else { wire.window(head.value_at - 1) };
            }
            array = self.arena.move_to_top(array)?;
        };
        self.arena.close::<S>(slot, array)?;
        Ok(end)
    }

    /// Elements the enum does not have go to the unknown bytes, each as a field of its own.
    #[inline(never)]
    pub(super) fn run_closed_enum(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        mut at: u32,
    ) -> Result<u32, Halt> {
        let mut head = self.reader.head(at)?;
        let tag = TagBytes::at(&self.reader.wire, at, head);
        loop {
            let (value, n) = head.varint().map_err(|o| self.reader.overlong(o, head.value_at, head.tag))?;
            let next = head.value_at + n;
            if self.tables.is_value(entry, value as u32) {
                let at = self.arena.reserve(level.base + entry.slot, Varint32::BYTES, 1)?;
                self.arena.put_scalar::<Varint32>(at, value);
            } else {
                self.keep(level, at, next)?;
            }
            at = next;
            if at >= level.end() || !tag.starts(self.reader.wire.window(at)) {
                return Ok(at);
            }
            head = self.reader.head(at)?;
        }
    }

    #[inline(never)]
    pub(super) fn run_strings<const TEXT: bool>(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        mut at: u32,
    ) -> Result<u32, Halt> {
        let count = self.reader.count_run(at, level.end())?;
        let mut element = self.arena.reserve(level.base + entry.slot, STRING_BYTES, count)?;
        for _ in 0..count {
            let head = self.reader.head(at)?;
            let (from, until) = self.reader.delimited(head, level.end())?;
            let placed = self.place_string::<TEXT>(from, until);
            let offset = placed.map_err(|_| self.reader.in_field(head.value_at, head.tag))?;
            self.arena.put_pair(element, offset, until - from);
            element += STRING_BYTES;
            at = until;
        }
        Ok(at)
    }
}
