//! The parser's loop.

use super::arena::Arena;
use super::build::ParseTables;
use super::detour;
use super::level::{Fault, Halt, Level, Next};
use super::reader::WireReader;
use super::scalar::*;
use super::table::{ParseEntry, ParseOp, ParseTable, REGISTER_BITS};
use super::values::Values;
use super::wire::{Head, Tail, Wire};
use crate::transcode::error::DecodeErrorKind as Kind;

/// Bytes of a message's element in its array.
const OFFSET_BYTES: u32 = 4;
/// Number of the value in a map's entry.
const ENTRY_VALUE: u32 = 2;

/// How an attempt at parsing ended.
pub(in crate::transcode) enum Outcome {
    /// The message is there and takes this many bytes.
    Done(u32),
    /// The buffer is too small.
    Full,
    Fault {
        kind: Kind,
        at: u32,
        tag: u32,
        message: u32,
    },
}

/// Walks the messages of the wire, one in the other. All that nests no further is [`Values`]'.
struct Parser<'a> {
    values: Values<'a>,
}

/// Parses `wire` as the message of table `root` into `buffer`, the root block at `root_at`.
pub(in crate::transcode) fn parse(
    tables: &ParseTables,
    root: usize,
    wire: &[u8],
    buffer: &mut [u8],
    root_at: u32,
    depth_max: u32,
) -> Outcome {
    let tail = Tail::of(wire);
    let reader = WireReader::new(Wire::new(wire, &tail), depth_max);
    let mut parser = Parser { values: Values { reader, tables, arena: Arena::new(buffer, root_at) } };
    match parser.root(root) {
        Ok(len) => Outcome::Done(len),
        Err(Halt) => match parser.values.reader.into_fault() {
            Some(Fault { kind, at, tag, message }) => {
                Outcome::Fault { kind, at, tag, message: message.unwrap_or(root as u32) }
            }
            None => Outcome::Full,
        },
    }
}

impl<'a> Parser<'a> {
    fn root(&mut self, root: usize) -> Result<u32, Halt> {
        let Some(table) = self.values.tables.messages.get(root) else { return Err(Halt) };
        let base = self.values.arena.block(table.block_bytes)?;
        let level = Level::new(base, self.values.reader.wire.len());
        if self.fields(table, level, 0) == Next::FAILED {
            self.values.reader.blame(table);
            return Err(Halt);
        }
        let end = self.values.arena.aligned_top();
        self.values.arena.raise(end)?;
        Ok(end)
    }

    /// Reads a message or group that stands in another one: the fields from `at` to the end of `level` into its block,
    /// which is new and zero, or holds what an earlier occurrence of the same message left there.
    #[inline(always)]
    fn message(&mut self, table: &'a ParseTable, level: Level, at: u32) -> Next {
        if self.values.reader.levels_left == 0 {
            return self.values.reader.fault(Kind::Depth, at, 0).into();
        }
        self.values.reader.levels_left -= 1;
        let end = self.fields(table, level, at);
        self.values.reader.levels_left += 1;
        if end == Next::FAILED {
            self.values.reader.blame(table);
        }
        end
    }

    #[inline(never)]
    fn fields(&mut self, table: &'a ParseTable, level: Level, at: u32) -> Next {
        let mut present = 0;
        let mut next = Next::at(at);
        while let Some(at) = next.before(level.end()) {
            next = match self.values.reader.head(at) {
                Ok(head) => {
                    let entry = table.find(head.tag >> 3);
                    self.field(entry.op_for(head.tag), entry, level, at, head, &mut present)
                }
                Err(halt) => halt.into(),
            };
        }
        self.values.arena.merge_presence(level.base, table.presence_words, present);
        if next.is_end_of(level) { next } else { self.odd_end(level, at, next) }
    }

    /// Does `op`; returns where the field, or the run of fields, ended.
    ///
    /// What is called here and not inlined takes words only: a struct handed over by reference would live in memory,
    /// and be written there for every field.
    #[inline(always)]
    fn field(
        &mut self,
        op: ParseOp,
        entry: &ParseEntry,
        level: Level,
        at: u32,
        head: Head<'_>,
        present: &mut u64,
    ) -> Next {
        match op {
            ParseOp::Unknown => self.values.unknown(level, at),
            ParseOp::Dropped => self.values.dropped(level, at),
            ParseOp::Detour => self.detour(entry, level, at, present),
            ParseOp::Varint32 => self.values.scalar::<Varint32>(entry, level, head, present),
            ParseOp::Varint64 => self.values.scalar::<Varint64>(entry, level, head, present),
            ParseOp::Zigzag32 => self.values.scalar::<Zigzag32>(entry, level, head, present),
            ParseOp::Zigzag64 => self.values.scalar::<Zigzag64>(entry, level, head, present),
            ParseOp::Bool => self.values.scalar::<Bool>(entry, level, head, present),
            ParseOp::Fixed32 => self.values.scalar::<Fixed32>(entry, level, head, present),
            ParseOp::Fixed64 => self.values.scalar::<Fixed64>(entry, level, head, present),
            ParseOp::ClosedEnum => self.values.closed_enum(entry, level, at, head, present),
            ParseOp::Bytes => self.values.string::<false>(entry, level, head, present),
            ParseOp::Text => self.values.string::<true>(entry, level, head, present),
            ParseOp::Message => self.submessage(entry, level, head, present),
            ParseOp::Group => self.group(entry.seen(present), level, at).into(),
            ParseOp::RunVarint32 => self.values.run::<Varint32>(entry.seen(present), level, at).into(),
            ParseOp::RunVarint64 => self.values.run::<Varint64>(entry.seen(present), level, at).into(),
            ParseOp::RunZigzag32 => self.values.run::<Zigzag32>(entry.seen(present), level, at).into(),
            ParseOp::RunZigzag64 => self.values.run::<Zigzag64>(entry.seen(present), level, at).into(),
            ParseOp::RunBool => self.values.run::<Bool>(entry.seen(present), level, at).into(),
            ParseOp::RunFixed32 => self.values.run::<Fixed32>(entry.seen(present), level, at).into(),
            ParseOp::RunFixed64 => self.values.run::<Fixed64>(entry.seen(present), level, at).into(),
            ParseOp::RunClosedEnum => self.values.run_closed_enum(entry.seen(present), level, at).into(),
            ParseOp::RunBytes => self.values.run_strings::<false>(entry.seen(present), level, at).into(),
            ParseOp::RunText => self.values.run_strings::<true>(entry.seen(present), level, at).into(),
            ParseOp::RunMessage => self.run_messages(entry.seen(present), level, at).into(),
            ParseOp::RunGroup => self.one_group(entry.seen(present), level, at).into(),
            ParseOp::RunClosedEntry => self.one_closed_entry(entry.seen(present), level, at).into(),
            ParseOp::PackedVarint32 => self.values.packed::<Varint32>(entry.seen(present), level, at).into(),
            ParseOp::PackedVarint64 => self.values.packed::<Varint64>(entry.seen(present), level, at).into(),
            ParseOp::PackedZigzag32 => self.values.packed::<Zigzag32>(entry.seen(present), level, at).into(),
            ParseOp::PackedZigzag64 => self.values.packed::<Zigzag64>(entry.seen(present), level, at).into(),
            ParseOp::PackedBool => self.values.packed::<Bool>(entry.seen(present), level, at).into(),
            ParseOp::PackedFixed32 => {
                self.values.packed_fixed::<Fixed32>(entry.seen(present), level, at).into()
            }
            ParseOp::PackedFixed64 => {
                self.values.packed_fixed::<Fixed64>(entry.seen(present), level, at).into()
            }
            ParseOp::PackedClosedEnum => {
                self.values.packed_closed_enum(entry.seen(present), level, at).into()
            }
        }
    }

    /// The end of a group, or an end where none should be, or no end but a fault. The message starts at `at`.
    #[cold]
    #[inline(never)]
    fn odd_end(&mut self, level: Level, mut at: u32, next: Next) -> Next {
        match next.end_of_group() {
            _ if next == Next::FAILED => return next,
            Some(end) if level.is_group() => return Next::at(end),
            _ => (),
        }
        // Some value reached over the end. Which, nobody noted on the way.
        while at < level.end() {
            match self.values.reader.head(at).and_then(|head| self.values.reader.skip(head, level)) {
                Ok(end) => at = end,
                Err(halt) => return halt.into(),
            }
        }
        self.values.reader.fault(Kind::Truncated, at, 0).into()
    }

    /// A message field; a second occurrence is merged into the first.
    #[inline(always)]
    fn submessage(&mut self, entry: &ParseEntry, level: Level, head: Head<'_>, present: &mut u64) -> Next {
        let Ok((from, until)) = self.values.reader.delimited(head, level.end()) else { return Next::FAILED };
        let table = self.values.tables.child(entry);
        let Ok(block) = self.child_block(level.base + entry.slot, table.block_bytes) else {
            return Next::FAILED;
        };
        *present |= entry.presence();
        self.message(table, Level::new(block, until), from)
    }

    /// The block in a message slot, made if there is none.
    #[inline(always)]
    fn child_block(&mut self, slot: u32, bytes: u32) -> Result<u32, Halt> {
        let block = self.values.arena.word(slot);
        if block != 0 {
            return Ok(block);
        }
        let block = self.values.arena.block(bytes)?;
        self.values.arena.put(slot, block.to_le_bytes());
        Ok(block)
    }

    #[inline(never)]
    fn run_messages(&mut self, entry: &ParseEntry, level: Level, mut at: u32) -> Result<u32, Halt> {
        let table = self.values.tables.child(entry);
        let count = self.values.reader.count_run(at, level.end())?;
        let mut element = self.values.arena.reserve(level.base + entry.slot, OFFSET_BYTES, count)?;
        for _ in 0..count {
            let head = self.values.reader.head(at)?;
            let (from, until) = self.values.reader.delimited(head, level.end())?;
            let base = self.values.arena.block(table.block_bytes)?;
            self.values.arena.put(element, base.to_le_bytes());
            self.nested(table, Level::new(base, until), from)?;
            element += OFFSET_BYTES;
            at = until;
        }
        Ok(at)
    }

    /// One entry of a map to a closed enum. An entry whose value the enum does not have is unknown as a whole.
    #[inline(never)]
    fn one_closed_entry(&mut self, entry: &ParseEntry, level: Level, at: u32) -> Result<u32, Halt> {
        let head = self.values.reader.head(at)?;
        let (from, until) = self.values.reader.delimited(head, level.end())?;
        let table = self.values.tables.child(entry);
        let base = self.values.arena.block(table.block_bytes)?;
        self.nested(table, Level::new(base, until), from)?;
        // Values the enum lacks are in the entry's unknown bytes, and nothing else is.
        if self.values.arena.word(base) != 0 {
            if self.ends_with_stray(table, Level::new(base, until), from)? {
                self.values.keep(level, at, until)?;
                return Ok(until);
            }
            self.values.arena.put(base, [0; 4]);
        }
        let element = self.values.arena.reserve(level.base + entry.slot, OFFSET_BYTES, 1)?;
        self.values.arena.put(element, base.to_le_bytes());
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
            let head = self.values.reader.head(at)?;
            if head.tag == value.tag {
                stray =
                    head.varint().is_ok_and(|(number, _)| !self.values.tables.is_value(value, number as u32));
            }
            at = self.values.reader.skip(head, level)?;
        }
        Ok(stray)
    }

    fn nested(&mut self, table: &'a ParseTable, level: Level, at: u32) -> Result<u32, Halt> {
        self.message(table, level, at).into()
    }

    /// A singular group; a second occurrence is merged into the first.
    #[inline(never)]
    fn group(&mut self, entry: &ParseEntry, level: Level, at: u32) -> Result<u32, Halt> {
        let table = self.values.tables.child(entry);
        let base = self.child_block(level.base + entry.slot, table.block_bytes)?;
        self.group_at(table, base, level, at)
    }

    /// Groups are not counted ahead: to step over one takes as long as to read it, at every level again.
    #[inline(never)]
    fn one_group(&mut self, entry: &ParseEntry, level: Level, at: u32) -> Result<u32, Halt> {
        let table = self.values.tables.child(entry);
        let element = self.values.arena.reserve(level.base + entry.slot, OFFSET_BYTES, 1)?;
        let base = self.values.arena.block(table.block_bytes)?;
        self.values.arena.put(element, base.to_le_bytes());
        self.group_at(table, base, level, at)
    }

    /// Reads the group at `at` into the block at `base`.
    fn group_at(&mut self, table: &'a ParseTable, base: u32, level: Level, at: u32) -> Result<u32, Halt> {
        let head = self.values.reader.head(at)?;
        // The end tag has the start tag's number and wire type 4, the start tag's is 3.
        let outer = std::mem::replace(&mut self.values.reader.group_end, head.tag + 1);
        let end = self.message(table, level.group(base), head.value_at).into();
        self.values.reader.group_end = outer;
        end
    }

    /// Reads the field behind a detour.
    #[inline(always)]
    fn detour(&mut self, entry: &ParseEntry, level: Level, at: u32, present: &mut u64) -> Next {
        let (next, now_present) = self.detoured(entry, level, at, *present);
        *present = now_present;
        next
    }

    /// Returns where the field ended and the presence bits.
    #[inline(never)]
    fn detoured(&mut self, entry: &ParseEntry, level: Level, at: u32, mut present: u64) -> (Next, u64) {
        let detour = self.values.tables.detour(entry);
        let field = &detour.field;
        let Ok(head) = self.values.reader.head(at) else { return (Next::FAILED, present) };
        let op = field.op_for(head.tag);
        if op == ParseOp::Unknown || detour::is_stray_enum(self.values.tables, op, field, head) {
            return (self.values.unknown(level, at), present);
        }
        if !detour.rivals.is_empty() && !detour::is_set(&self.values.arena, detour.bit, level.base, present) {
            let rivals = self.values.tables.rivals(detour);
            present = detour::unset(&mut self.values.arena, (detour, rivals), level.base, present);
        }
        if detour.bit < REGISTER_BITS {
            present |= 1 << detour.bit;
        } else {
            let word_at = level.base + 4 + detour.bit / 32 * 4;
            let word = self.values.arena.word(word_at) | 1 << (detour.bit % 32);
            self.values.arena.put(word_at, word.to_le_bytes());
        }
        let next = self.field(op, field, level, at, head, &mut present);
        (next, present)
    }
}
