//! Where each field lies in its message's block: `docs/linear.md`, "Blocks".
//!
//! A layout follows from numbers, kinds, cardinalities and oneofs alone, so two ends that agree on those agree on
//! every offset without exchanging one.

use crate::limits::BLOCK_BYTES_MAX;
use crate::message::{Enum, EnumIndex, Field, Kind, Oneof};

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

impl Layout {
    /// Gives every field and oneof its slot and presence bit. `fields` ascend by number; `enums` are the schema's.
    /// `None` if the block would exceed [`BLOCK_BYTES_MAX`].
    pub(crate) fn place(fields: &mut [Field], oneofs: &mut [Oneof], enums: &[Enum]) -> Option<Self> {
        for (bit, field) in (0..).zip(fields.iter_mut()) {
            field.presence_bit = bit;
        }
        for oneof in oneofs.iter_mut() {
            let sizes = oneof.fields.iter().filter_map(|&i| fields.get(i as usize)).map(slot_bytes);
            oneof.slot_bytes = sizes.max().unwrap_or(0);
        }
        let presence_words = (fields.len() as u32).div_ceil(32);
        let block_bytes = place_by_size(fields, oneofs, 4 + 4 * presence_words)?;
        let mut layout = Self { block_bytes, presence_words, ..Self::default() };
        layout.tabulate(fields, oneofs, enums);
        Some(layout)
    }

    fn tabulate(&mut self, fields: &[Field], oneofs: &[Oneof], enums: &[Enum]) {
        self.slots = fields.iter().map(|field| slot(field, enums)).collect();
        self.words = self.slots.chunks(32).map(presence_word).collect();
        for oneof in oneofs {
            let start = self.oneofs.len();
            for &bit in &oneof.fields {
                match self.oneofs.get_mut(start..).and_then(<[_]>::last_mut) {
                    Some(last) if last.word == bit / 32 => last.mask |= 1 << (bit % 32),
                    last => {
                        let first = last.is_none();
                        self.oneofs.push(OneofMask { word: bit / 32, mask: 1 << (bit % 32), first });
                    }
                }
            }
        }
    }
}

/// Walks the fields once per slot size, 8, 4, 1. A oneof is placed where its lowest member stands.
fn place_by_size(fields: &mut [Field], oneofs: &mut [Oneof], header_bytes: u32) -> Option<u32> {
    let mut at = u64::from(header_bytes);
    for size in [8u32, 4, 1] {
        for i in 0..fields.len() {
            let field = fields.get_mut(i)?;
            let own = slot_bytes(field);
            let shared = field.oneof.and_then(|o| oneofs.get_mut(usize::from(o)));
            let leads = shared.as_ref().is_none_or(|oneof| oneof.fields.first() == Some(&(i as u32)));
            let wanted = shared.as_ref().map_or(own, |oneof| oneof.slot_bytes);
            if !leads || wanted != size {
                continue;
            }
            at = at.next_multiple_of(u64::from(size));
            field.slot = u32::try_from(at).ok()?;
            if let Some(oneof) = shared {
                oneof.slot = field.slot;
            }
            at += u64::from(size);
        }
    }
    for field in fields.iter_mut() {
        if let Some(oneof) = field.oneof.and_then(|o| oneofs.get(usize::from(o))) {
            field.slot = oneof.slot;
        }
    }
    let block_bytes = u32::try_from(at.next_multiple_of(8)).ok()?;
    (block_bytes <= BLOCK_BYTES_MAX).then_some(block_bytes)
}

/// The word of up to 32 fields.
fn presence_word(slots: &[Slot]) -> PresenceWord {
    let checked = slots.iter().rev().fold(0, |bits, slot| bits << 1 | u32::from(slot.form.is_checked()));
    PresenceWord { defined: u32::MAX >> (32 - slots.len()), checked }
}

fn slot(field: &Field, enums: &[Enum]) -> Slot {
    let closed = |index: EnumIndex| enums.get(index.0 as usize).is_some_and(|of| of.closed);
    let strict = field.utf8 || field.enumeration.is_some_and(closed);
    let type_index = field.message.map(|index| index.0).or(field.enumeration.map(|index| index.0));
    Slot {
        offset: field.slot,
        type_index: type_index.unwrap_or(0),
        form: Form::of(field.kind, field.is_repeated(), strict),
    }
}

fn slot_bytes(field: &Field) -> u32 {
    Form::of(field.kind, field.is_repeated(), field.utf8).slot_bytes()
}
