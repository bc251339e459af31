//! Schema to emit tables.

use std::sync::Arc;

use trunkline_schema::{Cardinality, Field, Kind, Message, Schema};

use super::table::{ENTRY_BYTES_MAX, EmitEntry, EmitOp, EmitTable, Tag};

const WIRE_DELIMITED: u32 = 2;

/// The emit tables of a schema.
#[derive(Debug)]
pub(in crate::transcode) struct EmitTables {
    /// One per message of the schema, by its index.
    pub(super) messages: Box<[EmitTable]>,
    /// For unknown fields, which are rare.
    pub(super) schema: Arc<Schema>,
    /// What to point at when there is no such index.
    nowhere: EmitTable,
}

impl EmitTables {
    pub(in crate::transcode) fn new(schema: Arc<Schema>) -> Self {
        let messages = schema.messages().iter().zip(0..).map(|(m, i)| table(&schema, i, m)).collect();
        EmitTables { messages, schema, nowhere: EmitTable::default() }
    }

    /// Whether a closed enum field's type has a number, as it is stored.
    pub(super) fn declares(&self, entry: &EmitEntry, stored: u32) -> bool {
        self.schema.enums().get(entry.child as usize).is_some_and(|of| of.declares(stored as i32))
    }

    /// The table of a message field's type.
    #[inline(always)]
    pub(super) fn child(&self, entry: &EmitEntry) -> &EmitTable {
        self.messages.get(entry.child as usize).unwrap_or(&self.nowhere)
    }
}

fn table(schema: &Schema, index: u32, message: &Message) -> EmitTable {
    EmitTable {
        entries: message.fields.iter().map(|f| entry(schema, message, f)).collect(),
        block_bytes: message.layout.block_bytes,
        presence_words: message.layout.presence_words,
        // Key and value are the only fields of an entry.
        forced: if message.is_map_entry { (1 << message.fields.len().min(2)) - 1 } else { 0 },
        defaults: if message.is_map_entry { entry_defaults(schema, message) } else { [0; ENTRY_BYTES_MAX] },
        is_plain: message.oneofs.is_empty() && !message.is_map_entry,
        oneofs: message.layout.oneofs.as_slice().into(),
        index,
    }
}

fn entry(schema: &Schema, message: &Message, field: &Field) -> EmitEntry {
    let repeated = field.cardinality == Cardinality::Repeated;
    let enumeration = field.enumeration.map(|i| i.0);
    let closed = enumeration.and_then(|i| schema.enums().get(i as usize)).is_some_and(|e| e.closed);
    let op = match (repeated, field.packed) {
        (false, _) if closed => EmitOp::ClosedEnum,
        (true, true) if closed => EmitOp::PackedClosedEnum,
        (true, false) if closed => EmitOp::RunClosedEnum,
        (false, _) => singular_op(field),
        (true, true) if field.kind.is_scalar() => packed_op(field.kind),
        (true, _) => run_op(field),
    };
    EmitEntry {
        tag: Tag::new(field.number, wire_type(field, repeated)),
        slot: field.slot,
        child: field.message.map(|m| m.0).or(enumeration).unwrap_or(u32::MAX),
        number: field.number,
        op,
        slot_bytes: if repeated { 8 } else { field.kind.size_bytes() as u8 },
        skip_zero: field.cardinality == Cardinality::Implicit && !message.is_map_entry,
    }
}

/// The block of a map entry without key and value: zeros, but for an enum the first of its values.
fn entry_defaults(schema: &Schema, message: &Message) -> [u8; ENTRY_BYTES_MAX] {
    let mut block = [0; ENTRY_BYTES_MAX];
    for field in &message.fields {
        let default =
            field.enumeration.and_then(|i| schema.enums().get(i.0 as usize)).map(|e| e.default_number());
        let slot = field.slot as usize..field.slot as usize + 4;
        if let (Some(default), Some(slot)) = (default, block.get_mut(slot)) {
            slot.copy_from_slice(&default.to_le_bytes());
        }
    }
    block
}

fn wire_type(field: &Field, repeated: bool) -> u32 {
    match field.kind {
        kind if repeated && field.packed && kind.is_scalar() => WIRE_DELIMITED,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => 1,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => 5,
        Kind::Message if field.group => 3,
        Kind::String | Kind::Bytes | Kind::Message => WIRE_DELIMITED,
        _ => 0,
    }
}

fn singular_op(field: &Field) -> EmitOp {
    match field.kind {
        Kind::Uint32 => EmitOp::Uint32,
        Kind::Int32 | Kind::Enum => EmitOp::Int32,
        Kind::Int64 | Kind::Uint64 => EmitOp::Varint64,
        Kind::Sint32 => EmitOp::Zigzag32,
        Kind::Sint64 => EmitOp::Zigzag64,
        Kind::Bool => EmitOp::Bool,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => EmitOp::Fixed32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => EmitOp::Fixed64,
        Kind::String if field.utf8 => EmitOp::Text,
        Kind::String | Kind::Bytes => EmitOp::Bytes,
        Kind::Message if field.group => EmitOp::Group,
        Kind::Message => EmitOp::Message,
    }
}

fn run_op(field: &Field) -> EmitOp {
    match field.kind {
        Kind::Uint32 => EmitOp::RunUint32,
        Kind::Int32 | Kind::Enum => EmitOp::RunInt32,
        Kind::Int64 | Kind::Uint64 => EmitOp::RunVarint64,
        Kind::Sint32 => EmitOp::RunZigzag32,
        Kind::Sint64 => EmitOp::RunZigzag64,
        Kind::Bool => EmitOp::RunBool,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => EmitOp::RunFixed32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => EmitOp::RunFixed64,
        Kind::String if field.utf8 => EmitOp::RunText,
        Kind::String | Kind::Bytes => EmitOp::RunBytes,
        Kind::Message if field.group => EmitOp::RunGroup,
        Kind::Message => EmitOp::RunMessage,
    }
}

fn packed_op(kind: Kind) -> EmitOp {
    match kind {
        Kind::Uint32 => EmitOp::PackedUint32,
        Kind::Int64 | Kind::Uint64 => EmitOp::PackedVarint64,
        Kind::Sint32 => EmitOp::PackedZigzag32,
        Kind::Sint64 => EmitOp::PackedZigzag64,
        Kind::Bool => EmitOp::PackedBool,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => EmitOp::PackedFixed32,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => EmitOp::PackedFixed64,
        _ => EmitOp::PackedInt32,
    }
}
