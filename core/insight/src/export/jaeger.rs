//! As Jaeger's page loads a file.

use super::columns::coverage;
use super::times::{TreeTimes, ended_us};
use crate::fleet::{Fleet, FleetCall, FleetTrace};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use trunkline_call::mix;
use trunkline_telemetry::{Component, Side};

/// A trace for each that was recorded, over all hosts, and one for each call that belongs to none. A call has a span,
/// one for its attempt, and one for each component there was.
pub fn jaeger(fleet: &Fleet) -> String {
    let times = TreeTimes::of(fleet);
    let mut traces: Vec<JaegerTrace> = Vec::new();
    let mut known: HashMap<u128, usize> = HashMap::new();
    for (index, call) in fleet.calls.iter().enumerate() {
        let Some(number) = call.trace else {
            let mut own = JaegerTrace::new(index as u128 + 1);
            own.add_alone(fleet, index, call);
            traces.push(own);
            continue;
        };
        let traced = &fleet.traces[number as usize];
        let place = *known.entry(traced.trace.ids.trace).or_insert_with(|| {
            traces.push(JaegerTrace::new(traced.trace.ids.trace));
            traces.len() - 1
        });
        traces[place].add_traced(fleet, &times, number, traced);
    }
    json!({ "data": traces.into_iter().map(JaegerTrace::finish).collect::<Vec<_>>() }).to_string()
}

struct JaegerTrace {
    id: String,
    spans: Vec<Value>,
    /// Services of hosts, by name and host.
    processes: BTreeMap<(String, u32), (usize, Value)>,
}

/// What a span says.
struct JaegerSpan {
    id: u64,
    parent: Option<u64>,
    name: String,
    from_us: f64,
    us: f64,
    tags: Vec<Value>,
    logs: Vec<Value>,
}

impl JaegerTrace {
    fn new(id: u128) -> Self {
        Self { id: format!("{id:032x}"), spans: Vec::new(), processes: BTreeMap::new() }
    }

    fn finish(self) -> Value {
        let processes: serde_json::Map<String, Value> =
            self.processes.into_values().map(|(number, process)| (format!("p{number}"), process)).collect();
        json!({ "traceID": self.id, "spans": self.spans, "processes": processes })
    }

    /// A call without a trace: its span is the first.
    fn add_alone(&mut self, fleet: &Fleet, index: usize, call: &FleetCall) {
        let total_us = call.total_s() * 1e6;
        let began_us = ended_us(fleet, call) as f64 - total_us;
        // Sixteen numbers for the spans of a call.
        let id = (index as u64 + 1) << 4;
        let span = JaegerSpan {
            id,
            parent: None,
            name: fleet.name(call.method).to_owned(),
            from_us: began_us,
            us: total_us,
            tags: tags_of(fleet, call),
            logs: Vec::new(),
        };
        self.add(fleet, call, span);
        self.add_components(fleet, call, id, began_us, |place| id + place);
    }

    /// A call of a trace, in the shape of gRFC A72: sent, attempt, received.
    fn add_traced(&mut self, fleet: &Fleet, times: &TreeTimes, number: u32, traced: &FleetTrace) {
        let (call, ids) = (&fleet.calls[traced.call as usize], traced.trace.ids);
        let (from_us, us) = (times.began_us(fleet, number), call.total_s() * 1e6);
        let name = fleet.name(call.method);
        let logs = traced.trace.stamps().filter(|(name, _)| is_own(name, call.row.side));
        let logs = logs.map(|(name, at)| stamp(name, times.at_us(fleet, number, at.0))).collect();
        let named = |kind: &str| format!("{kind}.{}", name.trim_start_matches('/').replace('/', "."));
        let told = |id: u64| (id != 0).then_some(id);
        let own = |id: u64, parent: u64, kind: &str, logs| JaegerSpan {
            id,
            parent: told(parent),
            name: named(kind),
            from_us,
            us,
            tags: tags_of(fleet, call),
            logs,
        };
        let inner = match call.row.side {
            Side::Made => {
                self.add(fleet, call, own(ids.span, ids.parent, "Sent", logs));
                if ids.attempt == 0 {
                    return;
                }
                let (attempt, received) = ids.of_attempt(call.row.components.coverage);
                self.add(fleet, call, own(attempt, ids.span, "Attempt", Vec::new()));
                if let Some(received) = received {
                    self.add(fleet, call, own(received, attempt, "Recv", Vec::new()));
                }
                received.unwrap_or(attempt)
            }
            Side::Attempt => {
                let (attempt, received) = ids.of_attempt(call.row.components.coverage);
                self.add(fleet, call, own(attempt, ids.span, "Attempt", logs));
                if let Some(received) = received {
                    self.add(fleet, call, own(received, attempt, "Recv", Vec::new()));
                }
                received.unwrap_or(attempt)
            }
            Side::Served => {
                self.add(fleet, call, own(ids.span, ids.parent, "Recv", logs));
                ids.span
            }
        };
        self.add_components(fleet, call, inner, from_us, |place| mix(inner ^ place << 56).max(1));
    }

    /// A span for each component there was, one behind the other.
    fn add_components(
        &mut self,
        fleet: &Fleet,
        call: &FleetCall,
        parent: u64,
        began_us: f64,
        id: impl Fn(u64) -> u64,
    ) {
        let mut at = began_us;
        for component in Component::ALL {
            let us = call.part_s(component) * 1e6;
            if us > 0.0 {
                let span = JaegerSpan {
                    id: id(1 + component as u64),
                    parent: Some(parent),
                    name: component.name().to_owned(),
                    from_us: at,
                    us,
                    tags: Vec::new(),
                    logs: Vec::new(),
                };
                self.add(fleet, call, span);
            }
            at += us;
        }
    }

    fn add(&mut self, fleet: &Fleet, call: &FleetCall, span: JaegerSpan) {
        let JaegerSpan { id, parent, name, from_us, us, tags, logs } = span;
        let process = self.process(fleet, call);
        let references: Vec<Value> = parent
            .map(|parent| {
                json!({ "refType": "CHILD_OF", "traceID": self.id, "spanID": format!("{parent:016x}") })
            })
            .into_iter()
            .collect();
        self.spans.push(json!({
            "traceID": self.id, "spanID": format!("{id:016x}"), "operationName": name, "references": references,
            "startTime": from_us.round() as u64, "duration": us.round() as u64, "tags": tags, "logs": logs,
            "processID": process,
        }));
    }

    /// The service as the host of a call has it.
    fn process(&mut self, fleet: &Fleet, call: &FleetCall) -> String {
        let next = self.processes.len() + 1;
        let (service, head) = (fleet.service(call.method), &fleet.heads[call.block as usize]);
        let host = fleet.heads.iter().position(|other| other.host == head.host).unwrap_or(0) as u32;
        let (number, _) = self.processes.entry((service.to_owned(), host)).or_insert_with(|| {
            let tags = [tag("host", head.host.clone().into()), tag("generated", head.generated.into())];
            (next, json!({ "serviceName": service, "tags": tags }))
        });
        format!("p{number}")
    }
}

/// Whether a stamp is of the clock of the host that recorded it.
fn is_own(stamp: &str, side: Side) -> bool {
    let is_servers = matches!(stamp, "k7" | "d8" | "d9" | "a10" | "a11" | "d12" | "k14");
    is_servers == (side == Side::Served)
}

fn stamp(name: &str, at_us: u64) -> Value {
    json!({ "timestamp": at_us, "fields": [tag("stamp", name.into())] })
}

fn tags_of(fleet: &Fleet, call: &FleetCall) -> Vec<Value> {
    vec![
        tag("rpc.system", "trunkline".into()),
        tag("rpc.grpc.status_code", call.row.code.name().into()),
        tag("trunkline.side", call.row.side.name().into()),
        tag("trunkline.peer", fleet.peer(call).into()),
        tag("trunkline.weight", call.weight.into()),
        tag("trunkline.coverage", coverage(call.row.components.coverage).into()),
        tag("error", (call.row.code.number() != 0).into()),
    ]
}

fn tag(key: &str, value: Value) -> Value {
    let kind = if value.is_string() {
        "string"
    } else if value.is_boolean() {
        "bool"
    } else {
        "float64"
    };
    json!({ "key": key, "type": kind, "value": value })
}

#[cfg(test)]
mod tests {
    //! Shows by a reader of the format that every call is there, that its components fill it, and that a trace over two
    //! hosts is one.
    use super::*;
    use crate::export::csv::tests::fleet;
    use crate::trees::tests::tree;
    use serde::Deserialize;
    use std::collections::HashSet;

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

    fn read(text: &str) -> Vec<Trace> {
        let mut file: HashMap<String, Vec<Trace>> = serde_json::from_str(text).unwrap();
        file.remove("data").unwrap()
    }

    #[test]
    fn a_reader_of_the_format_finds_calls_and_components() {
        let traces = read(&jaeger(&fleet()));
        assert_eq!(traces.len(), 3);
        for trace in &traces {
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
        let ids: HashSet<_> =
            traces.iter().flat_map(|trace| &trace.spans).map(|span| &span.span_id).collect();
        assert_eq!(ids.len(), 18, "every span has a number of its own");
    }

    #[test]
    fn a_trace_over_two_hosts_is_one() {
        let traces = read(&jaeger(&tree()));
        let [trace] = &traces[..] else { panic!("{} traces", traces.len()) };
        let by_id: HashMap<&str, &Span> = trace.spans.iter().map(|span| (&*span.span_id, span)).collect();
        let parent = |span: &Span| span.references.first().map(|reference| reference["spanID"].clone());
        let kinds =
            |kind: &str| trace.spans.iter().filter(|span| span.operation_name.starts_with(kind)).count();
        assert_eq!((kinds("Sent."), kinds("Attempt."), kinds("Recv.")), (4, 4, 2));
        assert_eq!(trace.processes.len(), 2, "a service on two hosts");
        let received = by_id["0000000000000003"];
        assert_eq!(parent(received).as_deref(), Some("0000000000000002"), "the attempt of the other host");
        assert_eq!(parent(by_id["0000000000000002"]).as_deref(), Some("0000000000000001"));
        let (sent, inner) = (by_id["0000000000000001"], by_id["0000000000000005"]);
        assert!(sent.start_time <= received.start_time && received.start_time <= inner.start_time);
        assert!(inner.start_time + inner.duration <= sent.start_time + sent.duration, "on one clock");
    }
}
