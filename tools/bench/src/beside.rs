//! A small call beside bulk streams: what it takes alone, and what it takes while eight streams of 1 MiB messages leave
//! the same host for the same host, from another application to another service. Alone and beside take turns.

use crate::children::{Child, Failure, Talker, text};
use crate::orders::{Answer, Order};
use crate::ours::{self, Hosts, Policing};
use crate::sections::Plan;
use crate::stats::Spread;
use serde::Serialize;
use std::time::Duration;
use tempfile::TempDir;

const STREAMS: usize = 8;
const MESSAGE_BYTES: usize = 1 << 20;
/// The streams begin so long before the small calls and end so long after.
const AROUND: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// What was measured without priority classes and with them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Beside {
    pub without_classes: Taken,
    pub with_classes: Taken,
}

/// What the small call took, by round, and what the streams moved meanwhile.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Taken {
    pub alone_p50_us: Vec<f64>,
    pub alone_p99_us: Vec<f64>,
    pub beside_p50_us: Vec<f64>,
    pub beside_p99_us: Vec<f64>,
    pub streams_gigabits_per_second: Vec<f64>,
}

/// Measures it.
pub fn measure(plan: &Plan) -> Result<Beside, Failure> {
    let mut roads = [Policing::Bare, Policing::Classes].map(|policing| Stage::set(plan, policing));
    let mut taken = Beside::default();
    for round in 0..plan.rounds {
        let [without, with] = &mut roads;
        for (name, stage, taken) in
            [("without", without, &mut taken.without_classes), ("with", with, &mut taken.with_classes)]
        {
            let stage = stage.as_mut().map_err(|failure| failure.to_string())?;
            let (alone, beside, poured) = stage.round(plan)?;
            taken.keep(alone, beside, poured);
            eprintln!(
                "beside, {name} classes, round {}: p99 {:.1} µs alone, {:.1} µs beside",
                round + 1,
                us(alone.p99_ns),
                us(beside.p99_ns)
            );
        }
    }
    Ok(taken)
}

/// Two hosts, who calls, and who pours.
struct Stage {
    small: Talker,
    bulk: Talker,
    _processes: Vec<Child>,
    _dir: TempDir,
}

impl Stage {
    fn set(plan: &Plan, policing: Policing) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let (mut processes, road) = ours::start_policed(dir.path(), Hosts::Two, policing)?;
        let far = dir.path().join("far.sock");
        processes.push(Child::role(&["serve-bulk", text(&far)])?);
        let small = ["drive-ours", text(&road.socket), &road.target, "bytes"];
        let mut small = Talker::start(&mut Child::role_command(&small)?)?;
        let pour = ["pour", text(&road.socket), &road.target];
        let mut bulk = Talker::start(&mut Child::role_command(&pour)?)?;
        // What is touched, dialled and agreed on first is not counted.
        small.ask(&Order { millis: plan.warm_up_millis, ..call(plan) }.to_string(), PATIENCE)?;
        bulk.ask(&pour_of(plan).to_string(), PATIENCE)?;
        Ok(Self { small, bulk, _processes: processes, _dir: dir })
    }

    /// Alone, beside the streams, and the streams.
    fn round(&mut self, plan: &Plan) -> Result<(Answer, Answer, Answer), Failure> {
        let alone = self.small.ask(&call(plan).to_string(), PATIENCE)?.parse()?;
        self.bulk.tell(&pour_of(plan).to_string())?;
        std::thread::sleep(AROUND);
        let beside = self.small.ask(&call(plan).to_string(), PATIENCE)?.parse()?;
        let poured = self.bulk.hear(PATIENCE)?.parse()?;
        Ok((alone, beside, poured))
    }
}

fn call(plan: &Plan) -> Order {
    Order { millis: plan.round_millis, request_bytes: 64, outstanding: 1 }
}

fn pour_of(plan: &Plan) -> Order {
    let millis = plan.round_millis + 2 * AROUND.as_millis() as u64;
    Order { millis, request_bytes: MESSAGE_BYTES, outstanding: STREAMS }
}

impl Taken {
    fn keep(&mut self, alone: Answer, beside: Answer, poured: Answer) {
        self.alone_p50_us.push(us(alone.p50_ns));
        self.alone_p99_us.push(us(alone.p99_ns));
        self.beside_p50_us.push(us(beside.p50_ns));
        self.beside_p99_us.push(us(beside.p99_ns));
        let bits = (poured.calls * MESSAGE_BYTES as u64 * 8) as f64;
        self.streams_gigabits_per_second.push(bits / poured.elapsed_ns as f64);
    }

    fn rows(&self, name: &str) -> String {
        let of = |values: &[f64]| {
            Spread::of(values.iter().copied()).map_or_else(String::new, |spread| spread.to_string())
        };
        let factor = |beside: &[f64], alone: &[f64]| {
            Spread::of_ratio(beside, alone).map_or_else(String::new, |spread| spread.to_string())
        };
        let row = |what: &str, alone: &[f64], beside: &[f64]| {
            format!("| {name}, {what} | {} | {} | {} |\n", of(alone), of(beside), factor(beside, alone))
        };
        let p50 = row("p50 µs", &self.alone_p50_us, &self.beside_p50_us);
        let p99 = row("p99 µs", &self.alone_p99_us, &self.beside_p99_us);
        let streams = of(&self.streams_gigabits_per_second);
        format!("{p50}{p99}| {name}, the streams, Gbit/s | | {streams} | |\n")
    }
}

impl Beside {
    /// As the documents have it.
    pub fn markdown(&self) -> String {
        format!(
            "\n### A 64 B call beside {STREAMS} streams of 1 MiB messages, two hosts\n\n\
             | | alone | beside | factor |\n|---|---|---|---|\n{}{}",
            self.without_classes.rows("no classes"),
            self.with_classes.rows("`priority`: latency and batch")
        )
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
