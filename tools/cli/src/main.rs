//! The `trunkline` binary: what operators type.
//!
//! Each verb is a module of its own and returns an error that says what to do about it; this file only sends the
//! command line there and turns outcomes into exit codes.
//!
//! * `daemon/` runs the daemon of this host and, inside the same process, the admin API (`admin/`), which is an
//!   application of that daemon like any other.
//! * `list.rs`, `explain.rs`, `top.rs` are clients of the admin API; what they show is rendered by pure functions.
//! * `call/` makes any call with types known at run time, over a session of its own.
//! * `demo/` starts everything on this machine and shows it at work.
//!
//! The room decides nothing about calls. It knows the library, the daemon's handle and what it lets be observed, and
//! the telemetry room; `call/` alone knows rings and heaps, because its types are known at run time only.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod call;
mod daemon;
mod demo;
mod explain;
mod list;
mod table;
mod top;

use admin::proto::admin_client::AdminClient;
use args::{CallArgs, Trunkline, Verb};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use trunkline::{Channel, Metadata, Status};

/// Exit code of a call that ended with a status: this plus gRPC's number for it.
const EXIT_STATUS: u8 = 64;

fn main() -> ExitCode {
    let Trunkline { socket, verb } = Trunkline::parse();
    let outcome = match verb {
        Verb::Daemon(args) => daemon::daemon(&args, socket).map_err(explained),
        Verb::List(args) => list::list(&admin_client(socket), args.json).map_err(explained),
        Verb::Explain(args) => {
            explain::explain(&admin_client(socket), &args.method, args.json).map_err(explained)
        }
        Verb::Top(args) => top::top(&admin_client(socket), args.interval, args.once).map_err(explained),
        Verb::Call(args) => return call(args, socket),
        Verb::Demo(args) => demo::demo(&args).map_err(explained),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => failed(&problem),
    }
}

fn call(args: CallArgs, socket: Option<PathBuf>) -> ExitCode {
    let mut metadata = Metadata::new();
    for (key, value) in args.metadata {
        if let Err(error) = metadata.insert(&key, value) {
            return failed(&error.to_string());
        }
    }
    let order = call::CallOrder {
        method: args.method,
        requests: args.requests,
        sources: call::Sources {
            protos: args.proto,
            includes: args.include,
            descriptor_sets: args.descriptor_set,
        },
        target: args.target.map(|target| target.to_string()).unwrap_or_default(),
        metadata,
        timeout: args.timeout,
        verbose: args.verbose,
        socket,
    };
    match call::call(order) {
        Ok(status) => ExitCode::from(exit_code(&status)),
        Err(error) => failed(&error.to_string()),
    }
}

fn exit_code(status: &Status) -> u8 {
    // gRPC's numbers end at 16.
    if status.is_ok() { 0 } else { EXIT_STATUS + status.code().number() as u8 }
}

/// A client of the daemon's admin API. Embedded mode would ask a daemon nobody uses.
fn admin_client(socket: Option<PathBuf>) -> AdminClient {
    let channel = Channel::builder().name("trunkline").embedded(false);
    let channel = match socket {
        Some(path) => channel.socket(path),
        None => channel,
    };
    AdminClient::new(channel.connect_lazy())
}

fn explained(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn failed(problem: &str) -> ExitCode {
    eprintln!("trunkline: {problem}");
    ExitCode::FAILURE
}
