//! Declared defaults: the text in the descriptor, read as the field's kind.

use crate::kind::{Enum, Kind};

/// A field's declared default.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "one variant per value type")]
pub enum DefaultValue {
    Bool(bool),
    I32(i32),
    U32(u32),
    F32(f32),
    I64(i64),
    U64(u64),
    F64(f64),
    String(String),
    Bytes(Vec<u8>),
    /// The number of the named value.
    Enum(i32),
}

impl DefaultValue {
    /// Reads `default_value` as `descriptor.proto` defines it: numbers in decimal, `inf`, `-inf`, `nan`, bytes
    /// C-escaped, enums by name.
    pub(crate) fn read(kind: Kind, text: &str, enumeration: Option<&Enum>) -> Result<Self, &'static str> {
        const NUMBER: &str = "the default is not a number of the field's type";
        match kind {
            Kind::Bool => text.parse().map(Self::Bool).map_err(|_| "the default is neither true nor false"),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => text.parse().map(Self::I32).map_err(|_| NUMBER),
            Kind::Uint32 | Kind::Fixed32 => text.parse().map(Self::U32).map_err(|_| NUMBER),
            Kind::Float => text.parse().map(Self::F32).map_err(|_| NUMBER),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => text.parse().map(Self::I64).map_err(|_| NUMBER),
            Kind::Uint64 | Kind::Fixed64 => text.parse().map(Self::U64).map_err(|_| NUMBER),
            Kind::Double => text.parse().map(Self::F64).map_err(|_| NUMBER),
            Kind::String => Ok(Self::String(text.to_owned())),
            Kind::Bytes => unescape(text).map(Self::Bytes).ok_or("the default has a broken escape"),
            Kind::Enum => enumeration
                .and_then(|e| e.value_named(text))
                .map(|value| Self::Enum(value.number))
                .ok_or("the default is not a value of the enum"),
            Kind::Message => Err("a message has no default"),
        }
    }
}

/// Undoes C escaping: `\n`, `\x1f`, `\377` and their kin.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes().peekable();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let escape = bytes.next()?;
        out.push(match escape {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            b'x' | b'X' => numeral(&mut bytes, 16, 2, None)?,
            b'0'..=b'7' => numeral(&mut bytes, 8, 2, Some(escape))?,
            b'\\' | b'\'' | b'"' | b'?' => escape,
            _ => return None,
        });
    }
    Some(out)
}

/// Up to `more` digits of a base, after an optional first one.
fn numeral(
    bytes: &mut std::iter::Peekable<std::str::Bytes<'_>>,
    base: u32,
    more: usize,
    first: Option<u8>,
) -> Option<u8> {
    let mut value = first.map(|digit| u32::from(digit - b'0'));
    for _ in 0..more {
        let Some(digit) = bytes.peek().and_then(|&b| char::from(b).to_digit(base)) else { break };
        bytes.next();
        value = Some(value.unwrap_or(0) * base + digit);
    }
    value.and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    //! Shows each kind's textual default and the ones that are refused.
    use super::*;

    #[test]
    fn numbers_and_text() {
        let read = |kind, text| DefaultValue::read(kind, text, None);
        assert_eq!(read(Kind::Bool, "true"), Ok(DefaultValue::Bool(true)));
        assert_eq!(read(Kind::Sint32, "-2147483648"), Ok(DefaultValue::I32(i32::MIN)));
        assert_eq!(read(Kind::Fixed64, "18446744073709551615"), Ok(DefaultValue::U64(u64::MAX)));
        assert_eq!(read(Kind::Float, "-inf"), Ok(DefaultValue::F32(f32::NEG_INFINITY)));
        assert_eq!(read(Kind::Double, "1e+100"), Ok(DefaultValue::F64(1e100)));
        assert!(matches!(read(Kind::Double, "nan"), Ok(DefaultValue::F64(v)) if v.is_nan()));
        assert!(read(Kind::Uint32, "-1").is_err());
        assert!(read(Kind::Int32, "2147483648").is_err());
        assert!(read(Kind::Message, "").is_err());
        assert!(read(Kind::Enum, "A").is_err());
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(r#"a\n\x41\101\377\0\\\"'"#).unwrap(), b"a\nAA\xff\0\\\"'");
        for broken in [r"\", r"\q", r"\x", r"\400"] {
            assert_eq!(unescape(broken), None, "{broken}");
        }
    }
}
