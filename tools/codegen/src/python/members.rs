//! Fields.

use super::literal::{default_literal, text_literal};
use super::names::Mentions;
use crate::model::{DefaultValue, Field, MapEntry, Message, Shape, Type};
use std::fmt::Write;

/// The expression of a field.
pub(super) fn member(field: &Field, of: &Message, mentions: &Mentions<'_>) -> String {
    let start = start(&field.name, field.number, (field.slot, field.bit));
    match &field.shape {
        Shape::Implicit(kind) => single(kind, &start, field.default.as_ref(), "", mentions),
        Shape::Optional(kind) => {
            let oneof = field.oneof.and_then(|index| of.oneofs.get(index));
            let more = oneof.map_or(", presence=True".to_owned(), |oneof| {
                format!(", oneof={}", text_literal(&oneof.name))
            });
            single(kind, &start, field.default.as_ref(), &more, mentions)
        }
        Shape::Required(kind) => single(kind, &start, field.default.as_ref(), ", required=True", mentions),
        Shape::Repeated(kind) => repeated(kind, &start, mentions),
        Shape::Map(entry) => map(entry, &start, mentions),
    }
}

/// What the expressions of all fields begin with.
fn start(name: &str, number: u32, (slot, bit): (u32, u32)) -> String {
    format!("{}, {number}, {slot}, {bit}", text_literal(name))
}

fn single(
    of: &Type,
    start: &str,
    default: Option<&DefaultValue>,
    more: &str,
    mentions: &Mentions<'_>,
) -> String {
    let mut out = match of {
        // A message is there or is not, whatever the field says.
        Type::Message(name) => {
            let more = if more == ", presence=True" { "" } else { more };
            return format!("_tl_linear.Child({start}, lambda: {}{more})", mentions.path(name));
        }
        Type::String => format!("_tl_linear.Text({start}"),
        Type::Bytes => format!("_tl_linear.Blob({start}"),
        of => format!("_tl_linear.Number({start}, \"{}\"", format_of(of)),
    };
    if let Some(default) = default {
        let _ = write!(out, ", default={}", default_literal(default));
    }
    format!("{out}{more})")
}

fn repeated(of: &Type, start: &str, mentions: &Mentions<'_>) -> String {
    match of {
        Type::Message(name) => format!("_tl_linear.Children({start}, lambda: {})", mentions.path(name)),
        Type::String => format!("_tl_linear.Texts({start})"),
        Type::Bytes => format!("_tl_linear.Blobs({start})"),
        of => format!("_tl_linear.Numbers({start}, \"{}\")", format_of(of)),
    }
}

fn map(entry: &MapEntry, at: &str, mentions: &Mentions<'_>) -> String {
    let part = |name: &str, number: u32, of: &Type, at: (u32, u32), default: Option<&DefaultValue>| {
        single(of, &start(name, number, at), default, ", presence=True", mentions)
    };
    let key = part("key", 1, &entry.key, entry.key_at, None);
    let value = part("value", 2, &entry.value, entry.value_at, entry.value_default.as_ref());
    format!("_tl_linear.Map({at}, {}, {key}, {value})", entry.layout.block_bytes)
}

/// The format that Python's `struct` and `memoryview` have for a number.
fn format_of(of: &Type) -> char {
    match of {
        Type::Bool => '?',
        Type::U32 => 'I',
        Type::I64 => 'q',
        Type::U64 => 'Q',
        Type::F32 => 'f',
        Type::F64 => 'd',
        Type::I32 | Type::Enum(_) | Type::String | Type::Bytes | Type::Message(_) => 'i',
    }
}
