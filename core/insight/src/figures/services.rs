//! Figure 8: whose calls, bytes and processor time they are.

use super::Drawing;
use crate::fleet::{Fleet, FleetCall};
use crate::words::percent;
use std::collections::BTreeMap;
use trunkline_call::Code;
use trunkline_plot::{BarChart, BarRow};
use trunkline_telemetry::{Component, Coverage};

/// Services with a bar of their own; the others share one.
const SERVICES_MAX: usize = 12;

pub(super) fn shares(fleet: &Fleet) -> Drawing {
    let calls = service_shares(fleet, |_| Some(1.0));
    if calls.is_empty() {
        return Drawing::Missing("not measured here, because there are no calls".into());
    }
    let order: Vec<&str> = calls.iter().take(SERVICES_MAX).map(|(name, _)| *name).collect();
    let bytes =
        |call: &FleetCall| Some(f64::from(call.row.request_bytes) + f64::from(call.row.response_bytes));
    let mut charts =
        vec![bars("of calls", &order, &calls, 0), bars("of bytes", &order, &service_shares(fleet, bytes), 1)];
    let mut said = vec!["Shares of calls, then of bytes, then of processor time of handlers.".to_owned()];
    let told = fleet.handlers().filter(|call| call.cpu_s().is_some()).count();
    match told {
        0 => said.push("Processor time is not measured here, because no handler told its own.".into()),
        _ => {
            charts.push(bars("of processor time", &order, &cpu_shares(fleet), 2));
            said.push(
                "Of processor time handlers tell a part: it is that of those that told, times the calls of their \
                 method, short and long ones apart. Attempts that failed are in it where another recorded host \
                 served them."
                    .into(),
            );
        }
    }
    Drawing::Charts(charts, said)
}

/// Shares of a sum over calls by service, largest first.
pub(crate) fn service_shares(fleet: &Fleet, value: impl Fn(&FleetCall) -> Option<f64>) -> Vec<(&str, f64)> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for call in fleet.each_once() {
        *sums.entry(fleet.service(call.method)).or_default() += value(call).unwrap_or(0.0) * call.weight;
    }
    shares_of(sums)
}

/// Shares of handlers' processor time by service, largest first.
pub(crate) fn cpu_shares(fleet: &Fleet) -> Vec<(&str, f64)> {
    let told = ToldCpu::of(fleet);
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for call in fleet.handlers() {
        let seconds = call.cpu_s().map_or(0.0, |seconds| seconds * told.stands_for(call));
        *sums.entry(fleet.service(call.method)).or_default() += seconds * call.weight;
    }
    for late in &fleet.late {
        *sums.entry(fleet.service(late.method)).or_default() += late.seconds;
    }
    shares_of(sums)
}

fn shares_of(sums: BTreeMap<&str, f64>) -> Vec<(&str, f64)> {
    let whole: f64 = sums.values().sum();
    let mut shares: Vec<_> = sums.into_iter().map(|(name, sum)| (name, sum / whole)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// For how many calls one stands whose handler told its processor time, by method.
///
/// A library reads the clock behind every handler of 50 µs or more, and behind one in 16 of the others: added up as
/// they are, handlers that are long would have sixteen times the share of others.
pub(crate) struct ToldCpu(Vec<[[f64; 2]; 2]>);

/// A handler that takes so long always tells.
const LONG_S: f64 = 50e-6;

impl ToldCpu {
    pub fn of(fleet: &Fleet) -> Self {
        // Of short and long handlers of a method: calls that were answered, and those of them that told.
        let mut sums = vec![[[0.0; 2]; 2]; fleet.methods.len()];
        for call in fleet.handlers().filter(|call| is_answered(call)) {
            let [answered, told] = &mut sums[call.method as usize][usize::from(is_long(call))];
            *answered += call.weight;
            *told += if call.cpu_s().is_some() { call.weight } else { 0.0 };
        }
        Self(sums)
    }

    /// For how many this one stands, that told.
    pub fn stands_for(&self, call: &FleetCall) -> f64 {
        let [answered, told] = self.0[call.method as usize][usize::from(is_long(call))];
        if is_answered(call) && told > 0.0 { answered / told } else { 1.0 }
    }
}

/// Whether the handler took long.
fn is_long(call: &FleetCall) -> bool {
    call.part_s(Component::ServerApplication) >= LONG_S
}

/// Whether the handler's answer ended the call, and could say what it took. Others have their say later, if any.
fn is_answered(call: &FleetCall) -> bool {
    !matches!(call.row.code, Code::Cancelled | Code::DeadlineExceeded)
        && !matches!(call.row.components.coverage, Coverage::ClientOnly | Coverage::Stayed)
}

fn bars(what: &str, order: &[&str], shares: &[(&str, f64)], colour: usize) -> String {
    let share = |name: &str| shares.iter().find(|(other, _)| *other == name).map_or(0.0, |(_, share)| *share);
    let row = |name: &str, value: f64| BarRow {
        name: name.to_owned(),
        value,
        interval: None,
        words: format!("{} {what}", percent(value)),
        colour,
    };
    let mut rows: Vec<BarRow> = order.iter().map(|name| row(name, share(name))).collect();
    let rest = 1.0 - rows.iter().map(|row| row.value).sum::<f64>();
    if rest > 1e-9 {
        rows.push(row("all others", rest));
    }
    BarChart { title: format!("services: shares {what}"), rows, log: false }.svg()
}

#[cfg(test)]
mod tests {
    //! Shows that services of short and of long handlers have their share of processor time.
    use super::*;
    use crate::block::tests::block;

    #[test]
    fn attempts_that_failed_have_their_processor_time_where_they_were_served() {
        use crate::figures::error_shares;
        use trunkline_telemetry::{Coverage, Side};
        // The callers' hosts know the attempt that was answered: ten calls to a recorded server, ten to another.
        let mut made = block("a", 30);
        made.head.methods = vec![(3, "/twice.v1.S/Call".into()), (4, "/here.v1.H/Call".into())];
        made.head.peers = vec![(1, "b".into()), (2, "10.0.0.9:7878".into()), (3, "(local)".into())];
        for (n, call) in made.rows.iter_mut().enumerate() {
            call.row.cpu_ns = if n < 20 { 10_000 } else { 60_000 };
            call.row.peer.0 = 1 + n as u32 / 10;
            if n >= 20 {
                (call.row.method.0, call.row.components.coverage) = (4, Coverage::OneHost);
            }
        }
        // The server had each of the ten twice, and took four times as long for those it refused.
        let mut served = block("b", 20);
        served.head.methods = vec![(3, "/twice.v1.S/Call".into())];
        served.head.peers = vec![(1, "a".into())];
        for (n, call) in served.rows.iter_mut().enumerate() {
            (call.row.side, call.row.components.coverage) = (Side::Served, Coverage::ServerOnly);
            let (code, cpu_ns) = if n < 10 { (Code::Unavailable, 40_000) } else { (Code::Ok, 10_000) };
            (call.row.code, call.row.cpu_ns) = (code, cpu_ns);
        }
        for call in made.rows.iter_mut().chain(&mut served.rows) {
            call.row.components.ns[Component::ServerApplication as usize] = 70_000;
        }
        let mut fleet = Fleet::default();
        fleet.add(made);
        fleet.add(served);
        assert_eq!(fleet.each_once().count(), 30);
        // 10 · (40 + 10) + 10 · 10 there, 10 · 60 here.
        let shares: BTreeMap<_, _> = cpu_shares(&fleet).into_iter().collect();
        assert!((shares["twice.v1.S"] - 0.5).abs() < 1e-9, "{shares:?}");
        assert_eq!(error_shares(&fleet), [(Code::Unavailable, 0.0, 1.0)], "no call failed, and attempts did");
    }

    #[test]
    fn short_handlers_have_their_share_of_processor_time() {
        // Both services took 10 µs a call; of the short handlers one in sixteen tells.
        let one = |service: &str, application_ns: u64, tells_one_in: usize| {
            let mut block = block("a", 160);
            block.head.methods.iter_mut().for_each(|(_, name)| *name = format!("/{service}/Call"));
            for (n, call) in block.rows.iter_mut().enumerate() {
                call.row.components.ns[Component::ServerApplication as usize] = application_ns;
                call.row.cpu_ns = if n.is_multiple_of(tells_one_in) { 10_000 } else { 0 };
            }
            block
        };
        let mut fleet = Fleet::default();
        fleet.add(one("short.v1.S", 20_000, 16));
        fleet.add(one("long.v1.L", 60_000, 1));
        let shares = cpu_shares(&fleet);
        assert!(
            shares.len() == 2 && shares.iter().all(|(_, share)| (share - 0.5).abs() < 1e-9),
            "{shares:?}"
        );
        // Handlers that were cancelled took as much again, and say so when their calls are over.
        let mut late = one("short.v1.S", 20_000, 16);
        late.rows.clear();
        late.head.late_handlers = vec![(late.head.methods[0].0, 1, 320.0 * 10e-6)];
        fleet.add(late);
        let shares: BTreeMap<_, _> = cpu_shares(&fleet).into_iter().collect();
        assert!((shares["short.v1.S"] - 0.75).abs() < 1e-9, "{shares:?}");
    }
}
