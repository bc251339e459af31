//! Shows that intervals cover what a thousand times as many calls say, and narrow with their number.

use trunkline_telemetry::{Component, Coverage, Sample, Side, WhatIf, what_if};

/// Calls of an application of 100 to 200 µs, of which one in eight waits for up to a millisecond.
fn calls(count: usize, state: &mut u64) -> Vec<Sample> {
    let mut below = |limit: u64| {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) % limit
    };
    let one = |_| {
        let waits = below(8) == 0;
        let queue = if waits { below(1_000_000) } else { below(1_000) };
        let application = 100_000 + below(100_000);
        Sample {
            at_ns: 0,
            side: Side::Made,
            method: String::new(),
            peer: String::new(),
            code: 0,
            weight: 1,
            ns: [0, 0, 0, queue, application, 0, 0, 0, 0],
            coverage: Coverage::Whole,
            stand_ins: Vec::new(),
            clipped: false,
            request_bytes: 0,
            response_bytes: 0,
        }
    };
    (0..count).map(one).collect()
}

fn of(samples: &[Sample], component: Component) -> WhatIf {
    what_if(samples, Side::Made).into_iter().find(|row| row.component == component).unwrap()
}

#[test]
fn intervals_cover_the_truth() {
    let mut state = 7;
    let truth = of(&calls(200_000, &mut state), Component::ServerReceiveQueue);
    assert_eq!(truth.intervals, None, "enough calls need none");
    let (mut reductions, mut escapes) = (0, 0);
    for _ in 0..100 {
        let found = of(&calls(400, &mut state), Component::ServerReceiveQueue).intervals.unwrap();
        let covers = |ends: [f64; 2], truth: f64| ends[0] <= truth && truth <= ends[1];
        reductions += u32::from(covers(found.p95_reduction_percent, truth.p95_reduction_percent));
        escapes += u32::from(covers(found.tail_escape_percent, truth.tail_escape_percent));
    }
    assert!(reductions >= 85, "{reductions} of 100 intervals of the reduction cover {truth:?}");
    assert!(escapes >= 85, "{escapes} of 100 intervals of the escape cover {truth:?}");
}

#[test]
fn few_calls_say_little() {
    let width = |count: usize| {
        let found = of(&calls(count, &mut 3), Component::ServerReceiveQueue).intervals.unwrap();
        found.p95_reduction_percent[1] - found.p95_reduction_percent[0]
    };
    assert!(width(40) > width(4_000), "{} and {}", width(40), width(4_000));
    // 400 are at or above the 95th percentile: enough.
    let many = calls(400 * 20, &mut 3);
    assert_eq!(of(&many, Component::ServerReceiveQueue).intervals, None);
}
