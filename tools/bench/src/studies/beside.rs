//! A small call beside bulk streams: what it takes alone, and what it takes while eight streams of 1 MiB messages leave
//! the same host for the same host, from another application to another service. Alone and beside take turns, and the
//! streams alone have theirs.

use super::data::sheet;
use crate::harness::children::{Child, Failure, Talker, role, role_command, text};
use crate::harness::orders::{Answer, Order};
use crate::harness::rounds::{Plan, Turns};
use crate::harness::work::{Work, word};
use crate::peers::foreign::Foreign;
use crate::peers::hosts::{self, Started};
use crate::report::sheet::Results;
use std::time::Duration;
use tempfile::TempDir;
use trunkline_measure::us;

const STREAMS: usize = 8;
const MESSAGE_BYTES: usize = 1 << 20;
/// The streams begin so long before the small calls and end so long after.
const AROUND: Duration = Duration::from_millis(100);
/// Small calls that are not counted: within a second daemons move one application away from the other.
const PLACED_MILLIS: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Policies, by what the table calls them.
const CLASSES: [(&str, &str); 2] = [("no classes", "bare"), ("`priority`: latency and batch", "classes")];

/// Measures it.
pub fn measure(plan: &Plan, _: &Foreign) -> Result<Results, Failure> {
    let mut turns = Turns::new("beside", plan);
    let mut stages = turns.start(CLASSES, |policies| Stage::set(plan, policies));
    let sheet = sheet("beside", &[("streams", &STREAMS)])?;
    let rows = turns.whole_rounds(&sheet.columns, &mut stages, |stage, _| stage.round(plan));
    Ok(Results { sheets: vec![sheet.with(rows)], absent: turns.absent })
}

/// Two hosts, who calls, and who pours.
struct Stage {
    small: Talker,
    bulk: Talker,
    _processes: Vec<Child>,
    _dir: TempDir,
}

impl Stage {
    fn set(plan: &Plan, policies: &str) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let Started { mut processes, address, socket } =
            hosts::start(dir.path(), "two-hosts", policies, Work::Bytes)?;
        processes.push(role(&["serve-bulk", text(&dir.path().join("far.sock"))])?);
        let small = ["drive-ours", text(&socket), &address, &word(Work::Bytes)];
        let mut small = Talker::start(&mut role_command(&small)?)?;
        let mut bulk = Talker::start(&mut role_command(&["pour", text(&socket), &address])?)?;
        // What is touched, dialled and agreed on first is not counted.
        small.ask(&Order { millis: plan.warm_up_millis, ..call(plan) }.to_string(), PATIENCE)?;
        bulk.ask(&pour_of(plan).to_string(), PATIENCE)?;
        Ok(Self { small, bulk, _processes: processes, _dir: dir })
    }

    /// Alone, beside the streams, the streams, and how much that is of what they move alone.
    fn round(&mut self, plan: &Plan) -> Result<Vec<f64>, Failure> {
        let alone: Answer = self.small.ask(&call(plan).to_string(), PATIENCE)?.parse()?;
        let poured_alone: Answer = self.bulk.ask(&pour_of(plan).to_string(), PATIENCE)?.parse()?;
        self.bulk.tell(&pour_of(plan).to_string())?;
        std::thread::sleep(AROUND);
        self.small.ask(&Order { millis: PLACED_MILLIS, ..call(plan) }.to_string(), PATIENCE)?;
        let beside: Answer = self.small.ask(&call(plan).to_string(), PATIENCE)?.parse()?;
        let poured: Answer = self.bulk.hear(PATIENCE)?.parse()?;
        let both = |alone_ns, beside_ns| [us(alone_ns), us(beside_ns), us(beside_ns) / us(alone_ns)];
        let small = [both(alone.p50_ns, beside.p50_ns), both(alone.p99_ns, beside.p99_ns)].concat();
        let gigabits = |poured: &Answer| poured.calls_per_second() * MESSAGE_BYTES as f64 * 8.0 / 1e9;
        let streams = [gigabits(&poured), gigabits(&poured) / gigabits(&poured_alone)];
        Ok(small.into_iter().chain(streams).collect())
    }
}

fn call(plan: &Plan) -> Order {
    Order { millis: plan.round_millis, request_bytes: 64, outstanding: 1 }
}

fn pour_of(plan: &Plan) -> Order {
    let millis = plan.round_millis + PLACED_MILLIS + 2 * AROUND.as_millis() as u64;
    Order { millis, request_bytes: MESSAGE_BYTES, outstanding: STREAMS }
}
