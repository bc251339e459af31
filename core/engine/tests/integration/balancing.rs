//! Shows how calls are spread over the endpoints of a service, as service config and policies say: slow, failing, full
//! and unreachable ones, keys, load reports, and names; under virtual time.

use crate::world;

use trunkline_call::{Code, Deadline};
use trunkline_engine::Limits;
use trunkline_policy::{Chain, Definition, EncodingName, Kind, PickName};
use world::fleet::*;

fn spread(servers: Vec<Behaviour>, config: &str, count: usize) -> Fleet {
    let mut fleet = Fleet::new(servers, config);
    fleet.calls(count, MS);
    assert_eq!(fleet.ended.len(), count);
    fleet
}

fn sound(count: usize) -> Vec<Behaviour> {
    (0..count).map(|_| always(after(MS, Code::Ok))).collect()
}

fn apply(fleet: &mut Fleet, definition: Definition) {
    fleet.world.hosts[0].engine.apply_policies(Chain::build(&[definition]).unwrap()).unwrap();
}

fn balance() -> Definition {
    let service = Some("world.Echo".to_owned());
    Definition { name: "spread".into(), kind: Kind::Balance, service, ..Definition::default() }
}

/// The endpoints that are left out now.
fn ejected(fleet: &mut Fleet) -> Vec<String> {
    let (engine, now) = (&fleet.world.hosts[0].engine, fleet.world.now);
    let mut parts = engine.begin_state();
    while engine.copy_state(now, &mut parts) {}
    let rows = parts.finish().balanced;
    rows.into_iter().filter(|row| row.ejected).map(|row| row.endpoint.to_string()).collect()
}

#[test]
fn in_turn_unless_told_otherwise() {
    assert_eq!(spread(sound(4), "{}", 400).seen, [100; 4]);
    let first = r#"{"loadBalancingConfig": [{"pick_first": {}}]}"#;
    assert_eq!(spread(sound(4), first, 400).seen, [400, 0, 0, 0]);
}

#[test]
fn the_slow_and_the_fast_failing_get_less() {
    let least = r#"{"loadBalancingConfig": [{"least_request_experimental": {}}]}"#;
    let mut servers = sound(8);
    servers[0] = always(after(100 * MS, Code::Ok));
    servers[1] = always(after(1, Code::Unavailable));
    let fleet = spread(servers, least, 2000);
    assert!(fleet.seen[0] < 60 && fleet.seen[1] < 60, "{:?}", fleet.seen);
}

#[test]
fn an_endpoint_that_fails_in_a_row_is_left_out_and_taken_back() {
    let mut servers = sound(4);
    servers[2] = Box::new(|seen, _| after(MS, if seen < 10 { Code::Unavailable } else { Code::Ok }));
    let mut fleet = Fleet::new(servers, "{}");
    apply(&mut fleet, Definition { eject_after: Some(5), eject_ms: Some(1000), ..balance() });
    fleet.calls(400, MS);
    assert!(fleet.seen[2] <= 6, "{:?}", fleet.seen);
    assert_eq!(ejected(&mut fleet), [endpoint(2)]);
    fleet.calls(4000, MS);
    assert!(fleet.count(Code::Unavailable) == 10 && fleet.seen[2] > 300, "{:?}", fleet.seen);
}

/// Deadlines that this host notices late, because it had no processor, are nobody's fault. Those it notices in time
/// are.
#[test]
fn an_endpoint_is_not_ejected_for_what_this_host_slept_through() {
    for (step_ms, is_fault) in [(2000, false), (1, true)] {
        let slow = (0..4).map(|_| always(after(1000 * MS, Code::Ok))).collect();
        let mut fleet = Fleet::new(slow, "{}");
        apply(&mut fleet, Definition { eject_after: Some(2), eject_ms: Some(10_000), ..balance() });
        for _ in 0..16 {
            fleet.call(Deadline::at(fleet.world.now.plus_ns(50 * MS)));
        }
        (0..2000 / step_ms).for_each(|_| fleet.world.advance(step_ms * MS));
        fleet.rest();
        assert_eq!(fleet.count(Code::DeadlineExceeded), 16);
        assert_eq!(!ejected(&mut fleet).is_empty(), is_fault, "steps of {step_ms} ms");
    }
}

/// What a caller's own limit ends is no fault of the server that answered.
#[test]
fn an_endpoint_is_not_ejected_for_answers_that_callers_do_not_take() {
    let config = r#"{"methodConfig": [{"name": [{}], "maxResponseMessageBytes": 4}]}"#;
    let mut fleet = Fleet::new(sound(4), config);
    apply(&mut fleet, Definition { eject_after: Some(2), eject_ms: Some(10_000), ..balance() });
    fleet.calls(40, MS);
    fleet.rest();
    assert_eq!((fleet.count(Code::ResourceExhausted), ejected(&mut fleet)), (40, vec![]));
}

#[test]
fn outliers_of_a_service_config_are_left_out() {
    let config = r#"{"loadBalancingConfig": [{"outlier_detection_experimental": {"interval": "1s",
        "maxEjectionPercent": 50, "failurePercentageEjection": {"threshold": 50},
        "childPolicy": [{"round_robin": {}}]}}]}"#;
    let mut servers = sound(5);
    servers[3] = always(after(MS, Code::Internal));
    let fleet = spread(servers, config, 3000);
    assert!((190..=230).contains(&fleet.seen[3]), "a second's worth of a fifth: {:?}", fleet.seen);
}

#[test]
fn a_full_endpoint_gets_no_more_and_all_full_refuse() {
    let mut servers = sound(2);
    servers[0] = always(after(1000 * MS, Code::Ok));
    let mut fleet = Fleet::new(servers, "{}");
    apply(&mut fleet, Definition { outstanding_max: Some(3), ..balance() });
    fleet.calls(100, 2 * MS);
    assert_eq!((fleet.seen[0], fleet.count(Code::Ok)), (3, 100));
    let before = fleet.ended.len();
    for _ in 0..10 {
        fleet.call(Deadline::NONE);
    }
    fleet.rest();
    let refused = fleet.ended[before..].iter().filter(|ended| ended.code == Code::ResourceExhausted);
    assert_eq!(refused.count(), 4);
}

#[test]
fn an_endpoint_that_cannot_be_reached_costs_no_call() {
    let mut fleet = Fleet::new(sound(3), "{}");
    fleet.world.down.insert(endpoint(1));
    fleet.calls(100, MS);
    assert_eq!((fleet.count(Code::Ok), fleet.seen[1]), (100, 0));
    // It comes back.
    fleet.world.down.clear();
    fleet.run(10_000 * MS);
    fleet.calls(99, MS);
    assert_eq!((fleet.count(Code::Ok), fleet.seen[1]), (199, 33));
    // All are gone: the call says so.
    fleet.world.down.extend((0..3).map(endpoint));
    for web in 0..fleet.world.webs.len() {
        fleet.world.hang_up(web);
    }
    fleet.calls(1, MS);
    assert_eq!(fleet.count(Code::Unavailable), 1);
}

#[test]
fn weights_come_from_load_reports() {
    // OrcaLoadReport { application_utilization, rps_fractional: 100 }.
    let report = |utilization: f64| {
        let bytes =
            [&[9 << 3 | 1][..], &utilization.to_le_bytes(), &[6 << 3 | 1], &100f64.to_le_bytes()].concat();
        trunkline_grpc_bin(&bytes)
    };
    let busy = |utilization| {
        let trailers = vec![("endpoint-load-metrics-bin".to_owned(), report(utilization))];
        always(Answer { trailers, ..after(MS, Code::Ok) })
    };
    let config = r#"{"loadBalancingConfig": [{"weighted_round_robin": {"blackoutPeriod": "0s"}}]}"#;
    let mut fleet = Fleet::new(vec![busy(0.2), busy(0.8)], config);
    fleet.calls(10, MS);
    fleet.seen = vec![0; 2];
    fleet.calls(500, MS);
    assert_eq!(fleet.seen, [400, 100]);
}

/// Base64, as binary metadata travels.
fn trunkline_grpc_bin(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            out.push(DIGITS[(word >> (18 - 6 * digit)) as usize & 63] as char);
        }
    }
    out
}

#[test]
fn a_policy_of_the_host_comes_before_the_service_config() {
    let mut fleet = Fleet::new(sound(2), r#"{"loadBalancingConfig": [{"round_robin": {}}]}"#);
    fleet.calls(10, MS);
    apply(&mut fleet, Definition { pick: Some(PickName::First), ..balance() });
    fleet.calls(10, MS);
    assert_eq!(fleet.seen, [15, 5]);
    fleet.world.hosts[0].engine.apply_policies(Chain::default()).unwrap();
    fleet.calls(10, MS);
    assert_eq!(fleet.seen, [20, 10]);
}

#[test]
fn a_policy_chooses_how_requests_are_compressed() {
    let retries = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.01s",
        "maxBackoff": "1s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    let failing: Behaviour =
        Box::new(|seen, _| after(MS, if seen == 2 { Code::Unavailable } else { Code::Ok }));
    let limits = Limits { attempts_percent: 100, ..Limits::default() };
    let mut fleet = Fleet::with_limits(vec![failing], retries, limits);
    fleet.calls(1, MS);
    let (kind, encoding) = (Kind::Compress, Some(EncodingName::Gzip));
    apply(&mut fleet, Definition { name: "small".into(), kind, encoding, ..Definition::default() });
    fleet.calls(2, MS);
    assert_eq!(fleet.encodings[1..], ["gzip"; 3], "and so is an attempt that follows: {:?}", fleet.encodings);
    assert_ne!(fleet.encodings[0], "gzip");
}
