//! How much longer a request will take that has been in work for so long: measured.

/// Steps of each doubling that are told apart: a service time is known to an eighth.
const STEPS: usize = 8;
/// Services that take longer count as taking so long: 2³⁹ ns are nine minutes.
const DOUBLINGS: usize = 40;
const BUCKETS: usize = DOUBLINGS * STEPS;
/// Services between two looks at what was counted.
const RENEWED_EVERY: u32 = 64;
/// Of what was counted this is kept at each look: a thousand services later an eighth is left.
const KEPT: f32 = 0.875;
/// Services, by weight, below which a mean is none.
const COUNTS_MIN: f64 = 0.01;

/// Service times as they were, the latest with most weight, and what they say.
#[derive(Clone, Debug)]
pub(crate) struct Remaining {
    /// Services by how long they took.
    counts: Box<[f32]>,
    /// The mean of those that took at least so long, from which age and remainder follow, and their deviation from it.
    means_ns: Box<[f32]>,
    deviations_ns: Box<[f32]>,
    noted: u32,
}

impl Default for Remaining {
    fn default() -> Self {
        let zeros = || vec![0.0; BUCKETS].into();
        Self { counts: zeros(), means_ns: zeros(), deviations_ns: zeros(), noted: 0 }
    }
}

impl Remaining {
    /// A request has taken so long.
    pub fn note(&mut self, service_ns: u64) {
        self.counts[bucket(service_ns)] += 1.0;
        self.noted = self.noted.wrapping_add(1);
        if self.noted.is_multiple_of(RENEWED_EVERY) {
            self.renew();
        }
    }

    /// Whether enough is known to say who ends first.
    pub fn is_measured(&self) -> bool {
        self.means_ns[0] > 0.0
    }

    /// What is left, in the mean, of a request that has taken `age_ns` so far. One that took longer than any before
    /// is expected to take as long again; so is every one before [`Remaining::is_measured`].
    pub fn expected_ns(&self, age_ns: u64) -> u64 {
        match self.means_ns[bucket(age_ns)] {
            0.0 => age_ns,
            mean_ns => (mean_ns as u64).saturating_sub(age_ns),
        }
    }

    /// The root of the mean square of the same: what is left if the mean is not relied on. Where one in ten of those
    /// that should end now turns out to be a long one, it is a third of a long one.
    pub fn risked_ns(&self, age_ns: u64) -> u64 {
        let deviation_ns = f64::from(self.deviations_ns[bucket(age_ns)]);
        (self.expected_ns(age_ns) as f64).hypot(deviation_ns) as u64
    }

    fn renew(&mut self) {
        let (mut count, mut sum_ns, mut sum_square) = (0.0_f64, 0.0_f64, 0.0_f64);
        for bucket in (0..BUCKETS).rev() {
            let (own, middle_ns) = (f64::from(self.counts[bucket]), f64::from(middle_ns(bucket)));
            count += own;
            sum_ns += own * middle_ns;
            sum_square += own * middle_ns.powi(2);
            self.counts[bucket] *= KEPT;
            // What is left of very old ones says nothing any more.
            let mean = |sum: f64| if count > COUNTS_MIN { sum / count } else { 0.0 };
            self.means_ns[bucket] = mean(sum_ns) as f32;
            self.deviations_ns[bucket] = (mean(sum_square) - mean(sum_ns).powi(2)).max(0.0).sqrt() as f32;
        }
    }
}

/// Below `STEPS` nanoseconds each has a bucket of its own, from there on each eighth of a doubling.
fn bucket(ns: u64) -> usize {
    let doubling = (ns | 1).ilog2() as usize;
    let index = match doubling.checked_sub(STEPS.ilog2() as usize) {
        None => ns as usize,
        Some(shift) => (shift + 1) * STEPS + (ns >> shift) as usize - STEPS,
    };
    index.min(BUCKETS - 1)
}

fn middle_ns(bucket: usize) -> f32 {
    let (shift, step) = ((bucket / STEPS).saturating_sub(1), bucket % STEPS);
    let base = if bucket < STEPS { 0 } else { STEPS };
    ((base + step) as f32 + 0.5) * (1_u64 << shift.min(63)) as f32
}

#[cfg(test)]
mod tests {
    //! Shows what is expected of services that are all alike, of two kinds, and without memory; and that old ones are
    //! forgotten.
    use super::*;

    const MS: u64 = 1_000_000;

    fn after(services: impl IntoIterator<Item = u64>) -> Remaining {
        let mut remaining = Remaining::default();
        services.into_iter().for_each(|ns| remaining.note(ns));
        remaining
    }

    #[test]
    fn buckets_hold_what_is_near() {
        for ns in (0..4096).chain((12..39).flat_map(|power| [1 << power, (1 << power) + 12_345])) {
            let middle = f64::from(middle_ns(bucket(ns)));
            assert!((middle - ns as f64).abs() <= 0.5 + ns as f64 / 8.0, "{ns} ns: {middle}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn services_that_are_alike_end_when_they_always_did() {
        let remaining = after([10 * MS; 128]);
        assert!((9 * MS..11 * MS).contains(&remaining.expected_ns(0)));
        assert!(remaining.expected_ns(9 * MS) < 2 * MS);
        assert_eq!(remaining.expected_ns(40 * MS), 40 * MS, "longer than any");
    }

    #[test]
    fn whoever_has_outlived_the_short_ones_is_a_long_one() {
        let remaining = after((0..1280).map(|index| if index % 10 == 0 { 50 * MS } else { 5 * MS }));
        let (young, old) = (remaining.expected_ns(4 * MS), remaining.expected_ns(8 * MS));
        assert!(young < 7 * MS && old > 35 * MS, "{young} {old}");
    }

    #[test]
    fn a_risk_is_what_the_mean_does_not_say() {
        let alike = after([10 * MS; 128]);
        assert!(alike.risked_ns(9 * MS) < 2 * MS, "nothing is risked");
        assert_eq!(alike.risked_ns(40 * MS), 40 * MS, "longer than any");

        let bimodal = after((0..1280).map(|index| if index % 10 == 0 { 50 * MS } else { 5 * MS }));
        let (expected, risked) = (bimodal.expected_ns(4 * MS), bimodal.risked_ns(4 * MS));
        assert!(expected < 7 * MS && (12 * MS..18 * MS).contains(&risked), "{expected} {risked}");
    }

    #[test]
    fn what_was_is_forgotten() {
        let remaining = after(std::iter::repeat_n(100 * MS, 640).chain(std::iter::repeat_n(MS, 6400)));
        assert!(remaining.expected_ns(0) < 2 * MS);
    }
}
