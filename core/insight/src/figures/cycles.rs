//! Figures 20, 21 and 23: processor time.

use super::services::ToldCpu;
use super::{Drawing, over_methods, too_few};
use crate::block::{BlockHead, NAMED_MAX};
use crate::fleet::{Fleet, FleetCall};
use crate::machines::{machine, own_parts};
use crate::words::{percent, time};
use std::collections::BTreeMap;
use trunkline_call::Code;
use trunkline_plot::{BarChart, BarRow};

/// Shares of all cycles by stage, of the blocks that say them together: what each is a share of counts, once for each
/// machine.
pub(crate) fn cycle_shares(fleet: &Fleet) -> BTreeMap<&str, f64> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let mut whole_s = 0.0;
    let told = |head: &&BlockHead| !head.cycles.is_empty();
    let own_parts = own_parts(&fleet.heads, |head| machine(head).filter(|_| told(&head)));
    for (head, own_part) in fleet.heads.iter().zip(own_parts).filter(|(head, _)| told(head)) {
        // Of a generated fleet there are shares alone.
        let busy_s = head.variables.get("cpu_seconds").copied().unwrap_or(1.0);
        whole_s += busy_s * own_part;
        head.cycles.iter().for_each(|(stage, share)| *sums.entry(stage).or_default() += share * busy_s);
    }
    sums.values_mut().for_each(|sum| *sum /= whole_s);
    sums
}

pub(super) fn tax(fleet: &Fleet) -> Drawing {
    let shares = cycle_shares(fleet);
    if shares.is_empty() {
        return Drawing::Missing(
            "not measured here, because no block says what its daemon did (recorder.tax_rounds)".into(),
        );
    }
    let mut rows: Vec<BarRow> = shares
        .iter()
        .map(|(stage, share)| BarRow {
            name: (*stage).to_owned(),
            value: *share,
            interval: None,
            words: percent(*share),
            colour: 0,
        })
        .collect();
    rows.sort_by(|a, b| b.value.total_cmp(&a.value));
    let whole: f64 = rows.iter().map(|row| row.value).sum();
    rows.truncate(NAMED_MAX);
    let said = format!("{} of all cycles.", percent(whole));
    Drawing::Charts(vec![BarChart { title: "cycle tax".into(), rows, log: false }.svg()], vec![said])
}

pub(super) fn by_method(fleet: &Fleet) -> Drawing {
    if fleet.good().all(|call| call.cpu_s().is_none()) {
        return Drawing::Missing("not measured here, because no handler told its processor time".into());
    }
    let methods = fleet.by_method(fleet.good(), FleetCall::cpu_s);
    if methods.is_empty() {
        return too_few(fleet);
    }
    let said = format!("{} methods; the handler's thread alone, of calls that told it.", methods.len());
    Drawing::Charts(over_methods(methods, "processor time", time), vec![said])
}

/// Of the calls that did not end well: shares by code, of calls and of processor time. In this is that of attempts, by
/// how they ended.
pub(crate) fn error_shares(fleet: &Fleet) -> Vec<(Code, f64, f64)> {
    let mut sums: BTreeMap<u16, (f64, f64)> = BTreeMap::new();
    let told = ToldCpu::of(fleet);
    for call in fleet.each_once().filter(|call| call.row.code != Code::Ok) {
        sums.entry(call.row.code.number()).or_default().0 += call.weight;
    }
    // Attempts are among those, of calls that may have ended well.
    for call in fleet.handlers().filter(|call| call.row.code != Code::Ok) {
        if let Some(seconds) = call.cpu_s() {
            sums.entry(call.row.code.number()).or_default().1 +=
                seconds * told.stands_for(call) * call.weight;
        }
    }
    // Handlers of calls that were cancelled, or whose deadline passed, say it when the calls are over.
    for late in fleet.late.iter().filter(|late| late.code != Code::Ok) {
        sums.entry(late.code.number()).or_default().1 += late.seconds;
    }
    let (calls, seconds) = sums.values().fold((0.0, 0.0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let mut shares: Vec<_> = sums
        .into_iter()
        .map(|(code, sum)| (Code::from_number(code), share(sum.0, calls), share(sum.1, seconds)))
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

pub(super) fn errors(fleet: &Fleet) -> Drawing {
    let shares = error_shares(fleet);
    if shares.is_empty() {
        return Drawing::Missing("not measured here, because every recorded call ended well".into());
    }
    let bars = |title: &str, colour: usize, share: fn(&(Code, f64, f64)) -> f64| {
        let row = |one: &(Code, f64, f64)| BarRow {
            name: one.0.name().to_owned(),
            value: share(one),
            interval: None,
            words: format!("{} {title}", percent(share(one))),
            colour,
        };
        BarChart {
            title: format!("errors: shares {title}"),
            rows: shares.iter().map(row).collect(),
            log: false,
        }
        .svg()
    };
    let mut charts = vec![bars("of errors", 5, |one| one.1)];
    let failed: f64 =
        fleet.each_once().filter(|call| call.row.code != Code::Ok).map(|call| call.weight).sum();
    let mut said = vec![format!("{} of all calls did not end well.", percent(failed / fleet.weight()))];
    match shares.iter().any(|one| one.2 > 0.0) {
        true => {
            charts.push(bars("of their processor time", 4, |one| one.2));
            said.push(
                "In processor time are attempts that another recorded host served and that failed, whatever became of \
                 their calls."
                    .into(),
            );
            if fleet.late.is_empty() && shares.iter().any(|one| is_late(one.0)) {
                said.push(
                    "Of calls that were cancelled or whose deadline passed, no handler told its processor time: their \
                     part of it is not known."
                        .into(),
                );
            }
        }
        false => {
            said.push("Their processor time is not measured here, because no handler told its own.".into())
        }
    }
    Drawing::Charts(charts, said)
}

/// Whether calls that end so are over before their handlers are.
fn is_late(code: Code) -> bool {
    matches!(code, Code::Cancelled | Code::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    //! Shows that what is said late counts in its error's processor time, and that shares weigh what they are of.
    use super::*;
    use crate::block::tests::block;

    #[test]
    fn a_cancelled_handlers_time_is_its_codes() {
        let mut one = block("a", 100);
        for (n, call) in one.rows.iter_mut().enumerate() {
            let (code, cpu_ns) = if n < 60 { (Code::Cancelled, 0) } else { (Code::Internal, 10_000) };
            (call.row.code, call.row.cpu_ns) = (code, cpu_ns);
        }
        let method = one.head.methods[0].0;
        // Nonsense of a file is left out.
        one.head.late_handlers =
            vec![(method, 1, 1.6e-3), (method, 99, 1.0), (method, 1, -5.0), (method + 9, 1, 1.0)];
        let mut fleet = Fleet::default();
        fleet.add(one);
        let shares = error_shares(&fleet);
        let of = |code: Code| *shares.iter().find(|one| one.0 == code).unwrap();
        assert!(
            (of(Code::Cancelled).2 - 0.8).abs() < 1e-9 && (of(Code::Internal).2 - 0.2).abs() < 1e-9,
            "{shares:?}"
        );
    }

    #[test]
    fn shares_of_cycles_count_as_what_they_are_shares_of() {
        let one = |share: f64, busy_s: f64| {
            let mut block = block("a", 1);
            block.head.cycles = BTreeMap::from([("copies".to_owned(), share)]);
            block.head.variables = BTreeMap::from([("cpu_seconds".to_owned(), busy_s)]);
            block
        };
        let mut fleet = Fleet::default();
        fleet.add(one(0.1, 99.0));
        fleet.add(one(0.9, 1.0));
        assert!((cycle_shares(&fleet)["copies"] - 0.108).abs() < 1e-9, "{:?}", cycle_shares(&fleet));
    }

    #[test]
    fn two_daemons_of_a_machine_have_their_cycles_of_one_machines() {
        let mut fleet = Fleet::default();
        for (host, share) in [("a", 0.1), ("b", 0.2)] {
            let mut block = block(host, 1);
            (block.head.boot_id, block.head.ended_ns) = ("boot".into(), block.head.began_ns + 5_000_000_000);
            block.head.cycles = BTreeMap::from([("copies".to_owned(), share)]);
            block.head.variables = BTreeMap::from([("cpu_seconds".to_owned(), 4.0)]);
            fleet.add(block);
        }
        assert!((cycle_shares(&fleet)["copies"] - 0.3).abs() < 1e-9, "{:?}", cycle_shares(&fleet));
    }
}
