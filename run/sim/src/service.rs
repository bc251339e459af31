//! Service times, drawn.

use std::fmt;
use std::str::FromStr;

/// A distribution of service times with its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    shape: Shape,
    mean_ns: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Fixed,
    Exponential,
    /// One in ten takes ten times as long.
    Bimodal,
    /// Bounded Pareto, α = 1.2, from the least to a thousand times that.
    Heavy,
    /// As somebody measured, each as likely as the others.
    Measured(&'static [u64]),
}

/// Tail exponent and range of the heavy distribution: between those published for web objects (1.0–1.3).
const ALPHA: f64 = 1.2;
const RANGE: f64 = 1000.0;

/// A distribution's name that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownService(pub String);

impl Service {
    /// Times somebody measured, in any unit, stretched to a mean. `None` if there are none, or their sum is nothing.
    pub fn measured(times: &'static [u64], mean_ns: f64) -> Option<Self> {
        let some = times.iter().any(|time| *time > 0);
        some.then_some(Self { shape: Shape::Measured(times), mean_ns })
    }

    /// Mean, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.mean_ns
    }

    /// The time of a request, from a number in 0..1.
    pub(crate) fn draw(&self, uniform: f64) -> u64 {
        let shape = match self.shape {
            Shape::Fixed => 1.0,
            Shape::Exponential => -(1.0 - uniform).ln(),
            // 0.9 · s + 0.1 · 10 s = 1.9 s is the mean.
            Shape::Bimodal if uniform < 0.9 => 1.0 / 1.9,
            Shape::Bimodal => 10.0 / 1.9,
            Shape::Heavy => heavy(uniform) / heavy_mean(),
            Shape::Measured(times) => times[(uniform * times.len() as f64) as usize] as f64 / mean_of(times),
        };
        (shape * self.mean_ns).round() as u64
    }
}

/// Quantile of the bounded Pareto distribution that begins at 1.
fn heavy(uniform: f64) -> f64 {
    (1.0 - uniform * (1.0 - RANGE.powf(-ALPHA))).powf(-1.0 / ALPHA)
}

fn heavy_mean() -> f64 {
    ALPHA / (ALPHA - 1.0) * (1.0 - RANGE.powf(1.0 - ALPHA)) / (1.0 - RANGE.powf(-ALPHA))
}

fn mean_of(times: &[u64]) -> f64 {
    times.iter().map(|time| *time as f64).sum::<f64>() / times.len() as f64
}

impl FromStr for Service {
    type Err = UnknownService;

    fn from_str(text: &str) -> Result<Self, UnknownService> {
        let unknown = || UnknownService(text.to_owned());
        let (name, mean) = text.split_once(':').ok_or_else(unknown)?;
        let shape = match name {
            "fixed" => Shape::Fixed,
            "exponential" => Shape::Exponential,
            "bimodal" => Shape::Bimodal,
            "heavy" => Shape::Heavy,
            _ => return Err(unknown()),
        };
        let digits = mean.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let scale = match &mean[digits.len()..] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            _ => return Err(unknown()),
        };
        let number: f64 = digits.parse().map_err(|_| unknown())?;
        let mean_ns = number * scale;
        (1.0..1e12).contains(&mean_ns).then_some(Self { shape, mean_ns }).ok_or_else(unknown)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.shape {
            Shape::Fixed => "fixed",
            Shape::Exponential => "exponential",
            Shape::Bimodal => "bimodal",
            Shape::Heavy => "heavy",
            Shape::Measured(_) => "measured",
        };
        write!(f, "{name}:{}us", self.mean_ns / 1e3)
    }
}

impl fmt::Display for UnknownService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "service is {:?}: write fixed:, exponential:, bimodal: or heavy: and the mean, as bimodal:5ms",
            self.0
        )
    }
}

impl std::error::Error for UnknownService {}

#[cfg(test)]
mod tests {
    //! Shows that every distribution has the mean it says, and which names there are.
    use super::*;

    #[test]
    fn means_are_as_said() {
        for name in ["fixed:10us", "exponential:10us", "bimodal:10us", "heavy:10us"] {
            let service: Service = name.parse().unwrap();
            assert_eq!(service.to_string(), name);
            let count = 1_000_000;
            let sum: u64 = (0..count).map(|i| service.draw((f64::from(i) + 0.5) / f64::from(count))).sum();
            let mean = sum as f64 / f64::from(count);
            assert!((mean / 10_000.0 - 1.0).abs() < 0.01, "{name} has a mean of {mean} ns");
        }
        let measured = Service::measured(&[1, 2, 9], 4000.0).unwrap();
        let drawn = [0.0, 0.5, 0.999].map(|uniform| measured.draw(uniform));
        assert_eq!((drawn, measured.mean_ns()), ([1000, 2000, 9000], 4000.0));
        assert!(Service::measured(&[], 1.0).is_none() && Service::measured(&[0], 1.0).is_none());
        for name in ["", "fixed", "fixed:", "fixed:0us", "fixed:10", "normal:10us"] {
            assert!(name.parse::<Service>().is_err(), "{name}");
        }
    }
}
