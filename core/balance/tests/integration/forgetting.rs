//! Shows that nothing an endpoint went through moves calls away from it for good: after any history under virtual time,
//! once its failures have stopped, it gets its fair share again within the time that is promised.

use proptest::prelude::*;
use trunkline_balance::{
    Balancer, Circuit, LoadReport, Outliers, Pick, Readiness, Report, Settings, Wanted, Weighting,
};
use trunkline_call::{Code, Instant};

const S: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Event {
    /// A call for somebody who is not among these; and some that cannot be reached.
    Pick {
        tried: Vec<usize>,
        failing: Vec<usize>,
    },
    /// One of those under way ends.
    End {
        which: usize,
        ends: Ends,
    },
    Wait {
        ns: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum Ends {
    Well(f64),
    Failed,
    Outpaced,
}

fn events(reachable: bool) -> impl Strategy<Value = Vec<Event>> {
    let some = || prop::collection::vec(0usize..6, 0..4);
    let failing = some().prop_map(move |failing| if reachable { Vec::new() } else { failing });
    // Utilizations that cannot be, too: 1e-300 of a processor.
    let ends = prop_oneof![
        (-300i32..3).prop_map(|power| Ends::Well(10f64.powi(power))),
        Just(Ends::Failed),
        Just(Ends::Outpaced),
    ];
    let event = prop_oneof![
        4 => (some(), failing).prop_map(|(tried, failing)| Event::Pick { tried, failing }),
        4 => (any::<usize>(), ends).prop_map(|(which, ends)| Event::End { which, ends }),
        1 => (0..3 * S).prop_map(|ns| Event::Wait { ns }),
    ];
    prop::collection::vec(event, 0..200)
}

fn balancer(pick: Pick, outliers: Option<Outliers>, count: usize) -> Balancer<usize> {
    let circuit = Circuit { outstanding_max: 5, ..Circuit::default() };
    let mut balancer = Balancer::new(Settings { pick, outliers, circuit }, 11);
    balancer.set_endpoints((0..count).map(|endpoint| (endpoint, "label")));
    balancer
}

/// What happened; at its end no call is under way. Returns the time, and how many calls failed.
fn go_through(balancer: &mut Balancer<usize>, events: Vec<Event>) -> (Instant, u32) {
    let (mut now, mut under_way, mut failures) = (Instant(1), Vec::new(), 0);
    let end = |balancer: &mut Balancer<usize>, now, endpoint, ends| {
        let code = if matches!(ends, Ends::Failed) { Code::Unavailable } else { Code::Ok };
        let load = match ends {
            Ends::Well(cpu_utilization) => {
                Some(LoadReport { cpu_utilization, calls_per_second: 50.0, ..LoadReport::default() })
            }
            _ => None,
        };
        let outpaced = matches!(ends, Ends::Outpaced);
        balancer.finished(now, endpoint, &Report { code: (!outpaced).then_some(code), load, outpaced });
    };
    for event in events {
        match event {
            Event::Pick { tried, failing } => {
                let readiness = |endpoint| match failing.contains(&endpoint) {
                    true => Readiness::Failing,
                    false => Readiness::Reachable,
                };
                let picked = balancer.pick(now, Wanted { key: None, tried: &tried }, readiness);
                under_way.extend(picked.and_then(Result::ok));
            }
            Event::End { which, ends } if !under_way.is_empty() => {
                let endpoint = under_way.swap_remove(which % under_way.len());
                failures += u32::from(!matches!(ends, Ends::Well(_)));
                end(balancer, now, endpoint, ends);
            }
            Event::End { .. } => {}
            Event::Wait { ns } => now = now.plus_ns(ns),
        }
    }
    for endpoint in under_way {
        end(balancer, now, endpoint, Ends::Well(0.5));
    }
    (now, failures)
}

/// Who gets how many of so many calls, one after the other.
fn shares(balancer: &mut Balancer<usize>, now: Instant, count: usize, calls: usize) -> Vec<usize> {
    let mut got = vec![0; count];
    for _ in 0..calls {
        let picked = balancer.pick(now, Wanted { key: None, tried: &[] }, |_| Readiness::Reachable);
        let endpoint = picked.unwrap().unwrap();
        got[endpoint] += 1;
        balancer.finished(now, endpoint, &Report { code: Some(Code::Ok), ..Report::default() });
    }
    got
}

/// A third off is seven deviations of chance, for six endpoints.
fn are_fair(shares: &[usize], calls: usize) -> bool {
    let fair = calls / shares.len();
    shares.iter().all(|share| share.abs_diff(fair) * 3 <= fair)
}

proptest! {
    #[test]
    fn failures_are_forgotten_in_a_second_and_the_logarithm_of_their_number(
        count in 2usize..7,
        choices in 2u32..5,
        history in events(false),
    ) {
        let mut balancer = balancer(Pick::LeastRequest { choices }, None, count);
        let (stopped, failures) = go_through(&mut balancer, history);
        let seconds = 1.0 + f64::from(failures.max(1)).log2();
        let later = stopped.plus_ns((seconds * S as f64) as u64 + 1);
        let shares = shares(&mut balancer, later, count, 3000);
        prop_assert!(are_fair(&shares, 3000), "{shares:?} after {failures} failures");
    }

    #[test]
    fn whoever_was_ejected_or_reported_wildly_has_its_share_again(
        count in 2usize..7,
        pick in prop_oneof![
            Just(Pick::RoundRobin),
            Just(Pick::LeastRequest { choices: 2 }),
            Just(Pick::Weighted(Weighting { blackout_ns: 0, ..Weighting::default() })),
        ],
        history in events(false),
    ) {
        let outliers = Outliers {
            failures_in_a_row: 2,
            ejected_percent_max: 60,
            ejection_ns: S,
            ejection_ns_max: 5 * S,
            ..Outliers::default()
        };
        let mut balancer = balancer(pick, Some(outliers), count);
        let (stopped, _) = go_through(&mut balancer, history);
        // Weights expire after three minutes, all else sooner.
        let later = stopped.plus_ns(180 * S);
        let shares = shares(&mut balancer, later, count, 3000);
        prop_assert!(are_fair(&shares, 3000), "{shares:?}");
    }

    #[test]
    fn pick_first_is_at_the_first_again_unless_that_could_not_be_reached(
        count in 2usize..7,
        history in events(true),
    ) {
        let outliers = Outliers { failures_in_a_row: 2, ejection_ns: S, ejection_ns_max: 5 * S, ..Outliers::default() };
        let mut balancer = balancer(Pick::First { shuffle: false }, Some(outliers), count);
        let (stopped, _) = go_through(&mut balancer, history);
        let shares = shares(&mut balancer, stopped.plus_ns(5 * S), count, 10);
        prop_assert_eq!(shares[0], 10);
    }
}
