//! Times as command lines have them.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Nobody waits for longer, and no clock overflows by it: a year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// Reads `500ms`, `2s`, `1.5s`, `3m`, `1h`, up to a year.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: write 500ms, 2s or 3m");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * unit_s).map_err(|_| wrong())?;
    if time > LONGEST { Err(format!("{text:?} is more than a year: write 8760h at most")) } else { Ok(time) }
}

/// The same, more than nothing.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is no time at all: write 500ms, 2s or 3m")),
        time => Ok(time),
    }
}

/// Time between two pictures, as a daemon sends them.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// Reads the time between two pictures.
pub fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if INTERVALS.contains(&time) {
        Ok(time)
    } else {
        Err(format!("{text:?}: write a time from 100ms to 60s"))
    }
}

/// Reads `1h-ago`.
pub fn ago(text: &str) -> Result<Duration, String> {
    duration(text.strip_suffix("-ago").unwrap_or(text))
        .map_err(|_| format!("{text:?}: write 1h-ago or 20m-ago"))
}
