//! The verbs that read files.

use crate::args::{CharacterizeArgs, DiffArgs, ExportArgs, FilesArgs, SynthArgs, WhatIfArgs};
use crate::load::load;
use crate::{output, publish, say};
use std::collections::BTreeMap;
use std::path::Path;
use trunkline_insight::estimate::WeightedValues;
use trunkline_insight::words::time;
use trunkline_insight::{
    EFFECT_CALLS_MIN, Fleet, FleetCall, Published, Synthetic, check_rows, differences, effects,
    export as formats, report, scaled, summary, synth as draw,
};

/// The study's numbers.
const STUDY: &str = include_str!("../data/fleet.toml");

/// `trunkline characterize`
///
/// # Errors
/// A file cannot be read or a page not written.
pub fn characterize(args: &CharacterizeArgs) -> Result<(), String> {
    let fleet = load(&args.files)?;
    let checked = if args.check { published(args.targets.as_deref())?.check(&fleet) } else { Vec::new() };
    if args.check {
        let head = ["figure", "target", "wanted", "got", "distance", "verdict"];
        print!(
            "{}{}\n{}",
            say::table(&head, &check_rows(&checked)),
            summary(&checked),
            say::footer(&fleet, fleet.calls.len())
        );
    }
    if let Some(folder) = &args.output {
        write(folder, "index.html", &report(&fleet, &checked))?;
        println!("{}", folder.join("index.html").display());
    }
    if let Some(folder) = &args.publish {
        for (name, picture) in publish::pictures(&fleet) {
            write(folder, &name, &picture)?;
        }
        write(folder, &format!("{}.md", publish::name(&fleet)), &publish::page(&fleet, &checked))?;
    }
    Ok(())
}

/// `trunkline synth`
///
/// # Errors
/// The targets are wrong, or the file cannot be written.
pub fn synth(args: &SynthArgs) -> Result<(), String> {
    let published = published(args.targets.as_deref())?;
    let how = Synthetic { methods: args.methods as usize, calls: args.calls as usize, seed: args.seed };
    let said = |error: std::io::Error| output::refusal(&args.out.output, &error);
    let mut file = std::io::BufWriter::new(output::create(&args.out)?);
    let blocks = draw(&published, &how);
    for block in &blocks {
        std::io::Write::write_all(&mut file, &block.encode()).map_err(said)?;
    }
    std::io::Write::flush(&mut file).map_err(said)?;
    let calls: usize = blocks.iter().map(|block| block.rows.len()).sum();
    println!(
        "{}: {calls} generated calls of {} methods; nothing was measured",
        args.out.output.display(),
        args.methods
    );
    Ok(())
}

fn published(path: Option<&Path>) -> Result<Published, String> {
    let Some(path) = path else { return Published::parse(STUDY) };
    let said = |problem: String| format!("{}: {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| said(error.to_string()))?;
    Published::parse(&text).map_err(said)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = folder.join(name);
    if folder.exists() && !folder.is_dir() {
        return Err(format!("{}: a file is there, and pages need a folder: name another", folder.display()));
    }
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// `trunkline whatif`
///
/// # Errors
/// A file cannot be read, or there are too few calls.
pub fn what_if(args: &WhatIfArgs) -> Result<(), String> {
    let fleet = load(&args.files.files)?;
    let calls = chosen(&fleet, &args.of.method)?;
    if args.set.is_empty() {
        let found = effects(&calls);
        print!("{}{}", say::effects(&found, args.def), say::verdict(&found));
    } else {
        print!("{}", say::scaled(scaled(&calls, &args.set)));
    }
    print!("{}", say::footer(&fleet, calls.len()));
    Ok(())
}

/// `trunkline diff`
///
/// # Errors
/// As [`what_if`].
pub fn diff(args: &DiffArgs) -> Result<(), String> {
    let before = load(std::slice::from_ref(&args.before))?;
    let after = load(std::slice::from_ref(&args.after))?;
    let of = |fleet, path: &std::path::Path| {
        chosen(fleet, &args.of.method).map_err(|problem| format!("{}: {problem}", path.display()))
    };
    let (first, second) = (of(&before, &args.before)?, of(&after, &args.after)?);
    print!("{}", say::differences(&differences(&first, &second)));
    print!("before: {}after: {}", say::footer(&before, first.len()), say::footer(&after, second.len()));
    Ok(())
}

/// `trunkline clock`
///
/// # Errors
/// A file cannot be read, or no call went between hosts.
pub fn clock(args: &FilesArgs) -> Result<(), String> {
    let fleet = load(&args.files)?;
    let mut found: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for call in fleet.whole().filter(|call| !is_local(&fleet, call)) {
        let half_width = match call.row.half_width_ns {
            u32::MAX => f64::MAX,
            ns => f64::from(ns) * 1e-9,
        };
        let host = fleet.heads[call.block as usize].host.as_str();
        found.entry((host, fleet.peer(call))).or_default().push((half_width, call.weight));
    }
    if found.is_empty() {
        return Err(
            "no recorded call went between two hosts whose daemons both stamp, so there is one clock".into(),
        );
    }
    let rows: Vec<Vec<String>> = found
        .into_iter()
        .map(|((host, peer), values)| {
            let values = WeightedValues::of(values);
            let said = |part| match values.quantile(part) {
                f64::MAX => "not known".to_owned(),
                0.0 => "one clock".to_owned(),
                seconds => time(seconds),
            };
            vec![host.to_owned(), peer.to_owned(), values.len().to_string(), said(0.5), said(0.99)]
        })
        .collect();
    print!("{}", say::table(&["host", "other host", "calls", "half-width P50", "P99"], &rows));
    print!("{}", say::footer(&fleet, fleet.whole().count()));
    Ok(())
}

/// `trunkline export`
///
/// # Errors
/// A file cannot be read or written.
pub fn export(args: &ExportArgs) -> Result<(), String> {
    let fleet = load(&args.files.files)?;
    let text = match args {
        ExportArgs { parquet: true, output: Some(path), .. } => return export_parquet(args, path, &fleet),
        ExportArgs { csv: true, .. } => formats::csv(&fleet),
        ExportArgs { jaeger: true, .. } => formats::jaeger(&fleet),
        _ => formats::perfetto(&fleet),
    };
    match &args.output {
        Some(path) => {
            let begin = &text.as_bytes()[..text.len().min(4)];
            output::replace(path, &args.files.files, begin, args.force, |mut file| {
                std::io::Write::write_all(&mut file, text.as_bytes())
            })
        }
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

#[cfg(feature = "parquet")]
fn export_parquet(args: &ExportArgs, path: &Path, fleet: &Fleet) -> Result<(), String> {
    output::replace(path, &args.files.files, b"PAR1", args.force, |file| formats::parquet(fleet, file))
}

#[cfg(not(feature = "parquet"))]
fn export_parquet(_: &ExportArgs, _: &Path, _: &Fleet) -> Result<(), String> {
    Err("this program was built without Parquet: build it with the cargo feature `parquet` of trunkline-cli"
        .into())
}

fn is_local(fleet: &Fleet, call: &FleetCall) -> bool {
    call.row.components.coverage == trunkline_telemetry::Coverage::OneHost || fleet.peer(call) == "(local)"
}

/// Calls of methods whose path contains this, of which every component was measured.
fn chosen<'a>(fleet: &'a Fleet, method: &str) -> Result<Vec<&'a FleetCall>, String> {
    let calls: Vec<_> = fleet.whole().filter(|call| fleet.name(call.method).contains(method)).collect();
    if calls.len() >= EFFECT_CALLS_MIN {
        return Ok(calls);
    }
    if !method.is_empty() && !fleet.methods.iter().any(|name| name.contains(method)) {
        return Err(format!(
            "no recorded call of {method:?}; methods there are: {}",
            fleet.methods.join(", ")
        ));
    }
    Err(format!(
        "{} calls that ended well were measured whole, and it takes {EFFECT_CALLS_MIN}: record for longer, or with a \
         higher --rate",
        calls.len()
    ))
}
