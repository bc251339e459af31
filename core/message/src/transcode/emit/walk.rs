//! The emitter's loop.

use super::array::Array;
use super::build::EmitTables;
use super::extent_reader::{EmitFault, ExtentReader, word};
use super::output::{Free, put_bytes, put_top, put_varint};
use super::table::{EmitEntry, EmitOp, EmitTable};
use super::value::*;
use crate::oneof::one_too_many;
use crate::{CheckErrorKind as Kind, DEPTH_MAX, HEADER_BYTES, unknown};

/// Bytes of an array element that is a message.
const OFFSET_BYTES: u32 = 4;
/// The presence bit of a map entry's value, which is field 2.
const ENTRY_VALUE_BIT: u32 = 2;

/// How an attempt at emitting ended.
pub(in crate::transcode) enum Outcome {
    /// The output starts here.
    Done(usize),
    /// The buffer is too small.
    Full,
    Fault {
        kind: Kind,
        at: u32,
        message: u32,
        field: u32,
    },
}

/// Walks the messages of an extent, one in the other. What is read, and all that nests no further, is
/// [`ExtentReader`]'s.
struct Emitter<'a> {
    reader: ExtentReader<'a>,
}

/// Writes the message of table `root` to the end of `buffer`.
pub(in crate::transcode) fn emit(
    tables: &EmitTables,
    root: usize,
    extent: &[u8],
    buffer: &mut [u8],
) -> Outcome {
    let Some(table) = tables.messages.get(root) else { return Outcome::Full };
    let mut emitter = Emitter { reader: ExtentReader::new(tables, extent) };
    let start = emitter.message(table, HEADER_BYTES as u32, DEPTH_MAX, buffer).len();
    match emitter.reader.fault {
        Some(EmitFault { kind, at, field, message }) => {
            Outcome::Fault { kind, at, message: message.unwrap_or(root as u32), field: field.unwrap_or(0) }
        }
        None if start == 0 => Outcome::Full,
        None => Outcome::Done(start),
    }
}

impl<'a> Emitter<'a> {
    /// Writes the fields of the block at `base`, last first; returns what is then free. The unknown fields come to
    /// stand in front of the known ones: readers let the last word count, and the known ones are what policies saw.
    #[inline(never)]
    fn message<'o>(&mut self, table: &'a EmitTable, base: u32, depth: u32, free: Free<'o>) -> Free<'o> {
        let Ok(block) = self.reader.block(table, base) else { return &mut [] };
        let mut free = free;
        let patched;
        let mut block = block;
        if !table.is_plain {
            free = self.check_oneofs(table, block, base, free);
            if table.forced & !word(block, 4) != 0 {
                patched = table.with_defaults(block);
                block = &patched;
            }
        }
        let mut first = table.presence_words * 32;
        while first > 0 {
            first -= 32;
            let mut present = word(block, 4 + first / 8) | table.forced;
            while present != 0 {
                let bit = 31 - present.leading_zeros();
                present &= !(1 << bit);
                free = match table.entries.get((first + bit) as usize) {
                    Some(entry) => self.field(table, entry, block, depth, free),
                    None => self.reader.fault(Kind::NoSuchField, base, 0),
                };
            }
        }
        // Patched or not, a block says where its unknown fields are.
        let unknown_at = word(block, 0);
        if unknown_at != 0 {
            free = self.unknown(table, unknown_at, depth, free);
        }
        if free.is_empty() {
            self.reader.blame(table);
        }
        free
    }

    /// Writes one field; returns what is then free.
    ///
    /// As in the parser, what is called here and not inlined takes words only.
    #[inline(always)]
    fn field<'o>(
        &mut self,
        table: &EmitTable,
        entry: &EmitEntry,
        block: &[u8],
        depth: u32,
        free: Free<'o>,
    ) -> Free<'o> {
        match entry.op {
            EmitOp::Uint32 => self.reader.scalar::<Uint32>(entry, block, free),
            EmitOp::Int32 => self.reader.scalar::<Int32>(entry, block, free),
            EmitOp::Varint64 => self.reader.scalar::<Varint64>(entry, block, free),
            EmitOp::Zigzag32 => self.reader.scalar::<Zigzag32>(entry, block, free),
            EmitOp::Zigzag64 => self.reader.scalar::<Zigzag64>(entry, block, free),
            EmitOp::Bool => self.reader.scalar::<Bool>(entry, block, free),
            EmitOp::Fixed32 => self.reader.scalar::<Fixed32>(entry, block, free),
            EmitOp::Fixed64 => self.reader.scalar::<Fixed64>(entry, block, free),
            EmitOp::ClosedEnum => self.reader.closed_enum(entry, block, free),
            EmitOp::Bytes => self.reader.string::<false>(entry, block, free),
            EmitOp::Text => self.reader.string::<true>(entry, block, free),
            EmitOp::Message => self.submessage(table, entry, block, depth, free),
            EmitOp::Group => self.put_group(entry, word(block, entry.slot), depth, free),
            EmitOp::RunUint32 => self.reader.run::<Uint32>(entry, Array::of(entry, block), free),
            EmitOp::RunInt32 => self.reader.run::<Int32>(entry, Array::of(entry, block), free),
            EmitOp::RunVarint64 => self.reader.run::<Varint64>(entry, Array::of(entry, block), free),
            EmitOp::RunZigzag32 => self.reader.run::<Zigzag32>(entry, Array::of(entry, block), free),
            EmitOp::RunZigzag64 => self.reader.run::<Zigzag64>(entry, Array::of(entry, block), free),
            EmitOp::RunBool => self.reader.run::<Bool>(entry, Array::of(entry, block), free),
            EmitOp::RunFixed32 => self.reader.run::<Fixed32>(entry, Array::of(entry, block), free),
            EmitOp::RunFixed64 => self.reader.run::<Fixed64>(entry, Array::of(entry, block), free),
            EmitOp::RunClosedEnum => self.reader.closed_enums::<false>(entry, Array::of(entry, block), free),
            EmitOp::RunBytes => self.reader.run_strings::<false>(entry, Array::of(entry, block), free),
            EmitOp::RunText => self.reader.run_strings::<true>(entry, Array::of(entry, block), free),
            EmitOp::RunMessage => self.run_messages(entry, Array::of(entry, block), depth, free),
            EmitOp::RunGroup => self.run_groups(entry, Array::of(entry, block), depth, free),
            EmitOp::PackedClosedEnum => {
                self.reader.closed_enums::<true>(entry, Array::of(entry, block), free)
            }
            EmitOp::PackedUint32 => self.reader.packed::<Uint32>(entry, Array::of(entry, block), free),
            EmitOp::PackedInt32 => self.reader.packed::<Int32>(entry, Array::of(entry, block), free),
            EmitOp::PackedVarint64 => self.reader.packed::<Varint64>(entry, Array::of(entry, block), free),
            EmitOp::PackedZigzag32 => self.reader.packed::<Zigzag32>(entry, Array::of(entry, block), free),
            EmitOp::PackedZigzag64 => self.reader.packed::<Zigzag64>(entry, Array::of(entry, block), free),
            EmitOp::PackedBool => self.reader.packed::<Bool>(entry, Array::of(entry, block), free),
            EmitOp::PackedFixed32 => {
                self.reader.packed_fixed::<Fixed32>(entry, Array::of(entry, block), free)
            }
            EmitOp::PackedFixed64 => {
                self.reader.packed_fixed::<Fixed64>(entry, Array::of(entry, block), free)
            }
        }
    }

    #[inline(always)]
    fn submessage<'o>(
        &mut self,
        table: &EmitTable,
        entry: &EmitEntry,
        block: &[u8],
        depth: u32,
        free: Free<'o>,
    ) -> Free<'o> {
        match word(block, entry.slot) {
            0 => self.no_block(table, entry, block, free),
            at => self.put_message(entry, at, depth, free),
        }
    }

    /// A map entry's value is sent even if it is not there, as an empty message. Any other message has to have a
    /// block.
    #[cold]
    #[inline(never)]
    fn no_block<'o>(
        &mut self,
        table: &EmitTable,
        entry: &EmitEntry,
        block: &[u8],
        free: Free<'o>,
    ) -> Free<'o> {
        if table.forced & !word(block, 4) & ENTRY_VALUE_BIT != 0 {
            return put_varint(free, 0, entry.tag);
        }
        self.no_message(0, entry)
    }

    /// Writes a tag, a length and the message at `at`.
    #[inline(always)]
    fn put_message<'o>(&mut self, entry: &EmitEntry, at: u32, depth: u32, free: Free<'o>) -> Free<'o> {
        if at == 0 || depth == 0 {
            return self.no_message(at, entry);
        }
        let end = free.len();
        let free = self.message(self.reader.tables.child(entry), at, depth - 1, free);
        if free.is_empty() {
            return self.reader.in_field(entry.number);
        }
        let len = end - free.len();
        put_varint(free, len as u64, entry.tag)
    }

    /// Writes the message at `at` between a start tag and an end tag.
    #[inline(never)]
    fn put_group<'o>(&mut self, entry: &EmitEntry, at: u32, depth: u32, free: Free<'o>) -> Free<'o> {
        if at == 0 || depth == 0 {
            return self.no_message(at, entry);
        }
        let tag = entry.tag;
        // The end tag differs from the start tag in its wire type only: 4 for 3, in the tag's first byte.
        let end_tag = tag.top + (1 << (64 - 8 * tag.bytes()));
        let free = put_top(free, end_tag, tag.bytes());
        let free = self.message(self.reader.tables.child(entry), at, depth - 1, free);
        if free.is_empty() {
            return self.reader.in_field(entry.number);
        }
        put_top(free, tag.top, tag.bytes())
    }

    #[cold]
    #[inline(never)]
    fn no_message<'o>(&mut self, at: u32, entry: &EmitEntry) -> Free<'o> {
        self.reader.fault(if at == 0 { Kind::Null } else { Kind::Depth }, at, entry.number)
    }

    #[inline(never)]
    fn run_messages<'o>(&mut self, entry: &EmitEntry, array: Array, depth: u32, free: Free<'o>) -> Free<'o> {
        let mut free = free;
        let Ok(elements) = self.reader.elements(array, OFFSET_BYTES, 4) else {
            return self.reader.in_field(entry.number);
        };
        for element in elements.chunks_exact(OFFSET_BYTES as usize).rev() {
            free = self.put_message(entry, word(element, 0), depth, free);
        }
        free
    }

    #[inline(never)]
    fn run_groups<'o>(&mut self, entry: &EmitEntry, array: Array, depth: u32, free: Free<'o>) -> Free<'o> {
        let mut free = free;
        let Ok(elements) = self.reader.elements(array, OFFSET_BYTES, 4) else {
            return self.reader.in_field(entry.number);
        };
        for element in elements.chunks_exact(OFFSET_BYTES as usize).rev() {
            free = self.put_group(entry, word(element, 0), depth, free);
        }
        free
    }

    /// Writes the unknown fields at `at`. Those of a map's entry stay behind: no reader keeps them, and some take such
    /// an entry for unknown as a whole.
    #[cold]
    #[inline(never)]
    fn unknown<'o>(&mut self, table: &EmitTable, at: u32, depth: u32, free: Free<'o>) -> Free<'o> {
        let Ok(len) = self.reader.range(at, 1, 4, 4) else { return self.reader.in_field(0) };
        let at = at + 4;
        let Ok(run) = self.reader.range(at, word(len, 0), 1, 1) else { return self.reader.in_field(0) };
        let schema = &self.reader.tables.schema;
        let message = schema.messages().get(table.index as usize);
        match message.map_or(Ok(()), |message| unknown::examine(schema, message, run, depth)) {
            Err(flaw) => self.reader.fault(flaw.kind, at + flaw.at, flaw.field),
            Ok(()) if table.forced != 0 => free,
            Ok(()) => put_bytes(free, run),
        }
    }

    #[inline(never)]
    fn check_oneofs<'o>(&mut self, table: &EmitTable, block: &[u8], base: u32, free: Free<'o>) -> Free<'o> {
        match one_too_many(block, &table.oneofs) {
            None => free,
            Some(bit) => {
                let number = table.entries.get(bit as usize).map_or(0, |entry| entry.number);
                self.reader.fault(Kind::Oneof, base, number)
            }
        }
    }
}
