//! Numbers as people read them.

/// A time given in seconds.
pub fn time(seconds: f64) -> String {
    match seconds.abs() {
        size if size.is_nan() => "–".into(),
        0.0 => "0".into(),
        size if size < 1e-6 => format!("{} ns", short(seconds * 1e9)),
        size if size < 1e-3 => format!("{} µs", short(seconds * 1e6)),
        size if size < 1.0 => format!("{} ms", short(seconds * 1e3)),
        _ => format!("{} s", short(seconds)),
    }
}

/// A size in bytes.
pub fn bytes(size: f64) -> String {
    match size {
        size if size.is_nan() => "–".into(),
        size if size < 1e3 => format!("{} B", short(size)),
        size if size < 1e6 => format!("{} kB", short(size / 1e3)),
        size if size < 1e9 => format!("{} MB", short(size / 1e6)),
        size => format!("{} GB", short(size / 1e9)),
    }
}

/// A part of one as hundredths.
pub fn percent(part: f64) -> String {
    match part {
        part if part.is_nan() => "–".into(),
        part if part != 0.0 && part.abs() < 0.01 => format!("{:.2} %", 100.0 * part),
        part => format!("{:.1} %", 100.0 * part),
    }
}

/// A number with three digits that count.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size.is_nan() => "–".into(),
        0.0 => "0".into(),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => trimmed(format!("{value:.1}")),
        size if size >= 1.0 => trimmed(format!("{value:.2}")),
        size if size >= 0.1 => trimmed(format!("{value:.3}")),
        size if size >= 0.01 => trimmed(format!("{value:.4}")),
        _ => trimmed(format!("{value:.5}")),
    }
}

fn trimmed(digits: String) -> String {
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    //! Shows units and digits.
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(time(0.000_012_34), "12.3 µs");
        assert_eq!((time(2.0), time(-0.0015), time(f64::NAN)), ("2 s".into(), "-1.5 ms".into(), "–".into()));
        assert_eq!((bytes(64.0), bytes(2048.0)), ("64 B".into(), "2.05 kB".into()));
        assert_eq!((percent(0.5), percent(0.001)), ("50.0 %".into(), "0.10 %".into()));
        assert_eq!((short(1234.0), short(0.5), short(1e7)), ("1234".into(), "0.5".into(), "1.00e7".into()));
    }
}
