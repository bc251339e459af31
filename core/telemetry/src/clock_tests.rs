//! Shows that the estimate finds offset and drift behind jitter, that a path that turns slow in one direction is booked
//! to that direction, and that hostile stamps break nothing.

use super::*;
use trunkline_call::Instant;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 5_000 * SECOND;

/// Two hosts: a server clock that is ahead and drifts, two wires, and a deterministic jitter.
struct World {
    ahead_ns: i64,
    drift_ppm: f64,
    dice: u64,
}

impl World {
    fn new(ahead_ns: i64, drift_ppm: f64) -> Self {
        Self { ahead_ns, drift_ppm, dice: 0x9e37_79b9_7f4a_7c15 }
    }

    fn theta(&self, at: u64) -> f64 {
        self.ahead_ns as f64 + self.drift_ppm * 1e-6 * (at - START) as f64
    }

    fn on_server(&self, at: u64) -> Instant {
        Instant((at as f64 + self.theta(at)) as u64)
    }

    /// Between 0 and `most`, usually small: queueing delay as the wires show it.
    fn jitter(&mut self, most: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let share = (self.dice >> 11) as f64 / (1_u64 << 53) as f64;
        (share.powi(3) * most as f64) as u64
    }

    /// One call at `at`: 100 µs on the server, wires of 20 µs and the extra each way.
    fn call(&mut self, at: u64, extra_out: u64, extra_back: u64) -> (ClientStamps, ServerStamps) {
        let out = 20_000 + extra_out + self.jitter(200_000);
        let back = 20_000 + extra_back + self.jitter(200_000);
        let (arrived, left) = (at + out, at + out + 100_000);
        let k15 = Instant(left + back);
        let sent = Instant(at);
        let client = ClientStamps {
            a0: sent,
            a1: sent,
            d2: sent,
            d3: sent,
            d4: sent,
            k6: sent,
            k15,
            ..ClientStamps::default()
        };
        let client = ClientStamps { d16: k15, d17: k15, a18: k15, ..client };
        let (k7, k14) = (self.on_server(arrived), self.on_server(left));
        let server =
            ServerStamps { k7, d8: k7, d9: k7, a10: k7, a11: k14, d12: k14, k14, ..ServerStamps::default() };
        (client, server)
    }

    /// A hundred calls a second.
    fn run(&mut self, pair: &mut ClockPair, seconds: std::ops::Range<u64>, extra_out: u64) {
        for tick in seconds.start * 100..seconds.end * 100 {
            let (client, server) = self.call(START + tick * SECOND / 100, extra_out, 0);
            pair.observe(&client, &server);
        }
    }
}

fn error_ns(world: &World, pair: &ClockPair, at: u64) -> f64 {
    (pair.offset(at).ns as f64 - world.theta(at)).abs()
}

#[test]
fn offset_is_found_behind_jitter() {
    for ahead_ns in [0, -3_000_000_000, 86_400_000_000_000] {
        let mut world = World::new(ahead_ns, 0.0);
        let mut pair = ClockPair::new();
        world.run(&mut pair, 0..10, 0);
        let at = START + 10 * SECOND;
        assert!(error_ns(&world, &pair, at) < 5_000.0, "{ahead_ns}: {:?}", pair.offset(at));
        assert!(pair.offset(at).half_width_ns < 40_000, "{:?}", pair.offset(at));
    }
}

#[test]
fn drift_is_found_and_the_half_width_holds() {
    for drift_ppm in [-120.0, -4.0, 35.0] {
        let mut world = World::new(7_000_000, drift_ppm);
        let mut pair = ClockPair::new();
        world.run(&mut pair, 0..60, 0);
        let at = START + 60 * SECOND;
        assert!((pair.drift_ppm() - drift_ppm).abs() < 1.5, "{drift_ppm}: {}", pair.drift_ppm());
        let offset = pair.offset(at);
        assert!(error_ns(&world, &pair, at) <= offset.half_width_ns as f64, "{drift_ppm}: {offset:?}");
        assert!(offset.half_width_ns < 60_000, "{drift_ppm}: {offset:?}");
    }
}

#[test]
fn a_delay_of_one_direction_is_booked_to_that_direction() {
    let mut world = World::new(123_456_789, 2.0);
    let mut pair = ClockPair::new();
    world.run(&mut pair, 0..20, 0);
    // From here on every request takes 5 ms longer, for good: no call shows the old bound again.
    for seconds in [20..21, 21..50, 50..110] {
        let end = seconds.end;
        world.run(&mut pair, seconds, 5_000_000);
        let at = START + end * SECOND;
        let error = error_ns(&world, &pair, at);
        assert!(error < 50_000.0, "after {} s of 5 ms: {error} ns of it on the wrong wire", end - 20);
    }
}

/// Ten minutes of calls, a hundred a second: at the end of each second the half-width is held against the truth.
#[test]
fn the_bound_covers_the_truth_in_99_of_100_windows() {
    const SECONDS: u64 = 600;
    for (drift_ppm, what) in
        [(0.0, "steady"), (100.0, "drift"), (-100.0, "drift back"), (3.0, "killed"), (2.0, "step")]
    {
        let mut world = World::new(1_000_000_000_000, drift_ppm);
        let mut pair = ClockPair::new();
        let mut covered = 0;
        for second in 0..SECONDS {
            // The daemon was killed: who takes its place knows nothing.
            if what == "killed" && second % 60 == 30 {
                pair = ClockPair::new();
            }
            if what == "step" && second == 300 {
                world.ahead_ns -= 7_000_000_000;
            }
            world.run(&mut pair, second..second + 1, 0);
            let at = START + (second + 1) * SECOND;
            let half_width_ns = pair.offset(at).half_width_ns;
            covered += u64::from(error_ns(&world, &pair, at) <= half_width_ns as f64);
            assert!(half_width_ns < 250_000, "{what}: it says little after {second} s: {half_width_ns} ns");
        }
        assert!(covered >= SECONDS * 99 / 100, "{what}: {covered} of {SECONDS} windows");
    }
}

#[test]
fn a_clock_that_steps_is_followed() {
    let mut world = World::new(0, 0.0);
    let mut pair = ClockPair::new();
    world.run(&mut pair, 0..20, 0);
    world.ahead_ns = 2_000_000_000;
    world.run(&mut pair, 20..30, 0);
    let at = START + 30 * SECOND;
    assert!(error_ns(&world, &pair, at) < 60_000.0, "{:?}", pair.offset(at));
}

/// From the first call behind it on, though the window in which it was has bounds from before.
#[test]
fn a_step_within_a_window_is_followed_at_once() {
    for step_ns in [-2_000_000_000, -5_000_000, 5_000_000, 2_000_000_000] {
        let mut world = World::new(3_000_000_000, 40.0);
        let mut pair = ClockPair::new();
        world.run(&mut pair, 0..20, 0);
        for call in 0..300 {
            if call == 50 {
                world.ahead_ns += step_ns;
            }
            let at = START + 20 * SECOND + call * SECOND / 100;
            let (client, server) = world.call(at, 0, 0);
            pair.observe(&client, &server);
            let offset = pair.offset(client.k15.0);
            let error = error_ns(&world, &pair, client.k15.0);
            assert!(
                error <= offset.half_width_ns as f64,
                "{step_ns}, call {call}: {error} beyond {offset:?}"
            );
            let known_ns = if call < 150 { 2_000_000 } else { 250_000 };
            assert!(offset.half_width_ns < known_ns, "{step_ns}, call {call}: {offset:?}");
        }
    }
}

#[test]
fn one_call_says_how_little_it_knows() {
    let mut world = World::new(1_000_000, 0.0);
    let mut pair = ClockPair::new();
    assert_eq!(pair.offset(START).half_width_ns, u64::MAX);
    let (client, server) = world.call(START, 5_000_000, 0);
    pair.observe(&client, &server);
    let offset = pair.offset(START);
    assert!(error_ns(&world, &pair, START) <= offset.half_width_ns as f64, "{offset:?}");
    assert!(offset.half_width_ns >= 2_500_000, "{offset:?}");
}

proptest::proptest! {
    #[test]
    fn hostile_stamps_are_survived(
        stamps in proptest::collection::vec(proptest::array::uniform4(0..=u64::MAX), 1..200),
    ) {
        let mut pair = ClockPair::new();
        for [k6, k7, k14, k15] in stamps {
            let [k6, k7, k14, k15] = [k6, k7, k14, k15].map(Instant);
            let client = ClientStamps { d2: k6, d3: k6, d4: k6, k15, d17: k15, ..ClientStamps::default() };
            let server = ServerStamps { k7, d9: k7, k14, ..ServerStamps::default() };
            pair.observe(&client, &server);
            let _ = pair.offset(k15.0);
        }
    }
}
