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
//! * `bench/` makes many of them and measures, over a session like `call/`'s. `go.rs` reads both as users of grpcurl
//!   and ghz write them.
//! * `insight.rs` leaves the verbs that keep records of calls to `trunkline-insight` (tools/insight).
//! * `doctor/` looks at this host: socket, rights, limits, kernel, certificates, configuration, clock.
//! * `manual.rs` makes manual pages and completion scripts of the command line.
//! * `operator.rs` is the way to the admin API, `place.rs` looks at what was named as the daemon's socket.
//! * `relay.rs` runs the relay for applications of other hosts, `router.rs` the R2P2 router, whose policies `sim.rs`
//!   simulates.
//! * `demo/` starts everything on this machine and shows it at work.
//!
//! The room decides nothing about calls. It knows the library, the daemon's handle and what it lets be observed, and
//! the telemetry room; `call/` and `bench/` alone know rings and heaps, because their types are known at run time only.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod bench;
mod bounded;
mod call;
mod daemon;
mod demo;
mod doctor;
#[cfg(test)]
mod documents;
mod explain;
mod go;
mod insight;
mod list;
mod manual;
mod metrics;
mod numbers;
mod operator;
#[cfg(test)]
mod packaging;
mod past;
mod place;
mod policy;
mod policy_args;
mod relay;
mod router;
mod router_args;
mod shards;
mod sim;
mod table;
mod times;
mod top;
mod upgrade;

use admin::proto::admin_client::AdminClient;
use args::{CallArgs, Trunkline, Verb};
use clap::{CommandFactory, Parser};
use operator::{admin_place, operator_channel, refusal};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use trunkline::Status;
use trunkline_call::printable_lines;

/// Exit code of a call that ended with a status: this plus gRPC's number for it.
const EXIT_STATUS: u8 = 64;

/// Exit code of a program whose reader has gone away: what a shell shows where SIGPIPE has ended it.
const EXIT_PIPE: i32 = 128 + 13;

fn main() -> ExitCode {
    end_with_reader();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(problem) = insight::start_if_asked(&arguments) {
        return failed(&problem);
    }
    let Trunkline { socket, admin_socket, verb } =
        Trunkline::parse_from(go::two_dashes(arguments.into_iter()));
    let attaches = verb.attaches();
    if attaches && let Err(problem) = place::check(socket.as_deref()) {
        return misused(&problem);
    }
    if let Some(problem) = verb.refuses_operators().filter(|_| admin_socket.is_some()) {
        return misused(&format!("--admin-socket: {problem}"));
    }
    let operator = || operator_channel(socket.clone(), admin_socket.clone());
    let (named, admin) = (socket.clone(), admin_place(socket.as_deref(), admin_socket.clone()));
    // Two sockets of one daemon are easily mixed up, and the kernel's word for that says nothing.
    let failed = |problem: &str| {
        let other = attaches.then(|| place::mixed_up(named.as_deref(), admin.as_deref())).flatten();
        failed(other.as_deref().unwrap_or(problem))
    };
    let outcome = match verb {
        Verb::Daemon(args) => daemon::daemon(&args, socket).map_err(explained),
        Verb::Upgrade(args) => upgrade::upgrade(&operator(), &args),
        Verb::List(args) => list::list(&AdminClient::new(operator()), args.json).map_err(refused),
        Verb::Shards(args) => shards::shards(&operator(), &args).map_err(refused),
        Verb::Doctor(args) => match doctor::doctor(&args, socket) {
            Ok(true) => Ok(()),
            // It has said so.
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Verb::Explain(args) => explain::explain(&AdminClient::new(operator()), &args).map_err(refused),
        Verb::Top(args) => {
            top::top(AdminClient::new(operator()), &AdminClient::new(operator()), &args).map_err(refused)
        }
        Verb::Policy(verb) => policy::policy(&operator(), verb),
        Verb::Call(args) => match call(args, socket.clone()) {
            Ok(code) => return code,
            Err(problem) => Err(problem),
        },
        Verb::Bench(args) => match bench::bench(args, socket.clone()) {
            Ok(true) => Ok(()),
            // The report has said so.
            Ok(false) => return ExitCode::FAILURE,
            Err(bench::BenchError::Plan(problem)) => return misused(&problem),
            Err(error) => Err(error.to_string()),
        },
        Verb::Relay(args) => relay::relay(&args, socket),
        Verb::Router(args) => router::router(&args),
        Verb::Sim(args) => sim::sim(&args),
        Verb::Completions(args) => {
            manual::completions(&args, Trunkline::command().subcommands(insight::described()));
            Ok(())
        }
        Verb::Man(args) => manual::man(&args, Trunkline::command()),
        Verb::Demo(args) => demo::demo(&args).map_err(explained),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => failed(&problem),
    }
}

/// How the call ended.
///
/// # Errors
/// Why there was none.
fn call(mut args: CallArgs, socket: Option<PathBuf>) -> Result<ExitCode, String> {
    let target = match go::take_target(&mut args.words) {
        Ok(target) => target,
        Err(problem) => return Ok(misused(&problem)),
    };
    // There is one at least: the command line says so.
    let requests = args.words.split_off(1);
    let method = args.words.concat();
    let speaks = method != "list" && method != "describe";
    // No request is one of these words: it is what is to be called, behind something that was to be an address.
    let is_called =
        |word: &String| word == "list" || word == "describe" || !word.contains('{') && word.contains('/');
    if speaks && !method.contains('/') && requests.first().is_some_and(is_called) {
        return Ok(misused(&format!(
            "{method:?} is no address: write HOST:PORT, and then what is to be called there"
        )));
    }
    if speaks && args.data.is_some() && !requests.is_empty() {
        return Ok(misused("requests are given by --data or behind the method, not both"));
    }
    let how = call::How {
        defaults: args.emit_defaults,
        unknown: args.allow_unknown_fields,
        template: args.msg_template,
        verbose: args.verbose,
        descriptor_set_out: args.descriptor_set_out,
    };
    let input = call::Input { requests, data: args.data };
    let sources = call::Sources::from(args.types);
    let outcome = call::Way::new(args.way, target, socket)
        .map_err(call::CallError::from)
        .and_then(|way| call::call(call::CallOrder { method, input, sources, way, how }));
    outcome.map(|status| ExitCode::from(exit_code(&status))).map_err(explained)
}

fn exit_code(status: &Status) -> u8 {
    // gRPC's numbers end at 16.
    if status.is_ok() { 0 } else { EXIT_STATUS + status.code().number() as u8 }
}

/// The standard library panics where it cannot print. A reader that has seen enough (`trunkline list | head -1`) ends
/// the program quietly, as it ends others; whatever else is wrong with standard output is said in a sentence. (The
/// daemon, which prints nothing, has a hook of its own.)
fn end_with_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        match said.strip_prefix("failed printing to stdout: ") {
            Some(why) if why.contains("Broken pipe") => std::process::exit(EXIT_PIPE),
            Some(why) => {
                let _ = writeln!(std::io::stderr(), "trunkline: cannot write: {why}");
                std::process::exit(1);
            }
            None => usual(panic),
        }
    }));
}

fn explained(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn refused(status: Status) -> String {
    refusal(&status)
}

/// A wrong command line ends as clap's own refusals do.
fn misused(problem: &str) -> ExitCode {
    eprintln!("error: {problem}\n\nFor more information, try '--help'.");
    ExitCode::from(2)
}

fn failed(problem: &str) -> ExitCode {
    // Much of it is what a server or a daemon says.
    eprintln!("trunkline: {}", printable_lines(problem));
    ExitCode::FAILURE
}
