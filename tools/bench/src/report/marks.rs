//! The marks of docs/targets.toml that a run says something about, and whether it reached them. Which figures a mark is
//! made of stands there, as `of`: the sheet, the column, the row, and the row it is divided by, if any.

use super::sheet::Sheet;
use crate::harness::children::Failure;
use serde::{Deserialize, Serialize};
use trunkline_measure::Spread;

const TARGETS: &str = include_str!("../../../../docs/targets.toml");

/// A mark beside what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// The target's number.
    pub target: String,
    pub what: String,
    pub wanted: String,
    pub measured: Spread,
    /// `None`: nothing was wanted, it stands there to be compared.
    pub reached: Option<bool>,
}

#[derive(Deserialize)]
struct Targets {
    target: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    id: String,
    marks: Vec<Wanted>,
}

#[derive(Deserialize)]
struct Wanted {
    name: String,
    at_most: Option<f64>,
    at_least: Option<f64>,
    #[serde(default)]
    of: Vec<String>,
}

/// Every mark this run says something about.
pub fn marks(sheets: &[Sheet]) -> Result<Vec<Mark>, Failure> {
    let targets: Targets = toml::from_str(TARGETS)?;
    let mut all = Vec::new();
    for Target { id, marks } in targets.target {
        all.extend(marks.iter().filter_map(|mark| Some(mark.judged(&id, mark.measured(sheets)?))));
    }
    Ok(all)
}

impl Mark {
    /// For people.
    pub fn verdict(&self) -> &'static str {
        match self.reached {
            Some(true) => "reached",
            Some(false) => "not reached",
            None => "",
        }
    }
}

impl Wanted {
    fn judged(&self, target: &str, measured: Spread) -> Mark {
        let (wanted, reached) = match (self.at_most, self.at_least) {
            (Some(most), _) => (format!("≤ {most}"), Some(measured.median <= most)),
            (None, Some(least)) => (format!("≥ {least}"), Some(measured.median >= least)),
            (None, None) => ("beside it".to_owned(), None),
        };
        Mark { target: target.to_owned(), what: self.name.clone(), wanted, measured, reached }
    }

    /// The figure, or the ratio of two, round by round. Of a sheet with a `*` at the end of its name: the least of the
    /// medians in all such sheets.
    fn measured(&self, sheets: &[Sheet]) -> Option<Spread> {
        let (sheet, column, rows) = match &self.of[..] {
            [sheet, column, rows @ ..] => (sheet, column, rows),
            _ => return None,
        };
        let in_sheet = |sheet: &Sheet| match rows {
            [row] => Spread::of(sheet.values(column, row)?.iter().copied()),
            [row, by] => Spread::of_ratio(sheet.values(column, row)?, sheet.values(column, by)?),
            _ => None,
        };
        let Some(prefix) = sheet.strip_suffix('*') else {
            return in_sheet(sheets.iter().find(|of| of.key == *sheet)?);
        };
        let all = sheets.iter().filter(|of| of.key.starts_with(prefix)).filter_map(in_sheet);
        let all = Spread::of(all.map(|spread| spread.median))?;
        Some(Spread { median: all.least, ..all })
    }
}

#[cfg(test)]
mod tests {
    //! A mark is judged by the median of the ratios, one whose peer is absent is not judged, and every mark names
    //! figures that a study has.
    use super::*;
    use crate::studies::list::tests::has_figures;

    fn sheet(key: &str, column: &str, rows: &[(&str, [f64; 3])]) -> Sheet {
        let rows = rows.iter().map(|(name, values)| ((*name).to_owned(), vec![values.to_vec()])).collect();
        Sheet::new(key, String::new(), "", &[column]).with(rows)
    }

    #[test]
    fn ratios_are_judged() {
        for (ours, reached) in [([20.0, 24.0, 90.0], true), ([20.0, 26.0, 30.0], false)] {
            let rows = [("trunkline-two-hosts", ours), ("chain-tcp", [10.0; 3])];
            let marks = marks(&[sheet("latency", "p50 µs", &rows)]).unwrap();
            assert_eq!(marks.len(), 1, "gRPC is absent: {marks:?}");
            assert_eq!((marks[0].target.as_str(), marks[0].reached), ("T1", Some(reached)), "{marks:?}");
            assert_eq!(marks[0].wanted, "≤ 2.5");
        }
    }

    #[test]
    fn the_worst_load_decides() {
        let load = |key: &str, ours: f64| {
            sheet(key, "p99 ms", &[("nginx least_conn", [30.0; 3]), ("jbsq(auto)", [ours; 3])])
        };
        let marks = marks(&[load("r2p2 bimodal 50 %", 33.0), load("r2p2 bimodal 90 %", 12.0)]).unwrap();
        assert_eq!((marks.len(), marks[0].reached), (1, Some(false)), "{marks:?}");
        assert!(marks[0].measured.median < 1.0 && marks[0].measured.most > 2.0, "{marks:?}");
    }

    #[test]
    fn every_mark_names_figures_there_are() {
        let targets: Targets = toml::from_str(TARGETS).unwrap();
        let mut named = 0;
        for mark in targets.target.iter().flat_map(|target| &target.marks).filter(|mark| !mark.of.is_empty())
        {
            let [sheet, column, rows @ ..] = &mark.of[..] else {
                panic!("{:?} is short of words", mark.name)
            };
            has_figures(sheet, column, rows).unwrap_or_else(|why| panic!("{:?}: {why}", mark.name));
            named += 1;
        }
        assert!(named > 80, "{named}");
    }
}
