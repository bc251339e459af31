//! Every policy over a range of loads.

use crate::scenario::{Outcome, Scenario};
use trunkline_dispatch::Policy;

/// What is compared.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Everything but the load.
    pub scenario: Scenario,
    /// Loads.
    pub loads: Vec<f64>,
    /// Policies.
    pub policies: Vec<Policy>,
}

/// One policy, or the bound.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// One for each load.
    pub points: Vec<Point>,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Load offered.
    pub load: f64,
    /// Median, ns.
    pub p50: u64,
    /// 99 of 100 stay below, ns.
    pub p99: u64,
    /// 999 of 1000 stay below, ns.
    pub p999: u64,
    /// The n of JBSQ(n) at the end.
    pub bound: Option<u32>,
}

impl Sweep {
    /// Runs everything; the bound comes first.
    pub fn run(&self) -> Vec<Curve> {
        let bound = self.curve("M/G/k bound".into(), Scenario::bound);
        let policies = self.policies.iter();
        let curves = policies.map(|policy| self.curve(policy.to_string(), |scenario| scenario.run(*policy)));
        [bound].into_iter().chain(curves).collect()
    }

    fn curve(&self, name: String, run: impl Fn(&Scenario) -> Outcome) -> Curve {
        let point = |load: &f64| Point::of(*load, &run(&Scenario { load: *load, ..self.scenario }));
        Curve { name, points: self.loads.iter().map(point).collect() }
    }
}

impl Point {
    fn of(load: f64, outcome: &Outcome) -> Self {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| outcome.quantile_ns(share));
        Self { load, p50, p99, p999, bound: outcome.bound }
    }
}

impl Curve {
    /// The highest load simulated up to which p99 stays within a limit, in whatever order loads were; zero if none.
    pub fn highest_load(&self, p99_ns_max: u64) -> f64 {
        let mut points: Vec<&Point> = self.points.iter().collect();
        points.sort_by(|a, b| a.load.total_cmp(&b.load));
        points.iter().take_while(|point| point.p99 <= p99_ns_max).last().map_or(0.0, |point| point.load)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the order of loads says nothing of the highest one that is borne.
    use super::*;

    #[test]
    fn loads_may_come_in_any_order() {
        let point = |load: f64, p99: u64| Point { load, p50: 1, p99, p999: 9, bound: None };
        let highest = |points: Vec<Point>| Curve { name: String::new(), points }.highest_load(100);
        assert_eq!(highest(vec![point(0.9, 500), point(0.5, 50), point(0.7, 90)]), 0.7);
        // What is within by chance above one that is not is not borne.
        assert_eq!(highest(vec![point(0.5, 50), point(0.7, 150), point(0.9, 90)]), 0.5);
        assert_eq!(highest(vec![point(0.9, 500)]), 0.0);
    }
}
