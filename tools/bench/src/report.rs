//! A run as a whole: what was measured, on what, against which marks; to JSON, and to Markdown for the documents.

use crate::beside::Beside;
use crate::binding::Bound;
use crate::children::Failure;
use crate::connections::{self, Held};
use crate::dispatch::Dispatching;
use crate::foreign::{Foreign, output};
use crate::hedging::Hedging;
use crate::idle::Idle;
use crate::marks::Mark;
use crate::orders::Order;
use crate::peers::Kind;
use crate::scaling::{self, Scaled};
use crate::sections::{Absent, Figure, Plan, Row, Section, Shape};
use crate::shares::{self, Shared};
use crate::split::{self, Worked};
use crate::stats::{Spread, short};
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
    pub rows: Vec<Row>,
    pub idle: Option<Idle>,
    /// Memory of idle gRPC connections; empty if not asked for.
    pub connections: Vec<Held>,
    /// Workers behind routers and proxies.
    pub dispatching: Option<Dispatching>,
    /// Empty if not asked for.
    pub scaling: Vec<Scaled>,
    pub beside: Option<Beside>,
    pub hedging: Option<Hedging>,
    pub binding: Option<Bound>,
    /// Empty if not asked for.
    pub split: Vec<Worked>,
    /// Empty if not asked for, or without `perf`.
    pub shares: Vec<Shared>,
    /// The codec's comparison, if its program left one.
    pub codec: Option<Value>,
    pub absent: Vec<Absent>,
}

/// What has to be known to repeat it.
#[derive(Debug, Serialize)]
pub struct About {
    pub command: String,
    pub plan: Plan,
    pub machine: String,
    pub cores: usize,
    pub kernel: String,
    /// Load average when it began and when it ended: other work on the machine.
    pub load: [String; 2],
    pub versions: Vec<String>,
}

impl About {
    /// As it is now; the load at the end is still to come.
    pub fn now(plan: &Plan, foreign: &Foreign) -> Self {
        let mut versions = vec![format!("trunkline {}", env!("CARGO_PKG_VERSION"))];
        versions.extend(
            output("git", &["rev-parse", "--short", "HEAD"]).map(|commit| format!("commit {commit}")),
        );
        versions.extend(output("rustc", &["--version"]));
        versions.extend(foreign.versions());
        Self {
            command: std::env::args()
                .skip(1)
                .fold("trunkline-bench".to_owned(), |line, word| line + " " + &word),
            plan: plan.clone(),
            machine: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            load: [load(), String::new()],
            versions,
        }
    }
}

/// The load averages over 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn processor() -> String {
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

impl Report {
    /// Writes JSON.
    pub fn write_json(&self, path: &Path) -> Result<(), Failure> {
        Ok(std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?)
    }

    /// The tables as a page of docs/measured; `what` is the section that was asked for.
    pub fn page(&self, what: &str) -> String {
        let command = if what == "all" { "make bench".to_owned() } else { format!("make bench ONLY={what}") };
        let note = format!("<!-- Written by `{command} PUBLISH=docs/measured`; not edited. -->");
        format!("# {command}\n\n{note}\n\n{}", self.markdown())
    }

    /// Tables.
    pub fn markdown(&self) -> String {
        let mut text = self.about_markdown();
        text += "\n| target | what | wanted | measured: median (least–most) | |\n|---|---|---|---|---|\n";
        for Mark { target, what, wanted, measured, reached } in &self.marks {
            let verdict = match reached {
                Some(true) => "reached",
                Some(false) => "**not reached**",
                None => "",
            };
            line(&mut text, format_args!("| {target} | {what} | {wanted} | {measured} | {verdict} |"));
        }
        for section in Section::ALL {
            text += &match section.shape() {
                Shape::Small => self.small_markdown(section),
                Shape::Sized(figure) => self.sized_markdown(section, figure),
            };
            text += &self.lost_markdown(section);
        }
        if let Some(idle) = &self.idle {
            text += &idle_markdown(idle);
        }
        text += &connections::markdown(&self.connections);
        if let Some(dispatching) = &self.dispatching {
            text += &dispatching.markdown();
        }
        text += &self.extras().concat();
        for Absent { section, peer, reason } in &self.absent {
            line(&mut text, format_args!("\nAbsent from {section:?}: {} ({reason})", peer.name()));
        }
        text
    }

    fn about_markdown(&self) -> String {
        let About { command, plan, machine, cores, kernel, load, versions } = &self.about;
        let mut text = String::new();
        line(&mut text, format_args!("* `{command}`"));
        let (rounds, millis) = (plan.rounds, plan.round_millis);
        line(
            &mut text,
            format_args!("* {rounds} rounds of {millis} ms for each peer, taking turns; nothing pinned"),
        );
        line(&mut text, format_args!("* {machine}, {cores} cores, Linux {kernel}"));
        line(&mut text, format_args!("* load when it began {}, when it ended {}", load[0], load[1]));
        line(&mut text, format_args!("* {}", versions.join("; ")));
        text
    }

    fn small_markdown(&self, section: Section) -> String {
        let rows: Vec<&Row> = self.of(section).collect();
        if rows.is_empty() {
            return String::new();
        }
        let figures: &[Figure] = if section.is_rate() {
            &[Figure::CallsPerSecond, Figure::CpuUsPerCall, Figure::P50Us, Figure::P99Us]
        } else {
            &[Figure::P50Us, Figure::P99Us, Figure::CpuUsPerCall]
        };
        let mut text = format!("\n### {}\n\n| peer | what it is |", section.title());
        for figure in figures {
            text += &format!(" {} |", figure.name());
        }
        text += &format!("\n|---|---|{}\n", "---|".repeat(figures.len()));
        for row in rows {
            text += &format!("| {} | {} |", row.peer.name(), row.peer.describe());
            for figure in figures {
                text += &format!(" {} |", cell(row, *figure));
            }
            text.push('\n');
        }
        text
    }

    fn sized_markdown(&self, section: Section, figure: Figure) -> String {
        let mut peers: Vec<Kind> = Vec::new();
        let mut orders: Vec<Order> = Vec::new();
        for row in self.of(section) {
            if !peers.contains(&row.peer) {
                peers.push(row.peer);
            }
            if !orders.contains(&row.order) {
                orders.push(row.order);
            }
        }
        if orders.is_empty() {
            return String::new();
        }
        let mut text = format!("\n### {}\n\n| peer |", section.title());
        for order in &orders {
            text += &format!(" {} |", section.size(*order));
        }
        text += &format!("\n|---|{}\n", "---|".repeat(orders.len()));
        for peer in peers {
            text += &format!("| {} |", peer.name());
            for order in &orders {
                let row = self.of(section).find(|row| row.peer == peer && row.order == *order);
                text += &format!(" {} |", row.map_or_else(String::new, |row| cell(row, figure)));
            }
            text.push('\n');
        }
        text
    }

    /// How quiet the machine was: without it nobody knows what a round is worth.
    fn lost_markdown(&self, section: Section) -> String {
        let lost = |of: usize| {
            let rounds = self.of(section).flat_map(|row| &row.samples);
            Spread::of(rounds.map(|sample| sample.lost_percent[of]))
        };
        let (Some(stolen), Some(others)) = (lost(0), lost(1)) else { return String::new() };
        format!(
            "\nMeanwhile the machine's host gave {stolen} % of the processors to others, and other processes took \
             {others} %.\n"
        )
    }

    /// Tables of what is not a section.
    pub fn extras(&self) -> Vec<String> {
        let scaling = (!self.scaling.is_empty()).then(|| scaling::markdown(&self.scaling));
        let beside = self.beside.as_ref().map(Beside::markdown);
        let hedging = self.hedging.as_ref().map(Hedging::markdown);
        let binding = self.binding.as_ref().map(Bound::markdown);
        let split = (!self.split.is_empty()).then(|| split::markdown(&self.split));
        let shares = (!self.shares.is_empty()).then(|| shares::markdown(&self.shares));
        [scaling, beside, hedging, binding, split, shares].into_iter().flatten().collect()
    }

    /// The rows of a section.
    pub fn of(&self, section: Section) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.section == section)
    }
}

fn idle_markdown(idle: &Idle) -> String {
    let kib = |bytes: f64| short(bytes / 1024.0);
    format!(
        "\n### {} idle applications, {:.0} s\n\n\
         | daemon's CPU | applications' CPU, all together | daemon's memory each | application's memory each |\n\
         |---|---|---|---|\n| {} % of a core | {} % of a core | {} KiB | {} KiB |\n",
        idle.applications,
        idle.seconds,
        short(idle.daemon_cpu_percent),
        short(idle.applications_cpu_percent),
        kib(idle.daemon_bytes_each),
        kib(idle.application_bytes_each)
    )
}

fn cell(row: &Row, figure: Figure) -> String {
    Spread::of(row.values(figure)).map_or_else(String::new, |spread| spread.to_string())
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}
