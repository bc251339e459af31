//! The examination of unknown fields: a block's run holds nothing that its type declares.
//!
//! A reader of protobuf knows of no runs: it takes one field after the other, and a declared number in the run would be
//! that field for it, behind the back of everybody who looked at the slots. So a run is read once, field by field. It
//! is well-formed, and a declared number is in it only where every reader leaves the field alone: with another wire
//! type than the field's, or with a value that its closed enum does not have.

use trunkline_schema::{Field, Kind, Message, Schema};

use crate::check::CheckErrorKind;

const WIRE_VARINT: u32 = 0;
const WIRE_FIXED64: u32 = 1;
const WIRE_DELIMITED: u32 = 2;
const WIRE_START_GROUP: u32 = 3;
const WIRE_FIXED32: u32 = 5;

/// Bytes of the longest tag and the longest length.
const SHORT_VARINT_BYTES: usize = 5;
/// Bytes of the longest varint.
const VARINT_BYTES: usize = 10;

/// What is wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub kind: CheckErrorKind,
    /// Where in the run.
    pub at: u32,
    /// Number of the field, 0 where none could be read.
    pub field: u32,
}

/// Examines the unknown bytes of a message, below which `depth_left` levels may still follow. Takes time linear in
/// their length.
pub(crate) fn examine(schema: &Schema, message: &Message, run: &[u8], depth_left: u32) -> Result<(), Flaw> {
    let mut reader = Reader { bytes: run, at: 0 };
    while !reader.is_at_end() {
        let at = reader.at as u32;
        let tag = reader.tag()?;
        let field = tag >> 3;
        let value = reader.value(tag, depth_left).map_err(|flaw| Flaw { field, ..flaw })?;
        let declared = message.field(field);
        if declared.is_some_and(|declared| !stays_unknown(schema, declared, tag & 7, value, depth_left)) {
            return Err(Flaw { kind: CheckErrorKind::Declared, at, field });
        }
    }
    Ok(())
}

/// Whether every reader that has `field` leaves it as it is when it meets this value.
fn stays_unknown(schema: &Schema, field: &Field, wire_type: u32, value: Value<'_>, depth_left: u32) -> bool {
    if field.is_repeated() && field.kind.is_scalar() && wire_type == WIRE_DELIMITED {
        // Packed, which readers take for every list of scalars. Its stray elements are kept one by one.
        return false;
    }
    match value {
        _ if wire_type != wire_type_of(field) => true,
        Value::Varint(number) => is_stray(schema, field, number),
        Value::Bytes(entry) if field.is_map => is_stray_entry(schema, field, entry, depth_left),
        _ => false,
    }
}

/// Whether a closed enum does not have the number.
fn is_stray(schema: &Schema, field: &Field, number: u64) -> bool {
    let of = field.enumeration.and_then(|index| schema.enums().get(index.0 as usize));
    of.is_some_and(|of| of.closed && !of.declares(number as u32 as i32))
}

/// Whether this is an entry that a map does not take: a sound one, whose value, the last one in it, its closed enum
/// does not have.
fn is_stray_entry(schema: &Schema, map: &Field, entry: &[u8], depth_left: u32) -> bool {
    let of = map.message.and_then(|index| schema.messages().get(index.0 as usize));
    let (Some(of), Some(depth_left)) = (of, depth_left.checked_sub(1)) else { return false };
    let mut stray = false;
    let mut reader = Reader { bytes: entry, at: 0 };
    while !reader.is_at_end() {
        let Ok((tag, value)) = reader.tag().and_then(|tag| Ok((tag, reader.value(tag, depth_left)?))) else {
            return false;
        };
        match (of.field(tag >> 3), value) {
            (Some(key), Value::Bytes(text))
                if key.utf8 && key.kind == Kind::String && std::str::from_utf8(text).is_err() =>
            {
                return false;
            }
            (Some(field), Value::Varint(number)) if field.number == 2 => {
                stray = is_stray(schema, field, number);
            }
            _ => (),
        }
    }
    stray
}

fn wire_type_of(field: &Field) -> u32 {
    match field.kind {
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => WIRE_FIXED64,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => WIRE_FIXED32,
        Kind::Message if field.group => WIRE_START_GROUP,
        Kind::String | Kind::Bytes | Kind::Message => WIRE_DELIMITED,
        _ => WIRE_VARINT,
    }
}

/// A field's value, as far as it matters here.
#[derive(Clone, Copy)]
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Of a fixed size, or a group.
    Other,
}

/// Reads fields one after the other, by the rules of the decoder.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn tag(&mut self) -> Result<u32, Flaw> {
        let at = self.at;
        let tag = self.varint(SHORT_VARINT_BYTES)?;
        u32::try_from(tag).ok().filter(|tag| tag >> 3 != 0).ok_or(ill_formed(at))
    }

    fn value(&mut self, tag: u32, depth_left: u32) -> Result<Value<'a>, Flaw> {
        match tag & 7 {
            WIRE_VARINT => self.varint(VARINT_BYTES).map(Value::Varint),
            WIRE_FIXED64 => self.take(8).map(|_| Value::Other),
            WIRE_FIXED32 => self.take(4).map(|_| Value::Other),
            WIRE_DELIMITED => {
                let length = self.varint(SHORT_VARINT_BYTES)?;
                self.take(length).map(Value::Bytes)
            }
            WIRE_START_GROUP => self.group(tag, depth_left).map(|()| Value::Other),
            _ => Err(ill_formed(self.at)),
        }
    }

    /// The rest of a group. What is in it belongs to a type nobody here knows.
    fn group(&mut self, start: u32, depth_left: u32) -> Result<(), Flaw> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err(Flaw { kind: CheckErrorKind::Depth, ..ill_formed(self.at) });
        };
        loop {
            match self.tag()? {
                // The end tag differs from the start tag in its wire type: 4 for 3.
                tag if tag == start + 1 => return Ok(()),
                tag => self.value(tag, depth_left)?,
            };
        }
    }

    /// A varint of at most `longest` bytes. What goes beyond 64 bits is dropped.
    fn varint(&mut self, longest: usize) -> Result<u64, Flaw> {
        let mut value = 0;
        for (index, &byte) in self.bytes.iter().skip(self.at).take(longest).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.at += index + 1;
                return Ok(value);
            }
        }
        Err(ill_formed(self.at))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Flaw> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let taken = taken.ok_or(ill_formed(self.at))?;
        self.at += taken.len();
        Ok(taken)
    }
}

fn ill_formed(at: usize) -> Flaw {
    Flaw { kind: CheckErrorKind::Unknown, at: at as u32, field: 0 }
}
