//! What the study published, as data, and records held against it.

use crate::fleet::Fleet;
use crate::measures::{MEASURES, Measured};
use crate::words::short;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Published distributions and numbers; `tools/insight/data/fleet.toml` is the study's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Completion times in seconds.
    pub latency: PublishedGrid,
    /// Calls below a call.
    pub descendants: PublishedGrid,
    /// Calls above a call.
    pub ancestors: PublishedGrid,
    /// Response size ÷ request size.
    pub ratio: PublishedGrid,
    /// Share of calls that the fastest methods have.
    pub popularity: Popularity,
    /// Shares of services.
    pub services: ServiceShares,
    /// Shares of all cycles by stage.
    pub cycles: BTreeMap<String, f64>,
    /// Shares of errors by code, in percent: by count, by cycles.
    pub errors: BTreeMap<String, [f64; 2]>,
    /// Everything that is one number.
    pub target: BTreeMap<String, PublishedNumber>,
}

/// Percentiles of a method's calls over percentiles of methods.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedGrid {
    /// Percentiles of methods, ascending.
    pub methods: Vec<f64>,
    #[serde(default)]
    p1: Vec<f64>,
    #[serde(default)]
    p10: Vec<f64>,
    #[serde(default)]
    p50: Vec<f64>,
    #[serde(default)]
    p90: Vec<f64>,
    #[serde(default)]
    p99: Vec<f64>,
}

/// A curve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Popularity {
    /// How many of the methods, in percent, fastest first.
    pub methods: Vec<f64>,
    /// The part of all calls they have.
    pub calls: Vec<f64>,
}

/// Shares by service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceShares {
    /// Of calls.
    pub calls: BTreeMap<String, f64>,
    /// Of bytes.
    pub bytes: BTreeMap<String, f64>,
    /// Of cycles.
    pub cycles: BTreeMap<String, f64>,
}

/// One number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedNumber {
    figure: String,
    /// The number.
    pub wanted: f64,
    #[serde(default, rename = "is")]
    sense: Sense,
    #[serde(default)]
    share: bool,
    #[serde(default)]
    conflict: Option<String>,
}

/// How a number is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Sense {
    #[default]
    #[serde(rename = "about")]
    About,
    #[serde(rename = "at least")]
    AtLeast,
    #[serde(rename = "at most")]
    AtMost,
}

/// A target and what records have in its place.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The study's figure.
    pub figure: String,
    /// What it is.
    pub name: String,
    /// What the study has.
    pub wanted: f64,
    /// What the records have; NaN if they do not say it.
    pub got: f64,
    sense: Sense,
    share: bool,
    /// Where the study contradicts itself.
    pub conflict: Option<String>,
    /// Why records of this kind cannot have it.
    pub reason: Option<String>,
}

/// Numbers of one share may differ by so much.
const POINTS_MAX: f64 = 0.02;
/// All others by so large a part.
const PART_MAX: f64 = 0.1;

impl Published {
    /// Reads a file of targets.
    ///
    /// # Errors
    /// What is wrong, and where: no TOML, a key or target that is unknown, rows that are not as long as `methods`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        for (name, grid) in found.grids() {
            grid.examine(name)?;
        }
        let Popularity { methods, calls } = &found.popularity;
        examine("popularity.calls", methods, calls)?;
        if let Some(unknown) =
            found.target.keys().find(|name| !MEASURES.iter().any(|(known, _)| known == name))
        {
            let known: Vec<&str> = MEASURES.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "target.{unknown}: there is no such target; those there are: {}",
                known.join(", ")
            ));
        }
        if let Some(unknown) = found.errors.keys().find(|code| code_of(code).is_none()) {
            return Err(format!("errors.{unknown}: write a gRPC code, such as CANCELLED"));
        }
        Ok(found)
    }

    /// Every target of the file with what the records have, in the order of figures.
    pub fn check(&self, fleet: &Fleet) -> Vec<Checked> {
        let measured = Measured::of(fleet);
        let mut checked = Vec::new();
        for (name, grid) in self.grids() {
            checked.extend(grid.check(name, &measured));
        }
        let Popularity { methods, calls } = &self.popularity;
        for (percent, wanted) in methods.iter().zip(calls) {
            let got = measured.calls_of_fastest(percent / 100.0);
            checked.push(share("3", format!("calls of the fastest {percent} % of methods"), *wanted, got));
        }
        for (what, shares) in [
            ("calls", &self.services.calls),
            ("bytes", &self.services.bytes),
            ("cycles", &self.services.cycles),
        ] {
            for (service, wanted) in shares {
                let got = measured.service_share(what, service);
                checked.push(share("8", format!("{service}: share of {what}"), *wanted, got));
            }
        }
        for (stage, wanted) in &self.cycles {
            let got = measured.cycle_share(stage);
            checked.push(share("20", format!("{stage}: share of cycles"), *wanted, got));
        }
        for (code, wanted) in &self.errors {
            let got = measured.error_shares(code);
            checked.push(share("23", format!("{code}: share of errors"), wanted[0] / 100.0, got[0]));
            checked.push(share("23", format!("{code}: share of their cycles"), wanted[1] / 100.0, got[1]));
        }
        for (name, of) in &self.target {
            let measure = MEASURES.iter().find(|(known, _)| known == name).map(|(_, measure)| measure);
            checked.push(Checked {
                figure: of.figure.clone(),
                name: name.replace('_', " "),
                wanted: of.wanted,
                got: measure.map_or(f64::NAN, |measure| measure(&measured)),
                sense: of.sense,
                share: of.share,
                conflict: of.conflict.clone(),
                reason: None,
            });
        }
        if let Some(driven) = fleet.driven() {
            let clusters = fleet.clusters().len();
            checked
                .iter_mut()
                .for_each(|one| one.reason = driven.reason(&one.figure, &one.name, one.wanted, clusters));
        }
        checked.sort_by_key(|one| one.figure.parse::<u32>().unwrap_or(u32::MAX));
        checked
    }

    fn grids(&self) -> [(&'static str, &PublishedGrid); 4] {
        let Self { latency, descendants, ancestors, ratio, .. } = self;
        [("latency", latency), ("descendants", descendants), ("ancestors", ancestors), ("ratio", ratio)]
    }
}

impl PublishedGrid {
    /// Percentiles of a method's calls that there are, as parts of one, each with its row.
    pub fn rows(&self) -> impl Iterator<Item = (f64, &[f64])> {
        let rows =
            [(0.01, &self.p1), (0.1, &self.p10), (0.5, &self.p50), (0.9, &self.p90), (0.99, &self.p99)];
        rows.into_iter().filter(|(_, row)| !row.is_empty()).map(|(part, row)| (part, row.as_slice()))
    }

    fn examine(&self, name: &str) -> Result<(), String> {
        if self.methods.is_empty() || self.rows().next().is_none() {
            return Err(format!("{name}: write `methods` and a row such as p50"));
        }
        self.rows().try_for_each(|(part, row)| {
            examine(&format!("{name}.p{}", short(100.0 * part)), &self.methods, row)
        })
    }

    fn check(&self, name: &'static str, measured: &Measured<'_>) -> Vec<Checked> {
        let figure = match name {
            "latency" => "2",
            "descendants" => "4",
            "ancestors" => "5",
            _ => "7",
        };
        let rows = self.rows();
        let cells = rows.flat_map(|(part, row)| {
            self.methods.iter().zip(row).map(move |(method, wanted)| (part, *method, *wanted))
        });
        cells
            .map(|(part, method, wanted)| Checked {
                figure: figure.to_owned(),
                name: format!("{name}: P{} at {method} % of methods", short(100.0 * part)),
                wanted,
                got: measured.grid(name, part, method),
                sense: Sense::About,
                share: false,
                conflict: None,
                reason: None,
            })
            .collect()
    }
}

impl Checked {
    /// How far it is off: points for shares, a part for everything else, zero within a bound.
    pub fn distance(&self) -> f64 {
        let off = self.got - self.wanted;
        let off = match self.sense {
            Sense::About => off,
            Sense::AtLeast => off.min(0.0),
            Sense::AtMost => off.max(0.0),
        };
        // Counts below one differ by less than one call.
        if self.share || off == 0.0 { off } else { off / self.wanted.abs().max(1e-9) }
    }

    /// Whether it is near enough.
    pub fn is_reached(&self) -> bool {
        let distance = self.distance().abs();
        let counts = matches!(self.figure.as_str(), "4" | "5") && (self.got - self.wanted).abs() <= 0.5;
        distance <= if self.share { POINTS_MAX } else { PART_MAX } || counts
    }
}

/// How many targets were reached.
pub fn summary(checked: &[Checked]) -> String {
    let reached = checked.iter().filter(|one| one.is_reached()).count();
    let off = checked.iter().filter(|one| !one.is_reached());
    let contradicted = off.clone().filter(|one| one.conflict.is_some()).count();
    let elsewhere = off.clone().filter(|one| one.conflict.is_none() && one.reason.is_some()).count();
    let elsewhere = match elsewhere {
        0 => String::new(),
        count => format!(", and {count} are out of reach of calls made so, for the reasons beside them"),
    };
    format!(
        "{reached} of {} targets are within a tenth, or two points where they are shares; of the {} others the study \
         itself contradicts {contradicted}{elsewhere}.",
        checked.len(),
        off.count()
    )
}

/// Figure, target, wanted, got, distance, verdict.
pub fn check_rows(checked: &[Checked]) -> Vec<Vec<String>> {
    let row = |one: &Checked| {
        let bound = match one.sense {
            Sense::About => "",
            Sense::AtLeast => "≥ ",
            Sense::AtMost => "≤ ",
        };
        let distance = match one.distance() {
            distance if distance.is_nan() => "–".to_owned(),
            distance if one.share => format!("{:+.1} points", 100.0 * distance),
            distance => format!("{:+.1} %", 100.0 * distance),
        };
        let verdict = match (one.is_reached(), &one.conflict, &one.reason) {
            (true, None, _) => "reached".to_owned(),
            (true, Some(conflict), _) => format!("reached; {conflict}"),
            (false, Some(conflict), _) => format!("contradicted: {conflict}"),
            (false, None, Some(reason)) => format!("out of reach: {reason}"),
            (false, None, None) => "not reached".to_owned(),
        };
        let wanted = format!("{bound}{}", short(one.wanted));
        vec![one.figure.clone(), one.name.clone(), wanted, short(one.got), distance, verdict]
    };
    checked.iter().map(row).collect()
}

/// The code with this name.
pub(crate) fn code_of(name: &str) -> Option<trunkline_call::Code> {
    (0..=16).map(trunkline_call::Code::from_number).find(|code| code.name() == name)
}

fn share(figure: &str, name: String, wanted: f64, got: f64) -> Checked {
    let (figure, sense, share) = (figure.to_owned(), Sense::About, true);
    Checked { figure, name, wanted, got, sense, share, conflict: None, reason: None }
}

fn examine(name: &str, methods: &[f64], row: &[f64]) -> Result<(), String> {
    if row.len() != methods.len() {
        return Err(format!(
            "{name}: {} numbers for {} of `methods`: write one for each",
            row.len(),
            methods.len()
        ));
    }
    let ascends = methods.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascends || methods.iter().any(|at| !(0.0..=100.0).contains(at)) {
        return Err(format!("{name}: `methods` are percentiles from 0 to 100, in ascending order"));
    }
    match row.iter().find(|value| !value.is_finite() || **value < 0.0) {
        Some(wrong) => Err(format!("{name}: {wrong} is no number from zero")),
        None => Ok(()),
    }
}
