//! Setting the fields of one message under construction.

use crate::builder::{Builder, NOWHERE};
use crate::extent::Extent;
use crate::header::HEADER_BYTES;
use crate::place::{DEPTH_MAX, FieldAt, OneofAt};
use crate::run::Run;
use crate::scalar::Blittable;

/// One message within a [`Builder`]. Generated builders wrap it; every method takes the field's [`FieldAt`].
///
/// The caller vouches that place and type go together. If they do not, the message is garbage that a check refuses;
/// nothing worse.
#[derive(Debug)]
pub struct Block<'b, E> {
    pub(crate) builder: &'b mut Builder<E>,
    /// Offset of the block; `NOWHERE` if it could not be allocated, which makes every write go nowhere.
    at: u32,
    pub(crate) depth_left: u32,
}

impl<E: Extent> Builder<E> {
    /// The root message.
    pub fn root(&mut self) -> Block<'_, E> {
        Block::new(self, HEADER_BYTES as u32, DEPTH_MAX)
    }
}

impl<'b, E: Extent> Block<'b, E> {
    pub(crate) fn new(builder: &'b mut Builder<E>, at: u32, depth_left: u32) -> Self {
        Self { builder, at, depth_left }
    }

    /// The same message again, for a shorter time: lets a consuming method be called on a borrowed block.
    pub fn reborrow(&mut self) -> Block<'_, E> {
        Block { builder: self.builder, at: self.at, depth_left: self.depth_left }
    }

    /// Whether the field has been set.
    #[inline]
    pub fn has(&self, field: FieldAt) -> bool {
        self.builder.load_u32(self.within(field.word())) & field.mask() != 0
    }

    /// Makes the field absent. What it referred to stays behind unused.
    pub fn clear(&mut self, field: FieldAt) {
        let word = self.within(field.word());
        let bits = self.builder.load_u32(word) & !field.mask();
        self.builder.store(word, bits.to_le_bytes());
    }

    /// Makes `member` the only member of its oneof that may be present. To be called before `member` is set.
    pub fn switch(&mut self, oneof: OneofAt<'_>, member: FieldAt) {
        if self.has(member) {
            return;
        }
        for other in oneof.members() {
            self.clear(other);
        }
        // The next member may be narrower: leave nothing of the last one behind it.
        let slot = self.within(oneof.slot());
        self.builder.bytes_mut(slot, oneof.slot_bytes() as usize).fill(0);
    }

    /// Sets a bool field.
    #[inline]
    pub fn set_bool(&mut self, field: FieldAt, value: bool) {
        self.put(field, [u8::from(value)]);
    }

    /// Sets a string field.
    #[inline]
    pub fn set_str(&mut self, field: FieldAt, value: &str) {
        self.set_bytes(field, value.as_bytes());
    }

    /// Sets a bytes field, or a string field by its bytes.
    pub fn set_bytes(&mut self, field: FieldAt, value: &[u8]) {
        self.put_elements(field, value, value.len(), 1);
    }

    /// Sets a bytes field to `length` zeros and hands them out to be filled in place.
    pub fn fill_bytes(&mut self, field: FieldAt, length: usize) -> &mut [u8] {
        let at = self.place_zeroed(field, length, length, 1);
        self.builder.bytes_mut(at as usize, length)
    }

    /// A message field: the message it has, or a new, empty one of `block_bytes`.
    pub fn message(&mut self, field: FieldAt, block_bytes: u32) -> Block<'_, E> {
        self.reborrow().into_message(field, block_bytes)
    }

    /// As [`Block::message`], for as long as this block was lent.
    pub fn into_message(mut self, field: FieldAt, block_bytes: u32) -> Block<'b, E> {
        let at = if self.has(field) {
            self.builder.load_u32(self.within(field.slot()))
        } else {
            let below = self.builder.allocate_block(self.depth_left, block_bytes).unwrap_or(NOWHERE);
            self.put(field, below.to_le_bytes());
            below
        };
        Block { builder: self.builder, at, depth_left: self.depth_left.saturating_sub(1) }
    }

    /// Sets a repeated bool field.
    pub fn set_bools(&mut self, field: FieldAt, values: &[bool]) {
        self.put_elements(field, bytemuck::cast_slice(values), values.len(), 1);
    }

    /// Appends an empty message of `block_bytes` to a repeated message field. To push several,
    /// [`Block::blocks`] is quicker.
    pub fn push_block(&mut self, field: FieldAt, block_bytes: u32) -> Block<'_, E> {
        let depth_left = self.depth_left;
        let at = self.run(field, 4, 4).push_block(depth_left, block_bytes);
        Block::new(self.builder, at, depth_left.saturating_sub(1))
    }

    /// Sets the unknown fields, in wire form; replaces those set before. Only fields that the message's type does not
    /// declare belong here: a message with others in it is [refused](crate::CheckErrorKind::Declared) by the check.
    pub fn set_unknown(&mut self, wire: &[u8]) {
        let at = match self.builder.allocate(4 + wire.len(), 4) {
            Some(at) if !wire.is_empty() => at,
            _ => 0,
        };
        if at != 0 {
            self.builder.store(at as usize, (wire.len() as u32).to_le_bytes());
            self.builder.overwrite(at + 4, wire);
        }
        self.builder.store(self.within(0), at.to_le_bytes());
    }

    #[inline]
    pub(crate) fn within(&self, offset: u32) -> usize {
        self.at as usize + offset as usize
    }

    #[inline]
    fn put<const N: usize>(&mut self, field: FieldAt, value: [u8; N]) {
        let (slot, word) = (self.within(field.slot()), self.within(field.word()));
        self.builder.store_present(slot, value, word, field.mask());
    }

    pub(crate) fn put_pair(&mut self, field: FieldAt, offset: u32, count: usize) {
        self.put(field, crate::bytes::pair(offset, count as u32));
    }

    fn blit<T: Blittable>(&mut self, field: FieldAt, values: &[T]) {
        self.put_elements(field, bytemuck::cast_slice(values), values.len(), align_of::<T>());
    }

    /// Stores an array or string: over the old one if it is long enough, else at the end.
    fn put_elements(&mut self, field: FieldAt, bytes: &[u8], count: usize, alignment: usize) {
        if bytes.is_empty() {
            return self.put_pair(field, 0, 0);
        }
        if let Some(old) = self.reusable(field, bytes.len(), count) {
            self.builder.overwrite(old, bytes);
            return self.put_pair(field, old, count);
        }
        if let Some(at) = self.builder.append(bytes, alignment) {
            self.put_pair(field, at, count);
        }
    }

    fn place_zeroed(&mut self, field: FieldAt, length: usize, count: usize, alignment: usize) -> u32 {
        match self.builder.allocate_zeroed(length, alignment) {
            Some(at) => {
                self.put_pair(field, if length == 0 { 0 } else { at }, count);
                at
            }
            None => NOWHERE,
        }
    }

    /// The offset of the field's present array if `length` bytes fit over it; zeroes what they would leave over.
    fn reusable(&mut self, field: FieldAt, length: usize, count: usize) -> Option<u32> {
        if !self.has(field) {
            return None;
        }
        let (old, old_count) = self.builder.load_pair(self.within(field.slot()));
        let old_length = (length / count.max(1)).checked_mul(old_count as usize)?;
        let left_over = old_length.checked_sub(length)?;
        self.builder.bytes_mut(old as usize + length, left_over).fill(0);
        Some(old)
    }

    pub(crate) fn run(&mut self, field: FieldAt, element_bytes: u32, alignment: u32) -> Run<'_, E> {
        if !self.has(field) {
            self.put_pair(field, 0, 0);
        }
        let slot = self.within(field.slot());
        Run::open(self.builder, slot, element_bytes, alignment)
    }
}

/// Setters that differ in nothing but the type.
macro_rules! scalars {
    ($($one:ident, $many:ident, $fill:ident: $type:ty;)*) => {
        impl<E: Extent> Block<'_, E> {
            $(
                #[doc = concat!("Sets a `", stringify!($type), "` field.")]
                #[inline]
                pub fn $one(&mut self, field: FieldAt, value: $type) {
                    self.put(field, value.to_le_bytes());
                }

                #[doc = concat!("Sets a repeated `", stringify!($type), "` field.")]
                pub fn $many(&mut self, field: FieldAt, values: &[$type]) {
                    self.blit(field, values);
                }

                #[doc = concat!("Sets a repeated `", stringify!($type), "` field to `count` zeros and hands them ")]
                #[doc = "out to be filled in place. Empty if the builder has failed."]
                pub fn $fill(&mut self, field: FieldAt, count: usize) -> &mut [$type] {
                    let length = count.saturating_mul(size_of::<$type>());
                    let at = self.place_zeroed(field, length, count, size_of::<$type>());
                    bytemuck::try_cast_slice_mut(self.builder.bytes_mut(at as usize, length)).unwrap_or_default()
                }
            )*
        }
    };
}

scalars! {
    set_i32, set_i32s, fill_i32s: i32;
    set_u32, set_u32s, fill_u32s: u32;
    set_f32, set_f32s, fill_f32s: f32;
    set_i64, set_i64s, fill_i64s: i64;
    set_u64, set_u64s, fill_u64s: u64;
    set_f64, set_f64s, fill_f64s: f64;
}
