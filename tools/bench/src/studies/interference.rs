//! Split gRPC's table of interference (section 2) as figures: what business work, the host's system and interrupts do
//! to calls, with the infrastructure in the application's process and in our daemon. A noisy neighbour is among it.
//!
//! Stages are the first two of [`split`](super::split): the application has core 1, client and daemon core 0. Something
//! that disturbs comes to core 1 and goes again, and two kinds of call are made, one at a time: one with business work,
//! and one of a method that nobody has, which the infrastructure refuses alone. What a disturbance does to the first it
//! does to the business logic, what it does to the second to RPC. Interrupts are counted, by core: those that a call's
//! packets and wake-ups raise where the business runs take its time and the system's there.

use super::data;
use super::split::{CORES, Callee, SERVERS, Stage, payloads};
use crate::harness::children::{Failure, on_core, role};
use crate::harness::rounds::{Entrant, Plan, Turns};
use crate::harness::work::{named, word};
use crate::peers::foreign::Foreign;
use crate::report::sheet::{Results, Sheet};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Its message, and the business work of a call.
const MESSAGE: &str = "small";
const WORK_US: u64 = 20;
/// A disturbance begins so long before calls do.
const BEGINS: Duration = Duration::from_millis(20);
/// Threads that compute, and how long the neighbour does and does not.
const THREADS: usize = 2;
const BURST: Duration = Duration::from_millis(5);
/// Memory that is mapped, touched and given back.
const MAPPED_BYTES: usize = 4 << 20;

/// What comes to the application's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Disturbance {
    /// Nothing.
    Alone,
    /// Another application that computes for 5 ms and rests for as long.
    Neighbour,
    /// Business logic that computes all the time, on two threads.
    Business,
    /// The system: memory that is mapped, touched and given back all the time.
    System,
}

/// Measures all of them in turn, and counts interrupts where nothing disturbs.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
    let payload = payloads(plan).into_iter().find(|payload| payload.name == MESSAGE).ok_or("no message")?;
    let mut turns = Turns::new("interference", plan);
    let mut stages = turns.start(SERVERS.into_iter().take(2), |server| {
        let mut stage = server(foreign, &payload)?;
        stage.work(WORK_US)?;
        Ok(stage)
    });
    let mut sheet = data::sheet("interference", &[("work", &WORK_US)])?;
    let mut alone: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
    for disturbance in Disturbance::value_variants() {
        let columns = ["p50", "p99", "refused p50", "refused p99"].map(str::to_owned);
        let measured =
            turns.whole_rounds(&columns, &mut stages, |stage, _| disturbed(plan, stage, *disturbance));
        for (server, values) in measured {
            let quiet = alone.entry(server.clone()).or_insert_with(|| values.clone());
            let factor =
                |of: usize| values[of].iter().zip(&quiet[of]).map(|(p99, alone)| p99 / alone).collect();
            let (call, refused) = (factor(1), factor(3));
            let mut row = values.clone();
            row.splice(2..2, [call]);
            row.push(refused);
            sheet = sheet.with(vec![(row_name(&server, *disturbance), row)]);
        }
    }
    let counted = interrupts(plan, &mut turns, &mut stages)?;
    Ok(Results { sheets: vec![sheet, counted], absent: turns.absent })
}

/// How a row of the first table is called.
pub fn row_name(server: &str, disturbance: Disturbance) -> String {
    format!("{server}, {}", word(disturbance))
}

/// Both kinds of call while something disturbs.
fn disturbed(plan: &Plan, stage: &mut Stage, disturbance: Disturbance) -> Result<Vec<f64>, Failure> {
    let _child = match disturbance {
        Disturbance::Alone => None,
        other => Some(on_core(CORES[1], || role(&["disturb", &word(other)]))?),
    };
    std::thread::sleep(BEGINS);
    stage.round_of(plan.warm_up_millis, 1, Callee::Business)?;
    let business = stage.round_of(plan.round_millis, 1, Callee::Business)?;
    let refused = stage.round_of(plan.round_millis, 1, Callee::Refused)?;
    Ok(vec![business.p50_us, business.p99_us, refused.p50_us, refused.p99_us])
}

/// Interrupts a call, by core.
fn interrupts(
    plan: &Plan,
    turns: &mut Turns<'_>,
    stages: &mut Vec<Entrant<Stage>>,
) -> Result<Sheet, Failure> {
    let sheet = data::sheet("interrupts", &[("work", &WORK_US)])?;
    let rows = turns.whole_rounds(&sheet.columns, stages, |stage, _| {
        let before = [raised("/proc/softirqs", "NET_RX:")?, raised("/proc/interrupts", "RES:")?];
        let round = stage.round_of(plan.round_millis, 1, Callee::Business)?;
        let after = [raised("/proc/softirqs", "NET_RX:")?, raised("/proc/interrupts", "RES:")?];
        let of = |kind: usize, core: usize| {
            let count = |all: &[Vec<u64>; 2]| all[kind].get(CORES[core]).copied().unwrap_or_default();
            (count(&after) - count(&before)) as f64 / round.calls as f64
        };
        Ok(vec![of(0, 1), of(0, 0), of(1, 1), of(1, 0)])
    });
    Ok(sheet.with(rows))
}

/// The counts of a line of the kernel's, by core.
fn raised(file: &str, name: &str) -> Result<Vec<u64>, Failure> {
    let text = std::fs::read_to_string(file)?;
    counts(&text, name).ok_or_else(|| format!("{file} has no {name}").into())
}

fn counts(text: &str, name: &str) -> Option<Vec<u64>> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
    Some(line.split_whitespace().map_while(|word| word.parse().ok()).collect())
}

/// The process that disturbs, until it is ended.
pub fn disturb(how: &str) -> Result<(), Failure> {
    match named(how)? {
        Disturbance::Alone => Ok(()),
        Disturbance::Neighbour => loop {
            let began = Instant::now();
            while began.elapsed() < BURST {
                crate::harness::business::turn(1000);
            }
            std::thread::sleep(BURST);
        },
        Disturbance::Business => {
            (1..THREADS).for_each(|_| drop(std::thread::spawn(compute)));
            compute()
        }
        Disturbance::System => loop {
            // Beyond what the allocator keeps, so that the system maps it anew each time.
            black_box(vec![1_u8; MAPPED_BYTES]);
        },
    }
}

fn compute() -> ! {
    loop {
        crate::harness::business::turn(1000);
    }
}

#[cfg(test)]
mod tests {
    //! Counts are read by core.
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let text = "          CPU0       CPU1\n  NET_RX:   12   7\n RES:  3  4  Rescheduling interrupts\n";
        assert_eq!(counts(text, "NET_RX:"), Some(vec![12, 7]));
        assert_eq!(counts(text, "RES:"), Some(vec![3, 4]));
        assert_eq!(counts(text, "TLB:"), None);
        assert_eq!(row_name("split", Disturbance::Neighbour), "split, neighbour");
    }
}
