//! Hedging, over real sockets: eight workers, each a host of its own, one of them slow; calls that come as a Poisson
//! process through one daemon, which picks by least request. Once without hedging; then with a second attempt after the
//! time that 95 % of calls had taken. What comes of it is the 99th percentile of both, and what it costs: the calls
//! workers have seen beyond those that were made, as the workers count them.

use super::data::sheet;
use crate::harness::children::{Child, Failure, Talker, role_command, text};
use crate::harness::rounds::{Plan, Turns};
use crate::peers::foreign::Foreign;
use crate::peers::open::{self, Answer, Load, Shape};
use crate::peers::{hosts, sleepers};
use crate::report::sheet::Results;
use std::path::Path;
use std::time::Duration;
use trunkline_measure::{Spread, us};

const WORKERS: usize = 8;
/// Calls a worker has at work at once: more than ever are.
const THREADS: usize = 8;
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

/// Measures it.
pub fn measure(plan: &Plan, _: &Foreign) -> Result<Results, Failure> {
    let dir = tempfile::tempdir()?;
    let mut workers = Workers::start(dir.path())?;
    let mut alone = Side::start(dir.path(), "without", &workers.endpoints, None)?;
    let warm_up = Load { millis: plan.warm_up_millis.max(1000), ..load(plan, 0) };
    alone.ask(&warm_up)?;
    let delay_ns = alone.ask(&load(plan, 0))?.p95_ns;
    let mut hedged = Side::start(dir.path(), "with", &workers.endpoints, Some(delay_ns))?;
    hedged.ask(&warm_up)?;
    let mut turns = Turns::new("hedging", plan);
    let mut sides = turns.start([("without", alone), ("with", hedged)], Ok);
    let delay = format!("{:.1}", us(delay_ns) / 1e3);
    let sheet = sheet("hedging", &[("delay", &delay), ("workers", &WORKERS), ("slow", &(SLOW_US / 1000))])?;
    let rows = turns.whole_rounds(&sheet.columns, &mut sides, |side, round| {
        let before = workers.seen()?;
        let answer = side.ask(&load(plan, round as u64))?;
        let extra = workers.seen()?.saturating_sub(before + answer.calls) as f64;
        let calls = answer.calls as f64;
        Ok(vec![us(answer.took[0]), us(answer.took[1]), extra / calls * 100.0, calls, answer.failed as f64])
    });
    let mut sheet = sheet.with(rows);
    let p99 = |row| sheet.values("p99 µs", row).unwrap_or_default();
    let cut = Spread::of_ratio(p99("without"), p99("with"));
    sheet.notes.extend(cut.map(|cut| format!("p99 without ÷ with: {cut}.")));
    Ok(Results { sheets: vec![sheet], absent: turns.absent })
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
        let (mut talkers, mut endpoints) = (Vec::new(), Vec::new());
        for worker in 0..WORKERS {
            let name = format!("worker{worker}");
            let slow_us = if worker == 0 { SLOW_US } else { 0 };
            let (talker, mut all) = sleepers::start(dir, &name, None, "", THREADS, slow_us)?;
            talkers.push(talker);
            endpoints.append(&mut all);
        }
        Ok(Self { talkers, endpoints })
    }

    /// Calls all of them have seen so far.
    fn seen(&mut self) -> Result<u64, Failure> {
        let seen = |talker: &mut Talker| Ok(talker.ask("seen", PATIENCE)?.trim().parse::<u64>()?);
        self.talkers.iter_mut().map(seen).sum()
    }
}

/// A daemon in front of the workers, and who calls through it.
struct Side {
    driver: Talker,
    _daemon: Child,
}

impl Side {
    fn start(dir: &Path, name: &str, workers: &[String], delay_ns: Option<u64>) -> Result<Self, Failure> {
        let hedging = delay_ns.map_or_else(String::new, |ns| {
            let delay = ns as f64 / 1e9;
            let policy =
                format!("\"hedgingPolicy\": {{\"maxAttempts\": 2, \"hedgingDelay\": \"{delay:.9}s\"}}");
            format!(", \"methodConfig\": [{{\"name\": [{{}}], {policy}}}]")
        });
        let config = format!(
            "[limits]\nattempts_percent = {ATTEMPTS_PERCENT}\n\
             [services.\"sleep.v1.Sleep\"]\nendpoints = {workers:?}\nservice_config = '''\
             {{\"loadBalancingConfig\": [{{\"least_request_experimental\": {{}}}}]{hedging}}}'''\n"
        );
        let host = hosts::start_host(dir, name, "", &config)?;
        let driver = Talker::start(&mut role_command(&["drive-open", text(&host.socket), ""])?)?;
        Ok(Self { driver, _daemon: host.process })
    }

    fn ask(&mut self, load: &Load) -> Result<Answer, Failure> {
        open::ask(&mut self.driver, load, PATIENCE)
    }
}
