//! Random, valid descriptor sets: every kind, cardinality and syntax, nesting, recursion, oneofs and maps.
//!
//! A generator reads its decisions from a tape of bytes. A property test makes the tape and shrinks it; a tape that
//! has run out reads as zeros, which are always the plainest choice.

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FieldOptions,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, OneofDescriptorProto,
};

/// Decisions, one after another.
pub struct Tape<'t> {
    bytes: &'t [u8],
}

impl<'t> Tape<'t> {
    pub fn new(bytes: &'t [u8]) -> Self {
        Self { bytes }
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// A number below `n`, at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    pub fn coin(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

/// Which syntax a file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    Proto3,
    Proto2,
}

/// An encoded set of one file with at least one message; the messages are `t.M0`, `t.M1` and so on.
pub fn descriptor_set(tape: &mut Tape<'_>) -> Vec<u8> {
    FileDescriptorSet { file: vec![file(tape)] }.encode_to_vec()
}

/// The file of [`descriptor_set`].
pub fn file(tape: &mut Tape<'_>) -> FileDescriptorProto {
    let syntax = if tape.coin() { Syntax::Proto2 } else { Syntax::Proto3 };
    let messages = 1 + tape.below(4);
    FileDescriptorProto {
        name: Some("t.proto".into()),
        package: Some("t".into()),
        syntax: (syntax == Syntax::Proto3).then(|| "proto3".into()),
        message_type: (0..messages).map(|i| message(tape, syntax, i, messages)).collect(),
        enum_type: vec![enumeration()],
        ..Default::default()
    }
}

fn enumeration() -> EnumDescriptorProto {
    let value = |name: &str, number| EnumValueDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        ..Default::default()
    };
    EnumDescriptorProto {
        name: Some("E".into()),
        value: vec![value("E_ZERO", 0), value("E_ONE", 1), value("E_MINUS", -7), value("E_BIG", 100_000)],
        ..Default::default()
    }
}

fn message(tape: &mut Tape<'_>, syntax: Syntax, index: usize, messages: usize) -> DescriptorProto {
    let mut out = DescriptorProto { name: Some(format!("M{index}")), ..Default::default() };
    let mut number = 0;
    for _ in 0..tape.below(12) {
        number += 1 + if tape.below(4) == 3 { tape.below(200) as i32 } else { 0 };
        let mut field = field(tape, syntax, number, messages);
        match tape.below(8) {
            1 => number = oneof(tape, syntax, &mut out, &mut field, messages),
            2 => make_map(tape, syntax, &mut out, &mut field, messages, index),
            3 | 4 => make_repeated(tape, &mut field),
            5 if syntax == Syntax::Proto3 => {
                field.proto3_optional = Some(true);
                field.oneof_index = Some(out.oneof_decl.len() as i32);
                let name = Some(format!("_f{number}"));
                out.oneof_decl.push(OneofDescriptorProto { name, ..Default::default() });
            }
            6 if syntax == Syntax::Proto2 => field.label = Some(Label::Required.into()),
            _ => {}
        }
        out.field.push(field);
    }
    if tape.coin() {
        out.field.reverse();
    }
    settle_oneofs(&mut out);
    out
}

fn field(tape: &mut Tape<'_>, syntax: Syntax, number: i32, messages: usize) -> FieldDescriptorProto {
    const KINDS: [Type; 18] = [
        Type::Int32,
        Type::String,
        Type::Message,
        Type::Bool,
        Type::Uint64,
        Type::Bytes,
        Type::Enum,
        Type::Double,
        Type::Float,
        Type::Int64,
        Type::Uint32,
        Type::Sint32,
        Type::Sint64,
        Type::Fixed32,
        Type::Fixed64,
        Type::Sfixed32,
        Type::Sfixed64,
        Type::Group,
    ];
    let mut kind = KINDS[tape.below(KINDS.len())];
    if kind == Type::Group && syntax == Syntax::Proto3 {
        kind = Type::Message;
    }
    FieldDescriptorProto {
        name: Some(format!("f{number}")),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        type_name: match kind {
            Type::Message | Type::Group => Some(format!(".t.M{}", tape.below(messages))),
            Type::Enum => Some(".t.E".into()),
            _ => None,
        },
        ..Default::default()
    }
}

fn make_repeated(tape: &mut Tape<'_>, field: &mut FieldDescriptorProto) {
    field.label = Some(Label::Repeated.into());
    let scalar = !matches!(field.r#type(), Type::String | Type::Bytes | Type::Message | Type::Group);
    if scalar && tape.coin() {
        field.options = Some(FieldOptions { packed: Some(tape.coin()), ..Default::default() });
    }
}

/// Opens a oneof of `field` and up to three more members; returns the last number used.
fn oneof(
    tape: &mut Tape<'_>,
    syntax: Syntax,
    out: &mut DescriptorProto,
    first: &mut FieldDescriptorProto,
    messages: usize,
) -> i32 {
    let index = out.oneof_decl.len() as i32;
    let mut number = first.number();
    out.oneof_decl.push(OneofDescriptorProto { name: Some(format!("one{index}")), ..Default::default() });
    first.oneof_index = Some(index);
    for _ in 0..tape.below(4) {
        number += 1 + tape.below(40) as i32;
        let mut member = field(tape, syntax, number, messages);
        member.oneof_index = Some(index);
        out.field.push(member);
    }
    number
}

fn make_map(
    tape: &mut Tape<'_>,
    syntax: Syntax,
    out: &mut DescriptorProto,
    map: &mut FieldDescriptorProto,
    messages: usize,
    index: usize,
) {
    const KEYS: [Type; 6] =
        [Type::String, Type::Int32, Type::Bool, Type::Uint64, Type::Sint64, Type::Fixed32];
    let mut key = field(tape, syntax, 1, messages);
    (key.r#type, key.type_name) = (Some(KEYS[tape.below(KEYS.len())].into()), None);
    let mut value = field(tape, syntax, 2, messages);
    if value.r#type() == Type::Group {
        value.r#type = Some(Type::Message.into());
    }
    key.name = Some("key".into());
    value.name = Some("value".into());
    let entry = format!("F{}Entry", map.number());
    map.label = Some(Label::Repeated.into());
    map.r#type = Some(Type::Message.into());
    map.type_name = Some(format!(".t.M{index}.{entry}"));
    out.nested_type.push(DescriptorProto {
        name: Some(entry),
        field: vec![key, value],
        options: Some(MessageOptions { map_entry: Some(true), ..Default::default() }),
        ..Default::default()
    });
}

/// protoc puts synthetic oneofs behind the real ones.
fn settle_oneofs(out: &mut DescriptorProto) {
    let synthetic = |i: usize, out: &DescriptorProto| out.oneof_decl[i].name().starts_with('_');
    let mut order: Vec<usize> = (0..out.oneof_decl.len()).collect();
    order.sort_by_key(|&i| synthetic(i, out));
    out.oneof_decl = order.iter().map(|&i| out.oneof_decl[i].clone()).collect();
    for field in &mut out.field {
        let moved = field.oneof_index.and_then(|old| order.iter().position(|&i| i == old as usize));
        field.oneof_index = moved.map(|new| new as i32);
    }
}
