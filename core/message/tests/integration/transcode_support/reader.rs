//! Linear message to prost-reflect message, by the schema alone.

use prost::Message as _;
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, Value};
use trunkline_schema::{Field, Kind, MessageIndex, Schema};

fn u32_at(extent: &[u8], at: u32) -> u32 {
    u32::from_le_bytes(extent[at as usize..][..4].try_into().unwrap())
}

fn u64_at(extent: &[u8], at: u32) -> u64 {
    u64::from_le_bytes(extent[at as usize..][..8].try_into().unwrap())
}

fn bytes_at(extent: &[u8], slot: u32) -> &[u8] {
    &extent[u32_at(extent, slot) as usize..][..u32_at(extent, slot + 4) as usize]
}

/// Reads the block at `base`.
pub fn read(
    schema: &Schema,
    index: MessageIndex,
    descriptor: &MessageDescriptor,
    extent: &[u8],
    base: u32,
) -> DynamicMessage {
    assert_eq!(base % 8, 0, "a block is aligned");
    let message = schema.message(index);
    let mut out = DynamicMessage::new(descriptor.clone());
    for field in &message.fields {
        let word = u32_at(extent, base + 4 + field.presence_bit / 32 * 4);
        let present = word >> (field.presence_bit % 32) & 1 != 0;
        let slot = base + field.slot;
        if !present {
            let oneof = field.oneof.map(|o| &message.oneofs[usize::from(o)]);
            assert!(oneof.is_some() || u32_at_most(extent, slot, field) == 0, "an absent field is zero");
            continue;
        }
        let target = descriptor.get_field(field.number).unwrap();
        if let Some(oneof) = target.containing_oneof() {
            assert!(oneof.fields().all(|f| !out.has_field(&f)), "one member of a oneof is set");
        }
        let value = field_value(schema, field, &target, extent, slot);
        // Asked here because prost-reflect's own complaint prints the descriptor, which may be recursive.
        assert!(value.is_valid_for_field(&target), "{} {:?} {value:?}", field.name, field.kind);
        out.set_field(&target, value);
    }
    let unknown = u32_at(extent, base);
    if unknown != 0 {
        let bytes = &extent[unknown as usize + 4..][..u32_at(extent, unknown) as usize];
        out.merge(bytes).unwrap();
    }
    out
}

fn u32_at_most(extent: &[u8], slot: u32, field: &Field) -> u64 {
    match (field.is_repeated(), field.kind.size_bytes()) {
        (true, _) | (_, 8) => u64_at(extent, slot),
        (_, 4) => u64::from(u32_at(extent, slot)),
        _ => u64::from(extent[slot as usize]),
    }
}

fn field_value(
    schema: &Schema,
    field: &Field,
    target: &prost_reflect::FieldDescriptor,
    extent: &[u8],
    slot: u32,
) -> Value {
    if !field.is_repeated() {
        return value(schema, field, target.kind(), extent, slot);
    }
    let (at, count) = (u32_at(extent, slot), u32_at(extent, slot + 4));
    let size = field.kind.size_bytes();
    assert!(
        count == 0 || at % size.min(if field.kind.is_scalar() { 8 } else { 4 }) == 0,
        "an array is aligned"
    );
    let elements = (0..count).map(|i| value(schema, field, target.kind(), extent, at + i * size));
    if !target.is_map() {
        return Value::List(elements.collect());
    }
    // A value that is not there is its type's default, for an enum the first value.
    let value_field = field.message.and_then(|m| schema.message(m).field(2)).unwrap();
    let enum_default = value_field.enumeration.map(|e| schema.enumeration(e).default_number());
    let entries = elements.map(|entry| {
        let entry = entry.as_message().unwrap().clone();
        let part = |number| entry.get_field_by_number(number).unwrap().into_owned();
        let default = enum_default.filter(|_| !entry.has_field_by_number(2));
        (map_key(part(1)), default.map_or_else(|| part(2), Value::EnumNumber))
    });
    Value::Map(entries.collect())
}

fn map_key(value: Value) -> MapKey {
    match value {
        Value::Bool(v) => MapKey::Bool(v),
        Value::I32(v) => MapKey::I32(v),
        Value::I64(v) => MapKey::I64(v),
        Value::U32(v) => MapKey::U32(v),
        Value::U64(v) => MapKey::U64(v),
        Value::String(v) => MapKey::String(v),
        other => panic!("{other:?} is no map key"),
    }
}

fn value(schema: &Schema, field: &Field, kind: prost_reflect::Kind, extent: &[u8], at: u32) -> Value {
    match field.kind {
        Kind::Bool => {
            assert!(extent[at as usize] < 2, "a bool is 0 or 1");
            Value::Bool(extent[at as usize] == 1)
        }
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(u32_at(extent, at) as i32),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(u32_at(extent, at)),
        Kind::Float => Value::F32(f32::from_bits(u32_at(extent, at))),
        Kind::Enum => Value::EnumNumber(u32_at(extent, at) as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(u64_at(extent, at) as i64),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(u64_at(extent, at)),
        Kind::Double => Value::F64(f64::from_bits(u64_at(extent, at))),
        Kind::String => Value::String(std::str::from_utf8(bytes_at(extent, at)).unwrap().to_owned()),
        Kind::Bytes => Value::Bytes(bytes_at(extent, at).to_vec().into()),
        Kind::Message => {
            let child = kind.as_message().unwrap();
            Value::Message(read(schema, field.message.unwrap(), child, extent, u32_at(extent, at)))
        }
    }
}
