//! Shows which endpoint gets which call, under virtual time: every way of picking, what is avoided, and what happens
//! when nothing good is left.

use std::collections::HashMap;
use trunkline_balance::{
    Balancer, Circuit, LoadReport, Pick, Readiness, Report, Settings, Wanted, Weighting, key_of,
};
use trunkline_call::{Code, Instant};

const MS: u64 = 1_000_000;

fn balancer(pick: Pick, count: usize) -> Balancer<usize> {
    of(Settings { pick, ..Settings::default() }, count)
}

fn of(settings: Settings, count: usize) -> Balancer<usize> {
    let mut balancer = Balancer::new(settings, 7);
    set(&mut balancer, &(0..count).collect::<Vec<_>>());
    balancer
}

fn set(balancer: &mut Balancer<usize>, endpoints: &[usize]) {
    let labels: Vec<String> =
        endpoints.iter().map(|endpoint| format!("tcp://10.0.0.{endpoint}:80")).collect();
    balancer.set_endpoints(endpoints.iter().copied().zip(labels.iter().map(String::as_str)));
}

fn pick(balancer: &mut Balancer<usize>, now: Instant, failing: &[usize]) -> usize {
    pick_key(balancer, now, failing, None)
}

fn pick_key(balancer: &mut Balancer<usize>, now: Instant, failing: &[usize], key: Option<u64>) -> usize {
    let readiness = |endpoint| match failing.contains(&endpoint) {
        true => Readiness::Failing,
        false => Readiness::Reachable,
    };
    balancer.pick(now, Wanted { key, tried: &[] }, readiness).unwrap().unwrap()
}

fn done(balancer: &mut Balancer<usize>, now: Instant, endpoint: usize, code: Code) {
    balancer.finished(now, endpoint, &Report { code: Some(code), load: None, ..Report::default() });
}

#[test]
fn pick_first_stays_where_it_is_until_that_cannot_be_reached() {
    let mut first = balancer(Pick::First { shuffle: false }, 3);
    let now = Instant(1);
    assert_eq!([0, 1, 2].map(|_| pick(&mut first, now, &[])), [0, 0, 0]);
    assert_eq!(pick(&mut first, now, &[0]), 1);
    assert_eq!(pick(&mut first, now, &[]), 1, "and does not go back by itself");
    assert_eq!(pick(&mut first, now, &[1]), 0, "but begins at the head of the list");
    assert_eq!(pick(&mut first, now, &[0, 1]), 2);
    assert_eq!(pick(&mut first, now, &[0, 1, 2]), 2, "as long as there is nothing better");
    assert_eq!(pick(&mut first, now, &[0]), 2);
    set(&mut first, &[5, 6, 2]);
    assert_eq!(pick(&mut first, now, &[]), 2, "nor for a new list that has it");
    let circuit = Circuit { outstanding_max: 50, ..Circuit::default() };
    first.configure(Settings { pick: Pick::First { shuffle: false }, circuit, ..Settings::default() });
    assert_eq!(pick(&mut first, now, &[]), 2, "nor for settings that say nothing about it");
    set(&mut first, &[5, 6]);
    assert_eq!(pick(&mut first, now, &[]), 5);
}

#[test]
fn what_one_call_cannot_have_moves_that_call_alone() {
    let circuit = Circuit { outstanding_max: 1, ..Circuit::default() };
    let mut first = of(Settings { pick: Pick::First { shuffle: false }, circuit, ..Settings::default() }, 3);
    let now = Instant(1);
    assert_eq!([0; 2].map(|_| pick(&mut first, now, &[])), [0, 1], "the first is full");
    done(&mut first, now, 0, Code::Unavailable);
    let again = first.pick(now, Wanted { key: None, tried: &[0] }, |_| Readiness::Reachable);
    assert_eq!(again, Some(Ok(2)), "a retry goes elsewhere");
    (1..3).for_each(|endpoint| done(&mut first, now, endpoint, Code::Ok));
    assert_eq!(pick(&mut first, now, &[]), 0);
}

#[test]
fn round_robin_leaves_out_what_cannot_be_reached_and_takes_it_when_nothing_else_is_left() {
    let mut turns = balancer(Pick::RoundRobin, 3);
    let now = Instant(1);
    assert_eq!([0; 4].map(|_| pick(&mut turns, now, &[1])), [0, 2, 0, 2]);
    assert!(pick(&mut turns, now, &[0, 1, 2]) < 3);
    let mut none = Balancer::<usize>::new(Settings::default(), 1);
    assert!(none.pick(now, Wanted { key: None, tried: &[] }, |_| Readiness::Reachable).is_none());
}

#[test]
fn a_call_goes_elsewhere_than_it_was_before_while_there_is_an_elsewhere() {
    let mut turns = balancer(Pick::RoundRobin, 2);
    let wanted = |tried| Wanted { key: None, tried };
    let mut next = |tried| turns.pick(Instant(1), wanted(tried), |_| Readiness::Reachable).unwrap().unwrap();
    assert_eq!([next(&[0]), next(&[0]), next(&[1]), next(&[1])], [1, 1, 0, 0]);
    assert!(next(&[0, 1]) < 2);
}

#[test]
fn a_full_endpoint_is_never_picked() {
    let circuit = Circuit { outstanding_max: 2, ..Circuit::default() };
    let mut turns = of(Settings { circuit, ..Settings::default() }, 2);
    let now = Instant(1);
    let mut picked: Vec<usize> = (0..4).map(|_| pick(&mut turns, now, &[])).collect();
    picked.sort_unstable();
    assert_eq!(picked, [0, 0, 1, 1]);
    let refused = turns.pick(now, Wanted { key: None, tried: &[] }, |_| Readiness::Reachable).unwrap();
    assert_eq!(refused.unwrap_err().outstanding_max, 2);
    done(&mut turns, now, 1, Code::Ok);
    assert_eq!(pick(&mut turns, now, &[]), 1);
    // Nobody knows it: nothing changes.
    done(&mut turns, now, 9, Code::Ok);
}

/// Calls every millisecond for ten seconds; an endpoint takes `ms` for a call and ends it with `code`. Shares in
/// percent.
fn shares(balancer: &mut Balancer<usize>, servers: &[(u64, Code)]) -> Vec<usize> {
    let (mut ends, mut counts) = (Vec::<(u64, usize)>::new(), vec![0; servers.len()]);
    for ms in 0..10_000 {
        let now = Instant(ms * MS + 1);
        ends.retain(|(at, endpoint)| {
            let over = *at <= ms;
            if over {
                done(balancer, now, *endpoint, servers[*endpoint].1);
            }
            !over
        });
        let endpoint = pick(balancer, now, &[]);
        counts[endpoint] += 1;
        ends.push((ms + servers[endpoint].0, endpoint));
    }
    counts.into_iter().map(|count| count / 100).collect()
}

#[test]
fn the_less_loaded_of_two_spares_the_slow() {
    let (fast, slow) = ((5, Code::Ok), (100, Code::Ok));
    let servers = [slow, fast, fast, fast, fast, fast, fast, fast];
    let least = shares(&mut balancer(Pick::LeastRequest { choices: 2 }, 8), &servers);
    let turns = shares(&mut balancer(Pick::RoundRobin, 8), &servers);
    assert!(turns[0] == 12 && least[0] <= 4, "{turns:?} {least:?}");
}

#[test]
fn who_fails_fast_is_not_preferred() {
    let (sound, broken) = ((20, Code::Ok), (0, Code::Unavailable));
    let servers = [broken, sound, sound, sound];
    let least = shares(&mut balancer(Pick::LeastRequest { choices: 2 }, 4), &servers);
    assert!(least[0] <= 4, "a quarter would be its fair share: {least:?}");
    // A status that is the caller's own doing is no failure.
    let servers = [(20, Code::NotFound), sound, sound, sound];
    let least = shares(&mut balancer(Pick::LeastRequest { choices: 2 }, 4), &servers);
    assert!((20..30).contains(&least[0]), "{least:?}");
}

#[test]
fn weights_follow_what_servers_report() {
    let weighting = Weighting { blackout_ns: 0, ..Weighting::default() };
    let mut weighted = balancer(Pick::Weighted(weighting.clone()), 3);
    let report = |utilization, errors_per_second| LoadReport {
        application_utilization: utilization,
        calls_per_second: 100.0,
        errors_per_second,
        ..LoadReport::default()
    };
    let now = Instant(5);
    for (endpoint, load) in [(0, report(0.25, 0.0)), (1, report(0.5, 0.0)), (2, report(0.5, 50.0))] {
        weighted.finished(
            now,
            endpoint,
            &Report { code: Some(Code::Ok), load: Some(load), ..Report::default() },
        );
    }
    let mut counts = [0; 3];
    for _ in 0..700 {
        counts[pick(&mut weighted, now, &[])] += 1;
    }
    assert_eq!(counts, [400, 200, 100], "half as busy, twice the calls; errors count as load");
    // Reports that are too old are forgotten: in turn again.
    let later = now.plus_ns(weighting.expiry_ns);
    let mut counts = [0; 3];
    for _ in 0..300 {
        counts[pick(&mut weighted, later, &[])] += 1;
    }
    assert_eq!(counts, [100; 3]);
    assert_eq!(LoadReport::decode(&[9, 0]), None);
    let encoded = [&[9][..], &0.5f64.to_le_bytes(), &[0x42, 2, 1, 2, 0x31], &100f64.to_le_bytes()].concat();
    let decoded = LoadReport::decode(&encoded).unwrap();
    assert_eq!((decoded.cpu_utilization, decoded.calls_per_second), (0.5, 100.0));
}

#[test]
fn a_report_nobody_can_believe_neither_takes_all_calls_nor_starves_its_server() {
    let weighting = Weighting { blackout_ns: 0, ..Weighting::default() };
    let report = |calls_per_second, application_utilization| LoadReport {
        application_utilization,
        calls_per_second,
        ..LoadReport::default()
    };
    let now = Instant(5);
    for strange in [report(1e300, 1e-300), report(1e300, 0.5), report(100.0, 1e-12), report(1e-300, 1e300)] {
        let mut weighted = balancer(Pick::Weighted(weighting.clone()), 3);
        let mut tell = |endpoint, load| {
            let told = Report { code: Some(Code::Ok), load: Some(load), ..Report::default() };
            weighted.finished(now, endpoint, &told);
        };
        tell(0, strange);
        (1..3).for_each(|endpoint| tell(endpoint, report(100.0, 0.5)));
        let mut counts = [0; 3];
        (0..3000).for_each(|_| counts[pick(&mut weighted, now, &[])] += 1);
        assert!(counts.iter().all(|count| *count >= 50), "{strange:?}: {counts:?}");
        // As soon as it says what can be, it gets what that is worth.
        weighted.finished(
            now,
            0,
            &Report { code: Some(Code::Ok), load: Some(report(100.0, 0.5)), ..Report::default() },
        );
        let mut counts = [0; 3];
        (0..3000).for_each(|_| counts[pick(&mut weighted, now, &[])] += 1);
        assert!(counts.iter().all(|count| (950..1050).contains(count)), "{strange:?}: {counts:?}");
    }
}

#[test]
fn equal_keys_meet_and_few_move() {
    let hash = Pick::RingHash { ring_min: 1024, ring_max: 4096, header: None };
    let mut ring = balancer(hash, 8);
    let now = Instant(1);
    let keys: Vec<u64> = (0..4000u32).map(|key| key_of(&key.to_be_bytes())).collect();
    let mut homes = |failing: &[usize]| -> Vec<usize> {
        keys.iter().map(|key| pick_key(&mut ring, now, failing, Some(*key))).collect()
    };
    let before = homes(&[]);
    assert_eq!(before, homes(&[]));
    let mut counts = HashMap::new();
    before.iter().for_each(|home| *counts.entry(*home).or_insert(0) += 1);
    assert!((0..8).all(|home| (300..750).contains(&counts[&home])), "{counts:?}");
    let after = homes(&[3]);
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
    assert!(moved.clone().all(|(before, _)| *before == 3) && moved.count() == counts[&3]);
}
