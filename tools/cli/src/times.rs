//! Times as command lines have them.

use std::time::Duration;

/// Reads `500ms`, `2s`, `1.5s`, `3m`, `1h`.
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
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| wrong())
}

/// Reads `1h-ago`.
pub fn ago(text: &str) -> Result<Duration, String> {
    duration(text.strip_suffix("-ago").unwrap_or(text))
        .map_err(|_| format!("{text:?}: write 1h-ago or 20m-ago"))
}
