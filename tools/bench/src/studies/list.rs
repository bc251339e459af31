//! Which studies there are, and what a run of the command line consists of.

use super::data::{CallsData, RunData, STUDIES};
use super::{beside, bind, connections, hedging, idle, interference, r2p2, scaling, shares, split};
use crate::harness::children::Failure;
use crate::harness::rounds::Plan;
use crate::peers::data::peer;
use crate::peers::foreign::Foreign;
use crate::peers::messages::message_names;
use crate::report::sheet::Results;
use std::collections::BTreeSet;

/// What can be asked for, by name.
pub fn runs() -> &'static [RunData] {
    &STUDIES.run
}

fn calls(study: &str) -> Option<&'static CallsData> {
    STUDIES.calls.iter().find(|calls| calls.name == study)
}

/// A study that is code of its own.
struct Study {
    name: &'static str,
    measure: fn(&Plan, &Foreign) -> Result<Results, Failure>,
    /// What of the field's it needs.
    libraries: &'static [&'static str],
}

const OWN: [Study; 10] = [
    Study { name: "idle", measure: idle::measure, libraries: &[] },
    Study {
        name: "connections",
        measure: connections::measure,
        libraries: &["envoy", "grpc-go", "grpc-cpp", "tonic"],
    },
    Study { name: "scaling", measure: scaling::measure, libraries: &[] },
    Study { name: "beside", measure: beside::measure, libraries: &[] },
    Study { name: "hedging", measure: hedging::measure, libraries: &[] },
    Study { name: "bind", measure: bind::measure, libraries: &[] },
    Study { name: "split", measure: split::measure, libraries: &["split"] },
    Study { name: "shares", measure: shares::measure, libraries: &["split"] },
    Study { name: "interference", measure: interference::measure, libraries: &["split"] },
    Study { name: "r2p2", measure: r2p2::measure, libraries: &["nginx", "haproxy"] },
];

fn own(study: &str) -> Option<&'static Study> {
    OWN.iter().find(|own| own.name == study)
}

/// Measures a study.
pub fn measure(study: &str, plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
    match (calls(study), own(study)) {
        (Some(calls), _) => calls.measure(plan, foreign),
        (_, Some(own)) => (own.measure)(plan, foreign),
        _ => Err(format!("there is no study {study:?}").into()),
    }
}

/// Whom a study measures, where one can choose among them.
pub fn names(study: &str) -> Vec<&'static str> {
    match (study, calls(study)) {
        (_, Some(calls)) => calls.peers.iter().map(String::as_str).collect(),
        ("split" | "shares", _) => message_names().collect(),
        ("r2p2", _) => STUDIES.r2p2.choosers.iter().map(|chooser| chooser.name.as_str()).collect(),
        _ => Vec::new(),
    }
}

/// What of the field's these studies need.
pub fn libraries(studies: &[&str], plan: &Plan) -> Result<BTreeSet<&'static str>, Failure> {
    let own = studies.iter().filter_map(|study| own(study)).flat_map(|own| own.libraries);
    let mut libraries: BTreeSet<&'static str> = own.copied().collect();
    let peers = studies.iter().filter_map(|study| calls(study)).flat_map(|calls| &calls.peers);
    for name in peers.filter(|name| plan.wants(name)) {
        libraries.extend(peer(name)?.libraries());
    }
    Ok(libraries)
}

#[cfg(test)]
pub mod tests {
    //! The file names only what there is.
    use super::*;
    use crate::harness::work::{Work, named};
    use crate::peers::open::Shape;
    use crate::studies::interference::Disturbance;
    use clap::ValueEnum;

    #[test]
    fn the_file_is_read() {
        for run in runs() {
            for study in &run.studies {
                assert!(own(study).is_some() || calls(study).is_some(), "{}: {study}", run.name);
            }
        }
        for calls in &STUDIES.calls {
            assert!(calls.peers.iter().all(|name| peer(name).is_ok()), "{}", calls.name);
            assert!(calls.work.as_deref().is_none_or(|work| named::<Work>(work).is_ok()), "{}", calls.name);
        }
        assert!(named::<Shape>("bimodal").is_ok());
        assert!(OWN.iter().all(|own| STUDIES.sheet.iter().any(|sheet| sheet.key == own.name)));
    }

    /// Whether a study has such figures: a sheet of its, with the column and the rows.
    pub fn has_figures(sheet: &str, column: &str, rows: &[String]) -> Result<(), String> {
        let (columns, names) = figures(sheet).ok_or_else(|| format!("there is no sheet {sheet:?}"))?;
        if !columns.iter().any(|name| name == column) {
            return Err(format!("{sheet:?} has no column {column:?}"));
        }
        match rows.iter().find(|row| !names.contains(row)) {
            Some(row) => Err(format!("{sheet:?} has no row {row:?}")),
            None => Ok(()),
        }
    }

    /// The columns of a sheet, and the rows that marks may name.
    fn figures(sheet: &str) -> Option<(Vec<String>, Vec<String>)> {
        if let Some(calls) = calls(sheet) {
            return Some((calls.sheet().columns, calls.peers.clone()));
        }
        let key = sheet.split(' ').next()?;
        let columns = STUDIES.sheet.iter().find(|sheet| sheet.key == key)?.columns.clone();
        let servers = ["linked", "split"];
        let rows = match key {
            "idle" => vec!["100".to_owned()],
            "shares" => message_names()
                .flat_map(|name| ["struct", "C++", "gRPC C++ linked"].map(|how| format!("{name}, {how}")))
                .collect(),
            "split" => split::WORK_US.map(|us| us.to_string()).into(),
            "interference" => servers
                .into_iter()
                .flat_map(|of| {
                    Disturbance::value_variants().iter().map(move |by| interference::row_name(of, *by))
                })
                .collect(),
            "interrupts" => servers.map(str::to_owned).into(),
            key => names(key).into_iter().map(str::to_owned).collect(),
        };
        Some((columns, rows))
    }
}
