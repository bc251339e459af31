//! Shows gRPC C++'s own surface: one source, compiled against ours and against gRPC C++ of the machine, calls and
//! serves by each API (blocking, callback, completion queue) through a daemon, and each end is the other's.

use crate::support::Host;
use crate::support::c_programs::{Command, Prefix, Program, Surface};
use std::net::TcpListener;

/// What each API of servers is called in the exam.
const APIS: [&str; 3] = ["sync", "callback", "async"];

/// The exam's client against a target: everything passed, and nothing is left but the queue that callbacks run on.
fn passes(host: &Host, exam: &Command, target: &str) {
    let client = Program::start(host, &exam.with(&["call", target]));
    let lines = client.finish();
    assert_eq!(lines[1..4], ["blocking", "callback", "queued"], "{lines:?}");
    assert!(["handles 0", "handles 1"].contains(&lines[4].as_str()), "{lines:?}");
}

fn serve(host: &Host, exam: &Command, by: &str, address: &str) -> Program {
    Program::start(host, &exam.with(&["serve", by, address]))
}

#[test]
fn a_program_of_grpc_cpp_calls_and_serves_through_the_daemon() {
    let prefix = Prefix::new();
    let Some(exam) = prefix.exam(Surface::Trunkline) else { return };
    let mut host = Host::over_tcp();
    for by in APIS {
        let server = serve(&host, &exam, by, "0.0.0.0:50051");
        passes(&host, &exam, "localhost:50051");
        server.finish();
    }
    host.until_idle();
    let Some(stock) = prefix.exam(Surface::Stock) else { return };
    for by in APIS {
        // gRPC C++ calls a program of ours at the daemon's port.
        let server = serve(&host, &exam, by, "0.0.0.0:50051");
        passes(&host, &stock, host.endpoint().trim_start_matches("tcp://"));
        server.finish();
        // A program of ours calls gRPC C++, to which the daemon connects.
        // Where nobody else asks for any port: it is free until the server listens.
        let address = TcpListener::bind("127.50.51.1:0").unwrap().local_addr().unwrap().to_string();
        let server = serve(&host, &stock, by, &address);
        passes(&host, &exam, &format!("ipv4:{address}"));
        server.finish();
    }
    host.until_idle();
}

/// What a client of the greeter says, of which API and to which target.
fn said(host: &Host, greeting: &Command, words: &[&str]) -> String {
    let lines = Program::start(host, &greeting.with(words)).finish();
    lines.iter().find_map(|line| line.strip_prefix("said ")).unwrap_or_default().to_owned()
}

/// Greets by each API, and if the server blocks with streams, too.
fn greets(host: &Host, greeting: &Command, server: &str, target: &str) {
    for by in APIS {
        assert_eq!(said(host, greeting, &["call", by, target]), "Hello, Ada!", "{by} to {server}");
    }
    if server == "sync" {
        let streams = "Hello, Ada! Hej, Ada! Jambo, Ada! Hello, Ada and Eve! Hello, Bob! Hello, Kim!";
        assert_eq!(said(host, greeting, &["streams", target]), streams);
    }
}

const GREETING: (&str, &str) = ("tests/system/cpp/greeting.cc", "examples/greeter/proto/greeter.proto");

/// Programs as users of gRPC C++ write them first, against ours and against gRPC C++ of the machine: each calls each.
#[test]
fn small_programs_of_grpc_cpp_greet_each_other() {
    let prefix = Prefix::new();
    let Some(ours) = prefix.over_grpc(Surface::Trunkline, GREETING.0, GREETING.1) else { return };
    let mut host = Host::over_tcp();
    let stock = prefix.over_grpc(Surface::Stock, GREETING.0, GREETING.1);
    for by in APIS {
        let server = serve(&host, &ours, by, "0.0.0.0:50051");
        greets(&host, &ours, by, "localhost:50051");
        if let Some(stock) = &stock {
            greets(&host, stock, by, host.endpoint().trim_start_matches("tcp://"));
        }
        server.finish();
        if let Some(stock) = &stock {
            let address = TcpListener::bind("127.50.51.2:0").unwrap().local_addr().unwrap().to_string();
            let server = serve(&host, stock, by, &address);
            greets(&host, &ours, by, &format!("ipv4:{address}"));
            server.finish();
        }
    }
    host.until_idle();
}

/// A program goes on behind `BuildAndStart` where there is no daemon, and serves once there is one.
#[test]
fn a_server_of_grpc_cpp_starts_before_the_daemon() {
    let prefix = Prefix::new();
    let Some(ours) = prefix.over_grpc(Surface::Trunkline, GREETING.0, GREETING.1) else { return };
    let host = Host::over_tcp();
    let late = prefix.path().join("late.sock");
    let env = Command::of("env").with(&[&format!("TRUNKLINE_SOCKET={}", late.display())]);
    let server = serve(&host, &env.and(&ours), "sync", "0.0.0.0:50051");
    std::os::unix::fs::symlink(host.socket(), &late).unwrap();
    assert_eq!(said(&host, &ours, &["call", "sync", "localhost:50051"]), "Hello, Ada!");
    server.finish();
}
