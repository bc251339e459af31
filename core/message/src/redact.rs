//! Emptying fields of a protobuf message by their names.
//!
//! Nothing is read into a message and written again: what is not named is copied byte for byte, in its order. A field
//! that is named keeps its place and loses its value, so that whoever reads it later sees that there was one: strings,
//! bytes and messages become empty, numbers zero. What nobody here can look through cannot be told to be harmless, so
//! it goes too: fields that the type does not know, and what a `google.protobuf.Any` holds.

use crate::place::DEPTH_MAX;
use crate::plain::{PlainFault, PlainField, PlainFields, PlainValue, put_group_end, put_tag, put_varint};
use trunkline_schema::{Field, Kind, Message, MessageIndex, Schema};

/// The fields that are emptied: by name in whatever message, or by the end of `package.Message.field`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    names: Vec<String>,
}

/// A message whose named fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redacted {
    /// The message.
    pub bytes: Vec<u8>,
    /// Fields that were emptied.
    pub emptied: u64,
    /// Fields the type does not know, which were left out.
    pub unknown: u64,
}

/// The message that holds another as bytes, and where.
const ANY: (&str, &str) = ("google.protobuf.Any", "value");

impl Redaction {
    /// Of fields with these names.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect() }
    }

    /// Whether every message stays as it is.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names that no field of a schema has: mistakes, mostly.
    pub fn strangers<'a>(&'a self, schema: &'a Schema) -> impl Iterator<Item = &'a str> {
        let is_there = |name: &str| {
            let mut fields =
                schema.messages().iter().flat_map(|of| of.fields.iter().map(move |field| (of, field)));
            fields.any(|(message, field)| is_named(name, message, field))
        };
        self.names.iter().map(String::as_str).filter(move |name| !is_there(name))
    }

    /// Whether a field of a message is one of those.
    pub fn empties(&self, message: &Message, field: &Field) -> bool {
        self.names.iter().any(|name| is_named(name, message, field))
            || (!self.is_empty() && (message.full_name.as_str(), field.name.as_str()) == ANY)
    }

    /// The message of type `root` with these fields empty.
    ///
    /// # Errors
    /// It is no message.
    ///
    /// # Panics
    /// If `root` comes from another schema and is out of range here.
    pub fn apply(&self, schema: &Schema, root: MessageIndex, message: &[u8]) -> Result<Redacted, PlainFault> {
        let mut redacted = Redacted::default();
        if self.is_empty() {
            redacted.bytes.extend_from_slice(message);
            return Ok(redacted);
        }
        self.walk(schema, root, message, 0, &mut redacted)?;
        Ok(redacted)
    }

    fn walk(
        &self,
        schema: &Schema,
        of: MessageIndex,
        message: &[u8],
        depth: u32,
        to: &mut Redacted,
    ) -> Result<(), PlainFault> {
        if depth >= DEPTH_MAX {
            return Err(PlainFault::Depth);
        }
        let known = schema.message(of);
        for plain in PlainFields::of(message) {
            let plain = plain?;
            let Some(field) = known.field(plain.number).filter(|field| fits(field, &plain.value)) else {
                to.unknown += 1;
                continue;
            };
            match (field.message, plain.value) {
                _ if self.empties(known, field) => {
                    to.emptied += 1;
                    put_empty(&mut to.bytes, &plain);
                }
                (Some(inner), PlainValue::Delimited(bytes)) => {
                    put_tag(&mut to.bytes, plain.number, plain.value.wire_type());
                    let at = to.bytes.len();
                    self.walk(schema, inner, bytes, depth + 1, to)?;
                    let mut length = Vec::with_capacity(5);
                    put_varint(&mut length, (to.bytes.len() - at) as u64);
                    to.bytes.splice(at..at, length);
                }
                (Some(inner), PlainValue::Group(bytes)) => {
                    put_tag(&mut to.bytes, plain.number, plain.value.wire_type());
                    self.walk(schema, inner, bytes, depth + 1, to)?;
                    put_group_end(&mut to.bytes, plain.number);
                }
                _ => to.bytes.extend_from_slice(plain.bytes),
            }
        }
        Ok(())
    }
}

/// Whether a value is one of the field, as the transcoder takes it; numbers come packed or one by one.
pub(crate) fn fits(field: &Field, value: &PlainValue<'_>) -> bool {
    match (field.kind, value) {
        (Kind::Message, PlainValue::Group(_)) => field.group,
        (Kind::Message, PlainValue::Delimited(_)) => !field.group,
        (Kind::String | Kind::Bytes, PlainValue::Delimited(_)) => true,
        (Kind::Message | Kind::String | Kind::Bytes, _) => false,
        (_, PlainValue::Delimited(_)) => field.is_repeated(),
        (Kind::Fixed32 | Kind::Sfixed32 | Kind::Float, value) => matches!(value, PlainValue::Fixed32(_)),
        (Kind::Fixed64 | Kind::Sfixed64 | Kind::Double, value) => matches!(value, PlainValue::Fixed64(_)),
        (_, value) => matches!(value, PlainValue::Varint(_)),
    }
}

/// The field with nothing in it.
fn put_empty(out: &mut Vec<u8>, field: &PlainField<'_>) {
    put_tag(out, field.number, field.value.wire_type());
    match field.value {
        PlainValue::Varint(_) | PlainValue::Delimited(_) => out.push(0),
        PlainValue::Fixed64(_) => out.extend([0; 8]),
        PlainValue::Fixed32(_) => out.extend([0; 4]),
        PlainValue::Group(_) => put_group_end(out, field.number),
    }
}

/// Whether a field has a name that is to be emptied.
fn is_named(name: &str, message: &Message, field: &Field) -> bool {
    match name.rsplit_once('.') {
        None => *name == *field.name,
        Some((of, own)) => *own == *field.name && is_end_of(of, &message.full_name),
    }
}

/// Whether `name` is all of `full_name`, or what is behind a dot of it.
fn is_end_of(name: &str, full_name: &str) -> bool {
    full_name.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    //! Shows which fields are emptied, wherever they are and however they are written, and that nothing else changes.
    use super::*;
    use proptest::prelude::*;

    const PROTO: &str = r#"syntax = "proto3"; package shop;
        message Card { string number = 1; int32 month = 2; fixed64 key = 3; repeated int32 digits = 4; }
        message Order { string name = 1; Card card = 2; repeated Card old = 3; map<string, Card> by_name = 4;
                        string number = 5; float price = 6; }"#;

    fn schema() -> (Schema, MessageIndex) {
        let schema = Schema::from_proto_source("shop.proto", PROTO).unwrap();
        let order = schema.message_named("shop.Order").unwrap();
        (schema, order)
    }

    fn redacted(names: &[&str], message: &[u8]) -> Result<Redacted, PlainFault> {
        let (schema, order) = schema();
        Redaction::new(names.iter().map(|name| (*name).to_owned())).apply(&schema, order, message)
    }

    /// A card: number "4111", month 7, key 1, digits packed.
    const CARD: [u8; 22] =
        [0x0a, 4, b'4', b'1', b'1', b'1', 0x10, 7, 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x22, 3, 1, 2, 3];
    const CARD_EMPTIED: [u8; 15] = [0x0a, 0, 0x10, 0, 0x19, 0, 0, 0, 0, 0, 0, 0, 0, 0x22, 0];

    fn within(number: u8, inner: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, inner.len() as u8], inner].concat()
    }

    #[test]
    fn named_fields_are_emptied_wherever_they_are() {
        let entry = |card: &[u8]| within(4, &[&[0x0a, 1, b'a'][..], &within(2, card)].concat());
        let order = |card: &[u8], number: &[u8]| {
            [&[0x0a, 1, b'n'][..], &within(2, card), &within(3, card), &entry(card), &within(5, number)]
                .concat()
        };
        let whole = order(&CARD, b"55");
        let all = redacted(&["number", "month", "key", "digits"], &whole).unwrap();
        // A map's key is a field of that name, too.
        assert!(all.emptied >= 13 && all.unknown == 0, "{all:?}");
        assert!(!all.bytes.windows(4).any(|bytes| bytes == b"4111"));
        let cards = redacted(&["Card.number", "shop.Card.month", "Card.key", "Card.digits"], &whole).unwrap();
        assert_eq!((cards.bytes, cards.emptied), (order(&CARD_EMPTIED, b"55"), 12));
        let none = redacted(&["Car.number", "op.Card.month", "absent"], &whole).unwrap();
        assert_eq!((none.bytes, none.emptied, none.unknown), (whole.clone(), 0, 0));
        assert_eq!(redacted(&[], &whole).unwrap().bytes, whole);
        let message = redacted(&["card", "price"], &[&within(2, &CARD)[..], &[0x35, 1, 2, 3, 4]].concat());
        assert_eq!(message.unwrap().bytes, [0x12, 0, 0x35, 0, 0, 0, 0]);
    }

    #[test]
    fn names_that_no_field_has_are_told() {
        let names = ["number", "Card.number", "shop.Order.price", "Card.price", "pasword", "Shop.Card.key"];
        let redaction = Redaction::new(names.map(str::to_owned));
        let (schema, _) = schema();
        assert_eq!(redaction.strangers(&schema).collect::<Vec<_>>(), names[3..]);
    }

    #[test]
    fn what_the_type_does_not_know_is_left_out_where_something_is_hidden() {
        // Field 9 is unknown, and field 1 is no varint.
        let strange = [0x4a, 1, b'x', 0x08, 5, 0x0a, 1, b'n'];
        let kept = redacted(&["number"], &strange).unwrap();
        assert_eq!((kept.bytes, kept.unknown), (vec![0x0a, 1, b'n'], 2));
        assert_eq!(redacted(&[], &strange).unwrap().bytes, strange);
        assert_eq!(redacted(&["number"], &[0x0a, 9]), Err(PlainFault::Truncated));
    }

    proptest! {
        #[test]
        fn any_bytes_are_redacted_or_named(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(once) = redacted(&["number", "month"], &bytes) {
                prop_assert!(once.bytes.len() <= bytes.len());
                // What is empty stays empty.
                let twice = redacted(&["number", "month"], &once.bytes).unwrap();
                prop_assert_eq!(twice.bytes, once.bytes);
            }
        }
    }
}
