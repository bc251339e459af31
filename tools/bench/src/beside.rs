//! A small call beside bulk streams: what it takes alone, and what it takes while eight streams of 1 MiB messages leave
//! the same host for the same host, from another application to another service. Alone and beside take turns.

use crate::children::{Child, Failure, Talker, text};
use crate::orders::{Answer, Order};
use crate::ours::{self, Hosts};
use crate::sections::Plan;
use crate::stats::Spread;
use serde::Serialize;
use std::time::Duration;

const STREAMS: usize = 8;
const MESSAGE_BYTES: usize = 1 << 20;
/// The streams begin so long before the small calls and end so long after.
const AROUND: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// What the small call took, by round, and what the streams moved meanwhile.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Beside {
    pub alone_p50_us: Vec<f64>,
    pub alone_p99_us: Vec<f64>,
    pub beside_p50_us: Vec<f64>,
    pub beside_p99_us: Vec<f64>,
    pub streams_gigabits_per_second: Vec<f64>,
}

/// Measures it.
pub fn measure(plan: &Plan) -> Result<Beside, Failure> {
    let dir = tempfile::tempdir()?;
    let (_processes, road) = ours::start(dir.path(), Hosts::Two)?;
    let far = dir.path().join("far.sock");
    let _bulk = Child::role(&["serve-bulk", text(&far)])?;
    let small = ["drive-ours", text(&road.socket), &road.target, "bytes"];
    let mut small = Talker::start(&mut Child::role_command(&small)?)?;
    let mut bulk = Talker::start(&mut Child::role_command(&["pour", text(&road.socket), &road.target])?)?;
    let around_millis = AROUND.as_millis() as u64;
    let call = Order { millis: plan.round_millis, request_bytes: 64, outstanding: 1 };
    let millis = plan.round_millis + 2 * around_millis;
    let pour = Order { millis, request_bytes: MESSAGE_BYTES, outstanding: STREAMS };
    // What is touched, dialled and agreed on first is not counted.
    small.ask(&Order { millis: plan.warm_up_millis, ..call }.to_string(), PATIENCE)?;
    bulk.ask(&pour.to_string(), PATIENCE)?;
    let mut taken = Beside::default();
    for round in 0..plan.rounds {
        let alone: Answer = small.ask(&call.to_string(), PATIENCE)?.parse()?;
        bulk.tell(&pour.to_string())?;
        std::thread::sleep(AROUND);
        let beside: Answer = small.ask(&call.to_string(), PATIENCE)?.parse()?;
        let poured: Answer = bulk.hear(PATIENCE)?.parse()?;
        taken.keep(alone, beside, poured);
        eprintln!(
            "beside, round {}: p99 {:.1} µs alone, {:.1} µs beside",
            round + 1,
            us(alone.p99_ns),
            us(beside.p99_ns)
        );
    }
    Ok(taken)
}

impl Beside {
    fn keep(&mut self, alone: Answer, beside: Answer, poured: Answer) {
        self.alone_p50_us.push(us(alone.p50_ns));
        self.alone_p99_us.push(us(alone.p99_ns));
        self.beside_p50_us.push(us(beside.p50_ns));
        self.beside_p99_us.push(us(beside.p99_ns));
        let bits = (poured.calls * MESSAGE_BYTES as u64 * 8) as f64;
        self.streams_gigabits_per_second.push(bits / poured.elapsed_ns as f64);
    }

    /// As the documents have it.
    pub fn markdown(&self) -> String {
        let of = |values: &[f64]| {
            Spread::of(values.iter().copied()).map_or_else(String::new, |spread| spread.to_string())
        };
        let factor = |beside: &[f64], alone: &[f64]| {
            Spread::of_ratio(beside, alone).map_or_else(String::new, |spread| spread.to_string())
        };
        format!(
            "\n### A 64 B call beside {STREAMS} streams of 1 MiB messages, two hosts\n\n\
             | | alone | beside | factor |\n|---|---|---|---|\n\
             | p50 µs | {} | {} | {} |\n| p99 µs | {} | {} | {} |\n\n\
             The streams moved {} Gbit/s.\n",
            of(&self.alone_p50_us),
            of(&self.beside_p50_us),
            factor(&self.beside_p50_us, &self.alone_p50_us),
            of(&self.alone_p99_us),
            of(&self.beside_p99_us),
            factor(&self.beside_p99_us, &self.alone_p99_us),
            of(&self.streams_gigabits_per_second)
        )
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
