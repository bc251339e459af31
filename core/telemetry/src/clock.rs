//! How far apart two hosts' clocks are, from nothing but the calls between them.
//!
//! Every call proves two things about θ = server clock − client clock, because no wire is faster than nothing:
//! `θ ≤ k7 − k6` (the request did not arrive before it left) and `θ ≥ k14 − k15` (nor did the response). One call alone
//! leaves an interval as wide as both its wires together; splitting it in half would book a 5 ms delay of one direction
//! as 2.5 and 2.5. Many calls together leave almost nothing: some request and some response were fast.
//!
//! 1. Per window of [`WINDOW_NS`] the tightest bound of each kind is kept.
//! 2. Over the kept windows, a drift is chosen under which all bounds leave a corridor (*detrending*): the drift of the
//!    last fit if it will do, else the nearest one that does. Windows no drift can reconcile are from before a step of
//!    the clock and are dropped, oldest first.
//! 3. The corridor is intersected with where the last estimate can have wandered by now: by as much as the drift is
//!    unsure, [`UNKNOWN_PPM`] at first, less the longer it was fitted over, [`WANDER_PPM`] at last. So a path
//!    that turns slow in one direction *for good* does not drag the offset along. If the two are far apart, the clock
//!    stepped, and the corridor alone counts.

use crate::timeline::{ClientLine, ServerLine};
use std::collections::VecDeque;
use trunkline_call::{ClientStamps, Instant, ServerStamps};

/// Bounds are kept per window this long.
pub const WINDOW_NS: u64 = 1_000_000_000;
/// So many windows are kept.
pub const WINDOWS_MAX: usize = 64;
/// Clocks that are disciplined at all stay within this of each other (NTP slews at most 500 millionths).
pub const DRIFT_PPM_MAX: f64 = 500.0;
/// How far the drift itself may wander from the fitted one, in millionths.
pub const WANDER_PPM: f64 = 1.0;
/// How far it may be off before one is fitted: crystals are within this of each other.
pub const UNKNOWN_PPM: f64 = 100.0;

/// An estimate of θ = server clock − client clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds to subtract from a server's stamp to get the client's time.
    pub ns: i64,
    /// The true offset is within this of the estimate, in nanoseconds.
    pub half_width_ns: u64,
}

impl ClockOffset {
    /// Both ends read one clock.
    pub const SAME: Self = Self { ns: 0, half_width_ns: 0 };
}

/// The running estimate for one pair of hosts.
#[derive(Debug)]
pub struct ClockPair {
    /// Times and bounds are kept relative to the first call's, so that f64 holds them to the nanosecond for 100 days.
    origin: Option<Origin>,
    closed: VecDeque<Window>,
    open: Window,
    /// Fitted rate of θ, ns per ns.
    drift: f64,
    /// How far the true rate may be from it. It shrinks with the time that was fitted over, and a path that turns slow
    /// does not widen it: clocks have no reason to change with that.
    unsure: f64,
    /// How wide the corridor was when the drift was last moved.
    width: f64,
    estimate: Interval,
    estimated_at: f64,
}

/// Both ends of both wires of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wires {
    /// k6
    pub sent: Instant,
    /// k7
    pub arrived: Instant,
    /// k14
    pub left: Instant,
    /// k15
    pub received: Instant,
    /// Nothing left the client's host.
    pub stayed: bool,
}

impl Wires {
    pub fn of(client: &ClientLine, server: &ServerLine) -> Self {
        let (client, stayed, server) = (&client.stamps, client.stayed, &server.stamps);
        Self { sent: client.k6, arrived: server.k7, left: server.k14, received: client.k15, stayed }
    }
}

#[derive(Clone, Copy, Debug)]
struct Origin {
    client_ns: u64,
    offset_ns: i64,
}

/// The tightest bounds of a stretch of time, each with its instant.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: f64,
    upper: (f64, f64),
    lower: (f64, f64),
}

/// Where θ lies, both ends included; empty if `low > high`.
#[derive(Clone, Copy, Debug)]
struct Interval {
    low: f64,
    high: f64,
}

impl ClockPair {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self {
            origin: None,
            closed: VecDeque::with_capacity(WINDOWS_MAX),
            open: Window::at(0.0),
            drift: 0.0,
            unsure: UNKNOWN_PPM * 1e-6,
            width: f64::INFINITY,
            estimate: Interval::ALL,
            estimated_at: 0.0,
        }
    }

    /// Takes in what one call proves. A call whose stamps contradict themselves proves nothing.
    pub fn observe(&mut self, client: &ClientStamps, server: &ServerStamps) {
        let (client, server) = (ClientLine::of(client, Instant(u64::MAX)), ServerLine::of(server));
        self.observe_wires(&Wires::of(&client, &server));
    }

    pub(crate) fn observe_wires(&mut self, wires: &Wires) {
        let Wires { sent, arrived, left, received, stayed } = *wires;
        if stayed || left.since_ns(arrived) > received.since_ns(sent) {
            return;
        }
        let upper_ns = apart_ns(arrived.0, sent.0);
        let lower_ns = apart_ns(left.0, received.0);
        let origin = *self.origin.get_or_insert(Origin { client_ns: sent.0, offset_ns: upper_ns });
        let (sent_at, received_at) = (origin.time(sent.0), origin.time(received.0));
        if received_at >= self.open.start + WINDOW_NS as f64 {
            self.close(received_at);
        }
        let (upper, lower) = ((sent_at, origin.offset(upper_ns)), (received_at, origin.offset(lower_ns)));
        if was_set(self.open.upper, lower) || was_set(upper, self.open.lower) {
            self.forget(received_at);
        }
        self.open.upper = tighter(self.open.upper, upper, f64::lt);
        self.open.lower = tighter(self.open.lower, lower, f64::gt);
    }

    /// The estimate at `client_ns` on the client's clock.
    pub fn offset(&self, client_ns: u64) -> ClockOffset {
        let Some(origin) = self.origin else { return ClockOffset { ns: 0, half_width_ns: u64::MAX } };
        let now = origin.time(client_ns);
        let live = self.open.at_time(now, self.drift, self.unsure);
        let interval = self.predicted(now).within(live);
        let middle = (interval.low + interval.high) / 2.0;
        let ns = origin.offset_ns.saturating_add(middle.round() as i64);
        // Bounds that contradict each other prove no more than that it is between them.
        ClockOffset { ns, half_width_ns: ((interval.high - interval.low) / 2.0).abs().ceil() as u64 }
    }

    /// Fitted drift, in millionths: how much faster the server's clock runs.
    pub fn drift_ppm(&self) -> f64 {
        self.drift * 1e6
    }

    /// A clock was set since the open window began: whatever was proven before holds no more. The drift stays.
    fn forget(&mut self, now: f64) {
        self.closed.clear();
        (self.open, self.estimate, self.estimated_at) = (Window::at(now), Interval::ALL, now);
    }

    /// Ends the open window at `now`, fits, and opens the next.
    fn close(&mut self, now: f64) {
        if self.open.is_whole() {
            if self.closed.len() == WINDOWS_MAX {
                self.closed.pop_front();
            }
            self.closed.push_back(self.open);
            self.fit(now);
        }
        self.open = Window::at(now);
    }

    fn fit(&mut self, now: f64) {
        let mut widest = self.widest_drift();
        while self.closed.len() > 1 && self.corridor(now, widest, 0.0).is_empty() {
            self.closed.pop_front();
            widest = self.widest_drift();
        }
        let drift = self.nearest_drift(widest);
        if drift != self.drift || self.closed.len() == 1 {
            self.width = self.corridor_width(drift);
        }
        let predicted = self.predicted(now);
        self.unsure = self.uncertainty(widest);
        self.estimate = predicted.within(self.corridor(now, drift, self.unsure));
        self.estimated_at = now;
        self.drift = drift;
    }

    /// How far the rate may be off now that windows are fitted.
    fn uncertainty(&self, widest: f64) -> f64 {
        let unknown = UNKNOWN_PPM * 1e-6;
        let Some((first, last)) = self.closed.front().zip(self.closed.back()) else { return unknown };
        let span = last.start - first.start;
        // One window, the first or the first behind a step, says nothing of it.
        if span <= 0.0 {
            return unknown;
        }
        self.unsure.min(self.corridor_width(widest) / span).max(WANDER_PPM * 1e-6)
    }

    /// Where θ can be by `now` if nothing new had been learnt.
    fn predicted(&self, now: f64) -> Interval {
        let elapsed = now - self.estimated_at;
        let (shift, wander) = (self.drift * elapsed, self.unsure * elapsed.abs());
        Interval { low: self.estimate.low + shift - wander, high: self.estimate.high + shift + wander }
    }

    /// What all closed windows leave of θ at `now`, were `drift` the truth, or within `unsure` of it.
    fn corridor(&self, now: f64, drift: f64, unsure: f64) -> Interval {
        let windows = self.closed.iter().map(|window| window.at_time(now, drift, unsure));
        windows.fold(Interval::ALL, |all, one| Interval {
            low: all.low.max(one.low),
            high: all.high.min(one.high),
        })
    }

    fn corridor_width(&self, drift: f64) -> f64 {
        let corridor = self.corridor(0.0, drift, 0.0);
        corridor.high - corridor.low
    }

    /// The drift with the widest corridor. Its width is concave in the drift (a minimum of lines less a maximum of
    /// lines), so thirds close in on it.
    fn widest_drift(&self) -> f64 {
        let (mut low, mut high) = (-DRIFT_PPM_MAX * 1e-6, DRIFT_PPM_MAX * 1e-6);
        for _ in 0..STEPS {
            let third = (high - low) / 3.0;
            if self.corridor_width(low + third) < self.corridor_width(high - third) {
                low += third;
            } else {
                high -= third;
            }
        }
        (low + high) / 2.0
    }

    /// The last drift, while its corridor is nearly as wide as any or as it was; else the nearest that has one nearly
    /// as wide as any. Nearest, and not the widest, because a path that turns slow leaves many drifts possible, and the
    /// clock has no reason to change its pace with it.
    fn nearest_drift(&self, widest: f64) -> f64 {
        let enough = if self.is_settled() { NEARLY * self.corridor_width(widest) } else { 0.0 };
        if self.corridor_width(self.drift) >= enough.min(NEARLY * self.width) {
            return self.drift;
        }
        let (mut narrow, mut wide) = (self.drift, widest);
        for _ in 0..STEPS {
            let middle = (narrow + wide) / 2.0;
            if self.corridor_width(middle) >= enough { wide = middle } else { narrow = middle }
        }
        wide
    }

    fn is_settled(&self) -> bool {
        let ends = self.closed.back().zip(self.closed.front());
        ends.is_some_and(|(last, first)| last.start - first.start >= SETTLED_WINDOWS * WINDOW_NS as f64)
    }
}

/// Steps of a search; each leaves at most two thirds of ±500 millionths, so the last is far below a nanosecond per
/// minute.
const STEPS: usize = 48;
/// A corridor this share of the widest is as good.
const NEARLY: f64 = 0.9;
/// Fewer windows than this say more about jitter than about drift.
const SETTLED_WINDOWS: f64 = 3.0;

impl Default for ClockPair {
    fn default() -> Self {
        Self::new()
    }
}

impl Origin {
    fn time(self, client_ns: u64) -> f64 {
        apart_ns(client_ns, self.client_ns) as f64
    }

    fn offset(self, ns: i64) -> f64 {
        ns.wrapping_sub(self.offset_ns) as f64
    }
}

impl Window {
    fn at(start: f64) -> Self {
        Self { start, upper: (start, f64::INFINITY), lower: (start, f64::NEG_INFINITY) }
    }

    fn is_whole(&self) -> bool {
        self.upper.1.is_finite() && self.lower.1.is_finite()
    }

    /// The bounds carried to `now` along `drift`, which is known within `unsure`.
    fn at_time(&self, now: f64, drift: f64, unsure: f64) -> Interval {
        let carry =
            |(at, bound): (f64, f64), unsure: f64| bound + drift * (now - at) + unsure * (now - at).abs();
        Interval { low: carry(self.lower, -unsure), high: carry(self.upper, unsure) }
    }
}

impl Interval {
    const ALL: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };

    fn is_empty(self) -> bool {
        self.low > self.high
    }

    /// What is left of this prediction in a corridor. If they miss each other by less than the corridor is wide, the
    /// drift was a little off and the nearer edge counts, as far as they missed each other; by more, the clock stepped
    /// and the prediction is void.
    fn within(self, corridor: Self) -> Self {
        let both = Self { low: self.low.max(corridor.low), high: self.high.min(corridor.high) };
        let apart = both.low - both.high;
        if apart <= 0.0 {
            return both;
        }
        if apart > corridor.high - corridor.low {
            return corridor;
        }
        let edge = if self.high < corridor.low { corridor.low } else { corridor.high };
        Self { low: edge - apart, high: edge + apart }
    }
}

/// Right wherever two clocks are less than 292 years apart; elsewhere a number like any other.
fn apart_ns(later: u64, earlier: u64) -> i64 {
    later.wrapping_sub(earlier) as i64
}

/// Whether an upper and a lower bound, each with its instant, contradict each other by more than clocks drift meanwhile
/// and in a window.
fn was_set((upper_at, upper): (f64, f64), (lower_at, lower): (f64, f64)) -> bool {
    let between = (lower_at - upper_at).abs() + WINDOW_NS as f64;
    lower - upper > DRIFT_PPM_MAX * 1e-6 * between
}

fn tighter(kept: (f64, f64), new: (f64, f64), is: fn(&f64, &f64) -> bool) -> (f64, f64) {
    if is(&new.1, &kept.1) { new } else { kept }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
