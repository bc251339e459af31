//! Shows what a collector gets, and that one that is slow, dead, endless or talks nonsense costs what it is sent and
//! nothing else: nothing waits for it, what is lost is counted, and when it is back it is sent what is left.

use crate::support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use support::watched;
use trunkline_otlp::{ExportFigures, ExportSettings, ExportSource, Exporter, SPANS_MAX};
use trunkline_telemetry::{CallTrace, Coverage, Exposition, Side, SpanSource, TracedCall};

fn call(n: u64) -> TracedCall {
    TracedCall {
        ids: CallTrace { trace: n.into(), span: n, attempt: n + 1_000_000, ..CallTrace::default() },
        side: Side::Made,
        began_ns: 10,
        ended_ns: 100,
        method: "/a.B/C".into(),
        peer: "p".into(),
        code: 0,
        ns: [10; 9],
        coverage: Coverage::Whole,
        request_bytes: 1,
        response_bytes: 2,
    }
}

/// An exporter that is given these calls, as many at once as are asked for.
fn export(port: u16, calls: Receiver<Vec<TracedCall>>) -> Exporter {
    export_to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), false, calls)
}

/// The same, to any address of this host; `goes_on` from another process's figures.
fn export_to(collector: SocketAddr, goes_on: bool, calls: Receiver<Vec<TracedCall>>) -> Exporter {
    let settings = ExportSettings {
        host: collector.ip().to_string(),
        port: collector.port(),
        path: "/otlp".into(),
        tls: None,
        interval: Duration::from_secs(1),
        resource: vec![("service.name".into(), "trunkline".into())],
        version: "1".into(),
        goes_on,
    };
    let figures = || {
        let mut figures = Exposition::default();
        figures.family("trunkline_calls_total", "counter", "Calls.");
        figures.sample(&[], 3_u64);
        figures
    };
    let source = ExportSource {
        figures: Box::new(figures),
        traced: Box::new(move |_| (calls.try_recv().unwrap_or_default(), 7)),
        clocks: Box::new(now),
    };
    Exporter::start(settings, source).unwrap()
}

/// Every look at the clock is a nanosecond later than the one before, on this thread; it begins at 2,000.
fn now() -> (u64, u64) {
    thread_local!(static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let looks = LOOKS.replace(LOOKS.get() + 1);
    (2_000 + looks, 1_000 + looks)
}

/// A request: its first line and its body.
fn request(stream: &mut impl Read) -> (String, String) {
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return (head.lines().next().unwrap().to_owned(), body.to_owned());
            }
        }
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the request ends early");
        bytes.extend_from_slice(&piece[..count]);
    }
}

fn answer(stream: &mut impl Write, text: &str) {
    // One that hears no more has heard enough.
    let _ = stream.write_all(text.as_bytes());
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

fn sender() -> (Sender<Vec<TracedCall>>, Receiver<Vec<TracedCall>>) {
    channel()
}

fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn count(figures: &ExportFigures, of: impl Fn(&ExportFigures) -> &std::sync::atomic::AtomicU64) -> u64 {
    of(figures).load(Ordering::Relaxed)
}

/// Start and time of the first point of the figures that come next.
fn times(listener: &TcpListener) -> [u64; 2] {
    times_answered(listener, TAKEN)
}

fn times_answered(listener: &TcpListener, with: &str) -> [u64; 2] {
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let (line, body) = request(&mut stream);
        answer(&mut stream, with);
        if line.contains("metrics") {
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            let metric = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
            let point = &metric["sum"]["dataPoints"][0];
            return ["startTimeUnixNano", "timeUnixNano"]
                .map(|key| point[key].as_str().unwrap().parse().unwrap());
        }
    }
}

#[test]
fn figures_that_go_on_from_another_process_say_that_their_start_is_not_known() {
    watched();
    let (listener, port) = listen();
    let exporter = export_to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), true, sender().1);
    let ([start, first], [again, second]) = (times(&listener), times(&listener));
    assert_eq!((start, again), (first, first), "the first are of no duration, the next begin there");
    assert!(second > first);
    drop(exporter);
}

#[test]
fn figures_that_go_on_begin_when_the_first_are_taken() {
    watched();
    let (listener, port) = listen();
    let exporter = export_to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), true, sender().1);
    let [_, untaken] = times_answered(&listener, BUSY);
    let ([start, first], [again, second]) = (times(&listener), times(&listener));
    assert!(untaken < first && first < second);
    assert_eq!((start, again), (first, first), "not when nobody took them");
    drop(exporter);
}

#[test]
fn what_waits_is_sent_before_another_process_goes_on() {
    watched();
    let (listener, port) = listen();
    let (calls, receiver) = sender();
    let exporter = export(port, receiver);
    let _ = times(&listener);
    calls.send(vec![call(1)]).unwrap();
    let collector = std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let (line, _) = request(&mut stream);
            answer(&mut stream, TAKEN);
            if line.contains("traces") {
                return;
            }
        }
    });
    exporter.flush();
    collector.join().unwrap();
    drop(exporter);
}

#[test]
fn a_collector_gets_figures_and_spans() {
    watched();
    let (listener, port) = listen();
    let (calls, receiver) = sender();
    calls.send(vec![call(1), call(2)]).unwrap();
    let exporter = export(port, receiver);
    let mut bodies: Vec<(String, serde_json::Value)> = Vec::new();
    while bodies.len() < 2 {
        let (mut stream, _) = listener.accept().unwrap();
        let (line, body) = request(&mut stream);
        answer(&mut stream, TAKEN);
        bodies.push((line, serde_json::from_str(&body).unwrap()));
    }
    bodies.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(bodies[0].0, "POST /otlp/v1/metrics HTTP/1.1");
    let metric = &bodies[0].1["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
    assert_eq!(
        (&metric["name"], &metric["sum"]["dataPoints"][0]["asInt"]),
        (&"trunkline.calls".into(), &"3".into())
    );
    assert_eq!(bodies[1].0, "POST /otlp/v1/traces HTTP/1.1");
    let spans = bodies[1].1["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let named = spans.iter().map(|span| span["name"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(named, ["Sent.a.B.C", "Attempt.a.B.C", "Sent.a.B.C", "Attempt.a.B.C"]);
    assert_eq!(spans[0]["startTimeUnixNano"], "1010", "on the clock of 1970");
    let figures = exporter.figures();
    until(|| count(&figures, |f| &f.spans[0]) == 1 && count(&figures, |f| &f.metrics[0]) >= 1);
    assert_eq!(count(&figures, |f| &f.lost[0]), 7, "what shards have lost is told");
}

#[test]
fn one_that_is_away_gets_what_is_left_and_what_is_lost_is_counted() {
    watched();
    // Where nobody else asks for any port: it is nobody's until the collector is back.
    let collector = TcpListener::bind("127.60.61.1:0").unwrap().local_addr().unwrap();
    let (calls, receiver) = sender();
    // One application has more than there is room for, another has ten calls.
    let of = |application: u64, n: u64| {
        let ids = CallTrace { source: SpanSource::new(true, application, application), ..call(n).ids };
        TracedCall { ids, method: format!("/a.B/M{application}"), ..call(n) }
    };
    let much = (0..SPANS_MAX as u64 + 5).map(|n| of(1, n));
    calls.send(much.chain((0..10).map(|n| of(2, n))).collect()).unwrap();
    let exporter = export_to(collector, false, receiver);
    let figures = exporter.figures();
    until(|| count(&figures, |f| &f.spans[2]) > 0);
    let lost = count(&figures, |f| &f.lost[1]) as usize;
    let left = SPANS_MAX + 15 - lost;
    assert!(lost >= 15 && left > SPANS_MAX / 3, "no room for {lost}");
    let listener = TcpListener::bind(collector).unwrap();
    let (mut spans, mut other) = (0, 0);
    while spans < 2 * left {
        let (mut stream, _) = listener.accept().unwrap();
        let (line, body) = request(&mut stream);
        answer(&mut stream, TAKEN);
        if line.contains("traces") {
            // Not read as JSON, which takes long: what is not taken in time is sent again.
            spans += body.matches("\"spanId\":").count();
            other += body.matches("\"Sent.a.B.M2\"").count();
        }
    }
    assert_eq!((spans, other), (2 * left, 10), "each once, and all of who had few");
}

#[test]
fn one_that_refuses_or_takes_a_part_is_counted() {
    watched();
    let (listener, port) = listen();
    let (calls, receiver) = sender();
    calls.send(vec![call(1), call(2), call(3)]).unwrap();
    calls.send(vec![call(4), call(5)]).unwrap();
    let exporter = export(port, receiver);
    let part = "{\"partialSuccess\":{\"rejectedSpans\":\"1\"}}";
    let part = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{part}", part.len());
    let mut answers = ["HTTP/1.1 400 Bad Request\r\n\r\n", &*part].into_iter();
    let figures = exporter.figures();
    let mut told = 0;
    while told < 2 {
        let (mut stream, _) = listener.accept().unwrap();
        let (line, _) = request(&mut stream);
        let is_of_spans = line.contains("traces");
        answer(&mut stream, if is_of_spans { answers.next().unwrap() } else { TAKEN });
        told += u32::from(is_of_spans);
    }
    until(|| count(&figures, |f| &f.spans[1]) == 1 && count(&figures, |f| &f.spans[0]) == 1);
    assert_eq!(count(&figures, |f| &f.lost[2]), 3 + 1);
}

/// A hostile collector: what it says instead of an answer.
#[test]
fn one_that_does_not_answer_or_never_ends_costs_its_time_only() {
    watched();
    let endless = |stream: &mut TcpStream, text: &str| {
        while stream.write_all(text.as_bytes()).is_ok() {}
    };
    type Act = Box<dyn FnOnce(&mut TcpStream) + Send>;
    let acts: Vec<Act> = vec![
        Box::new(move |stream| endless(stream, &"y".repeat(4096))),
        Box::new(move |stream| {
            answer(stream, "HTTP/1.1 200 OK\r\n\r\n");
            endless(stream, &"y".repeat(4096));
        }),
        Box::new(|stream| answer(stream, "HTTP/1.1 200 OK\r\nx: ")),
        Box::new(|stream| {
            // Silent until the other side has had enough.
            let _ = stream.read(&mut [0; 1]);
        }),
    ];
    let threads = acts.into_iter().map(|act| {
        std::thread::spawn(move || {
            let (listener, port) = listen();
            let (calls, receiver) = sender();
            calls.send(vec![call(1)]).unwrap();
            let exporter = export(port, receiver);
            let (mut stream, _) = listener.accept().unwrap();
            request(&mut stream);
            act(&mut stream);
            drop(stream);
            let figures = exporter.figures();
            // Whatever it did, the exchange is over; and the next one is as if it had not been.
            let (mut stream, _) = listener.accept().unwrap();
            request(&mut stream);
            answer(&mut stream, TAKEN);
            until(|| {
                let of = |f: &ExportFigures| {
                    f.spans.iter().chain(&f.metrics).map(|n| n.load(Ordering::Relaxed)).sum::<u64>()
                };
                of(&figures) >= 2
            });
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
}
