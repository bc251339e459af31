//! An array that grows under construction.

use std::ops::RangeInclusive;

use crate::builder::{Builder, NOWHERE, Room};
use crate::extent::Extent;

/// Elements an array gets room for beyond the one that is pushed: as many as it has, within these bounds. Room that
/// stays unused travels with the message, so it is worth a few pushes' time and no more.
const SPARE_ELEMENTS: RangeInclusive<u32> = 3..=15;

/// An array that grows: at the end of the extent where it is, else by moving to the end with double the room.
#[derive(Debug)]
pub(crate) struct Run<'b, E> {
    pub(crate) builder: &'b mut Builder<E>,
    /// Where in the extent `{offset, count}` is kept.
    slot: usize,
    room: Room,
    pub(crate) count: u32,
    element_bytes: u32,
    alignment: u32,
}

impl<'b, E: Extent> Run<'b, E> {
    pub(crate) fn open(builder: &'b mut Builder<E>, slot: usize, element_bytes: u32, alignment: u32) -> Self {
        let (room, count) = builder.room(slot);
        Self { builder, slot, room, count, element_bytes, alignment }
    }

    /// Room for one more element, counted in; its offset.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<usize> {
        if self.count == self.room.capacity {
            self.grow(1, self.room.capacity.clamp(*SPARE_ELEMENTS.start(), *SPARE_ELEMENTS.end()))?;
        }
        let at = self.room.offset as usize + self.bytes(self.count);
        self.count += 1;
        self.builder.store_pair(self.slot, self.room.offset, self.count);
        Some(at)
    }

    pub(crate) fn push_bytes(&mut self, value: &[u8]) {
        let placed = if value.is_empty() { Some(0) } else { self.builder.append(value, 1) };
        if let (Some(placed), Some(at)) = (placed, self.next()) {
            self.builder.store_pair(at, placed, value.len() as u32);
        }
    }

    /// Appends an empty message; its offset, or [`NOWHERE`].
    pub(crate) fn push_block(&mut self, depth_left: u32, block_bytes: u32) -> u32 {
        match (self.builder.allocate_block(depth_left, block_bytes), self.next()) {
            (Some(block), Some(element)) => {
                self.builder.store(element, block.to_le_bytes());
                block
            }
            _ => NOWHERE,
        }
    }

    pub(crate) fn reserve(&mut self, elements: usize) {
        let spare = (self.room.capacity - self.count) as usize;
        if elements > spare {
            let wanted = u32::try_from(elements - spare).unwrap_or(u32::MAX);
            let _ = self.grow(wanted, 0); // the builder remembers what went wrong
        }
    }

    /// Makes room for more elements and some to spare.
    fn grow(&mut self, elements: u32, spare: u32) -> Option<()> {
        let Room { offset, capacity } = self.room;
        let wanted = capacity.saturating_add(elements).saturating_add(spare);
        if capacity > 0 && self.builder.is_last(offset, self.bytes(capacity)) {
            self.builder.allocate_zeroed(self.bytes(wanted - capacity), 1)?;
            self.room.capacity = wanted;
        } else {
            let capacity = wanted.max(capacity.saturating_mul(2));
            let moved = self.builder.allocate_zeroed(self.bytes(capacity), self.alignment as usize)?;
            self.builder.copy_within(offset, moved, self.bytes(self.count));
            self.room = Room { offset: moved, capacity };
        }
        self.builder.note_room(self.slot, self.room);
        if self.count > 0 {
            self.builder.store_pair(self.slot, self.room.offset, self.count);
        }
        Some(())
    }

    fn bytes(&self, elements: u32) -> usize {
        elements as usize * self.element_bytes as usize
    }
}
