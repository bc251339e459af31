//! Shows endpoints being left out and taken back, under virtual time: by gRFC A50's two rules and by failures in a row,
//! never more than the share that may be out; and that no sequence of events breaks the books.

use proptest::prelude::*;
use trunkline_balance::{
    Balancer, Circuit, FailureShare, LoadReport, Outliers, Pick, Readiness, Report, Settings, SuccessRate,
    Wanted, Weighting,
};
use trunkline_call::{Code, Instant};

const S: u64 = 1_000_000_000;

fn balancer(outliers: Outliers, count: usize) -> Balancer<usize> {
    let mut balancer = Balancer::new(Settings { outliers: Some(outliers), ..Settings::default() }, 7);
    balancer.set_endpoints((0..count).map(|endpoint| (endpoint, "label")));
    balancer
}

/// So many calls in turn; those of `bad` endpoints fail. Returns how many each got.
fn calls(balancer: &mut Balancer<usize>, now: Instant, count: usize, bad: &[usize]) -> Vec<usize> {
    let mut got = vec![0; balancer.rows(now).len()];
    for _ in 0..count {
        let wanted = Wanted { key: None, tried: &[] };
        let endpoint = balancer.pick(now, wanted, |_| Readiness::Reachable).unwrap().unwrap();
        got[endpoint] += 1;
        let code = if bad.contains(&endpoint) { Code::Unavailable } else { Code::Ok };
        balancer.finished(now, endpoint, &Report { code: Some(code), load: None, ..Report::default() });
    }
    got
}

fn out(balancer: &Balancer<usize>, now: Instant) -> Vec<usize> {
    balancer.rows(now).iter().filter(|row| row.ejected).map(|row| row.endpoint).collect()
}

#[test]
fn who_fails_more_than_the_threshold_is_left_out_for_longer_each_time() {
    let rule = Some(FailureShare { threshold: 50, ..FailureShare::default() });
    let mut found = balancer(Outliers { failure_share: rule, ..Outliers::default() }, 10);
    let at = |seconds: u64| Instant(1 + seconds * S);
    calls(&mut found, at(0), 1000, &[4]);
    assert_eq!(calls(&mut found, at(10), 900, &[4])[4], 0, "out at the first look");
    assert_eq!(out(&found, at(39)), [4]);
    // Back after 30 s; found out again, twice as long.
    assert!(calls(&mut found, at(41), 1000, &[4])[4] > 0);
    calls(&mut found, at(52), 10, &[]);
    assert_eq!((out(&found, at(111)), out(&found, at(113))), (vec![4], vec![]));
}

#[test]
fn who_succeeds_far_less_than_the_others_is_left_out() {
    let rule = Some(SuccessRate { volume_min: 20, ..SuccessRate::default() });
    let mut found = balancer(Outliers { success_rate: rule, ..Outliers::default() }, 10);
    calls(&mut found, Instant(1), 1000, &[7]);
    calls(&mut found, Instant(1 + 10 * S), 10, &[]);
    assert_eq!(out(&found, Instant(1 + 10 * S)), [7]);
    // Too few calls to judge by.
    let mut spared = balancer(Outliers { success_rate: rule, ..Outliers::default() }, 10);
    calls(&mut spared, Instant(1), 100, &[7]);
    calls(&mut spared, Instant(1 + 10 * S), 10, &[]);
    assert!(out(&spared, Instant(1 + 10 * S)).is_empty());
}

#[test]
fn failures_in_a_row_act_at_once_and_never_on_too_many() {
    let outliers = Outliers { failures_in_a_row: 3, ejected_percent_max: 30, ..Outliers::default() };
    let mut found = balancer(outliers, 10);
    let bad: Vec<usize> = (0..10).collect();
    calls(&mut found, Instant(1), 200, &bad);
    assert_eq!(out(&found, Instant(1)).len(), 3);
    let outliers = Outliers { failures_in_a_row: 3, ejected_percent_max: 100, ..Outliers::default() };
    let mut all = balancer(outliers, 4);
    assert_eq!(calls(&mut all, Instant(1), 100, &bad).iter().sum::<usize>(), 100, "all out: all are picked");
}

#[test]
fn the_share_holds_with_the_last_one_that_goes_out() {
    let bad: Vec<usize> = (0..10).collect();
    for (count, percent, most) in
        [(3, 50, 1), (10, 30, 3), (10, 35, 3), (7, 50, 3), (2, 50, 1), (3, 10, 1), (4, 0, 0)]
    {
        let outliers = Outliers { failures_in_a_row: 3, ejected_percent_max: percent, ..Outliers::default() };
        let mut found = balancer(outliers, count);
        calls(&mut found, Instant(1), 200, &bad);
        assert_eq!(out(&found, Instant(1)).len(), most, "{percent} % of {count}");
    }
}

#[test]
fn a_time_out_is_as_long_as_the_settings_in_force_say() {
    let outliers = |ejection_ns| Outliers {
        failures_in_a_row: 3,
        ejection_ns,
        ejection_ns_max: 10 * ejection_ns,
        ..Outliers::default()
    };
    let mut found = balancer(outliers(3600 * S), 10);
    calls(&mut found, Instant(1), 100, &[4]);
    assert_eq!(out(&found, Instant(1 + 1000 * S)), [4]);
    found.configure(Settings { outliers: Some(outliers(S)), ..Settings::default() });
    assert_eq!((out(&found, Instant(2)), out(&found, Instant(1 + S))), (vec![4], vec![]));
}

#[test]
fn times_out_are_forgotten_as_fast_as_they_were_counted_up_to_the_longest() {
    let outliers =
        Outliers { failures_in_a_row: 1, ejection_ns: S, ejection_ns_max: 3 * S, ..Outliers::default() };
    let mut found = balancer(outliers, 10);
    let mut now = Instant(1);
    for _ in 0..200 {
        calls(&mut found, now, 10, &[4]);
        now = now.plus_ns(3 * S);
    }
    // One look to come back, and one for each second that was added.
    for _ in 0..5 {
        now = now.plus_ns(10 * S);
        calls(&mut found, now, 10, &[]);
    }
    calls(&mut found, now, 10, &[4]);
    assert_eq!((out(&found, now), out(&found, now.plus_ns(S))), (vec![4], vec![]), "as the first time");
}

fn picks() -> impl Strategy<Value = Pick> {
    prop_oneof![
        any::<bool>().prop_map(|shuffle| Pick::First { shuffle }),
        Just(Pick::RoundRobin),
        (0u32..12).prop_map(|choices| Pick::LeastRequest { choices }),
        Just(Pick::Weighted(Weighting { blackout_ns: 0, ..Weighting::default() })),
        (1u32..64, 1u32..256).prop_map(|(ring_min, ring_max)| Pick::RingHash {
            ring_min,
            ring_max,
            header: None
        }),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    Pick(Option<u64>, Vec<u8>),
    Finish(usize, Option<u8>, Vec<u8>),
    List(Vec<u8>),
    Configure(Pick),
    Wait(u64),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (any::<Option<u64>>(), prop::collection::vec(0u8..20, 0..4)).prop_map(|(k, f)| Event::Pick(k, f)),
        4 => (any::<usize>(), prop::option::of(0u8..17), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(at, code, load)| Event::Finish(at, code, load)),
        1 => prop::collection::vec(0u8..20, 0..12).prop_map(Event::List),
        1 => picks().prop_map(Event::Configure),
        1 => (0u64..40 * S).prop_map(Event::Wait),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_pick_is_on_the_list_and_the_books_are_even(
        all in prop::collection::vec(events(), 0..200),
    ) {
        let outliers = Outliers {
            failures_in_a_row: 2,
            ejected_percent_max: 50,
            success_rate: Some(SuccessRate { volume_min: 1, hosts_min: 1, ..SuccessRate::default() }),
            ..Outliers::default()
        };
        let circuit = Circuit { outstanding_max: 5, ..Circuit::default() };
        let settings = Settings { pick: Pick::RoundRobin, outliers: Some(outliers), circuit };
        let mut balancer = Balancer::new(settings.clone(), 3);
        let (mut now, mut list, mut under_way) = (Instant(1), Vec::new(), Vec::new());
        for event in all {
            match event {
                Event::Pick(key, failing) => {
                    let readiness = |endpoint: u8| match failing.contains(&endpoint) {
                        true => Readiness::Failing,
                        false => Readiness::Reachable,
                    };
                    match balancer.pick(now, Wanted { key, tried: &failing }, readiness) {
                        None => prop_assert!(list.is_empty()),
                        Some(Ok(endpoint)) => {
                            prop_assert!(list.contains(&endpoint));
                            under_way.push(endpoint);
                        }
                        Some(Err(full)) => prop_assert_eq!(full.outstanding_max, 5),
                    }
                }
                Event::Finish(at, code, load) if !under_way.is_empty() => {
                    let endpoint = under_way.swap_remove(at % under_way.len());
                    let code = code.map(|code| Code::from_number(code.into()));
                    let load = LoadReport::decode(&load);
                    balancer.finished(now, endpoint, &Report { code, load, ..Report::default() });
                }
                Event::Finish(..) => {}
                Event::List(new) => {
                    balancer.set_endpoints(new.iter().map(|endpoint| (*endpoint, "same")));
                    list = new;
                }
                Event::Configure(pick) => balancer.configure(Settings { pick, ..settings.clone() }),
                Event::Wait(ns) => now = now.plus_ns(ns),
            }
            for row in balancer.rows(now) {
                let count = under_way.iter().filter(|endpoint| **endpoint == row.endpoint).count();
                prop_assert_eq!(row.outstanding as usize, count);
            }
        }
    }
}
