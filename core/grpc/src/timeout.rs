//! `grpc-timeout`: at most eight digits and a unit (PROTOCOL-HTTP2, "Timeout").

use http::HeaderValue;

/// Units, the finest first: the letter, and its length in nanoseconds.
const UNITS: [(u8, u64); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60 * 1_000_000_000),
    (b'H', 3600 * 1_000_000_000),
];
const DIGITS_MAX: usize = 8;
const NUMBER_MAX: u64 = 99_999_999;

/// The nanoseconds a header says, or nothing if it is not a timeout. What lies past the end of time is the end of time.
pub fn parse(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    let (_, unit_ns) = UNITS.iter().find(|(letter, _)| letter == unit)?;
    let mut number = 0u64;
    for digit in digits {
        number = number * 10 + u64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
    }
    Some(number.saturating_mul(*unit_ns))
}

/// The header for so many nanoseconds: in the finest unit whose number has at most eight digits, rounded up, so that
/// the receiver never gives up before the sender.
pub fn header(timeout_ns: u64) -> HeaderValue {
    let (unit, number) = UNITS
        .into_iter()
        .map(|(unit, unit_ns)| (unit, timeout_ns.div_ceil(unit_ns)))
        .find(|(_, number)| *number <= NUMBER_MAX)
        .unwrap_or((b'H', NUMBER_MAX));
    let mut text = [0; DIGITS_MAX + 1];
    let digits = write_decimal(number, &mut text);
    text[digits] = unit;
    HeaderValue::from_bytes(&text[..=digits]).unwrap_or(HeaderValue::from_static("0n"))
}

/// Writes a number of at most eight digits at the front and says how many they are.
fn write_decimal(number: u64, out: &mut [u8; DIGITS_MAX + 1]) -> usize {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for place in out[..digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    //! Shows that a timeout survives its header without getting shorter, and that nothing else is taken for one.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn table() {
        for (text, ns) in [
            ("1n", Some(1)),
            ("0n", Some(0)),
            ("15u", Some(15_000)),
            ("100m", Some(100_000_000)),
            ("99999999S", Some(99_999_999_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("3H", Some(10_800_000_000_000)),
            ("99999999H", Some(u64::MAX)),
            ("100000000n", None),
            ("", None),
            ("n", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("+5S", None),
            (" 5S", None),
            ("5 S", None),
            ("0x5S", None),
        ] {
            assert_eq!(parse(text.as_bytes()), ns, "{text:?}");
        }
        assert_eq!(header(0), "0n");
        assert_eq!(header(1), "1n");
        assert_eq!(header(99_999_999), "99999999n");
        assert_eq!(header(100_000_000), "100000u");
        assert_eq!(header(100_000_001), "100001u");
        assert_eq!(header(u64::MAX), "5124096H");
    }

    proptest! {
        #[test]
        fn never_shorter(ns in prop_oneof![any::<u64>(), 0u64..1 << 40]) {
            let back = parse(header(ns).as_bytes()).unwrap();
            prop_assert!(back >= ns);
            prop_assert!(back - ns <= ns / 100_000 + 1, "{} became {}", ns, back);
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let _ = parse(&bytes);
        }
    }
}
