//! Which studies there are, and what a run of the command line consists of.

use super::data::{CallsData, RunData, STUDIES};
use super::{beside, bind, connections, hedging, idle, interference, r2p2, scaling, shares, split};
use crate::harness::children::Failure;
use crate::harness::rounds::Plan;
use crate::peers::data::peer;
use crate::peers::foreign::Foreign;
use crate::peers::messages::message_names;
use crate::report::sheet::Results;

/// What can be asked for, by name.
pub fn runs() -> &'static [RunData] {
    &STUDIES.run
}

fn calls(study: &str) -> Option<&'static CallsData> {
    STUDIES.calls.iter().find(|calls| calls.name == study)
}

/// Measures a study.
pub fn measure(study: &str, plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
    match (study, calls(study)) {
        (_, Some(calls)) => calls.measure(plan, foreign),
        ("idle", _) => idle::measure(plan),
        ("connections", _) => connections::measure(plan, foreign),
        ("scaling", _) => scaling::measure(plan),
        ("beside", _) => beside::measure(plan),
        ("hedging", _) => hedging::measure(plan),
        ("bind", _) => bind::measure(plan),
        ("split", _) => split::measure(plan, foreign),
        ("interference", _) => interference::measure(plan, foreign),
        ("shares", _) => Ok(shares::measure(plan, foreign)),
        ("r2p2", _) => r2p2::measure(plan, foreign),
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

/// What of the field's a study needs.
pub fn libraries(study: &str, plan: &Plan) -> Result<Vec<&'static str>, Failure> {
    let mut libraries = match study {
        "connections" => vec!["envoy", "grpc-go", "grpc-cpp", "tonic"],
        "split" | "shares" | "interference" => vec!["split"],
        "r2p2" => vec!["nginx", "haproxy"],
        _ => Vec::new(),
    };
    let peers = calls(study).into_iter().flat_map(|calls| &calls.peers);
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
                let own = [
                    "idle",
                    "connections",
                    "scaling",
                    "beside",
                    "hedging",
                    "bind",
                    "split",
                    "shares",
                    "interference",
                    "r2p2",
                ];
                assert!(own.contains(&study.as_str()) || calls(study).is_some(), "{}: {study}", run.name);
            }
        }
        for calls in &STUDIES.calls {
            assert!(calls.peers.iter().all(|name| peer(name).is_ok()), "{}", calls.name);
            assert!(calls.work.as_deref().is_none_or(|work| named::<Work>(work).is_ok()), "{}", calls.name);
        }
        assert!(named::<Shape>("bimodal").is_ok());
    }

    /// Whether a study has such figures: a sheet of its, with the column and the rows.
    pub fn has_figures(sheet: &str, column: &str, rows: &[String]) -> Result<(), String> {
        let of = |columns: &[&str], names: &[&str]| {
            if !columns.contains(&column) {
                return Err(format!("{sheet:?} has no column {column:?}"));
            }
            let lacks = |row: &&String| !names.contains(&row.as_str());
            rows.iter().find(lacks).map_or(Ok(()), |row| Err(format!("{sheet:?} has no row {row:?}")))
        };
        if let Some(calls) = calls(sheet) {
            let columns = calls.sheet().columns;
            return of(&columns.iter().map(String::as_str).collect::<Vec<_>>(), &names(sheet));
        }
        match sheet.split(' ').next().unwrap_or_default() {
            "idle" => of(&idle::COLUMNS, &["100"]),
            "r2p2" => of(&r2p2::COLUMNS, &names("r2p2")),
            "shares" => {
                let rows = message_names().flat_map(|name| {
                    ["struct", "C++", "gRPC C++ linked"].map(|how| format!("{name}, {how}"))
                });
                of(&shares::COLUMNS, &rows.collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>())
            }
            "split" => {
                let (columns, rows) = (split::empty("", 0).columns, split::WORK_US.map(|us| us.to_string()));
                let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
                of(&columns, &rows.each_ref().map(String::as_str))
            }
            "interference" => {
                let rows = ["linked", "split"].into_iter().flat_map(|server| {
                    Disturbance::value_variants().iter().map(move |of| interference::row_name(server, *of))
                });
                let rows: Vec<String> = rows.collect();
                of(&interference::COLUMNS, &rows.iter().map(String::as_str).collect::<Vec<_>>())
            }
            "interrupts" => of(&interference::INTERRUPTS, &["linked", "split"]),
            _ => Err(format!("there is no sheet {sheet:?}")),
        }
    }
}
