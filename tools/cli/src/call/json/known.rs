//! The well-known types whose JSON is a text: times, lengths of time, and paths of fields.

/// Seconds of 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z (timestamp.proto).
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// 10,000 years (duration.proto).
const DURATION_SECONDS_MAX: u64 = 315_576_000_000;
const NANOS_PER_SECOND: i32 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
const DAYS_PER_ERA: i64 = 146_097;

/// Seconds since 1970 and nanoseconds of RFC 3339 text. A leap second is none of protobuf's, and digits beyond
/// nanoseconds would be lost: both are refused.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn timestamp(text: &str) -> Result<(i64, i32), String> {
    let wrong = |why: &str| format!("{text:?} is not a time like 2026-01-31T23:59:59.5Z: {why}");
    let (date, rest) = text.split_once('T').ok_or_else(|| wrong("there is no T"))?;
    let [year, month, day] = parts(date, '-', [4, 2, 2]).ok_or_else(|| wrong("the date"))?;
    let at = rest.find(['Z', '+', '-']).ok_or_else(|| wrong("there is no Z and no offset"))?;
    let (clock, zone) = rest.split_at(at);
    let (clock, fraction) =
        clock.split_once('.').map_or((clock, None), |(clock, digits)| (clock, Some(digits)));
    let [hour, minute, second] = parts(clock, ':', [2, 2, 2]).ok_or_else(|| wrong("the time of day"))?;
    let nanos = fraction
        .map_or(Ok(0), |digits| nanos(digits).ok_or_else(|| wrong("the fraction has 1 to 9 digits")))?;
    if year == 0 || !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
        return Err(wrong("there is no such day"));
    }
    if hour > 23 || minute > 59 || second > 59 {
        return Err(wrong("hours end at 23, minutes and seconds at 59"));
    }
    let offset = offset(zone).ok_or_else(|| wrong("the offset"))?;
    let seconds =
        days_since_1970(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    if !TIMESTAMP_SECONDS.contains(&seconds) {
        return Err(wrong("it is not within the years 1 to 9999"));
    }
    Ok((seconds, nanos))
}

/// RFC 3339 text of a time.
///
/// # Errors
/// If it is out of range.
pub(super) fn timestamp_text(seconds: i64, nanos: i32) -> Result<String, String> {
    if !TIMESTAMP_SECONDS.contains(&seconds) || !(0..NANOS_PER_SECOND).contains(&nanos) {
        return Err(format!("a Timestamp of {seconds} seconds and {nanos} nanoseconds is out of range"));
    }
    let (days, clock) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    let fraction = fraction_text(nanos.unsigned_abs());
    Ok(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// Seconds and nanoseconds, of one sign, of text like `-1.5s`.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn duration(text: &str) -> Result<(i64, i32), String> {
    let wrong =
        || format!("{text:?} is not a length of time like -1.5s, of at most 9 digits behind the point");
    let number = text.strip_suffix('s').ok_or_else(wrong)?;
    let (negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(w, f)| (w, Some(f)));
    let is_number = !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit());
    let seconds: u64 = whole.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let nanos = fraction.map_or(Some(0), nanos).ok_or_else(wrong)?;
    if seconds > DURATION_SECONDS_MAX {
        return Err(format!("{text:?} is longer than 10000 years"));
    }
    let seconds = seconds.cast_signed();
    Ok(if negative { (-seconds, -nanos) } else { (seconds, nanos) })
}

/// Text of a length of time.
///
/// # Errors
/// If it is out of range, or its parts have two signs.
pub(super) fn duration_text(seconds: i64, nanos: i32) -> Result<String, String> {
    let two_signs = (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0);
    if seconds.unsigned_abs() > DURATION_SECONDS_MAX || nanos.unsigned_abs() >= 1_000_000_000 || two_signs {
        return Err(format!("a Duration of {seconds} seconds and {nanos} nanoseconds is out of range"));
    }
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    Ok(format!("{sign}{}{}s", seconds.unsigned_abs(), fraction_text(nanos.unsigned_abs())))
}

/// Paths of a field mask, in the names of the `.proto` file.
///
/// # Errors
/// Which path is none.
pub(super) fn paths(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|path| snake(path).ok_or_else(|| format!("{path:?} in {text:?} is not a path of fields")))
        .collect()
}

/// Text of a field mask.
///
/// # Errors
/// Which path would come back as another one.
pub(super) fn paths_text<'p>(paths: impl Iterator<Item = &'p str>) -> Result<String, String> {
    let text = |path: &str| {
        let text = camel(path);
        let same = text.as_deref().and_then(snake).is_some_and(|back| back == path);
        text.filter(|_| same).ok_or_else(|| format!("a FieldMask with the path {path:?} has no JSON"))
    };
    Ok(paths.map(text).collect::<Result<Vec<_>, _>>()?.join(","))
}

fn snake(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len() + 4);
    for c in path.chars() {
        match c {
            'A'..='Z' => out.extend(['_', c.to_ascii_lowercase()]),
            'a'..='z' | '0'..='9' | '.' => out.push(c),
            _ => return None,
        }
    }
    path.split('.').all(|part| !part.is_empty()).then_some(out)
}

fn camel(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len());
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '_' => out.push(chars.next().filter(char::is_ascii_lowercase)?.to_ascii_uppercase()),
            'A'..='Z' => return None,
            _ => out.push(c),
        }
    }
    Some(out)
}

/// Three numbers of so many digits.
fn parts(text: &str, mark: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut numbers = [0; 3];
    let mut parts = text.split(mark);
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Seconds east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let [hours, minutes, _] = parts(&format!("{}:00", zone.get(1..)?), ':', [2, 2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Nanoseconds of the digits behind a point.
fn nanos(digits: &str) -> Option<i32> {
    let is_fraction = (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    format!("{digits:0<9}").parse().ok().filter(|_| is_fraction)
}

/// None, three, six or nine digits behind a point.
fn fraction_text(nanos: u32) -> String {
    match nanos {
        0 => String::new(),
        _ if nanos.is_multiple_of(1_000_000) => format!(".{:03}", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1_000) => format!(".{:06}", nanos / 1_000),
        _ => format!(".{nanos:09}"),
    }
}

fn days_of(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The same source, `civil_from_days`.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    //! Shows that every value makes the round, and what is refused.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_exact_or_refused() {
        for (text, time) in [
            ("1970-01-01T00:00:00Z", (0, 0)),
            ("2000-02-29T12:00:00.5+01:30", (951_820_200, 500_000_000)),
            ("0001-01-01T00:00:00Z", (*TIMESTAMP_SECONDS.start(), 0)),
            ("9999-12-31T23:59:59.999999999Z", (*TIMESTAMP_SECONDS.end(), 999_999_999)),
        ] {
            assert_eq!(timestamp(text), Ok(time), "{text}");
        }
        for text in [
            "1972-06-30T23:59:60Z",
            "2026-01-01T00:00:00.1234567891Z",
            "2026-01-01T00:00:00.Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01t00:00:00Z",
            "2026-01-01T00:00:00z",
            "2026-01-01T00:00:00",
            "2026-01-01T24:00:00Z",
            "0000-12-31T00:00:00Z",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+0100",
            "2026-1-01T00:00:00Z",
            "",
            "T",
            "TZ",
            "é",
            "2026-01-01T00:00:00Zé",
            "2026-01-01T00:00:00+é0:00",
        ] {
            assert!(timestamp(text).is_err(), "{text}");
        }
        assert!(timestamp_text(0, -1).is_err() && timestamp_text(*TIMESTAMP_SECONDS.end() + 1, 0).is_err());
    }

    #[test]
    fn lengths_of_time_are_exact_or_refused() {
        for (text, length) in
            [("1.5s", (1, 500_000_000)), ("-0.000000001s", (0, -1)), ("0s", (0, 0)), ("-3s", (-3, 0))]
        {
            assert_eq!(duration(text), Ok(length), "{text}");
        }
        for text in [
            "",
            "s",
            "1",
            "1.s",
            ".5s",
            "1.1234567891s",
            "+1s",
            "--1s",
            "1e3s",
            " 1s",
            "315576000001s",
            "1.-5s",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration_text(1, -1).is_err() && duration_text(-1, 1).is_err());
    }

    #[test]
    fn no_path_is_dropped() {
        assert_eq!(paths("a.bC,dE"), Ok(vec!["a.b_c".to_owned(), "d_e".to_owned()]));
        assert_eq!(paths(""), Ok(Vec::new()));
        for text in [",", "a,", ",a", "a,,b", "a_b", "a..b", ".a", "a b"] {
            assert!(paths(text).is_err(), "{text}");
        }
        for path in ["", "a.", "fooBar", "foo__bar", "foo_", "foo_3_bar", "a,b"] {
            assert!(paths_text([path, "a"].into_iter()).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn every_time_makes_the_round(seconds in TIMESTAMP_SECONDS, nanos in 0..NANOS_PER_SECOND) {
            prop_assert_eq!(timestamp(&timestamp_text(seconds, nanos).unwrap()), Ok((seconds, nanos)));
        }

        #[test]
        fn every_length_of_time_makes_the_round(
            seconds in 0..=DURATION_SECONDS_MAX, nanos in 0..NANOS_PER_SECOND, minus: bool,
        ) {
            let sign = if minus { -1 } else { 1 };
            let length = (seconds.cast_signed() * sign, nanos * i32::try_from(sign).unwrap());
            prop_assert_eq!(duration(&duration_text(length.0, length.1).unwrap()), Ok(length));
        }

        #[test]
        fn every_path_makes_the_round_or_is_refused(masks in prop::collection::vec("[a-cA_1.,]{0,6}", 0..4)) {
            if let Ok(text) = paths_text(masks.iter().map(String::as_str)) {
                prop_assert_eq!(paths(&text), Ok(masks));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9TZ:.+s-]{0,30}") {
            if let Ok((seconds, nanos)) = timestamp(&text) {
                prop_assert!(timestamp_text(seconds, nanos).is_ok());
            }
            if let Ok((seconds, nanos)) = duration(&text) {
                prop_assert!(duration_text(seconds, nanos).is_ok());
            }
        }
    }
}
