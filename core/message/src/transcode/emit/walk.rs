//! The emitter's loop.

use super::array::Array;
use super::build::EmitTables;
use super::output::{Free, put_bytes};
use super::table::{EmitEntry, EmitOp, EmitTable};
use super::value::*;
use crate::{CheckErrorKind as Kind, DEPTH_MAX, HEADER_BYTES, unknown};

/// Something is wrong; the emitter holds what.
pub(super) struct Halt;

/// What was found wrong, and where as far as is known.
struct Fault {
    kind: Kind,
    /// Offset in the extent.
    at: u32,
    /// Number of the field, 0 for the block itself.
    field: Option<u32>,
    /// Index of the message.
    message: Option<u32>,
}

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

/// The state that all levels of a message share.
pub(super) struct Emitter<'a> {
    pub extent: &'a [u8],
    pub tables: &'a EmitTables,
    /// Bytes that may still be visited. It starts as the extent's length, and every block, array and string is charged:
    /// so cycles end, and nothing is sent twice that was not there twice.
    budget: u32,
    fault: Option<Fault>,
}

/// Writes the message of table `root` to the end of `buffer`.
pub(in crate::transcode) fn emit(
    tables: &EmitTables,
    root: usize,
    extent: &[u8],
    buffer: &mut [u8],
) -> Outcome {
    let Some(table) = tables.messages.get(root) else { return Outcome::Full };
    let budget = extent.len().saturating_sub(HEADER_BYTES) as u32;
    let mut emitter = Emitter { extent, tables, budget, fault: None };
    let start = emitter.message(table, HEADER_BYTES as u32, DEPTH_MAX, buffer).len();
    match emitter.fault {
        Some(Fault { kind, at, field, message }) => {
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
    pub(super) fn message<'o>(
        &mut self,
        table: &'a EmitTable,
        base: u32,
        depth: u32,
        free: Free<'o>,
    ) -> Free<'o> {
        let Ok(block) = self.block(table, base) else { return &mut [] };
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
                    None => self.fault(Kind::NoSuchField, base, 0),
                };
            }
        }
        // Patched or not, a block says where its unknown fields are.
        let unknown_at = word(block, 0);
        if unknown_at != 0 {
            free = self.unknown(table, unknown_at, depth, free);
        }
        if free.is_empty() {
            self.blame(table);
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
            EmitOp::Uint32 => self.scalar::<Uint32>(entry, block, free),
            EmitOp::Int32 => self.scalar::<Int32>(entry, block, free),
            EmitOp::Varint64 => self.scalar::<Varint64>(entry, block, free),
            EmitOp::Zigzag32 => self.scalar::<Zigzag32>(entry, block, free),
            EmitOp::Zigzag64 => self.scalar::<Zigzag64>(entry, block, free),
            EmitOp::Bool => self.scalar::<Bool>(entry, block, free),
            EmitOp::Fixed32 => self.scalar::<Fixed32>(entry, block, free),
            EmitOp::Fixed64 => self.scalar::<Fixed64>(entry, block, free),
            EmitOp::ClosedEnum => self.closed_enum(entry, block, free),
            EmitOp::Bytes => self.string::<false>(entry, block, free),
            EmitOp::Text => self.string::<true>(entry, block, free),
            EmitOp::Message => self.submessage(table, entry, block, depth, free),
            EmitOp::Group => self.put_group(entry, word(block, entry.slot), depth, free),
            EmitOp::RunUint32 => self.run::<Uint32>(entry, Array::of(entry, block), free),
            EmitOp::RunInt32 => self.run::<Int32>(entry, Array::of(entry, block), free),
            EmitOp::RunVarint64 => self.run::<Varint64>(entry, Array::of(entry, block), free),
            EmitOp::RunZigzag32 => self.run::<Zigzag32>(entry, Array::of(entry, block), free),
            EmitOp::RunZigzag64 => self.run::<Zigzag64>(entry, Array::of(entry, block), free),
            EmitOp::RunBool => self.run::<Bool>(entry, Array::of(entry, block), free),
            EmitOp::RunFixed32 => self.run::<Fixed32>(entry, Array::of(entry, block), free),
            EmitOp::RunFixed64 => self.run::<Fixed64>(entry, Array::of(entry, block), free),
            EmitOp::RunClosedEnum => self.closed_enums::<false>(entry, Array::of(entry, block), free),
            EmitOp::RunBytes => self.run_strings::<false>(entry, Array::of(entry, block), free),
            EmitOp::RunText => self.run_strings::<true>(entry, Array::of(entry, block), free),
            EmitOp::RunMessage => self.run_messages(entry, Array::of(entry, block), depth, free),
            EmitOp::RunGroup => self.run_groups(entry, Array::of(entry, block), depth, free),
            EmitOp::PackedClosedEnum => self.closed_enums::<true>(entry, Array::of(entry, block), free),
            EmitOp::PackedUint32 => self.packed::<Uint32>(entry, Array::of(entry, block), free),
            EmitOp::PackedInt32 => self.packed::<Int32>(entry, Array::of(entry, block), free),
            EmitOp::PackedVarint64 => self.packed::<Varint64>(entry, Array::of(entry, block), free),
            EmitOp::PackedZigzag32 => self.packed::<Zigzag32>(entry, Array::of(entry, block), free),
            EmitOp::PackedZigzag64 => self.packed::<Zigzag64>(entry, Array::of(entry, block), free),
            EmitOp::PackedBool => self.packed::<Bool>(entry, Array::of(entry, block), free),
            EmitOp::PackedFixed32 => self.packed_fixed::<Fixed32>(entry, Array::of(entry, block), free),
            EmitOp::PackedFixed64 => self.packed_fixed::<Fixed64>(entry, Array::of(entry, block), free),
        }
    }

    /// The block at `base`, found to be in the extent, and charged.
    #[inline(always)]
    fn block(&mut self, table: &EmitTable, base: u32) -> Result<&'a [u8], Halt> {
        let bytes = table.block_bytes;
        let block = self.extent.get(base as usize..base as usize + bytes as usize);
        match (block, self.budget.checked_sub(bytes)) {
            (Some(block), Some(left)) if base.is_multiple_of(8) => {
                self.budget = left;
                Ok(block)
            }
            (Some(_), None) => Err(self.halt(Kind::Overlap, base)),
            (Some(_), _) => Err(self.halt(Kind::Misaligned, base)),
            (None, _) => Err(self.halt(Kind::OutOfBounds, base)),
        }
    }

    /// `count` elements of `size` bytes at `at`, found to be in the extent, and charged.
    #[inline(always)]
    pub(super) fn range(&mut self, at: u32, count: u32, size: u32, align: u32) -> Result<&'a [u8], Halt> {
        let bytes = u64::from(count) * u64::from(size);
        let range = self.extent.get(at as usize..at as usize + bytes as usize);
        match (range, u64::from(self.budget).checked_sub(bytes)) {
            (Some(range), Some(left)) if at.is_multiple_of(align) => {
                self.budget = left as u32;
                Ok(range)
            }
            _ => self.refused_range(at, bytes, align),
        }
    }

    /// What is wrong with a range. Where nothing lies is nobody's business: empty strings pass.
    #[cold]
    #[inline(never)]
    fn refused_range(&mut self, at: u32, bytes: u64, align: u32) -> Result<&'a [u8], Halt> {
        let outside = u64::from(at) + bytes > self.extent.len() as u64;
        let kind = match outside {
            _ if bytes == 0 => return Ok(&[]),
            true => Kind::OutOfBounds,
            false if !at.is_multiple_of(align) => Kind::Misaligned,
            false => Kind::Overlap,
        };
        Err(self.halt(kind, at))
    }

    /// Writes the unknown fields at `at`. Those of a map's entry stay behind: no reader keeps them, and some take such
    /// an entry for unknown as a whole.
    #[cold]
    #[inline(never)]
    fn unknown<'o>(&mut self, table: &EmitTable, at: u32, depth: u32, free: Free<'o>) -> Free<'o> {
        let Ok(len) = self.range(at, 1, 4, 4) else { return self.in_field(0) };
        let at = at + 4;
        let Ok(run) = self.range(at, word(len, 0), 1, 1) else { return self.in_field(0) };
        let schema = &self.tables.schema;
        let message = schema.messages().get(table.index as usize);
        match message.map_or(Ok(()), |message| unknown::examine(schema, message, run, depth)) {
            Err(flaw) => self.fault(flaw.kind, at + flaw.at, flaw.field),
            Ok(()) if table.forced != 0 => free,
            Ok(()) => put_bytes(free, run),
        }
    }

    #[inline(never)]
    fn check_oneofs<'o>(&mut self, table: &EmitTable, block: &[u8], base: u32, free: Free<'o>) -> Free<'o> {
        for oneof in &table.oneofs {
            let set = oneof.iter().filter(|&&bit| word(block, 4 + bit / 32 * 4) >> (bit % 32) & 1 != 0);
            if set.count() > 1 {
                return self.fault(Kind::Oneof, base, 0);
            }
        }
        free
    }

    /// Notes what is wrong in a field, unless something was before; nothing fits any more.
    #[cold]
    #[inline(never)]
    pub(super) fn fault<'o>(&mut self, kind: Kind, at: u32, field: u32) -> Free<'o> {
        self.fault.get_or_insert(Fault { kind, at, field: Some(field), message: None });
        &mut []
    }

    #[cold]
    #[inline(never)]
    fn halt(&mut self, kind: Kind, at: u32) -> Halt {
        self.fault.get_or_insert(Fault { kind, at, field: None, message: None });
        Halt
    }

    /// Adds the field to a fault that was found where it was not known.
    #[cold]
    #[inline(never)]
    pub(super) fn in_field<'o>(&mut self, field: u32) -> Free<'o> {
        if let Some(fault) = &mut self.fault {
            fault.field.get_or_insert(field);
        }
        &mut []
    }

    /// Adds the message to a fault whose field is known: the innermost level is the first to be asked.
    #[cold]
    #[inline(never)]
    fn blame(&mut self, table: &EmitTable) {
        if let Some(Fault { field: Some(_), message, .. }) = &mut self.fault {
            message.get_or_insert(table.index);
        }
    }
}

/// The word at `at` of a block; 0 out of range, which a slot never is.
#[inline(always)]
pub(super) fn word(block: &[u8], at: u32) -> u32 {
    match block.get(at as usize..at as usize + 4).map(TryInto::try_into) {
        Some(Ok(word)) => u32::from_le_bytes(word),
        _ => 0,
    }
}
