//! Shows every language as client and as server of every other, on one host and between two: the four patterns, sizes,
//! metadata, rich errors, deadlines and cancellation, without tags between equal schemas and by way of protobuf between
//! different ones and where there is none. A language whose tools the machine lacks is named, and left out.

use crate::python;
use crate::support::c_programs::{Command, Prefix, Program};
use crate::support::{Host, Process, channel, client, echo, until_served};
use std::time::Duration;
use trunkline::{Code, Request, Wait};
use trunkline_system_tests::proto::probe::order::Task;
use trunkline_system_tests::proto::probe::{Item, Order, Text, Total, Wanted};
use trunkline_system_tests::scenario::{ALL, Stage};

/// Bytes of the messages of the matrix; the largest only where nothing is copied from host to host.
const SIZES: &str = "1,100,5000,1048576";
const SIZES_ON_ONE_HOST: &str = "1,100,5000,1048576,67108864";

/// What Rust's client examines by scenarios that the other topologies have, too.
const SCENARIOS: [&str; 4] =
    ["unary, small", "ping-pong", "metadata both ways", "every status, with details"];

/// What Python's programs speak: the probe's schema, one with more fields, none.
const FORMS: [&str; 3] = ["linear", "newer", "protobuf"];

/// Calls each client makes of each server.
const CALLS: usize = 20;

/// A server at work; ends with this.
enum Serving {
    Rust { _process: Process },
    Other { _program: Program },
}

fn serve(language: &str, load: Option<&Command>, host: &Host) -> Serving {
    match load {
        None => Serving::Rust { _process: host.server("server") },
        Some(load) => {
            let log = host.folder().join(language);
            Serving::Other { _program: Program::start(host, &load.with(&["server", log.to_str().unwrap()])) }
        }
    }
}

#[test]
fn all_pairs_on_one_host_and_between_two() {
    let prefix = Prefix::new();
    let (c, python) = (prefix.compiled("tests/system/c/load.c"), python::load());
    let others: Vec<(&str, &Command)> = [("C", &c), ("Python", &python)]
        .into_iter()
        .filter_map(|(name, load)| Some((name, load.as_ref()?)))
        .collect();
    let mut clients: Vec<(&str, &Command, &str)> =
        others.iter().map(|(name, load)| (*name, *load, "client")).collect();
    clients.extend(python.as_ref().map(|load| ("Python's asyncio", load, "aio")));
    let servers =
        std::iter::once(("Rust", None)).chain(others.iter().map(|(name, load)| (*name, Some(*load))));
    let servers: Vec<_> = servers.collect();
    for between_two in [false, true] {
        let mut far = Host::over_tcp();
        let mut near = between_two.then(|| Host::routed_to(&far));
        for (server, load) in &servers {
            let _serving = serve(server, *load, &far);
            let here = near.as_ref().unwrap_or(&far);
            until_served(&client(here, ""));
            for number in 0..CALLS {
                let text = number.to_string();
                assert_eq!(echo(&client(here, ""), &text).unwrap(), text, "Rust calls {server}");
            }
            for (name, load, part) in &clients {
                let calling = Program::start(here, &load.with(&[part, "2"]));
                calling.until_more("answered", CALLS);
                let lines = calling.finish();
                let failed = lines.iter().find(|line| line.starts_with("failed") || line.starts_with("not-"));
                assert_eq!(failed, None, "{name} calls {server}, between two: {between_two}");
            }
        }
        near.iter_mut().for_each(Host::until_idle);
        far.until_idle();
    }
}

/// Rust's part of the matrix, as `tests/system/cpp/pairs.cpp` and `tests/system/python/pairs.py` are the others'.
fn examine(here: &Host, sizes: &str, server: &str) {
    let stage = Stage::new(channel(here, ""), server);
    for name in SCENARIOS {
        let (_, scenario) = ALL.iter().find(|(other, _)| *other == name).unwrap();
        let said = scenario(&stage).unwrap_or_else(|status| panic!("{name}: {status}"));
        // What came back of what was sent; the scenarios look at the rest themselves.
        if name == "metadata both ways" {
            assert_eq!(said, r#"Some("what?") Some("what?")"#, "{server}");
        }
        assert!(!said.contains("Unknown "), "{name}, {server}: {said}");
    }
    let probe = client(here, "");
    for size in sizes.split(',').map(|size| size.parse::<usize>().unwrap()) {
        let mut taking = probe.take();
        taking.send(Item { number: 1, body: vec![1; size] }).wait().unwrap();
        let item = taking.finish().wait().unwrap().into_inner();
        assert!(item.number == 1 && item.body == vec![1; size], "{size} bytes, {server}");
    }
    let mut items = probe.count(Wanted { count: 100, bytes: 100, label: String::new() }).wait().unwrap();
    for number in 0..100 {
        let item = items.recv().wait().unwrap().unwrap().into_inner();
        assert_eq!(item, Item { number, body: vec![number as u8; 100] }, "{server}");
    }
    assert!(items.recv().wait().unwrap().is_none());
    let mut summing = probe.sum();
    for number in 0..50 {
        summing.send(Item { number, body: vec![7; number as usize] }).wait().unwrap();
    }
    let total = summing.finish().wait().unwrap().into_inner();
    assert_eq!(total, Total { items: 50, numbers: 1225, bytes: 1225 }, "{server}");
    let hang = || Order { label: String::new(), task: Some(Task::Hang(true)) };
    let late = probe.r#do(Request::new(hang()).with_timeout(Duration::from_millis(50))).wait();
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded, "{server}");
    let mut given_up = probe.r#do(hang());
    stage.begin(&mut given_up).unwrap();
    drop(given_up);
    let (mut tx, mut rx) = probe.chat().split();
    tx.send(Text { text: "one".into() }).wait().unwrap();
    assert_eq!(rx.recv().wait().unwrap().unwrap().into_inner().text, "one", "{server}");
}

/// A program's part of the matrix, which ends well if all of it holds.
fn examined_by(program: &Command, here: &Host, who: &str) {
    let examining = Program::start(here, program);
    let lines = examining.finish();
    assert!(lines.iter().filter(|line| line.starts_with("passed")).count() >= 5, "{who}: {lines:?}");
}

#[test]
fn the_matrix_of_typed_languages() {
    let prefix = Prefix::new();
    let cpp = prefix.compiled_over_the_probe("tests/system/cpp/pairs.cpp");
    let python = python::pairs();
    let mut servers = vec![("Rust".to_owned(), None)];
    servers.extend(cpp.iter().map(|cpp| ("C++".to_owned(), Some(cpp.with(&["server"])))));
    for form in FORMS {
        servers.extend(
            python.iter().map(|python| (format!("Python, {form}"), Some(python.with(&["server", form])))),
        );
    }
    for between_two in [false, true] {
        let mut far = Host::over_tcp();
        let mut near = between_two.then(|| Host::routed_to(&far));
        for (server, program) in &servers {
            let serving = match program {
                None => Serving::Rust { _process: far.server("server") },
                Some(program) => Serving::Other { _program: Program::start(&far, program) },
            };
            let here = near.as_ref().unwrap_or(&far);
            until_served(&client(here, ""));
            let sizes = if between_two { SIZES } else { SIZES_ON_ONE_HOST };
            examine(here, sizes, server);
            if let Some(cpp) = &cpp {
                examined_by(&cpp.with(&["client", sizes]), here, &format!("C++ calls {server}"));
            }
            if let Some(python) = &python {
                let client = python.with(&["client", sizes]).with(&FORMS);
                examined_by(&client, here, &format!("Python calls {server}"));
            }
            drop(serving);
        }
        near.iter_mut().for_each(Host::until_idle);
        far.until_idle();
    }
}
