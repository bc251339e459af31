//! From when to when a certificate is valid: the one thing of it that nobody looks at before a peer refuses it.
//!
//! The library checks a peer's certificate, never our own. What is read here is for people; nothing is believed for it.

use super::der::{SEQUENCE, behind, content, element};
use super::files::{TlsError, certificates};
use std::path::Path;

/// When a certificate is valid, in seconds since 1970 (RFC 5280, section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before_s: i64,
    /// Last second.
    pub not_after_s: i64,
}

/// Tags of ASN.1.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Validity {
    /// Of every certificate in a PEM file, in order. One that cannot be taken apart is left out.
    ///
    /// # Errors
    /// [`TlsError`]: the file cannot be read, or has no certificate.
    pub fn of_file(path: &Path) -> Result<Vec<Self>, TlsError> {
        Ok(certificates(path)?.iter().filter_map(|der| Self::of_der(der)).collect())
    }

    /// Of one certificate.
    pub fn of_der(der: &[u8]) -> Option<Self> {
        let (certificate, _) = content(der, SEQUENCE)?;
        let (mut rest, _) = content(certificate, SEQUENCE)?;
        if rest.first() == Some(&VERSION) {
            rest = behind(rest)?;
        }
        // Serial number, signature algorithm, issuer.
        for _ in 0..3 {
            rest = behind(rest)?;
        }
        let (validity, _) = content(rest, SEQUENCE)?;
        let (not_before_s, rest) = time(validity)?;
        let (not_after_s, _) = time(rest)?;
        Some(Self { not_before_s, not_after_s })
    }
}

/// A time in UTC, `YYMMDDhhmmssZ` or with four digits of the year; and what stands behind it.
fn time(der: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, text, behind) = element(der)?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = number(text, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(text, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let is_sound = rest == b"Z" && (1..=12).contains(&month) && (1..=31).contains(&day);
    is_sound.then(|| (((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second, behind))
}

fn number(text: &[u8], digits: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let all = digits.iter().all(u8::is_ascii_digit);
    all.then(|| (digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')), rest))
}

/// Days since 1970-01-01 in the Gregorian calendar, whose year is counted from March so that the leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    //! Shows the times of a certificate, and that nothing that is none makes the reader panic.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_certificate_says_from_when_to_when() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(1999, 12, 31);
        params.not_after = rcgen::date_time_ymd(2052, 2, 29);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let validity = Validity::of_der(certificate.der()).unwrap();
        assert_eq!(validity, Validity { not_before_s: 946_598_400, not_after_s: 2_592_777_600 });
        for cut in 0..certificate.der().len() {
            assert_eq!(Validity::of_der(&certificate.der()[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, expected) in [
            ((1970, 1, 1), 0),
            ((1970, 3, 1), 59),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 1, 1), 20_454),
        ] {
            assert_eq!(days(date.0, date.1, date.2), expected, "{date:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Validity::of_der(&bytes);
            let _ = time(&[&[GENERALIZED_TIME, 15][..], &bytes].concat());
        }
    }
}
