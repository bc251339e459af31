//! Random messages of random schemas, built by [`DynamicBuilder`] and kept as a model to compare with.
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../../schema/tests/integration/support/random.rs"]
pub mod random;

use std::collections::BTreeMap;

use random::Tape;
use trunkline_message::{AlignedBuf, Built, DynamicBuilder, DynamicView, Value};
use trunkline_schema::{Field, Kind, MessageIndex, Schema};

/// What a message should hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub fields: BTreeMap<u32, Held>,
    pub unknown: Vec<u8>,
}

/// What a field should hold. Numbers by their bits, so that NaN equals itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    Bits(u64),
    Bytes(Vec<u8>),
    Message(Model),
    List(Vec<Held>),
}

/// A random schema and a random message of its first type.
pub struct Case {
    pub schema: Schema,
    pub root: MessageIndex,
    pub model: Model,
    pub built: Built<AlignedBuf>,
}

impl Case {
    pub fn from_tape(bytes: &[u8]) -> Self {
        let (for_schema, for_message) = bytes.split_at(bytes.len() / 2);
        let set = random::descriptor_set(&mut Tape::new(for_schema));
        let schema = Schema::from_descriptor_set(&set).unwrap();
        let root = schema.message_named("t.M0").unwrap();
        let mut model = Model::default();
        let built = DynamicBuilder::build(&schema, root, AlignedBuf::new(), |builder| {
            fill(&schema, &mut Tape::new(for_message), builder, &mut model, 4);
            Ok(())
        })
        .unwrap();
        Self { schema, root, model, built }
    }
}

/// Sets, sets again, clears, pushes to and descends into random fields in random order.
fn fill(
    schema: &Schema,
    tape: &mut Tape<'_>,
    builder: &mut DynamicBuilder<'_, AlignedBuf>,
    model: &mut Model,
    depth: u32,
) {
    let descriptor = builder.descriptor();
    for _ in 0..tape.below(3 + 2 * descriptor.fields.len()) {
        let Some(field) = descriptor.fields.get(tape.below(descriptor.fields.len())) else { break };
        if tape.below(12) == 11 {
            builder.clear(field);
            model.fields.remove(&field.number);
            continue;
        }
        if field.kind == Kind::Message && depth == 0 {
            continue;
        }
        displace(descriptor, field, model);
        match (field.kind, field.is_repeated()) {
            (Kind::Message, false) => {
                let held = model.fields.entry(field.number).or_insert(Held::Message(Model::default()));
                let Held::Message(inner) = held else { unreachable!() };
                fill(schema, tape, &mut builder.message(field).unwrap(), inner, depth - 1);
            }
            (_, false) => {
                let held = scalar(schema, tape, field);
                builder.set(field, value(field, &held)).unwrap();
                model.fields.insert(field.number, held);
            }
            (_, true) => push(schema, tape, builder, model, field, depth),
        }
    }
    if tape.below(6) == 5 {
        model.unknown = vec![0x98, 0x75, tape.byte() & 0x7f];
        builder.set_unknown(&model.unknown);
    }
}

fn push(
    schema: &Schema,
    tape: &mut Tape<'_>,
    builder: &mut DynamicBuilder<'_, AlignedBuf>,
    model: &mut Model,
    field: &Field,
    depth: u32,
) {
    let Held::List(list) = model.fields.entry(field.number).or_insert(Held::List(Vec::new())) else {
        unreachable!()
    };
    for _ in 0..1 + tape.below(5) {
        if field.kind == Kind::Message {
            let mut inner = Model::default();
            fill(schema, tape, &mut builder.push_message(field).unwrap(), &mut inner, depth - 1);
            list.push(Held::Message(inner));
        } else {
            let held = scalar(schema, tape, field);
            builder.push(field, value(field, &held)).unwrap();
            list.push(held);
        }
    }
}

/// Setting a member of a oneof makes its siblings absent.
fn displace(descriptor: &trunkline_schema::Message, field: &Field, model: &mut Model) {
    let Some(oneof) = field.oneof else { return };
    for sibling in descriptor.fields.iter().filter(|f| f.oneof == Some(oneof) && f.number != field.number) {
        model.fields.remove(&sibling.number);
    }
}

fn scalar(schema: &Schema, tape: &mut Tape<'_>, field: &Field) -> Held {
    match field.kind {
        Kind::Bool => Held::Bits(u64::from(tape.coin())),
        Kind::Enum => {
            let closed = field.enumeration.is_some_and(|index| schema.enumeration(index).closed);
            // The last one is not declared.
            let numbers = [0, 1, -7i32 as u32, 100_000, 5];
            Held::Bits(numbers[tape.below(if closed { 4 } else { 5 })].into())
        }
        Kind::String | Kind::Bytes => {
            let length = tape.below(40);
            let bytes = (0..length)
                .map(|_| if field.kind == Kind::String { b'a' + tape.byte() % 26 } else { tape.byte() });
            Held::Bytes(bytes.collect())
        }
        kind if kind.size_bytes() == 4 => Held::Bits(tape.u64() & 0xffff_ffff),
        _ => Held::Bits(tape.u64()),
    }
}

fn value<'a>(field: &Field, held: &'a Held) -> Value<'a> {
    match (field.kind, held) {
        (Kind::Bool, Held::Bits(bits)) => Value::Bool(*bits != 0),
        (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, Held::Bits(bits)) => Value::I32(*bits as i32),
        (Kind::Uint32 | Kind::Fixed32, Held::Bits(bits)) => Value::U32(*bits as u32),
        (Kind::Float, Held::Bits(bits)) => Value::F32(f32::from_bits(*bits as u32)),
        (Kind::Enum, Held::Bits(bits)) => Value::Enum(*bits as i32),
        (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, Held::Bits(bits)) => Value::I64(*bits as i64),
        (Kind::Uint64 | Kind::Fixed64, Held::Bits(bits)) => Value::U64(*bits),
        (Kind::Double, Held::Bits(bits)) => Value::F64(f64::from_bits(*bits)),
        (Kind::String, Held::Bytes(bytes)) => Value::String(bytes),
        (_, Held::Bytes(bytes)) => Value::Bytes(bytes),
        _ => unreachable!(),
    }
}

/// What a view holds.
pub fn model_of(view: DynamicView<'_>) -> Model {
    let fields = view.fields().map(|(field, value)| (field.number, held(value))).collect();
    Model { fields, unknown: view.unknown().to_vec() }
}

fn held(value: Value<'_>) -> Held {
    match value {
        Value::Bool(v) => Held::Bits(v.into()),
        Value::I32(v) | Value::Enum(v) => Held::Bits((v as u32).into()),
        Value::U32(v) => Held::Bits(v.into()),
        Value::F32(v) => Held::Bits(v.to_bits().into()),
        Value::I64(v) => Held::Bits(v as u64),
        Value::U64(v) => Held::Bits(v),
        Value::F64(v) => Held::Bits(v.to_bits()),
        Value::String(v) | Value::Bytes(v) => Held::Bytes(v.to_vec()),
        Value::Message(v) => Held::Message(model_of(v)),
        Value::List(list) => Held::List(list.iter().map(held).collect()),
    }
}

/// Bytes a walk over everything the view reaches looks at; stops soon after `limit`.
pub fn bytes_visited(view: DynamicView<'_>, limit: usize) -> usize {
    let mut visited = view.descriptor().layout.block_bytes as usize;
    visited += view.view().unknown().len() + if view.view().unknown().is_empty() { 0 } else { 4 };
    for (field, value) in view.fields() {
        visited += match value {
            Value::List(list) if !field.kind.is_scalar() => {
                let slots = list.len() * field.kind.size_bytes() as usize;
                let mut inside = 0;
                for element in list.iter() {
                    inside += bytes_of(element, limit.saturating_sub(visited + inside));
                    if visited + inside > limit {
                        break;
                    }
                }
                slots + inside
            }
            Value::List(list) => list.len() * field.kind.size_bytes() as usize,
            value => bytes_of(value, limit.saturating_sub(visited)),
        };
        if visited > limit {
            break;
        }
    }
    visited
}

fn bytes_of(value: Value<'_>, limit: usize) -> usize {
    match value {
        Value::String(v) | Value::Bytes(v) => v.len(),
        Value::Message(view) if limit > 0 => bytes_visited(view, limit),
        Value::Message(_) => 1,
        _ => 0,
    }
}
