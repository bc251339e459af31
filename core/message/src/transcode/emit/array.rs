//! Repeated fields, written from the last element to the first.

use super::extent_reader::{ExtentReader, Halt, word};
use super::output::{Free, put_bytes, put_element, put_varint};
use super::table::{EmitEntry, Tag};
use super::value::*;

use crate::CheckErrorKind as Kind;

/// Bytes of an array element that is a string.
const STRING_BYTES: u32 = 8;

/// The slot of a repeated field.
#[derive(Clone, Copy)]
pub(super) struct Array {
    at: u32,
    count: u32,
}

impl Array {
    #[inline(always)]
    pub(super) fn of(entry: &EmitEntry, block: &[u8]) -> Self {
        Array { at: word(block, entry.slot), count: word(block, entry.slot + 4) }
    }
}

impl<'a> ExtentReader<'a> {
    #[inline(never)]
    pub(super) fn run<'o, S: Scalar>(&mut self, entry: &EmitEntry, array: Array, free: Free<'o>) -> Free<'o> {
        let mut free = free;
        let tag = entry.tag;
        let Ok(elements) = self.elements(array, S::BYTES, S::BYTES) else {
            return self.in_field(entry.number);
        };
        for element in elements.chunks_exact(S::BYTES as usize).rev() {
            let stored = load::<S>(element, 0);
            free = match S::FIXED {
                true => put_scalar::<S>(free, tag, stored),
                false => put_element(free, S::to_wire(stored), tag),
            };
        }
        free
    }

    /// Numbers of a closed enum, packed or not.
    #[inline(never)]
    pub(super) fn closed_enums<'o, const PACKED: bool>(
        &mut self,
        entry: &EmitEntry,
        array: Array,
        free: Free<'o>,
    ) -> Free<'o> {
        let numbers = self.extent.get(array.at as usize..).unwrap_or_default().chunks_exact(4);
        let stray = |number: &[u8]| !self.tables.declares(entry, word(number, 0));
        // Out of bounds is found by whoever writes them.
        if let Some(index) = numbers.take(array.count as usize).position(stray) {
            return self.fault(Kind::Enum, array.at.saturating_add(4 * index as u32), entry.number);
        }
        match PACKED {
            true => self.packed::<Int32>(entry, array, free),
            false => self.run::<Int32>(entry, array, free),
        }
    }

    #[inline(never)]
    pub(super) fn packed<'o, S: Scalar>(
        &mut self,
        entry: &EmitEntry,
        array: Array,
        free: Free<'o>,
    ) -> Free<'o> {
        let end = free.len();
        let mut free = free;
        let Ok(elements) = self.elements(array, S::BYTES, S::BYTES) else {
            return self.in_field(entry.number);
        };
        for element in elements.chunks_exact(S::BYTES as usize).rev() {
            free = put_element(free, S::to_wire(load::<S>(element, 0)), Tag::NONE);
        }
        match end - free.len() {
            0 => free,
            len => put_varint(free, len as u64, entry.tag),
        }
    }

    #[inline(never)]
    pub(super) fn packed_fixed<'o, S: Scalar>(
        &mut self,
        entry: &EmitEntry,
        array: Array,
        free: Free<'o>,
    ) -> Free<'o> {
        let Ok(elements) = self.elements(array, S::BYTES, S::BYTES) else {
            return self.in_field(entry.number);
        };
        if elements.is_empty() {
            return free;
        }
        let free = put_bytes(free, elements);
        put_varint(free, elements.len() as u64, entry.tag)
    }

    #[inline(never)]
    pub(super) fn run_strings<'o, const TEXT: bool>(
        &mut self,
        entry: &EmitEntry,
        array: Array,
        free: Free<'o>,
    ) -> Free<'o> {
        let mut free = free;
        let Ok(elements) = self.elements(array, STRING_BYTES, 4) else { return self.in_field(entry.number) };
        for element in elements.chunks_exact(STRING_BYTES as usize).rev() {
            free = self.put_string::<TEXT>(entry, word(element, 0), word(element, 4), free);
        }
        free
    }

    #[inline(always)]
    pub(super) fn elements(&mut self, array: Array, bytes: u32, align: u32) -> Result<&'a [u8], Halt> {
        self.range(array.at, array.count, bytes, align)
    }
}
