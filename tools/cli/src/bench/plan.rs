//! When calls are due.

use std::time::Duration;

/// Most steps of one run: more cannot be told apart in a plot.
pub const STEPS_MAX: usize = 1000;
/// No rate is higher: one session sends far fewer, and each call that is due is counted.
const RATE_MAX: f64 = 1e7;

/// How calls follow each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Loop {
    /// At these rates, whatever becomes of earlier calls.
    Open(Vec<Step>),
    /// So many outstanding, the next when one ends.
    Closed {
        /// Calls outstanding.
        concurrency: usize,
    },
}

/// A stretch of time with one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Calls per second.
    pub rate: f64,
    /// How long it is kept.
    pub time: Duration,
}

/// What ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Calls started at most.
    pub count: Option<u64>,
    /// Time in which calls are started.
    pub time: Option<Duration>,
}

/// The instants at which calls are due, from the start of the run.
#[derive(Clone, Debug)]
pub struct Arrivals {
    steps: Vec<Step>,
    /// The step at hand, and calls of it that were given out.
    step: usize,
    given: u64,
    /// When the step at hand began.
    begun: Duration,
}

impl Loop {
    /// One rate, or from it to `end` by `by` every `every`, each step as long as the others.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn steps(rate: f64, end: Option<f64>, by: Option<f64>, every: Duration) -> Result<Self, String> {
        let positive = |rate: f64| rate > 0.0 && rate <= RATE_MAX;
        let Some(end) = end else {
            if !positive(rate) {
                return Err(format!(
                    "--rate {rate}: write calls per second, more than 0, at most {RATE_MAX}"
                ));
            }
            return Ok(Self::Open(vec![Step { rate, time: Duration::MAX }]));
        };
        let by = by.unwrap_or((end - rate) / 10.0).abs();
        if !positive(rate) || !positive(end) || !positive(by) || every.is_zero() {
            let what = "write --rate, --rate-end and --rate-step in calls per second, more than 0";
            return Err(format!(
                "from {rate} to {end} by {by}: {what}, at most {RATE_MAX}, and a --step-time"
            ));
        }
        let count = ((end - rate).abs() / by).ceil() as usize + 1;
        if count > STEPS_MAX {
            return Err(format!(
                "{count} steps from {rate} to {end} by {by}: at most {STEPS_MAX}; write a larger step"
            ));
        }
        let at = |step: usize| match end >= rate {
            true => (rate + by * step as f64).min(end),
            false => (rate - by * step as f64).max(end),
        };
        Ok(Self::Open((0..count).map(|step| Step { rate: at(step), time: every }).collect()))
    }

    /// The step in which a call is due at this time from the start; `None` if there is but one.
    pub fn step_at(&self, due: Duration) -> Option<usize> {
        let Self::Open(steps) = self else { return None };
        let every = steps.first().filter(|_| steps.len() > 1)?.time;
        let at = due.as_nanos() / every.as_nanos().max(1);
        Some(usize::try_from(at).unwrap_or(usize::MAX).min(steps.len() - 1))
    }

    /// The rates of all steps; none if there is but one.
    pub fn rates(&self) -> Vec<f64> {
        match self {
            Self::Open(steps) if steps.len() > 1 => steps.iter().map(|step| step.rate).collect(),
            _ => Vec::new(),
        }
    }

    /// The time all steps take together; `None` if they do not end.
    pub fn time(&self) -> Option<Duration> {
        match self {
            Self::Open(steps) => {
                steps.iter().try_fold(Duration::ZERO, |sum, step| sum.checked_add(step.time))
            }
            Self::Closed { .. } => None,
        }
        .filter(|time| *time != Duration::MAX)
    }
}

impl Arrivals {
    /// The arrivals of these steps.
    pub fn new(steps: Vec<Step>) -> Self {
        Self { steps, step: 0, given: 0, begun: Duration::ZERO }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    /// The next instant. Computed from its number, so that nothing adds up to a drift.
    fn next(&mut self) -> Option<Duration> {
        loop {
            let step = self.steps.get(self.step)?;
            let within = Duration::try_from_secs_f64(self.given as f64 / step.rate).ok()?;
            if within < step.time {
                self.given += 1;
                return self.begun.checked_add(within);
            }
            self.begun = self.begun.checked_add(step.time)?;
            (self.step, self.given) = (self.step + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows when calls are due, at one rate and at several.
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn arrivals(plan: Loop) -> Arrivals {
        match plan {
            Loop::Open(steps) => Arrivals::new(steps),
            Loop::Closed { .. } => panic!("no steps"),
        }
    }

    #[test]
    fn one_rate_does_not_drift() {
        let mut arrivals = arrivals(Loop::steps(3.0, None, None, SECOND).unwrap());
        assert_eq!(arrivals.next(), Some(Duration::ZERO));
        assert_eq!(arrivals.nth(2_999_998), Some(Duration::from_nanos(999_999_666_666_667)));
    }

    #[test]
    fn steps_follow_each_other() {
        let plan = Loop::steps(10.0, Some(30.0), Some(10.0), SECOND).unwrap();
        assert_eq!((plan.time(), plan.rates()), (Some(3 * SECOND), vec![10.0, 20.0, 30.0]));
        let steps = [0, 999, 1000, 2999, 3000].map(|ms| plan.step_at(Duration::from_millis(ms)).unwrap());
        assert_eq!(steps, [0, 0, 1, 2, 2]);
        let due: Vec<Duration> = arrivals(plan).collect();
        assert_eq!(due.len(), 10 + 20 + 30);
        assert_eq!((due[10], due[30]), (SECOND, 2 * SECOND));
        let down = arrivals(Loop::steps(30.0, Some(10.0), Some(15.0), SECOND).unwrap());
        assert_eq!(down.count(), 30 + 15 + 10, "the last step ends where it was asked to");
    }

    #[test]
    fn nonsense_is_refused() {
        for (rate, end, by) in [
            (0.0, None, None),
            (f64::NAN, None, None),
            (1.0, Some(-1.0), None),
            (1.0, Some(1e7), Some(1.0)),
            (1e9, None, None),
            (1.0, Some(1.0), None),
        ] {
            assert!(Loop::steps(rate, end, by, SECOND).is_err(), "{rate} {end:?} {by:?}");
        }
    }

    proptest! {
        #[test]
        fn time_never_goes_back(rate in 0.1f64..1e6, end in 0.1f64..1e6, by in 1.0f64..1e6, ms in 1u64..50) {
            if let Ok(plan) = Loop::steps(rate, Some(end), Some(by), Duration::from_millis(ms)) {
                let due: Vec<Duration> = arrivals(plan.clone()).take(10_000).collect();
                prop_assert!(due.is_sorted());
                prop_assert!(due.last().is_none_or(|last| *last < plan.time().unwrap()));
            }
        }
    }
}
