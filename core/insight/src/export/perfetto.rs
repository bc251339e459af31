//! As Perfetto opens it: trace events in JSON.

use super::times::{TreeTimes, ended_us};
use crate::fleet::Fleet;
use serde_json::{Value, json};
use std::io::{self, Write};
use trunkline_telemetry::Component;

/// Writes calls as asynchronous slices of their method, components nested in them. A call of a trace says its ids, and
/// is where it was on the clock of the host at the top of its tree. No event is held: a file has millions.
///
/// # Errors
/// What writing says.
pub fn perfetto(fleet: &Fleet, to: &mut impl Write) -> io::Result<()> {
    let (hosts, times) = (fleet.hosts(), TreeTimes::of(fleet));
    to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut is_first = true;
    let mut put = |event: Value| -> io::Result<()> {
        to.write_all(if std::mem::take(&mut is_first) { b"" } else { b"," })?;
        Ok(serde_json::to_writer(&mut *to, &event)?)
    };
    for (at, host) in hosts.iter().enumerate() {
        put(json!({ "ph": "M", "name": "process_name", "pid": at + 1, "args": { "name": host } }))?;
    }
    // In order, as they are listed.
    let pids: Vec<usize> =
        fleet.heads.iter().map(|head| hosts.binary_search(&head.host.as_str()).unwrap_or(0) + 1).collect();
    for (index, call) in fleet.calls.iter().enumerate() {
        let pid = pids[call.block as usize];
        let total_us = call.total_s() * 1e6;
        let began_us = match call.trace {
            Some(number) => times.began_us(fleet, number),
            None => ended_us(fleet, call) as f64 - total_us,
        };
        let mut event = |phase: &str, name: &str, at_us: f64, args: Value| {
            put(json!({
                "ph": phase, "cat": fleet.service(call.method), "name": name, "id": index + 1, "pid": pid,
                "tid": call.method + 1, "ts": at_us, "args": args,
            }))
        };
        let mut args = json!({
            "code": call.row.code.name(), "side": call.row.side.name(), "peer": fleet.peer(call), "weight": call.weight,
            "stream": call.row.is_stream,
        });
        if let Some(number) = call.trace {
            let ids = fleet.traces[number as usize].trace.ids;
            let hex = |id: u64| if id == 0 { String::new() } else { format!("{id:016x}") };
            args["trace"] = format!("{:032x}", ids.trace).into();
            (args["span"], args["attempt"], args["parent"]) =
                (hex(ids.span).into(), hex(ids.attempt).into(), hex(ids.parent).into());
        }
        let name = fleet.name(call.method);
        event("b", name, began_us, args)?;
        let mut at = began_us;
        // How long a stream takes is up to its ends, and none of it is a component's.
        let divided = if call.row.is_stream { &[][..] } else { &Component::ALL };
        for component in divided.iter().copied() {
            let us = call.part_s(component) * 1e6;
            if us > 0.0 {
                event("b", component.name(), at, json!({}))?;
                event("e", component.name(), at + us, json!({}))?;
            }
            at += us;
        }
        event("e", name, began_us + total_us, json!({}))?;
    }
    to.write_all(b"]}")
}

#[cfg(test)]
mod tests {
    //! Shows by a reader of the format that slices open and close, one within the other.
    use super::*;
    use crate::export::csv::tests::fleet;
    use crate::trees::tests::tree;
    use std::collections::HashMap;

    fn read(fleet: &Fleet) -> HashMap<String, Value> {
        let mut text = Vec::new();
        perfetto(fleet, &mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn a_reader_of_trace_events_finds_slices_that_close() {
        let file: HashMap<String, Value> = read(&fleet());
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

    #[test]
    fn calls_of_a_trace_say_their_ids() {
        let file: HashMap<String, Value> = read(&tree());
        let calls = file["traceEvents"].as_array().unwrap().iter();
        let spans: Vec<_> = calls.filter_map(|event| event["args"]["span"].as_str()).collect();
        assert_eq!(spans.len(), 6);
        assert!(spans.contains(&"0000000000000003"), "{spans:?}");
    }
}
