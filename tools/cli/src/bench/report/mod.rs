//! A run as people and programs read it.

mod html;
mod json;
mod text;

use super::record::Record;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use trunkline_telemetry::render;

/// The percentiles that are shown: name and quantile.
const PERCENTILES: [(&str, f64); 8] = [
    ("p10", 0.1),
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];
/// Bars of the histogram.
const BARS: usize = 12;

/// Form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For a terminal.
    Text,
    /// One object with everything.
    Json,
    /// A row per second.
    Csv,
    /// A page with plots that needs nothing else.
    Html,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Report {
    /// `/package.Service/Method`.
    pub method: String,
    /// Whom was called.
    pub target: String,
    /// How calls followed each other.
    pub plan: String,
    /// The rate of each step, if there are several.
    pub rates: Vec<f64>,
    /// When it began.
    pub began: SystemTime,
    /// Time before calls counted.
    pub warm_up: Duration,
    /// What became of the calls.
    pub record: Record,
}

impl Report {
    /// The report as text of a form, ending in a new line.
    pub fn render(&self, form: Form) -> String {
        match form {
            Form::Text => text::render(self),
            Form::Json => json::render(self),
            Form::Csv => self.csv(),
            Form::Html => html::render(self),
        }
    }

    fn csv(&self) -> String {
        let mut out = String::from("second,ok,failed,p50_ns,p90_ns,p99_ns,max_ns\n");
        for (at, second) in self.record.seconds.iter().enumerate() {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|quantile| second.latency.value_at_quantile(quantile));
            let max = second.latency.max();
            let _ = writeln!(out, "{at},{},{},{p50},{p90},{p99},{max}", second.good, second.bad);
        }
        out
    }
}

/// A bar of the histogram: its upper end in nanoseconds, and the calls in it.
fn bars(latency: &Histogram<u64>) -> Vec<(u64, u64)> {
    if latency.is_empty() {
        return Vec::new();
    }
    // The slowest thousandth would press all others into the first bar.
    let end = latency.value_at_quantile(0.999).max(1);
    let width = end.div_ceil(BARS as u64).max(1);
    let mut bars: Vec<(u64, u64)> = (1..=BARS as u64).map(|bar| (bar * width, 0)).collect();
    for value in latency.iter_recorded() {
        let bar = (value.value_iterated_to().saturating_sub(1) / width) as usize;
        bars[bar.min(BARS - 1)].1 += value.count_since_last_iteration();
    }
    if let Some(last) = bars.last_mut() {
        last.0 = last.0.max(latency.max());
    }
    bars
}

fn time(ns: u64) -> String {
    render::duration(ns)
}

#[cfg(test)]
mod tests {
    //! Shows each form of one small run.
    use super::*;
    use crate::bench::record::Ended;
    use trunkline_call::Code;

    fn report() -> Report {
        let mut record = Record::new();
        let ms = Duration::from_millis;
        for call in 0..2000 {
            let (code, message) = match call % 100 {
                7 => (Code::NotFound, "no <user>".to_owned()),
                _ => (Code::Ok, String::new()),
            };
            let (due, bytes) = (ms(call), [10, 20]);
            let over = due + ms(1 + call % 10);
            let step = (call / 1000) as usize;
            record.add(Ended { due, sent: due, over, code, message, responses: 1, bytes }, Some(step));
        }
        Report {
            method: "/a.v1.Echo/Say".into(),
            target: "tcp://127.0.0.1:1".into(),
            plan: "open loop, 1000/s".into(),
            rates: vec![1000.0, 1500.0],
            began: SystemTime::UNIX_EPOCH,
            warm_up: Duration::ZERO,
            record,
        }
    }

    #[test]
    fn text_has_what_people_look_for() {
        let text = report().render(Form::Text);
        for part in
            ["/a.v1.Echo/Say", "2000 calls", "1980 OK", "p99.9", "NOT_FOUND", "20 × no <user>", "█", "1500/s"]
        {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn programs_get_numbers() {
        let json: serde_json::Value = serde_json::from_str(&report().render(Form::Json)).unwrap();
        assert_eq!((&json["calls"], &json["codes"]["NOT_FOUND"]), (&2000.into(), &20.into()));
        let p50 = json["latency_ns"]["p50"].as_u64().unwrap();
        assert!((5_000_000..=5_010_000).contains(&p50), "{p50}");
        assert_eq!(json["seconds"].as_array().unwrap().len(), 2);
        assert_eq!((&json["steps"][1]["rate"], &json["steps"][1]["ok"]), (&1500.0.into(), &990.into()));
        let histogram = json["histogram"].as_array().unwrap();
        assert_eq!(histogram.iter().map(|bar| bar["calls"].as_u64().unwrap()).sum::<u64>(), 2000);
        let csv = report().render(Form::Csv);
        assert_eq!(csv.lines().count(), 3);
        assert!(csv.lines().nth(1).unwrap().starts_with("0,990,10,"), "{csv}");
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = report().render(Form::Html);
        assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.ends_with("</html>\n"));
        assert!(page.contains("no &lt;user&gt;") && !page.contains("no <user>"), "words are not markup");
        for outside in ["http://", "https://", "src=", "<script", "NaN", "inf"] {
            assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
        }
    }

    #[test]
    fn an_empty_run_has_a_report_too() {
        let empty = Report { record: Record::new(), ..report() };
        for form in [Form::Text, Form::Json, Form::Csv, Form::Html] {
            assert!(!empty.render(form).contains("NaN"), "{form:?}");
        }
    }
}
