//! How far the daemon's host's clock is ahead of this one's: Cristian's estimate, from questions that were answered
//! soonest.

use trunkline_call::ClockShift;

/// Questions that are remembered: clocks drift by some 50 µs a second, so older answers say less.
const SAMPLES: usize = 8;

/// The estimate.
#[derive(Debug)]
pub(crate) struct LinkClock {
    /// Both sides read one clock.
    same: bool,
    /// Round trip and shift of the last answers.
    samples: [Option<(u64, i64)>; SAMPLES],
    next: usize,
}

impl LinkClock {
    /// Nothing is known, but whether the clocks are one.
    pub fn new(same: bool) -> Self {
        Self { same, samples: [None; SAMPLES], next: 0 }
    }

    /// An answer: asked and answered at these times here, and what the clock there showed between.
    pub fn answered(&mut self, sent_ns: u64, there_ns: u64, now_ns: u64) {
        let round_trip_ns = now_ns.saturating_sub(sent_ns);
        let middle_ns = sent_ns.saturating_add(round_trip_ns / 2);
        let shift = i128::from(there_ns) - i128::from(middle_ns);
        let shift = i64::try_from(shift).unwrap_or(if shift < 0 { i64::MIN } else { i64::MAX });
        self.samples[self.next % SAMPLES] = Some((round_trip_ns, shift));
        self.next += 1;
    }

    /// What is to be added to times here; wrong by half of the shortest round trip at most.
    pub fn shift(&self) -> ClockShift {
        if self.same {
            return ClockShift::default();
        }
        ClockShift(self.samples.iter().flatten().min().map_or(0, |(_, shift)| *shift))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the quickest of the last answers counts, and none where there is one clock.
    use super::*;

    #[test]
    fn the_quickest_answer_counts() {
        let mut offset = LinkClock::new(false);
        assert_eq!(offset.shift(), ClockShift(0));
        offset.answered(1_000, 51_500, 3_000);
        assert_eq!(offset.shift(), ClockShift(49_500));
        offset.answered(4_000, 54_100, 4_200);
        assert_eq!(offset.shift(), ClockShift(50_000));
        for _ in 0..SAMPLES {
            offset.answered(10_000, 40, 10_080);
        }
        assert_eq!(offset.shift(), ClockShift(-10_000), "older answers are forgotten");
        let mut same = LinkClock::new(true);
        same.answered(1_000, u64::MAX, 3_000);
        assert_eq!(same.shift(), ClockShift(0));
    }
}
