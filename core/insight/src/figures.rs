//! The study's figures 1 to 23, each from what the records hold, or the reason why not.

mod clusters;
mod cycles;
mod host;
mod latency;
mod parts;
mod points;
mod services;
mod shapes;
mod sizes;

pub(crate) use clusters::shown_methods;
pub(crate) use cycles::{cycle_shares, error_shares};
pub(crate) use host::growth_points;
pub(crate) use parts::{TaxShares, tail};
pub(crate) use services::{cpu_shares, service_shares};

use crate::fleet::{ClockBound, Fleet, FleetCall, MethodValues};
use crate::words::{percent, short, time};
use trunkline_plot::{Axis, ChartLine, Format, HeatChart, LineChart};
use trunkline_telemetry::Coverage;

/// One of the study's figures.
#[derive(Clone, Debug)]
pub struct StudyFigure {
    /// Its number there.
    pub number: u8,
    /// What it shows.
    pub title: &'static str,
    /// What was drawn, or why nothing was.
    pub drawing: Drawing,
}

/// What became of a figure.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Charts, and a sentence about each or all.
    Charts(Vec<String>, Vec<String>),
    /// What the records do not say.
    Missing(String),
}

/// A figure's number, title and how it is drawn.
type Recipe = (u8, &'static str, fn(&Fleet) -> Drawing);

const RECIPES: [Recipe; 23] = [
    (1, "Calls for the same processor time, relative to the first interval", host::growth),
    (2, "Completion time by method", latency::by_method),
    (3, "Share of calls by latency rank of their methods", latency::popularity),
    (4, "Calls below a call, by method", shapes::descendants),
    (5, "Calls above a call, by method", shapes::ancestors),
    (6, "Request and response sizes by method", sizes::by_method),
    (7, "Response size ÷ request size of the same call, by method", sizes::ratio),
    (8, "Shares of services by calls, bytes and processor time", services::shares),
    (9, "Where a call is stamped", points::picture),
    (10, "Application and latency tax", parts::tax),
    (11, "Latency tax ÷ completion time, by method", parts::tax_ratio),
    (12, "Both wires and stacks, by method", parts::wire_and_stack),
    (13, "The four queues, by method", parts::queues),
    (14, "Components by percentile of completion time", parts::by_percentile),
    (15, "What if one component were never above its median", parts::what_if),
    (16, "P95 by cluster", clusters::tails),
    (17, "P95 against variables of the host", host::variables),
    (18, "P95 and variables of the host over time", host::over_time),
    (19, "One service by the cluster of its callers", clusters::callers),
    (20, "Cycle tax", cycles::tax),
    (21, "Processor time of a call, by method", cycles::by_method),
    (22, "Processor use of hosts", host::use_of_hosts),
    (23, "Errors by count and by processor time", cycles::errors),
];

/// All figures, in order.
pub fn figures(fleet: &Fleet) -> Vec<StudyFigure> {
    let draw = |(number, title, recipe): Recipe| StudyFigure { number, title, drawing: recipe(fleet) };
    RECIPES.into_iter().map(draw).collect()
}

/// What every figure says of the calls behind it.
pub fn basis(fleet: &Fleet) -> String {
    let calls = fleet.each_once().count();
    let left =
        |call: &FleetCall| !matches!(call.row.components.coverage, Coverage::OneHost | Coverage::Stayed);
    let clock = match fleet.clock_bound() {
        None if fleet.each_once().any(left) => "of no call the stamps of both hosts are there".to_owned(),
        None => "no call left its host, so there was one clock".to_owned(),
        Some(ClockBound { mean_ns: None, .. }) => "of no call the other clock is known".to_owned(),
        Some(ClockBound { mean_ns: Some(ns), unknown }) => {
            let mean = format!("the two wires may have to give each other {} (mean)", time(ns * 1e-9));
            match unknown {
                0.0 => mean,
                unknown => {
                    format!("{mean}; of {} of the calls the other clock is not known", percent(unknown))
                }
            }
        }
    };
    let lost = match fleet.lost() {
        0 => String::new(),
        lost => format!("; {lost} calls were overwritten before they were recorded"),
    };
    let made = match fleet.driven() {
        _ if fleet.is_generated() => "generated, not measured: ".to_owned(),
        Some(driven) => format!("made by `trunkline drive`, times divided by {}: ", short(driven.time_scale)),
        None => String::new(),
    };
    let weight = short(fleet.weight());
    format!("{made}n = {calls} calls {}, which stand for {weight}{lost}; clocks: {clock}", fleet.sides())
}

/// Percentiles that stand beside each other in the study.
const PERCENTILES: [f64; 5] = [0.01, 0.1, 0.5, 0.9, 0.99];

/// Why there is no figure over methods.
fn too_few(fleet: &Fleet) -> Drawing {
    let most = crate::fleet::METHOD_CALLS_MIN;
    Drawing::Missing(format!(
        "not measured here, because no method has {most} recorded calls that ended well and say this ({} methods, {} \
         calls)",
        fleet.methods.len(),
        fleet.calls.len()
    ))
}

/// A heat map of methods sorted by their median, and curves of percentiles over methods.
fn over_methods(mut methods: Vec<MethodValues>, what: &str, format: Format) -> Vec<String> {
    methods.sort_by(|a, b| a.values.quantile(0.5).total_cmp(&b.values.quantile(0.5)));
    let quantiles = |part: f64| -> Vec<f64> { methods.iter().map(|one| one.values.quantile(part)).collect() };
    vec![heat(&methods, what), curves(quantiles, what, format)]
}

/// Columns of a heat map; more methods share one.
const HEAT_COLUMNS: usize = 100;
/// Rows of a heat map.
const HEAT_ROWS: usize = 24;

/// How many of a method's calls have which value, methods from left to right by their median.
fn heat(methods: &[MethodValues], what: &str) -> String {
    let ends =
        |part: f64| methods.iter().map(move |one| one.values.quantile(part)).filter(|value| *value > 0.0);
    let (low, high) =
        (ends(0.01).fold(f64::INFINITY, f64::min), ends(0.99).fold(f64::NEG_INFINITY, f64::max));
    if !(low < high && high.is_finite()) {
        return String::new();
    }
    let edge = |row: usize| low * (high / low).powf(row as f64 / HEAT_ROWS as f64);
    let every = methods.len().div_ceil(HEAT_COLUMNS);
    let columns: Vec<&MethodValues> = methods.iter().step_by(every).collect();
    let cell = |one: &MethodValues, row: usize| {
        let below = if row == 0 { 0.0 } else { one.values.part_at_most(edge(row)) };
        // A fifth of a method's calls in one row is as dark as it gets.
        ((one.values.part_at_most(edge(row + 1) * (1.0 + 1e-9)) - below) * 5.0, String::new())
    };
    let rows = (0..HEAT_ROWS).rev();
    let rows = rows.map(|row| (String::new(), columns.iter().map(|one| cell(one, row)).collect()));
    HeatChart {
        title: format!("{what}: heat map"),
        columns: vec![String::new(); columns.len()],
        rows: rows.collect(),
        label: format!(
            "methods by their median; upwards: {what}, each row {}×",
            short((high / low).powf(1.0 / HEAT_ROWS as f64))
        ),
    }
    .svg()
}

/// Curves over methods: for each percentile, the methods' values in order.
fn curves(quantiles: impl Fn(f64) -> Vec<f64>, what: &str, format: Format) -> String {
    let line = |part: f64| {
        let mut values = quantiles(part);
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len() as f64;
        let points =
            values.into_iter().enumerate().map(|(at, value)| (100.0 * (at as f64 + 0.5) / count, value));
        ChartLine::new(&format!("P{}", short(100.0 * part)), points.collect())
    };
    let lines: Vec<ChartLine> = PERCENTILES.into_iter().map(line).collect();
    let (x, y) = (Axis::linear("percentile of methods", |at| format!("{at:.0} %")), Axis::log(what, format));
    LineChart { title: format!("{what}: curves over methods"), x, y, lines }.svg()
}

#[cfg(test)]
mod tests {
    //! Shows that every figure is drawn or says why not, whatever there is.
    use super::*;
    use crate::block::tests::block;

    #[test]
    fn nothing_and_little_give_reasons() {
        let mut fleet = Fleet::default();
        for calls in [0, 1, 99, 300] {
            if calls > 0 {
                fleet.add(block("a", calls));
            }
            let figures = figures(&fleet);
            assert_eq!(
                figures.iter().map(|figure| figure.number).collect::<Vec<_>>(),
                (1..=23).collect::<Vec<_>>()
            );
            for StudyFigure { number, drawing, .. } in figures {
                match drawing {
                    Drawing::Charts(charts, _) => {
                        assert!(charts.iter().all(|chart| !chart.contains("NaN")), "{number}: {charts:?}");
                    }
                    Drawing::Missing(why) => {
                        assert!(why.starts_with("not measured here, because"), "{number}: {why}")
                    }
                }
            }
            assert!(basis(&fleet).contains("calls"));
        }
    }
}
