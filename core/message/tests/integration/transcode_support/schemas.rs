//! Random descriptor sets.

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FieldOptions,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, OneofDescriptorProto,
};

use super::Random;

const SCALARS: [Type; 14] = [
    Type::Double,
    Type::Float,
    Type::Int64,
    Type::Uint64,
    Type::Int32,
    Type::Fixed64,
    Type::Fixed32,
    Type::Bool,
    Type::Uint32,
    Type::Enum,
    Type::Sfixed32,
    Type::Sfixed64,
    Type::Sint32,
    Type::Sint64,
];
const MAP_KEYS: [Type; 8] = [
    Type::Int32,
    Type::Uint64,
    Type::Sint32,
    Type::Fixed64,
    Type::Sfixed32,
    Type::Bool,
    Type::String,
    Type::Int64,
];

/// An encoded descriptor set of one file with messages `random.M0`.. and an enum `random.E`.
pub fn random_schema(random: &mut Random) -> Vec<u8> {
    let proto3 = random.once_in(2);
    let messages = 1 + random.below(5);
    let file = FileDescriptorProto {
        name: Some("random.proto".into()),
        package: Some("random".into()),
        syntax: proto3.then(|| "proto3".into()),
        message_type: (0..messages).map(|i| message(random, i, messages, proto3)).collect(),
        enum_type: enumerations(proto3),
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

/// `E`, and `Z` for maps, whose enums have to begin with zero.
fn enumerations(proto3: bool) -> Vec<EnumDescriptorProto> {
    let e: &[i32] = if proto3 { &[0, 1, 300, -7] } else { &[5, 1, 64, 127, 255, 256, 1 << 20, -1] };
    [("E", e), ("Z", &[0, 3, 1000])].map(|(name, numbers)| enumeration(name, numbers)).into()
}

fn enumeration(name: &str, numbers: &[i32]) -> EnumDescriptorProto {
    let value = |(i, &n): (usize, &i32)| EnumValueDescriptorProto {
        name: Some(format!("{name}{i}")),
        number: Some(n),
        options: None,
    };
    EnumDescriptorProto {
        name: Some(name.into()),
        value: numbers.iter().enumerate().map(value).collect(),
        ..Default::default()
    }
}

fn message(random: &mut Random, index: usize, messages: usize, proto3: bool) -> DescriptorProto {
    // Now and then so many fields that presence bits leave the first words and tables their dense part.
    let count = if random.once_in(8) { 60 + random.below(40) } else { random.below(14) };
    let mut message = DescriptorProto { name: Some(format!("M{index}")), ..Default::default() };
    let mut number = 0;
    let mut optionals = Vec::new();
    for i in 0..count {
        number += match random.below(24) {
            0 => 1 + random.below(2500) as i32,
            1 if count < 20 => 1 << random.below(25),
            2..6 => 2,
            _ => 1,
        };
        // 19000 to 19999 are protobuf's own.
        number += if (19_000..20_000).contains(&number) { 1000 } else { 0 };
        let mut field = field(random, i, number, messages, proto3);
        if random.once_in(8) {
            map(random, &mut message, &mut field, messages);
        } else if random.once_in(5) && field.label() != Label::Repeated {
            let oneof = random.below(2) as i32;
            field.label = Some(Label::Optional as i32);
            field.oneof_index = Some(oneof);
        } else if proto3 && random.once_in(4) && field.label() == Label::Optional {
            field.proto3_optional = Some(true);
            optionals.push(i);
        }
        message.field.push(field);
    }
    name_oneofs(&mut message, &optionals);
    message
}

/// Declares the oneofs that have members, and one for each proto3 optional field behind them.
fn name_oneofs(message: &mut DescriptorProto, optionals: &[usize]) {
    for oneof in 0..2 {
        let at = message.oneof_decl.len() as i32;
        let members = message.field.iter_mut().filter(|f| f.oneof_index == Some(oneof));
        let members: Vec<_> = members.map(|f| f.oneof_index = Some(at + 100)).collect();
        if !members.is_empty() {
            message.oneof_decl.push(OneofDescriptorProto { name: Some(format!("o{at}")), options: None });
        }
    }
    for field in &mut message.field {
        field.oneof_index = field.oneof_index.map(|i| i - 100);
    }
    for &i in optionals {
        let field = &mut message.field[i];
        field.oneof_index = Some(message.oneof_decl.len() as i32);
        message.oneof_decl.push(OneofDescriptorProto { name: Some(format!("_f{i}")), options: None });
    }
}

fn field(random: &mut Random, i: usize, number: i32, messages: usize, proto3: bool) -> FieldDescriptorProto {
    let kind = match random.below(10) {
        0 => Type::String,
        1 => Type::Bytes,
        2..4 => Type::Message,
        4 if !proto3 => Type::Group,
        _ => *random.pick(&SCALARS),
    };
    let label = match random.below(12) {
        0..4 => Label::Repeated,
        4 if !proto3 && !matches!(kind, Type::Message | Type::Group) => Label::Required,
        _ => Label::Optional,
    };
    let packable = SCALARS.contains(&kind) && label == Label::Repeated;
    let options = FieldOptions { packed: Some(random.once_in(2)), ..Default::default() };
    FieldDescriptorProto {
        name: Some(format!("f{i}")),
        number: Some(number),
        label: Some(label as i32),
        r#type: Some(kind as i32),
        type_name: type_name(random, kind, messages),
        options: (packable && random.once_in(2)).then_some(options),
        ..Default::default()
    }
}

fn type_name(random: &mut Random, kind: Type, messages: usize) -> Option<String> {
    match kind {
        Type::Enum => Some(".random.E".into()),
        Type::Message | Type::Group => Some(format!(".random.M{}", random.below(messages))),
        _ => None,
    }
}

/// Turns a field into a map, with the entry type that protobuf compilers make up for it.
fn map(
    random: &mut Random,
    message: &mut DescriptorProto,
    field: &mut FieldDescriptorProto,
    messages: usize,
) {
    let name = format!("F{}Entry", &field.name()[1..]);
    let value = match random.below(4) {
        0 => Type::Message,
        1 => Type::String,
        2 => Type::Bytes,
        _ => *random.pick(&SCALARS),
    };
    let part = |name: &str, number, kind: Type, type_name| FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(kind as i32),
        type_name,
        ..Default::default()
    };
    let key = *random.pick(&MAP_KEYS);
    let value_type = match value {
        Type::Enum => Some(".random.Z".into()),
        _ => type_name(random, value, messages),
    };
    message.nested_type.push(DescriptorProto {
        name: Some(name.clone()),
        field: vec![part("key", 1, key, None), part("value", 2, value, value_type)],
        options: Some(MessageOptions { map_entry: Some(true), ..Default::default() }),
        ..Default::default()
    });
    field.label = Some(Label::Repeated as i32);
    field.r#type = Some(Type::Message as i32);
    field.type_name = Some(format!(".random.{}.{name}", message.name()));
    field.options = None;
}
