//! A run as a whole: what was measured, on what, against which marks; to JSON, to Markdown for the documents, to a
//! page.

use super::marks::{Mark, marks};
use super::page::page;
use super::sheet::Sheet;
use crate::harness::children::Failure;
use crate::harness::rounds::{Absent, Plan};
use crate::harness::shell::output;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::fs::read_to_string;
use std::path::Path;

/// Everything a run says.
#[derive(Debug, Serialize)]
pub struct Report {
    pub about: About,
    pub marks: Vec<Mark>,
    pub sheets: Vec<Sheet>,
    /// The codec's comparison, if its program left one.
    pub codec: Option<Value>,
    pub absent: Vec<Absent>,
}

/// What has to be known to repeat it.
#[derive(Debug, Serialize)]
pub struct About {
    command: String,
    plan: Plan,
    machine: String,
    cores: usize,
    kernel: String,
    /// Load average when it began and when it ended: other work on the machine.
    load: [String; 2],
    versions: Vec<String>,
}

impl About {
    /// As it is now; the load at the end is still to come. `versions` are those of what is not ours.
    pub fn now(plan: &Plan, versions: impl IntoIterator<Item = String>) -> Self {
        let mut all = vec![format!("trunkline {}", env!("CARGO_PKG_VERSION"))];
        let commit = output("git", &["rev-parse", "--short", "HEAD"]);
        all.extend(commit.map(|commit| format!("commit {commit}")));
        all.extend(output("rustc", &["--version"]));
        all.extend(versions);
        let words = std::env::args().skip(1);
        Self {
            command: words.fold("trunkline-bench".to_owned(), |line, word| line + " " + &word),
            plan: plan.clone(),
            machine: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            load: [load(), String::new()],
            versions: all,
        }
    }

    /// For people.
    pub fn lines(&self) -> [String; 5] {
        let Self { command, plan, machine, cores, kernel, load: [before, after], versions } = self;
        [
            format!("`{command}`"),
            format!(
                "{} rounds of {} ms for each peer, taking turns; nothing pinned",
                plan.rounds, plan.round_millis
            ),
            format!("{machine}, {cores} cores, Linux {kernel}"),
            format!("load when it began {before}, when it ended {after}"),
            versions.join("; "),
        ]
    }
}

/// The load averages over 1, 5 and 15 minutes.
fn load() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn processor() -> String {
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

impl Report {
    /// A run that has just ended.
    pub fn of(
        mut about: About,
        sheets: Vec<Sheet>,
        absent: Vec<Absent>,
        codec: Option<Value>,
    ) -> Result<Self, Failure> {
        about.load[1] = load();
        Ok(Self { about, marks: marks(&sheets)?, sheets, codec, absent })
    }

    /// Writes results.json, report.html and tables.md.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        std::fs::write(folder.join("results.json"), serde_json::to_string_pretty(self)? + "\n")?;
        let about: Vec<String> = self.about.lines().into_iter().chain(self.absent_lines()).collect();
        std::fs::write(folder.join("report.html"), page(&self.marks, &self.sheets, &about))?;
        Ok(std::fs::write(folder.join("tables.md"), self.markdown())?)
    }

    /// The tables as a page of docs/measured; `what` was asked for.
    pub fn published(&self, what: &str) -> String {
        let command = if what == "all" { "make bench".to_owned() } else { format!("make bench ONLY={what}") };
        let note = format!("<!-- Written by `{command} PUBLISH=docs/measured`; not edited. -->");
        format!("# {command}\n\n{note}\n\n{}", self.markdown())
    }

    /// Tables.
    pub fn markdown(&self) -> String {
        let mut text: String = self.about.lines().iter().map(|line| format!("* {line}\n")).collect();
        text += "\n| target | what | wanted | measured: median (least–most) | |\n|---|---|---|---|---|\n";
        for mark in &self.marks {
            let Mark { target, what, wanted, measured, reached } = mark;
            let verdict = mark.verdict();
            let verdict = if *reached == Some(false) { format!("**{verdict}**") } else { verdict.to_owned() };
            // Writing to a string does not fail.
            let _ = writeln!(text, "| {target} | {what} | {wanted} | {measured} | {verdict} |");
        }
        text += &self.sheets.iter().map(Sheet::markdown).collect::<String>();
        text + &self.absent_lines().map(|line| format!("\n{line}\n")).collect::<String>()
    }

    /// Who is absent, for people.
    pub fn absent_lines(&self) -> impl Iterator<Item = String> {
        self.absent
            .iter()
            .map(|Absent { study, name, reason }| format!("Absent from {study}: {name} ({reason})"))
    }
}
