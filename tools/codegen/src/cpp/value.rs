//! Values: their types, how they are read, and literals.

use super::names::CppNames;
use crate::model::{DefaultValue, Field, Shape, Type};
use std::fmt::Write;

/// Type and expression of a single value.
pub(super) fn single(
    of: &Type,
    at: &str,
    default: Option<&DefaultValue>,
    names: &CppNames,
) -> (String, String) {
    let kind = plain(of, names);
    let value = match of {
        Type::Message(_) => format!("this->template tl_message<{kind}>({at})"),
        Type::String | Type::Bytes => {
            let default =
                default.map_or("::std::string_view()".to_owned(), |default| literal(default, &kind));
            format!("this->tl_text({at}, {default})")
        }
        _ => {
            let default = default.map_or(format!("{kind}()"), |default| literal(default, &kind));
            format!("this->template tl_number<{kind}>({at}, {default})")
        }
    };
    (kind, value)
}

/// The type of a value that is read.
pub(super) fn plain(of: &Type, names: &CppNames) -> String {
    match of {
        Type::Bool => "bool".to_owned(),
        Type::I32 => "int32_t".to_owned(),
        Type::U32 => "uint32_t".to_owned(),
        Type::I64 => "int64_t".to_owned(),
        Type::U64 => "uint64_t".to_owned(),
        Type::F32 => "float".to_owned(),
        Type::F64 => "double".to_owned(),
        Type::String | Type::Bytes => "::std::string_view".to_owned(),
        Type::Enum(name) => names.get(name).class_path(),
        Type::Message(name) => names.get(name).view_path(),
    }
}

pub(super) fn is_fixed(shape: &Shape) -> bool {
    match shape {
        Shape::Implicit(of) | Shape::Optional(of) | Shape::Required(of) => {
            !matches!(of, Type::String | Type::Bytes | Type::Message(_))
        }
        Shape::Repeated(_) | Shape::Map(_) => false,
    }
}

pub(super) fn literal(value: &DefaultValue, kind: &str) -> String {
    let float = |value: f64, digits: String| {
        let of = |what: &str| format!("::std::numeric_limits<{kind}>::{what}()");
        match value {
            _ if value.is_nan() => of("quiet_NaN"),
            _ if value.is_infinite() && value > 0.0 => of("infinity"),
            _ if value.is_infinite() => format!("-{}", of("infinity")),
            _ => format!("{kind}({digits})"),
        }
    };
    match value {
        DefaultValue::Bool(value) => value.to_string(),
        DefaultValue::I32(value) => int((*value).into()),
        DefaultValue::U32(value) => format!("{value}u"),
        DefaultValue::I64(value) => format!("int64_t({})", int(*value)),
        DefaultValue::U64(value) => format!("uint64_t({value}u)"),
        DefaultValue::F32(value) => float((*value).into(), format!("{value:?}")),
        DefaultValue::F64(value) => float(*value, format!("{value:?}")),
        DefaultValue::String(text) => text_literal(text.as_bytes()),
        DefaultValue::Bytes(bytes) => text_literal(bytes),
        DefaultValue::Enum(number) => format!("static_cast<{kind}>({})", int((*number).into())),
    }
}

pub(super) fn text_literal(bytes: &[u8]) -> String {
    format!("::std::string_view({}, {})", quoted(bytes), bytes.len())
}

/// The least number of a type cannot be written as one literal.
pub(super) fn int(value: i64) -> String {
    match value {
        i64::MIN => "(-9223372036854775807 - 1)".to_owned(),
        -2_147_483_648 => "(-2147483647 - 1)".to_owned(),
        _ => value.to_string(),
    }
}

/// A string literal of any bytes.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b' '..=b'~' if !b"\"\\?".contains(byte) => out.push(char::from(*byte)),
            _ => _ = write!(out, "\\{byte:03o}"),
        }
    }
    out.push('"');
    out
}

/// What a text is set to may lie in this message, which a change of a oneof may write anew.
pub(super) fn keep_before(switch: &str) -> &'static str {
    if switch.is_empty() { "" } else { "::std::string kept; tl_keep(value, kept); " }
}

/// What clears a field: what can be zeroed is, anything else is left behind.
pub(super) fn cleared(field: &Field, names: &CppNames) -> String {
    let (slot, bit) = (field.slot, field.bit);
    match &field.shape {
        Shape::Implicit(of) | Shape::Optional(of) | Shape::Required(of) => match of {
            Type::Message(_) => format!("tl_clear({bit})"),
            Type::String | Type::Bytes => format!("tl_clear_array({slot}, {bit}, 1)"),
            _ => format!("tl_clear_number({slot}, {bit}, sizeof({}))", plain(of, names)),
        },
        Shape::Repeated(Type::Message(_) | Type::String | Type::Bytes) | Shape::Map(_) => {
            format!("tl_clear({bit})")
        }
        Shape::Repeated(of) => format!("tl_clear_array({slot}, {bit}, sizeof({}))", plain(of, names)),
    }
}

/// Bytes and alignment of an element, of a list that is copied by element.
pub(super) fn element_of_list(field: &Field) -> Option<&'static str> {
    match &field.shape {
        Shape::Repeated(Type::String | Type::Bytes) => Some("8, 4"),
        Shape::Repeated(Type::Bool) => Some("1, 1"),
        Shape::Repeated(Type::Message(_) | Type::Enum(_)) | Shape::Map(_) => Some("4, 4"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Shows what no literal of C++ says as Rust does.
    use super::*;

    #[test]
    fn literals_are_those_of_cpp() {
        assert_eq!(quoted(b"a\"\\?\n\xff"), "\"a\\042\\134\\077\\012\\377\"");
        assert_eq!(literal(&DefaultValue::I64(i64::MIN), "int64_t"), "int64_t((-9223372036854775807 - 1))");
        assert_eq!(
            literal(&DefaultValue::F32(f32::INFINITY), "float"),
            "::std::numeric_limits<float>::infinity()"
        );
    }
}
