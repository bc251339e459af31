//! What is read: an extent nobody has checked, charged as it is visited, and what was found wrong with it.

use super::build::EmitTables;
use super::output::Free;
use super::table::EmitTable;
use crate::{CheckErrorKind as Kind, HEADER_BYTES};

/// Something is wrong; the reader holds what.
pub(super) struct Halt;

/// What was found wrong, and where as far as is known.
pub(super) struct EmitFault {
    pub kind: Kind,
    /// Offset in the extent.
    pub at: u32,
    /// Number of the field, 0 for the block itself.
    pub field: Option<u32>,
    /// Index of the message.
    pub message: Option<u32>,
}

/// The extent, and the state that all levels of a message share.
pub(super) struct ExtentReader<'a> {
    pub extent: &'a [u8],
    pub tables: &'a EmitTables,
    /// Bytes that may still be visited. It starts as the extent's length, and every block, array and string is charged:
    /// so cycles end, and nothing is sent twice that was not there twice.
    budget: u32,
    pub fault: Option<EmitFault>,
}

impl<'a> ExtentReader<'a> {
    pub(super) fn new(tables: &'a EmitTables, extent: &'a [u8]) -> Self {
        let budget = extent.len().saturating_sub(HEADER_BYTES) as u32;
        ExtentReader { extent, tables, budget, fault: None }
    }

    /// The block at `base`, found to be in the extent, and charged.
    #[inline(always)]
    pub(super) fn block(&mut self, table: &EmitTable, base: u32) -> Result<&'a [u8], Halt> {
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

    /// Notes what is wrong in a field, unless something was before; nothing fits any more.
    #[cold]
    #[inline(never)]
    pub(super) fn fault<'o>(&mut self, kind: Kind, at: u32, field: u32) -> Free<'o> {
        self.fault.get_or_insert(EmitFault { kind, at, field: Some(field), message: None });
        &mut []
    }

    #[cold]
    #[inline(never)]
    fn halt(&mut self, kind: Kind, at: u32) -> Halt {
        self.fault.get_or_insert(EmitFault { kind, at, field: None, message: None });
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
    pub(super) fn blame(&mut self, table: &EmitTable) {
        if let Some(EmitFault { field: Some(_), message, .. }) = &mut self.fault {
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
