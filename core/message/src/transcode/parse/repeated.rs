//! Repeated fields that are not packed.
//!
//! How many elements will come is not known, but elements of one field mostly stand in one *run*. A run of scalars is
//! written straight to the top of the arena, which needs no count; a run of strings or messages is counted first, by
//! hopping over the lengths.

use super::level::{Halt, Level};
use super::scalar::*;
use super::table::{ParseEntry, ParseTable};
use super::walk::Parser;
use super::wire::TagBytes;

/// Bytes of a string's or message's element in its array.
const STRING_BYTES: u32 = 8;
const OFFSET_BYTES: u32 = 4;
/// Number of the value in a map's entry.
const ENTRY_VALUE: u32 = 2;

impl<'a> Parser<'a> {
    /// A run of scalars.
    #[inline(never)]
    pub(super) fn run<S: Scalar>(&mut self, entry: &ParseEntry, level: Level, at: u32) -> Result<u32, Halt> {
        let mut head = self.head(at)?;
        let wire = self.wire;
        let tag = TagBytes::at(&wire, at, head);
        let slot = level.base + entry.slot;
        let mut array = self.open::<S>(slot);
        let end = 'run: loop {
            for cell in self.arena.cells::<S>(array.at, array.room) {
                let (value, n) = match S::read(head.window, 1) {
                    Ok(read) => read,
                    Err(overlong) => return Err(self.overlong(overlong, head.value_at, head.tag)),
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
            array = self.move_to_top(array)?;
        };
        self.close::<S>(slot, array)?;
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
        let mut head = self.head(at)?;
        let tag = TagBytes::at(&self.wire, at, head);
        loop {
            let (value, n) = head.varint().map_err(|o| self.overlong(o, head.value_at, head.tag))?;
            let next = head.value_at + n;
            if self.tables.is_value(entry, value as u32) {
                let at = self.reserve(level.base + entry.slot, Varint32::BYTES, 1)?;
                self.arena.put_scalar::<Varint32>(at, value);
            } else {
                self.keep(level, at, next)?;
            }
            at = next;
            if at >= level.end() || !tag.starts(self.wire.window(at)) {
                return Ok(at);
            }
            head = self.head(at)?;
        }
    }

    #[inline(never)]
    pub(super) fn run_strings<const TEXT: bool>(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        mut at: u32,
    ) -> Result<u32, Halt> {
        let count = self.count_run(at, level.end())?;
        let mut element = self.reserve(level.base + entry.slot, STRING_BYTES, count)?;
        for _ in 0..count {
            let head = self.head(at)?;
            let (from, until) = self.delimited(head, level.end())?;
            let placed = self.place_string::<TEXT>(from, until);
            let offset = placed.map_err(|_| self.in_field(head.value_at, head.tag))?;
            self.arena.put_pair(element, offset, until - from);
            element += STRING_BYTES;
            at = until;
        }
        Ok(at)
    }

    #[inline(never)]
    pub(super) fn run_messages(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        mut at: u32,
    ) -> Result<u32, Halt> {
        let table = self.tables.child(entry);
        let count = self.count_run(at, level.end())?;
        let mut element = self.reserve(level.base + entry.slot, OFFSET_BYTES, count)?;
        for _ in 0..count {
            let head = self.head(at)?;
            let (from, until) = self.delimited(head, level.end())?;
            let base = self.arena.block(table.block_bytes)?;
            self.arena.put(element, base.to_le_bytes());
            self.nested(table, Level::new(base, until), from)?;
            element += OFFSET_BYTES;
            at = until;
        }
        Ok(at)
    }

    /// One entry of a map to a closed enum. An entry whose value the enum does not have is unknown as a whole.
    #[inline(never)]
    pub(super) fn one_closed_entry(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        at: u32,
    ) -> Result<u32, Halt> {
        let head = self.head(at)?;
        let (from, until) = self.delimited(head, level.end())?;
        let table = self.tables.child(entry);
        let base = self.arena.block(table.block_bytes)?;
        self.nested(table, Level::new(base, until), from)?;
        // Values the enum lacks are in the entry's unknown bytes, and nothing else is.
        if self.arena.word(base) != 0 {
            if self.ends_with_stray(table, Level::new(base, until), from)? {
                self.keep(level, at, until)?;
                return Ok(until);
            }
            self.arena.put(base, [0; 4]);
        }
        let element = self.reserve(level.base + entry.slot, OFFSET_BYTES, 1)?;
        self.arena.put(element, base.to_le_bytes());
        Ok(until)
    }

    /// Whether the last value of an entry, which is sound, is one that its closed enum lacks. Of several the last one
    /// counts, as of every field.
    #[cold]
    #[inline(never)]
    fn ends_with_stray(&mut self, table: &ParseTable, level: Level, mut at: u32) -> Result<bool, Halt> {
        let value = table.find(ENTRY_VALUE);
        let mut stray = false;
        while at < level.end() {
            let head = self.head(at)?;
            if head.tag == value.tag {
                stray = head.varint().is_ok_and(|(number, _)| !self.tables.is_value(value, number as u32));
            }
            at = self.skip(head, level)?;
        }
        Ok(stray)
    }

    fn nested(&mut self, table: &'a ParseTable, level: Level, at: u32) -> Result<u32, Halt> {
        self.message(table, level, at).into()
    }

    /// A singular group; a second occurrence is merged into the first.
    #[inline(never)]
    pub(super) fn group(&mut self, entry: &ParseEntry, level: Level, at: u32) -> Result<u32, Halt> {
        let table = self.tables.child(entry);
        let base = self.child_block(level.base + entry.slot, table.block_bytes)?;
        self.group_at(table, base, level, at)
    }

    /// Groups are not counted ahead: to step over one takes as long as to read it, at every level again.
    #[inline(never)]
    pub(super) fn one_group(&mut self, entry: &ParseEntry, level: Level, at: u32) -> Result<u32, Halt> {
        let table = self.tables.child(entry);
        let element = self.reserve(level.base + entry.slot, OFFSET_BYTES, 1)?;
        let base = self.arena.block(table.block_bytes)?;
        self.arena.put(element, base.to_le_bytes());
        self.group_at(table, base, level, at)
    }

    /// Reads the group at `at` into the block at `base`.
    fn group_at(&mut self, table: &'a ParseTable, base: u32, level: Level, at: u32) -> Result<u32, Halt> {
        let head = self.head(at)?;
        // The end tag has the start tag's number and wire type 4, the start tag's is 3.
        let outer = std::mem::replace(&mut self.group_end, head.tag + 1);
        let end = self.message(table, level.group(base), head.value_at).into();
        self.group_end = outer;
        end
    }

    /// Elements in the run that starts at `at`, a broken one included so that reading it reports it.
    #[inline(always)]
    fn count_run(&mut self, at: u32, end: u32) -> Result<u32, Halt> {
        let wire = self.wire;
        let mut head = self.head(at)?;
        let tag = TagBytes::at(&wire, at, head);
        let mut count = 0;
        loop {
            count += 1;
            let Ok((len, n)) = head.length() else { break };
            let next = u64::from(head.value_at + n).saturating_add(len);
            if next >= u64::from(end) {
                break;
            }
            let window = wire.window(next as u32);
            if !tag.starts(window) {
                break;
            }
            head.value_at = next as u32 + tag.bytes;
            head.window = if tag.bytes == 1 { window } else { wire.window(head.value_at - 1) };
        }
        Ok(count)
    }
}
