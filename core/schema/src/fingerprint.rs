//! What two ends must agree on before a linear message may pass between them untouched, in eight bytes.
//!
//! The canonical form: number the messages in the order in which they are first mentioned, the root being 0, and
//! write them in that order. Of each message: its field count, then per field, ascending by number, number, type,
//! cardinality and oneof; a digest of a closed enum's numbers; a message's number in the order just named. All little
//! endian (`docs/linear.md`, "Fingerprint", has the table). Recursion needs no special case: a type mentioned again is
//! its number. The fingerprint is the first eight bytes of the form's SHA-256.
//!
//! Names, defaults, packedness and UTF-8 rules are left out: they change no byte of a linear message. A closed
//! enum's numbers are in: an end that does not know a number must move it to the unknown fields, so it must not be
//! handed the other end's bytes as they are.

use sha2::{Digest, Sha256};

use crate::kind::{Cardinality, Enum, EnumIndex, Kind, MessageIndex};
use crate::message::{Field, Message};

const UNSEEN: u32 = u32::MAX;

/// Computes fingerprints of one schema's messages. Several are cheaper by one than by one each.
pub(crate) struct FingerprintWalk<'s> {
    messages: &'s [Message],
    ordinals: Vec<u32>,
    order: Vec<MessageIndex>,
    enums: &'s [Enum],
    /// Each computed once: many fields may share a large enum.
    enum_digests: Vec<Option<u64>>,
}

impl<'s> FingerprintWalk<'s> {
    pub(crate) fn new(messages: &'s [Message], enums: &'s [Enum]) -> Self {
        FingerprintWalk {
            messages,
            ordinals: vec![UNSEEN; messages.len()],
            order: Vec::new(),
            enums,
            enum_digests: vec![None; enums.len()],
        }
    }

    /// The fingerprint of the message at `root`. It costs one for each message and field that the root leads to;
    /// `None` if that is more than there is `left`.
    pub(crate) fn of(&mut self, root: MessageIndex, left: &mut usize) -> Option<u64> {
        let mut hash = Sha256::new();
        let mut form = Vec::new();
        for seen in self.order.drain(..) {
            self.ordinals[seen.0 as usize] = UNSEEN;
        }
        self.ordinal(root);
        let mut next = 0;
        while let Some(message) = self.order.get(next).and_then(|i| self.messages.get(i.0 as usize)) {
            *left = left.checked_sub(1 + message.fields.len())?;
            next += 1;
            form.clear();
            self.write_message(message, &mut form);
            hash.update(&form);
        }
        Some(first_eight(hash))
    }

    fn write_message(&mut self, message: &Message, form: &mut Vec<u8>) {
        form.extend((message.fields.len() as u32).to_le_bytes());
        for field in &message.fields {
            form.extend(field.number.to_le_bytes());
            form.push(type_number(field));
            form.push(cardinality_number(field.cardinality));
            form.extend(lowest_sibling(message, field).to_le_bytes());
            if let Some(inner) = field.message {
                form.extend(self.ordinal(inner).to_le_bytes());
            }
            if let Some(enumeration) = field.enumeration {
                form.extend(self.enum_digest(enumeration).to_le_bytes());
            }
        }
    }

    fn ordinal(&mut self, message: MessageIndex) -> u32 {
        let Some(ordinal) = self.ordinals.get_mut(message.0 as usize) else { return UNSEEN };
        if *ordinal == UNSEEN {
            *ordinal = self.order.len() as u32;
            self.order.push(message);
        }
        *ordinal
    }

    /// 0 for an open enum, whose numbers do not matter.
    fn enum_digest(&mut self, index: EnumIndex) -> u64 {
        let i = index.0 as usize;
        let (Some(enumeration), Some(known)) = (self.enums.get(i), self.enum_digests.get_mut(i)) else {
            return 0;
        };
        *known.get_or_insert_with(|| {
            if enumeration.closed { digest_of_numbers(&enumeration.numbers) } else { 0 }
        })
    }
}

fn digest_of_numbers(numbers: &[i32]) -> u64 {
    let mut hash = Sha256::new();
    numbers.iter().for_each(|number| hash.update(number.to_le_bytes()));
    first_eight(hash)
}

fn first_eight(hash: Sha256) -> u64 {
    let digest: [u8; 32] = hash.finalize().into();
    digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A oneof is named by its lowest member's field number; 0 is none.
fn lowest_sibling(message: &Message, field: &Field) -> u32 {
    let oneof = field.oneof.and_then(|i| message.oneofs.get(usize::from(i)));
    let lowest = oneof.and_then(|o| o.fields.first()).and_then(|&i| message.fields.get(i as usize));
    lowest.map_or(0, |field| field.number)
}

/// `FieldDescriptorProto.Type`.
fn type_number(field: &Field) -> u8 {
    match field.kind {
        Kind::Double => 1,
        Kind::Float => 2,
        Kind::Int64 => 3,
        Kind::Uint64 => 4,
        Kind::Int32 => 5,
        Kind::Fixed64 => 6,
        Kind::Fixed32 => 7,
        Kind::Bool => 8,
        Kind::String => 9,
        Kind::Message if field.group => 10,
        Kind::Message => 11,
        Kind::Bytes => 12,
        Kind::Uint32 => 13,
        Kind::Enum => 14,
        Kind::Sfixed32 => 15,
        Kind::Sfixed64 => 16,
        Kind::Sint32 => 17,
        Kind::Sint64 => 18,
    }
}

fn cardinality_number(cardinality: Cardinality) -> u8 {
    match cardinality {
        Cardinality::Optional => 0,
        Cardinality::Implicit => 1,
        Cardinality::Required => 2,
        Cardinality::Repeated => 3,
    }
}
