//! Times and spans of time, as protobuf and as the standard library have them.

use crate::wkt::{Duration, Timestamp};
use std::time::{self, SystemTime, UNIX_EPOCH};

const NANOS_PER_SECOND: i32 = 1_000_000_000;

/// The seconds of the years 1 to 9999, in which times are (timestamp.proto).
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Most seconds a duration may have (duration.proto): ten thousand years.
pub(super) const DURATION_SECONDS_MAX: i64 = 315_576_000_000;

/// Why a time or a span of time has no counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// The nanoseconds are not part of a second, or their sign is not that of the seconds.
    #[error("nanos: {0} is no part of a second, or has another sign than seconds")]
    Nanos(i32),
    /// The seconds are beyond what the other type, or protobuf, can hold.
    #[error("seconds: {0} is out of range")]
    Seconds(i64),
    /// The span goes backwards, which the standard library's cannot.
    #[error("the duration is negative: {0} s")]
    Negative(i64),
}

impl From<SystemTime> for Timestamp {
    /// A time before 1970 has negative seconds and, as all, nanoseconds that count forwards. One that no `i64` of
    /// seconds can tell becomes the nearest that one can.
    fn from(time: SystemTime) -> Self {
        let seconds = |of: time::Duration| i64::try_from(of.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: seconds(since), nanos: since.subsec_nanos().cast_signed() },
            Err(before) => {
                let before = before.duration();
                match before.subsec_nanos().cast_signed() {
                    0 => Self { seconds: -seconds(before), nanos: 0 },
                    nanos => Self { seconds: -seconds(before) - 1, nanos: NANOS_PER_SECOND - nanos },
                }
            }
        }
    }
}

impl TryFrom<Timestamp> for SystemTime {
    type Error = TimeError;

    fn try_from(Timestamp { seconds, nanos }: Timestamp) -> Result<Self, TimeError> {
        let fraction = u32::try_from(nanos).ok().filter(|_| nanos < NANOS_PER_SECOND);
        let fraction = time::Duration::from_nanos(fraction.ok_or(TimeError::Nanos(nanos))?.into());
        let whole = time::Duration::from_secs(seconds.unsigned_abs());
        if !TIMESTAMP_SECONDS.contains(&seconds) {
            return Err(TimeError::Seconds(seconds));
        }
        let second = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        second.and_then(|second| second.checked_add(fraction)).ok_or(TimeError::Seconds(seconds))
    }
}

impl TryFrom<time::Duration> for Duration {
    type Error = TimeError;

    fn try_from(span: time::Duration) -> Result<Self, TimeError> {
        let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        match seconds <= DURATION_SECONDS_MAX {
            true => Ok(Self { seconds, nanos: span.subsec_nanos().cast_signed() }),
            false => Err(TimeError::Seconds(seconds)),
        }
    }
}

impl TryFrom<Duration> for time::Duration {
    type Error = TimeError;

    fn try_from(Duration { seconds, nanos }: Duration) -> Result<Self, TimeError> {
        let fraction = nanos.unsigned_abs();
        if nanos.abs_diff(0) >= NANOS_PER_SECOND.unsigned_abs()
            || i64::from(nanos).signum() * seconds.signum() < 0
        {
            return Err(TimeError::Nanos(nanos));
        }
        match u64::try_from(seconds) {
            Ok(seconds) if nanos >= 0 => Ok(Self::new(seconds, fraction)),
            _ => Err(TimeError::Negative(seconds)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows both ways, the edges, and what is refused.
    use super::*;

    fn at(seconds: i64, nanos: i32) -> Timestamp {
        Timestamp { seconds, nanos }
    }

    #[test]
    fn times_go_there_and_back() {
        for (timestamp, since_1970_ns) in [
            (at(0, 0), 0_i64),
            (at(1, 1), 1_000_000_001),
            (at(-1, 999_999_999), -1),
            (at(-2, 0), -2_000_000_000),
            (at(-2, 500_000_000), -1_500_000_000),
        ] {
            let span = time::Duration::from_nanos(since_1970_ns.unsigned_abs());
            let time = if since_1970_ns < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span };
            assert_eq!(Timestamp::from(time), timestamp);
            assert_eq!(SystemTime::try_from(timestamp), Ok(time));
        }
        assert!(at(-1, 999_999_999) < at(0, 0) && at(0, 1) < at(1, 0), "they compare as times do");
    }

    #[test]
    fn times_that_are_none_are_refused() {
        for (timestamp, error) in [
            (at(0, -1), TimeError::Nanos(-1)),
            (at(0, NANOS_PER_SECOND), TimeError::Nanos(NANOS_PER_SECOND)),
            (at(i64::MIN, 0), TimeError::Seconds(i64::MIN)),
            (at(TIMESTAMP_SECONDS.end() + 1, 0), TimeError::Seconds(TIMESTAMP_SECONDS.end() + 1)),
        ] {
            assert_eq!(SystemTime::try_from(timestamp), Err(error));
        }
        let last = at(*TIMESTAMP_SECONDS.end(), NANOS_PER_SECOND - 1);
        assert_eq!(SystemTime::try_from(last).map(Timestamp::from), Ok(last));
    }

    #[test]
    fn spans_go_there_and_back_unless_they_are_negative() {
        let span = time::Duration::new(3, 7);
        assert_eq!(Duration::try_from(span), Ok(Duration { seconds: 3, nanos: 7 }));
        assert_eq!(time::Duration::try_from(Duration { seconds: 3, nanos: 7 }), Ok(span));
        let longest = time::Duration::new(DURATION_SECONDS_MAX.unsigned_abs(), 999_999_999);
        assert!(Duration::try_from(longest).is_ok());
        let refused = |seconds, nanos| time::Duration::try_from(Duration { seconds, nanos }).unwrap_err();
        assert_eq!(refused(-1, 0), TimeError::Negative(-1));
        assert_eq!(refused(0, -1), TimeError::Negative(0));
        assert_eq!(refused(1, -1), TimeError::Nanos(-1));
        assert_eq!(refused(0, i32::MIN), TimeError::Nanos(i32::MIN));
        assert_eq!(refused(i64::MIN, i32::MIN), TimeError::Nanos(i32::MIN));
        let forever = Duration::try_from(time::Duration::MAX).unwrap_err();
        assert_eq!(forever.to_string(), format!("seconds: {} is out of range", i64::MAX));
    }
}
