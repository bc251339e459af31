//! Where each field lies in its message's block: `docs/linear.md`, "Blocks".
//!
//! A layout follows from numbers, kinds, cardinalities and oneofs alone, so two ends that agree on those agree on
//! every offset without exchanging one.

use crate::kind::Kind;

/// The layout of one message type's block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Size of the block, a multiple of 8.
    pub block_bytes: u32,
    /// 32-bit presence words, at byte 4 of the block.
    pub presence_words: u32,
    /// What lies in each field's slot, by presence bit: the fields' layout facts without their names.
    pub slots: Vec<Slot>,
    /// What each presence word's bits mean.
    pub words: Vec<PresenceWord>,
    /// The presence bits of each oneof, for the rule that at most one is set.
    pub oneofs: Vec<OneofMask>,
}

/// The meaning of one presence word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceWord {
    /// Bits that belong to fields.
    pub defined: u32,
    /// Bits of fields whose slot a check has to look into.
    pub checked: u32,
}

/// One field's place in the block, 12 bytes so that a check's table stays in few cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Byte offset from the start of the block.
    pub offset: u32,
    /// Index of the type: of messages, among the schema's messages; of closed enums, among its enums. Meaningless in
    /// other forms.
    pub type_index: u32,
    /// What lies there.
    pub form: Form,
}

/// The shape of what a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// A bool in the slot itself.
    Scalar1,
    /// A four-byte scalar in the slot itself.
    Scalar4,
    /// An eight-byte scalar in the slot itself.
    Scalar8,
    /// `{offset, length}` of bytes, or of a string whose UTF-8 nobody verifies.
    Bytes,
    /// `{offset, length}` of bytes that must be UTF-8.
    Text,
    /// A number that its closed enum has.
    ClosedEnum,
    /// Offset of a block.
    Message,
    /// `{offset, count}` of bools.
    Array1,
    /// `{offset, count}` of four-byte scalars.
    Array4,
    /// `{offset, count}` of eight-byte scalars.
    Array8,
    /// `{offset, count}` of `{offset, length}` pairs.
    BytesArray,
    /// `{offset, count}` of `{offset, length}` pairs, each of which must be UTF-8.
    TextArray,
    /// `{offset, count}` of numbers that their closed enum has.
    ClosedEnumArray,
    /// `{offset, count}` of block offsets.
    MessageArray,
}

impl Form {
    /// The form of a field's slot. `strict`: not everything that fits the slot is a value, because the string must be
    /// UTF-8 or the enum is closed.
    pub fn of(kind: Kind, repeated: bool, strict: bool) -> Self {
        match (kind, kind.size_bytes(), repeated) {
            (Kind::String, _, false) if strict => Self::Text,
            (Kind::String, _, true) if strict => Self::TextArray,
            (Kind::Enum, _, false) if strict => Self::ClosedEnum,
            (Kind::Enum, _, true) if strict => Self::ClosedEnumArray,
            (Kind::String | Kind::Bytes, _, false) => Self::Bytes,
            (Kind::String | Kind::Bytes, _, true) => Self::BytesArray,
            (Kind::Message, _, false) => Self::Message,
            (Kind::Message, _, true) => Self::MessageArray,
            (_, 1, false) => Self::Scalar1,
            (_, 4, false) => Self::Scalar4,
            (_, _, false) => Self::Scalar8,
            (_, 1, true) => Self::Array1,
            (_, 4, true) => Self::Array4,
            (_, _, true) => Self::Array8,
        }
    }

    /// Bytes of the slot.
    pub fn slot_bytes(self) -> u32 {
        match self {
            Self::Scalar1 => 1,
            Self::Scalar4 | Self::ClosedEnum | Self::Message => 4,
            _ => 8,
        }
    }

    /// A check has to look into the slot: it leads to bytes outside the block, or not every number in it is a value.
    pub fn is_checked(self) -> bool {
        !matches!(self, Self::Scalar1 | Self::Scalar4 | Self::Scalar8)
    }
}

/// The members of a oneof within one presence word. A oneof spread over several words has several of these in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneofMask {
    /// Presence word.
    pub word: u32,
    /// The members' bits in it.
    pub mask: u32,
    /// The first word of its oneof.
    pub first: bool,
}
