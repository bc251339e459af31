//! The parser's loop.

use super::arena::Arena;
use super::build::ParseTables;
use super::level::{Fault, Halt, Level, Next};
use super::scalar::*;
use super::table::{ParseEntry, ParseOp, ParseTable};
use super::wire::{Head, Tail, Wire};
use crate::transcode::error::DecodeErrorKind as Kind;
use crate::transcode::varint::{Overlong, varint};

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

/// The state that all levels of a message share.
pub(super) struct Parser<'a> {
    pub wire: Wire<'a>,
    pub tables: &'a ParseTables,
    pub arena: Arena<'a>,
    /// The tag that ends the innermost group.
    pub group_end: u32,
    /// Levels that may still be opened below this one.
    pub levels_left: u32,
    fault: Option<Fault>,
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
    let wire = Wire::new(wire, &tail);
    let mut parser = Parser {
        wire,
        tables,
        arena: Arena::new(buffer, root_at),
        group_end: 0,
        levels_left: depth_max,
        fault: None,
    };
    match parser.root(root) {
        Ok(len) => Outcome::Done(len),
        Err(Halt) => match parser.fault {
            Some(Fault { kind, at, tag, message }) => {
                Outcome::Fault { kind, at, tag, message: message.unwrap_or(root as u32) }
            }
            None => Outcome::Full,
        },
    }
}

impl<'a> Parser<'a> {
    fn root(&mut self, root: usize) -> Result<u32, Halt> {
        let Some(table) = self.tables.messages.get(root) else { return Err(Halt) };
        let base = self.arena.block(table.block_bytes)?;
        let level = Level::new(base, self.wire.len());
        if self.fields(table, level, 0) == Next::FAILED {
            self.blame(table);
            return Err(Halt);
        }
        let end = self.arena.aligned_top();
        self.arena.raise(end)?;
        Ok(end)
    }

    /// Reads a message or group that stands in another one: the fields from `at` to the end of `level` into its block,
    /// which is new and zero, or holds what an earlier occurrence of the same message left there.
    #[inline(always)]
    pub(super) fn message(&mut self, table: &'a ParseTable, level: Level, at: u32) -> Next {
        if self.levels_left == 0 {
            return self.fault(Kind::Depth, at, 0).into();
        }
        self.levels_left -= 1;
        let end = self.fields(table, level, at);
        self.levels_left += 1;
        if end == Next::FAILED {
            self.blame(table);
        }
        end
    }

    #[inline(never)]
    fn fields(&mut self, table: &'a ParseTable, level: Level, at: u32) -> Next {
        let mut present = 0;
        let mut next = Next::at(at);
        while let Some(at) = next.before(level.end()) {
            next = match self.head(at) {
                Ok(head) => {
                    let entry = table.find(head.tag >> 3);
                    self.field(entry.op_for(head.tag), entry, level, at, head, &mut present)
                }
                Err(halt) => halt.into(),
            };
        }
        self.arena.merge_presence(level.base, table.presence_words, present);
        if next.is_end_of(level) { next } else { self.odd_end(level, at, next) }
    }

    /// Does `op`; returns where the field, or the run of fields, ended.
    ///
    /// What is called here and not inlined takes words only: a struct handed over by reference would live in memory,
    /// and be written there for every field.
    #[inline(always)]
    pub(super) fn field(
        &mut self,
        op: ParseOp,
        entry: &ParseEntry,
        level: Level,
        at: u32,
        head: Head<'_>,
        present: &mut u64,
    ) -> Next {
        match op {
            ParseOp::Unknown => self.unknown(level, at),
            ParseOp::Dropped => self.dropped(level, at),
            ParseOp::Detour => self.detour(entry, level, at, present),
            ParseOp::Varint32 => self.scalar::<Varint32>(entry, level, head, present),
            ParseOp::Varint64 => self.scalar::<Varint64>(entry, level, head, present),
            ParseOp::Zigzag32 => self.scalar::<Zigzag32>(entry, level, head, present),
            ParseOp::Zigzag64 => self.scalar::<Zigzag64>(entry, level, head, present),
            ParseOp::Bool => self.scalar::<Bool>(entry, level, head, present),
            ParseOp::Fixed32 => self.scalar::<Fixed32>(entry, level, head, present),
            ParseOp::Fixed64 => self.scalar::<Fixed64>(entry, level, head, present),
            ParseOp::ClosedEnum => self.closed_enum(entry, level, at, head, present),
            ParseOp::Bytes => self.string::<false>(entry, level, head, present),
            ParseOp::Text => self.string::<true>(entry, level, head, present),
            ParseOp::Message => self.submessage(entry, level, head, present),
            ParseOp::Group => self.group(entry.seen(present), level, at).into(),
            ParseOp::RunVarint32 => self.run::<Varint32>(entry.seen(present), level, at).into(),
            ParseOp::RunVarint64 => self.run::<Varint64>(entry.seen(present), level, at).into(),
            ParseOp::RunZigzag32 => self.run::<Zigzag32>(entry.seen(present), level, at).into(),
            ParseOp::RunZigzag64 => self.run::<Zigzag64>(entry.seen(present), level, at).into(),
            ParseOp::RunBool => self.run::<Bool>(entry.seen(present), level, at).into(),
            ParseOp::RunFixed32 => self.run::<Fixed32>(entry.seen(present), level, at).into(),
            ParseOp::RunFixed64 => self.run::<Fixed64>(entry.seen(present), level, at).into(),
            ParseOp::RunClosedEnum => self.run_closed_enum(entry.seen(present), level, at).into(),
            ParseOp::RunBytes => self.run_strings::<false>(entry.seen(present), level, at).into(),
            ParseOp::RunText => self.run_strings::<true>(entry.seen(present), level, at).into(),
            ParseOp::RunMessage => self.run_messages(entry.seen(present), level, at).into(),
            ParseOp::RunGroup => self.one_group(entry.seen(present), level, at).into(),
            ParseOp::RunClosedEntry => self.one_closed_entry(entry.seen(present), level, at).into(),
            ParseOp::PackedVarint32 => self.packed::<Varint32>(entry.seen(present), level, at).into(),
            ParseOp::PackedVarint64 => self.packed::<Varint64>(entry.seen(present), level, at).into(),
            ParseOp::PackedZigzag32 => self.packed::<Zigzag32>(entry.seen(present), level, at).into(),
            ParseOp::PackedZigzag64 => self.packed::<Zigzag64>(entry.seen(present), level, at).into(),
            ParseOp::PackedBool => self.packed::<Bool>(entry.seen(present), level, at).into(),
            ParseOp::PackedFixed32 => self.packed_fixed::<Fixed32>(entry.seen(present), level, at).into(),
            ParseOp::PackedFixed64 => self.packed_fixed::<Fixed64>(entry.seen(present), level, at).into(),
            ParseOp::PackedClosedEnum => self.packed_closed_enum(entry.seen(present), level, at).into(),
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
            match self.head(at).and_then(|head| self.skip(head, level)) {
                Ok(end) => at = end,
                Err(halt) => return halt.into(),
            }
        }
        self.fault(Kind::Truncated, at, 0).into()
    }

    /// The head of the field at `at`.
    #[inline(always)]
    pub(super) fn head(&mut self, at: u32) -> Result<Head<'a>, Halt> {
        let window = self.wire.window(at);
        let [first, second, ..] = *window;
        if first < 0x80 {
            return Ok(Head { window, tag: u32::from(first), value_at: at + 1 });
        }
        if second < 0x80 {
            let tag = u32::from(first & 0x7f) | u32::from(second) << 7;
            return Ok(Head { window: self.wire.window(at + 1), tag, value_at: at + 2 });
        }
        let (tag, value_at) = self.long_tag(at)?;
        Ok(Head { window: self.wire.window(value_at - 1), tag, value_at })
    }

    /// The tag at `at`, whatever its length, and where the value starts.
    #[inline(never)]
    fn long_tag(&mut self, at: u32) -> Result<(u32, u32), Halt> {
        match varint(self.wire.window(at), 0) {
            Ok((tag, n @ ..=5)) if tag <= u64::from(u32::MAX) => Ok((tag as u32, at + n)),
            _ => Err(self.fault(Kind::VarintTooLong, at, 0)),
        }
    }

    /// The range of a length-delimited value.
    #[inline(always)]
    pub(super) fn delimited(&mut self, head: Head<'_>, end: u32) -> Result<(u32, u32), Halt> {
        let (len, n) = head.length().map_err(|o| self.overlong(o, head.value_at, head.tag))?;
        let from = head.value_at + n;
        let until = u64::from(from).saturating_add(len);
        if until > u64::from(end) {
            return Err(self.fault(Kind::Truncated, head.value_at, head.tag));
        }
        Ok((from, until as u32))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn overlong(&mut self, _: Overlong, at: u32, tag: u32) -> Halt {
        self.fault(Kind::VarintTooLong, at, tag)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn fault(&mut self, kind: Kind, at: u32, tag: u32) -> Halt {
        self.fault = Some(Fault { kind, at, tag, message: None });
        Halt
    }

    /// Adds the field to a fault that was found where it was not known.
    #[cold]
    #[inline(never)]
    pub(super) fn in_field(&mut self, at: u32, tag: u32) -> Halt {
        if let Some(fault) = &mut self.fault {
            (fault.at, fault.tag) = (at, tag);
        }
        Halt
    }

    /// Adds the message type to a fault that has none yet: the innermost level is the first to be asked.
    #[cold]
    #[inline(never)]
    fn blame(&mut self, table: &ParseTable) {
        if let Some(fault) = &mut self.fault {
            fault.message.get_or_insert(table.index);
        }
    }
}
