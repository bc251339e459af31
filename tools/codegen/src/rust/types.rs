//! Protobuf types as Rust types, and the library's words for handling them.

use super::scope::Scope;
use crate::model::{Field, Shape, Type};

/// A type whose value lies in the slot itself, other than an enum: its Rust name, and what the library's methods for
/// it are called (`view.i32(slot)`, `block.set_i32s(..)`).
pub(super) fn scalar(of: &Type) -> Option<&'static str> {
    Some(match of {
        Type::Bool => "bool",
        Type::I32 => "i32",
        Type::U32 => "u32",
        Type::I64 => "i64",
        Type::U64 => "u64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::String | Type::Bytes | Type::Enum(_) | Type::Message(_) => return None,
    })
}

/// The type of one value in a plain struct.
pub(super) fn owned(of: &Type, scope: &Scope<'_>) -> String {
    match of {
        Type::String => scope.prelude("::std::string::String"),
        Type::Bytes => format!("{}<u8>", scope.prelude("::std::vec::Vec")),
        Type::Enum(name) | Type::Message(name) => scope.owned(name),
        _ => scalar(of).unwrap_or_default().to_owned(),
    }
}

/// The type of one value as a view gives it.
pub(super) fn viewed(of: &Type, lifetime: &str, scope: &Scope<'_>) -> String {
    match of {
        Type::String => format!("&{lifetime} str"),
        Type::Bytes => format!("&{lifetime} [u8]"),
        Type::Message(name) => scope.view(name, lifetime),
        _ => owned(of, scope),
    }
}

/// Whether the viewed type borrows.
pub(super) fn borrows(of: &Type) -> bool {
    matches!(of, Type::String | Type::Bytes | Type::Message(_))
}

/// The type of a oneof's member: always a single value.
pub(super) fn member_type(field: &Field) -> &Type {
    match &field.shape {
        Shape::Implicit(of) | Shape::Optional(of) | Shape::Required(of) | Shape::Repeated(of) => of,
        Shape::Map(entry) => &entry.value,
    }
}
