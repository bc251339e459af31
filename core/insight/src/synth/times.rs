//! Completion times of a generated fleet's calls, and what of them are wires, stacks and queues.
//!
//! A method has its percentiles of the tax's part of a call (Figure 11): fast methods wait for little else. Its slowest
//! twentieth has a part of its own (Figure 10c), and of the slowest calls wires, stacks and queues are as long as
//! published (Figures 12 and 13). What is left open are three numbers, which follow from the sums: which parts the
//! slowest twentieth has, what of the tax queues are, and what of the rest are wires.

use super::curves::{PartCurve, along_percent, part_at, shuffled, solve};
use super::plan::{MethodPlan, Synthetic};
use crate::published::Published;
use trunkline_telemetry::Component;

/// The slowest calls of a method, as Figure 10c has them.
const TAIL: f64 = 0.95;
/// No application takes less of a call.
const APPLICATION_MIN: f64 = 0.015;
/// What of the tax queues are, in most calls.
const QUEUE_PART: f64 = 0.22;
/// Calls with a larger part of tax than so many of their method have a part for queues that follows from the sums.
const TAXED: f64 = 0.9;
/// From this percentile of methods on the slowest calls have queues of their own.
const QUEUED_PERCENT: f64 = 50.0;
/// One method hardly waits for anything but its application (the least of Figure 11).
const UNTAXED_PLACE: f64 = 0.75;
const UNTAXED_TIMES: f64 = 0.02;

/// A call's completion time and what of it is not the application, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallTime {
    total: f64,
    network: f64,
    queue: f64,
    /// What of the network are wires.
    wire_part: f64,
    is_tail: bool,
}

/// What the sums have to come to.
struct Sums {
    /// The tax's part of a call of the slowest twentieth.
    tail: f64,
    /// Wires, stacks and queues as parts of its tax.
    tail_parts: [f64; 3],
    /// And of all tax.
    parts: [f64; 3],
}

/// The calls of each method, fastest first.
pub(super) fn times(published: &Published, plans: &[MethodPlan], how: &Synthetic) -> Vec<Vec<CallTime>> {
    let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
    let sums = Sums {
        tail: wanted("tail_tax", 0.67),
        tail_parts: parts([
            wanted("tail_tax_is_wire", 0.74),
            wanted("tail_tax_is_stack", 0.19),
            wanted("tail_tax_is_queue", 0.07),
        ]),
        parts: parts([
            wanted("tax_is_wire", 0.55),
            wanted("tax_is_stack", 0.245),
            wanted("tax_is_queue", 0.205),
        ]),
    };
    let methods: Vec<MethodTimes> =
        plans.iter().enumerate().map(|(at, plan)| MethodTimes::of(published, plan, at, how)).collect();
    let draw = |place: f64, taxed_queues: f64| -> Vec<Vec<CallTime>> {
        methods.iter().map(|method| method.calls(place, [taxed_queues, sums.tail_parts[2]])).collect()
    };
    let place = solve(0.0, 1.0, sums.tail, |place| mean(plans, &draw(place, QUEUE_PART), CallTime::tail_tax));
    let queues = |times: &[Vec<CallTime>]| {
        sum(plans, times, |call| call.queue) / sum(plans, times, |call| call.network + call.queue)
    };
    let taxed_queues = solve(0.0, 0.9, sums.parts[2], |part| queues(&draw(place, part)));
    let mut times = draw(place, taxed_queues);
    split(plans, &mut times, &sums);
    times
}

/// What of the network are wires: in the slowest twentieth as published, in the rest so that the sums are.
fn split(plans: &[MethodPlan], times: &mut [Vec<CallTime>], sums: &Sums) {
    let tail_wire = sums.tail_parts[0] / (sums.tail_parts[0] + sums.tail_parts[1]);
    let network =
        |is_tail: bool| sum(plans, times, |call| if call.is_tail == is_tail { call.network } else { 0.0 });
    let (tail, rest) = (network(true), network(false));
    let wire = sums.parts[0] / (sums.parts[0] + sums.parts[1]) * (tail + rest);
    let rest_wire = ((wire - tail_wire * tail) / rest).clamp(0.0, 1.0);
    for call in times.iter_mut().flatten() {
        call.wire_part = if call.is_tail { tail_wire } else { rest_wire };
    }
}

/// A method's completion times, and its calls' parts of tax in ascending order.
struct MethodTimes {
    totals: Vec<f64>,
    taxes: Vec<f64>,
    /// In which order calls before the slowest twentieth have them.
    order: Vec<usize>,
    /// Wires and stacks, and queues if they are its own, that a hundredth of the calls exceed.
    network: f64,
    queue: Option<f64>,
    is_untaxed: bool,
}

impl MethodTimes {
    fn of(published: &Published, plan: &MethodPlan, number: usize, how: &Synthetic) -> Self {
        let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
        let count = plan.calls;
        let parts = (0..count).map(|rank| part_at(rank, count));
        let is_untaxed = number == (UNTAXED_PLACE * how.methods as f64) as usize;
        let taxes = PartCurve::of(&taxes(published, 100.0 - plan.latency), 0.0);
        let totals = PartCurve::of_grid(&published.latency, plan.latency, 0.0);
        let times = if is_untaxed { UNTAXED_TIMES } else { 1.0 };
        let tax = |part: f64| times * taxes.at(part.min(0.99)).min(1.0 - APPLICATION_MIN);
        let network = [
            (1.0, wanted("wire_stack_p99_at_1_percent", 6e-3)),
            (10.0, wanted("wire_stack_p99_at_10_percent", 19e-3)),
            (50.0, wanted("wire_stack_p99_at_50_percent", 0.115)),
            (90.0, wanted("wire_stack_p99_at_90_percent", 0.271)),
            (99.0, wanted("wire_stack_p99_at_99_percent", 0.826)),
        ];
        let queue = wanted("queue_p99_at_90_percent", 0.611);
        let queues = [(QUEUED_PERCENT, queue / 28.0), (90.0, queue), (99.0, queue * 1.15)];
        Self {
            totals: parts.clone().map(|part| totals.at(part)).collect(),
            taxes: parts.map(tax).collect(),
            order: shuffled(count, how.seed ^ (number as u64) << 20 ^ 1 << 8),
            network: along_percent(&network, plan.latency),
            queue: (plan.latency >= QUEUED_PERCENT).then(|| along_percent(&queues, plan.latency)),
            is_untaxed,
        }
    }

    /// The calls, fastest first. The slowest twentieth has the parts of tax from `place` on, where 1 is the largest;
    /// queues are so large a part of the tax in calls that have much of it, and in the slowest twentieth.
    fn calls(&self, place: f64, [taxed_queues, tail_queues]: [f64; 2]) -> Vec<CallTime> {
        let count = self.totals.len();
        let first = ((TAIL * count as f64).round() as usize).clamp(1, count) - 1;
        let tail = count - first;
        let skipped = (place * first as f64) as usize;
        let mut rest = self.order.iter().filter(|rank| !(skipped..skipped + tail).contains(*rank));
        // A percentile lies at the first call of the last hundredth.
        let slowest = count / 100 + 1;
        let call = |at: usize| {
            let total = self.totals[at];
            let is_tail = at >= first;
            let rank = if is_tail { skipped + at - first } else { rest.next().copied().unwrap_or(0) };
            let queue_part = match rank as f64 >= TAXED * count as f64 {
                _ if is_tail => tail_queues,
                true => taxed_queues,
                false => QUEUE_PART,
            };
            let most = (1.0 - APPLICATION_MIN) * total;
            let tax = self.taxes[rank] * total;
            let (mut network, mut queue) = (tax * (1.0 - queue_part), tax * queue_part);
            let beyond = count - 1 - at;
            if !self.is_untaxed && beyond < slowest {
                network = self.network.min(most * (1.0 - tail_queues));
                queue = (network * tail_queues / (1.0 - tail_queues)).min(most - network);
            } else if network > self.network {
                (network, queue) = (self.network, queue * self.network / network);
            }
            if let Some(own) =
                self.queue.filter(|_| !self.is_untaxed && (slowest..2 * slowest).contains(&beyond))
            {
                queue = own.min(0.9 * most);
                network = network.min(most - queue);
            }
            CallTime { total, network, queue, wire_part: 0.0, is_tail }
        };
        (0..count).map(call).collect()
    }
}

/// Parts of tax of a method at this percentile of methods by them (Figure 11): at the first hundredth, the middle, nine
/// tenths and the last hundredth of its calls.
fn taxes(published: &Published, percent: f64) -> [(f64, f64); 4] {
    let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
    let of = |points: &[(f64, f64)]| along_percent(points, percent);
    let median = wanted("tax_ratio_p50_at_90_percent", 0.38);
    let nine = wanted("tax_ratio_p90_at_90_percent", 0.96);
    let last = wanted("tax_ratio_p99_at_50_percent", 0.66);
    let middle = of(&[
        (0.0, 0.004),
        (10.0, 0.0126),
        (50.0, 0.008),
        (70.0, 0.03),
        (80.0, 0.09),
        (90.0, median),
        (100.0, 0.6_f64.max(median)),
    ]);
    [
        (0.01, middle / 8.0),
        (0.5, middle),
        (0.9, of(&[(0.0, 0.02), (10.0, 0.06), (50.0, 0.27), (90.0, nine), (100.0, 0.972_f64.max(nine))])),
        (0.99, of(&[(0.0, 0.1), (10.0, 0.45), (50.0, last), (90.0, 0.982_f64.max(nine)), (100.0, 1.0)])),
    ]
}

impl CallTime {
    /// The nine components in nanoseconds.
    pub fn components(&self) -> [u64; Component::COUNT] {
        let wire = self.network * self.wire_part;
        let stack = self.network - wire;
        let mut seconds = [0.0; Component::COUNT];
        let mut add = |component: Component, value: f64| seconds[component as usize] = value;
        add(Component::RequestWire, 0.55 * wire);
        add(Component::ResponseWire, 0.45 * wire);
        add(Component::RequestStack, 0.55 * stack);
        add(Component::ResponseStack, 0.45 * stack);
        add(Component::ClientSendQueue, 0.1 * self.queue);
        add(Component::ServerReceiveQueue, 0.7 * self.queue);
        add(Component::ServerSendQueue, 0.1 * self.queue);
        add(Component::ClientReceiveQueue, 0.1 * self.queue);
        add(Component::ServerApplication, self.application());
        seconds.map(|seconds| (seconds * 1e9) as u64)
    }

    /// What its handler takes.
    pub fn application(&self) -> f64 {
        self.total - self.network - self.queue
    }

    /// The part of tax, if it is one of the slowest of its method.
    fn tail_tax(&self) -> Option<f64> {
        self.is_tail.then(|| (self.network + self.queue) / self.total)
    }
}

/// Of all calls, each as often as its method stands for.
fn sum(plans: &[MethodPlan], times: &[Vec<CallTime>], value: impl Fn(&CallTime) -> f64) -> f64 {
    let of = |(plan, calls): (&MethodPlan, &Vec<CallTime>)| {
        plan.share / calls.len() as f64 * calls.iter().map(&value).sum::<f64>()
    };
    plans.iter().zip(times).map(of).sum()
}

fn mean(plans: &[MethodPlan], times: &[Vec<CallTime>], value: fn(&CallTime) -> Option<f64>) -> f64 {
    let whole = sum(plans, times, |call| if value(call).is_some() { 1.0 } else { 0.0 });
    sum(plans, times, |call| value(call).unwrap_or(0.0)) / whole
}

/// Parts of one that are together one.
fn parts(shares: [f64; 3]) -> [f64; 3] {
    let whole: f64 = shares.iter().sum();
    shares.map(|share| share / whole)
}
