//! Figures as data: families of points with labels, whoever is told of them.

use crate::histogram::{Histogram, lower, upper};
use crate::traced::{Exemplar, Exemplars};

/// Families, in the order they are shown.
#[derive(Clone, Debug, Default)]
pub struct Exposition(Vec<FigureFamily>);

/// Figures of one name.
#[derive(Clone, Debug)]
pub struct FigureFamily {
    /// As Prometheus has it: with its unit, and `_total` where it is a counter.
    pub name: &'static str,
    /// What it counts, in a sentence.
    pub help: &'static str,
    /// How its values are to be read.
    pub kind: FigureKind,
    /// Its values.
    pub points: Vec<FigurePoint>,
}

/// How values are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// Only grows.
    Counter,
    /// What is now.
    Gauge,
    /// Counts of values below bounds.
    Histogram,
}

/// One value.
#[derive(Clone, Debug)]
pub struct FigurePoint {
    /// What it is of. Values are any text.
    pub labels: Vec<(&'static str, String)>,
    /// What it is.
    pub value: Figure,
}

/// A value.
#[derive(Clone, Debug)]
pub enum Figure {
    /// Whole.
    Count(u64),
    /// With a fraction.
    Number(f64),
    /// Counts by bounds.
    BoundCounts(BoundCounts),
}

/// Counts of values at or below each bound.
#[derive(Clone, Debug)]
pub struct BoundCounts {
    /// Ascending, in the unit of the family.
    pub bounds: &'static [f64],
    /// Values at or below each.
    pub below: Vec<u64>,
    /// All values.
    pub count: u64,
    /// Their sum, in the unit of the family.
    pub sum: f64,
    /// One recorded unit in the unit of the family.
    pub unit: f64,
    /// Calls that stand for others.
    pub exemplars: Exemplars,
}

impl Exposition {
    /// Begins a family: its points come next. `kind` is `counter`, or a gauge.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &'static str) {
        let kind = if kind == "counter" { FigureKind::Counter } else { FigureKind::Gauge };
        self.0.push(FigureFamily { name, help, kind, points: Vec::new() });
    }

    /// Begins a family of histograms.
    pub fn histograms(&mut self, name: &'static str, help: &'static str) {
        self.0.push(FigureFamily { name, help, kind: FigureKind::Histogram, points: Vec::new() });
    }

    /// Adds a point to the family begun last.
    pub fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Into<Figure>) {
        if let Some(family) = self.0.last_mut() {
            let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            family.points.push(FigurePoint { labels, value: value.into() });
        }
    }

    /// Every family.
    pub fn families(&self) -> &[FigureFamily] {
        &self.0
    }
}

impl BoundCounts {
    /// Counts at a bound are those of whole buckets below it, so up to 6 % of a bound may be counted one bound higher.
    /// A bound where a bucket begins, as powers of two are, has that bucket: messages of just this size are common.
    pub fn of(values: &Histogram, bounds: &'static [f64], unit: f64) -> Self {
        let mut buckets = values.buckets().peekable();
        let mut below = 0;
        let counts = bounds.iter().map(|bound| {
            let begins_there = |id: usize| lower(id) as f64 * unit >= *bound;
            let is_below = |id: usize| match lower(id) as f64 * unit <= *bound {
                true => begins_there(id) || upper(id) as f64 * unit <= *bound,
                false => false,
            };
            while let Some((_, count)) = buckets.next_if(|(id, _)| is_below(*id)) {
                below = count.saturating_add(below);
            }
            below
        });
        let below = counts.collect();
        let (count, sum) = (values.count(), values.sum() as f64 * unit);
        Self { bounds, below, count, sum, unit, exemplars: Exemplars::default() }
    }

    /// With calls that stand for others.
    pub fn with(self, exemplars: &Exemplars) -> Self {
        Self { exemplars: exemplars.clone(), ..self }
    }

    /// Each bound with its count and its exemplar; the last bound is infinite.
    pub fn rows(&self) -> impl Iterator<Item = (f64, u64, Option<&Exemplar>)> {
        let last = (f64::INFINITY, self.count);
        let rows = self.bounds.iter().copied().zip(self.below.iter().copied()).chain([last]);
        rows.scan(-1.0, |before, (bound, below)| {
            let above = std::mem::replace(before, bound);
            Some((bound, below, self.exemplars.between(above / self.unit, bound / self.unit)))
        })
    }
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Figure {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<BoundCounts> for Figure {
    fn from(buckets: BoundCounts) -> Self {
        Self::BoundCounts(buckets)
    }
}
