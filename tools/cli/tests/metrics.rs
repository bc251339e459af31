//! Shows the metrics listener of a running daemon: what Prometheus reads there, that it is well-formed whatever names
//! there are, that it outlives a replacement of the daemon, and what is said if it cannot listen.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use support::{Host, end, trunkline, watched};
use trunkline::Wait;
use trunkline_example_search::proto::QueryRequest;

/// An address nobody listens at.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn config(address: SocketAddr) -> String {
    format!(
        "[daemon]\nnode = \"a \\\"node\\\"\"\n[metrics]\nlisten = [\"tcp://{address}\"]\n\
         [services.\"far.Away\"]\nendpoints = [\"tcp://127.0.0.1:1\"]\n\
         [[policy]]\nname = \"no-bells\"\nkind = \"access\"\nside = \"server\"\ndeny = 'application == \"bell\"'\n"
    )
}

fn read(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
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
    let address = free();
    let host = Host::start(&config(address));
    let (_server, client) = host.serve_search();
    for _ in 0..10 {
        client.query(QueryRequest { query: "bell".into(), ..QueryRequest::default() }).wait().unwrap();
    }
    let calls =
        "trunkline_calls_total{side=\"made\",method=\"search.v1.Search/Query\",peer=\"(local)\",code=\"OK\"}";
    // Text is up to a second old.
    let seen = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        samples(&read(address))
    });
    let seen = seen.take(1000).find(|samples| samples.get(calls) == Some(&10.0));
    let samples = seen.unwrap_or_else(|| panic!("{}", read(address)));
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

#[test]
fn it_outlives_a_replacement() {
    watched();
    let address = free();
    let host = Host::start(&config(address));
    let upgraded = host.verb(&["upgrade"], "");
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    // The kernel gives a connection to whoever listens; who has gone closes it.
    let read = || std::panic::catch_unwind(|| samples(&read(address)));
    assert!(std::iter::repeat_with(read).take(1000).any(|samples| samples.is_ok()));
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
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!("[metrics]\nlisten = [\"tcp://{}\"]\n", taken.local_addr().unwrap());
    let ended = check(&text, "--until-stdin-closes");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("metrics.listen: cannot listen at 127.0.0.1:"), "{ended:?}");
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
    let [addresses, peers] = [[free(), free()], [free(), free()]];
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
    let told = addresses.map(|address| {
        // Text is up to a second old.
        let seen = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            read(address)
        });
        seen.take(1000).find(|text| shown(text)).expect("the call is counted")
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
