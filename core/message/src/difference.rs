//! Where two protobuf messages first differ, as readers understand them: neither the order of fields on the wire, nor
//! that of a map's entries, nor whether numbers are packed, nor a zero that is written although it need not be, counts.

use crate::place::DEPTH_MAX;
use crate::plain::{PlainFault, PlainFields, PlainValue, read_varint};
use crate::redact::{Redaction, fits};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use trunkline_schema::{Cardinality, Field, Kind, MessageIndex, Schema};

/// The values of one field in one message, in their order.
type Values<'a> = Vec<PlainValue<'a>>;

/// Of which types two messages are, and what of them does not count.
#[derive(Clone, Copy)]
struct Of<'a> {
    types: Option<(&'a Schema, MessageIndex)>,
    ignored: &'a Redaction,
}

/// The fields of a message by number; what does not fit the type stands apart.
type ByNumber<'a> = BTreeMap<(u32, bool), Values<'a>>;

/// The path of the first field that differs, as `hits[2].name`; a field that no type here knows by its number. `None`:
/// the two are equal. Fields that `ignored` names do not count, and, if it names any, neither does what it could not
/// look through.
///
/// # Errors
/// One of them is no message.
///
/// # Panics
/// If `root` comes from another schema and is out of range here.
pub fn first_difference(
    types: Option<(&Schema, MessageIndex)>,
    ignored: &Redaction,
    one: &[u8],
    other: &[u8],
) -> Result<Option<String>, PlainFault> {
    if one == other {
        return Ok(None);
    }
    differ(Of { types, ignored }, one, other, 0)
}

fn differ(of: Of<'_>, one: &[u8], other: &[u8], depth: u32) -> Result<Option<String>, PlainFault> {
    if depth >= DEPTH_MAX {
        return Err(PlainFault::Depth);
    }
    let types = of.types;
    let (mut one, mut other) = (values(types, one)?, values(types, other)?);
    let mut keys: Vec<(u32, bool)> = one.keys().chain(other.keys()).copied().collect();
    // Known fields first, by their numbers.
    keys.sort_unstable_by_key(|(number, is_known)| (!is_known, *number));
    keys.dedup();
    for key in keys {
        let pair = (one.remove(&key).unwrap_or_default(), other.remove(&key).unwrap_or_default());
        let field = types.filter(|_| key.1).and_then(|(schema, index)| schema.message(index).field(key.0));
        let found = match (types, field) {
            (Some((schema, index)), Some(field)) => {
                let is_ignored = of.ignored.empties(schema.message(index), field);
                if is_ignored { None } else { of.field_differs(field, &pair.0, &pair.1, depth)? }
            }
            (Some(_), None) if !of.ignored.is_empty() => None,
            _ => (pair.0 != pair.1).then(|| format!("field {}", key.0)),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn values<'a>(types: Option<(&Schema, MessageIndex)>, message: &'a [u8]) -> Result<ByNumber<'a>, PlainFault> {
    let mut found = ByNumber::new();
    for plain in PlainFields::of(message) {
        let plain = plain?;
        let field = types.and_then(|(schema, of)| schema.message(of).field(plain.number));
        let is_known = field.is_some_and(|field| fits(field, &plain.value));
        let values = found.entry((plain.number, is_known)).or_default();
        match (field, plain.value) {
            (Some(field), PlainValue::Delimited(packed)) if is_known && field.kind.is_scalar() => {
                unpack(field, packed, values)?;
            }
            (_, value) => values.push(value),
        }
    }
    Ok(found)
}

/// The numbers of a packed field.
fn unpack<'a>(field: &Field, mut packed: &'a [u8], into: &mut Values<'a>) -> Result<(), PlainFault> {
    while !packed.is_empty() {
        let (value, bytes) = match field.kind {
            Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => {
                (packed.get(..4).map(PlainValue::Fixed32).ok_or(PlainFault::Truncated)?, 4)
            }
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => {
                (packed.get(..8).map(PlainValue::Fixed64).ok_or(PlainFault::Truncated)?, 8)
            }
            _ => read_varint(packed).map(|(value, bytes)| (PlainValue::Varint(value), bytes))?,
        };
        into.push(value);
        packed = &packed[bytes..];
    }
    Ok(())
}

impl Of<'_> {
    fn field_differs(
        self,
        field: &Field,
        one: &[PlainValue<'_>],
        other: &[PlainValue<'_>],
        depth: u32,
    ) -> Result<Option<String>, PlainFault> {
        if field.is_map {
            // By their keys: the last of a key counts.
            let (one, other) = (by_key(one)?, by_key(other)?);
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let pairs = keys.into_iter().map(|key| (key, one.get(key).copied(), other.get(key).copied()));
            return self.elements_differ(field, pairs, depth);
        }
        if !field.is_repeated() {
            return self.singular_differs(field, one, other, depth);
        }
        let places = 0..one.len().max(other.len());
        let pairs = places.map(|place| (place, one.get(place).copied(), other.get(place).copied()));
        self.elements_differ(field, pairs, depth)
    }

    /// What stands at the same place, or under the same key.
    fn elements_differ<'v>(
        self,
        field: &Field,
        pairs: impl Iterator<Item = (impl Display, Option<PlainValue<'v>>, Option<PlainValue<'v>>)>,
        depth: u32,
    ) -> Result<Option<String>, PlainFault> {
        for (place, one, other) in pairs {
            let within = match (one, other) {
                (Some(one), Some(other)) => self.value_differs(field, one, other, depth)?,
                _ => Some(String::new()),
            };
            if let Some(within) = within {
                return Ok(Some(joined(&format!("{}[{place}]", field.name), &within)));
            }
        }
        Ok(None)
    }

    /// The last value counts, and messages add up.
    fn singular_differs(
        self,
        field: &Field,
        one: &[PlainValue<'_>],
        other: &[PlainValue<'_>],
        depth: u32,
    ) -> Result<Option<String>, PlainFault> {
        let counted = |values: &[PlainValue<'_>]| {
            let is_absent =
                |value: &&PlainValue<'_>| field.cardinality == Cardinality::Implicit && is_zero(value);
            values.last().filter(|value| !is_absent(value)).is_some()
        };
        let within = match (counted(one), counted(other)) {
            (false, false) => None,
            (true, true) if field.kind == Kind::Message => {
                let (one, other) = (merged(one), merged(other));
                let inner = self.inner(field);
                differ(inner, &one, &other, depth + 1)?
            }
            (true, true) => (one.last() != other.last()).then(String::new),
            _ => Some(String::new()),
        };
        Ok(within.map(|within| joined(&field.name, &within)))
    }

    fn value_differs(
        self,
        field: &Field,
        one: PlainValue<'_>,
        other: PlainValue<'_>,
        depth: u32,
    ) -> Result<Option<String>, PlainFault> {
        if field.kind != Kind::Message {
            return Ok((one != other).then(String::new));
        }
        let inner = self.inner(field);
        differ(inner, &merged(&[one]), &merged(&[other]), depth + 1)
    }

    /// The type of messages in a field.
    fn inner(self, field: &Field) -> Self {
        Self { types: self.types.zip(field.message).map(|((schema, _), inner)| (schema, inner)), ..self }
    }
}

/// A map's entries by their keys.
fn by_key<'a>(values: &[PlainValue<'a>]) -> Result<BTreeMap<String, PlainValue<'a>>, PlainFault> {
    let mut entries = BTreeMap::new();
    for value in values {
        let PlainValue::Delimited(entry) = *value else { continue };
        entries.insert(key_of(entry)?, *value);
    }
    Ok(entries)
}

/// An entry's key as text: it names the entry.
fn key_of(entry: &[u8]) -> Result<String, PlainFault> {
    let mut key = String::new();
    for plain in PlainFields::of(entry) {
        let plain = plain?;
        if plain.number == 1 {
            key = match plain.value {
                PlainValue::Varint(0) => String::new(),
                PlainValue::Varint(value) => value.to_string(),
                PlainValue::Delimited(text) => text.escape_ascii().to_string(),
                PlainValue::Fixed32(bytes) | PlainValue::Fixed64(bytes) | PlainValue::Group(bytes) => {
                    format!("{bytes:02x?}")
                }
            };
        }
    }
    Ok(key)
}

/// A message that was sent in parts.
fn merged(values: &[PlainValue<'_>]) -> Vec<u8> {
    let parts = values.iter().filter_map(|value| match value {
        PlainValue::Delimited(bytes) | PlainValue::Group(bytes) => Some(*bytes),
        _ => None,
    });
    parts.flatten().copied().collect()
}

fn is_zero(value: &PlainValue<'_>) -> bool {
    match value {
        PlainValue::Varint(value) => *value == 0,
        PlainValue::Fixed32(bytes) | PlainValue::Fixed64(bytes) => bytes.iter().all(|byte| *byte == 0),
        PlainValue::Delimited(bytes) | PlainValue::Group(bytes) => bytes.is_empty(),
    }
}

fn joined(name: &str, within: &str) -> String {
    match within {
        "" => name.to_owned(),
        within if within.starts_with("field ") => format!("{name}, {within}"),
        within => format!("{name}.{within}"),
    }
}

#[cfg(test)]
mod tests {
    //! Shows which messages are equal although their bytes are not, and how the first difference is named.
    use super::*;

    const PROTO: &str = r#"syntax = "proto3"; package t;
        message In { string name = 1; int32 n = 2; }
        message Out { string name = 1; repeated In ins = 2; map<string, In> by = 3; repeated int32 ns = 4;
                      In in = 5; double d = 6; optional int32 o = 7; }"#;

    fn compare(one: &[&[u8]], other: &[&[u8]]) -> Option<String> {
        let schema = Schema::from_proto_source("t.proto", PROTO).unwrap();
        let out = schema.message_named("t.Out").unwrap();
        first_difference(Some((&schema, out)), &Redaction::default(), &one.concat(), &other.concat()).unwrap()
    }

    const NAME: &[u8] = &[0x0a, 1, b'n'];
    const IN: &[u8] = &[0x12, 3, 0x0a, 1, b'a'];
    const IN_B: &[u8] = &[0x12, 3, 0x0a, 1, b'b'];
    const BY_X: &[u8] = &[0x1a, 8, 0x0a, 1, b'x', 0x12, 3, 0x0a, 1, b'a'];
    const BY_Y: &[u8] = &[0x1a, 8, 0x0a, 1, b'y', 0x12, 3, 0x0a, 1, b'a'];
    const BY_Y_B: &[u8] = &[0x1a, 8, 0x0a, 1, b'y', 0x12, 3, 0x0a, 1, b'b'];

    #[test]
    fn what_readers_understand_alike_is_equal() {
        for (one, other) in [
            (&[NAME, IN][..], &[IN, NAME][..]),
            (&[BY_X, BY_Y], &[BY_Y, BY_X]),
            (&[BY_Y], &[BY_Y_B, BY_Y]),
            (&[&[0x22, 2, 1, 2]], &[&[0x20, 1], &[0x20, 2]]),
            (&[&[0x0a, 0]], &[]),
            (&[&[0x31, 0, 0, 0, 0, 0, 0, 0, 0]], &[]),
            (&[&[0x2a, 3, 0x0a, 1, b'a'], &[0x2a, 2, 0x10, 5]], &[&[0x2a, 5, 0x10, 5, 0x0a, 1, b'a']]),
        ] {
            assert_eq!(compare(one, other), None, "{one:?} {other:?}");
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        for (one, other, name) in [
            (&[NAME][..], &[][..], "name"),
            (&[IN, IN], &[IN, IN_B], "ins[1].name"),
            (&[IN, IN], &[IN], "ins[1]"),
            (&[BY_X, BY_Y], &[BY_X, BY_Y_B], "by[y].value.name"),
            (&[BY_X, BY_Y], &[BY_X], "by[y]"),
            (&[&[0x22, 2, 1, 2]], &[&[0x22, 2, 1, 3]], "ns[1]"),
            (&[&[0x38, 0]], &[], "o"),
            (&[&[0x2a, 0]], &[], "in"),
            (&[&[0x2a, 2, 0x48, 1]], &[&[0x2a, 2, 0x48, 2]], "in, field 9"),
            (&[&[0x48, 1], NAME], &[&[0x48, 2]], "name"),
        ] {
            assert_eq!(compare(one, other).as_deref(), Some(name));
        }
        let none = Redaction::default();
        assert_eq!(first_difference(None, &none, &[8, 1], &[8, 2]), Ok(Some("field 1".into())));
        assert!(first_difference(None, &none, &[8], &[8, 2]).is_err());
    }

    #[test]
    fn what_is_ignored_does_not_count() {
        let schema = Schema::from_proto_source("t.proto", PROTO).unwrap();
        let out = schema.message_named("t.Out").unwrap();
        let compare = |name: &str, one: &[u8], other: &[u8]| {
            first_difference(Some((&schema, out)), &Redaction::new([name.to_owned()]), one, other).unwrap()
        };
        assert_eq!(compare("In.name", &[IN, NAME].concat(), &[IN_B, NAME].concat()), None);
        assert_eq!(compare("Out.name", &[IN, NAME].concat(), IN), None);
        assert_eq!(compare("Out.name", IN, IN_B).as_deref(), Some("ins[0].name"));
        assert_eq!(compare("d", &[0x48, 1], &[0x48, 2]), None, "what cannot be looked through");
    }
}
