//! The `trunkline` binary: what operators type.
//!
//! Each verb is a module of its own and returns an error that says what to do about it; this file only sends the
//! command line there and turns outcomes into exit codes.
//!
//! * `daemon/` runs the daemon of this host and, inside the same process, the admin API (`admin/`) and gRPC's own
//!   services (tools/services), which are applications of that daemon like any other.
//! * `list.rs`, `explain.rs`, `top.rs`, `policy.rs` are clients of the admin API; what they show is rendered by pure
//!   functions.
//! * `call/` makes any call with types known at run time, over a session of its own, and shows what there is to call.
//! * `bench/` makes many of them and measures, over a session like `call/`'s.
//! * `router.rs` runs the R2P2 router, `sim.rs` simulates its policies.
//! * `demo/` starts everything on this machine and shows it at work.
//!
//! The room decides nothing about calls. It knows the library, the daemon's handle and what it lets be observed, and
//! the telemetry room; `call/` and `bench/` alone know rings and heaps, because their types are known at run time only.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod bench;
mod call;
mod daemon;
mod demo;
mod explain;
mod list;
mod policy;
mod router;
mod sim;
mod table;
mod top;

use admin::proto::admin_client::AdminClient;
use args::{CallArgs, Trunkline, Verb};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use trunkline::{Channel, Status};

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
        Verb::Policy(verb) => policy::policy(&channel(socket), verb),
        Verb::Call(args) => return call(args, socket),
        Verb::Bench(args) => match bench::bench(args, socket) {
            Ok(true) => Ok(()),
            // The report has said so.
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error.to_string()),
        },
        Verb::Router(args) => router::router(&args),
        Verb::Sim(args) => sim::sim(&args),
        Verb::Demo(args) => demo::demo(&args).map_err(explained),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => failed(&problem),
    }
}

fn call(args: CallArgs, socket: Option<PathBuf>) -> ExitCode {
    let (sources, way) = (call::Sources::from(args.types), call::Way::new(&args.way, socket));
    let how = call::How {
        defaults: args.emit_defaults,
        unknown: args.allow_unknown_fields,
        template: args.msg_template,
        verbose: args.verbose,
        descriptor_set_out: args.descriptor_set_out,
    };
    let input = call::Input { requests: args.requests, data: args.data };
    let outcome = call::metadata(args.way.metadata).and_then(|metadata| {
        let timeout = args.way.timeout;
        call::call(call::CallOrder { method: args.method, input, sources, way, metadata, timeout, how })
    });
    match outcome {
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
    AdminClient::new(channel(socket))
}

fn channel(socket: Option<PathBuf>) -> Channel {
    let channel = Channel::builder().name("trunkline").embedded(false);
    let channel = match socket {
        Some(path) => channel.socket(path),
        None => channel,
    };
    channel.connect_lazy()
}

fn explained(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn failed(problem: &str) -> ExitCode {
    eprintln!("trunkline: {problem}");
    ExitCode::FAILURE
}
