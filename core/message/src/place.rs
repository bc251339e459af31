//! Where in a block a field lies: what generated code holds one constant of per field.

use trunkline_schema::{Field, Oneof};

/// Messages within one another, below the root: what every protobuf library allows.
pub const DEPTH_MAX: u32 = 100;

/// A field's slot and presence bit. `From<&Field>` reads it off a schema; generated code writes it as a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldAt {
    slot: u32,
    word: u32,
    mask: u32,
}

impl FieldAt {
    /// The field whose slot is `slot` bytes into the block and whose presence bit is `presence_bit`.
    pub const fn new(slot: u32, presence_bit: u32) -> Self {
        Self { slot, word: 4 + 4 * (presence_bit / 32), mask: 1 << (presence_bit % 32) }
    }

    /// Byte offset of the slot within the block.
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// Byte offset of the presence word within the block.
    pub(crate) const fn word(self) -> u32 {
        self.word
    }

    /// The field's bit in its presence word.
    pub(crate) const fn mask(self) -> u32 {
        self.mask
    }
}

impl From<&Field> for FieldAt {
    fn from(field: &Field) -> Self {
        Self::new(field.slot, field.presence_bit)
    }
}

/// A oneof's shared slot and its members' presence bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneofAt<'m> {
    slot: u32,
    slot_bytes: u32,
    presence_bits: &'m [u32],
}

impl<'m> OneofAt<'m> {
    /// The oneof whose members share `slot_bytes` bytes at `slot` and have these presence bits.
    pub const fn new(slot: u32, slot_bytes: u32, presence_bits: &'m [u32]) -> Self {
        Self { slot, slot_bytes, presence_bits }
    }

    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }

    pub(crate) const fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    pub(crate) fn members(self) -> impl Iterator<Item = FieldAt> + 'm {
        self.presence_bits.iter().map(move |&bit| FieldAt::new(self.slot, bit))
    }
}

impl<'m> From<&'m Oneof> for OneofAt<'m> {
    fn from(oneof: &'m Oneof) -> Self {
        // A field's index in its message is its presence bit.
        Self::new(oneof.slot, oneof.slot_bytes, &oneof.fields)
    }
}
