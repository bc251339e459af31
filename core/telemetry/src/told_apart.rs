//! Which series whoever reads counters is told of one by one, and which together.
//!
//! A reader takes a counter that has become less for one that began anew, and one that has grown for what happened
//! since the last look. So no series may move: one that stands alone does so for as long as it is counted, one that was
//! added to others stays with those, and what was once told of those together is never told less of, although telemetry
//! forgets series (`Telemetry::forget`).

use crate::record::Side;
use crate::series::Series;
use crate::snapshot::Entry;
use crate::traced::Exemplars;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What was decided of each series so far. Bounded: of a side, [`ToldApart::SERIES_MAX`] keys that stand alone, the
/// keys of what is counted beside those, and [`ToldApart::SERIES_MAX`] and one sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToldApart {
    sides: [SideSeries; Side::ALL.len()],
    /// Shards that have told so far.
    #[serde(skip)]
    shards: usize,
}

/// Method and peer.
type SeriesKey = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SideSeries {
    /// Told one by one.
    alone: BTreeSet<SeriesKey>,
    /// Told together, and under which method.
    folded: BTreeMap<SeriesKey, String>,
    /// What was told of these, by that method.
    sums: BTreeMap<String, ToldSum>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ToldSum {
    /// The last time.
    told: Series,
    /// What is in it of series that are forgotten.
    forgotten: Box<Series>,
}

impl ToldApart {
    /// Series of each side by method and peer, and as many more by method. The rest is one.
    ///
    /// By side: callers from elsewhere come by as many addresses as they like, and must not take the room of what is
    /// called from here.
    pub const SERIES_MAX: usize = 500;
    /// Whose series those of several are.
    pub const OTHER: &str = "_OTHER";

    /// What is told of these series, which are all that so many shards have, and none older than those of the last
    /// time. Who comes first stands alone, and leaves its place only when it is counted no more. Nothing, if fewer
    /// shards say what they have than did before: a daemon ends.
    pub fn tell(&mut self, mut series: Vec<Entry>, shards: usize) -> Vec<Entry> {
        let mut told = Vec::new();
        if shards < self.shards {
            return told;
        }
        self.shards = shards;
        for (side, own) in Side::ALL.into_iter().zip(&mut self.sides) {
            let (of_side, others) = series.into_iter().partition(|entry: &Entry| entry.side == side);
            own.tell(side, of_side, &mut told);
            series = others;
        }
        told
    }

    /// As another daemon had it: what is beyond the bounds is left out.
    pub fn taken_up(mut self) -> Self {
        for side in &mut self.sides {
            while side.alone.len() > Self::SERIES_MAX {
                side.alone.pop_last();
            }
            while side.sums.len() > Self::SERIES_MAX + 1 {
                side.sums.pop_last();
            }
        }
        self
    }
}

impl SideSeries {
    fn tell(&mut self, side: Side, series: Vec<Entry>, told: &mut Vec<Entry>) {
        self.forget(&series);
        let mut sums: BTreeMap<String, (Series, Exemplars)> = BTreeMap::new();
        for entry in series {
            match self.place(&entry) {
                None => told.push(entry),
                Some(method) => {
                    let (sum, exemplars) = sums.entry(method).or_default();
                    sum.merge(&entry.series);
                    exemplars.merge(&entry.exemplars);
                }
            }
        }
        self.sums.retain(|method, _| sums.contains_key(method));
        for (method, (sum, exemplars)) in sums {
            let series = self.sums.entry(method.clone()).or_default().tell(sum);
            told.push(Entry { side, method, peer: ToldApart::OTHER.to_owned(), series, exemplars });
        }
    }

    /// Forgets keys that are counted no more: who comes by them again begins anew, and so may stand elsewhere.
    fn forget(&mut self, series: &[Entry]) {
        if self.alone.is_empty() {
            return;
        }
        let there: BTreeSet<SeriesKey> = series.iter().map(key).collect();
        self.alone.retain(|key| there.contains(key));
        self.folded.retain(|key, _| there.contains(key));
    }

    /// The method under which a series is told with others; `None` for one that stands alone.
    fn place(&mut self, entry: &Entry) -> Option<String> {
        let key = key(entry);
        if self.alone.contains(&key) {
            return None;
        }
        if let Some(method) = self.folded.get(&key) {
            return Some(method.clone());
        }
        if self.alone.len() < ToldApart::SERIES_MAX {
            self.alone.insert(key);
            return None;
        }
        let has_own = self.sums.contains_key(&entry.method) || self.sums.len() < ToldApart::SERIES_MAX;
        let method = if has_own { entry.method.clone() } else { ToldApart::OTHER.to_owned() };
        self.sums.entry(method.clone()).or_default();
        self.folded.insert(key, method.clone());
        Some(method)
    }
}

impl ToldSum {
    /// The sum of what there is, and of what there was: nothing of it becomes less. What comes to a sum between two
    /// looks of which the second misses a series may be hidden by that.
    fn tell(&mut self, sum: Series) -> Series {
        let mut now = sum;
        now.merge(&self.forgotten);
        let missing = self.told.since(&now);
        if missing != Series::default() {
            self.forgotten.merge(&missing);
            now.merge(&missing);
        }
        self.told = now.clone();
        now
    }
}

fn key(entry: &Entry) -> SeriesKey {
    (entry.method.clone(), entry.peer.clone())
}

#[cfg(test)]
mod tests {
    //! Shows that no number of methods and peers makes a page larger than it may be, and that no counter of it jumps or
    //! becomes less, whoever comes and is forgotten.
    use super::*;

    const MAX: usize = ToldApart::SERIES_MAX;

    fn entry(side: Side, method: &str, peer: &str, calls: u64) -> Entry {
        let mut series = Series::default();
        series.codes[0] = calls;
        (0..calls).for_each(|_| series.total.record(1_000));
        Entry { side, method: method.into(), peer: peer.into(), series, exemplars: Exemplars::default() }
    }

    fn entries(side: Side, methods: usize, peers: usize) -> Vec<Entry> {
        let each = |method| {
            (0..peers).map(move |peer| entry(side, &format!("/s.S/M{method}"), &format!("10.0.0.{peer}"), 1))
        };
        (0..methods).flat_map(each).collect()
    }

    fn of(series: &[Entry], side: Side) -> (usize, u64) {
        let of = || series.iter().filter(|entry| entry.side == side);
        (of().count(), of().map(|entry| entry.series.codes[0]).sum())
    }

    /// Calls by method and peer.
    fn told(apart: &mut ToldApart, series: Vec<Entry>) -> BTreeMap<SeriesKey, u64> {
        let told = apart.tell(series, 2);
        for entry in &told {
            assert_eq!(entry.series.total.count(), entry.series.codes[0], "histograms go with counters");
        }
        told.into_iter().map(|entry| (key(&entry), entry.series.codes[0])).collect()
    }

    fn other(method: &str) -> SeriesKey {
        (method.to_owned(), ToldApart::OTHER.to_owned())
    }

    #[test]
    fn peers_beyond_the_most_are_one_and_every_call_counts() {
        let mut all = entries(Side::Served, 4, 1000);
        all.extend(entries(Side::Made, 2, 3));
        let kept = ToldApart::default().tell(all, 1);
        assert_eq!(of(&kept, Side::Served), (MAX + 4, 4000), "one more by method");
        assert_eq!(of(&kept, Side::Made), (6, 6), "callers from elsewhere take no room of it");
        let rest = kept.iter().filter(|entry| entry.peer == ToldApart::OTHER).map(|entry| &*entry.method);
        assert!(rest.eq(["/s.S/M0", "/s.S/M1", "/s.S/M2", "/s.S/M3"]));
    }

    #[test]
    fn methods_beyond_the_most_are_one() {
        let mut apart = ToldApart::default();
        for _ in 0..2 {
            let kept = apart.tell(entries(Side::Served, 3 * MAX, 1), 1);
            assert_eq!(of(&kept, Side::Served), (2 * MAX + 1, 3 * MAX as u64));
            assert_eq!(kept.iter().filter(|entry| entry.method == ToldApart::OTHER).count(), 1);
        }
    }

    #[test]
    fn a_key_in_front_of_others_moves_none() {
        let mut apart = ToldApart::default();
        let mut all: Vec<Entry> =
            (0..MAX).map(|n| entry(Side::Served, "/s.S/M", &format!("b{n:03}"), 1_000)).collect();
        let before = told(&mut apart, all.clone());
        all.insert(0, entry(Side::Served, "/s.S/M", "a", 1));
        let after = told(&mut apart, all);
        assert!(before.iter().all(|(key, calls)| after.get(key) == Some(calls)), "all where they were");
        assert_eq!((after.len(), after.get(&other("/s.S/M"))), (MAX + 1, Some(&1)));
    }

    #[test]
    fn what_is_forgotten_makes_no_counter_less_and_gives_its_place_to_who_is_new() {
        let mut apart = ToldApart::default();
        let series = |peers: &[usize], calls: u64| -> Vec<Entry> {
            peers.iter().map(|n| entry(Side::Served, "/s.S/M", &format!("p{n:04}"), calls)).collect()
        };
        let peers: Vec<usize> = (0..MAX + 3).collect();
        assert_eq!(told(&mut apart, series(&peers, 10))[&other("/s.S/M")], 30);
        // One that stood alone and one of those together are counted no more; the others had a call each.
        let left: Vec<usize> = peers.iter().copied().filter(|n| ![7, MAX + 1].contains(n)).collect();
        let now = told(&mut apart, series(&left, 11));
        assert_eq!((now.len(), now[&other("/s.S/M")]), (MAX, 30), "22 of two, and what was of the third");
        let now = told(&mut apart, series(&left, 12));
        assert_eq!(now[&other("/s.S/M")], 32, "and it counts on");
        // Who was told with others stays there though there is a place; who is new gets it.
        let mut with_new = left;
        with_new.push(9_000);
        let now = told(&mut apart, series(&with_new, 12));
        assert_eq!(now.get(&("/s.S/M".into(), "p9000".into())), Some(&12));
        assert_eq!((now.len(), now[&other("/s.S/M")]), (MAX + 1, 32));
        // Another daemon goes on with it.
        let mut next = apart.clone().taken_up();
        let expected = apart.tell(series(&with_new, 13), 2);
        assert_eq!(next.tell(series(&with_new, 13), 2), expected);
        assert_eq!(next.tell(Vec::new(), 1), [], "a shard has ended: nothing is forgotten");
        assert_eq!(next.tell(series(&with_new, 13), 2), expected);
    }
}
