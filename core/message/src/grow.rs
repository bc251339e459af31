//! Setting repeated fields element by element, and bytes piece by piece.

use std::marker::PhantomData;

use crate::block::Block;
use crate::builder::{Builder, NOWHERE};
use crate::extent::Extent;
use crate::message::Message;
use crate::place::FieldAt;
use crate::run::Run;
use crate::scalar::Scalar;

impl<E: Extent> Block<'_, E> {
    /// Sets a bytes or string field piece by piece, each byte written once.
    pub fn bytes_writer(&mut self, field: FieldAt) -> BytesWriter<'_, E> {
        let at = self.builder.allocate(0, 1).unwrap_or(NOWHERE);
        self.put_pair(field, at, 0);
        let slot = self.within(field.slot());
        BytesWriter::new(self.builder, slot, at)
    }

    /// A repeated field of numbers, bools, strings (`T = str`) or bytes (`T = [u8]`), to push to.
    pub fn list<T: ?Sized + ListItem>(&mut self, field: FieldAt) -> ListBuilder<'_, E, T> {
        ListBuilder::new(self.run(field, T::BYTES, T::ALIGNMENT))
    }

    /// A repeated message field, or a map by its entries, to push to.
    pub fn messages<M: Message>(&mut self, field: FieldAt) -> MessagesBuilder<'_, E, M> {
        self.blocks(field, M::BLOCK_BYTES)
    }

    /// As [`Block::messages`], for messages of `block_bytes` of which no Rust type is known.
    pub fn blocks<M>(&mut self, field: FieldAt, block_bytes: u32) -> MessagesBuilder<'_, E, M> {
        let depth_left = self.depth_left;
        MessagesBuilder::new(self.run(field, 4, 4), depth_left, block_bytes)
    }
}

/// What a [`ListBuilder`] can hold: scalars, `str` and `[u8]`.
pub trait ListItem {
    /// Bytes of one element in the array itself.
    #[doc(hidden)]
    const BYTES: u32;
    /// Alignment of the array.
    #[doc(hidden)]
    const ALIGNMENT: u32;
}

impl<T: Scalar> ListItem for T {
    const BYTES: u32 = T::BYTES;
    const ALIGNMENT: u32 = T::BYTES;
}

impl ListItem for str {
    const BYTES: u32 = 8;
    const ALIGNMENT: u32 = 4;
}

impl ListItem for [u8] {
    const BYTES: u32 = 8;
    const ALIGNMENT: u32 = 4;
}

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
