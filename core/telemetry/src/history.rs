//! What was counted when: the last quarter of an hour by minutes, the two hours before it by tens of minutes.
//!
//! Histograms keep no time. Whoever owns a history has it note a snapshot now and then ([`Detail::Totals`] will do),
//! and it keeps what has come in between. Nothing of this is on the way of a call.
//!
//! [`Detail::Totals`]: crate::Detail::Totals

use crate::component::Component;
use crate::histogram::{Binned, Histogram};
use crate::record::Side;
use crate::series::Series;
use crate::snapshot::{Ask, Snapshot};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// A method on one side.
type Key = (Side, String);
/// The same with one other host.
type PairKey = (Side, String, String);

/// A daemon's history. Bounded: [`CallHistory::INTERVALS_MAX`] intervals of [`CallHistory::METHODS_MAX`] methods each,
/// about 2 KiB a method, and what was counted before the last snapshot, of as many methods and hosts as telemetry tells
/// apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallHistory {
    /// When the last snapshot was taken, and all that was counted by then.
    at_ns: u64,
    /// By method and host: one host may be forgotten, and what was counted of others goes on.
    #[serde(default)]
    before_by_host: BTreeMap<PairKey, Series>,
    /// The same for all hosts, as daemons of earlier versions keep it, from and for those.
    #[serde(default)]
    before: BTreeMap<Key, Series>,
    /// Oldest first, each beginning where the one before it ends.
    intervals: VecDeque<Interval>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Interval {
    from_ns: u64,
    to_ns: u64,
    series: BTreeMap<Key, Series>,
}

/// What was counted in a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// When it began and ended: as near to what was asked for as the intervals are.
    pub from_ns: u64,
    /// See `from_ns`.
    pub to_ns: u64,
    /// What was counted, by side; methods are added up.
    pub series: Vec<(Side, Series)>,
    /// In a part of the time calls were counted together with those of other methods, and none under a name that is
    /// asked for: there may be more than is told here.
    pub is_incomplete: bool,
}

/// A mean with the interval in which it is, at 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanInterval {
    /// The mean over the calls that were counted, in nanoseconds.
    pub ns: f64,
    /// How far that of all such calls may be from it.
    pub half_width_ns: f64,
}

/// A percentile with the interval in which it is, at 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuantileInterval {
    /// The percentile of the calls that were counted.
    pub ns: u64,
    /// Where that of all such calls is: not below.
    pub low_ns: u64,
    /// And not above.
    pub high_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
/// Intervals of a minute, and those of ten that come before them.
const MINUTES: usize = 15;
const TENS: usize = 12;
/// What methods beyond the bound are counted under.
const OTHER: &str = "(other)";

impl CallHistory {
    /// How often a snapshot is to be noted.
    pub const EVERY_NS: u64 = MINUTE_NS;
    /// Intervals that are kept.
    pub const INTERVALS_MAX: usize = MINUTES + TENS + 1;
    /// Methods, on one side each, that an interval tells apart: the busiest. The rest is counted together.
    pub const METHODS_MAX: usize = 64;

    /// As another daemon had it: what is beyond the bounds is left out, the oldest first, and what has no sound times.
    pub fn taken_up(mut self) -> Self {
        self.intervals.retain(|one| one.from_ns <= one.to_ns && one.series.len() <= Self::METHODS_MAX);
        let beyond = self.intervals.len().saturating_sub(Self::INTERVALS_MAX);
        self.intervals.drain(..beyond);
        self
    }

    /// Notes what was counted until now. The first only says where counting begins. One that is much older than the
    /// last, or has counted less, is of another daemon: the history goes on with it. One that somebody took before the
    /// last, and who was slow to note it, says nothing new.
    pub fn note(&mut self, snapshot: &Snapshot) {
        if snapshot.at_ns < self.at_ns && self.at_ns - snapshot.at_ns <= MINUTE_NS {
            return;
        }
        let mut now: BTreeMap<PairKey, Series> = BTreeMap::new();
        for entry in &snapshot.series {
            let key = (entry.side, entry.method.clone(), entry.peer.clone());
            now.entry(key).or_default().merge(&entry.series);
        }
        let is_known_by_host = self.before.is_empty() || !self.before_by_host.is_empty();
        if self.at_ns != 0 && snapshot.at_ns > self.at_ns && is_known_by_host {
            let counted = now.iter().map(|(key, series)| (key, self.counted_since(key, series)));
            let counted = counted.filter(|(_, series)| series.calls() > 0);
            let counted = busiest(by_method(counted.map(|(key, series)| (key, Cow::Owned(series)))));
            self.push(Interval { from_ns: self.at_ns, to_ns: snapshot.at_ns, series: counted });
        }
        self.before = by_method(now.iter().map(|(key, series)| (key, Cow::Borrowed(series))));
        (self.at_ns, self.before_by_host) = (snapshot.at_ns, now);
    }

    /// What was counted of a method and host since the last snapshot. If one of several shards has forgotten them
    /// meanwhile that is less than it was, and what others counted in this minute is missing.
    fn counted_since(&self, key: &PairKey, series: &Series) -> Series {
        self.before_by_host.get(key).map_or_else(|| series.clone(), |before| series.since(before))
    }

    /// What was counted from then to then, of the methods that are asked for. `None`: nothing is known of that time.
    pub fn between(&self, from_ns: u64, to_ns: u64, ask: &Ask) -> Option<Past> {
        // An interval belongs to the time that has its middle.
        let middle = |one: &&Interval| one.from_ns + (one.to_ns - one.from_ns) / 2;
        let mut chosen =
            self.intervals.iter().filter(|one| (from_ns..to_ns).contains(&middle(one))).peekable();
        let mut past = Past { from_ns: chosen.peek()?.from_ns, ..Past::default() };
        let mut sums: BTreeMap<Side, Series> = BTreeMap::new();
        for interval in chosen {
            past.to_ns = interval.to_ns;
            past.is_incomplete |= interval.may_lack(ask);
            for ((side, _), series) in interval.series.iter().filter(|((_, method), _)| ask.wants(method)) {
                sums.entry(*side).or_default().merge(series);
            }
        }
        past.series = sums.into_iter().collect();
        Some(past)
    }

    /// When a snapshot was noted last.
    pub fn noted_ns(&self) -> u64 {
        self.at_ns
    }

    /// Since when something is known.
    pub fn since_ns(&self) -> Option<u64> {
        self.intervals.front().map(|first| first.from_ns)
    }

    /// Heap bytes in use, about.
    pub fn heap_bytes(&self) -> usize {
        let all = self.intervals.iter().flat_map(|one| one.series.values()).chain(self.before.values());
        let all = all.chain(self.before_by_host.values());
        all.map(|series| size_of::<Series>() + series.heap_bytes()).sum()
    }

    fn push(&mut self, interval: Interval) {
        match self.intervals.back_mut() {
            // Somebody has asked before a minute was over.
            Some(last) if interval.to_ns - last.from_ns <= MINUTE_NS => last.join(interval),
            _ => self.intervals.push_back(interval),
        }
        // The youngest of those that are old enough joins the ten minutes before it, until these are full.
        if self.intervals.len() > MINUTES {
            let at = self.intervals.len() - MINUTES - 1;
            let joins = at > 0 && self.intervals[at].to_ns - self.intervals[at - 1].from_ns <= 10 * MINUTE_NS;
            if joins && let Some(joining) = self.intervals.remove(at) {
                self.intervals[at - 1].join(joining);
            }
        }
        if self.intervals.len() > Self::INTERVALS_MAX {
            self.intervals.pop_front();
        }
    }
}

impl Interval {
    /// Whether calls that are asked for may be among those counted together.
    fn may_lack(&self, ask: &Ask) -> bool {
        let has = |is: &dyn Fn(&str) -> bool| self.series.keys().any(|(_, method)| is(method));
        has(&|method| method == OTHER) && !ask.wants(OTHER) && !has(&|method| ask.wants(method))
    }

    fn join(&mut self, later: Self) {
        self.to_ns = later.to_ns;
        for (key, series) in later.series {
            self.series.entry(key).or_default().merge(&series);
        }
        self.series = busiest(std::mem::take(&mut self.series));
    }
}

/// Series of methods and hosts, by method.
fn by_method<'s>(all: impl Iterator<Item = (&'s PairKey, Cow<'s, Series>)>) -> BTreeMap<Key, Series> {
    let mut found: BTreeMap<Key, Series> = BTreeMap::new();
    for ((side, method, _), series) in all {
        found.entry((*side, method.clone())).or_default().merge(&series);
    }
    found
}

/// The methods with most calls by name, and the others together.
fn busiest(mut all: BTreeMap<Key, Series>) -> BTreeMap<Key, Series> {
    if all.len() <= CallHistory::METHODS_MAX {
        return all;
    }
    let mut busy: Vec<(u64, Key)> = all.iter().map(|(key, series)| (series.calls(), key.clone())).collect();
    // Of those as busy as each other the first by name: many are called at one rate.
    busy.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    busy.retain(|(_, (_, method))| method != OTHER);
    // Room for what is counted together, on each side.
    let rest = busy.split_off(busy.len().min(CallHistory::METHODS_MAX - Side::ALL.len()));
    for (_, (side, method)) in rest {
        if let Some(series) = all.remove(&(side, method)) {
            all.entry((side, OTHER.to_owned())).or_default().merge(&series);
        }
    }
    all
}

impl QuantileInterval {
    /// Of a histogram. The interval is that of order statistics: it takes nothing for granted about how durations are
    /// spread, only that calls are independent of each other, and is as wide as few calls make it, and as the buckets
    /// at its ends: where in these the durations lie is not known.
    pub fn of(histogram: &Histogram, share: f64) -> Self {
        let count = histogram.looked_at() as f64;
        if count == 0.0 {
            return Self::default();
        }
        let spread = 1.96 * (share * (1.0 - share) / count).sqrt();
        let (low_ns, high_ns) = (histogram.not_below(share - spread), histogram.not_above(share + spread));
        Self { ns: histogram.quantile(share), low_ns, high_ns }
    }

    /// Whether chance alone may explain that this one is another than `then`.
    pub fn overlaps(&self, then: &Self) -> bool {
        self.low_ns <= then.high_ns && then.low_ns <= self.high_ns
    }
}

impl MeanInterval {
    /// Over all calls of a series that did not stream, of which those that are not in the histogram have none of it.
    /// Calls that others stand for say nothing of how sure it is.
    fn of(histogram: &Histogram, series: &Series) -> Self {
        let calls = series.unary_calls();
        if calls == 0 {
            return Self::default();
        }
        // Every one that was looked at has a completion time, and a light copy keeps those.
        let looked_at = series.total.looked_at().clamp(1, calls) as f64;
        let calls = calls as f64;
        let mean = histogram.sum() as f64 / calls;
        // About the mean of what the squares are of, which is some per cent beside the mean.
        let Binned { middles, squares } = histogram.binned();
        let centre = if middles == 0 { mean } else { middles as f64 / calls };
        let variance = (squares as f64 / calls - centre * centre).max(0.0);
        Self { ns: mean, half_width_ns: 1.96 * (variance / looked_at).sqrt() }
    }

    /// Whether chance alone may explain that this one is another than `then`.
    pub fn overlaps(&self, then: &Self) -> bool {
        (self.ns - then.ns).abs() <= self.half_width_ns + then.half_width_ns
    }
}

impl Past {
    /// Time in a component, on average over all calls of a side that did not stream.
    pub fn component_mean(series: &Series, component: Component) -> MeanInterval {
        MeanInterval::of(&series.components[component as usize], series)
    }

    /// Both wires and the server in one, of calls whose peer sent no stamps; the same.
    pub fn remote_mean(series: &Series) -> MeanInterval {
        MeanInterval::of(&series.remote, series)
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is found of which time, that memory is bounded, and how wide intervals are.
    use super::*;
    use crate::snapshot::Entry;
    use crate::traced::Exemplars;

    /// As many calls of each method as were ever counted; some of them have a time.
    fn snapshot(minute: u64, methods: &[(&str, u64)]) -> Snapshot {
        let entry = |(method, calls): &(&str, u64)| {
            let mut series = Series::default();
            series.codes[0] = *calls;
            (0..*calls.min(&3)).for_each(|_| series.total.record(1_000));
            let exemplars = Exemplars::default();
            Entry { side: Side::Made, method: (*method).to_owned(), peer: "p".into(), series, exemplars }
        };
        let series = methods.iter().map(entry).collect();
        Snapshot { at_ns: (1_000 + minute) * MINUTE_NS, series, ..Snapshot::default() }
    }

    fn calls(history: &CallHistory, from: u64, to: u64, method: &str) -> Option<u64> {
        let ask = Ask { method: method.into(), ..Ask::default() };
        let at = |minute: u64| (1_000 + minute) * MINUTE_NS;
        let past = history.between(at(from), at(to), &ask)?;
        Some(past.series.iter().map(|(_, series)| series.calls()).sum())
    }

    #[test]
    fn what_was_counted_is_found_by_its_time() {
        let mut history = CallHistory::default();
        // In minute n there are n calls of a, and one of b.
        let counted = |minute: u64| minute * (minute + 1) / 2;
        for minute in 0..=130 {
            history.note(&snapshot(minute, &[("a", counted(minute)), ("b", minute)]));
        }
        assert_eq!(calls(&history, 120, 130, "a"), Some((121..=130).sum()));
        assert_eq!(calls(&history, 120, 130, "b"), Some(10));
        assert_eq!(calls(&history, 120, 130, ""), Some((121..=130).sum::<u64>() + 10));
        let hour_ago = calls(&history, 60, 70, "b").unwrap();
        assert!((10..=20).contains(&hour_ago), "{hour_ago}");
        assert_eq!(calls(&history, 131, 140, "a"), None);
        assert!(history.intervals.len() <= CallHistory::INTERVALS_MAX);
        // Another daemon, which has counted less.
        history.note(&snapshot(131, &[("a", 1)]));
        assert_eq!(["a", "b"].map(|method| calls(&history, 130, 131, method)), [Some(0); 2]);
    }

    /// Telemetry forgets hosts that are not connected any more: what it counted of others meanwhile is there.
    #[test]
    fn what_is_forgotten_of_one_host_takes_nothing_of_others() {
        let of = |minute: u64, hosts: &[(&str, u64)]| {
            let mut all = snapshot(minute, &[]);
            for (host, calls) in hosts {
                let mut one = snapshot(minute, &[("a", *calls)]).series;
                one.iter_mut().for_each(|entry| entry.peer = (*host).into());
                all.series.extend(one);
            }
            all
        };
        let mut history = CallHistory::default();
        history.note(&of(0, &[("p", 1_000), ("q", 5)]));
        history.note(&of(1, &[("q", 12)]));
        assert_eq!(calls(&history, 0, 1, "a"), Some(7));
        // It is back, with fewer calls than it had.
        history.note(&of(2, &[("p", 3), ("q", 12)]));
        assert_eq!(calls(&history, 1, 2, "a"), Some(3));
    }

    /// Of a daemon that kept sums alone it is not known what was counted since of which host.
    #[test]
    fn of_a_history_without_hosts_counting_begins_anew() {
        let mut history = CallHistory::default();
        (0..3).for_each(|minute| history.note(&snapshot(minute, &[("a", 10 * minute)])));
        history.before_by_host.clear();
        history.note(&snapshot(3, &[("a", 30)]));
        history.note(&snapshot(4, &[("a", 41)]));
        assert_eq!((calls(&history, 0, 2, "a"), calls(&history, 2, 4, "a")), (Some(20), Some(11)));
    }

    #[test]
    fn what_is_noted_late_is_not_counted_twice() {
        let mut history = CallHistory::default();
        for minute in [1, 3, 2, 4] {
            history.note(&snapshot(minute, &[("a", 10 * minute)]));
        }
        assert_eq!(calls(&history, 1, 4, "a"), Some(30));
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = CallHistory::default();
        let names: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
        for minute in 0..200 {
            let methods: Vec<(&str, u64)> = names
                .iter()
                .enumerate()
                .map(|(n, name)| (name.as_str(), minute * (1 + n as u64 % 100)))
                .collect();
            history.note(&snapshot(minute, &methods));
        }
        assert!(history.intervals.len() <= CallHistory::INTERVALS_MAX, "{}", history.intervals.len());
        assert!(history.intervals.iter().all(|one| one.series.len() <= CallHistory::METHODS_MAX));
        let all: u64 = (0..200).map(|n: u64| 1 + n % 100).sum();
        assert_eq!(calls(&history, 190, 199, ""), Some(9 * all), "none is lost");
        assert!(history.since_ns().unwrap() >= (1_000 + 199 - 15 - 130) * MINUTE_NS);
    }

    #[test]
    fn of_methods_as_busy_as_each_other_as_many_are_told_apart() {
        let mut history = CallHistory::default();
        let names: Vec<String> = (0..200).map(|n| format!("m{n:03}")).collect();
        for minute in 0..30 {
            let methods: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 7 * minute)).collect();
            history.note(&snapshot(minute, &methods));
        }
        let told = names.iter().filter(|name| calls(&history, 0, 30, name) == Some(29 * 7)).count();
        assert_eq!(told, CallHistory::METHODS_MAX - Side::ALL.len());
        assert_eq!(calls(&history, 0, 30, ""), Some(200 * 29 * 7));
        let incomplete = |method: &str| {
            let ask = Ask { method: method.into(), ..Ask::default() };
            let at = |minute: u64| (1_000 + minute) * MINUTE_NS;
            history.between(at(0), at(30), &ask).unwrap().is_incomplete
        };
        assert_eq!(["m000", "m199", "", "(other)"].map(incomplete), [false, true, false, false]);
    }

    #[test]
    fn intervals_are_as_wide_as_few_calls_make_them() {
        let of = |count: u64| {
            let mut histogram = Histogram::default();
            (1..=count).for_each(|n| histogram.record(n * 1_000_000 / count));
            QuantileInterval::of(&histogram, 0.5)
        };
        let (few, many) = (of(100), of(100_000));
        assert!(few.low_ns < 420_000 && few.high_ns > 580_000, "{few:?}");
        assert!(many.high_ns - many.low_ns < 50_000, "{many:?}");
        assert!(few.overlaps(&many) && many.overlaps(&few));
        assert_eq!(QuantileInterval::of(&Histogram::default(), 0.5), QuantileInterval::default());
    }

    /// Durations that lie close together, wherever they lie in their buckets, and whoever looks at them a second time.
    #[test]
    fn what_has_not_changed_is_told_so_wherever_buckets_end() {
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        // Close to normal: the sum of twelve.
        let mut series_of = |centre_ns: f64| {
            let mut series = Series::default();
            for _ in 0..2_000 {
                let ns = centre_ns + 100_000.0 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0);
                series.codes[0] += 1;
                series.total.record(ns as u64);
                series.components[Component::RequestWire as usize].record(ns as u64);
            }
            series.totals()
        };
        let mean = |series: &Series| Past::component_mean(series, Component::RequestWire);
        let median = |series: &Series| QuantileInterval::of(series.durations(), 0.5);
        let (mut alike, mut centres) = ([0; 2], 0);
        // Across a bucket of 2.1 ms, its edges and some of the next.
        for step in 0..50 {
            let centre_ns = 48_000_000.0 + 60_000.0 * f64::from(step);
            let [one, other, slower] = [1.0, 1.0, 1.1].map(|times| series_of(times * centre_ns));
            centres += 1;
            alike[0] += usize::from(mean(&one).overlaps(&mean(&other)));
            alike[1] += usize::from(median(&one).overlaps(&median(&other)));
            assert!(
                !mean(&one).overlaps(&mean(&slower)),
                "{centre_ns}: {:?} {:?}",
                mean(&one),
                mean(&slower)
            );
            assert!(!median(&one).overlaps(&median(&slower)), "{centre_ns}");
        }
        assert!(alike.iter().all(|alike| *alike * 10 >= centres * 9), "{alike:?} of {centres}");
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_its_values() {
        // Half of the calls have 1 ms, the others nothing: the standard deviation is half a millisecond.
        let of = |calls: u64, whole: bool| {
            let series = halves(calls, 1);
            // The history keeps copies without counts.
            Past::component_mean(&if whole { series } else { series.totals() }, Component::RequestWire)
        };
        for whole in [true, false] {
            let (few, many) = (of(100, whole), of(10_000, whole));
            assert!((few.ns - 500_000.0).abs() < 1.0 && (few.half_width_ns / 98_000.0 - 1.0).abs() < 0.05);
            assert!((many.half_width_ns / 9_800.0 - 1.0).abs() < 0.05, "{many:?}");
            assert!(few.overlaps(&MeanInterval { ns: 590_000.0, half_width_ns: 0.0 }));
            assert!(!many.overlaps(&MeanInterval { ns: 590_000.0, half_width_ns: 0.0 }));
        }
        let nothing = Past::component_mean(&Series::default(), Component::RequestWire);
        assert_eq!(nothing, MeanInterval::default());
    }

    #[test]
    fn calls_that_others_stand_for_make_no_interval_narrower() {
        for whole in [true, false] {
            let series = if whole { halves(1_000, 9) } else { halves(1_000, 9).totals() };
            assert_eq!((series.calls(), series.total.looked_at()), (9_000, 1_000));
            let mean = Past::component_mean(&series, Component::RequestWire);
            assert!((mean.ns - 500_000.0).abs() < 1.0, "{mean:?}");
            // 1.96 · 0.5 ms ÷ √1000
            assert!((mean.half_width_ns / 30_990.0 - 1.0).abs() < 0.05, "{mean:?}");
        }
    }

    /// So many calls, every second with a millisecond of wire, each standing for so many.
    fn halves(calls: u64, stands_for: u64) -> Series {
        let mut series = Series::default();
        series.codes[0] = calls * stands_for;
        for n in 0..calls {
            let ns = (n % 2) * 1_000_000;
            for histogram in [&mut series.total, &mut series.components[Component::RequestWire as usize]] {
                histogram.record_by(std::iter::once((ns, stands_for)), ns * stands_for);
            }
        }
        series
    }
}
