//! Shows the metrics listener of a running daemon: what Prometheus reads there, that it is well-formed whatever names
//! there are, that it outlives a replacement of the daemon, and what is said if it cannot listen.

use crate::support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use support::{Host, end, own_address, trunkline, until, watched};
use trunkline::Wait;
use trunkline_example_search::proto::QueryRequest;

fn config(address: SocketAddr) -> String {
    format!(
        "[daemon]\nnode = \"a \\\"node\\\"\"\n[metrics]\nlisten = [\"tcp://{address}\"]\n\
         [services.\"far.Away\"]\nendpoints = [\"tcp://127.0.0.1:1\"]\n\
         [[policy]]\nname = \"no-bells\"\nkind = \"access\"\nside = \"server\"\ndeny = 'application == \"bell\"'\n"
    )
}

fn read(address: SocketAddr) -> String {
    read_as(address, "*/*", "text/plain; version=0.0.4")
}

/// What a reader gets that takes such a type, and which it is to get.
fn read_as(address: SocketAddr, accept: &str, kind: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("content-type: {kind}")), "{head}");
    text.to_owned()
}

/// Samples by name and labels.
///
/// Each family is there once, and its samples come after its head.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut families = BTreeSet::new();
    let mut family = "";
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            if words.next() == Some("HELP") {
                family = words.next().unwrap();
                assert!(families.insert(family), "{family} is there twice");
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let base = name.split('{').next().unwrap();
        let of_family =
            base.strip_prefix(family).is_some_and(|rest| matches!(rest, "" | "_bucket" | "_sum" | "_count"));
        assert!(of_family, "{name} is below {family}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(samples.insert(name.to_owned(), value).is_none(), "{name} is there twice");
    }
    samples
}

#[test]
fn prometheus_reads_what_the_daemon_has_counted() {
    watched();
    let address = own_address();
    let host = Host::start(&config(address));
    let (_server, client) = host.serve_search();
    for _ in 0..10 {
        client.query(QueryRequest { query: "bell".into(), ..QueryRequest::default() }).wait().unwrap();
    }
    let calls =
        "trunkline_calls_total{side=\"made\",method=\"search.v1.Search/Query\",peer=\"(local)\",code=\"OK\"}";
    // Text is up to a second old.
    let samples = until("the calls", || {
        let text = read(address);
        let samples = samples(&text);
        if samples.get(calls) == Some(&10.0) { Ok(samples) } else { Err(text) }
    });
    let expected = [
        ("trunkline_application_sessions{application=\"searcher\"}", 1.0),
        ("trunkline_service_servers{service=\"search.v1.Search\"}", 1.0),
        ("trunkline_policy_seen_total{policy=\"no-bells\"}", 10.0),
        ("trunkline_policy_refused_total{policy=\"no-bells\"}", 0.0),
        ("trunkline_log_lines_lost_total{why=\"unread\"}", 0.0),
        ("trunkline_log_lines_lost_total{why=\"unwritten\"}", 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:#?}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("trunkline_build_info{{version=\"{version}\",node=\"a \\\"node\\\"\"}}");
    assert_eq!(samples.get(&build), Some(&1.0), "{samples:#?}");
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"] {
        assert!(samples.get(name).is_some_and(|value| *value > 0.0), "{name}");
    }
}

/// Two daemons, or a daemon and a router, at one address would answer scrapes in turn.
#[test]
fn nobody_else_listens_at_its_address() {
    watched();
    let address = own_address();
    let host = Host::start(&config(address));
    for round in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("d.toml"), format!("[metrics]\nlisten = [\"tcp://{address}\"]\n")).unwrap();
        let (socket, file, at) = (path("d.sock"), path("d.toml"), address.to_string());
        let second =
            ["daemon", "--until-stdin-closes", "--drain", "0s", "--socket", &socket, "--config", &file];
        let router = ["router", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--metrics", &at];
        for (arguments, part) in [
            (
                &second[..],
                format!(
                    "d.toml:2:11: metrics.listen[0]: is tcp://{address}, where another program listens already"
                ),
            ),
            (
                &[&router[..], &["--worker", "127.0.0.1:1"]].concat(),
                format!("--metrics {address}: Address already in use"),
            ),
        ] {
            let ended = end(&mut trunkline(arguments), "");
            assert_eq!(ended.code, Some(1), "round {round}: {ended:?}");
            assert!(ended.err.contains(&part), "round {round}: {ended:?}");
        }
        // The next daemon has the address all the same.
        let upgraded = host.verb(&["upgrade"], "");
        assert_eq!(upgraded.code, Some(0), "round {round}: {upgraded:?}");
    }
}

#[test]
fn it_outlives_a_replacement() {
    watched();
    let address = own_address();
    let host = Host::start(&config(address));
    let upgraded = host.verb(&["upgrade"], "");
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    // The kernel gives a connection to whoever listens; who has gone closes it.
    until("an answer", || {
        std::panic::catch_unwind(|| samples(&read(address))).map_err(|_| "none".to_owned())
    });
}

/// A collector that takes everything: what it got, as (signal, body).
fn collector() -> (SocketAddr, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (sender, got)) = (listener.local_addr().unwrap(), channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut bytes, mut piece) = (Vec::new(), [0; 65536]);
            let body = loop {
                let text = String::from_utf8_lossy(&bytes);
                let length = |head: &str| {
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                    length.unwrap().parse::<usize>().unwrap()
                };
                match text.split_once("\r\n\r\n") {
                    Some((head, body)) if body.len() >= length(head) => {
                        let signal = if head.starts_with("POST /v1/traces ") { "traces" } else { "metrics" };
                        break (signal.to_owned(), serde_json::from_str(body).unwrap());
                    }
                    _ => {}
                }
                let count = stream.read(&mut piece).unwrap();
                assert!(count > 0, "the request ends early");
                bytes.extend_from_slice(&piece[..count]);
            };
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
            if sender.send(body).is_err() {
                return;
            }
        }
    });
    (address, got)
}

/// An attribute of a resource or a span.
fn attribute(of: &Value, key: &str) -> Value {
    let all = of["attributes"].as_array().unwrap();
    all.iter().find(|one| one["key"] == key).map_or(Value::Null, |one| one["value"].clone())
}

/// A figure's name, and what a collector calls it that exports it to Prometheus (OpenTelemetry, "Prometheus and
/// OpenMetrics compatibility": the unit behind the name, `_ratio` behind a gauge of unit 1, `_total` behind a counter).
fn named_for_prometheus(item: &Value) -> (String, String) {
    let name = item["name"].as_str().unwrap().to_owned();
    let unit = match item["unit"].as_str().unwrap() {
        "" => "",
        "s" => "_seconds",
        "By" => "_bytes",
        "1" if item["gauge"].is_object() => "_ratio",
        "1" => "",
        other => panic!("{name} has the unit {other}"),
    };
    let total = if item["sum"].is_object() { "_total" } else { "" };
    let exported = format!("{}{unit}{total}", name.replace('.', "_"));
    (name, exported)
}

/// What both daemons have exported when three spans and a figure of calls have come: spans with their nodes, and the
/// figures of the one that makes calls, by name, as a collector would name them.
fn exported(got: &Receiver<(String, Value)>) -> (Vec<(Value, Value)>, BTreeMap<String, String>) {
    let (mut spans, mut figures) = (Vec::new(), BTreeMap::new());
    while spans.len() < 3 || !figures.contains_key("grpc.client.call.duration") {
        let (signal, body) = got.recv().unwrap();
        let (of, items) = if signal == "traces" { ("Spans", "spans") } else { ("Metrics", "metrics") };
        let of_resource = &body[format!("resource{of}")][0];
        let node = attribute(&of_resource["resource"], "service.instance.id")["stringValue"].clone();
        assert_eq!(attribute(&of_resource["resource"], "deployment.environment.name")["stringValue"], "test");
        let items = of_resource[format!("scope{of}")][0][items].as_array().unwrap();
        match &*signal {
            "traces" => spans.extend(items.iter().map(|span| (node.clone(), span.clone()))),
            _ if node == "made" => figures.extend(items.iter().map(named_for_prometheus)),
            _ => {}
        }
    }
    (spans, figures)
}

/// Two daemons and a call between them: what an OpenTelemetry collector gets of it, and the exemplar that leads there.
#[test]
fn a_collector_gets_figures_and_the_spans_of_both_daemons() {
    watched();
    let ((collector, got), peer, metrics) = (collector(), own_address(), own_address());
    let config = |node: &str, rest: &str| {
        format!(
            "[daemon]\nnode = \"{node}\"\n{rest}\n[otlp]\nendpoint = \"http://{collector}\"\ninterval_s = 1\n\
             attributes = [\"deployment.environment.name=test\"]\n"
        )
    };
    let served = Host::start(&config("served", &format!("listen = [\"tcp://{peer}\"]")));
    let (_server, _) = served.serve_search();
    let made = Host::start(&config(
        "made",
        &format!(
            "[services.\"search.v1.Search\"]\nendpoints = [\"tcp://{peer}\"]\n\
             [metrics]\nlisten = [\"tcp://{metrics}\"]"
        ),
    ));
    let client =
        trunkline_example_search::proto::search_client::SearchClient::new(made.channel().connect_lazy());
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let query = || trunkline::Request::new(QueryRequest { query: "bell".into(), ..QueryRequest::default() });
    let traced = query().with_metadata("traceparent", format!("00-{trace}-{parent}-01")).unwrap();
    client.query(traced).wait().unwrap();
    client
        .query(query().with_metadata("traceparent", format!("00-{trace}-{parent}-00")).unwrap())
        .wait()
        .unwrap();
    client.query(query()).wait().unwrap();
    let (spans, figures) = exported(&got);
    let known = families(&read(metrics));
    assert!(figures.len() > 20, "{figures:?}");
    for (name, exported) in figures {
        assert!(
            known.contains_key(&exported),
            "{name} would be {exported} in Prometheus, and not one of {known:?}"
        );
    }
    let named = |name: &str| {
        let of_name = |(_, span): &&(Value, Value)| span["name"] == name;
        let (node, span) = spans.iter().find(of_name).unwrap_or_else(|| panic!("{name} in {spans:#?}"));
        (node.as_str().unwrap(), span)
    };
    let (sent, attempt) = (named("Sent.search.v1.Search.Query"), named("Attempt.search.v1.Search.Query"));
    let received = named("Recv.search.v1.Search.Query");
    assert_eq!((sent.0, attempt.0, received.0), ("made", "made", "served"));
    assert_eq!(spans.len(), 3, "what is not sampled has none: {spans:#?}");
    assert!(spans.iter().all(|(_, span)| span["traceId"] == trace), "{spans:#?}");
    assert_eq!(sent.1["parentSpanId"], parent);
    assert_eq!(attempt.1["parentSpanId"], sent.1["spanId"]);
    assert_eq!(received.1["parentSpanId"], attempt.1["spanId"]);
    let ns = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    let whole: u64 = (sent.1["attributes"].as_array().unwrap().iter())
        .filter(|one| one["key"].as_str().unwrap().starts_with("trunkline.rpc.component."))
        .map(|one| ns(&one["value"], "intValue"))
        .sum();
    assert_eq!(whole, ns(sent.1, "endTimeUnixNano") - ns(sent.1, "startTimeUnixNano"), "{sent:?}");
    let told = "trunkline_otlp_requests_total{what=\"spans\",outcome=\"taken\"} 1";
    let text = until("what was sent, counted", || {
        let kind = "application/openmetrics-text";
        let text = read_as(metrics, &format!("{kind}; version=1.0.0"), kind);
        if text.contains(told) { Ok(text) } else { Err(text) }
    });
    let span = sent.1["spanId"].as_str().unwrap();
    let exemplar = format!("# {{trace_id=\"{trace}\",span_id=\"{span}\"}} ");
    let of_call = |line: &&str| line.starts_with("grpc_client_call_duration_seconds_bucket{");
    assert_eq!(text.lines().filter(of_call).filter(|line| line.contains(&exemplar)).count(), 1, "{text}");
    assert!(text.contains("trunkline_otlp_calls_lost_total{why=\"refused\"} 0\n"), "{text}");
}

/// A share of the calls that belong to no trace begins one.
#[test]
fn a_trace_begins_where_there_is_none() {
    watched();
    let (collector, got) = collector();
    let host =
        Host::start(&format!("[otlp]\nendpoint = \"http://{collector}\"\nsample = 1.0\ninterval_s = 3600\n"));
    let (_server, client) = host.serve_search();
    client.query(QueryRequest { query: "bell".into(), ..QueryRequest::default() }).wait().unwrap();
    // Figures may come before them, and spans in more than one request.
    let mut spans = Vec::new();
    while spans.len() < 3 {
        let (signal, body) = got.recv().unwrap();
        if signal == "traces" {
            spans.extend(body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
        }
    }
    let names = ["Sent", "Attempt", "Recv"].map(|kind| format!("{kind}.search.v1.Search.Query"));
    let named = |name: &String| spans.iter().find(|span| span["name"] == **name);
    let [Some(sent), Some(attempt), Some(received)] = names.each_ref().map(named) else {
        panic!("{spans:#?}")
    };
    assert_eq!(spans.len(), 3, "{spans:#?}");
    assert_eq!((&sent["parentSpanId"], &attempt["parentSpanId"]), (&"".into(), &sent["spanId"]));
    assert_eq!(received["parentSpanId"], attempt["spanId"]);
    assert_eq!(attribute(sent, "trunkline.rpc.components_measured")["intValue"], "7", "within one host");
}

#[test]
fn an_address_that_is_no_place_for_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str, flag: &str| {
        let file = folder.path().join("d.toml");
        std::fs::write(&file, text).unwrap();
        let socket = folder.path().join("d.sock");
        let mut command = trunkline(&["daemon", flag, "--config", file.to_str().unwrap()]);
        end(command.arg("--socket").arg(socket), "")
    };
    let ended = check("[metrics]\nlisten = [\"unix:/run/metrics.sock\"]\n", "--check-config");
    assert!(ended.err.contains("metrics.listen: has unix:///run/metrics.sock"), "{ended:?}");
    assert!(ended.err.contains("tcp://127.0.0.1:9464"), "{ended:?}");
    let ended = check("[metrics]\nhosts = [\"a.example:9464\"]\n", "--check-config");
    assert!(
        ended.err.contains("metrics.hosts: has \"a.example:9464\", which is no name of a host"),
        "{ended:?}"
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!("[metrics]\nlisten = [\"tcp://{}\"]\n", taken.local_addr().unwrap());
    let ended = check(&text, "--until-stdin-closes");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("d.toml:2:11: metrics.listen[0]: is tcp://127.0.0.1:"), "{ended:?}");
    assert!(ended.err.contains("another program listens already; end that program (`ss -ltnp`"), "{ended:?}");
}

/// A web page that has its own name lead to the daemon reads nothing by it.
#[test]
fn names_that_are_not_written_down_are_sent_away() {
    watched();
    let address = own_address();
    let listen = format!("[metrics]\nlisten = [\"tcp://{address}\"]\nhosts = [\"*.scraped.example\"]\n");
    let _host = Host::start(&listen);
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for path in ["/metrics", "/live.json", "/"] {
        let status = |name: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nhost: {name}\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let known =
            [address.to_string(), "localhost:1".into(), own.trim().into(), "a.scraped.example".into()];
        for name in known {
            assert!(status(&name).starts_with("HTTP/1.1 200 OK\r\n"), "{path} as {name}");
        }
        let refused = status("evil.example:9464");
        assert!(refused.starts_with("HTTP/1.1 421 Misdirected Request\r\n"), "{path}: {refused}");
        assert!(refused.contains("add \"evil.example\" to metrics.hosts"), "{refused}");
        assert!(!refused.contains("trunkline_") && refused.lines().count() < 20, "{refused}");
    }
}

/// Names of families and of the labels their samples have.
fn families(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut families: BTreeMap<String, BTreeSet<String>> =
        heads.map(|name| (name.to_owned(), BTreeSet::new())).collect();
    for sample in samples(text).keys() {
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let family = family(name);
        let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        families.get_mut(family).unwrap_or_else(|| panic!("{family}")).extend(labels);
    }
    families
}

/// The family of a sample's name.
fn family(name: &str) -> &str {
    let histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end));
    histogram.unwrap_or(name)
}

/// Metrics of an expression of PromQL, each with the labels it is selected by.
fn selectors(expression: &str) -> Vec<(&str, Vec<&str>)> {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let each = expression.match_indices('{').map(|(at, _)| {
        let begins = expression[..at].rfind(|c| !named(c)).map_or(0, |before| before + 1);
        let inside = expression[at + 1..].split('}').next().unwrap();
        let labels = inside.split(", ").map(|label| label.split(|c| !named(c)).next().unwrap());
        (&expression[begins..at], labels.collect())
    });
    each.collect()
}

/// Labels an expression of PromQL sums by.
fn kept(expression: &str) -> impl Iterator<Item = &str> {
    let lists = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", "))
}

#[test]
fn the_dashboard_shows_what_daemons_tell() {
    watched();
    let [addresses, peers] = [(); 2].map(|()| [own_address(), own_address()]);
    let config = |at: usize| {
        format!(
            "[metrics]\nlisten = [\"tcp://{}\"]\n[daemon]\nlisten = [\"tcp://{}\"]\n\
             [services.\"search.v1.Search\"]\nendpoints = [\"tcp://{}\"]\n\
             [[policy]]\nname = \"any\"\nkind = \"access\"\nside = \"client\"\ndeny = 'false'\n",
            addresses[at],
            peers[at],
            peers[1 - at]
        )
    };
    let [made, served] = [0, 1].map(|at| Host::start(&config(at)));
    let (_server, _) = served.serve_search();
    let client =
        trunkline_example_search::proto::search_client::SearchClient::new(made.channel().connect_lazy());
    client.query(QueryRequest { query: "bell".into(), ..QueryRequest::default() }).wait().unwrap();
    let shown = |text: &str| text.contains("side=\"made\"") || text.contains("side=\"served\"");
    // Text is up to a second old.
    let told = addresses.map(|address| {
        until("the call, counted", || {
            let text = read(address);
            if shown(&text) { Ok(text) } else { Err(text) }
        })
    });
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, labels) in told.iter().flat_map(|text| families(text)) {
        known.entry(name).or_default().extend(labels);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/trunkline.json");
    let dashboard: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter(|panel| panel["type"] == "timeseries").flat_map(|panel| {
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{panel}");
        panel["targets"].as_array().unwrap()
    });
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 20, "{expressions:?}");
    for expression in expressions {
        let selected = selectors(expression);
        assert!(!selected.is_empty(), "{expression}");
        for (metric, labels) in selected {
            let has =
                known.get(family(metric)).unwrap_or_else(|| panic!("{metric} is not told: {expression}"));
            // Prometheus adds where it has read it. Of what has not happened yet there is no sample to look at.
            let is_known = |label: &str| has.is_empty() || label == "instance" || has.contains(label);
            for label in labels.into_iter().chain(kept(expression).filter(|label| *label != "le")) {
                assert!(is_known(label), "{metric} has no label {label:?} but {has:?}: {expression}");
            }
        }
    }
}
