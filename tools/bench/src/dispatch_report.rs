//! What the comparison of dispatching says: tables, plots, marks.

use crate::dispatch::{Dispatching, OURS, Round, Row};
use crate::marks::{Mark, mark};
use crate::open::{Shape, WORKERS};
use crate::stats::{Spread, short};
use std::fmt::Write;

const TARGET: &str = "T11";
/// Of p50, p99 and p99.9: which.
const P99: usize = 1;

impl Row {
    /// A latency of each round, in milliseconds.
    fn took_ms(&self, quantile: usize) -> Vec<f64> {
        self.rounds.iter().map(|round| round.answer.took[quantile] as f64 / 1e6).collect()
    }

    fn bound_ms(&self, quantile: usize) -> Vec<f64> {
        self.rounds.iter().map(|round| round.answer.bound[quantile] as f64 / 1e6).collect()
    }

    /// What the bound would be if its workers, too, had taken as long as these handlers really did.
    fn bound_as_served_ms(&self, quantile: usize) -> Vec<f64> {
        self.rounds.iter().map(|round| round.answer.bound_as_served[quantile] as f64 / 1e6).collect()
    }

    /// CPU per call of something in a round.
    fn cpu_us(&self, of: fn(&Round) -> u64) -> Vec<f64> {
        self.rounds.iter().map(|round| of(round) as f64 / 1e3 / round.answer.calls as f64).collect()
    }

    fn failed(&self) -> u64 {
        self.rounds.iter().map(|round| round.answer.failed).sum()
    }
}

impl Dispatching {
    fn loads(&self) -> Vec<(Shape, u32)> {
        let mut loads: Vec<_> = self.rows.iter().map(|row| (row.shape, row.percent)).collect();
        loads.dedup();
        loads
    }

    fn of(&self, (shape, percent): (Shape, u32)) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.shape == shape && row.percent == percent)
    }

    fn find(&self, load: (Shape, u32), chooser: &str) -> Option<&Row> {
        self.of(load).find(|row| row.chooser == chooser)
    }

    /// What was wanted, and what was measured.
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        let hard = (Shape::Bimodal, 90);
        let ratio = |of: Option<Vec<f64>>, to: Option<Vec<f64>>| Spread::of_ratio(&of?, &to?);
        let took = |load, chooser| self.find(load, chooser).map(|row: &Row| row.took_ms(P99));
        let bound = |load| self.find(load, OURS).map(|row| row.bound_ms(P99));
        if let Some(ratio) = ratio(took(hard, "nginx"), took(hard, OURS)) {
            let what = "90 % bimodal, p99: nginx by itself ÷ our router".to_owned();
            marks.push(mark(TARGET, what, ratio));
        }
        if let Some(ratio) = ratio(took(hard, OURS), bound(hard)) {
            let what = format!("90 % bimodal, p99: our router ÷ M/G/{WORKERS}");
            marks.push(mark(TARGET, what, ratio));
        }
        let as_served = self.find(hard, OURS).map(|row| row.bound_as_served_ms(P99));
        if let Some(ratio) = ratio(took(hard, OURS), as_served) {
            let what = format!("the same ÷ M/G/{WORKERS} with the times the handlers really took");
            marks.push(mark(TARGET, what, ratio));
        }
        for other in ["nginx least_conn", "HAProxy leastconn"] {
            let ratios =
                self.loads().into_iter().filter_map(|load| ratio(took(load, other), took(load, OURS)));
            let medians: Vec<f64> = ratios.map(|ratio| ratio.median).collect();
            let Some(all) = Spread::of(medians.iter().copied()) else { continue };
            let what = format!("p99: {other} ÷ our router, the least of all loads");
            let least = Spread { median: all.least, ..all };
            marks.push(mark(TARGET, what, least));
        }
        marks
    }

    /// How much of the processors there was.
    fn about_the_host(&self) -> String {
        let rounds = || self.rows.iter().flat_map(|row| &row.rounds);
        let stolen = spread(rounds().map(|round| round.stolen_percent).collect());
        let mut out = format!("\nThe host gave {stolen} % of the processors to others in a round");
        if let Some(most) = self.plan.stolen_percent_max {
            let again: u32 = rounds().map(|round| round.again).sum();
            let _ = write!(
                out,
                "; one with more than {most} % was measured again, five times at most: {again} were"
            );
        }
        out + ".\n"
    }

    /// Tables as the documents have them.
    pub fn markdown(&self) -> String {
        let plan = &self.plan;
        let mut out = format!(
            "\n### {WORKERS} workers, {} ms of service in the mean, {} rounds of {} ms\n",
            plan.mean_us as f64 / 1e3,
            plan.rounds,
            plan.millis
        );
        out += &self.about_the_host();
        for load in self.loads() {
            let (shape, percent) = load;
            let _ = writeln!(
                out,
                "\n**{}, {percent} %**\n\n\
                 | | p50 ms | p99 ms | p99.9 ms | p99 ÷ bound | ÷ bound as served | \
                 CPU µs per call, who chooses | the client's daemon |\n\
                 |---|---|---|---|---|---|---|---|",
                shape.name()
            );
            if let Some(row) = self.of(load).next() {
                let [p50, p99, p999] = [0, 1, 2].map(|quantile| spread(row.bound_ms(quantile)));
                let _ = writeln!(out, "| bound (M/G/{WORKERS}) | {p50} | {p99} | {p999} | 1 | | | |");
            }
            for row in self.of(load) {
                let [p50, p99, p999] = [0, 1, 2].map(|quantile| spread(row.took_ms(quantile)));
                let [ratio, as_served] = [row.bound_ms(P99), row.bound_as_served_ms(P99)]
                    .map(|bound| Spread::of_ratio(&row.took_ms(P99), &bound))
                    .map(|ratio| ratio.map_or_else(String::new, |ratio| ratio.to_string()));
                let failed = match row.failed() {
                    0 => String::new(),
                    failed => format!(" ({failed} calls failed)"),
                };
                let (name, cpu) = (row.chooser, spread(row.cpu_us(|round| round.cpu_ns)));
                let daemon = spread(row.cpu_us(|round| round.daemon_cpu_ns));
                let _ = writeln!(
                    out,
                    "| {name}{failed} | {p50} | {p99} | {p999} | {ratio} | {as_served} | {cpu} | {daemon} |"
                );
            }
        }
        for (name, why) in &self.absent {
            let _ = writeln!(out, "\nAbsent: {name} ({why})");
        }
        out
    }

    /// A plot for each kind of service time: p99 by its bound, a bar for each load and chooser.
    pub fn html(&self) -> String {
        const WIDTH: f64 = 860.0;
        const NAME: f64 = 190.0;
        const BAR: f64 = 18.0;
        let mut out = format!("<h2>{WORKERS} workers behind routers and proxies: p99 ÷ bound</h2>");
        for load in self.loads() {
            let rows: Vec<(&Row, Spread)> = self
                .of(load)
                .filter_map(|row| Some((row, Spread::of_ratio(&row.took_ms(P99), &row.bound_ms(P99))?)))
                .collect();
            let most = rows.iter().map(|(_, spread)| spread.median).fold(1.0, f64::max);
            let _ = write!(
                out,
                "<h3>{}, {} %</h3><svg width=\"{WIDTH}\" height=\"{}\" role=\"img\">",
                load.0.name(),
                load.1,
                BAR * rows.len() as f64
            );
            for (index, (row, spread)) in rows.iter().enumerate() {
                let (top, width) = (BAR * index as f64, spread.median / most * (WIDTH - NAME - 130.0));
                let colour = if row.chooser == OURS { "#1764ab" } else { "#bbb" };
                let text = top + BAR * 0.75;
                let _ = write!(
                    out,
                    "<text x=\"0\" y=\"{text}\">{}</text><rect x=\"{NAME}\" y=\"{}\" width=\"{width}\" height=\"{}\" \
                     fill=\"{colour}\"/><text x=\"{}\" y=\"{text}\">{}</text>",
                    row.chooser,
                    top + 2.0,
                    BAR - 4.0,
                    NAME + width + 8.0,
                    short(spread.median)
                );
            }
            out += "</svg>";
        }
        out
    }
}

fn spread(values: Vec<f64>) -> String {
    Spread::of(values).map_or_else(String::new, |spread| spread.to_string())
}

#[cfg(test)]
mod tests {
    //! Marks are judged by ratios within a round, and the worst load decides who is below whom everywhere.
    use super::*;
    use crate::dispatch::Plan;
    use crate::open::Answer;

    fn row(chooser: &'static str, percent: u32, p99_ms: u64) -> Row {
        let [took, bound, bound_as_served] = [p99_ms, 10, 10].map(|ms| [0, ms * 1_000_000, 0]);
        let answer = Answer { calls: 1, failed: 0, p95_ns: 0, took, bound, bound_as_served };
        let round = Round { answer, cpu_ns: 0, daemon_cpu_ns: 0, stolen_percent: 0.0, again: 0 };
        Row { chooser, shape: Shape::Bimodal, percent, rounds: vec![round] }
    }

    #[test]
    fn the_worst_load_decides() {
        let plan = Plan {
            rounds: 1,
            millis: 1,
            mean_us: 1000,
            shapes: vec![Shape::Bimodal],
            percents: vec![50, 90],
            only: Vec::new(),
            stolen_percent_max: None,
        };
        let ours = [row(OURS, 50, 11), row(OURS, 90, 12)];
        let theirs = [row("nginx", 90, 60), row("nginx least_conn", 50, 10), row("nginx least_conn", 90, 30)];
        let rows = ours.into_iter().chain(theirs).collect();
        let dispatching = Dispatching { plan, rows, absent: vec![("HAProxy", "not here".to_owned())] };
        let reached: Vec<Option<bool>> = dispatching.marks().iter().map(|mark| mark.reached).collect();
        assert_eq!(reached, [Some(false), Some(true), Some(true), Some(false)], "{:?}", dispatching.marks());
        let text = dispatching.markdown();
        assert!(
            text.contains("| nginx least_conn | 0 (0–0) | 30.0")
                && text.contains("Absent: HAProxy (not here)")
        );
        assert!(dispatching.html().contains("bimodal, 90 %"));
    }
}
