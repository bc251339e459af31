//! The verbs that read files.

use crate::args::{CharacterizeArgs, DiffArgs, ExportArgs, FilesArgs, SynthArgs, WhatIfArgs};
use crate::load::{bytes_within, load, load_calls};
use crate::{output, publish, say};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use trunkline_insight::estimate::WeightedValues;
use trunkline_insight::words::time;
use trunkline_insight::{
    CommonSides, EFFECT_CALLS_MIN, Fleet, FleetCall, Published, Synthetic, check_rows, differences, effects,
    export as formats, report, scaled, summary, synth as draw,
};
use trunkline_telemetry::Coverage;

/// Targets in a file are a page of text.
const TARGETS_BYTES_MAX: u64 = 1 << 20;
/// The study's numbers.
const STUDY: &str = include_str!("../data/fleet.toml");

/// `trunkline characterize`
///
/// # Errors
/// A file cannot be read or a page not written.
pub fn characterize(args: &CharacterizeArgs) -> Result<(), String> {
    let fleet = if args.check { load_calls(&args.files)? } else { load(&args.files)? };
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
    let said = |error: io::Error| output::refusal(&args.out.output, &error);
    let mut file = io::BufWriter::new(output::create(&args.out)?);
    let blocks = draw(&published, &how);
    for block in &blocks {
        file.write_all(&block.encode()).map_err(said)?;
    }
    file.flush().map_err(said)?;
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
    let bytes = bytes_within(path, TARGETS_BYTES_MAX, "targets of figures are a short list")?;
    let text = String::from_utf8(bytes).map_err(|_| said("it is not UTF-8 text".into()))?;
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
    let fleet = load_calls(&args.files.files)?;
    let divided = fleet.divided(|call| fleet.name(call.method).contains(&args.of.method));
    let words = divided.words();
    let calls = enough(&fleet, divided.calls, &args.of.method)?;
    if args.set.is_empty() {
        let found = effects(&calls);
        print!("{}{}", say::effects(&found, args.def), say::verdict(&found));
    } else {
        print!("{}", say::scaled(scaled(&calls, &args.set)));
    }
    words.into_iter().for_each(|words| println!("{words}"));
    print!("{}", say::footer(&fleet, calls.len()));
    Ok(())
}

/// `trunkline diff`
///
/// # Errors
/// As [`what_if`].
pub fn diff(args: &DiffArgs) -> Result<(), String> {
    let before = load_calls(std::slice::from_ref(&args.before))?;
    let after = load_calls(std::slice::from_ref(&args.after))?;
    let sides = CommonSides::of(&before, &after, &args.of.method);
    sides.check()?;
    let of = |fleet, path: &Path| {
        let said = |problem| format!("{}: {problem}; compared: {}", path.display(), sides.words());
        enough(fleet, sides.calls(fleet), &args.of.method).map_err(said)
    };
    let (first, second) = (of(&before, &args.before)?, of(&after, &args.after)?);
    print!("{}", say::differences(&differences(&first, &second)));
    println!("compared: {}", sides.words());
    print!("before: {}after: {}", say::footer(&before, first.len()), say::footer(&after, second.len()));
    Ok(())
}

/// `trunkline clock`
///
/// # Errors
/// A file cannot be read, or no call went between hosts.
pub fn clock(args: &FilesArgs) -> Result<(), String> {
    let fleet = load_calls(&args.files)?;
    let mut found: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for call in fleet.whole().filter(|call| has_two_clocks(&fleet, call)) {
        let half_width = match call.row.half_width_ns {
            u32::MAX => f64::MAX,
            ns => f64::from(ns) * 1e-9,
        };
        let host = fleet.heads[call.block as usize].host.as_str();
        found.entry((host, fleet.peer(call))).or_default().push((half_width, call.weight));
    }
    if found.is_empty() {
        return Err(no_clocks(&fleet));
    }
    let looked_at = found.values().map(Vec::len).sum();
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
    print!("{}", say::footer(&fleet, looked_at));
    Ok(())
}

/// Writes the calls of a fleet in a text format.
type WriteCalls = fn(&Fleet, &mut dyn Write) -> io::Result<()>;

/// `trunkline export`
///
/// # Errors
/// A file cannot be read or written.
pub fn export(args: &ExportArgs) -> Result<(), String> {
    let fleet = load(&args.files.files)?;
    if let ExportArgs { parquet: true, output: Some(path), .. } = args {
        return export_parquet(args, path, &fleet);
    }
    let (begin, write): (&[u8], WriteCalls) = match args {
        ExportArgs { csv: true, .. } => (b"host", |fleet, mut to| formats::csv(fleet, &mut to)),
        ExportArgs { jaeger: true, .. } => (b"{\"da", |fleet, mut to| formats::jaeger(fleet, &mut to)),
        _ => (b"{\"di", |fleet, mut to| formats::perfetto(fleet, &mut to)),
    };
    match &args.output {
        Some(path) => output::replace(path, &args.files.files, begin, args.force, |file| {
            let mut file = io::BufWriter::new(file);
            write(&fleet, &mut file)?;
            file.flush()
        }),
        None => output::print(|to| write(&fleet, to)),
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

/// Whether a call went from one clock to another, and both hosts stamped it.
fn has_two_clocks(fleet: &Fleet, call: &FleetCall) -> bool {
    call.row.components.coverage == Coverage::Whole && fleet.peer(call) != "(local)"
}

/// Why nothing is said of clocks.
fn no_clocks(fleet: &Fleet) -> String {
    let stayed =
        |call: &FleetCall| matches!(call.row.components.coverage, Coverage::OneHost | Coverage::Stayed);
    match fleet.each_once().all(stayed) {
        true => "no recorded call went between two hosts, so there is one clock".into(),
        false => "no recorded call has the stamps of both hosts, and nothing was measured of their clocks: record at \
                  the host that makes the calls; one without a daemon has no stamps"
            .into(),
    }
}

/// These calls of methods whose path contains this, if they are enough to say something.
fn enough<'a>(fleet: &Fleet, calls: Vec<&'a FleetCall>, method: &str) -> Result<Vec<&'a FleetCall>, String> {
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
