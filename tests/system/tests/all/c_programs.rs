//! Shows that programs in C and C++ over the C ABI fare as those in Rust do: daemons replaced under them fail no call,
//! and killed servers and daemons lead to no call executed twice, and none executed that was reported as not executed.

use crate::once::are_true_of_a_log;
use crate::support::c_programs::{Command as Words, Prefix, Program, Surface};
use crate::support::{Host, until};
use std::process::Command;

/// Numbers of the lines that begin with a word.
fn numbers(lines: &[String], word: &str) -> Vec<u64> {
    let said = lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    said.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// Holds what the client was told against what the servers did.
pub fn are_true(lines: &[String], host: &Host) {
    let log = std::fs::read_to_string(host.log()).unwrap();
    are_true_of_a_log(&log, &numbers(lines, "answered"), &numbers(lines, "not-executed"));
}

/// Load of a language, under daemons that are replaced: no call fails.
pub fn replaced_under(load: &Words, parts: &[&str]) {
    let mut host = Host::alone();
    let log = host.log();
    let _server = Program::start(&host, &load.with(&["server", log.to_str().unwrap()]));
    for part in parts {
        let client = Program::start(&host, &load.with(&[part, "4"]));
        for _ in 0..3 {
            client.until_more("answered", 100);
            host.replace_daemon();
        }
        client.until_more("answered", 100);
        let lines = client.finish();
        let failed = |line: &&String| line.starts_with("failed") || line.starts_with("not-");
        assert!(
            !lines.iter().any(|line| failed(&line)),
            "{:?}",
            lines.iter().filter(failed).collect::<Vec<_>>()
        );
        are_true(&lines, &host);
        std::fs::write(&log, "").unwrap();
    }
    host.until_idle();
}

/// Load of a language, while servers (ours in Rust, then its own) and daemons are killed.
pub fn killed_under(load: &Words, part: &str) {
    let mut host = Host::alone();
    let client = Program::start(&host, &load.with(&[part, "4"]));
    let mut server = host.server("server");
    for _ in 0..2 {
        client.until_more("answered", 50);
        server.kill();
        server = host.server("server");
        client.until_more("answered", 50);
        host.kill_daemon();
        host.start();
    }
    client.until_more("answered", 50);
    server.kill();
    let log = host.log();
    let serve = |host: &Host| Program::start(host, &load.with(&["server", log.to_str().unwrap()]));
    let mut server = serve(&host);
    for _ in 0..2 {
        client.until_more("answered", 50);
        server.kill();
        server = serve(&host);
        client.until_more("answered", 50);
        host.kill_daemon();
        host.start();
    }
    client.until_more("answered", 50);
    are_true(&client.finish(), &host);
    drop(server);
    host.until_idle();
}

#[test]
fn daemons_are_replaced_under_load_from_c() {
    let prefix = Prefix::new();
    let Some(load) = prefix.compiled("tests/system/c/load.c") else { return };
    replaced_under(&load, &["client"]);
}

#[test]
fn servers_and_daemons_are_killed_under_load_from_c() {
    let prefix = Prefix::new();
    let Some(load) = prefix.compiled("tests/system/c/load.c") else { return };
    killed_under(&load, "client");
}

#[test]
fn daemons_are_replaced_and_killed_with_servers_under_load_from_cpp() {
    let prefix = Prefix::new();
    let Some(load) = prefix.compiled_over_the_probe("tests/system/cpp/load.cpp") else { return };
    replaced_under(&load, &["client"]);
    killed_under(&load, "client");
}

#[test]
fn daemons_are_replaced_and_killed_with_servers_under_load_from_grpc_cpp() {
    let prefix = Prefix::new();
    let (source, proto) = ("tests/system/cpp/grpc_load.cc", "tests/system/proto/probe.proto");
    let Some(load) = prefix.over_grpc(Surface::Trunkline, source, proto) else { return };
    replaced_under(&load, &["client", "callback", "queued"]);
    killed_under(&load, "client");
}

/// Children of a program whose threads call: each attaches anew, and none waits for a lock of its parent's.
#[test]
fn forked_children_call_from_c() {
    const CHILDREN: usize = 20;
    let prefix = Prefix::new();
    let Some(load) = prefix.compiled("tests/system/c/load.c") else { return };
    let mut host = Host::alone();
    let _server = host.server("server");
    let parent = Program::start(&host, &load.with(&["forks", &CHILDREN.to_string()]));
    let lines = parent.finish();
    assert_eq!(numbers(&lines, "child"), [0; CHILDREN], "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("failed")), "the parent is not disturbed");
    assert_eq!(numbers(&lines, "handles"), [0], "every handle was released");
    are_true(&lines, &host);
    host.until_idle();
}

/// The examples of bindings/c, as a user runs them: a server, a client, and a client of an empty name.
#[test]
fn the_examples_in_c_greet() {
    let prefix = Prefix::new();
    let Some(server) = prefix.compiled("bindings/c/examples/server.c") else { return };
    let Some(client) = prefix.compiled("bindings/c/examples/client.c") else { return };
    let host = Host::alone();
    let _server = Program::start(&host, &server);
    let greet = |name: &str| {
        let output =
            Command::new(client.program()).arg(name).env("TRUNKLINE_SOCKET", host.socket()).output().unwrap();
        let (out, err) = (output.stdout, output.stderr);
        (output.status.code(), String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    assert_eq!(greet("Ada"), (Some(0), "Hello, Ada!\n".to_owned(), String::new()));
    let refused = "SayHello: code 3: whom shall I greet?\n".to_owned();
    assert_eq!(greet(""), (Some(1), String::new(), refused));
    until("the server still there", || (greet("Eve").0 == Some(0)).then_some(()));
}
