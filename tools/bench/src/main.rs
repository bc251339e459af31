//! Measures, and the bare limits they are held against.
//!
//! A run is made of *sections* (`sections.rs`: latency, rate, goodput, gRPC, mRPC, HPRPC; `idle.rs`, `connections.rs`,
//! `dispatch.rs`, `scaling.rs`, `beside.rs`, `hedging.rs`, `binding.rs`, `split.rs`). In a section every *peer*
//! (`peers.rs`: ours, the bare chain, bare TCP, the field's libraries) is a set of processes, one of which takes
//! *orders* on its standard input: so long, so large, so many at once (`orders.rs`). It answers with counts and
//! percentiles; what the processes cost is read from outside by pid (`processes.rs`), so client, daemons and server all
//! count. Peers take turns round by round, and every comparison is a ratio within one round; the report has the median
//! of the rounds and the least and most (`stats.rs`), because machines this runs on are shared.
//!
//! The processes are this program again in another *role* (`roles.rs`), or programs built from `peers/` or fetched
//! (`foreign.rs`; `debian.rs` unpacks packages, `proxies.rs` sets the proxies up). A peer that cannot be had is named
//! in the report with the reason. Nothing asserts a time: a run says what is, and `marks.rs` says what was wanted.
#![forbid(unsafe_code)]

mod beside;
mod binding;
mod chain;
mod children;
mod connections;
mod debian;
mod dispatch;
mod dispatch_report;
mod echo;
mod foreign;
mod hedging;
mod html;
mod idle;
mod labour;
mod large;
mod large_proto;
mod marks;
mod open;
mod orders;
mod ours;
mod peers;
mod processes;
mod proxies;
mod raw;
mod report;
mod roles;
mod run;
mod scaling;
mod sections;
mod shares;
mod sleepers;
mod split;
mod stats;
mod stream;
mod work;

use clap::Parser;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["role", role @ ..] => roles::play(role),
        _ => run::run(&run::Arguments::parse()),
    };
    if let Err(error) = done {
        eprintln!("trunkline-bench: {error}");
        std::process::exit(1);
    }
}
