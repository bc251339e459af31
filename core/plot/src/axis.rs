//! An axis: from numbers to places, and the numbers written beside it.

/// How a number is written.
pub type Format = fn(f64) -> String;

/// How places follow from numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far.
    Linear,
    /// Equal ratios are equally far.
    Log,
}

/// One axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with the unit; may be empty.
    pub label: String,
    /// How places follow from numbers.
    pub scale: Scale,
    /// How its numbers are written.
    pub format: Format,
    /// The numbers written beside it; chosen by the chart if `None`.
    pub ticks: Option<Vec<(f64, String)>>,
    /// It begins at zero, or at this, if it is linear.
    pub from: Option<f64>,
    /// It ends here, if something is beyond.
    pub most: Option<f64>,
}

/// Ticks that a chart chooses, about.
const TICKS: f64 = 5.0;
/// Beyond so many orders of magnitude, only their beginnings are written.
const DECADES_WITH_STEPS: f64 = 2.5;

impl Axis {
    /// A linear axis from zero.
    pub fn linear(label: &str, format: Format) -> Self {
        let (label, scale) = (label.to_owned(), Scale::Linear);
        Self { label, scale, format, ticks: None, from: Some(0.0), most: None }
    }

    /// A logarithmic axis.
    pub fn log(label: &str, format: Format) -> Self {
        Self { scale: Scale::Log, from: None, ..Self::linear(label, format) }
    }

    /// With these numbers beside it and no others.
    pub fn with_ticks(mut self, ticks: Vec<(f64, String)>) -> Self {
        self.ticks = Some(ticks);
        self
    }

    /// Whether a number has a place.
    pub(crate) fn bears(&self, value: f64) -> bool {
        value.is_finite()
            && (self.scale == Scale::Linear || value > 0.0)
            && self.most.is_none_or(|most| value <= most)
    }

    /// From the least to the most of these numbers; `None` without one.
    pub(crate) fn range(&self, values: impl Iterator<Item = f64>) -> Option<Range> {
        let values = values.filter(|value| self.bears(*value));
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        if least > most {
            return None;
        }
        let (least, most) = match self.scale {
            Scale::Linear => (self.from.map_or(least, |from| from.min(least)), most),
            Scale::Log => (least, most),
        };
        // One number alone has a place too.
        let most = if most > least { most } else { least + least.abs().max(1.0) };
        Some(Range { least, most, scale: self.scale })
    }

    /// The numbers beside it.
    pub(crate) fn marks(&self, range: &Range) -> Vec<(f64, String)> {
        if let Some(ticks) = &self.ticks {
            return ticks.iter().filter(|(at, _)| range.holds(*at)).cloned().collect();
        }
        let words = |values: Vec<f64>| -> Vec<(f64, String)> {
            values.into_iter().map(|value| (value, (self.format)(value))).collect()
        };
        match range.scale {
            Scale::Log => words(log_marks(range)),
            Scale::Linear => {
                // Small numbers are rounded to the same words: fewer of them are not.
                let steps = (0..12).map(|coarser| words(linear_marks(range, coarser)));
                let differ = |marks: &Vec<(f64, String)>| marks.windows(2).all(|pair| pair[0].1 != pair[1].1);
                steps.into_iter().find(differ).unwrap_or_default()
            }
        }
    }
}

/// What an axis covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    least: f64,
    most: f64,
    scale: Scale,
}

impl Range {
    /// Where a number is, from 0 at the least to 1 at the most.
    pub fn part(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.least) / (self.most - self.least),
            Scale::Log => (value / self.least).ln() / (self.most / self.least).ln(),
        }
    }

    fn holds(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.part(value))
    }
}

/// Round numbers, about [`TICKS`] of them; the coarser, the fewer.
fn linear_marks(range: &Range, coarser: usize) -> Vec<f64> {
    let rough = (range.most - range.least) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let steps = (0..8).flat_map(|more| [1.0, 2.0, 5.0].map(|step| step * power * 10f64.powi(more)));
    let step = steps.filter(|step| *step >= rough).nth(coarser).unwrap_or(rough);
    let first = (range.least / step).ceil();
    let marks = (0..16).map(|index| (first + f64::from(index)) * step);
    marks.filter(|value| range.holds(*value)).collect()
}

fn log_marks(range: &Range) -> Vec<f64> {
    let (from, to) = (range.least.log10().floor() as i32, range.most.log10().ceil() as i32);
    let decades = (range.most / range.least).log10();
    let steps: &[f64] = if decades <= DECADES_WITH_STEPS { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (decades / (2.0 * TICKS)).ceil().max(1.0) as usize;
    let powers = (from..=to).step_by(every);
    let marks = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    marks.filter(|value| range.holds(*value)).collect()
}

#[cfg(test)]
mod tests {
    //! Shows that axes have a few numbers, each once and within.
    use super::*;

    #[test]
    fn no_number_stands_twice() {
        let format: Format = |value| format!("{value:.0}");
        for most in [1.0, 2.0, 3.0, 7.0, 99.0, 1000.0, 12_345.0] {
            let axis = Axis::linear("", format);
            let range = axis.range([0.0, most].into_iter()).unwrap();
            let marks = axis.marks(&range);
            assert!((2..=7).contains(&marks.len()), "{most}: {marks:?}");
            let mut words: Vec<_> = marks.iter().map(|(_, word)| word).collect();
            words.dedup();
            assert_eq!(words.len(), marks.len(), "{marks:?}");
            assert!(
                marks.iter().all(|(value, word)| *word == format!("{value}")),
                "no word is rounded: {marks:?}"
            );
        }
    }

    #[test]
    fn orders_of_magnitude_are_equally_far() {
        let axis = Axis::log("", |value| format!("{value}"));
        let range = axis.range([0.0, 1.0, f64::NAN, 1e8, -3.0].into_iter()).unwrap();
        assert!((range.part(1e4) - 0.5).abs() < 1e-9);
        let marks = axis.marks(&range);
        assert_eq!(marks.iter().map(|(at, _)| *at).collect::<Vec<_>>().len(), 9);
        assert!(axis.range([0.0].into_iter()).is_none());
        assert!(axis.range([5.0].into_iter()).is_some());
    }
}
