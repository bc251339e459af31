//! Shows that calls are kept with their messages as the configuration says, without what is to be emptied, and that
//! they can be sent again and what is answered compared: with real daemons, linear and protobuf, made and served.

use crate::support;

use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use support::{Ended, Host, end, trunkline, watched};
use trunkline::Wait;
use trunkline::opaque::{Answer, Client};
use trunkline_example_search::proto::QueryRequest;
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_telemetry::{CallSample, SampleEntry, SampleFileReader};

/// A daemon that keeps calls of the search service, and listens.
fn host(folder: &Path, name: &str, redact: &str) -> (Host, PathBuf, String) {
    let (file, peer) = (folder.join(name), format!("unix:{}", folder.join(format!("{name}.sock")).display()));
    let config = format!(
        "[daemon]\nnode = \"{name}\"\nlisten = [\"{peer}\"]\n[metrics]\nlisten = [\"tcp://127.0.0.1:0\"]\n\
         [samples]\nfile = {file:?}\n[[sample]]\nservice = \"search.v1.Search\"\nmethods = [\"Query\"]\n\
         per_second = 1000\nmessage_bytes_max = 1000\nredact = [{redact}]\n"
    );
    (Host::start(&config), file, peer)
}

/// The calls in a file, once there are so many.
fn calls(file: &Path, count: usize) -> Vec<CallSample> {
    loop {
        let bytes = std::fs::read(file).unwrap();
        let mut reader = SampleFileReader::new(&bytes);
        let calls: Vec<CallSample> = reader
            .by_ref()
            .filter_map(|entry| match entry {
                SampleEntry::Call(call) => Some(call),
                SampleEntry::Schema(..) => None,
            })
            .collect();
        if calls.len() >= count {
            assert!(reader.faults.is_empty(), "{:?}", reader.faults);
            return calls;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn query(text: &str) -> QueryRequest {
    QueryRequest { query: text.into(), limit: 2, ..QueryRequest::default() }
}

#[test]
fn calls_are_kept_sent_again_and_compared() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let (near, made, _) = host(folder.path(), "near", "");
    let (far, served, peer) =
        host(folder.path(), "far", "\"QueryRequest.query\", \"Snippet.text\", \"did_you_mean\"");
    let (server, client) = far.serve_search();
    call_there(&near, &peer, &client);
    those_made_are_kept(&made);
    those_served_are_kept_without_some_fields(&served);
    for file in [&made, &served] {
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let replay = |more: &[&str]| {
        end(trunkline(&["replay", made.to_str().unwrap(), "--to", &peer, "--rate", "500/s"]).args(more), "")
    };
    answers_are_compared(&far, &replay);
    a_signal_ends_it_with_what_there_is(&far, &made, &peer);
    // Who was asked is gone.
    drop((server, client));
    failures_are_told(&replay);
    where_nobody_is_it_ends_soon(&made);
}

/// The first call is made at once, the next in a quarter of an hour.
fn a_signal_ends_it_with_what_there_is(far: &Host, made: &Path, peer: &str) {
    let served = || {
        let methods = far.verb(&["explain", "--json", "Search/Query"], "").out;
        let methods: serde_json::Value = serde_json::from_str(&methods).unwrap();
        methods.as_array().unwrap().iter().map(|method| method["calls"].as_u64().unwrap()).sum::<u64>()
    };
    let before = served();
    let mut slow = trunkline(&["replay", made.to_str().unwrap(), "--to", peer, "--rate", "0.001/s"]);
    let slow = slow.stdout(Stdio::piped()).spawn().unwrap();
    while served() == before {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&slow), Signal::TERM).unwrap();
    let ended = slow.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(1), "who waits for all of it is told: {out}");
    assert!(out.starts_with("ended before its time: 1 of 4 calls sent\n"), "{out}");
}

fn where_nobody_is_it_ends_soon(made: &Path) {
    let nobody =
        ["replay", made.to_str().unwrap(), "--to", "127.0.0.1:1", "--times", "1000", "--rate", "500/s"];
    let nobody = end(&mut trunkline(&nobody), "");
    let says = "--to 127.0.0.1:1: none of the first 20 calls could be sent: UNAVAILABLE";
    assert!(nobody.code == Some(1) && nobody.err.contains(says), "{nobody:?}");
    assert!(
        nobody.out.starts_with("ended before its time: ") && nobody.out.contains(" of 4000 calls sent"),
        "{nobody:?}"
    );
}

/// Four calls from another host that are kept, one that is too long, and one within the host.
fn call_there(near: &Host, peer: &str, within: &SearchClient) {
    let remote = SearchClient::new(near.channel().target(peer).connect_lazy());
    for text in ["ring", "bell", "nothing"] {
        remote.query(query(text)).wait().unwrap();
    }
    remote.query(query(&"ring ".repeat(300))).wait().unwrap();
    within.query(query("ring")).wait().unwrap();
    // Protobuf, from a program that has no types here.
    let opaque = Client::new(near.channel().target(peer).connect_lazy());
    let call = opaque.call("/search.v1.Search/Query").with_message(vec![0x0a, 4, b'r', b'i', b'n', b'g']);
    let (_, mut answers) = call.with_no_more().open().wait().unwrap();
    while !matches!(answers.next().wait(), Some(Answer::End(_)) | None) {}
}

fn those_made_are_kept(file: &Path) {
    let made = calls(file, 4);
    assert_eq!(made.len(), 4);
    assert!(made.iter().all(|call| !call.served && !call.emptied && call.host == "near"));
    assert!(made.iter().all(|call| call.path == "/search.v1.Search/Query" && call.response.is_some()));
    assert_eq!(made[0].request[..6], [0x0a, 4, b'r', b'i', b'n', b'g']);
    assert_eq!(made[3].request, [0x0a, 4, b'r', b'i', b'n', b'g'], "protobuf stays as it is");
    assert!(made[0].schema != 0 && made[3].schema == 0, "{made:?}");
}

fn those_served_are_kept_without_some_fields(file: &Path) {
    let served = calls(file, 5);
    assert_eq!(served.len(), 5);
    for (index, call) in served.iter().enumerate() {
        assert_eq!((call.served, call.emptied, call.host.as_str()), (index != 3, true, "far"), "{call:?}");
        assert_eq!(call.request[..2], [0x0a, 0], "the query is emptied: {:?}", call.request);
        assert!(call.schema != 0);
    }
    let bytes = std::fs::read(file).unwrap();
    assert!(!bytes.windows(4).any(|bytes| bytes == b"bell"), "what was asked for is in the file");
}

fn answers_are_compared(far: &Host, replay: &dyn Fn(&[&str]) -> Ended) {
    let same = replay(&["--compare", "--ignore", "QueryResponse.elapsed_ns", "--times", "3"]);
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(
        same.out.starts_with("12 calls sent to ") && same.out.contains("12 answers are equal"),
        "{}",
        same.out
    );
    // Another version of the server: it finds more.
    let call = far.verb(&["call", "Search/Index", "{\"name\": \"d\", \"text\": \"bell bell\"}"], "");
    assert_eq!(call.code, Some(0), "{call:?}");
    let differs = replay(&["--compare", "--ignore", "elapsed_ns"]);
    assert_eq!(differs.code, Some(1), "{differs:?}");
    assert!(
        differs.out.contains("search.v1.Search/Query: 1 × payload differs, first in "),
        "{}",
        differs.out
    );
    assert!(differs.err.contains(" of 4 answers differ"), "{}", differs.err);
}

fn failures_are_told(replay: &dyn Fn(&[&str]) -> Ended) {
    let gone = replay(&["--compare", "--method", "Query"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(
        gone.out.contains("4 × status differs: OK then, UNIMPLEMENTED now")
            || gone.out.contains("UNAVAILABLE now"),
        "{}",
        gone.out
    );
    let all = replay(&[]);
    assert!(
        all.code == Some(1)
            && all.err.contains("4 of 4 calls failed, and not as when they were kept; the first: "),
        "{all:?}"
    );
    let none = replay(&["--method", "absent"]);
    assert!(none.code == Some(1) && none.err.contains("no call could be read"), "{none:?}");
}

#[test]
fn a_file_that_cannot_be_had_keeps_the_daemon_from_starting() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("d.toml");
    std::fs::write(&config, "[samples]\nfile = \"/dev/null\"\n[[sample]]\nservice = \"a.B\"\n").unwrap();
    let socket = folder.path().join("d.sock");
    let mut command =
        trunkline(&["daemon", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()]);
    let refused = end(&mut command, "");
    assert!(
        refused.code == Some(1) && refused.err.contains("samples.file: /dev/null: is no plain file"),
        "{refused:?}"
    );
}

/// A call that may be tried again is made by attempts, and several shards have one file.
#[test]
fn calls_with_attempts_and_over_shards_are_kept_once() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let (far, _, peer) = host(folder.path(), "far", "");
    let (_server, _client) = far.serve_search();
    let file = folder.path().join("near");
    let retries = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.01s",
        "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    let config = format!(
        "[daemon]\nnode = \"near\"\nshards = 2\n[samples]\nfile = {file:?}\n\
         [[sample]]\nservice = \"search.v1.Search\"\nper_second = 1000\n\
         [services.\"search.v1.Search\"]\nendpoints = [\"{peer}\"]\nservice_config = '''{retries}'''\n"
    );
    let near = Host::start(&config);
    let client = SearchClient::new(near.channel().connect_lazy());
    for _ in 0..20 {
        client.query(query("ring")).wait().unwrap();
    }
    // A stream is none of them.
    let mut hits = client.results(query("ring")).wait().unwrap();
    while hits.recv().wait().unwrap().is_some() {}
    client.query(query("bell")).wait().unwrap();
    let kept = calls(&file, 21);
    assert_eq!(kept.len(), 21);
    let is_whole = |call: &CallSample| call.path == "/search.v1.Search/Query" && call.response.is_some();
    assert!(kept.iter().all(is_whole), "{kept:?}");
}
