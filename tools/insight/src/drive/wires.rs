//! Which wires there are for calls: this machine's own, and relays whose times are a half longer from one to the next.

use super::relay::WireTimes;
use std::time::Duration;

/// The shortest relay's time, there and back: less is not told from what a machine has anyway.
const SHORTEST_S: f64 = 1e-3;
/// How much longer the next is: what it is off by is less than the stack of a call in the study, and is put there.
const STEP: f64 = 1.5;
/// No more relays: the longest takes five minutes.
const RELAYS_MAX: usize = 32;
/// What of it is the way there.
const THERE: f64 = 0.55;

/// Wires by number: 0 is the machine's own.
#[derive(Debug)]
pub(super) struct WireLengths {
    relays: usize,
}

/// What carries a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Carried {
    /// Its number.
    pub route: usize,
    /// There and back.
    pub time: Duration,
    /// Of it, the way back.
    pub back: Duration,
}

impl WireLengths {
    /// Such as calls with these wires need.
    pub fn of(wanted: impl Iterator<Item = Duration>) -> Self {
        let longest = wanted.max().unwrap_or_default();
        Self { relays: route(longest) }
    }

    /// The times of relays, in the order of their numbers.
    pub fn times(&self) -> Vec<WireTimes> {
        (1..=self.relays).map(times).collect()
    }

    /// The one whose time is nearest.
    pub fn nearest(&self, wire: Duration) -> Carried {
        let route = route(wire).min(self.relays);
        let [there, back] = times(route);
        Carried { route, time: there + back, back }
    }
}

/// The number of the nearest, by the ratio of times.
fn route(wire: Duration) -> usize {
    let steps = (wire.as_secs_f64() / SHORTEST_S).ln() / STEP.ln();
    // Of no wire it is minus infinity, which is 0 as a number.
    ((steps + 1.5).floor().max(0.0) as usize).min(RELAYS_MAX)
}

/// The way there and the way back by this number.
fn times(route: usize) -> WireTimes {
    let Some(steps) = route.checked_sub(1) else { return WireTimes::default() };
    let both = SHORTEST_S * STEP.powf(steps as f64);
    [THERE, 1.0 - THERE].map(|part| Duration::from_secs_f64(both * part))
}

#[cfg(test)]
mod tests {
    //! Shows that the wire of a call is at most a quarter off, and that of a short one is the machine's.
    use super::*;

    #[test]
    fn the_nearest_wire_carries() {
        let longest = Duration::from_secs(14);
        let wires = WireLengths::of([Duration::ZERO, longest].into_iter());
        assert_eq!(
            wires.nearest(Duration::ZERO),
            Carried { route: 0, time: Duration::ZERO, back: Duration::ZERO }
        );
        for us in (1_000..14_000_000).step_by(777) {
            let wire = Duration::from_micros(us);
            let Carried { route, time, back } = wires.nearest(wire);
            let off = time.as_secs_f64() / wire.as_secs_f64();
            assert!((0.81..1.23).contains(&off) && back < time, "{wire:?}: {time:?}");
            let times = wires.times()[route - 1];
            assert_eq!((times[0] + times[1], times[1]), (time, back));
        }
        assert!(WireLengths::of([Duration::ZERO].into_iter()).times().is_empty());
        assert_eq!(WireLengths::of([Duration::from_secs(86_400)].into_iter()).times().len(), RELAYS_MAX);
    }
}
