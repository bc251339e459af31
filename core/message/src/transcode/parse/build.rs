//! Schema to parse tables.

use std::ops::Range;
use trunkline_schema::{Cardinality, Enum, Field, Kind, Message, OneofMask, Schema};

use super::table::{
    ANY_OTHER, ClosedEnum, DRAIN_BIT, Detour, ParseEntry, ParseOp, ParseTable, REGISTER_BITS,
};

/// Numbers are looked up by position while at least one in this many is in use, beyond a free allowance.
const DENSE_SPARSITY: usize = 4;
/// Positions a table may always have.
const DENSE_FREE: usize = 32;

const WIRE_DELIMITED: u8 = 2;

/// The parse tables of a schema.
#[derive(Debug)]
pub(in crate::transcode) struct ParseTables {
    /// One per message of the schema, by its index.
    pub(super) messages: Box<[ParseTable]>,
    enums: Box<[ClosedEnum]>,
    detours: Box<[Detour]>,
    /// The members' presence bits of all oneofs, each oneof's in a row: its members share them.
    oneofs: Box<[OneofMask]>,
    /// What to point at when there is no such index.
    nowhere: ParseTable,
    no_detour: Detour,
}

impl ParseTables {
    pub(in crate::transcode) fn new(schema: &Schema) -> Self {
        let mut around = Around::default();
        let messages = schema.messages().iter().enumerate();
        let messages = messages.map(|(i, m)| message(schema, i as u32, m, &mut around)).collect();
        let enums = schema.enums().iter().map(|e| ClosedEnum::new(&e.numbers)).collect();
        let no_detour = Detour { field: ParseEntry::default(), bit: 0, rivals: 0..0, slot_bytes: 0 };
        let (detours, oneofs) = (around.detours.into(), around.oneofs.into());
        ParseTables { messages, enums, detours, oneofs, nowhere: ParseTable::default(), no_detour }
    }

    /// Bytes of a message's block; `None` if there is no such message.
    pub(in crate::transcode) fn block_bytes(&self, message: usize) -> Option<u32> {
        self.messages.get(message).map(|table| table.block_bytes)
    }

    /// The table of a message field's type.
    #[inline(always)]
    pub(super) fn child(&self, entry: &ParseEntry) -> &ParseTable {
        self.messages.get(entry.aux as usize).unwrap_or(&self.nowhere)
    }

    /// Whether a closed enum field's type has `value`.
    #[inline(always)]
    pub(super) fn is_value(&self, entry: &ParseEntry, value: u32) -> bool {
        self.enums.get(entry.aux as usize).is_some_and(|e| e.contains(value))
    }

    #[inline(always)]
    pub(super) fn detour(&self, entry: &ParseEntry) -> &Detour {
        self.detours.get(entry.aux as usize).unwrap_or(&self.no_detour)
    }

    /// The presence bits of the oneof that the detour's field is a member of; none if it is alone.
    #[inline(always)]
    pub(super) fn rivals(&self, detour: &Detour) -> &[OneofMask] {
        self.oneofs.get(detour.rivals.start as usize..detour.rivals.end as usize).unwrap_or_default()
    }
}

/// What is built beside the tables of messages.
#[derive(Default)]
struct Around {
    detours: Vec<Detour>,
    oneofs: Vec<OneofMask>,
}

fn message(schema: &Schema, index: u32, message: &Message, around: &mut Around) -> ParseTable {
    let rivals = rivals(message, &mut around.oneofs);
    let entries =
        message.fields.iter().map(|f| (f.number, entry(schema, (message, &rivals), f, &mut around.detours)));
    let mut table = ParseTable {
        block_bytes: message.layout.block_bytes,
        presence_words: message.layout.presence_words,
        index,
        ..ParseTable::default()
    };
    let mut dense = Vec::new();
    let mut sparse = Vec::new();
    for (count, (number, entry)) in entries.enumerate() {
        if let Some(low) = table.low.get_mut(number as usize) {
            *low = entry;
            continue;
        }
        let at = number as usize - 16;
        if sparse.is_empty() && at <= DENSE_FREE + DENSE_SPARSITY * count {
            dense.resize(at, ParseEntry::default());
            dense.push(entry);
        } else {
            sparse.push(entry);
        }
    }
    table.dense = dense.into();
    table.sparse = sparse.into();
    if message.is_map_entry {
        for entry in &mut table.low {
            (entry.other_op, entry.other_wire_type) = (ParseOp::Dropped, ANY_OTHER);
        }
    }
    table
}

/// A field's entry, or the entry that leads to it by a detour.
fn entry(
    schema: &Schema,
    (message, rivals): (&Message, &[Range<u32>]),
    field: &Field,
    detours: &mut Vec<Detour>,
) -> ParseEntry {
    let direct = direct_entry(schema, field);
    let is_far = field.presence_bit >= REGISTER_BITS;
    if field.oneof.is_none() && !is_far {
        return direct;
    }
    let bit = if is_far { DRAIN_BIT } else { field.presence_bit as u8 };
    let of = field.oneof.map(usize::from);
    let slot_bytes = of.and_then(|i| message.oneofs.get(i)).map_or(0, |oneof| oneof.slot_bytes as u8);
    let rivals = of.and_then(|i| rivals.get(i)).cloned().unwrap_or_default();
    detours.push(Detour { field: ParseEntry { bit, ..direct }, bit: field.presence_bit, rivals, slot_bytes });
    ParseEntry {
        op: ParseOp::Detour,
        other_op: ParseOp::Detour,
        aux: detours.len() as u32 - 1,
        bit,
        ..direct
    }
}

/// Puts the presence bits of a message's oneofs into `all`. Where each oneof's are; nowhere for one of a single member.
fn rivals(message: &Message, all: &mut Vec<OneofMask>) -> Vec<Range<u32>> {
    let mut parts = message.layout.oneofs.as_slice();
    let ranges = message.oneofs.iter().map(|oneof| {
        let end = parts.iter().skip(1).position(|part| part.first).map_or(parts.len(), |at| at + 1);
        let (own, rest) = parts.split_at(end);
        parts = rest;
        let start = all.len() as u32;
        if oneof.fields.len() > 1 {
            all.extend(own);
        }
        start..all.len() as u32
    });
    ranges.collect()
}

fn direct_entry(schema: &Schema, field: &Field) -> ParseEntry {
    let repeated = field.cardinality == Cardinality::Repeated;
    let enumeration = field.enumeration.map(|i| (i, &schema.enums()[i.0 as usize]));
    let closed = enumeration.is_some_and(|(_, e)| e.closed);
    let aux = field.message.map(|m| m.0).or(enumeration.map(|(i, _)| i.0)).unwrap_or(0);
    let wire_type = wire_type(field);
    let tag = field.number << 3 | u32::from(wire_type);
    // A singular field's bits start out of reach of the register when its number in the message does.
    let bit = field.presence_bit.min(u32::from(DRAIN_BIT)) as u8;
    let entry = ParseEntry { tag, slot: field.slot, aux, bit, ..ParseEntry::default() };
    if !repeated {
        return ParseEntry { op: singular_op(field, closed), ..entry };
    }
    if !field.kind.is_scalar() {
        return ParseEntry { op: run_op(schema, field, closed), ..entry };
    }
    let (run, packed) = (run_op(schema, field, closed), packed_op(field.kind, closed));
    let packed_tag = field.number << 3 | u32::from(WIRE_DELIMITED);
    if field.packed {
        ParseEntry { tag: packed_tag, op: packed, other_op: run, other_wire_type: wire_type, ..entry }
    } else {
        ParseEntry { op: run, other_op: packed, other_wire_type: WIRE_DELIMITED, ..entry }
    }
}

fn wire_type(field: &Field) -> u8 {
    match field.kind {
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => 1,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => 5,
        Kind::Message if field.group => 3,
        Kind::String | Kind::Bytes | Kind::Message => WIRE_DELIMITED,
        _ => 0,
    }
}

fn singular_op(field: &Field, closed: bool) -> ParseOp {
    match field.kind {
        Kind::Enum if closed => ParseOp::ClosedEnum,
        Kind::Int32 | Kind::Uint32 | Kind::Enum => ParseOp::Varint32,
        Kind::Int64 | Kind::Uint64 => ParseOp::Varint64,
        Kind::Sint32 => ParseOp::Zigzag32,
        Kind::Sint64 => ParseOp::Zigzag64,
        Kind::Bool => ParseOp::Bool,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => ParseOp::Fixed32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => ParseOp::Fixed64,
        Kind::String if field.utf8 => ParseOp::Text,
        Kind::String | Kind::Bytes => ParseOp::Bytes,
        Kind::Message if field.group => ParseOp::Group,
        Kind::Message => ParseOp::Message,
    }
}

fn run_op(schema: &Schema, field: &Field, closed: bool) -> ParseOp {
    match field.kind {
        Kind::Enum if closed => ParseOp::RunClosedEnum,
        Kind::Int32 | Kind::Uint32 | Kind::Enum => ParseOp::RunVarint32,
        Kind::Int64 | Kind::Uint64 => ParseOp::RunVarint64,
        Kind::Sint32 => ParseOp::RunZigzag32,
        Kind::Sint64 => ParseOp::RunZigzag64,
        Kind::Bool => ParseOp::RunBool,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => ParseOp::RunFixed32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => ParseOp::RunFixed64,
        Kind::String if field.utf8 => ParseOp::RunText,
        Kind::String | Kind::Bytes => ParseOp::RunBytes,
        Kind::Message if field.group => ParseOp::RunGroup,
        Kind::Message if field.is_map && maps_to_closed_enum(schema, field) => ParseOp::RunClosedEntry,
        Kind::Message => ParseOp::RunMessage,
    }
}

fn maps_to_closed_enum(schema: &Schema, field: &Field) -> bool {
    let entry = field.message.map(|i| schema.message(i));
    let value = entry.and_then(|m| m.field(2)).and_then(|f| f.enumeration);
    let closed = |e: &Enum| e.closed;
    value.and_then(|i| schema.enums().get(i.0 as usize)).is_some_and(closed)
}

fn packed_op(kind: Kind, closed: bool) -> ParseOp {
    match kind {
        Kind::Enum if closed => ParseOp::PackedClosedEnum,
        Kind::Int64 | Kind::Uint64 => ParseOp::PackedVarint64,
        Kind::Sint32 => ParseOp::PackedZigzag32,
        Kind::Sint64 => ParseOp::PackedZigzag64,
        Kind::Bool => ParseOp::PackedBool,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => ParseOp::PackedFixed32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => ParseOp::PackedFixed64,
        _ => ParseOp::PackedVarint32,
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what a oneof takes, and what a switch between its members clears, is a word for 32 members.
    use super::*;
    use trunkline_schema::ONEOF_MEMBERS_MAX;

    #[test]
    fn members_of_a_oneof_share_its_words() {
        let members: String = (1..=ONEOF_MEMBERS_MAX).map(|i| format!("int32 m{i} = {i};")).collect();
        let text = format!(
            "syntax = \"proto3\"; message M {{ oneof choice {{ {members} }}
             oneof other {{ int32 x = 2000; int32 y = 2001; }} oneof single {{ int32 z = 2002; }} }}"
        );
        let schema = Schema::from_proto_source("a.proto", &text).unwrap();
        let tables = ParseTables::new(&schema);
        let words = ONEOF_MEMBERS_MAX / 32;
        assert_eq!(tables.oneofs.len(), words + 1);
        let detour = |number| tables.detour(tables.messages[0].find(number));
        for number in 1..=ONEOF_MEMBERS_MAX as u32 {
            assert_eq!(tables.rivals(detour(number)).len(), words);
        }
        assert_eq!(tables.rivals(detour(2001)), &tables.oneofs[words..]);
        assert!(detour(2002).rivals.is_empty(), "nothing to clear");
    }
}
