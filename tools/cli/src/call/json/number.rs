//! JSON's numbers as protobuf's: exactly, or not at all.
//!
//! Where the mapping takes a number it takes it in quotes, too, and an integer may be written with a fraction of zeros
//! or an exponent (`1e2`, `"100.0"`).

use serde_json::Value;

/// Digits of an integer with its exponent written out. The longest there is, -2^63, has 19.
const DIGITS_MAX: usize = 32;

/// An integer between `min` and `max`.
///
/// # Errors
/// What is wrong with the value.
pub(super) fn integer(value: &Value, min: i128, max: i128) -> Result<i128, String> {
    let found = match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => Some(i128::from(signed)),
            (_, Some(unsigned)) => Some(i128::from(unsigned)),
            _ => number.as_f64().and_then(whole),
        },
        Value::String(text) => integer_text(text),
        other => return Err(format!("expected an integer, found {}", kind(other))),
    };
    match found {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        Some(_) => Err(format!("{value} is not between {min} and {max}")),
        None => Err(format!("{value} is not an integer, or too large for one")),
    }
}

/// The integer that decimal text stands for, as JSON writes numbers.
pub(super) fn integer_text(text: &str) -> Option<i128> {
    let Decimal { negative, whole, fraction, exponent } = Decimal::read(text)?;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let trailing = digits.len() - digits.trim_end_matches('0').len();
    // Zeros at the end, less digits of the fraction, more by the exponent.
    let point = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let digits = match usize::try_from(point) {
        Ok(zeros) if digits.len().saturating_add(zeros) <= DIGITS_MAX => {
            format!("{digits}{}", "0".repeat(zeros))
        }
        Ok(_) => return None,
        Err(_) => {
            let dropped =
                usize::try_from(point.unsigned_abs()).ok().filter(|&dropped| dropped <= trailing)?;
            digits.get(..digits.len() - dropped)?.to_owned()
        }
    };
    let number: i128 = digits.parse().ok()?;
    Some(if negative { -number } else { number })
}

/// A double; `NaN` and the infinities in quotes.
///
/// # Errors
/// What is wrong with the value.
pub(super) fn double(value: &Value) -> Result<f64, String> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match special(text) {
            Some(special) => return Ok(special),
            None => Decimal::read(text).and_then(|_| text.parse().ok()),
        },
        other => return Err(format!("expected a number, found {}", kind(other))),
    };
    let number = number.ok_or_else(|| format!("{value} is not a number"))?;
    if number.is_finite() { Ok(number) } else { Err(format!("{value} is too large for a double")) }
}

/// A float.
///
/// # Errors
/// What is wrong with the value.
pub(super) fn float(value: &Value) -> Result<f32, String> {
    let wide = double(value)?;
    let narrow = match value {
        // Once rounded, not twice.
        Value::String(text) if wide.is_finite() => text.parse().unwrap_or(wide as f32),
        _ => wide as f32,
    };
    match narrow.is_infinite() && wide.is_finite() {
        true => Err(format!("{value} is too large for a float")),
        false => Ok(narrow),
    }
}

/// What a JSON value is called.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The values that JSON has no number for.
fn special(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// A number without a fraction, if it is small enough to be counted with.
fn whole(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() < 2f64.powi(100)).then_some(number as i128)
}

/// A number as JSON writes it (RFC 8259, section 6).
struct Decimal<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    exponent: i64,
}

impl<'t> Decimal<'t> {
    fn read(text: &'t str) -> Option<Self> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent),
            None => (text, "0"),
        };
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let (negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
        let padded = whole.len() > 1 && whole.starts_with('0');
        if !digits(unsigned) || !digits(whole) || padded || !fraction.is_none_or(digits) {
            return None;
        }
        let exponent = exponent.parse().ok()?;
        Some(Self { negative, whole, fraction: fraction.unwrap_or_default(), exponent })
    }
}

#[cfg(test)]
mod tests {
    //! Shows which texts are numbers, and that none is altered.
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const I64: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);

    #[test]
    fn integers_in_all_their_forms() {
        for (value, number) in [
            (json!(100), 100),
            (json!(1e2), 100),
            (json!("100"), 100),
            (json!("1e2"), 100),
            (json!("1.00E+2"), 100),
            (json!("1200e-2"), 12),
            (json!("-0"), 0),
            (json!("0e99999999999"), 0),
            (json!("-9223372036854775808"), I64.0),
            (json!("9.223372036854775807e18"), I64.1),
        ] {
            assert_eq!(integer(&value, I64.0, I64.1), Ok(number), "{value}");
        }
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        let texts = [
            "",
            " 1",
            "1 ",
            "+1",
            "01",
            "1.",
            ".5",
            "1.5",
            "1e-1",
            "0x10",
            "NaN",
            "1e999999999",
            "9223372036854775808",
            "1_000",
            "e1",
            "1e",
            "--1",
            "1e99999999999999999999",
        ];
        for text in texts {
            assert!(integer(&json!(text), I64.0, I64.1).is_err(), "{text:?}");
        }
        for value in [json!(1.5), json!(1e300), json!(9.3e18), json!(true), json!(null), json!([])] {
            assert!(integer(&value, I64.0, I64.1).is_err(), "{value}");
        }
    }

    #[test]
    fn floats_have_three_words_and_no_others() {
        assert!(double(&json!("NaN")).unwrap().is_nan());
        assert_eq!(double(&json!("-Infinity")), Ok(f64::NEG_INFINITY));
        assert_eq!(float(&json!("3.4028235e38")), Ok(f32::MAX));
        assert_eq!(double(&json!("-0.0")).map(f64::to_bits), Ok((-0.0f64).to_bits()));
        for text in ["inf", "nan", "infinity", "+1", "1.", ".5", "1e999", "", " 1", "0x1"] {
            assert!(double(&json!(text)).is_err(), "{text:?}");
        }
        assert!(float(&json!(3.5e38)).is_err() && float(&json!("-3.5e38")).is_err());
    }

    proptest! {
        #[test]
        fn every_integer_is_itself(number: i64, zeros in 0usize..4) {
            let text = format!("{number}.{}e0", "0".repeat(zeros + 1));
            for value in [json!(number), json!(number.to_string()), json!(text)] {
                prop_assert_eq!(integer(&value, I64.0, I64.1), Ok(i128::from(number)));
            }
        }

        #[test]
        fn every_double_is_itself(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            let read = double(&json!(format!("{number:e}"))).map(f64::to_bits);
            prop_assert_eq!(read, Ok(bits));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.eENa]{0,12}") {
            let value = json!(text);
            if let Ok(number) = integer(&value, I64.0, I64.1) {
                prop_assert_eq!(double(&value).unwrap(), number as f64);
            }
            let _ = float(&value);
        }
    }
}
