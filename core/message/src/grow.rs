//! Setting repeated fields element by element, and bytes piece by piece.

use std::marker::PhantomData;
use std::ops::RangeInclusive;

use crate::block::{Block, NOWHERE, allocate_block};
use crate::builder::{Builder, Room};
use crate::extent::Extent;
use crate::message::Message;
use crate::scalar::Scalar;

/// Elements an array gets room for beyond the one that is pushed: as many as it has, within these bounds. Room that
/// stays unused travels with the message, so it is worth a few pushes' time and no more.
const SPARE_ELEMENTS: RangeInclusive<u32> = 3..=15;

/// A repeated field being pushed to. What is there already stays; what is pushed is in the message at once.
#[derive(Debug)]
pub struct ListBuilder<'b, E, T: ?Sized> {
    run: Run<'b, E>,
    of: PhantomData<fn(&T)>,
}

impl<'b, E: Extent, T: ?Sized> ListBuilder<'b, E, T> {
    pub(crate) fn new(run: Run<'b, E>) -> Self {
        Self { run, of: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.run.count as usize
    }

    /// Whether there is no element yet.
    pub fn is_empty(&self) -> bool {
        self.run.count == 0
    }

    /// Makes room for as many more elements at once.
    pub fn reserve(&mut self, elements: usize) {
        self.run.reserve(elements);
    }
}

impl<E: Extent, T: Scalar> ListBuilder<'_, E, T> {
    /// Appends an element.
    #[inline]
    pub fn push(&mut self, value: T) {
        if let Some(at) = self.run.next() {
            value.store(self.run.builder.bytes_mut(at, T::BYTES as usize));
        }
    }

    /// Appends elements.
    pub fn extend(&mut self, values: impl IntoIterator<Item = T>) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl<E: Extent> ListBuilder<'_, E, str> {
    /// Appends a string.
    pub fn push(&mut self, value: &str) {
        self.run.push_bytes(value.as_bytes());
    }

    /// Appends strings.
    pub fn extend(&mut self, values: impl IntoIterator<Item: AsRef<str>>) {
        values.into_iter().for_each(|value| self.push(value.as_ref()));
    }
}

impl<E: Extent> ListBuilder<'_, E, [u8]> {
    /// Appends bytes.
    pub fn push(&mut self, value: &[u8]) {
        self.run.push_bytes(value);
    }

    /// Appends bytes several times.
    pub fn extend(&mut self, values: impl IntoIterator<Item: AsRef<[u8]>>) {
        values.into_iter().for_each(|value| self.push(value.as_ref()));
    }
}

/// A repeated message field, or a map by its entries, being pushed to.
#[derive(Debug)]
pub struct MessagesBuilder<'b, E, M> {
    run: Run<'b, E>,
    depth_left: u32,
    block_bytes: u32,
    of: PhantomData<fn() -> M>,
}

impl<'b, E: Extent, M> MessagesBuilder<'b, E, M> {
    pub(crate) fn new(run: Run<'b, E>, depth_left: u32, block_bytes: u32) -> Self {
        Self { run, depth_left, block_bytes, of: PhantomData }
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.run.count as usize
    }

    /// Whether there is no message yet.
    pub fn is_empty(&self) -> bool {
        self.run.count == 0
    }

    /// Makes room for as many more elements at once.
    pub fn reserve(&mut self, messages: usize) {
        self.run.reserve(messages);
    }

    /// Appends an empty message and hands out its block.
    pub fn push_block(&mut self) -> Block<'_, E> {
        let at = self.run.push_block(self.depth_left, self.block_bytes);
        Block::new(self.run.builder, at, self.depth_left.saturating_sub(1))
    }

    /// Appends an empty message and hands out its block for as long as the field was lent.
    pub fn into_push_block(mut self) -> Block<'b, E> {
        let at = self.run.push_block(self.depth_left, self.block_bytes);
        Block::new(self.run.builder, at, self.depth_left.saturating_sub(1))
    }
}

impl<'b, E: Extent, M: Message> MessagesBuilder<'b, E, M> {
    /// Appends an empty message and hands out its builder.
    pub fn push(&mut self) -> M::Builder<'_, E> {
        self.push_block().into()
    }

    /// Appends an empty message and hands out its builder for as long as the field was lent.
    pub fn into_push(self) -> M::Builder<'b, E> {
        self.into_push_block().into()
    }

    /// Appends a copy of a message.
    pub fn push_owned(&mut self, message: &M) {
        message.write(self.push_block());
    }
}

/// Writes a bytes or string field piece by piece. Nothing else of the message can be touched meanwhile, so the bytes
/// are always the last ones and grow where they are.
#[derive(Debug)]
pub struct BytesWriter<'b, E> {
    builder: &'b mut Builder<E>,
    slot: usize,
    at: u32,
    length: usize,
}

impl<'b, E: Extent> BytesWriter<'b, E> {
    pub(crate) fn new(builder: &'b mut Builder<E>, slot: usize, at: u32) -> Self {
        Self { builder, slot, at, length: 0 }
    }

    /// Appends a piece.
    pub fn append(&mut self, piece: &[u8]) {
        if self.builder.append(piece, 1).is_some() {
            self.length += piece.len();
            self.builder.store_pair(self.slot, self.at, self.length as u32);
        }
    }
}

/// Never fails by itself: a message that grows too large is reported when it is finished.
impl<E: Extent> std::io::Write for BytesWriter<'_, E> {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.append(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An array that grows: at the end of the extent where it is, else by moving to the end with double the room.
#[derive(Debug)]
pub(crate) struct Run<'b, E> {
    builder: &'b mut Builder<E>,
    /// Where in the extent `{offset, count}` is kept.
    slot: usize,
    room: Room,
    count: u32,
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
    fn next(&mut self) -> Option<usize> {
        if self.count == self.room.capacity {
            self.grow(1, self.room.capacity.clamp(*SPARE_ELEMENTS.start(), *SPARE_ELEMENTS.end()))?;
        }
        let at = self.room.offset as usize + self.bytes(self.count);
        self.count += 1;
        self.builder.store_pair(self.slot, self.room.offset, self.count);
        Some(at)
    }

    fn push_bytes(&mut self, value: &[u8]) {
        let placed = if value.is_empty() { Some(0) } else { self.builder.append(value, 1) };
        if let (Some(placed), Some(at)) = (placed, self.next()) {
            self.builder.store_pair(at, placed, value.len() as u32);
        }
    }

    /// Appends an empty message; its offset, or [`NOWHERE`].
    pub(crate) fn push_block(&mut self, depth_left: u32, block_bytes: u32) -> u32 {
        match (allocate_block(self.builder, depth_left, block_bytes), self.next()) {
            (Some(block), Some(element)) => {
                self.builder.store(element, block.to_le_bytes());
                block
            }
            _ => NOWHERE,
        }
    }

    fn reserve(&mut self, elements: usize) {
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
