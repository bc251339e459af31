//! Figures 2 and 3: completion times, and how popular fast methods are.

use super::{Drawing, over_methods, too_few};
use crate::fleet::Fleet;
use crate::words::{percent, time};
use trunkline_plot::{Axis, ChartLine, LineChart};

pub(super) fn by_method(fleet: &Fleet) -> Drawing {
    let methods = fleet.by_method(fleet.good(), |call| Some(call.total_s()));
    if methods.is_empty() {
        return too_few(fleet);
    }
    let said = format!("{} methods; calls that ended well.", methods.len());
    Drawing::Charts(over_methods(methods, "completion time", time), vec![said])
}

pub(super) fn popularity(fleet: &Fleet) -> Drawing {
    let mut methods = fleet.by_method(fleet.good(), |call| Some(call.total_s()));
    if methods.is_empty() {
        return too_few(fleet);
    }
    methods.sort_by(|a, b| a.values.quantile(0.5).total_cmp(&b.values.quantile(0.5)));
    let calls: f64 = methods.iter().map(|one| one.values.weight()).sum();
    // Of the same methods as the calls.
    let seconds: f64 = methods.iter().map(|one| one.values.weight() * one.values.mean()).sum();
    let count = methods.len() as f64;
    let (mut of_calls, mut of_time) = (0.0, 0.0);
    let (mut shares, mut cumulated, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (at, one) in methods.iter().enumerate() {
        let x = 100.0 * (at as f64 + 1.0) / count;
        let share = one.values.weight() / calls;
        of_calls += share;
        of_time += one.values.weight() * one.values.mean() / seconds;
        shares.push((x, share));
        cumulated.push((x, of_calls));
        times.push((x, of_time));
    }
    let x =
        || Axis::linear("methods by their median completion time, fastest first", |at| format!("{at:.0} %"));
    let each = LineChart {
        title: "share of calls by method".into(),
        x: x(),
        y: Axis::log("share of calls", percent),
        lines: vec![ChartLine::new("one method", shares).dots()],
    };
    let together = LineChart {
        title: "cumulated share of calls".into(),
        x: x(),
        y: Axis::linear("cumulated", percent),
        lines: vec![ChartLine::new("of calls", cumulated), ChartLine::new("of time", times)],
    };
    let said = format!("{} methods.", methods.len());
    Drawing::Charts(vec![each.svg(), together.svg()], vec![said])
}
