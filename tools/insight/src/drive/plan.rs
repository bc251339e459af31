//! Which calls are made after those of a file, and what each has to come to.

use super::acts::{CallPlan, CallQueues, REQUEST_BYTES_MIN};
use super::wires::WireLengths;
use crate::args::DriveArgs;
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline::Code;
use trunkline_insight::{Fleet, FleetCall, METHOD_CALLS_MIN};
use trunkline_telemetry::Component;

/// No longer chain is made above a call.
const ABOVE_MAX: u16 = 64;
/// Services of daemons' own: nobody else serves them.
const DAEMONS_OWN: [&str; 2] = ["/trunkline.", "/grpc."];

/// What the calls of a file have to come to, through wires that fit.
pub(super) fn plans(fleet: &Fleet, args: &DriveArgs) -> (Vec<CallPlan>, WireLengths) {
    let mut calls = calls(fleet, args);
    let wires = WireLengths::of(calls.iter().map(|call| call.wire));
    for call in &mut calls {
        let carried = wires.nearest(call.wire);
        // What of the wire is missing, the caller has before it publishes; what is too much, it has not.
        let missing = call.wire.saturating_sub(carried.time);
        let excess = carried.time.saturating_sub(call.wire);
        (call.route, call.back) = (carried.route, carried.back);
        call.holds = (call.holds + missing).saturating_sub(excess);
    }
    (calls, wires)
}

fn calls(fleet: &Fleet, args: &DriveArgs) -> Vec<CallPlan> {
    let is_made = |call: &&FleetCall| {
        let path = fleet.name(call.method);
        let is_path = path.strip_prefix('/').is_some_and(|path| path.split_once('/').is_some());
        is_path && !DAEMONS_OWN.iter().any(|own| path.starts_with(own))
    };
    let scaled = |seconds: f64| Duration::from_secs_f64(seconds * args.time_scale);
    let planted = |call: &FleetCall, seconds: f64| {
        // Whoever cancels takes no answer.
        let is_planted = args.plant && call.row.code != Code::Cancelled;
        if is_planted { scaled(seconds) } else { Duration::ZERO }
    };
    let caller = |call: &FleetCall| {
        let cluster = &fleet.heads[call.block as usize].cluster;
        args.caller.iter().position(|(name, _)| name == cluster).unwrap_or(0)
    };
    let plan = |call: &FleetCall| CallPlan {
        caller: caller(call),
        path: fleet.name(call.method).to_owned(),
        request_bytes: (call.row.request_bytes.min(args.message_bytes_max) as usize).max(REQUEST_BYTES_MIN),
        answer_bytes: call.row.response_bytes.min(args.message_bytes_max) as usize,
        below: below(call, args),
        above: call.ancestors.unwrap_or(0).min(ABOVE_MAX),
        code: call.row.code,
        takes: scaled(call.total_s()),
        wire: planted(call, call.wire_s()),
        holds: planted(call, call.stack_s()),
        queues: CallQueues {
            client_send: planted(call, call.part_s(Component::ClientSendQueue)),
            server_receive: planted(call, call.part_s(Component::ServerReceiveQueue)),
            server_send: planted(call, call.part_s(Component::ServerSendQueue)),
            client_receive: planted(call, call.part_s(Component::ClientReceiveQueue)),
        },
        route: 0,
        back: Duration::ZERO,
        works: Duration::from_secs_f64(call.cpu_s().unwrap_or(0.0) * args.work),
    };
    let mut methods: BTreeMap<(u32, Code), Vec<&FleetCall>> = BTreeMap::new();
    for call in asked_for(fleet, args).filter(is_made) {
        methods.entry((call.method, call.row.code)).or_default().push(call);
    }
    methods.into_values().flat_map(|calls| fewer(calls, args)).map(plan).collect()
}

fn below(call: &FleetCall, args: &DriveArgs) -> u32 {
    call.row.subtree.saturating_sub(1).min(args.below_max)
}

/// Of the calls of a method every second, third or so, in the order of their times, if they have too many calls below
/// them together. Percentiles stay: of two calls it is the slower one.
fn fewer<'a>(mut calls: Vec<&'a FleetCall>, args: &DriveArgs) -> Vec<&'a FleetCall> {
    let all: u64 = calls.iter().map(|call| u64::from(below(call, args))).sum();
    let wanted = usize::try_from(all.div_ceil(u64::from(args.method_below_max).max(1))).unwrap_or(usize::MAX);
    let one_in = wanted.min(calls.len() / METHOD_CALLS_MIN).max(1);
    calls.sort_by_key(|call| call.row.components.total_ns());
    calls.into_iter().skip(one_in - 1).step_by(one_in).collect()
}

/// The calls of the file that are asked for.
pub(super) fn asked_for<'a>(fleet: &'a Fleet, args: &'a DriveArgs) -> impl Iterator<Item = &'a FleetCall> {
    let cluster = |call: &FleetCall| fleet.heads[call.block as usize].cluster.as_str();
    fleet.each_once().filter(move |call| match args.caller.as_slice() {
        [] => args.cluster.is_empty() || cluster(call) == args.cluster,
        callers => callers.iter().any(|(name, _)| name == cluster(call)),
    })
}

#[cfg(test)]
mod tests {
    //! Shows that of a method with many calls below fewer are made, with the same percentiles.
    use super::*;
    use crate::args::{InsightLine, InsightVerb};
    use clap::Parser;
    use trunkline_insight::{Published, Synthetic, synth};

    fn args(more: &[&str]) -> DriveArgs {
        let line = [
            "trunkline",
            "drive",
            "fleet.rec",
            "--server-socket",
            "s",
            "--to",
            "tcp://127.0.0.1:1",
            "-o",
            "o",
        ];
        match InsightLine::parse_from(line.iter().chain(more)).verb {
            InsightVerb::Drive(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn of_a_method_with_many_calls_below_fewer_are_made() {
        let published = Published::parse(include_str!("../../data/fleet.toml")).unwrap();
        let mut fleet = Fleet::default();
        synth(&published, &Synthetic { methods: 20, calls: 400, seed: 1 })
            .into_iter()
            .for_each(|block| fleet.add(block));
        let by_method = |plans: Vec<CallPlan>| {
            let mut found: BTreeMap<String, Vec<CallPlan>> = BTreeMap::new();
            for plan in plans.into_iter().filter(|plan| plan.code == Code::Ok) {
                found.entry(plan.path.clone()).or_default().push(plan);
            }
            found
        };
        let all = by_method(plans(&fleet, &args(&["--work", "2"])).0);
        let few = by_method(plans(&fleet, &args(&["--work", "2", "--method-below-max", "20000"])).0);
        assert_eq!((all.len(), few.len()), (20, 20));
        let below = |plans: &[CallPlan]| plans.iter().map(|plan| u64::from(plan.below)).sum::<u64>();
        assert!(all.values().any(|plans| below(plans) > 20_000), "some have too many");
        for (method, all) in &all {
            let few = &few[method];
            assert!(below(few) <= 21_000 || few.len() < 200, "{method}: {} in {}", below(few), few.len());
            assert!(few.len() >= 100 && (below(all) > 20_000 || few.len() == all.len()), "{method}");
            // The call at the middle, at nine tenths and at the last hundredth is the same or the next.
            for part in [0.5, 0.9, 0.99_f64] {
                let at = |plans: &[CallPlan]| plans[(part * plans.len() as f64).ceil() as usize - 1].takes;
                let off = at(few).as_secs_f64() / at(all).as_secs_f64() - 1.0;
                assert!((0.0..0.05).contains(&off), "{method} P{part}: {off}");
            }
            assert!(all.iter().all(|plan| plan.works <= 2 * plan.takes), "{method}");
        }
    }

    /// Whatever relay a call has, its wire and its stack come to what they were in the file, and all of its time too.
    #[test]
    fn planted_wires_and_stacks_come_to_what_they_were() {
        let published = Published::parse(include_str!("../../data/fleet.toml")).unwrap();
        let mut fleet = Fleet::default();
        synth(&published, &Synthetic { methods: 20, calls: 200, seed: 1 })
            .into_iter()
            .for_each(|block| fleet.add(block));
        let wanted: f64 = fleet.each_once().map(|call| 20.0 * (call.wire_s() + call.stack_s())).sum();
        let (plans, wires) = plans(&fleet, &args(&["--plant", "--time-scale", "20"]));
        // Of 0, the machine's own, nothing is told.
        let times: Vec<Duration> = std::iter::once(Duration::ZERO)
            .chain(wires.times().into_iter().map(|[there, back]| there + back))
            .collect();
        let got: f64 = plans.iter().map(|plan| (plan.holds + times[plan.route]).as_secs_f64()).sum();
        assert!((got / wanted - 1.0).abs() < 0.01, "{got} s of {wanted} s");
        let carried: Duration = plans.iter().map(|plan| times[plan.route]).sum();
        let part = carried.as_secs_f64() / plans.iter().map(|plan| plan.wire).sum::<Duration>().as_secs_f64();
        assert!((part - 1.0).abs() < 0.05, "relays have {part} of all wires");
        let parts = |plan: &CallPlan| plan.holds + times[plan.route] + plan.queues.all();
        assert!(plans.iter().all(|plan| parts(plan) <= plan.takes + Duration::from_micros(1)));
        assert!(plans.iter().any(|plan| plan.route == 0) && plans.iter().any(|plan| plan.route > 9));
    }
}
