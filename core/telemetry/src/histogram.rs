//! A histogram small enough to have a dozen of per method and peer.

use serde::{Deserialize, Serialize};

/// Counts of values, log-linear: 16 buckets per power of two, so any answer is within 3.2 % of a true value.
///
/// Covers all of `u64`. Each power of two gets its line of sixteen counters when a value first falls into it; after
/// that recording allocates nothing and touches one line. A component typically spans six to ten powers of two, so a
/// histogram takes about 1 KiB, where a fixed table of the same range and u64 counters would take 8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Sparse", try_from = "Sparse")]
pub struct Histogram {
    /// Line of each power of two, plus one; zero if it has none. The first holds 0…15.
    index: Index,
    lines: Vec<[u64; LINE]>,
    sum: u128,
    max: u64,
    /// Of a copy [without counts](Histogram::sum_only): what buckets say of the values.
    binned: Binned,
    /// Values that were counted by another that stands for them.
    stood_for: u64,
}

/// What buckets say of the values in them, whose places within a bucket are not known: that they lie all over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Binned {
    /// The sum of the middles of buckets. Zero in what daemons before this version have handed over.
    pub middles: u128,
    /// The sum of squares: of the middle, and of what the width of a bucket adds to that.
    pub squares: u128,
}

/// Most buckets a histogram can have.
pub const BUCKETS: usize = POWERS * LINE;

const LINE: usize = 16;
const LINE_BITS: u32 = LINE.trailing_zeros();
/// Values below 16 share one line; each of the 60 powers of two above has its own.
const POWERS: usize = 61;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Index([u8; POWERS]);

impl Histogram {
    /// Counts `value` once.
    pub fn record(&mut self, value: u64) {
        let (power, place) = bucket(value);
        let line = self.line(power);
        self.lines[line][place] += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Counts values that come to `sum`: by some of them, each with the number of values that it stands for, itself
    /// included. The maximum is that of those.
    pub fn record_by(&mut self, some: impl Iterator<Item = (u64, u64)>, sum: u64) {
        let (mut max, mut stood_for) = (self.max, self.stood_for);
        for (value, stands_for) in some {
            let (power, place) = bucket(value);
            let line = self.line(power);
            self.lines[line][place] += stands_for;
            stood_for += stands_for - 1;
            max = max.max(value);
        }
        (self.max, self.stood_for) = (max, stood_for);
        self.sum += u128::from(sum);
    }

    /// So many more of the values were not looked at themselves.
    pub(crate) fn note_stood_for(&mut self, more: u64) {
        self.stood_for += more;
    }

    /// Adds to the sum what values come to that others stand for.
    pub(crate) fn add_sum(&mut self, sum: u64) {
        self.sum += u128::from(sum);
    }

    /// The smallest bucket below which at least `share` (0…1) of the values lie, by its middle; the largest value for
    /// 1, 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        self.bucket_at(share).map_or(self.max, |id| middle(id).min(self.max))
    }

    /// The same, by the largest value that falls into that bucket: no more than the rest of the values are above.
    pub(crate) fn not_above(&self, share: f64) -> u64 {
        self.bucket_at(share).map_or(self.max, upper)
    }

    /// The same, by the smallest value that falls into that bucket: no more than the share are below.
    pub(crate) fn not_below(&self, share: f64) -> u64 {
        let id = self.bucket_at(share).unwrap_or_else(|| id_of(self.max));
        lower(id).min(self.max)
    }

    /// The bucket in which the value is below which at least `share` of all lie; `None` for the largest value.
    fn bucket_at(&self, share: f64) -> Option<usize> {
        let count = self.count();
        let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        if rank >= count {
            return None;
        }
        let mut seen = 0_u64;
        self.buckets().find_map(|(id, n)| {
            seen = seen.saturating_add(n);
            (seen >= rank).then_some(id)
        })
    }

    /// Adds `other`'s values.
    pub fn merge(&mut self, other: &Self) {
        for (id, n) in other.buckets() {
            self.add(id, n);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.binned = self.binned.plus(other.binned);
        self.max = self.max.max(other.max);
        self.stood_for = self.stood_for.saturating_add(other.stood_for);
    }

    /// The values counted here and not yet in `earlier`, an older copy of this histogram. The maximum is that of the
    /// highest bucket left.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut left = Self::default();
        for (id, n) in self.buckets() {
            let n = n.saturating_sub(earlier.at(id));
            if n > 0 {
                left.add(id, n);
                left.max = upper(id).min(self.max);
            }
        }
        left.sum = self.sum.saturating_sub(earlier.sum);
        left.binned = Binned {
            middles: self.binned.middles.saturating_sub(earlier.binned.middles),
            squares: self.binned.squares.saturating_sub(earlier.binned.squares),
        };
        left.stood_for = self.stood_for.saturating_sub(earlier.stood_for);
        left
    }

    /// The sums and maximum without the counts.
    pub fn sum_only(&self) -> Self {
        Self { sum: self.sum, max: self.max, binned: self.binned(), ..Self::default() }
    }

    /// The sums of what buckets say of the values.
    pub(crate) fn binned(&self) -> Binned {
        self.buckets().map(|(id, n)| Binned::of(id, n)).fold(self.binned, Binned::plus)
    }

    /// Non-empty buckets, ascending: (number, count).
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        let lines = self.index.0.iter().enumerate().filter(|(_, line)| **line != 0);
        lines
            .flat_map(|(power, line)| {
                let counts = self.lines.get(usize::from(*line) - 1).into_iter().flatten();
                counts.enumerate().map(move |(place, n)| (power * LINE + place, *n))
            })
            .filter(|(_, n)| *n > 0)
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.lines.iter().flatten().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Values that were looked at themselves: what is said of percentiles rests on so many.
    pub fn looked_at(&self) -> u64 {
        self.count().saturating_sub(self.stood_for)
    }

    /// Their sum.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their mean; 0 if there are none.
    pub fn mean(&self) -> f64 {
        let count = self.count();
        if count == 0 { 0.0 } else { self.sum as f64 / count as f64 }
    }

    /// Heap bytes in use.
    pub fn heap_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<[u64; LINE]>()
    }

    fn at(&self, id: usize) -> u64 {
        match self.index.0[id / LINE] {
            0 => 0,
            line => self.lines[usize::from(line) - 1][id % LINE],
        }
    }

    fn add(&mut self, id: usize, n: u64) {
        let line = self.line(id / LINE);
        let count = &mut self.lines[line][id % LINE];
        *count = count.saturating_add(n);
    }

    fn line(&mut self, power: usize) -> usize {
        match self.index.0[power] {
            0 => self.new_line(power),
            line => usize::from(line) - 1,
        }
    }

    #[cold]
    fn new_line(&mut self, power: usize) -> usize {
        self.lines.push([0; LINE]);
        self.index.0[power] = self.lines.len() as u8;
        self.lines.len() - 1
    }
}

impl Binned {
    /// Of so many values of a bucket.
    fn of(id: usize, n: u64) -> Self {
        let (middle, n) = (u128::from(middle(id)), u128::from(n));
        let width = u128::from(upper(id) - lower(id)) + 1;
        // The variance of whole numbers that are as likely as each other.
        let square = middle.pow(2) + (width.pow(2) - 1) / 12;
        Self { middles: middle.saturating_mul(n), squares: square.saturating_mul(n) }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            middles: self.middles.saturating_add(other.middles),
            squares: self.squares.saturating_add(other.squares),
        }
    }
}

/// The smallest value of a bucket.
pub fn lower(id: usize) -> u64 {
    let (power, place) = (id / LINE, (id % LINE) as u64);
    if power == 0 { place } else { (LINE as u64 + place) << (power - 1) }
}

/// The largest value of a bucket.
pub fn upper(id: usize) -> u64 {
    let width = if id < LINE { 1 } else { 1 << (id / LINE - 1) };
    lower(id).saturating_add(width - 1)
}

fn middle(id: usize) -> u64 {
    lower(id) + (upper(id) - lower(id)) / 2
}

/// The bucket of a value.
fn id_of(value: u64) -> usize {
    let (power, place) = bucket(value);
    power * LINE + place
}

/// The power of two and the place within it. Above the first line, the five highest bits decide: the top one is the
/// power, the other four are the place.
fn bucket(value: u64) -> (usize, usize) {
    if value < LINE as u64 {
        return (0, value as usize);
    }
    let power = value.ilog2() - LINE_BITS + 1;
    (power as usize, (value >> (power - 1)) as usize - LINE)
}

impl Default for Index {
    fn default() -> Self {
        Self([0; POWERS])
    }
}

/// How a histogram travels: its non-empty buckets.
#[derive(Serialize, Deserialize)]
struct Sparse {
    buckets: Vec<(u16, u64)>,
    sum: u128,
    max: u64,
    /// Of a copy without counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    squares: u128,
    #[serde(default, skip_serializing_if = "is_zero")]
    middles: u128,
    #[serde(default)]
    stood_for: u64,
}

fn is_zero(squares: &u128) -> bool {
    *squares == 0
}

impl From<Histogram> for Sparse {
    fn from(histogram: Histogram) -> Self {
        let buckets = histogram.buckets().map(|(id, n)| (id as u16, n)).collect();
        let Histogram { sum, max, binned: Binned { middles, squares }, stood_for, .. } = histogram;
        Self { buckets, sum, max, squares, middles, stood_for }
    }
}

impl TryFrom<Sparse> for Histogram {
    type Error = String;

    fn try_from(sparse: Sparse) -> Result<Self, String> {
        let Sparse { buckets, sum, max, squares, middles, stood_for } = sparse;
        let binned = Binned { middles, squares };
        let mut histogram = Self { sum, max, binned, stood_for, ..Self::default() };
        for (id, n) in buckets {
            if usize::from(id) >= BUCKETS {
                return Err(format!("bucket {id}: a histogram has {BUCKETS}"));
            }
            histogram.add(id.into(), n);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    //! Shows where values fall, how close quantiles come, and that copies, sums and differences agree.
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn buckets_join_without_gap_up_to_the_last_value() {
        for id in 1..BUCKETS {
            assert_eq!(lower(id), upper(id - 1) + 1, "bucket {id}");
        }
        assert_eq!((lower(0), upper(BUCKETS - 1)), (0, u64::MAX));
        for value in [0, 1, 15, 16, 31, 32, 1_000_003, u64::MAX] {
            let (power, place) = bucket(value);
            let id = power * LINE + place;
            assert!((lower(id)..=upper(id)).contains(&value), "{value} in bucket {id}");
        }
    }

    #[test]
    fn quantiles_of_known_values() {
        let values: Vec<u64> = (1..=1_000).map(|n| n * 1_000).collect();
        let histogram = of(&values);
        for (share, exact) in [(0.5, 500_000.0), (0.9, 900_000.0), (0.99, 990_000.0), (0.999, 999_000.0)] {
            let found = histogram.quantile(share) as f64;
            assert!((found / exact - 1.0).abs() < 0.032, "{share}: {found} for {exact}");
        }
        assert_eq!(histogram.quantile(1.0), 1_000_000);
        assert_eq!((histogram.count(), histogram.mean()), (1_000, 500_500.0));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn a_bucket_that_does_not_exist_is_refused() {
        let json = format!(r#"{{"buckets":[[{BUCKETS},1]],"sum":0,"max":0}}"#);
        assert!(serde_json::from_str::<Histogram>(&json).is_err());
    }

    proptest! {
        #[test]
        fn quantiles_are_close(mut values in prop::collection::vec(any::<u64>(), 1..200), share in 0.0..1.0_f64) {
            let found = of(&values).quantile(share);
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            prop_assert!(found.abs_diff(exact) <= exact / 31 + 1, "{} for {}", found, exact);
        }

        #[test]
        fn sums_differences_and_copies(
            a in prop::collection::vec(any::<u64>(), 0..50),
            b in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let (first, second) = (of(&a), of(&b));
            let mut both = first.clone();
            both.merge(&second);
            let every: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert!(both.buckets().eq(of(&every).buckets()));
            prop_assert_eq!((both.sum(), both.max()), (of(&every).sum(), of(&every).max()));
            let left = both.since(&first);
            prop_assert!(left.buckets().eq(second.buckets()));
            prop_assert_eq!(left.sum(), second.sum());
            let json = serde_json::to_string(&both).unwrap();
            let copy: Histogram = serde_json::from_str(&json).unwrap();
            let sums = serde_json::to_string(&both.sum_only()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&sums).unwrap().binned(), both.binned());
            prop_assert!(copy.buckets().eq(both.buckets()));
            prop_assert_eq!((copy.sum(), copy.max()), (both.sum(), both.max()));
        }
    }
}
