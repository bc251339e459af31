//! Shows trees of calls from recordings of two daemons, and that readers of the formats take what is exported of them.

use crate::support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Host, Recording, end, own_address, trunkline, watched};
use trunkline::{Channel, Wait};
use trunkline_example_search::proto::QueryRequest;
use trunkline_example_search::proto::search_client::SearchClient;

const TRACED: &str = "[recorder]\ntraces = true\nsample = 1.0\n";

/// Calls that are recorded.
const CALLS: usize = 60;

/// Files of records of two hosts, one of which calls the other.
fn recorded(folder: &Path) -> [String; 2] {
    let port = own_address();
    let beta = Host::start(&format!("[daemon]\nnode = \"beta\"\nlisten = [\"tcp://{port}\"]\n{TRACED}"));
    let alpha = Host::start(&format!("[daemon]\nnode = \"alpha\"\n{TRACED}"));
    let (_server, _) = beta.serve_search();
    let channel = Channel::builder().embedded(false).socket(alpha.socket()).target(&format!("tcp://{port}"));
    let client = SearchClient::new(channel.connect_lazy());
    let files = ["a.rec", "b.rec"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let begin = |(host, file): (&Host, &String)| {
        Recording::begin(&host.socket(), Path::new(file), &["--traces", "1e9/s"])
    };
    let recordings: Vec<_> = [&alpha, &beta].into_iter().zip(&files).map(begin).collect();
    for _ in 0..CALLS {
        client.query(QueryRequest { query: "ring".into(), ..QueryRequest::default() }).wait().unwrap();
    }
    for recording in recordings {
        let said = recording.stop();
        assert!(said.contains("belong to a trace"), "{said}");
    }
    files
}

#[test]
fn trees_over_two_hosts_are_drawn_and_exported() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let [alpha, beta] = recorded(folder.path());

    let tree = end(&mut trunkline(&["tree", &alpha, &beta]), "");
    assert_eq!(tree.code, Some(0), "{tree:?}");
    assert!(tree.out.contains("trees were recorded from their first call on"), "{}", tree.out);
    assert!(tree.out.contains("critical path of whole trees"), "{}", tree.out);
    let all = end(&mut trunkline(&["tree", &alpha, &beta, "--slowest", "1000"]), "");
    assert!(!all.out.contains("trunkline.admin"), "recording begins no trace: {}", all.out);
    let slowest = ["tree", &alpha, &beta, "--slowest", "1", "--method", "Search/Query"];
    let slowest = end(&mut trunkline(&slowest), "");
    let line = slowest.out.lines().find(|line| line.starts_with("/search.v1.Search/Query"));
    assert!(line.is_some_and(|line| line.contains("alpha") && line.contains("100.0 %")), "{}", slowest.out);
    let trace = slowest.out.lines().next().and_then(|line| line.strip_prefix("trace ")).unwrap();
    let again = end(&mut trunkline(&["tree", &alpha, &beta, "--trace", trace]), "");
    assert_eq!(again.out.trim(), slowest.out.trim());
    let none = end(&mut trunkline(&["tree", &alpha, "--trace", "1"]), "");
    assert!(none.code == Some(1) && none.err.contains("no whole tree of trace 0000"), "{none:?}");

    let jaeger = end(&mut trunkline(&["export", "--jaeger", &alpha, &beta]), "");
    let traces: Value = serde_json::from_str(&jaeger.out).unwrap();
    let both = traces["data"].as_array().unwrap().iter().filter(|trace| {
        let processes = trace["processes"].as_object().unwrap().values();
        let hosts: BTreeSet<_> = processes.map(|process| process["tags"][0]["value"].to_string()).collect();
        hosts.len() == 2 && holds_together(trace)
    });
    assert!(both.count() > 5, "{}", jaeger.out);
}

/// Whether every span but the first is below one that is there, and begins no earlier.
fn holds_together(trace: &Value) -> bool {
    let spans = trace["spans"].as_array().unwrap();
    let began: BTreeMap<&str, u64> = spans
        .iter()
        .map(|span| (span["spanID"].as_str().unwrap(), span["startTime"].as_u64().unwrap()))
        .collect();
    let parent = |span: &'_ Value| span["references"][0]["spanID"].as_str().map(ToOwned::to_owned);
    let tops = spans.iter().filter(|span| parent(span).is_none()).count();
    let below = spans.iter().filter_map(|span| Some((span["startTime"].as_u64()?, parent(span)?)));
    // Microseconds are rounded.
    tops == 1
        && below.into_iter().all(|(at, parent)| began.get(&*parent).is_some_and(|above| at + 1 >= *above))
}

/// Prints what pyarrow finds: rows, and of some columns types and values.
const READER: &str = "
import sys, pyarrow.parquet as parquet
table = parquet.read_table(sys.argv[1])
parquet.ParquetFile(sys.argv[1]).metadata
print(table.num_rows)
print(sorted(set(table['host'].to_pylist())), sorted(set(table['side'].to_pylist())))
print(table.schema.field('ended_unix_us').type, table.schema.field('total_ns').type, table.schema.field('slow').type)
parts = [name for name in table.column_names if name.endswith('_ns') and name in (
    'client_send_queue_ns', 'request_stack_ns', 'request_wire_ns', 'server_receive_queue_ns', 'server_application_ns',
    'server_send_queue_ns', 'response_wire_ns', 'response_stack_ns', 'client_receive_queue_ns')]
rows = table.to_pylist()
assert len(parts) == 9 and all(sum(row[part] for part in parts) == row['total_ns'] for row in rows)
assert all((row['a0_ns'] is None) == (row['side'] == 'served' or row['trace'] is None) for row in rows)
print(sum(row['trace'] is not None for row in rows) > 10)
";

#[test]
fn pyarrow_reads_parquet() {
    watched();
    let has_pyarrow =
        Command::new("python3").args(["-c", "import pyarrow.parquet"]).stderr(Stdio::null()).status();
    if !has_pyarrow.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no python3 with pyarrow, so nobody reads the Parquet file");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [alpha, beta] = recorded(folder.path());
    let file = folder.path().join("calls.parquet");
    let file = file.to_str().unwrap();
    let written = end(&mut trunkline(&["export", "--parquet", &alpha, &beta, "-o", file]), "");
    assert_eq!(written.code, Some(0), "{written:?}");
    let csv = end(&mut trunkline(&["export", "--csv", &alpha, &beta]), "");
    let read = end(Command::new("python3").args(["-c", READER, file]), "");
    let expected = format!(
        "{}\n['alpha', 'beta'] ['made', 'served']\ntimestamp[us, tz=UTC] uint64 bool\nTrue\n",
        csv.out.lines().count() - 1
    );
    assert_eq!(read.out, expected, "{}", read.err);
}
