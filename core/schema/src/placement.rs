//! Gives every field its place in its message's block.

use crate::kind::{Enum, EnumIndex};
use crate::layout::{Form, Layout, OneofMask, PresenceWord, Slot};
use crate::limits::BLOCK_BYTES_MAX;
use crate::message::{Field, Oneof};

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
