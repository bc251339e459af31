//! For programs.

use super::{PERCENTILES, Report, bars};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::time::SystemTime;

/// The report as one object.
pub fn render(report: &Report) -> String {
    let record = &report.record;
    let codes: Map<String, Value> =
        record.codes.iter().map(|(code, calls)| (code.name().to_owned(), (*calls).into())).collect();
    let failures = record
        .failures
        .iter()
        .map(|((code, message), calls)| json!({ "code": code.name(), "message": message, "calls": calls }));
    let began = report.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let object = json!({
        "method": report.method,
        "target": report.target,
        "plan": report.plan,
        "began_unix_ms": began.as_millis() as u64,
        "warm_up_ns": report.warm_up.as_nanos() as u64,
        "elapsed_ns": record.last.as_nanos() as u64,
        "calls": record.calls(),
        "ok": record.good(),
        "not_sent": record.unsent,
        "calls_per_second": record.rate(),
        "responses": record.responses,
        "request_bytes": record.bytes[0],
        "response_bytes": record.bytes[1],
        "codes": codes,
        "failures": failures.collect::<Vec<_>>(),
        "latency_ns": spread(&record.latency),
        "service_ns": spread(&record.service),
        "behind_ns": spread(&record.behind),
        "histogram": bars(&record.latency)
            .into_iter()
            .map(|(end, calls)| json!({ "up_to_ns": end, "calls": calls }))
            .collect::<Vec<_>>(),
        "steps": report.rates.iter().zip(&record.steps).map(|(rate, step)| json!({
            "rate": rate, "ok": step.good, "failed": step.bad, "latency_ns": spread(&step.latency),
        })).collect::<Vec<_>>(),
        "seconds": record.seconds.iter().map(|second| json!({
            "ok": second.good, "failed": second.bad, "latency_ns": spread(&second.latency),
        })).collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}

fn spread(histogram: &Histogram<u64>) -> Value {
    let min = if histogram.is_empty() { 0 } else { histogram.min() };
    let mut out = Map::from_iter([
        ("min".to_owned(), min.into()),
        ("mean".to_owned(), (histogram.mean() as u64).into()),
        ("stdev".to_owned(), (histogram.stdev() as u64).into()),
        ("max".to_owned(), histogram.max().into()),
    ]);
    for (name, quantile) in PERCENTILES {
        out.insert(name.to_owned(), histogram.value_at_quantile(quantile).into());
    }
    Value::Object(out)
}
