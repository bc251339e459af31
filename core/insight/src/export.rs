//! Records in formats of others: CSV, Jaeger's JSON, and the trace event JSON that Perfetto opens.

use crate::fleet::{Fleet, FleetCall};
use serde_json::{Value, json};
use std::fmt::Write;
use trunkline_telemetry::{Component, Coverage};

/// One line a call, names first.
pub fn csv(fleet: &Fleet) -> String {
    let mut out = String::from(
        "host,cluster,generated,ended_unix_us,side,method,peer,code,weight,coverage,clipped,slow,request_bytes,\
         response_bytes,cpu_ns,subtree,ancestors,half_width_ns,total_ns",
    );
    for component in Component::ALL {
        let _ = write!(out, ",{}_ns", component.label());
    }
    out.push('\n');
    for call in &fleet.calls {
        let (head, row) = (&fleet.heads[call.block as usize], &call.row);
        let told = |number: u32| if number == 0 { String::new() } else { number.to_string() };
        let names = [quoted(&head.host), quoted(&head.cluster), head.generated.to_string()];
        let texts = [row.side.name().to_owned(), quoted(fleet.name(call.method)), quoted(fleet.peer(call))];
        let _ = write!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}{}",
            names.join(","),
            ended_us(fleet, call),
            texts.join(","),
            row.code.name(),
            call.weight,
            coverage(row.components.coverage),
            row.components.clipped,
            row.slow,
            row.request_bytes,
            row.response_bytes,
            told(row.cpu_ns),
            told(row.subtree),
            call.ancestors.map_or(String::new(), |ancestors| ancestors.to_string()),
            if row.half_width_ns == u32::MAX { String::new() } else { row.half_width_ns.to_string() },
            row.components.total_ns(),
            row.components.ns.map(|ns| format!(",{ns}")).concat(),
        );
        out.push('\n');
    }
    out
}

/// As Jaeger's page loads a file: a trace for each call, with a span for each component there was.
pub fn jaeger(fleet: &Fleet) -> String {
    let traces: Vec<Value> =
        fleet.calls.iter().enumerate().map(|(index, call)| trace(fleet, index, call)).collect();
    json!({ "data": traces }).to_string()
}

fn trace(fleet: &Fleet, index: usize, call: &FleetCall) -> Value {
    let trace_id = format!("{:032x}", index + 1);
    // Sixteen numbers for the spans of a call.
    let span_id = |place: usize| format!("{:016x}", ((index + 1) << 4) + place);
    let span = |place: usize, name: &str, from_us: f64, us: f64, tags: Vec<Value>, parent: Option<String>| {
        let references: Vec<Value> = parent
            .into_iter()
            .map(|parent| json!({ "refType": "CHILD_OF", "traceID": trace_id, "spanID": parent }))
            .collect();
        json!({
            "traceID": trace_id, "spanID": span_id(place), "operationName": name, "references": references,
            "startTime": from_us.round() as u64, "duration": us.round() as u64, "tags": tags, "logs": [],
            "processID": "p1",
        })
    };
    let total_us = call.total_s() * 1e6;
    let began_us = ended_us(fleet, call) as f64 - total_us;
    let tag = |key: &str, value: Value| {
        let kind = if value.is_string() {
            "string"
        } else if value.is_boolean() {
            "bool"
        } else {
            "float64"
        };
        json!({ "key": key, "type": kind, "value": value })
    };
    let tags = vec![
        tag("rpc.system", "trunkline".into()),
        tag("rpc.grpc.status_code", call.row.code.name().into()),
        tag("trunkline.peer", fleet.peer(call).into()),
        tag("trunkline.weight", call.weight.into()),
        tag("trunkline.coverage", coverage(call.row.components.coverage).into()),
        tag("error", (call.row.code.number() != 0).into()),
    ];
    let mut spans = vec![span(0, fleet.name(call.method), began_us, total_us, tags, None)];
    let mut at = began_us;
    for component in Component::ALL {
        let us = call.part_s(component) * 1e6;
        if us > 0.0 {
            spans.push(span(1 + component as usize, component.name(), at, us, Vec::new(), Some(span_id(0))));
        }
        at += us;
    }
    let head = &fleet.heads[call.block as usize];
    let process = json!({
        "serviceName": fleet.service(call.method),
        "tags": [tag("host", head.host.clone().into()), tag("generated", head.generated.into())],
    });
    json!({ "traceID": trace_id, "spans": spans, "processes": { "p1": process } })
}

/// As Perfetto opens it: calls as asynchronous slices of their method, components nested in them.
pub fn perfetto(fleet: &Fleet) -> String {
    let hosts = fleet.hosts();
    let process = |call: &FleetCall| {
        let host = fleet.heads[call.block as usize].host.as_str();
        hosts.iter().position(|name| *name == host).unwrap_or(0) + 1
    };
    let mut events: Vec<Value> = hosts
        .iter()
        .enumerate()
        .map(|(at, host)| json!({ "ph": "M", "name": "process_name", "pid": at + 1, "args": { "name": host } }))
        .collect();
    for (index, call) in fleet.calls.iter().enumerate() {
        let pid = process(call);
        let total_us = call.total_s() * 1e6;
        let began_us = ended_us(fleet, call) as f64 - total_us;
        let mut event = |phase: &str, name: &str, at_us: f64, args: Value| {
            events.push(json!({
                "ph": phase, "cat": fleet.service(call.method), "name": name, "id": index + 1, "pid": pid,
                "tid": call.method + 1, "ts": at_us, "args": args,
            }));
        };
        let args = json!({ "code": call.row.code.name(), "peer": fleet.peer(call), "weight": call.weight });
        let name = fleet.name(call.method);
        event("b", name, began_us, args);
        let mut at = began_us;
        for component in Component::ALL {
            let us = call.part_s(component) * 1e6;
            if us > 0.0 {
                event("b", component.name(), at, json!({}));
                event("e", component.name(), at + us, json!({}));
            }
            at += us;
        }
        event("e", name, began_us + total_us, json!({}));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns" }).to_string()
}

/// When a call ended, microseconds since 1970, by its host's clock.
fn ended_us(fleet: &Fleet, call: &FleetCall) -> u64 {
    let head = &fleet.heads[call.block as usize];
    let since_us = call.row.at.0.saturating_sub(head.began_ns) / 1000;
    head.began_unix_ms.saturating_mul(1000).saturating_add(since_us)
}

fn coverage(coverage: Coverage) -> &'static str {
    match coverage {
        Coverage::Whole => "whole",
        Coverage::ClientOnly => "client_only",
        Coverage::ServerOnly => "server_only",
        Coverage::OneHost => "one_host",
        Coverage::Stayed => "stayed",
    }
}

/// As RFC 4180 has it.
fn quoted(text: &str) -> String {
    let is_plain = !text.contains(['"', ',', '\n', '\r']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    //! Shows each format by a reader of it: every call is there, and its components fill it.
    use super::*;
    use crate::block::tests::block;
    use serde::Deserialize;
    use std::collections::HashMap;

    fn fleet() -> Fleet {
        let mut one = block("a,\"b\"", 3);
        one.head.began_unix_ms = 1_700_000_000_000;
        for call in &mut one.rows {
            call.row.components.ns = [1_000, 2_000, 0, 0, 30_000, 0, 0, 4_000, 5_000];
        }
        let mut fleet = Fleet::default();
        fleet.add(one);
        fleet
    }

    #[test]
    fn csv_has_a_line_a_call() {
        let text = csv(&fleet());
        let lines: Vec<&str> = text.lines().collect();
        let head: Vec<&str> = lines[0].split(',').collect();
        assert_eq!(lines.len(), 4);
        let rest = lines[1].strip_prefix("\"a,\"\"b\"\"\",").expect("a name with commas is quoted");
        let cells: Vec<&str> = rest.split(',').collect();
        assert_eq!(cells.len() + 1, head.len(), "{text}");
        let cell = |name: &str| cells[head.iter().position(|other| *other == name).unwrap() - 1];
        assert_eq!((cell("method"), cell("total_ns"), cell("code")), ("/a.B/C", "42000", "OK"));
        assert_eq!((cell("server_application_ns"), cell("subtree")), ("30000", ""));
        assert_eq!(cell("ended_unix_us"), "1700000000000001");
    }

    /// What Jaeger's page needs of a file (`transformTraceData` of its model).
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Span {
        #[serde(rename = "traceID")]
        trace_id: String,
        #[serde(rename = "spanID")]
        span_id: String,
        operation_name: String,
        start_time: u64,
        duration: u64,
        references: Vec<HashMap<String, String>>,
        #[serde(rename = "processID")]
        process_id: String,
    }

    #[derive(Deserialize)]
    struct Trace {
        #[serde(rename = "traceID")]
        trace_id: String,
        spans: Vec<Span>,
        processes: HashMap<String, Value>,
    }

    #[test]
    fn a_reader_of_jaegers_format_finds_calls_and_components() {
        let file: HashMap<String, Vec<Trace>> = serde_json::from_str(&jaeger(&fleet())).unwrap();
        let traces = &file["data"];
        assert_eq!(traces.len(), 3);
        for trace in traces {
            let call = &trace.spans[0];
            assert!(call.references.is_empty() && call.operation_name == "/a.B/C");
            let parts = &trace.spans[1..];
            assert_eq!(parts.len(), 5);
            assert_eq!(parts.iter().map(|span| span.duration).sum::<u64>(), call.duration);
            for span in &trace.spans {
                assert_eq!(span.trace_id, trace.trace_id);
                assert!(trace.processes[&span.process_id]["serviceName"] == "a.B");
                assert!(span.start_time >= call.start_time);
            }
            assert!(parts.iter().all(|span| span.references[0]["spanID"] == call.span_id));
        }
        let ids: std::collections::HashSet<_> =
            traces.iter().flat_map(|trace| &trace.spans).map(|span| &span.span_id).collect();
        assert_eq!(ids.len(), 18, "every span has a number of its own");
    }

    #[test]
    fn a_reader_of_trace_events_finds_slices_that_close() {
        let file: HashMap<String, Value> = serde_json::from_str(&perfetto(&fleet())).unwrap();
        let mut open: HashMap<u64, Vec<String>> = HashMap::new();
        let mut slices = 0;
        for event in file["traceEvents"].as_array().unwrap() {
            let name = event["name"].as_str().unwrap().to_owned();
            match event["ph"].as_str().unwrap() {
                "M" => assert_eq!(event["args"]["name"], "a,\"b\""),
                "b" => open.entry(event["id"].as_u64().unwrap()).or_default().push(name),
                _ => {
                    assert_eq!(open.get_mut(&event["id"].as_u64().unwrap()).unwrap().pop(), Some(name));
                    slices += 1;
                }
            }
        }
        assert!(open.values().all(Vec::is_empty));
        assert_eq!(slices, 18);
    }
}
