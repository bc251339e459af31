//! Calls of traces as spans, in the shape of gRFC A72: a call made here is *sent* and has an *attempt* below it, or
//! several; a call served here is *received*, below the attempt that its caller's daemon has told. Of a call within one
//! host its daemon tells all three.

use crate::body::{ExportOrigin, RequestBody, Send, text, whole};
use serde_json::{Value, json};
use trunkline_call::Code;
use trunkline_telemetry::{Component, Coverage, Side, TracedCall};

/// Values of `SpanKind` and `StatusCode`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const OK: u8 = 1;
const ERROR: u8 = 2;

/// Sends the spans of these calls. Of how many, from the first on, all are in requests that are through.
pub(crate) fn send<'a>(
    origin: &ExportOrigin,
    calls: &[TracedCall],
    epoch_ns: u64,
    send: &'a mut Send<'a>,
) -> usize {
    let mut body = RequestBody::new(origin, "Spans", "spans", send);
    let mut through = 0;
    for (before, call) in calls.iter().enumerate() {
        let own = spans(call, epoch_ns);
        for (number, span) in own.iter().enumerate() {
            if !body.add(span) {
                return through;
            }
            if body.is_empty() {
                through = before + usize::from(number + 1 == own.len());
            }
        }
    }
    body.flush();
    if body.is_over() { through } else { calls.len() }
}

/// The spans of a call: its own, that of its attempt where it has one of its own, and within one host the server's.
fn spans(call: &TracedCall, epoch_ns: u64) -> Vec<Value> {
    let ids = &call.ids;
    let whole = [call.began_ns, call.ended_ns];
    let span = |word: &str,
                kind: u8,
                id: u64,
                parent: u64,
                [began_ns, ended_ns]: [u64; 2],
                attributes: Vec<Value>| {
        let method = call.method.trim_start_matches('/');
        json!({
            "traceId": format!("{:032x}", ids.trace),
            "spanId": format!("{id:016x}"),
            "parentSpanId": if parent == 0 { String::new() } else { format!("{parent:016x}") },
            "flags": 1,
            "name": format!("{word}.{}", method.replace('/', ".")),
            "kind": kind,
            "startTimeUnixNano": began_ns.saturating_add(epoch_ns).to_string(),
            "endTimeUnixNano": ended_ns.saturating_add(epoch_ns).to_string(),
            "attributes": attributes,
            "status": status(call.code),
        })
    };
    let attempt = |with_components: bool| {
        let (id, received) = ids.of_attempt(call.coverage);
        let own = span("Attempt", CLIENT, id, ids.span, whole, attributes(call, with_components));
        let received =
            received.map(|inner| span("Recv", SERVER, inner, id, at_server(call), attributes(call, false)));
        [own].into_iter().chain(received)
    };
    match call.side {
        Side::Served => vec![span("Recv", SERVER, ids.span, ids.parent, whole, attributes(call, true))],
        Side::Attempt => attempt(true).collect(),
        Side::Made => {
            let sent = span("Sent", INTERNAL, ids.span, ids.parent, whole, attributes(call, true));
            let attempt = (ids.attempt != 0).then(|| attempt(false));
            [sent].into_iter().chain(attempt.into_iter().flatten()).collect()
        }
    }
}

/// When a call within one host was its server's: from its queue on, until the answer is taken out of the ring.
fn at_server(call: &TracedCall) -> [u64; 2] {
    use Component::{ClientReceiveQueue, ClientSendQueue, RequestStack, ResponseStack};
    let sum = |parts: [Component; 2]| parts.map(|part| call.ns[part as usize]).iter().sum::<u64>();
    let began_ns = call.began_ns.saturating_add(sum([ClientSendQueue, RequestStack])).min(call.ended_ns);
    let ended_ns = call.ended_ns.saturating_sub(sum([ResponseStack, ClientReceiveQueue]));
    [began_ns, ended_ns.max(began_ns)]
}

fn status(code: u16) -> Value {
    match Code::from_number(code) {
        Code::Ok => json!({ "code": OK }),
        code => json!({ "code": ERROR, "message": code.name() }),
    }
}

/// What a span says beside its times. The nine are told once: where a call has one attempt, by the call.
fn attributes(call: &TracedCall, with_components: bool) -> Vec<Value> {
    let method = call.method.trim_start_matches('/');
    let (service, name) = method.rsplit_once('/').unwrap_or(("", method));
    let mut all = vec![
        text("rpc.system", "trunkline"),
        text("rpc.service", service),
        text("rpc.method", name),
        whole("rpc.grpc.status_code", call.code.into()),
        text("trunkline.peer", &call.peer),
        whole("trunkline.rpc.request.bytes", call.request_bytes),
        whole("trunkline.rpc.response.bytes", call.response_bytes),
    ];
    if with_components {
        all.push(whole("trunkline.rpc.components_measured", call.coverage.measured() as u64));
        let named = Component::ALL.into_iter().filter(|component| is_told(*component, call.coverage));
        all.extend(named.map(|component| {
            let ns = call.ns[component as usize];
            whole(&format!("trunkline.rpc.component.{}_ns", component.label()), ns)
        }));
    }
    all
}

/// Whether a call with this coverage says something of a component. The lump of a peer without stamps is told as the
/// server's: together they are the call's time.
fn is_told(component: Component, coverage: Coverage) -> bool {
    use Component::{ClientReceiveQueue, ClientSendQueue, RequestWire, ResponseWire};
    match coverage {
        Coverage::Whole | Coverage::ClientOnly | Coverage::Stayed => true,
        Coverage::OneHost => !matches!(component, RequestWire | ResponseWire),
        Coverage::ServerOnly => {
            !matches!(component, ClientSendQueue | RequestWire | ResponseWire | ClientReceiveQueue)
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows the spans of a call, of its attempts and of its server, and how they hang together.
    use super::*;
    use trunkline_telemetry::CallTrace;

    fn call(side: Side, ids: CallTrace) -> TracedCall {
        TracedCall {
            ids,
            side,
            began_ns: 10,
            ended_ns: 100,
            method: "/a.b.C/D".into(),
            peer: "p".into(),
            code: 0,
            ns: [10; 9],
            coverage: Coverage::Whole,
            request_bytes: 1,
            response_bytes: 2,
        }
    }

    fn names_and_parents(call: &TracedCall) -> Vec<(String, String, String)> {
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        spans(call, 0)
            .iter()
            .map(|span| (word(&span["name"]), word(&span["spanId"]), word(&span["parentSpanId"])))
            .collect()
    }

    #[test]
    fn they_hang_together() {
        let id = |n: u64| format!("{n:016x}");
        let ids = CallTrace { trace: 1, parent: 2, span: 3, attempt: 4, ..CallTrace::default() };
        let sent = ("Sent.a.b.C.D".to_owned(), id(3), id(2));
        let attempt = ("Attempt.a.b.C.D".to_owned(), id(4), id(3));
        assert_eq!(names_and_parents(&call(Side::Made, ids)), [sent.clone(), attempt.clone()]);
        assert_eq!(names_and_parents(&call(Side::Made, CallTrace { attempt: 0, ..ids })), [sent]);
        assert_eq!(names_and_parents(&call(Side::Attempt, ids)), [attempt]);
        let received = CallTrace { trace: 1, parent: 4, span: 5, attempt: 0, ..CallTrace::default() };
        let served = ("Recv.a.b.C.D".to_owned(), id(5), id(4));
        assert_eq!(names_and_parents(&call(Side::Served, received)), [served]);
        let within = TracedCall { coverage: Coverage::OneHost, ..call(Side::Made, ids) };
        let all = names_and_parents(&within);
        let names: Vec<&str> = all.iter().map(|(name, ..)| &**name).collect();
        assert_eq!(names, ["Sent.a.b.C.D", "Attempt.a.b.C.D", "Recv.a.b.C.D"]);
        assert_eq!((&all[2].1, &all[2].2), (&id(4), &all[1].1), "its handler was told the attempt's id");
        assert!(all[1].1 != all[2].1 && all[1].2 == id(3));
        let served = &spans(&within, 0)[2];
        assert_eq!((&served["startTimeUnixNano"], &served["endTimeUnixNano"]), (&json!("30"), &json!("80")));
        let root = CallTrace { parent: 0, attempt: 0, ..ids };
        assert_eq!(names_and_parents(&call(Side::Made, root))[0].2, "", "it begins the trace");
    }

    #[test]
    fn calls_that_are_through_are_not_sent_again() {
        let origin = ExportOrigin::new(&[], "1");
        let ids = |n: u64| CallTrace {
            trace: 1,
            parent: 2,
            span: 2 * n + 3,
            attempt: 2 * n + 4,
            ..CallTrace::default()
        };
        let calls: Vec<TracedCall> = (0..1_500).map(|n| call(Side::Made, ids(n))).collect();
        let mut bodies = Vec::new();
        let through = send(&origin, &calls, 0, &mut |body| {
            bodies.push(body.to_owned());
            bodies.len() < 2
        });
        let spans = bodies[0].matches("\"traceId\"").count();
        assert!(bodies.len() == 2 && (100..1_400).contains(&through), "{through} of {}", bodies.len());
        assert_eq!(through, spans / 2, "all of those, and no other");
        assert_eq!(send(&origin, &calls, 0, &mut |_| true), calls.len());
        assert_eq!(send(&origin, &calls, 0, &mut |_| false), 0);
    }

    #[test]
    fn what_a_span_says() {
        let ids = CallTrace { trace: 1, parent: 2, span: 3, attempt: 4, ..CallTrace::default() };
        let failed = TracedCall { code: Code::Unavailable.number(), ..call(Side::Made, ids) };
        let [sent, attempt] = &spans(&failed, 1000)[..] else { panic!() };
        assert_eq!((&sent["startTimeUnixNano"], &sent["endTimeUnixNano"]), (&json!("1010"), &json!("1100")));
        assert_eq!(sent["status"], json!({ "code": ERROR, "message": "UNAVAILABLE" }));
        let parts = |span: &Value| {
            let all = span["attributes"].as_array().unwrap();
            all.iter().filter(|one| one["key"].as_str().unwrap().contains(".component.")).count()
        };
        assert_eq!((parts(sent), parts(attempt)), (9, 0), "the nine are told once");
        let one_host = TracedCall { coverage: Coverage::OneHost, ..call(Side::Made, ids) };
        assert_eq!(parts(&spans(&one_host, 0)[0]), 7);
        assert!(sent.to_string().contains("trunkline.rpc.component.request_wire_ns"), "{sent}");
    }
}
