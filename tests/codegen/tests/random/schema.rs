//! Random descriptor sets that protobuf accepts: a few files, packages that meet, names from the dictionary.

use std::collections::HashSet;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::source_code_info::Location;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumOptions, EnumValueDescriptorProto, EnumValueOptions,
    FieldDescriptorProto, FieldOptions, FileDescriptorProto, FileDescriptorSet, MessageOptions,
    MethodDescriptorProto, MethodOptions, OneofDescriptorProto, ServiceDescriptorProto, ServiceOptions,
    SourceCodeInfo,
};

use crate::dice::Dice;
use crate::names::name;

/// Nested declarations within each other.
const DEPTH_MAX: usize = 3;
/// A message of so many fields is written by several functions.
const WIDE: usize = 130;

/// An encoded set of files, as protoc would hand them over.
pub fn descriptor_set(seed: u64) -> Vec<u8> {
    let dice = &mut Dice::new(seed);
    let mut taken: HashSet<String> = HashSet::new();
    let packages = packages(dice);
    let mut files: Vec<FileDescriptorProto> = Vec::new();
    for (index, package) in packages.iter().enumerate() {
        files.push(declarations(dice, index, package, &mut taken));
    }
    let types = Types::of(&files);
    for file in &mut files {
        let is_proto2 = file.syntax.is_none();
        for message in &mut file.message_type {
            fill(dice, message, &types, is_proto2);
        }
        services(dice, file, &types, &mut taken);
        file.source_code_info = Some(comments(dice, file));
    }
    FileDescriptorSet { file: files }.encode_to_vec()
}

/// Packages of which one may be within another, the same, or differ by its spelling alone.
fn packages(dice: &mut Dice) -> Vec<String> {
    let mut packages = vec![if dice.once_in(4) { String::new() } else { name(dice) }];
    for _ in 0..dice.below(3) {
        let first = packages[0].clone();
        packages.push(match dice.below(5) {
            _ if first.is_empty() => name(dice),
            0 => first.to_lowercase(),
            1 => first.to_uppercase(),
            2 => name(dice),
            _ => format!("{first}.{}", name(dice)),
        });
    }
    packages
}

/// A file with everything but fields and services.
fn declarations(
    dice: &mut Dice,
    index: usize,
    package: &str,
    taken: &mut HashSet<String>,
) -> FileDescriptorProto {
    let scope = if package.is_empty() { String::new() } else { format!("{package}.") };
    FileDescriptorProto {
        name: Some(format!("{index}.proto")),
        package: Some(package.to_owned()).filter(|package| !package.is_empty()),
        syntax: (!dice.once_in(4)).then(|| "proto3".to_owned()),
        message_type: (0..=dice.below(3)).map(|_| message(dice, &scope, 1, taken)).collect(),
        enum_type: (0..dice.below(3)).map(|_| enumeration(dice, &scope, taken)).collect(),
        ..FileDescriptorProto::default()
    }
}

/// A name nothing else in `scope` has.
fn fresh(dice: &mut Dice, scope: &str, taken: &mut HashSet<String>) -> String {
    loop {
        let name = name(dice);
        if taken.insert(format!("{scope}{name}")) {
            return name;
        }
    }
}

fn message(dice: &mut Dice, scope: &str, depth: usize, taken: &mut HashSet<String>) -> DescriptorProto {
    let name = fresh(dice, scope, taken);
    let scope = format!("{scope}{name}.");
    let nested = if depth < DEPTH_MAX { dice.below(3) } else { 0 };
    DescriptorProto {
        name: Some(name),
        nested_type: (0..nested).map(|_| message(dice, &scope, depth + 1, taken)).collect(),
        enum_type: (0..dice.below(2)).map(|_| enumeration(dice, &scope, taken)).collect(),
        options: dice
            .once_in(16)
            .then(|| MessageOptions { deprecated: Some(true), ..MessageOptions::default() }),
        ..DescriptorProto::default()
    }
}

fn enumeration(dice: &mut Dice, scope: &str, taken: &mut HashSet<String>) -> EnumDescriptorProto {
    let name = fresh(dice, scope, taken);
    let value = |dice: &mut Dice, number: usize, taken: &mut HashSet<String>| {
        let prefix = if dice.once_in(2) { format!("{name}_") } else { String::new() };
        let value = loop {
            let value = format!("{prefix}{}", self::name(dice));
            if taken.insert(format!("{scope}{value}")) {
                break value;
            }
        };
        EnumValueDescriptorProto {
            name: Some(value),
            number: Some(i32::try_from(number).expect("a few")),
            options: dice
                .once_in(16)
                .then(|| EnumValueOptions { deprecated: Some(true), ..EnumValueOptions::default() }),
        }
    };
    EnumDescriptorProto {
        value: (0..=dice.below(5)).map(|number| value(dice, number, taken)).collect(),
        options: dice.once_in(16).then(|| EnumOptions { deprecated: Some(true), ..EnumOptions::default() }),
        name: Some(name),
        ..EnumDescriptorProto::default()
    }
}

/// Full names of all that a field may refer to.
#[derive(Default)]
struct Types {
    messages: Vec<String>,
    enums: Vec<String>,
    /// Enums of proto3 files, which alone proto3 messages may use.
    open_enums: Vec<String>,
}

impl Types {
    fn of(files: &[FileDescriptorProto]) -> Self {
        let mut types = Self::default();
        for file in files {
            let scope = format!(".{}", file.package());
            types.scope(&scope, &file.message_type, &file.enum_type, file.syntax.is_some());
        }
        types
    }

    fn scope(
        &mut self,
        scope: &str,
        messages: &[DescriptorProto],
        enums: &[EnumDescriptorProto],
        open: bool,
    ) {
        let full = |name: &str| format!("{}.{name}", scope.trim_end_matches('.'));
        for e in enums {
            self.enums.push(full(e.name()));
            self.open_enums.extend(open.then(|| full(e.name())));
        }
        for message in messages {
            let full = full(message.name());
            self.scope(&full, &message.nested_type, &message.enum_type, open);
            self.messages.push(full);
        }
    }
}

/// Gives a message its fields.
fn fill(dice: &mut Dice, message: &mut DescriptorProto, types: &Types, is_proto2: bool) {
    message.nested_type.iter_mut().for_each(|nested| fill(dice, nested, types, is_proto2));
    let mut taken: HashSet<String> = message.nested_type.iter().map(|m| m.name().to_owned()).collect();
    taken.extend(message.enum_type.iter().flat_map(|e| {
        let values = e.value.iter().map(|value| value.name().to_owned());
        values.chain([e.name().to_owned()])
    }));
    for _ in 0..dice.below(3) {
        let name = fresh(dice, "", &mut taken);
        message.oneof_decl.push(OneofDescriptorProto { name: Some(name), options: None });
    }
    let real_oneofs = message.oneof_decl.len();
    let count = if dice.once_in(250) { WIDE + dice.below(200) } else { dice.below(10) };
    for number in 1..=count.max(real_oneofs) {
        let mut field = FieldDescriptorProto {
            name: Some(fresh(dice, "", &mut taken)),
            number: Some(i32::try_from(number).expect("a few hundred")),
            options: dice
                .once_in(16)
                .then(|| FieldOptions { deprecated: Some(true), ..FieldOptions::default() }),
            ..FieldDescriptorProto::default()
        };
        typed(dice, &mut field, types, is_proto2);
        // Every oneof has a member.
        let oneof = (number <= real_oneofs).then_some(number - 1);
        let oneof = oneof.or_else(|| (real_oneofs > 0 && dice.once_in(4)).then(|| dice.below(real_oneofs)));
        match oneof {
            Some(oneof) => {
                field.label = Some(Label::Optional.into());
                field.oneof_index = Some(i32::try_from(oneof).expect("two"));
            }
            None => labelled(dice, &mut field, message, is_proto2),
        }
        message.field.push(field);
    }
}

fn typed(dice: &mut Dice, field: &mut FieldDescriptorProto, types: &Types, is_proto2: bool) {
    let enums = if is_proto2 { &types.enums } else { &types.open_enums };
    let kind = match dice.below(22) {
        0..=4 => Type::Message,
        5..=7 if !enums.is_empty() => Type::Enum,
        _ => *dice.pick(&[
            Type::Double,
            Type::Float,
            Type::Int64,
            Type::Uint64,
            Type::Int32,
            Type::Fixed64,
            Type::Bool,
            Type::String,
            Type::Bytes,
            Type::Uint32,
            Type::Sint32,
        ]),
    };
    field.set_type(kind);
    field.type_name = match kind {
        Type::Message => Some(dice.pick(&types.messages).clone()),
        Type::Enum => Some(dice.pick(enums).clone()),
        _ => None,
    };
}

/// Says how often a field is there; a map is a list of entries.
fn labelled(dice: &mut Dice, field: &mut FieldDescriptorProto, of: &mut DescriptorProto, is_proto2: bool) {
    let label = match dice.below(8) {
        0 | 1 => Label::Repeated,
        2 if is_proto2 => Label::Required,
        _ => Label::Optional,
    };
    field.set_label(label);
    match dice.below(6) {
        0 => map(dice, field, of),
        1 | 2 if !is_proto2 && label == Label::Optional => {
            field.proto3_optional = Some(true);
            field.oneof_index = i32::try_from(of.oneof_decl.len()).ok();
            let name = Some(format!("_{}", field.name()));
            of.oneof_decl.push(OneofDescriptorProto { name, options: None });
        }
        3 | 4 if is_proto2 && label != Label::Repeated => {
            field.default_value = match field.r#type() {
                Type::Double | Type::Float => {
                    Some((*dice.pick(&["inf", "-inf", "nan", "1.5", "-0.0"])).to_owned())
                }
                Type::Bool => Some("true".to_owned()),
                Type::String => Some("a \"quoted\" \\ {} text".to_owned()),
                Type::Bytes => Some("\\000\\377\\\"".to_owned()),
                Type::Message | Type::Enum => None,
                _ => Some("7".to_owned()),
            };
        }
        _ => {}
    }
}

fn map(dice: &mut Dice, field: &mut FieldDescriptorProto, of: &mut DescriptorProto) {
    let entry = format!("MapEntry{}", field.number());
    let part = |name: &str, number: i32| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        ..FieldDescriptorProto::default()
    };
    let mut key = part("key", 1);
    key.set_type(*dice.pick(&[Type::Int32, Type::String, Type::Bool, Type::Uint64, Type::Sint64]));
    let value =
        FieldDescriptorProto { r#type: field.r#type, type_name: field.type_name.take(), ..part("value", 2) };
    of.nested_type.push(DescriptorProto {
        name: Some(entry.clone()),
        field: vec![key, value],
        options: Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
        ..DescriptorProto::default()
    });
    // Names of types are absolute; the caller replaces this one, for it does not know its own.
    field.type_name = Some(entry);
    field.set_type(Type::Message);
    field.set_label(Label::Repeated);
}

fn services(dice: &mut Dice, file: &mut FileDescriptorProto, types: &Types, taken: &mut HashSet<String>) {
    let scope = if file.package().is_empty() { String::new() } else { format!("{}.", file.package()) };
    absolute(&mut file.message_type, &format!(".{}", scope.trim_end_matches('.')));
    for _ in 0..dice.below(3) {
        let mut names = HashSet::new();
        let methods = (0..dice.below(5)).map(|_| MethodDescriptorProto {
            name: Some(fresh(dice, "", &mut names)),
            input_type: Some(dice.pick(&types.messages).clone()),
            output_type: Some(dice.pick(&types.messages).clone()),
            client_streaming: Some(dice.once_in(2)),
            server_streaming: Some(dice.once_in(2)),
            options: dice
                .once_in(16)
                .then(|| MethodOptions { deprecated: Some(true), ..MethodOptions::default() }),
        });
        let method = methods.collect();
        file.service.push(ServiceDescriptorProto {
            name: Some(fresh(dice, &scope, taken)),
            method,
            options: dice
                .once_in(16)
                .then(|| ServiceOptions { deprecated: Some(true), ..ServiceOptions::default() }),
        });
    }
}

/// Gives the entries of maps their full names.
fn absolute(messages: &mut [DescriptorProto], scope: &str) {
    for message in messages {
        let scope = format!("{}.{}", scope.trim_end_matches('.'), message.name());
        for field in &mut message.field {
            if let Some(name) = field.type_name.as_mut().filter(|name| !name.starts_with('.')) {
                *name = format!("{scope}.{name}");
            }
        }
        absolute(&mut message.nested_type, &scope);
    }
}

/// Comments at a third of the places where one can stand.
fn comments(dice: &mut Dice, file: &FileDescriptorProto) -> SourceCodeInfo {
    const PIECES: &[&str] = &[
        "```",
        "```rust",
        "~~~",
        "````",
        "`",
        "    let x = y;",
        "\tlet x = y;",
        "-     x",
        "[x]",
        "[`x`]",
        "[x](y)",
        "<b>",
        "</i>",
        "Vec<T>",
        "http://example.com/a_b",
        "<https://example.com>",
        "&lt;",
        "__rt::x",
        "\\[x\\]",
        "*/",
        "/*",
        "#[test]",
        "# x",
        "| a | b |",
        "|---|---|",
        "text",
        "assert!(false);",
        "\u{c}",
        "\u{202e}",
        "\r",
        "fn main() {}",
    ];
    let mut paths: Vec<Vec<i32>> = Vec::new();
    for index in 0..8 {
        paths.extend([vec![4, index], vec![5, index], vec![6, index]]);
        for inner in 0..8 {
            paths.extend([2, 3, 4, 8].map(|kind| vec![4, index, kind, inner]));
            paths.extend([vec![5, index, 2, inner], vec![6, index, 2, inner]]);
        }
    }
    assert!(file.message_type.len() <= 8);
    let mut location = Vec::new();
    for path in paths {
        if dice.once_in(3) {
            let lines =
                (0..=dice.below(6)).map(|_| format!(" {} {}\n", dice.pick(PIECES), dice.pick(PIECES)));
            let mut text: String = lines.collect();
            if dice.once_in(2) {
                text = text
                    .lines()
                    .map(|line| format!("{}\n", line.rsplit_once(' ').map_or(line, |l| l.0)))
                    .collect();
            }
            location.push(Location { path, leading_comments: Some(text), ..Location::default() });
        }
    }
    SourceCodeInfo { location }
}
