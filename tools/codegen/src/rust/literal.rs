//! Values as Rust literals.

use super::scope::Scope;
use super::types;
use crate::model::{DefaultValue, Type};

/// A declared default as an expression of the viewed type, usable in a `const`.
pub(super) fn default_value(value: &DefaultValue, of: &Type, scope: &Scope<'_>) -> String {
    match value {
        DefaultValue::Bool(value) => value.to_string(),
        DefaultValue::I32(value) => value.to_string(),
        DefaultValue::U32(value) => value.to_string(),
        DefaultValue::I64(value) => value.to_string(),
        DefaultValue::U64(value) => value.to_string(),
        DefaultValue::F32(value) => float(f64::from(*value), &format!("{value:?}"), "f32"),
        DefaultValue::F64(value) => float(*value, &format!("{value:?}"), "f64"),
        DefaultValue::String(value) => format!("{value:?}"),
        DefaultValue::Bytes(value) => format!("b\"{}\"", value.escape_ascii()),
        DefaultValue::Enum(number) => format!("{}::new({number})", types::owned(of, scope)),
    }
}

/// A declared default as an expression of the owned type.
pub(super) fn owned_default(value: &DefaultValue, of: &Type, scope: &Scope<'_>) -> String {
    let literal = default_value(value, of, scope);
    match of {
        Type::String => format!("{literal}.to_owned()"),
        Type::Bytes => format!("{literal}.to_vec()"),
        _ => literal,
    }
}

fn float(value: f64, digits: &str, name: &str) -> String {
    if value.is_nan() {
        format!("{name}::NAN")
    } else if value.is_infinite() {
        format!("{name}::{}INFINITY", if value < 0.0 { "NEG_" } else { "" })
    } else {
        digits.to_owned()
    }
}
