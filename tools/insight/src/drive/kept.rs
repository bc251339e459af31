//! What was recorded of the calls that were made, as the file has it that is written.

use super::acts::ABOVE;
use super::plan::asked_for;
use crate::args::DriveArgs;
use std::collections::BTreeMap;
use trunkline::Code;
use trunkline_insight::{DrivenCalls, Fleet, FleetCall, RecordBlock};
use trunkline_telemetry::{RecordedCall, Side};

/// By method and outcome: what the calls of the file stand for, and how many were made.
type Weights<'a> = BTreeMap<(&'a str, Code), (f64, f64)>;

/// What was recorded of the calls, as blocks: of each method and outcome the weights are those of the file together.
pub(super) fn kept(planned: &Fleet, recorded: &Fleet, served: &Fleet, args: &DriveArgs) -> Vec<RecordBlock> {
    let mut weights = Weights::new();
    for call in asked_for(planned, args) {
        weights.entry((planned.name(call.method), call.row.code)).or_default().0 += call.weight;
    }
    let is_kept = |call: &&FleetCall| call.row.side == Side::Made && recorded.name(call.method) != ABOVE;
    for call in recorded.calls.iter().filter(is_kept) {
        if let Some((_, count)) = weights.get_mut(&(recorded.name(call.method), call.row.code)) {
            *count += 1.0;
        }
    }
    let driven = Some(DrivenCalls {
        time_scale: args.time_scale,
        below_max: args.below_max,
        message_bytes_max: args.message_bytes_max,
        work: args.work,
        method_below_max: args.method_below_max,
        rate: args.rate,
        in_flight_max: args.in_flight_max,
        planted: args.plant,
        queues_apart: args.plant,
    });
    // Of handlers that waited the file has what they took.
    let work = if args.work > 0.0 { args.work } else { 1.0 };
    let heads = recorded.heads.iter().cloned();
    let mut blocks: Vec<RecordBlock> = heads
        .map(|mut head| {
            (head.driven, head.traces) = (driven, 0);
            head.late_handlers.clear();
            RecordBlock { head, ..RecordBlock::default() }
        })
        .collect();
    for call in recorded.calls.iter().filter(is_kept) {
        let Some((weight, count)) = weights.get(&(recorded.name(call.method), call.row.code)) else {
            continue;
        };
        let mut row = call.row;
        let divided = |ns: &mut u64| *ns = (*ns as f64 / args.time_scale) as u64;
        row.components.ns.iter_mut().for_each(divided);
        divided(&mut row.components.request_wakeup_ns);
        divided(&mut row.components.response_wakeup_ns);
        row.cpu_ns = (f64::from(row.cpu_ns) / work) as u32;
        let weight = (weight / count).max(1.0) as f32;
        let ancestors = call.ancestors;
        blocks[call.block as usize].rows.push(RecordedCall { row, weight, ancestors });
    }
    // Until the first call has ended there is nothing to compare with.
    blocks.retain(|block| !block.rows.is_empty());
    for block in &mut blocks {
        block.head.calls_seen = block.rows.len() as u64;
    }
    if let Some(last) = blocks.last_mut() {
        late(last, served, &weights, work);
    }
    blocks
}

/// What handlers took whose calls were over before them, as the daemon that has them says: each call of a method and
/// outcome stands for as many as another.
fn late(block: &mut RecordBlock, served: &Fleet, weights: &Weights<'_>, work: f64) {
    for late in &served.late {
        let name = served.name(late.method);
        let Some((weight, count)) = weights.get(&(name, late.code)).filter(|(_, count)| *count > 0.0) else {
            continue;
        };
        let methods = &mut block.head.methods;
        let number = methods.iter().find(|(_, known)| known == name).map(|(number, _)| *number);
        let number = number.unwrap_or_else(|| {
            let next = methods.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
            methods.push((next, name.to_owned()));
            next
        });
        let seconds = late.seconds * (weight / count).max(1.0) / work;
        block.head.late_handlers.push((number, late.code.number(), seconds));
    }
}
