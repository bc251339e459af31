//! Hedging, over real sockets: eight workers, each a host of its own, one of them slow; calls that come as a Poisson
//! process through one daemon, which picks by least request. Once without hedging; then with a second attempt after the
//! time that 95 % of calls had taken. What comes of it is the 99th percentile of both, and what it costs: the calls
//! workers have seen beyond those that were made, as the workers count them.

use crate::children::{Child, Failure, Talker, text, wait_for_file, write_file};
use crate::open::{Answer, Load, Shape};
use crate::sections::Plan;
use crate::stats::Spread;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const WORKERS: usize = 8;
/// What a call takes at any of them, exponentially distributed; and what it takes longer at the slow one.
const MEAN_US: u64 = 2000;
const SLOW_US: u64 = 60_000;
/// Of what sixteen workers of one call each could do (`open.rs`): 1040 calls a second.
const PERCENT: u32 = 13;
/// A round is so many of the plan's: one call in a hundred is what is looked at.
const ROUND_FACTOR: u64 = 8;
/// The host's budget must not be what bounds it.
const ATTEMPTS_PERCENT: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(120);

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Hedging {
    /// The hedging delay: the 95th percentile without.
    pub delay_us: f64,
    pub alone_p50_us: Vec<f64>,
    pub alone_p99_us: Vec<f64>,
    pub hedged_p50_us: Vec<f64>,
    pub hedged_p99_us: Vec<f64>,
    /// Calls workers saw beyond those that were made, in percent of these.
    pub extra_percent: Vec<f64>,
    /// Calls of all rounds, and those of them that failed.
    pub calls: u64,
    pub failed: u64,
}

/// Measures it.
pub fn measure(plan: &Plan) -> Result<Hedging, Failure> {
    let dir = tempfile::tempdir()?;
    let mut workers = Workers::start(dir.path())?;
    let mut alone = Side::start(&dir, "alone", &workers.endpoints, None)?;
    let warm_up = Load { millis: plan.warm_up_millis.max(1000), ..load(plan, 0) };
    alone.ask(&warm_up)?;
    let delay_ns = alone.ask(&load(plan, 0))?.p95_ns;
    let mut hedged = Side::start(&dir, "hedged", &workers.endpoints, Some(delay_ns))?;
    hedged.ask(&warm_up)?;
    let mut all = Hedging { delay_us: us(delay_ns), ..Hedging::default() };
    for round in 1..=plan.rounds {
        let load = load(plan, round as u64);
        let without = alone.ask(&load)?;
        let before = workers.seen()?;
        let with = hedged.ask(&load)?;
        let extra = workers.seen()?.saturating_sub(before + with.calls);
        all.keep(&without, &with, extra);
        eprintln!(
            "hedging, round {round}: p99 {:.1} ms without, {:.1} ms with, {extra} extra calls for {}",
            us(without.took[1]) / 1e3,
            us(with.took[1]) / 1e3,
            with.calls
        );
    }
    Ok(all)
}

fn load(plan: &Plan, seed: u64) -> Load {
    let millis = plan.round_millis * ROUND_FACTOR;
    Load { shape: Shape::Exponential, mean_us: MEAN_US, percent: PERCENT, millis, seed }
}

/// The workers, which count.
struct Workers {
    talkers: Vec<Talker>,
    endpoints: Vec<String>,
}

impl Workers {
    fn start(dir: &Path) -> Result<Self, Failure> {
        let mut talkers = Vec::new();
        let mut endpoints = Vec::new();
        for worker in 0..WORKERS {
            let name = format!("worker{worker}");
            let slow_us = if worker == 0 { SLOW_US } else { 0 };
            let role = ["counted-sleeper", text(dir), &name, &slow_us.to_string()];
            talkers.push(Talker::start(&mut Child::role_command(&role)?)?);
            endpoints.push(wait_for_file(&dir.join(&name))?);
        }
        Ok(Self { talkers, endpoints })
    }

    /// Calls all of them have seen so far.
    fn seen(&mut self) -> Result<u64, Failure> {
        let mut seen = 0;
        for talker in &mut self.talkers {
            seen += talker.ask("seen", PATIENCE)?.trim().parse::<u64>()?;
        }
        Ok(seen)
    }
}

/// A daemon in front of the workers, and who calls through it.
struct Side {
    driver: Talker,
    _daemon: Child,
}

impl Side {
    fn start(dir: &TempDir, name: &str, workers: &[String], delay_ns: Option<u64>) -> Result<Self, Failure> {
        let socket = dir.path().join(format!("{name}.sock"));
        let hedging = delay_ns.map_or_else(String::new, |ns| {
            let delay = ns as f64 / 1e9;
            let policy =
                format!("\"hedgingPolicy\": {{\"maxAttempts\": 2, \"hedgingDelay\": \"{delay:.9}s\"}}");
            format!(", \"methodConfig\": [{{\"name\": [{{}}], {policy}}}]")
        });
        let config = format!(
            "[daemon]\nsocket = {:?}\n[limits]\nattempts_percent = {ATTEMPTS_PERCENT}\n\
             [services.\"sleep.v1.Sleep\"]\nendpoints = {workers:?}\nservice_config = '''\
             {{\"loadBalancingConfig\": [{{\"least_request_experimental\": {{}}}}]{hedging}}}'''\n",
            text(&socket)
        );
        let file = dir.path().join(format!("{name}.toml"));
        write_file(&file, &config)?;
        let daemon = Child::role(&["configured-daemon", text(&file)])?;
        let driver = Talker::start(&mut Child::role_command(&["drive-open", text(&socket), ""])?)?;
        Ok(Self { driver, _daemon: daemon })
    }

    fn ask(&mut self, load: &Load) -> Result<Answer, Failure> {
        self.driver.ask(&load.to_string(), PATIENCE)?.parse()
    }
}

impl Hedging {
    fn keep(&mut self, without: &Answer, with: &Answer, extra: u64) {
        self.alone_p50_us.push(us(without.took[0]));
        self.alone_p99_us.push(us(without.took[1]));
        self.hedged_p50_us.push(us(with.took[0]));
        self.hedged_p99_us.push(us(with.took[1]));
        self.extra_percent.push(extra as f64 / with.calls as f64 * 100.0);
        self.calls += without.calls + with.calls;
        self.failed += without.failed + with.failed;
    }

    /// As the documents have it.
    pub fn markdown(&self) -> String {
        let of = |values: &[f64]| {
            Spread::of(values.iter().copied()).map_or_else(String::new, |spread| spread.to_string())
        };
        let cut = Spread::of_ratio(&self.alone_p99_us, &self.hedged_p99_us);
        let cut = cut.map_or_else(String::new, |spread| spread.to_string());
        format!(
            "\n### Hedging after {:.1} ms, the 95th percentile; one of {WORKERS} workers takes {} ms longer\n\n\
             | | without | with |\n|---|---|---|\n| p50 µs | {} | {} |\n| p99 µs | {} | {} |\n\
             | p99 without ÷ with | | {cut} |\n| extra calls, % | | {} |\n\n{} calls, {} failed.\n",
            self.delay_us / 1e3,
            SLOW_US / 1000,
            of(&self.alone_p50_us),
            of(&self.hedged_p50_us),
            of(&self.alone_p99_us),
            of(&self.hedged_p99_us),
            of(&self.extra_percent),
            self.calls,
            self.failed,
        )
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
