//! Shows every verb of the binary against a daemon of its own: output, exit codes, and what a mistake gets.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{ADMIN_PROTO, Ended, Host, SEARCH_PROTO, end, trunkline, watched};
use trunkline::{Code, Server, Wait};

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
fn list_shows_who_is_there() {
    watched();
    let host = Host::start("[daemon]\nnode = \"alpha\"\nlisten = [\"tcp://127.0.0.1:0\"]");
    let (_server, _client) = host.serve_search();
    let listed = host.verb(&["list"], "");
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.starts_with("alpha (trunkline "), "{}", listed.out);
    let service = "search.v1.Search                1  Query, Results, Index, Session\n";
    assert!(listed.out.contains(service), "{}", listed.out);

    let list = json(&host.verb(&["list", "--json"], "").out);
    assert!(list["listening"][0].as_str().unwrap().starts_with("tcp://127.0.0.1:"));
    let names = list["applications"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
    let names: Vec<&str> = names.map(|name| name.split('[').next().unwrap()).collect();
    assert!(names.contains(&"searcher") && names.contains(&"admin"), "{names:?}");
    assert!(list["memory"]["residentBytes"].as_u64().unwrap() > 0);
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

    let unreachable = call(&host, &["--target", "tcp://127.0.0.1:1", "Search/Query", "{}"], "");
    assert_eq!(unreachable.code, Some(64 + 14));
    assert!(unreachable.err.contains("not executed"), "{}", unreachable.err);

    let late = host.verb(&[&admin[..], &["--timeout", "50ms", "Admin/Top", "{}"]].concat(), "");
    assert_eq!(late.code, Some(64 + 4), "{late:?}");

    for (arguments, part) in [
        (&["Search/Qery", "{}"][..], "has no method \"Qery\"; methods here: Query, Results, Index, Session"),
        (&["Search/Query", "{\"qery\": 1}"], "request 1 is not JSON of search.v1.QueryRequest"),
        (&["Search/Query", "{}", "{}"], "takes one request, and 2 were given"),
        (&["Search/Index", "{"], "request 1"),
    ] {
        let failed = call(&host, arguments, "");
        assert_eq!(failed.code, Some(1), "{failed:?}");
        assert!(failed.err.contains(part), "{}", failed.err);
    }

    let nobody = end(&mut trunkline(&["--socket", "/nonexistent/d.sock", "list"]), "");
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
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
        let watcher = scope.spawn(|| host.verb(&["top", "--once", "--interval", "200ms"], ""));
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

#[test]
fn signals_end_it_in_peace() {
    watched();
    for signal in [Signal::TERM, Signal::INT] {
        let mut host = Host::start("");
        kill_process(Pid::from_child(&host.child), signal).unwrap();
        assert_eq!(host.child.wait().unwrap().code(), Some(0), "{signal:?}");
        assert!(!host.socket().exists(), "the socket is left behind");
    }
}

#[test]
fn a_full_daemon_says_so() {
    watched();
    // The admin API and the test itself.
    let host = Host::start("[sessions]\ncount_max = 2");
    let refused = call(&host, &["Search/Query", "{}"], "");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("at most 2 sessions (sessions.count_max)"), "{}", refused.err);
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

    async fn top(
        &self,
        _: trunkline::Incoming<admin::TopRequest>,
        _: trunkline::Sender<admin::TopResponse>,
    ) -> Result<(), trunkline::Status> {
        Ok(())
    }
}
