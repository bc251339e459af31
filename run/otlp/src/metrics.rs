//! Figures as OTLP has them.
//!
//! Names are those of OpenTelemetry's conventions and gRFC A66: without the unit and without `_total`, which an
//! exporter for Prometheus adds again. So a figure has one name there whether Prometheus reads it here or a collector
//! sends it on.

use crate::body::{ExportOrigin, RequestBody, Send, text};
use serde_json::{Value, json};
use trunkline_telemetry::{BoundCounts, Exemplar, Exposition, Figure, FigureFamily, FigureKind, FigurePoint};

/// Points of one family in one item.
const POINTS_MAX: usize = 256;
/// Since the start (AGGREGATION_TEMPORALITY_CUMULATIVE).
const CUMULATIVE: u8 = 2;
const NS: f64 = 1e-9;

/// When figures are from, since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FigureTimes {
    pub started_ns: u64,
    pub now_ns: u64,
    /// What the monotonic clock lacks to them.
    pub epoch_ns: u64,
}

/// Sends every family.
pub(crate) fn send<'a>(
    origin: &ExportOrigin,
    figures: &Exposition,
    times: FigureTimes,
    send: &'a mut Send<'a>,
) {
    let mut body = RequestBody::new(origin, "Metrics", "metrics", send);
    for family in figures.families() {
        for points in family.points.chunks(POINTS_MAX) {
            if !body.add(&metric(family, points, times)) {
                return;
            }
        }
    }
    body.flush();
}

fn metric(family: &FigureFamily, points: &[FigurePoint], times: FigureTimes) -> Value {
    let (name, unit) = name_and_unit(family);
    let points: Vec<Value> = points.iter().map(|point| data_point(point, times)).collect();
    let (kind, data) = match family.kind {
        FigureKind::Gauge => ("gauge", json!({ "dataPoints": points })),
        FigureKind::Counter => (
            "sum",
            json!({ "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points }),
        ),
        FigureKind::Histogram => {
            ("histogram", json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points }))
        }
    };
    json!({ "name": name, "description": family.help, "unit": unit, kind: data })
}

fn data_point(point: &FigurePoint, times: FigureTimes) -> Value {
    let labels = point.labels.iter().map(|(name, value)| text(&label(name), value));
    let mut shown = json!({
        "attributes": labels.collect::<Vec<_>>(),
        "startTimeUnixNano": times.started_ns.to_string(),
        "timeUnixNano": times.now_ns.to_string(),
    });
    let (key, value) = match &point.value {
        Figure::Count(count) => ("asInt", json!(count.to_string())),
        Figure::Number(number) => ("asDouble", json!(number)),
        Figure::BoundCounts(buckets) => {
            add_buckets(&mut shown, buckets, times);
            return shown;
        }
    };
    shown[key] = value;
    shown
}

fn add_buckets(shown: &mut Value, buckets: &BoundCounts, times: FigureTimes) {
    let (mut before, mut counts, mut exemplars) = (0, Vec::new(), Vec::new());
    for (_, below, of_bound) in buckets.rows() {
        counts.push(json!(below.saturating_sub(before).to_string()));
        before = below;
        exemplars.extend(of_bound.map(|one| exemplar(one, times)));
    }
    shown["count"] = json!(buckets.count.to_string());
    shown["sum"] = json!(buckets.sum);
    shown["bucketCounts"] = counts.into();
    shown["explicitBounds"] = json!(buckets.bounds);
    shown["exemplars"] = exemplars.into();
}

fn exemplar(one: &Exemplar, times: FigureTimes) -> Value {
    json!({
        "timeUnixNano": one.at_ns.saturating_add(times.epoch_ns).to_string(),
        "asDouble": one.total_ns as f64 * NS,
        "traceId": format!("{:032x}", one.trace),
        "spanId": format!("{:016x}", one.span),
    })
}

fn name_and_unit(family: &FigureFamily) -> (String, &'static str) {
    let name = match family.kind {
        FigureKind::Counter => family.name.strip_suffix("_total").unwrap_or(family.name),
        _ => family.name,
    };
    let units = [("_seconds", "s"), ("_bytes", "By")];
    let unit = units.into_iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, unit)));
    // None where Prometheus's name says none: an exporter adds `_ratio` to a gauge of unit 1.
    let (name, unit) = unit.unwrap_or((name, ""));
    // What gRFC A66 names, as it names it.
    for scope in ["grpc_client_call_", "grpc_client_attempt_", "grpc_server_call_"] {
        if let Some(rest) = name.strip_prefix(scope) {
            return (format!("{}{rest}", scope.replace('_', ".")), unit);
        }
    }
    (name.replacen('_', ".", 1), unit)
}

fn label(name: &str) -> String {
    if name.starts_with("grpc_") { name.replacen('_', ".", 1) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    //! Shows a counter, a gauge and a histogram as a collector reads them, and that many points are several requests.
    use super::*;
    use crate::body::REQUEST_BYTES_MAX;
    use trunkline_telemetry::{Exemplars, Histogram};

    const TIMES: FigureTimes = FigureTimes { started_ns: 1, now_ns: 2, epoch_ns: 1000 };

    fn sent(figures: &Exposition) -> Vec<Value> {
        let mut bodies: Vec<Value> = Vec::new();
        let origin = ExportOrigin::new(&[("service.name".into(), "trunkline".into())], "1");
        send(&origin, figures, TIMES, &mut |body| {
            assert!(body.len() < 2 * REQUEST_BYTES_MAX);
            bodies.push(serde_json::from_str(body).unwrap());
            true
        });
        bodies
    }

    #[test]
    fn three_kinds() {
        let mut figures = Exposition::default();
        figures.family("trunkline_calls_total", "counter", "Calls.");
        figures.sample(&[("method", "a\"b")], u64::MAX);
        figures.family("process_resident_memory_bytes", "gauge", "Memory.");
        figures.sample(&[], 1.5);
        figures.histograms("grpc_client_call_duration_seconds", "Time.");
        let (mut values, mut exemplars) = (Histogram::default(), Exemplars::default());
        [1_000, 2_000_000, 2_000_000].into_iter().for_each(|ns| values.record(ns));
        exemplars.note(Exemplar { at_ns: 5, total_ns: 2_000_000, trace: 0xab, span: 0xc });
        let buckets = BoundCounts::of(&values, &[0.001, 0.01], NS).with(&exemplars);
        figures.sample(&[("grpc_method", "M")], buckets);
        let [body] = &sent(&figures)[..] else { panic!("one request") };
        let resource = &body["resourceMetrics"][0];
        assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "trunkline");
        let metrics = resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
        let [calls, memory, times] = &metrics[..] else { panic!("{metrics:#?}") };
        assert_eq!((&calls["name"], &calls["unit"]), (&json!("trunkline.calls"), &json!("")));
        let point = &calls["sum"]["dataPoints"][0];
        assert_eq!((&point["asInt"], &point["timeUnixNano"]), (&json!(u64::MAX.to_string()), &json!("2")));
        assert_eq!(point["attributes"], json!([{ "key": "method", "value": { "stringValue": "a\"b" } }]));
        assert_eq!(
            (&calls["sum"]["isMonotonic"], &calls["sum"]["aggregationTemporality"]),
            (&json!(true), &json!(2))
        );
        assert_eq!((&memory["name"], &memory["unit"]), (&json!("process.resident_memory"), &json!("By")));
        assert_eq!(memory["gauge"]["dataPoints"][0]["asDouble"], 1.5);
        assert_eq!((&times["name"], &times["unit"]), (&json!("grpc.client.call.duration"), &json!("s")));
        let point = &times["histogram"]["dataPoints"][0];
        assert_eq!(point["bucketCounts"], json!(["1", "2", "0"]));
        assert_eq!((&point["count"], &point["explicitBounds"]), (&json!("3"), &json!([0.001, 0.01])));
        assert_eq!(point["attributes"][0]["key"], "grpc.method");
        let [exemplar] = &point["exemplars"].as_array().unwrap()[..] else { panic!("{point}") };
        assert_eq!(exemplar["traceId"], format!("{:032x}", 0xab));
        assert_eq!((&exemplar["timeUnixNano"], &exemplar["asDouble"]), (&json!("1005"), &json!(0.002)));
    }

    #[test]
    fn many_points_are_several_requests() {
        let mut figures = Exposition::default();
        figures.family("trunkline_calls_total", "counter", "Calls.");
        let count = 20_000_u64;
        (0..count).for_each(|n| figures.sample(&[("method", &format!("m{n}"))], n));
        let bodies = sent(&figures);
        assert!(bodies.len() > 1, "{}", bodies.len());
        let metrics = bodies
            .iter()
            .flat_map(|body| body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap());
        let points = metrics.map(|metric| metric["sum"]["dataPoints"].as_array().unwrap().len());
        assert_eq!(points.sum::<usize>(), count as usize);
    }
}
