//! Shows every verb of the binary against a daemon of its own: output, exit codes, and what a mistake gets.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{ADMIN_PROTO, Ended, Host, Recording, SEARCH_PROTO, end, trunkline, until, watched};
use trunkline::{Code, Server, Wait};
use trunkline_example_search::proto::{Ask, QueryRequest, ask};

/// The admin API, generated for the binary.
#[allow(dead_code, reason = "a test that poses as the daemon needs one type of it")]
mod admin {
    trunkline::include_proto!("trunkline.admin.v1");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn call(host: &Host, arguments: &[&str], input: &str) -> Ended {
    host.verb(&[&["call", "--proto", SEARCH_PROTO], arguments].concat(), input)
}

#[test]
fn configurations_are_checked_and_printed() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.toml");
    let path = path.to_str().unwrap();
    let daemon = |verb| end(&mut trunkline(&["daemon", "--config", path, verb]), "");

    assert_eq!(daemon("--check-config").code, Some(1), "a named file must exist");
    std::fs::write(path, "[daemon]\nlisen = []\n").unwrap();
    let refused = daemon("--check-config");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("d.toml:2:1: daemon.lisen") && refused.err.contains("did you mean \"listen\"")
    );

    std::fs::write(path, "[daemon]\nnode = \"alpha\"\n").unwrap();
    let good = daemon("--check-config");
    assert_eq!((good.code, good.out), (Some(0), format!("{path}: good\n")));
    let printed = daemon("--print-config").out;
    assert!(printed.contains("node = \"alpha\"") && printed.contains("[limits]"), "{printed}");
    std::fs::write(path, &printed).unwrap();
    assert_eq!(daemon("--print-config").out, printed);
}

#[test]
fn output_that_finds_no_room_is_no_panic() {
    watched();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for arguments in
        [&["sim", "--requests", "100", "--load", "50", "--policy", "random"][..], &["completions", "bash"]]
    {
        let ended = trunkline(arguments).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let err = String::from_utf8_lossy(&ended.stderr);
        assert!(err.starts_with("trunkline: cannot write: No space left on device"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[test]
fn list_shows_who_is_there() {
    watched();
    let host = Host::start("[daemon]\nnode = \"alpha\"\nlisten = [\"tcp://127.0.0.1:0\"]");
    let (_server, _client) = host.serve_search();
    let listed = host.verb(&["list"], "");
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.starts_with("alpha (trunkline "), "{}", listed.out);
    let service = listed.out.lines().find(|line| line.starts_with("search.v1.Search "));
    assert!(
        service.is_some_and(|line| line.ends_with("  1  Query, Results, Index, Session")),
        "{}",
        listed.out
    );

    let list = json(&host.verb(&["list", "--json"], "").out);
    assert!(list["listening"][0].as_str().unwrap().starts_with("tcp://127.0.0.1:"));
    let names = list["applications"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
    let names: Vec<&str> = names.map(|name| name.split('[').next().unwrap()).collect();
    assert!(names.contains(&"searcher") && names.contains(&"admin"), "{names:?}");
    assert!(list["memory"]["residentBytes"].as_u64().unwrap() > 0);
}

#[test]
fn shards_are_shown_and_applications_move_between_them() {
    watched();
    let host = Host::start("[daemon]\nshards = 2");
    let (_server, _client) = host.serve_search();
    let list = json(&host.verb(&["list", "--json"], "").out);
    let applications = list["applications"].as_array().unwrap();
    let searcher = applications.iter().find(|row| row["name"].as_str().unwrap().starts_with("searcher["));
    let (name, shard) = searcher.map(|row| (row["name"].as_str().unwrap(), &row["shard"])).unwrap();
    let other = if *shard == 0 { "1" } else { "0" };
    let moved = host.verb(&["shards", "move", name, other], "");
    assert_eq!(moved.code, Some(0), "{moved:?}");
    assert!(moved.out.ends_with(&format!("of {name} moved to shard {other}\n")), "{}", moved.out);
    let shards = json(&host.verb(&["shards", "--json"], "").out);
    let row = &shards[other.parse::<usize>().unwrap()];
    assert!(row["hasThread"].as_bool().unwrap() && row["sessions"].as_u64().unwrap() > 0, "{shards}");
    let shown = host.verb(&["shards"], "");
    assert!(shown.out.starts_with("SHARD  THREAD  BUSY  SESSIONS  CALLS\n"), "{}", shown.out);
    let refused = host.verb(&["shards", "move", name, "x"], "");
    assert!(refused.err.contains("write the number of a shard, from 0 on"), "{refused:?}");
    let refused = host.verb(&["shards", "move", name, "7"], "");
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.err.contains("there is no shard 7: the last one is 1 (daemon.shards)"),
        "{}",
        refused.err
    );
}

#[test]
fn all_four_patterns_are_called_in_json() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();

    let unary = call(&host, &["Search/Query", r#"{"query": "ring", "limit": 1}"#], "");
    assert_eq!(unary.code, Some(0), "{unary:?}");
    let response = json(&unary.out);
    assert_eq!((&response["matches"], &response["hits"][0]["name"]), (&Value::from(2), &Value::from("c")));

    let streamed = call(&host, &["search.v1.Search/Results", "-"], r#"{"query": "ring bell"}"#);
    assert_eq!((streamed.code, streamed.out.lines().count()), (Some(0), 3), "{streamed:?}");

    let documents = "{\"name\": \"d\", \"text\": \"one\"}\n{\"name\": \"e\", \"text\": \"two words\"}";
    let indexed = json(&call(&host, &["Search/Index"], documents).out);
    assert_eq!((&indexed["documents"], &indexed["words"]), (&Value::from(2), &Value::from("3")));

    let questions = [r#"{"query": "ring"}"#, r#"{"refine": "the"}"#, r#"{"complete": "be"}"#];
    let talk = call(&host, &[&["Search/Session"], &questions[..]].concat(), "");
    let answers: Vec<Value> = talk.out.lines().map(json).collect();
    assert_eq!(answers.len(), 3, "{talk:?}");
    assert_eq!(answers[1]["page"]["query"], "ring +the");
    assert_eq!(answers[2]["completions"]["words"][0], "bell");
}

#[test]
fn many_large_messages_pass_in_both_directions() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    // Several windows' worth of stream, and more than the send heap at once.
    // One run of letters is not indexed: what is tried here is the road, not the index.
    let text = format!("word {}", "x".repeat(1_000_000));
    let document = |i| format!("{{\"name\": \"d{i}\", \"text\": \"{text}\"}}\n");
    let indexed = call(&host, &["Search/Index"], &(0..80).map(document).collect::<String>());
    assert_eq!(json(&indexed.out)["documents"], 80, "{}", indexed.err);
    let opened = call(&host, &["Search/Session", r#"{"query": "word"}"#, r#"{"open": 1}"#], "");
    let last = json(opened.out.lines().last().unwrap());
    assert_eq!(last["document"]["text"].as_str().unwrap().len(), text.len());
}

#[test]
fn types_come_from_the_daemon_or_the_peer() {
    watched();
    let peers = tempfile::tempdir().unwrap();
    let peer = format!("unix:{}", peers.path().join("p.sock").display());
    let host = Host::start(&format!("[daemon]\nlisten = [\"{peer}\"]"));
    let (_server, _client) = host.serve_search();
    let query = r#"{"query": "bell"}"#;
    for target in [&[][..], &["--target", &peer]] {
        let called = host.verb(&[&["call", "Search/Query", query], target].concat(), "");
        assert_eq!(called.code, Some(0), "{called:?}");
        assert_eq!(json(&called.out)["hits"][0]["name"], "b");
        let listed = host.verb(&[&["call", "list"], target].concat(), "");
        assert!(listed.out.lines().any(|line| line == "search.v1.Search"), "{listed:?}");
        assert!(listed.out.lines().any(|line| line == "grpc.health.v1.Health"), "{listed:?}");
    }
    let data =
        ["call", "search.v1.Search.Query", "-d", "@-", "-H", "tenant: blue", "--verbose", "--emit-defaults"];
    let verbose = host.verb(&data, query);
    assert_eq!(verbose.code, Some(0), "{verbose:?}");
    for part in ["rpc Query(.search.v1.QueryRequest)", "request tenant: blue", "requests 1, responses 1"] {
        assert!(verbose.err.contains(part), "{verbose:?}");
    }
    let methods = host.verb(&["call", "list", "search.v1.Search"], "");
    assert_eq!(methods.out.lines().next(), Some("search.v1.Search/Query"), "{methods:?}");
    let described = host.verb(&["call", "describe", "search.v1.QueryRequest", "--msg-template"], "");
    assert!(described.out.starts_with("search.v1.QueryRequest is a message:\nmessage QueryRequest {\n"));
    assert!(
        described.out.contains("  string query = 1;\n") && described.out.contains("\"query\": \"\""),
        "{described:?}"
    );
    let own = host.verb(&["call", "trunkline.admin.v1.Admin/List"], "");
    assert_eq!(own.code, Some(0), "{own:?}");
    let health =
        host.verb(&["call", "grpc.health.v1.Health/Check", r#"{"service": "search.v1.Search"}"#], "");
    assert_eq!(json(&health.out)["status"], "SERVING");

    let unknown = host.verb(&["call", "Serch/Query", "{}"], "");
    assert!(unknown.code == Some(1) && unknown.err.contains("services here: "), "{unknown:?}");
    let elsewhere = host.verb(&["call", "other.v1.Other/Do", "{}"], "");
    assert!(elsewhere.code == Some(1) && elsewhere.err.contains("--target HOST:PORT"), "{elsewhere:?}");
    let wrong = host.verb(&["call", "describe", "search.v1.Nothing"], "");
    assert!(wrong.code == Some(1) && wrong.err.contains("search.v1.Nothing"), "{wrong:?}");
}

#[test]
fn a_server_without_reflection_is_said_to_be_one() {
    watched();
    let host = Host::start("[grpc_services]\nreflection = false");
    let (_server, _client) = host.serve_search();
    let failed = host.verb(&["call", "Search/Query", "{}"], "");
    assert!(failed.code == Some(1) && failed.err.contains("--proto FILE"), "{failed:?}");
    let named = call(&host, &["Search/Query", r#"{"query": "ring"}"#], "");
    assert_eq!(named.code, Some(0), "{named:?}");
}

#[test]
fn benches_measure_open_and_closed() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let data = r#"{"query": "ring {{number}}"}"#;
    let bench = |arguments: &[&str]| {
        let data = if arguments.contains(&"-d") { &[][..] } else { &["-d", data] };
        host.verb(&[&["bench", "Search/Query"], data, arguments].concat(), "")
    };

    let open = bench(&["--rate", "500", "--count", "100", "-o", "json", "--html", page.to_str().unwrap()]);
    assert_eq!(open.code, Some(0), "{open:?}");
    let report = json(&open.out);
    assert_eq!((&report["calls"], &report["codes"]["OK"]), (&Value::from(100), &Value::from(100)));
    assert!(report["elapsed_ns"].as_u64().unwrap() >= 198_000_000, "100 calls at 500/s are not made sooner");
    assert!(report["latency_ns"]["p99"].as_u64() >= report["service_ns"]["p50"].as_u64(), "{report}");
    assert!(std::fs::read_to_string(page).unwrap().starts_with("<!doctype html>"));

    let closed = bench(&["--closed", "--concurrency", "4", "-n", "200", "-o", "csv"]);
    assert_eq!(closed.code, Some(0), "{closed:?}");
    let counted: u64 =
        closed.out.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(counted, 200);

    let streamed = ["bench", "Search/Index", "--rate", "50", "-n", "5", "-d"];
    let documents = r#"{"name": "x", "text": "one"} {"name": "y", "text": "two"}"#;
    let streamed = host.verb(&[&streamed[..], &[documents]].concat(), "");
    assert!(streamed.code == Some(0) && streamed.out.contains("5 OK"), "{streamed:?}");
    let results = host.verb(&["bench", "Search/Results", "-n", "3", "-d", r#"{"query": "ring bell"}"#], "");
    assert!(results.out.contains("received in 9 responses"), "{results:?}");

    let steps =
        ["--rate", "100", "--rate-end", "300", "--rate-step", "100", "--step-time", "200ms", "-o", "json"];
    let steps = json(&bench(&steps).out);
    let counted: Vec<u64> = (0..3).map(|step| steps["steps"][step]["ok"].as_u64().unwrap()).collect();
    assert_eq!(counted, [20, 40, 60]);

    let failing = host.verb(&["bench", "Search/Query", "-n", "3", "-d", r#"{"query": ""}"#], "");
    assert_eq!(failing.code, Some(1), "{failing:?}");
    assert!(failing.out.contains("INVALID_ARGUMENT     3\n    3 × no word"), "{}", failing.out);
    for (arguments, part) in [
        (&["--rate", "0"][..], "--rate 0: write calls per second"),
        (&["-d", r#"{"query": "{{foo}}"}"#], "fill into {{foo}}; write {{number}}, {{random}}, {{uuid}} or"),
        (&["--rate", "1", "--rate-end", "9e9", "--rate-step", "1"], "at most 1000"),
    ] {
        let refused = bench(arguments);
        assert!(refused.code == Some(2) && refused.err.contains(part), "{refused:?}");
    }
}

/// A report that finds no room in its file is shown; where there is no file to be had, no call is made.
#[test]
fn a_bench_is_not_lost_with_its_files() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    let bench = ["bench", "Search/Query", "-d", r#"{"query": "ring"}"#, "--rate", "200", "-n", "4"];
    let bench = |more: &[&str]| host.verb(&[&bench[..], more].concat(), "");
    for option in ["--html", "--out"] {
        let full = bench(&[option, "/dev/full"]);
        assert_eq!(full.code, Some(1), "{full:?}");
        assert!(full.out.contains("4 OK") && full.err.contains("/dev/full: No space left"), "{full:?}");
        let nowhere = bench(&[option, "/nonexistent/x.html"]);
        assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
        assert!(
            nowhere.out.is_empty() && nowhere.err.contains("/nonexistent/x.html: No such"),
            "{nowhere:?}"
        );
    }
    let made = json(&host.verb(&["explain", "--json", "Search/Query"], "").out);
    assert!(made[0]["calls"].as_u64() <= Some(8), "{made}");
    // A report takes the place of one before, which may have been longer.
    let path = host.folder().join("report.json");
    std::fs::write(&path, "x".repeat(1 << 16)).unwrap();
    let kept = bench(&["-o", "json", "--out", path.to_str().unwrap()]);
    assert!(kept.code == Some(0) && kept.out.is_empty(), "{kept:?}");
    assert_eq!(json(&std::fs::read_to_string(&path).unwrap())["calls"], 4);
}

#[test]
fn benches_find_the_time_that_was_planted() {
    watched();
    let host = Host::start("[debug]\nrequest_hold_us = 20000");
    let (_server, _client) = host.serve_search();
    let arguments =
        ["bench", "Search/Query", "-d", r#"{"query": "ring"}"#, "-n", "40", "--rate", "200", "-o", "json"];
    let one_by_one = host.verb(&[&arguments[..], &["--in-flight-max", "1"]].concat(), "");
    let report = json(&one_by_one.out);
    let ns = |of: &str, percentile: &str| report[of][percentile].as_u64().unwrap();
    assert!(ns("service_ns", "min") >= 20_000_000, "{report:#}");
    // 40 calls due within 195 ms, each of which takes 20 ms: those that wait in line were due when they were due.
    assert!(ns("latency_ns", "max") >= 500_000_000 && ns("behind_ns", "p50") >= 100_000_000, "{report:#}");
}

/// A daemon's operator has nothing to wonder about: the stream that asks for types is ended, and not cancelled.
#[test]
fn looking_for_types_is_no_failed_call() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    for verb in [
        &["call", "Search/Query", r#"{"query": "ring"}"#][..],
        &["call", "list"],
        &["bench", "Search/Query", "-d", r#"{"query": "ring"}"#, "-n", "1"],
    ] {
        assert_eq!(host.verb(verb, "").code, Some(0), "{verb:?}");
    }
    let told = host.verb(&["explain", "ServerReflection"], "");
    assert!(told.code == Some(0) && told.out.contains("ServerReflection"), "{told:?}");
    assert!(!told.out.contains("CANCELLED"), "{}", told.out);
}

/// A call that was sent has a status, whatever becomes of the daemon: who tries again at 1 would make it twice.
#[test]
fn a_session_that_ends_is_the_end_of_its_call() {
    watched();
    let mut host = Host::start("");
    let mut top =
        trunkline(&["--socket", host.socket().to_str().unwrap(), "call", "--proto", ADMIN_PROTO, "-I"]);
    top.args([concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto"), "Admin/Top", "{}"]);
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pictures = BufReader::new(top.stdout.take().unwrap());
    pictures.read_line(&mut String::new()).unwrap();
    host.child.kill().unwrap();
    let ended = top.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(64 + 14), "{said}");
    assert!(
        said.starts_with("UNAVAILABLE: the daemon ended the session") && said.contains("unknown"),
        "{said}"
    );
}

/// Far more calls are due than can be made: the first signal ends the run, and says what was not sent.
#[test]
fn a_bench_that_is_far_behind_ends_at_the_first_signal() {
    watched();
    let host = Host::start("[debug]\nrequest_hold_us = 20000");
    let (_server, _client) = host.serve_search();
    let mut bench = trunkline(&["--socket", host.socket().to_str().unwrap(), "bench", "Search/Query"]);
    bench.args(["-d", r#"{"query": "ring"}"#, "--rate", "1e6", "--duration", "1h", "--in-flight-max", "1"]);
    let child = bench.args(["-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let has_called = || {
        let told = host.verb(&["explain", "--json", "Search/Query"], "");
        told.code == Some(0) && json(&told.out)[0]["calls"].as_u64() > Some(0)
    };
    while !has_called() {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "not all calls were made");
    let report = json(std::str::from_utf8(&ended.stdout).unwrap());
    assert!(report["calls"].as_u64() > Some(0) && report["calls"] == report["ok"], "{report:#}");
    assert!(report["not_sent"].as_u64() > Some(1000), "{report:#}");
}

#[test]
fn failures_have_codes_and_say_what_is_known() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    let admin = ["call", "--proto", ADMIN_PROTO, "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto")];

    let refused = call(&host, &["Search/Query", r#"{"query": ""}"#], "");
    assert_eq!(refused.code, Some(64 + 3), "{refused:?}");
    assert!(
        refused.err.starts_with("INVALID_ARGUMENT: no word")
            && refused.err.contains("executed: the handler ran")
    );

    // The time limit is that of the call, and not of looking for its types.
    let late = host.verb(&["call", "--timeout", "1us", "Search/Query", r#"{"query": "ring"}"#], "");
    assert!(late.code == Some(64 + 4) && late.err.starts_with("DEADLINE_EXCEEDED"), "{late:?}");
    let unreachable = call(&host, &["--target", "tcp://127.0.0.1:1", "Search/Query", "{}"], "");
    assert_eq!(unreachable.code, Some(64 + 14));
    assert!(unreachable.err.contains("not executed"), "{}", unreachable.err);

    // Types in files make no server answer that is not there.
    let nobody = host.verb(&["call", "--target", "tcp://127.0.0.1:1", "Search/Query", "{}"], "");
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(nobody.err.contains("UNAVAILABLE") && !nobody.err.contains("--proto"), "{nobody:?}");

    let late = host.verb(&[&admin[..], &["--timeout", "50ms", "Admin/Top", "{}"]].concat(), "");
    assert_eq!(late.code, Some(64 + 4), "{late:?}");

    for (arguments, part) in [
        (&["Search/Qery", "{}"][..], "has no method \"Qery\"; methods here: Query, Results, Index, Session"),
        (&["Search/Query", "{\"qery\": 1}"], "request 1 is not JSON of search.v1.QueryRequest"),
        (&["Search/Query", "{\"limit\": 1, \"limit\": 2}"], "member \"limit\" is there twice"),
        (&["Search/Query", "{}", "{}"], "takes one request, and 2 were given"),
        (&["Search/Index", "{"], "request 1"),
    ] {
        let failed = call(&host, arguments, "");
        assert_eq!(failed.code, Some(1), "{failed:?}");
        assert!(failed.err.contains(part), "{}", failed.err);
    }

    // One request of many would look as if all had been sent.
    let file = host.socket().with_file_name("requests.json");
    std::fs::write(&file, "{\"query\": \"ring\"}\n{\"query\": \"ring\"}\n").unwrap();
    let from_file = format!("@{}", file.display());
    for (arguments, input) in [
        (&["Search/Query"][..], "{}\n{}\n"),
        (&["Search/Query", "-"], "{}{}"),
        (&["-d", &from_file, "Search/Query"], ""),
    ] {
        let failed = call(&host, arguments, input);
        assert_eq!((failed.code, &*failed.out), (Some(1), ""), "{failed:?}");
        assert!(failed.err.contains("search.v1.Search.Query takes one request, and more"), "{failed:?}");
    }

    for verb in [&["list"][..], &["call", "list"], &["bench", "a.v1.B/C"]] {
        let nobody = end(&mut trunkline(&[&["--socket", "/nonexistent/d.sock"], verb].concat()), "");
        assert_eq!(nobody.code, Some(1), "{nobody:?}");
        let variable = end(trunkline(verb).env("TRUNKLINE_SOCKET", "/nonexistent/e.sock"), "");
        assert_eq!(variable.code, Some(1), "{variable:?}");
        for (ended, path) in [(nobody, "/nonexistent/d.sock"), (variable, "/nonexistent/e.sock")] {
            assert!(ended.err.contains(&format!("no daemon at {path}: ")), "{verb:?}: {ended:?}");
            assert!(ended.err.contains("start one with `trunkline daemon`"), "{verb:?}: {ended:?}");
        }
        let strange = end(trunkline(verb).env("TRUNKLINE_SOCKET", "tcp://127.0.0.1:1"), "");
        assert_eq!(strange.code, Some(2), "{strange:?}");
        assert!(strange.err.contains("write the path of its socket, or a relay's address"), "{strange:?}");
    }
}

#[test]
fn an_engine_of_its_own_makes_calls_where_no_daemon_runs() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let peer = format!("unix:{}", folder.path().join("p.sock").display());
    let host = Host::start(&format!("[daemon]\nlisten = [\"{peer}\"]"));
    let (_server, _client) = host.serve_search();
    let arguments =
        ["call", "--proto", SEARCH_PROTO, "--target", &peer, "Search/Query", r#"{"query": "bell"}"#];
    // No usual place has a daemon: the runtime folder is an empty one.
    let called = end(trunkline(&arguments).env("XDG_RUNTIME_DIR", folder.path()), "");
    assert_eq!(called.code, Some(0), "{called:?}");
    assert_eq!(json(&called.out)["hits"][0]["name"], "b");
    assert!(called.err.contains("no daemon on this host"), "{called:?}");

    // One that was named, or that left its socket, is meant: its policies are not to be passed by.
    let named = end(trunkline(&arguments).env("TRUNKLINE_SOCKET", "/nonexistent/d.sock"), "");
    assert!(named.code == Some(1) && named.err.contains("no daemon at /nonexistent/d.sock"), "{named:?}");
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("trunkline.sock")).unwrap());
    let died = end(trunkline(&arguments).env("XDG_RUNTIME_DIR", folder.path()), "");
    assert!(died.code == Some(1) && died.err.contains("Connection refused"), "{died:?}");
}

#[test]
fn time_is_explained_where_it_was_planted() {
    watched();
    let host = Host::start("[debug]\nrequest_hold_us = 5000\nresponse_hold_us = 7000");
    let (_server, client) = host.serve_search();
    for _ in 0..20 {
        let request =
            trunkline_example_search::proto::QueryRequest { query: "ring".into(), ..Default::default() };
        client.query(request).wait().unwrap();
    }
    let table = host.verb(&["explain", "search.v1.Search/Query"], "");
    assert_eq!(table.code, Some(0), "{table:?}");
    for component in trunkline_telemetry::Component::ALL {
        assert!(table.out.contains(component.name()), "{}", table.out);
    }
    let explained = json(&host.verb(&["explain", "search.v1.Search/Query", "--json"], "").out);
    let mean_ns = |at: usize| explained[0]["components"][at]["spread"]["mean_ns"].as_u64().unwrap();
    assert!(mean_ns(0) >= 5_000_000, "client send queue: {explained:#}");
    assert!(mean_ns(5) >= 7_000_000, "server send queue: {explained:#}");

    let past = host.verb(&["explain", "search.v1.Search/Query", "--last", "5m"], "");
    assert_eq!(past.code, Some(0), "{past:?}");
    assert!(
        past.out.contains("\nmade here: ") && past.out.contains("\np95 ") && past.out.contains(" … "),
        "{}",
        past.out
    );
    assert!(past.out.contains("server application"), "{}", past.out);
    let hour = host.verb(&["explain", "--last", "5m", "--vs", "1h-ago"], "");
    assert!(hour.code == Some(1) && hour.err.contains("nothing is known of that time"), "{hour:?}");
    let script = host.verb(&["completions", "bash"], "").out;
    assert!(
        script.contains("whatif") && script.contains("--in-flight"),
        "verbs of trunkline-insight: {script}"
    );

    let unknown = host.verb(&["explain", "nobody.Knows/This"], "");
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("methods with calls: /search.v1.Search/Query"), "{}", unknown.err);
}

#[test]
fn top_shows_what_runs() {
    watched();
    let host = Host::start("");
    let (_server, client) = host.serve_search();
    std::thread::scope(|scope| {
        // What ran in its interval is shown, and a host that is busy with something else may let nothing run in one.
        let watcher = scope.spawn(|| {
            until("a call in an interval", || {
                let top = host.verb(&["top", "--once", "--interval", "200ms"], "");
                let is_there = top.code != Some(0) || top.out.contains("/search.v1.Search/Query");
                if is_there { Ok(top) } else { Err(top.out) }
            })
        });
        while !watcher.is_finished() {
            let request =
                trunkline_example_search::proto::QueryRequest { query: "ring".into(), ..Default::default() };
            client.query(request).wait().unwrap();
        }
        let top = watcher.join().unwrap();
        assert_eq!(top.code, Some(0), "{top:?}");
        assert!(top.out.contains("/search.v1.Search/Query"), "{}", top.out);
    });
}

/// Whoever writes may wait for the response before there is more, or an end; and what is too much ends the call.
#[test]
fn the_only_request_of_a_pipe_goes_before_the_pipe_ends() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    let begin = |arguments: &[&str], input: &[u8]| {
        let socket = host.socket();
        let mut verb = trunkline(&[&["--socket", socket.to_str().unwrap(), "call"], arguments].concat());
        verb.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = verb.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input).unwrap();
        let (mut first, mut out) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
        out.read_line(&mut first).unwrap();
        (child, (stdin, out), first)
    };
    let query = ["--proto", SEARCH_PROTO, "Search/Query"];
    let (child, open, first) = begin(&query, b"{\"query\": \"ring\"}\n");
    assert!(json(&first).is_object(), "{first}");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0), "its input is still open");
    drop(open);

    let file = host.socket().with_file_name("request.json");
    std::fs::write(&file, "{} {").unwrap();
    let rest = call(&host, &["-d", &format!("@{}", file.display()), "Search/Query"], "");
    assert!(rest.code == Some(1) && rest.err.contains("request 2 is not JSON"), "{rest:?}");

    let top =
        ["--proto", ADMIN_PROTO, "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto"), "Admin/Top"];
    let (child, (mut stdin, _out), first) = begin(&top, b"{}\n");
    assert!(json(&first).is_object(), "{first}");
    stdin.write_all(b"{}\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(err.contains("Admin.Top takes one request, and more were given: the first was sent"), "{err}");
}

/// On a terminal it fills the screen: a person finds a method by its name, opens its page, and leaves; and the terminal
/// is as it was. The terminal is one that script(1) makes.
#[test]
fn top_fills_a_terminal() {
    watched();
    let host = Host::start("");
    let (_server, client) = host.serve_search();
    let top = format!(
        "stty rows 24 cols 140; '{}' --socket '{}' top --interval 100ms; echo ended $?; stty -a",
        env!("CARGO_BIN_EXE_trunkline"),
        host.socket().display()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--return", "--command", &top, "/dev/null"]).env("SHELL", "/bin/sh");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else { return eprintln!("NOT SHOWN: script(1) of util-linux is not there") };
    let (mut terminal, mut keys, mut seen) =
        (child.stdout.take().unwrap(), child.stdin.take().unwrap(), String::new());
    // Calls go on all the while: what is shown is what runs.
    let mut until = |text: &str| {
        let mut piece = [0; 4096];
        loop {
            if let Some(at) = seen.find(text) {
                return seen.drain(..at + text.len()).collect::<String>();
            }
            let request =
                trunkline_example_search::proto::QueryRequest { query: "ring".into(), ..Default::default() };
            client.query(request).wait().unwrap();
            let count = terminal.read(&mut piece).unwrap();
            assert!(count > 0, "it ends without {text:?}: {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    };
    let first = until("/search.v1.Search/Query");
    assert!(first.contains("\x1b[?1049h"), "{first:?}");
    until("s sort by  r reverse  p pause  q leave");
    keys.write_all(b"/quer").unwrap();
    until("with \"quer\"_");
    keys.write_all(b"\r").unwrap();
    until("by calls/s; with \"quer\"\x1b");
    keys.write_all(b"\r").unwrap();
    until("request processing + stack");
    until("Esc back to the methods");
    keys.write_all(b"\x1b").unwrap();
    until("by calls/s");
    keys.write_all(b"q").unwrap();
    until("\x1b[?1049l");
    until("ended 0");
    // As stty tells the modes a terminal has before: lines are edited, and what is typed is shown.
    until(" icanon");
    until(" echo ");
    terminal.read_to_end(&mut Vec::new()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn top_tells_programs_as_json() {
    watched();
    let host = Host::start("");
    let ended = host.verb(&["top", "--once", "--json", "--interval", "100ms"], "");
    let [line] = ended.out.lines().collect::<Vec<_>>()[..] else { panic!("{ended:?}") };
    assert!(json(line)["methods"].is_array(), "{line}");
}

#[test]
fn signals_end_it_in_peace() {
    watched();
    for signal in [Signal::TERM, Signal::INT] {
        let mut host = Host::start("");
        // Held, because `wait` closes it, and that would end the daemon, too.
        let _held = host.child.stdin.take();
        kill_process(Pid::from_child(&host.child), signal).unwrap();
        assert_eq!(host.child.wait().unwrap().code(), Some(0), "{signal:?}");
        assert!(!host.socket().exists(), "the socket is left behind");
    }
}

/// What is in flight while a daemon drains is what an operator wants to know.
#[test]
fn a_daemon_that_drains_is_looked_at() {
    watched();
    let mut host = Host::start_with_drain("10m");
    let (_server, client) = host.serve_search();
    let mut stream = client.session();
    stream.send(Ask { kind: Some(ask::Kind::Query("ring".into())) }).wait().unwrap();
    assert!(stream.recv().wait().unwrap().is_some());
    kill_process(Pid::from_child(&host.child), Signal::TERM).unwrap();
    while !host.log().contains("draining") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for verb in [&["list"][..], &["explain"], &["shards"], &["policy", "list"]] {
        let looked = host.verb(verb, "");
        assert!(looked.code == Some(0), "{verb:?}: {looked:?}");
    }
    let refused = call(&host, &["Search/Query", "{}"], "");
    assert!(refused.err.contains("draining") && !refused.err.contains("--proto"), "{refused:?}");
    drop(stream);
    // It would take the end of its input for a second order.
    let stdin = host.child.stdin.take();
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    drop(stdin);
}

#[test]
fn a_full_daemon_says_so() {
    watched();
    // The test itself has one. The admin API, health checks and the other services of gRPC are not counted.
    let host = Host::start("[sessions]\ncount_max = 1\nper_user_max = 1");
    let refused = call(&host, &["Search/Query", "{}"], "");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("at most 1 sessions (sessions.count_max)"), "{}", refused.err);
    let host = Host::start("[sessions]\nper_user_max = 1");
    let refused = call(&host, &["Search/Query", "{}"], "");
    let why = "at most 1 sessions of one user (sessions.per_user_max)";
    assert!(refused.code == Some(1) && refused.err.contains(why), "{refused:?}");
}

#[test]
fn one_socket_has_one_daemon() {
    watched();
    let host = Host::start("");
    let second = host.verb(&["daemon"], "");
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.err.contains("another daemon serves"), "{}", second.err);
}

#[test]
fn the_admin_api_stays_within_the_host() {
    watched();
    let peers = tempfile::tempdir().unwrap();
    let peer = format!("unix:{}", peers.path().join("p.sock").display());
    let host = Host::start(&format!("[daemon]\nlisten = [\"{peer}\"]"));
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    let list = ["call", "--proto", ADMIN_PROTO, "-I", include, "Admin/List"];
    assert_eq!(host.verb(&list, "").code, Some(0), "an application of the host may ask");
    let from_elsewhere = host.verb(&[&list[..], &["--target", &peer]].concat(), "");
    assert_eq!(
        from_elsewhere.code,
        Some(64 + 12),
        "a peer is told that there is no such thing: {from_elsewhere:?}"
    );

    let posing =
        Server::builder().socket(host.socket()).add_service(admin::admin_server::AdminServer::new(Impostor));
    let status = posing.run().unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("the daemon's own"), "{status}");
}

/// An application that would like to tell operators stories.
struct Impostor;

impl admin::admin_server::Admin for Impostor {
    async fn list(
        &self,
        _: trunkline::Incoming<admin::ListRequest>,
    ) -> Result<trunkline::Response<admin::ListResponse>, trunkline::Status> {
        Ok(trunkline::Response::new(admin::ListResponse::default()))
    }

    async fn explain(
        &self,
        _: trunkline::Incoming<admin::ExplainRequest>,
    ) -> Result<trunkline::Response<admin::ExplainResponse>, trunkline::Status> {
        Ok(trunkline::Response::new(admin::ExplainResponse::default()))
    }

    async fn calls(
        &self,
        _: trunkline::Incoming<admin::CallsRequest>,
    ) -> Result<trunkline::Response<admin::CallsResponse>, trunkline::Status> {
        Ok(trunkline::Response::new(admin::CallsResponse::default()))
    }

    async fn history(
        &self,
        _: trunkline::Incoming<admin::HistoryRequest>,
    ) -> Result<trunkline::Response<admin::HistoryResponse>, trunkline::Status> {
        Ok(trunkline::Response::new(admin::HistoryResponse::default()))
    }

    async fn get_upgrade(
        &self,
        _: trunkline::Incoming<admin::GetUpgradeRequest>,
    ) -> Result<trunkline::Response<admin::GetUpgradeResponse>, trunkline::Status> {
        Ok(trunkline::Response::new(admin::GetUpgradeResponse::default()))
    }

    async fn list_policies(
        &self,
        _: trunkline::Incoming<admin::ListPoliciesRequest>,
    ) -> Result<trunkline::Response<admin::ListPoliciesResponse>, trunkline::Status> {
        Ok(trunkline::Response::new(admin::ListPoliciesResponse::default()))
    }

    async fn top(
        &self,
        _: trunkline::Incoming<admin::TopRequest>,
        _: trunkline::Sender<admin::TopResponse>,
    ) -> Result<(), trunkline::Status> {
        Ok(())
    }
}

/// A daemon that is stopped takes connections and says nothing.
#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for() {
    watched();
    let host = Host::start("");
    kill_process(Pid::from_child(&host.child), Signal::STOP).unwrap();
    let ways: [&[&str]; 3] = [
        &["call", "--timeout", "300ms", "list"],
        &["call", "--proto", SEARCH_PROTO, "--timeout", "300ms", "Search/Query", "{}"],
        &["bench", "--proto", SEARCH_PROTO, "--timeout", "300ms", "-n", "1", "Search/Query"],
    ];
    let told = ways.map(|arguments| host.verb(arguments, ""));
    kill_process(Pid::from_child(&host.child), Signal::CONT).unwrap();
    for told in told {
        assert_eq!(told.code, Some(1), "{told:?}");
        assert!(told.err.contains("the daemon did not answer within 5s"), "{told:?}");
    }
}

/// The daemon's two sockets speak different protocols; who names one for the other hears which to name.
#[test]
fn sockets_that_are_mixed_up_are_told_apart() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let admin = folder.path().join("admin.sock");
    let host = Host::start(&format!("[admin]\nlisten = [\"unix:{}\"]", admin.display()));
    let (admin, own) = (admin.display().to_string(), host.socket().display().to_string());
    for verb in [&["list"][..], &["call", "list"], &["upgrade"]] {
        let ended = end(&mut trunkline(&[&["--socket", &admin], verb].concat()), "");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let wanted = format!("{admin}: that is the socket for operators (admin.listen)");
        assert!(
            ended.err.contains(&wanted) && ended.err.contains("use --admin-socket"),
            "{verb:?}: {ended:?}"
        );
    }
    let ended = end(&mut trunkline(&["--admin-socket", &own, "list"]), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let wanted = format!("{own}: that is the socket for applications (daemon.socket): use --socket");
    assert!(ended.err.contains(&wanted), "{ended:?}");
    let good = end(&mut trunkline(&["--admin-socket", &admin, "list"]), "");
    assert_eq!(good.code, Some(0), "{good:?}");
}

/// Who may not write to the socket hears that, and not that there is no daemon.
#[test]
fn a_socket_that_may_not_be_used_is_said_to_be_one() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let shut = folder.path().join("shut");
    std::fs::create_dir(&shut).unwrap();
    let socket = shut.join("d.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&shut, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    for verb in
        [&["list"][..], &["call", "a.v1.B/C", "{}"], &["upgrade"], &["top", "--once"], &["policy", "list"]]
    {
        let mut command = trunkline(&[&["--socket", socket.to_str().unwrap()], verb].concat());
        // Nothing is shut to root.
        let uid =
            if rustix::process::geteuid().is_root() { 65_534 } else { rustix::process::geteuid().as_raw() };
        if rustix::process::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut command, uid);
        }
        let refused = end(&mut command, "");
        assert_eq!(refused.code, Some(1), "{verb:?}: {refused:?}");
        let wanted = format!("permission denied: user {uid} may not connect to {}", socket.display());
        assert!(refused.err.contains(&wanted) && !refused.err.contains("no daemon"), "{verb:?}: {refused:?}");
    }
    std::fs::set_permissions(&shut, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn a_router_that_hosts_may_join_says_how_they_prove_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("cluster.keys");
    std::fs::write(&key, "short\n").unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let key = key.to_str().unwrap();
    let joins =
        ["router", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--join-from", "127.0.0.0/8"];
    for (more, says) in [
        (&[][..], "name the cluster's keys with --key-file FILE"),
        (&["--key-file", key], "line 1 has 5 bytes, a key has 32 at least"),
        (&["--key-file", "/nowhere/keys"], "/nowhere/keys: cannot be read"),
        (&["--key-file", key, "--without-authentication"], "cannot be used with"),
    ] {
        let output = trunkline(&[&joins[..], more].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{more:?}: {said}");
    }
}

/// As a proxy it has a socket for each client, and the soft limit is for programs that use select(2).
#[test]
fn a_router_may_have_as_many_descriptors_as_the_hard_limit_says() {
    watched();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 100; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_trunkline"), "router"]);
    command.args(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--worker", "127.0.0.1:1"]);
    let mut router = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(router.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("routing udp"), "{line}");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", router.id())).unwrap();
    router.kill().unwrap();
    router.wait().unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[0], words[1], "soft and hard: {files}");
    assert_ne!(words[0], "100");
}

#[test]
fn a_router_logs_to_standard_error() {
    watched();
    let mut command =
        trunkline(&["router", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--policy", "jsq"]);
    let alone = end(&mut command, "");
    assert!(
        alone.code == Some(1) && alone.err.contains("there is no worker, and none can join"),
        "{alone:?}"
    );
    command.args(["--worker", "127.0.0.1:1"]);
    let mut router =
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut log = std::io::BufReader::new(router.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut log, &mut line).unwrap();
    assert!(line.contains(" INFO ") && line.contains("router is ready"), "{line}");
    kill_process(Pid::from_raw(router.id() as i32).unwrap(), Signal::TERM).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut log, &mut rest).unwrap();
    assert!(rest.contains("router ends"), "{rest}");
    assert!(router.wait().unwrap().success());
}

#[test]
fn calls_are_recorded_and_looked_at() {
    const CALLS: usize = 500;
    watched();
    let host = Host::start("[daemon]\nnode = \"alpha\"\n");
    let (_server, client) = host.serve_search();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.rec");
    let name = file.to_str().unwrap();
    let recording = Recording::begin(&host.socket(), &file, &["--append", "--cluster", "east"]);
    for _ in 0..CALLS {
        client.query(QueryRequest { query: "ring".into(), ..QueryRequest::default() }).wait().unwrap();
    }
    let said = recording.stop();
    assert!(said.contains(" calls kept, "), "{said}");

    let slipped = end(&mut trunkline(&["export", "--csv", name, "-o", name]), "");
    assert!(slipped.code == Some(1) && slipped.err.contains("name another to write"), "{slipped:?}");

    // Every call that was seen is a line, and at this rate stands for itself.
    let csv = end(&mut trunkline(&["export", "--csv", name]), "");
    let calls = csv.out.lines().filter(|line| line.contains("made,/search.v1.Search/Query,")).count();
    assert!(
        calls >= CALLS - 1 && csv.out.lines().skip(1).all(|line| line.starts_with("alpha,east,false,")),
        "{csv:?}"
    );
    let seen: usize = said.split(" calls kept").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(csv.out.lines().count(), seen + 1, "{said}");

    let report = folder.path().join("report");
    let page = end(&mut trunkline(&["characterize", name, "-o", report.to_str().unwrap()]), "");
    assert_eq!(page.code, Some(0), "{page:?}");
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("Figure 23"));
    assert!(page.contains("no call left its host, so there was one clock"), "one host has one clock");

    let what_if = end(&mut trunkline(&["whatif", name, "--method", "Search/Query"]), "");
    assert!(
        what_if.out.contains("server application") && what_if.out.contains("P95 falls by"),
        "{what_if:?}"
    );
    let scaled = end(&mut trunkline(&["whatif", name, "--set", "server_application=-50%"]), "");
    assert!(scaled.out.contains("before") && scaled.out.contains('-'), "{scaled:?}");
    let diff = end(&mut trunkline(&["diff", name, name, "--method", "Query"]), "");
    assert_eq!(diff.code, Some(0), "{diff:?}");
    assert!(!diff.out.contains('*'), "a recording does not differ from itself: {}", diff.out);
    assert!(end(&mut trunkline(&["tree", name]), "").out.contains("/search.v1.Search/Query"));
    let clock = end(&mut trunkline(&["clock", name]), "");
    assert!(clock.code == Some(1) && clock.err.contains("there is one clock"), "{clock:?}");

    // The service runs in this process, which is an application of the daemon.
    let tax = end(&mut trunkline(&["tax", name]), "");
    assert!(tax.code == Some(0) && tax.out.contains("applications, beside handlers"), "{tax:?}");

    let again = end(&mut trunkline(&["--socket", host.socket().to_str().unwrap(), "record", "-o", name]), "");
    assert!(again.code == Some(1) && again.err.contains("--append to add to it"), "{again:?}");
    let none = end(&mut trunkline(&["whatif", name, "--method", "Nothing"]), "");
    assert!(
        none.err.contains("methods there are: ") && none.err.contains("/search.v1.Search/Query"),
        "{none:?}"
    );

    damaged_records_are_named(&file, &csv.out);
}

/// What was cut short is named, and what was whole before it is used.
fn damaged_records_are_named(file: &Path, csv: &str) {
    let name = file.to_str().unwrap();
    let whole = std::fs::read(file).unwrap();
    std::fs::write(file, [&whole[..], &whole[..whole.len() - 1]].concat()).unwrap();
    let cut = end(&mut trunkline(&["export", "--csv", name]), "");
    assert!(cut.err.contains("not used: 1 blocks cut short"), "{}", cut.err);
    assert_eq!(cut.out, csv);
    std::fs::write(file, "no records").unwrap();
    let wrong = end(&mut trunkline(&["tree", name]), "");
    assert!(wrong.code == Some(1) && wrong.err.contains("10 bytes that belong to no block"), "{wrong:?}");
}

/// It goes the way of records that were taken, and says what it is.
#[test]
fn a_generated_fleet_is_characterized() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let (fleet, published) = (folder.path().join("fleet.rec"), folder.path().join("published"));
    let fleet = fleet.to_str().unwrap();
    let drawn = end(&mut trunkline(&["synth", "--methods", "30", "--calls", "100", "-o", fleet]), "");
    assert!(drawn.code == Some(0) && drawn.out.contains("nothing was measured"), "{drawn:?}");
    let mut check = trunkline(&["characterize", fleet, "--check", "--publish", published.to_str().unwrap()]);
    let check = end(&mut check, "");
    assert!(
        check.out.contains("targets are within a tenth") && check.out.contains("contradicted"),
        "{check:?}"
    );
    let page = std::fs::read_to_string(published.join("fleet.md")).unwrap();
    assert!(page.contains("Generated, not measured") && page.contains("| 23 | error rate |"), "{page}");
    assert!(std::fs::read_to_string(published.join("fleet-02.svg")).unwrap().ends_with("</svg>\n"));
    let targets = folder.path().join("t.toml");
    std::fs::write(&targets, "[latencx]").unwrap();
    let wrong = ["characterize", fleet, "--check", "--targets", targets.to_str().unwrap()];
    let wrong = end(&mut trunkline(&wrong), "");
    assert!(
        wrong.code == Some(1) && wrong.err.contains("t.toml: ") && wrong.err.contains("latencx"),
        "{wrong:?}"
    );
}
