//! Shows what telemetry answers: planted delays are found where they were planted, shards add up, memory stays bounded,
//! and nothing is forgotten that should be kept.

use crate::world;

use trunkline_call::{ClientStamps, Code, Instant};
use trunkline_telemetry::recorder::{EPOCH_NS, RING_CALLS, STRATUM_CALLS};
use trunkline_telemetry::{
    Ask, CallTrace, CallsAsk, Component, Detail, Explanation, Exposition, MethodIndex, PeerIndex, Record,
    Side, Snapshot, Telemetry, UnaryCall, prometheus, render, top,
};
use world::{GREETER, call, dice};

const USUAL: [u64; 9] = [700, 4_000, 20_000, 900, 50_000, 800, 20_000, 5_000, 1_100];

/// `calls` calls with the usual parts and some jitter, changed by `plant`; returns when the last one ended.
fn greet(telemetry: &mut Telemetry, calls: u64, plant: impl Fn(u64, &mut Record, &mut [u64; 9])) -> Instant {
    let (method, peer) = (telemetry.method(GREETER), telemetry.peer("10.0.0.7:7878", true));
    let mut now = Instant(1_000_000_000);
    for n in 0..calls {
        let mut parts = USUAL.map(|ns| ns + dice(n + ns, ns / 4));
        let mut record = call(now.0, method, peer, parts);
        plant(n, &mut record, &mut parts);
        let planted = call(now.0, method, peer, parts);
        record.client = planted.client;
        record.server = record.server.and(planted.server);
        now = record.client.a18;
        telemetry.record(now, &record);
    }
    now
}

fn whole() -> Ask {
    Ask { samples_max: 100_000, ..Ask::default() }
}

fn explain(telemetry: &mut Telemetry, now: Instant) -> Explanation {
    Explanation::of(&telemetry.snapshot(now, &whole()), Side::Made).expect("calls were made")
}

#[test]
fn a_planted_delay_is_found_in_its_component() {
    for planted in Component::ALL {
        let mut telemetry = Telemetry::new();
        let now = greet(&mut telemetry, 500, |n, _, parts| {
            if n % 10 == 0 {
                parts[planted as usize] += 3_000_000;
            }
        });
        let explanation = explain(&mut telemetry, now);
        let largest = explanation.components.iter().max_by(|a, b| a.spread.p99_ns.cmp(&b.spread.p99_ns));
        assert_eq!(largest.map(|row| row.component), Some(planted));
        let tail = explanation
            .what_if
            .iter()
            .max_by(|a, b| a.p95_reduction_percent.total_cmp(&b.p95_reduction_percent));
        assert_eq!(tail.map(|what_if| what_if.component), Some(planted));
        assert!(
            tail.is_some_and(|tail| tail.p95_reduction_percent > 90.0 && tail.tail_escape_percent > 90.0)
        );
    }
}

#[test]
fn shares_add_up_to_the_whole() {
    let mut telemetry = Telemetry::new();
    let now = greet(&mut telemetry, 300, |n, record, _| {
        if n % 3 == 0 {
            record.server = None;
        }
    });
    let explanation = explain(&mut telemetry, now);
    let divided: f64 = explanation.components.iter().map(|row| row.spread.share_percent).sum();
    let remote = explanation.remote.expect("a third came back without stamps");
    assert!((divided + remote.share_percent - 100.0).abs() < 1e-6);
    assert_eq!((explanation.client_only, remote.calls, explanation.calls), (100, 100, 300));
    let of = |component: Component| explanation.components[component as usize].spread.calls;
    assert_eq!((of(Component::ClientSendQueue), of(Component::ServerApplication)), (300, 200));
}

#[test]
fn errors_are_counted_by_code() {
    let mut telemetry = Telemetry::new();
    let now = greet(&mut telemetry, 100, |n, record, _| {
        record.code = match n % 10 {
            0 => Code::Unavailable,
            1 | 2 => Code::DeadlineExceeded,
            _ => Code::Ok,
        };
    });
    let errors = explain(&mut telemetry, now).errors;
    assert_eq!(errors, [("DEADLINE_EXCEEDED".to_owned(), 20), ("UNAVAILABLE".to_owned(), 10)]);
}

#[test]
fn shards_add_up_to_the_host() {
    let (mut one, mut two, mut both) = (Telemetry::new(), Telemetry::new(), Telemetry::new());
    let other = |telemetry: &mut Telemetry| telemetry.method("/other.Service/Call");
    let _ = other(&mut two);
    let slower = |_: u64, _: &mut Record, parts: &mut [u64; 9]| parts[4] *= 3;
    greet(&mut one, 200, |_, _, _| {});
    let end = greet(&mut two, 300, slower);
    greet(&mut both, 200, |_, _, _| {});
    greet(&mut both, 300, slower);
    let mut merged = one.snapshot(end, &whole());
    merged.merge(two.snapshot(end, &whole()));
    let expected = both.snapshot(end, &whole());
    assert_eq!(merged.series.len(), 1);
    let sum = |snapshot: &Snapshot| {
        let series = snapshot.sum(Side::Made);
        (series.calls(), series.total.sum(), series.total.quantile(0.5), series.total.quantile(0.99))
    };
    assert_eq!(sum(&merged), sum(&expected));
    assert_eq!(merged.samples.len(), 500);
}

#[test]
fn a_snapshot_survives_json() {
    let (mut telemetry, now) = world::queueing_greeter();
    let snapshot = telemetry.snapshot(now, &whole());
    let json = serde_json::to_string(&snapshot).unwrap();
    let copy: Snapshot = serde_json::from_str(&json).unwrap();
    assert_eq!(Explanation::of(&copy, Side::Made), Explanation::of(&snapshot, Side::Made));
    assert_eq!(copy.samples, snapshot.samples);
}

#[test]
fn a_snapshot_of_absurd_counts_is_explained_anyway() {
    let (mut telemetry, now) = world::queueing_greeter();
    let json = serde_json::to_value(telemetry.snapshot(now, &whole())).unwrap();
    let absurd: Snapshot = serde_json::from_value(with_numbers(json, u64::MAX)).unwrap();
    let mut twice = absurd.clone();
    twice.merge(absurd.clone());
    for snapshot in [&twice, &twice.since(&absurd)] {
        let explanation = Explanation::of(snapshot, Side::Made);
        let _ = explanation.map(|explanation| render::explanation(&explanation));
        let _ = render::top(&top(snapshot, Some(&absurd), 0), 80);
        let _ = prometheus::text(&figures(snapshot));
    }
    assert_eq!(twice.sum(Side::Made).calls(), u64::MAX, "counts stay at the end instead of wrapping");
}

/// The same value with every count, weight and duration replaced; bucket numbers, codes and sizes stay.
fn with_numbers(value: serde_json::Value, number: u64) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Array(pair) if pair.len() == 2 && pair[0].as_u64().is_some_and(|id| id < 976) => {
            Value::Array(vec![pair[0].clone(), number.into()])
        }
        Value::Array(values) => values.into_iter().map(|value| with_numbers(value, number)).collect(),
        Value::Object(fields) => {
            let kept = ["code", "request_bytes", "response_bytes"];
            let fields = fields.into_iter().map(|(name, value)| {
                let keep = value.is_number() && kept.contains(&name.as_str());
                (name, if keep { value } else { with_numbers(value, number) })
            });
            Value::Object(fields.collect())
        }
        Value::Number(_) => number.into(),
        other => other,
    }
}

#[test]
fn top_shows_what_happened_since() {
    let mut telemetry = Telemetry::new();
    let ask = Ask { detail: Detail::Totals, ..Ask::default() };
    let before = greet(&mut telemetry, 1_000, |_, _, _| {});
    let earlier = telemetry.snapshot(before, &ask);
    let after = greet(&mut telemetry, 50, |n, record, parts| {
        parts[Component::ClientReceiveQueue as usize] = 1_000_000;
        record.code = if n == 0 { Code::Internal } else { Code::Ok };
    });
    let rows = top(&telemetry.snapshot(after, &ask), Some(&earlier), 2_000_000_000);
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.calls, row.errors, row.rate), (50, 1, 25.0));
    assert_eq!(row.biggest, Some(Component::ClientReceiveQueue));
    assert!(row.biggest_percent > 85.0 && row.p50_ns > 1_000_000, "{row:?}");
    assert!(top(&earlier, Some(&earlier), 1).is_empty(), "nothing happened between a snapshot and itself");
}

#[test]
fn names_beyond_the_limits_share_a_series() {
    let mut telemetry = Telemetry::new();
    let methods: Vec<MethodIndex> =
        (0..Telemetry::METHODS_MAX + 50).map(|n| telemetry.method(&format!("/many.Methods/{n}"))).collect();
    assert_eq!(methods.last(), Some(&MethodIndex::OTHER));
    assert_eq!(
        telemetry.peer(&"x".repeat(10_000), false),
        telemetry.peer(&"x".repeat(9_000), false),
        "cut alike"
    );
    let peers: Vec<PeerIndex> =
        (0..Telemetry::PEERS_MAX + 50).map(|n| telemetry.peer(&format!("10.0.0.{n}"), true)).collect();
    assert_eq!(peers.last(), Some(&PeerIndex::OTHER));
    let calls = Telemetry::SERIES_MAX as u64 + 500;
    for n in 0..calls {
        let (method, peer) = (methods[n as usize % 1_000], peers[n as usize % 997]);
        telemetry.record(Instant(u64::MAX), &call(n * 1_000_000, method, peer, USUAL));
    }
    let wild = call(1, MethodIndex(u32::MAX), PeerIndex(u32::MAX), USUAL);
    telemetry.record(Instant(u64::MAX), &wild);
    let snapshot = telemetry.snapshot(Instant(1), &Ask::default());
    assert!(snapshot.series.len() <= Telemetry::SERIES_MAX);
    assert_eq!(snapshot.sum(Side::Made).calls(), calls + 1, "none is lost");
}

#[test]
fn what_nobody_uses_is_forgotten_and_makes_room() {
    let mut telemetry = Telemetry::new();
    let (kept, host) = (telemetry.method("/kept.Methods/1"), telemetry.peer("10.0.0.1", false));
    telemetry.record(Instant(1 << 40), &call(1_000, kept, host, USUAL));
    let before = telemetry.heap_bytes();
    let methods: Vec<MethodIndex> =
        (0..Telemetry::METHODS_MAX).map(|n| telemetry.method(&format!("/many.Methods/{n}"))).collect();
    for (n, method) in methods.into_iter().enumerate().take(Telemetry::PEERS_MAX) {
        let peer = telemetry.peer(&format!("10.1.{n}"), false);
        telemetry.record(Instant(1 << 40), &call(n as u64 * 1_000, method, peer, USUAL));
    }
    assert!(telemetry.has_all_methods() && telemetry.has_all_peers());
    let full = telemetry.heap_bytes();
    let ask = Ask { samples_max: 10_000, ..Ask::default() };
    let mut under_way = telemetry.begin_snapshot(Instant(1 << 40), ask.clone());
    assert!(telemetry.copy_part(&mut under_way));
    telemetry.forget(|method| method == kept, |peer| peer == host);
    while telemetry.copy_part(&mut under_way) {}
    assert!(under_way.finish().series.iter().any(|one| one.method == "/kept.Methods/1"));
    assert!(!telemetry.has_all_methods() && !telemetry.has_all_peers());
    let calls_bytes = telemetry.recorder().heap_bytes();
    let own = telemetry.heap_bytes() - calls_bytes;
    assert!(own < 100_000 && full - before > 1_000_000, "{before}, {full}, {own}");
    let snapshot = telemetry.snapshot(Instant(1 << 40), &ask);
    let named: Vec<&str> = snapshot.series.iter().map(|one| &*one.method).collect();
    assert_eq!(named, ["/kept.Methods/1"]);
    let samples_of = |name: &str| snapshot.samples.iter().filter(|sample| &*sample.method == name).count();
    assert_eq!((samples_of("/kept.Methods/1"), samples_of("(other)")), (1, Telemetry::PEERS_MAX));
    // A number that is used again is the new one's alone.
    let (fresh, peer) = (telemetry.method("/fresh.Methods/1"), telemetry.peer("10.2.0.1", true));
    assert_ne!((fresh, peer), (MethodIndex::OTHER, PeerIndex::OTHER));
    telemetry.record(Instant(1 << 40), &call(1_000, fresh, peer, USUAL));
    let snapshot = telemetry.snapshot(Instant(1 << 40), &ask);
    let fresh: Vec<u64> = snapshot
        .series
        .iter()
        .filter(|one| one.method == "/fresh.Methods/1")
        .map(|one| one.series.calls())
        .collect();
    assert_eq!(fresh, [1]);
    assert_eq!(telemetry.method("/kept.Methods/1"), kept);
}

/// Calls are counted many at a time; who asks in between gets every one, of whatever method, side and coverage.
#[test]
fn no_call_is_pending_for_who_asks() {
    let mut telemetry = Telemetry::new();
    let peer = telemetry.peer("10.0.0.7:7878", true);
    let methods = ["/a.A/One", "/a.A/Two", "/a.A/Three"].map(|path| telemetry.method(path));
    for n in 0..200 {
        let mut record = call(1_000_000 * (n + 1), methods[n as usize % 3], peer, USUAL);
        if n % 5 == 0 {
            record.server = None;
        }
        if n % 7 == 0 {
            record.side = Side::Served;
        }
        telemetry.record(record.client.a18, &record);
        let snapshot = telemetry.snapshot(record.client.a18, &whole());
        let (made, served) = (snapshot.sum(Side::Made), snapshot.sum(Side::Served));
        assert_eq!((made.calls() + served.calls(), served.calls()), (n + 1, n / 7 + 1));
        assert_eq!((made.total.count(), served.total.count()), (made.calls(), served.calls()));
        let answered = made.components[Component::ServerApplication as usize].count();
        assert_eq!((answered + made.client_only, made.remote.count()), (made.calls(), made.client_only));
        assert_eq!(snapshot.samples.len() as u64, n + 1);
    }
}

#[test]
fn steady_recording_takes_no_memory() {
    let mut telemetry = Telemetry::new();
    greet(&mut telemetry, 3 * RING_CALLS as u64, |_, _, _| {});
    let before = telemetry.heap_bytes();
    greet(&mut telemetry, 20_000, |_, _, _| {});
    assert_eq!(telemetry.heap_bytes(), before);
    assert!(before < 8 << 20, "{before} bytes");
}

/// A shard copies what it knows in parts, between which it records more calls: what is put together of them elsewhere
/// is what it would have told at once.
#[test]
fn a_snapshot_in_parts_is_the_one_at_once() {
    let mut telemetry = Telemetry::new();
    let now = greet(&mut telemetry, RING_CALLS as u64 + 500, |_, _, _| {});
    for number in 0..300 {
        let method = telemetry.method(&format!("/many.v1.S{number}/M"));
        telemetry.record(now, &call(now.0, method, PeerIndex::LOCAL, USUAL));
    }
    let at_once = telemetry.snapshot(now, &whole());
    let mut parts = telemetry.begin_snapshot(now, whole());
    let mut later = 0;
    while telemetry.copy_part(&mut parts) {
        later += 1;
        let method = telemetry.method(GREETER);
        let at = now.0 + later * 1_000_000;
        telemetry.record(Instant(at), &call(at, method, PeerIndex::LOCAL, USUAL));
    }
    let in_parts = parts.finish();
    assert!(later as usize >= RING_CALLS / 4096 + 300 / 32, "{later} parts");
    assert_eq!(in_parts.series.len(), at_once.series.len());
    assert!(at_once.samples.starts_with(&in_parts.samples), "in order, and nothing that came later");
    let missing = at_once.samples.len() - in_parts.samples.len();
    assert!(missing <= later as usize, "{missing}: only what the later ones took the room of");
}

#[test]
fn failures_and_the_slow_outlive_the_ring() {
    let mut telemetry = Telemetry::new();
    let calls = 3 * RING_CALLS as u64;
    greet(&mut telemetry, calls, |n, record, parts| {
        if n == 5 {
            record.code = Code::Internal;
        } else if n % 40 == 0 {
            parts[4] = 300_000;
        }
    });
    let recorder = telemetry.recorder();
    assert_eq!(recorder.recent().count(), RING_CALLS);
    assert!(recorder.recent().zip(recorder.recent().skip(1)).all(|(newer, older)| newer.at > older.at));
    let kept: Vec<_> = recorder.sample().collect();
    assert!(kept.len() <= 6 * STRATUM_CALLS);
    assert!(kept.iter().any(|kept| kept.row.code == Code::Internal && kept.weight == 1));
    let slow = kept.iter().filter(|kept| kept.row.components.total_ns() > 300_000);
    let stood_for: u64 = kept.iter().map(|kept| kept.weight).sum();
    let weight = slow.map(|kept| kept.weight).max().unwrap_or(0);
    assert!(stood_for.abs_diff(calls) < 64, "the sample stands for {stood_for} of {calls} calls");
    assert!((1..=8).contains(&weight), "the slow twentieth is kept more densely than the rest: {weight}");
}

#[test]
fn what_is_slow_follows_what_calls_take_by_now() {
    let mut telemetry = Telemetry::new();
    for (calls, application_ns, slow) in [
        (200_000, 1_000_000, 300..=700),
        // Twice as slow, and so for good.
        (20_000, 2_000_000, 300..=1_000),
        (20_000, 500_000, 200..=700),
    ] {
        greet(&mut telemetry, calls, |n, _, parts| {
            parts[4] = application_ns + dice(n, application_ns / 4);
        });
        let recent = telemetry.recorder().recent().take(10_000);
        let are_slow = recent.filter(|row| row.slow).count();
        assert!(slow.contains(&are_slow), "{are_slow} of 10000 calls of {application_ns} ns");
    }
}

/// Seconds of an incident are not what is slow when it is over.
#[test]
fn what_is_slow_is_found_again_soon_when_calls_are_a_thousand_times_faster() {
    let mut telemetry = Telemetry::new();
    for (calls, application_ns) in [(20_000, 1_000_000), (2_000, 1_000_000_000), (2_500, 1_000_000)] {
        greet(&mut telemetry, calls, |n, _, parts| {
            parts[4] = application_ns + dice(n, application_ns / 4);
        });
    }
    let are_slow = telemetry.recorder().recent().take(500).filter(|row| row.slow).count();
    assert!((10..=60).contains(&are_slow), "{are_slow} of the last 500");
}

/// Neither calls that time out, nor those that are refused, say what is slow.
#[test]
fn of_calls_that_take_alike_none_is_slow_whatever_fails_beside_them() {
    let mut telemetry = Telemetry::new();
    greet(&mut telemetry, 20_000, |n, record, parts| {
        *parts = USUAL;
        parts[4] = 1_000_000 + n % 3 * 10_000;
        if n % 10 == 0 {
            (record.code, parts[4]) = (Code::DeadlineExceeded, 10_000_000_000);
        }
    });
    let recent = telemetry.recorder().recent().take(5_000).filter(|row| row.code == Code::Ok);
    assert_eq!(recent.filter(|row| row.slow).count(), 0);
}

/// A host that refuses most calls does not have the others begin as slow ones, nor after each replacement of its
/// daemon.
#[test]
fn what_is_slow_at_first_is_not_looked_up_among_calls_that_are_refused() {
    let mut telemetry = Telemetry::new();
    let (method, peer) = (telemetry.method(GREETER), telemetry.peer("10.0.0.7:7878", true));
    let refused = Record {
        code: Code::ResourceExhausted,
        server: None,
        ..call(1_000_000, method, peer, USUAL.map(|ns| ns / 100))
    };
    for _ in 0..100_000 {
        telemetry.record_refused(Instant(2_000_000), &refused);
    }
    let now = greet(&mut telemetry, 2_000, millisecond);
    assert!(slow_of_last(&mut telemetry) <= 100, "{}", slow_of_last(&mut telemetry));
    let mut next = Telemetry::new();
    next.take_up(telemetry.snapshot(now, &Ask::default()).series);
    greet(&mut next, 2_000, millisecond);
    assert!(slow_of_last(&mut next) <= 100, "{}", slow_of_last(&mut next));
}

fn millisecond(n: u64, _: &mut Record, parts: &mut [u64; 9]) {
    parts[4] = 1_000_000 + dice(n, 50_000);
}

fn slow_of_last(telemetry: &mut Telemetry) -> usize {
    telemetry.recorder().recent().take(1_000).filter(|row| row.slow).count()
}

/// Whoever may call nothing leaves what was recorded of those who call.
#[test]
fn calls_that_are_refused_are_counted_and_leave_the_recorder_to_others() {
    let mut telemetry = Telemetry::new();
    let mut now = greet(&mut telemetry, 100, |_, _, _| {});
    let record = Record {
        side: Side::Served,
        code: Code::PermissionDenied,
        client: ClientStamps::default(),
        ..call(now.0, MethodIndex::OTHER, PeerIndex::OTHER, USUAL)
    };
    for _ in 0..70_000 {
        now = now.plus_ns(20_000);
        telemetry.record_refused(now, &record);
    }
    let recent: Vec<Code> = telemetry.recorder().recent().map(|row| row.code).collect();
    assert_eq!(recent.iter().filter(|code| **code == Code::Ok).count(), 100);
    assert!((16..=16 * 3).contains(&(recent.len() - 100)), "{}", recent.len());
    let sum = telemetry.snapshot(now, &Ask::default()).sum(Side::Served);
    assert_eq!((sum.calls(), sum.errors()), (70_000, 70_000));
}

#[test]
fn where_calls_are_many_counts_are_exact_and_sums_and_percentiles_close() {
    const CALLS: u64 = 100_000;
    let mut telemetry = Telemetry::new();
    let (method, peer) = (telemetry.method(GREETER), telemetry.peer("10.0.0.7:7878", true));
    let (mut sums, mut totals, mut queues) = ([0; 9], Vec::new(), Vec::new());
    let (mut failed, mut bytes, mut passed) = (0, 0, 0);
    for n in 0..CALLS {
        // Some wait long, and nothing about when is regular.
        let queue = if dice(n, 99) < 4 { 500_000 + dice(n + 1, 500_000) } else { dice(n, 40_000) };
        let mut parts = USUAL.map(|ns| ns + dice(n + ns, ns));
        parts[3] = queue;
        let mut record = call(1_000_000_000 + n * 10_000, method, peer, parts);
        record.request_bytes = dice(n + 3, 1_000);
        if dice(n + 2, 999) < 5 {
            record.code = Code::Internal;
            failed += 1;
        }
        let now = Instant(1_100_000_000 + n * 10_000);
        passed += u64::from(end(&mut telemetry, now, &record));
        bytes += u128::from(record.request_bytes);
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += u128::from(part));
        totals.push(parts.iter().sum::<u64>());
        queues.push(queue);
        if n % 777 == 0 {
            let sum = telemetry.snapshot(now, &Ask::default()).sum(Side::Made);
            assert_eq!((sum.calls(), sum.errors()), (n + 1, failed), "whenever somebody asks");
            assert_eq!((sum.request_bytes.sum(), sum.request_bytes.count()), (bytes, n + 1));
        }
    }
    let share = passed as f64 / CALLS as f64;
    assert!((0.75..0.88).contains(&share), "{share} of the calls are passed over");
    let sum = telemetry.snapshot(Instant(3_000_000_000), &Ask::default()).sum(Side::Made);
    assert_eq!((sum.calls(), sum.errors(), sum.request_bytes.sum()), (CALLS, failed, bytes));
    for (histogram, exact) in sum.components.iter().zip(sums) {
        assert_eq!(histogram.count(), CALLS);
        let (found, exact) = (histogram.sum() as f64, exact as f64);
        assert!((found / exact - 1.0).abs() < 0.02, "{found} of {exact}");
    }
    let (parts, whole) = (sum.components.iter().map(|part| part.sum()).sum::<u128>(), sum.total.sum());
    assert_eq!(parts, whole, "the nine come to the whole, whoever stands for whom");
    totals.sort_unstable();
    queues.sort_unstable();
    assert_eq!(Some(&sum.total.max()), totals.last(), "the slowest is looked at");
    for (name, histogram, all) in [("total", &sum.total, &totals), ("queue", &sum.components[3], &queues)] {
        for share in [0.25, 0.5, 0.9, 0.95, 0.99, 0.999] {
            let (found, exact) =
                (histogram.quantile(share) as f64, all[(share * CALLS as f64) as usize] as f64);
            assert!((found / exact - 1.0).abs() < 0.08, "{name} {share}: {found} for {exact}");
        }
    }
    let ask = CallsAsk { from: Some(0), rows_max: 1 << 20, ..CallsAsk::default() };
    let (mut answer, mut rows, mut seen) = (telemetry.calls(&ask), Vec::new(), 0);
    loop {
        seen += answer.seen;
        rows.append(&mut answer.rows);
        if !answer.more {
            break;
        }
        answer = telemetry.calls(&CallsAsk { from: Some(answer.next), ..ask });
    }
    let weight: f64 = rows.iter().map(|row| f64::from(row.weight)).sum();
    assert_eq!(weight, seen as f64, "rows stand for what they say");
    assert!(CALLS - seen < 15, "but for the last ones, who wait for another: {seen}");
}

#[test]
fn a_rare_method_beside_a_busy_one_is_recorded_whole() {
    let mut telemetry = Telemetry::new();
    let (busy, rare) = (telemetry.method(GREETER), telemetry.method("/rare.v1.Rare/Call"));
    let mut passed = [0; 2];
    for n in 0..50_000_u64 {
        let now = 1_000_000_000 + n * 10_000;
        for (which, method) in [busy, rare].into_iter().enumerate().take(1 + usize::from(n % 200 == 0)) {
            let record = call(now, method, PeerIndex::LOCAL, USUAL);
            passed[which] += u64::from(end(&mut telemetry, record.client.a18, &record));
        }
    }
    assert!(passed[0] > 35_000 && passed[1] == 0, "{passed:?}");
    // What was passed over before a pause is counted by whoever asks, and not twice by the next call.
    let later = Instant(1_000_000_000 + 60_000_000_000);
    let calls =
        |telemetry: &mut Telemetry| telemetry.snapshot(later, &Ask::default()).sum(Side::Made).calls();
    assert_eq!(calls(&mut telemetry), 50_250);
    let record = call(later.0, busy, PeerIndex::LOCAL, USUAL);
    assert!(!end(&mut telemetry, record.client.a18, &record), "after a pause nobody is passed over");
    assert_eq!(calls(&mut telemetry), 50_251);
}

/// However often somebody looks, the calls that were looked at are those that were written down.
#[test]
fn who_looks_is_taken_for_no_call() {
    let mut telemetry = Telemetry::new();
    let method = telemetry.method(GREETER);
    let mut written = 0;
    for n in 0..20_000_u64 {
        let record = call(1_000_000_000 + n * 10_000, method, PeerIndex::LOCAL, USUAL);
        written += u64::from(!end(&mut telemetry, record.client.a18, &record));
        if n % 50 == 0 {
            telemetry.snapshot(record.client.a18, &Ask::default());
        }
    }
    let sum = telemetry.snapshot(Instant(2_000_000_000), &Ask::default()).sum(Side::Made);
    assert!(sum.calls() == 20_000 && written < 10_000, "{written}");
    let application = &sum.components[Component::ServerApplication as usize];
    for histogram in [&sum.total, &sum.request_bytes, application] {
        assert_eq!((histogram.count(), histogram.looked_at()), (20_000, written));
    }
}

/// Ends a call as an engine does. Returns whether it was passed over.
fn end(telemetry: &mut Telemetry, now: Instant, record: &Record) -> bool {
    let total_ns = record.client.a18.0 - record.client.a0.0;
    let bytes = [record.request_bytes, record.response_bytes];
    let plain = UnaryCall { side: record.side, method: record.method, peer: record.peer, total_ns, bytes };
    let passes = record.code == Code::Ok && telemetry.passes_over(now, &plain);
    if !passes {
        telemetry.record(now, record);
    }
    passes
}

#[test]
fn an_application_cannot_claim_the_future() {
    let mut telemetry = Telemetry::new();
    let method = telemetry.method(GREETER);
    let mut record = call(1_000, method, PeerIndex::LOCAL, USUAL);
    let now = record.client.a18;
    record.client.a18 = Instant(u64::MAX);
    telemetry.record(now, &record);
    let sum = telemetry.snapshot(now, &Ask::default()).sum(Side::Made);
    assert_eq!(sum.total.max(), USUAL.iter().sum::<u64>());
}

#[test]
fn prometheus_text_is_well_formed() {
    let (mut telemetry, now) = world::queueing_greeter();
    let odd = telemetry.method("/odd\"name\\with\nlines/M");
    telemetry.record(now, &Record { side: Side::Served, ..call(1, odd, PeerIndex::LOCAL, USUAL) });
    let text = prometheus::text(&figures(&telemetry.snapshot(now, &Ask::default())));
    let mut family = String::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            family = declared.split(' ').next().unwrap_or_default().to_owned();
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert!(series.starts_with(&family) && series.ends_with('}'), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    let greeted = "grpc_client_call_duration_seconds_count{grpc_method=\"greeter.v1.Greeter/SayHello\"";
    assert!(text.lines().any(|line| line.starts_with(greeted) && line.ends_with(" 1000")));
    assert!(text.contains(r#"method="odd\"name\\with\nlines/M""#));
    assert!(text.contains("code=\"DEADLINE_EXCEEDED\"} 3\n"));
    let mut last = 0;
    for line in text.lines().filter(|line| line.starts_with("grpc_client_call_duration_seconds_bucket")) {
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse().ok()).expect("a count");
        assert!(count >= last, "buckets are cumulative: {line}");
        last = count;
    }
}

/// The commonest sizes are bounds of buckets, and a bound is part of its bucket.
#[test]
fn messages_of_the_size_of_a_bound_are_counted_at_it() {
    let mut telemetry = Telemetry::new();
    let method = telemetry.method(GREETER);
    for (request_bytes, response_bytes) in [(1_024, 4_096), (1_025 * 2, 16_000)] {
        for _ in 0..100 {
            let one = call(1_000, method, PeerIndex::LOCAL, USUAL);
            telemetry.record(one.client.a18, &Record { request_bytes, response_bytes, ..one });
        }
    }
    let text = prometheus::text(&figures(&telemetry.snapshot(Instant(1_000_000_000), &whole())));
    let at = |family: &str, bound: &str| {
        let (start, le) = (format!("{family}_bucket{{"), format!("le=\"{bound}\""));
        let line = text.lines().find(|line| line.starts_with(&start) && line.contains(&le)).expect("a bound");
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let [sent, received] = ["sent_total", "rcvd_total"]
        .map(|which| format!("grpc_client_attempt_{which}_compressed_message_size_bytes"));
    assert_eq!(["1024", "2048", "4096"].map(|bound| at(&sent, bound)), [100, 200, 200]);
    assert_eq!(["2048", "4096", "16384"].map(|bound| at(&received, bound)), [0, 100, 200]);
}

fn figures(snapshot: &Snapshot) -> Exposition {
    let mut figures = Exposition::default();
    prometheus::add(&mut figures, snapshot);
    figures
}

#[test]
fn a_call_of_a_trace_stands_for_others_of_its_duration() {
    let mut telemetry = Telemetry::new();
    let method = telemetry.method(GREETER);
    let record = call(1_000, method, PeerIndex::LOCAL, USUAL);
    let (now, total_ns) = (record.client.a18, USUAL.iter().sum::<u64>());
    telemetry.record(now, &record);
    assert!(!prometheus::openmetrics(&figures(&telemetry.snapshot(now, &whole())), 0).contains("trace_id"));
    let ids = CallTrace { trace: 0xabc, parent: 7, span: 8, attempt: 9, ..CallTrace::default() };
    telemetry.record_traced(now, &record, ids);
    assert_eq!(telemetry.snapshot(now, &Ask { traced_max: 9, ..whole() }).traced.len(), 0, "nobody exports");
    telemetry.keep_traced(true);
    telemetry.record_traced(now, &record, ids);
    let snapshot = telemetry.snapshot(now, &Ask { traced_max: 9, ..whole() });
    let [traced] = &snapshot.traced[..] else { panic!("{:?}", snapshot.traced) };
    assert_eq!((traced.ids, &*traced.method), (ids, GREETER));
    assert_eq!(traced.ended_ns - traced.began_ns, total_ns);
    assert_eq!(telemetry.snapshot(now, &Ask { traced_max: 9, ..whole() }).traced.len(), 0, "taken is taken");
    let (seconds, text) =
        (total_ns as f64 * 1e-9, prometheus::openmetrics(&figures(&snapshot), 5_000_000_000));
    let at = (now.0 + 5_000_000_000) / 1_000_000;
    let shown = format!(
        " # {{trace_id=\"{:032x}\",span_id=\"{:016x}\"}} {seconds} {}.{:03}",
        0xabc,
        8,
        at / 1000,
        at % 1000
    );
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("trace_id")).collect();
    let [line] = lines[..] else { panic!("one bucket has it: {lines:#?}") };
    assert!(line.ends_with(&shown), "{line} ends in {shown}");
    let bound = line.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse::<f64>().ok());
    assert!(bound.is_some_and(|bound| bound >= seconds && bound < seconds * 5.0), "{line}");
    assert!(text.contains("# TYPE trunkline_calls counter\n") && text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("\ntrunkline_calls_total{"), "{text}");
}

#[test]
fn the_sample_forgets_what_is_two_epochs_old() {
    let mut telemetry = Telemetry::new();
    let method = telemetry.method(GREETER);
    for epoch in 1..4 {
        let record = call(epoch * EPOCH_NS, method, PeerIndex::LOCAL, USUAL);
        telemetry.record(record.client.a18, &record);
    }
    let kept: Vec<u64> = telemetry.recorder().sample().map(|kept| kept.row.at.0 / EPOCH_NS).collect();
    assert_eq!(kept, [3, 2]);
    assert_eq!(telemetry.recorder().recent().count(), 3, "the ring goes by number, not by time");
}

/// One shard is busy, so that its ring holds a moment and its strata one of many calls; another has few calls.
#[test]
fn samples_of_shards_stand_for_what_these_had() {
    let mut merged = Snapshot::default();
    let second = 1_000_000_000;
    let mut shards = [Telemetry::new(), Telemetry::new()];
    for (shard, (calls, queued_ns)) in shards.iter_mut().zip([(200_000_u64, 0), (2_000, 5_000_000)]) {
        let (method, peer) = (shard.method(GREETER), shard.peer("10.0.0.7:7878", true));
        for n in 0..calls {
            let mut parts = USUAL;
            parts[Component::ServerReceiveQueue as usize] += queued_ns;
            let record = call(700 * second + n * (60 * second / calls), method, peer, parts);
            shard.record(record.client.a18, &record);
        }
        let ask = Ask { samples_max: 10_000, ..Ask::default() };
        merged.merge(shard.snapshot(Instant(761 * second), &ask));
    }
    let weigh = |is_one: fn(u64) -> bool| {
        let queue = |sample: &trunkline_telemetry::Sample| sample.ns[Component::ServerReceiveQueue as usize];
        merged.samples.iter().filter(|one| is_one(queue(one))).map(|one| one.weight).sum::<u64>() as f64
    };
    let share = weigh(|ns| ns > 1_000_000) / weigh(|_| true);
    assert!((share * 101.0 - 1.0).abs() < 0.25, "{share} is a hundredth");
    let explained = Explanation::of(&merged, Side::Made).unwrap();
    assert!((explained.samples_ns as f64 / 61e9 - 1.0).abs() < 0.05, "{}", explained.samples_ns);
    // No call of one shard is from before the other can tell of calls.
    let [busy, few] = &mut shards;
    let (method, peer) = (busy.method(GREETER), busy.peer("10.0.0.7:7878", true));
    for n in 0..200_000 {
        let record = call(9_000 * second + n * 1_000, method, peer, USUAL);
        busy.record(record.client.a18, &record);
    }
    let kept = |shard: &mut Telemetry, ask: &str| {
        let ask = Ask { samples_max: 10_000, method: ask.into(), ..Ask::default() };
        shard.snapshot(Instant(9_001 * second), &ask)
    };
    let mut merged = kept(few, "");
    assert_eq!(merged.samples.len(), 2_000, "all it ever had");
    merged.merge(kept(busy, ""));
    assert!(merged.samples.iter().all(|sample| sample.at_ns >= 9_000 * second), "two epochs later");
    let (method, peer) = (few.method("/of.one/Shard"), few.peer("10.0.0.7:7878", true));
    let record = call(800 * second, method, peer, USUAL);
    few.record(record.client.a18, &record);
    let mut of_one = kept(few, "of.one");
    of_one.merge(kept(busy, "of.one"));
    assert_eq!(of_one.samples.len(), 1, "the other had none of it");
}

#[test]
fn calls_from_before_a_clock_was_known_do_not_count_in_how_well_it_is() {
    let mut telemetry = Telemetry::new();
    let (method, peer) = (telemetry.method(GREETER), telemetry.peer("10.0.0.7:7878", false));
    let mut now = Instant(1_000_000_000);
    for n in 0..50 {
        let mut record = call(now.0, method, peer, USUAL);
        if n == 0 {
            // The server claims more time than there was: that proves nothing of its clock.
            record.server.iter_mut().for_each(|server| server.k14 = server.k14.plus_ns(1_000_000_000));
        }
        now = record.client.a18;
        telemetry.record(now, &record);
    }
    let explanation = explain(&mut telemetry, now);
    assert_eq!((explanation.clipped, explanation.calls), (1, 50));
    assert!((1..1_000_000).contains(&explanation.half_width_ns), "{}", explanation.half_width_ns);
}

#[test]
fn calls_without_a_wire_do_not_count_in_how_well_a_clock_is_known() {
    let half_width_ns = |others: bool| {
        let mut telemetry = Telemetry::new();
        let (method, peer) = (telemetry.method(GREETER), telemetry.peer("10.0.0.7:7878", false));
        let mut now = Instant(1_000_000_000);
        for _ in 0..50 {
            let record = call(now.0, method, peer, USUAL);
            now = record.client.a18;
            telemetry.record(now, &record);
            for without in 0..if others { 3 } else { 0 } {
                let mut record = call(now.0, method, peer, USUAL);
                match without {
                    0 => record.peer = PeerIndex::LOCAL,
                    1 => record.server = None,
                    // Cancelled while it waited.
                    _ => {
                        record.server = None;
                        record.client.d3 = Instant::default();
                        (record.client.d4, record.client.k6) = (Instant::default(), Instant::default());
                        (record.client.k15, record.client.d16) = (Instant::default(), Instant::default());
                    }
                }
                telemetry.record(record.client.a18, &record);
            }
        }
        let explanation = explain(&mut telemetry, now);
        let without = [explanation.one_host, explanation.client_only + explanation.stayed];
        assert_eq!(without, if others { [50, 100] } else { [0, 0] });
        explanation.half_width_ns
    };
    assert!(half_width_ns(false) > 0);
    assert_eq!(half_width_ns(true), half_width_ns(false));
}

#[test]
fn most_of_the_time_may_be_remote() {
    let mut telemetry = Telemetry::new();
    let now = greet(&mut telemetry, 100, |_, record, _| record.server = None);
    let text = render::explanation(&explain(&mut telemetry, now));
    assert!(text.contains("most of the time: remote (not divided), "), "{text}");
    // Components and what is not divided come to all of the completion time there, too.
    let mut figures = Exposition::default();
    prometheus::add(&mut figures, &telemetry.snapshot(now, &Ask::default()));
    let told = prometheus::text(&figures);
    let sum = |name: &str| -> f64 {
        let lines = told.lines().filter(|line| line.starts_with(&format!("{name}_sum{{")));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let (parts, whole) = (sum("trunkline_component_seconds"), sum("grpc_client_call_duration_seconds"));
    assert!(whole > 0.0 && (parts / whole - 1.0).abs() < 1e-9, "{parts} of {whole}");
    let remote = told
        .lines()
        .find(|line| line.starts_with("trunkline_component_seconds_count") && line.contains("remote"));
    assert!(remote.is_some_and(|line| line.ends_with("component=\"remote\"} 100")), "{told}");
}

#[test]
fn what_if_rests_on_calls_that_ended_well_and_were_measured_whole() {
    let mut telemetry = Telemetry::new();
    let now = greet(&mut telemetry, 100, |n, record, _| match n % 4 {
        0 => record.code = Code::Unavailable,
        1 => record.server = None,
        _ => {}
    });
    assert_eq!(explain(&mut telemetry, now).samples, 50);
}

#[test]
fn a_counter_of_handlers_time_never_becomes_less() {
    let mut telemetry = Telemetry::new();
    let (method, peer) = (telemetry.method(GREETER), telemetry.peer("10.0.0.7:7878", true));
    let mut record = call(1_000_000_000, method, peer, USUAL);
    record.server.iter_mut().for_each(|server| server.cpu_ns = 123_456_789);
    telemetry.record(record.client.a18, &record);
    let mut last = 0.0_f64;
    for n in 0..2_000 {
        let cpu_ns = 1_000_000 + 7 * dice(n, 1_000_000);
        telemetry.note_failed_cpu((Side::Made, method, peer), Code::Cancelled, cpu_ns);
        let snapshot = telemetry.snapshot(record.client.a18, &Ask::default());
        let mut figures = Exposition::default();
        prometheus::add(&mut figures, &snapshot);
        let text = prometheus::text(&figures);
        let is_ok = |line: &&str| {
            line.starts_with("trunkline_handler_cpu_seconds_total") && line.contains("ended=\"ok\"")
        };
        let line = text.lines().find(is_ok).expect("it is told");
        let seconds: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(seconds >= last, "{seconds} behind {last}");
        last = seconds;
    }
}

#[test]
fn streams_are_counted_and_not_divided() {
    let mut telemetry = Telemetry::new();
    // One in four is a stream of a minute, or of a millisecond: some are counted in a batch and some alone.
    let now = greet(&mut telemetry, 400, |n, record, parts| {
        record.is_stream = n % 4 == 0;
        if record.is_stream {
            parts[Component::ServerApplication as usize] =
                if n % 8 == 0 { 60_000_000_000 } else { 1_000_000 };
        }
    });
    let explanation = explain(&mut telemetry, now);
    let streams = explanation.streams.expect("a quarter");
    assert_eq!((explanation.calls, streams.calls, explanation.total.calls), (400, 100, 300));
    let application = explanation.components[Component::ServerApplication as usize].spread;
    assert!(application.calls == 300 && application.max_ns < 1_000_000, "{application:?}");
    assert!(streams.max_ns > 50_000_000_000 && explanation.total.max_ns < 1_000_000, "{streams:?}");
    assert_eq!(explanation.samples, 300);
    let text = render::explanation(&explanation);
    assert!(text.contains("9 of 9 components measured in 300 calls\n"), "{text}");
    assert!(text.contains("100 streams: how long one takes"), "{text}");
    let rows: Vec<_> = telemetry.recorder().recent().collect();
    assert!(rows.iter().filter(|row| row.is_stream).count() == 100);
    assert!(rows.iter().all(|row| !row.is_stream || !row.slow), "none is slow");
    // gRFC A66 knows calls of every kind.
    let mut figures = Exposition::default();
    prometheus::add(&mut figures, &telemetry.snapshot(now, &Ask::default()));
    let all = prometheus::text(&figures);
    let line = all.lines().find(|line| line.starts_with("grpc_client_call_duration_seconds_count")).unwrap();
    assert!(line.ends_with(" 400"), "{line}");
}

#[test]
fn a_method_that_only_streams_has_the_durations_of_its_streams() {
    let mut telemetry = Telemetry::new();
    let now = greet(&mut telemetry, 100, |_, record, _| record.is_stream = true);
    let text = render::explanation(&explain(&mut telemetry, now));
    assert!(text.contains("100 streams: ") && !text.contains("most of the time"), "{text}");
    assert_eq!(explain(&mut telemetry, now).tax_percent(), None);
    let rows = top(&telemetry.snapshot(now, &Ask::default()), None, 1_000_000_000);
    assert!(rows[0].p50_ns > 50_000, "{rows:?}");
    assert!(render::top(&rows, 200).contains("  0 % –"), "{}", render::top(&rows, 200));
}
