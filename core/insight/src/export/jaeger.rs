//! As Jaeger's page loads a file.

use super::columns::coverage;
use super::times::{TreeTimes, ended_us};
use crate::fleet::{Fleet, FleetCall, FleetTrace};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use trunkline_call::mix;
use trunkline_telemetry::{Component, Side};

/// Writes a trace for each that was recorded, over all hosts, and one for each call that belongs to none. A call has a
/// span, one for its attempt, and one for each component there was. Nothing of it is held: a file has millions.
///
/// # Errors
/// What writing says.
pub fn jaeger(fleet: &Fleet, to: &mut impl Write) -> io::Result<()> {
    let (times, hosts) = (TreeTimes::of(fleet), numbers_of_hosts(fleet));
    let mut traced: HashMap<u128, Vec<u32>> = HashMap::new();
    for number in fleet.calls.iter().filter_map(|call| call.trace) {
        traced.entry(fleet.traces[number as usize].trace.ids.trace).or_default().push(number);
    }
    to.write_all(b"{\"data\":[")?;
    let mut is_first = true;
    for (index, call) in fleet.calls.iter().enumerate() {
        let (id, numbers) = match call.trace.map(|number| fleet.traces[number as usize].trace.ids.trace) {
            None => (index as u128 + 1, None),
            // With the first of its calls come all.
            Some(id) => match traced.remove(&id) {
                None => continue,
                numbers => (id, numbers),
            },
        };
        to.write_all(if std::mem::take(&mut is_first) { b"" } else { b"," })?;
        let mut trace = JaegerTrace::begin(fleet, &hosts, id, to)?;
        match numbers {
            None => trace.add_alone(index, call)?,
            Some(numbers) => {
                for number in numbers {
                    trace.add_traced(&times, number, &fleet.traces[number as usize])?;
                }
            }
        }
        trace.end()?;
    }
    to.write_all(b"]}")
}

/// The number of each block's host.
fn numbers_of_hosts<'a>(fleet: &'a Fleet) -> Vec<u32> {
    let mut known: HashMap<&str, u32> = HashMap::new();
    let number = |head: &'a crate::block::BlockHead| {
        let next = known.len() as u32;
        *known.entry(&head.host).or_insert(next)
    };
    fleet.heads.iter().map(number).collect()
}

/// A trace on its way out.
struct JaegerTrace<'a, W> {
    fleet: &'a Fleet,
    /// Numbers of blocks' hosts.
    hosts: &'a [u32],
    id: String,
    to: &'a mut W,
    has_spans: bool,
    /// Services of hosts, by name and host.
    processes: BTreeMap<(&'a str, u32), (usize, Value)>,
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

impl<'a, W: Write> JaegerTrace<'a, W> {
    fn begin(fleet: &'a Fleet, hosts: &'a [u32], id: u128, to: &'a mut W) -> io::Result<Self> {
        let id = format!("{id:032x}");
        write!(to, "{{\"traceID\":\"{id}\",\"spans\":[")?;
        Ok(Self { fleet, hosts, id, to, has_spans: false, processes: BTreeMap::new() })
    }

    fn end(self) -> io::Result<()> {
        let processes: serde_json::Map<String, Value> =
            self.processes.into_values().map(|(number, process)| (format!("p{number}"), process)).collect();
        self.to.write_all(b"],\"processes\":")?;
        serde_json::to_writer(&mut *self.to, &processes)?;
        self.to.write_all(b"}")
    }

    /// A call without a trace: its span is the first.
    fn add_alone(&mut self, index: usize, call: &FleetCall) -> io::Result<()> {
        let fleet = self.fleet;
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
        self.add(call, span)?;
        self.add_components(call, id, began_us, |place| id + place)
    }

    /// A call of a trace, in the shape of gRFC A72: sent, attempt, received.
    fn add_traced(&mut self, times: &TreeTimes, number: u32, traced: &FleetTrace) -> io::Result<()> {
        let fleet = self.fleet;
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
                self.add(call, own(ids.span, ids.parent, "Sent", logs))?;
                if ids.attempt == 0 {
                    return Ok(());
                }
                let (attempt, received) = ids.of_attempt(call.row.components.coverage);
                self.add(call, own(attempt, ids.span, "Attempt", Vec::new()))?;
                if let Some(received) = received {
                    self.add(call, own(received, attempt, "Recv", Vec::new()))?;
                }
                received.unwrap_or(attempt)
            }
            Side::Attempt => {
                let (attempt, received) = ids.of_attempt(call.row.components.coverage);
                self.add(call, own(attempt, ids.span, "Attempt", logs))?;
                if let Some(received) = received {
                    self.add(call, own(received, attempt, "Recv", Vec::new()))?;
                }
                received.unwrap_or(attempt)
            }
            Side::Served => {
                self.add(call, own(ids.span, ids.parent, "Recv", logs))?;
                ids.span
            }
        };
        self.add_components(call, inner, from_us, |place| mix(inner ^ place << 56).max(1))
    }

    /// A span for each component there was, one behind the other.
    fn add_components(
        &mut self,
        call: &FleetCall,
        parent: u64,
        began_us: f64,
        id: impl Fn(u64) -> u64,
    ) -> io::Result<()> {
        let mut at = began_us;
        // How long a stream takes is up to its ends, and none of it is a component's.
        let divided = if call.row.is_stream { &[][..] } else { &Component::ALL };
        for component in divided.iter().copied() {
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
                self.add(call, span)?;
            }
            at += us;
        }
        Ok(())
    }

    fn add(&mut self, call: &FleetCall, span: JaegerSpan) -> io::Result<()> {
        let JaegerSpan { id, parent, name, from_us, us, tags, logs } = span;
        let process = self.process(call);
        let references: Vec<Value> = parent
            .map(|parent| {
                json!({ "refType": "CHILD_OF", "traceID": self.id, "spanID": format!("{parent:016x}") })
            })
            .into_iter()
            .collect();
        self.to.write_all(if std::mem::replace(&mut self.has_spans, true) { b"," } else { b"" })?;
        let span = json!({
            "traceID": self.id, "spanID": format!("{id:016x}"), "operationName": name, "references": references,
            "startTime": from_us.round() as u64, "duration": us.round() as u64, "tags": tags, "logs": logs,
            "processID": process,
        });
        Ok(serde_json::to_writer(&mut *self.to, &span)?)
    }

    /// The service as the host of a call has it.
    fn process(&mut self, call: &FleetCall) -> String {
        let next = self.processes.len() + 1;
        let (service, head) = (self.fleet.service(call.method), &self.fleet.heads[call.block as usize]);
        let host = self.hosts[call.block as usize];
        let (number, _) = self.processes.entry((service, host)).or_insert_with(|| {
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
        tag("trunkline.stream", call.row.is_stream.into()),
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

    fn written(fleet: &Fleet) -> String {
        let mut text = Vec::new();
        jaeger(fleet, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn read(text: &str) -> Vec<Trace> {
        let mut file: HashMap<String, Vec<Trace>> = serde_json::from_str(text).unwrap();
        file.remove("data").unwrap()
    }

    #[test]
    fn a_reader_of_the_format_finds_calls_and_components() {
        let traces = read(&written(&fleet()));
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
        let mut streams = fleet();
        streams.calls.iter_mut().for_each(|call| call.row.is_stream = true);
        let text = written(&streams);
        assert_eq!(read(&text).iter().map(|trace| trace.spans.len()).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(
            text.matches(r#""key":"trunkline.stream","type":"bool","value":true"#).count(),
            3,
            "{text}"
        );
    }

    #[test]
    fn a_trace_over_two_hosts_is_one() {
        let traces = read(&written(&tree()));
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

    #[test]
    fn spans_are_written_one_by_one_and_a_file_that_takes_nothing_says_so() {
        /// Takes so many writes, none larger than a span.
        struct Few(usize);
        impl Write for Few {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                assert!(bytes.len() < 4096, "{} bytes at once", bytes.len());
                self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut fleet = Fleet::default();
        (0..20).for_each(|n| fleet.add(crate::block::tests::block(&format!("h{}", n % 4), 50)));
        jaeger(&fleet, &mut Few(usize::MAX)).unwrap();
        let error = jaeger(&fleet, &mut Few(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        let hosts: HashSet<String> = read(&written(&fleet))
            .into_iter()
            .flat_map(|trace| trace.processes.into_values())
            .map(|process| process["tags"][0]["value"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(hosts, (0..4).map(|n| format!("h{n}")).collect());
    }
}
