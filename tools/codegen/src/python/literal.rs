//! Literals.

use crate::model::DefaultValue;
use std::fmt::Write;

/// Text of any characters.
pub(super) fn text_literal(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            ' '..='~' => write!(out, "{c}"),
            c if u32::from(c) < 0x100 => write!(out, "\\x{:02x}", u32::from(c)),
            c => write!(out, "\\U{:08x}", u32::from(c)),
        };
    }
    out.push('"');
    out
}

/// Any bytes.
pub(super) fn bytes_literal(bytes: &[u8]) -> String {
    let mut out = String::from("b\"");
    for byte in bytes {
        let _ = match byte {
            b'"' | b'\\' => write!(out, "\\{}", char::from(*byte)),
            b' '..=b'~' => write!(out, "{}", char::from(*byte)),
            _ => write!(out, "\\x{byte:02x}"),
        };
    }
    out.push('"');
    out
}

/// What stands for a value that is absent.
pub(super) fn default_literal(value: &DefaultValue) -> String {
    // Names of Python's are not used: a field may have them.
    let float = |value: f64, digits: String| match value {
        _ if value.is_nan() => "_tl_linear.NAN".to_owned(),
        _ if value.is_infinite() => format!("{}_tl_linear.INFINITY", if value < 0.0 { "-" } else { "" }),
        _ => digits,
    };
    match value {
        DefaultValue::Bool(value) => if *value { "True" } else { "False" }.to_owned(),
        DefaultValue::I32(value) | DefaultValue::Enum(value) => value.to_string(),
        DefaultValue::U32(value) => value.to_string(),
        DefaultValue::I64(value) => value.to_string(),
        DefaultValue::U64(value) => value.to_string(),
        // With all digits of the wider type, which is the one that Python has.
        DefaultValue::F32(value) => float((*value).into(), format!("{:?}", f64::from(*value))),
        DefaultValue::F64(value) => float(*value, format!("{value:?}")),
        DefaultValue::String(text) => text_literal(text),
        DefaultValue::Bytes(bytes) => bytes_literal(bytes),
    }
}

#[cfg(test)]
mod tests {
    //! Shows what needs an escape.
    use super::*;

    #[test]
    fn literals_are_those_of_python() {
        assert_eq!(text_literal("a\"\\\n\u{e9}\u{1f600}"), "\"a\\\"\\\\\\x0a\\xe9\\U0001f600\"");
        assert_eq!(bytes_literal(b"\0a\"\xff"), "b\"\\x00a\\\"\\xff\"");
        assert_eq!(default_literal(&DefaultValue::F64(f64::NEG_INFINITY)), "-_tl_linear.INFINITY");
        assert_eq!(default_literal(&DefaultValue::Bool(true)), "True");
    }
}
