//! Measures, and the bare limits they are held against.
//!
//! A run is made of *studies* (`studies/`, and `studies.toml` as far as they are data). In a study every *peer*
//! (`peers/`, `peers.toml`: ours, the bare chain, bare TCP, the field's libraries and proxies, which `libraries.toml`
//! has) is a set of processes, one of which takes *orders* on its standard input: so long, so large, so many at once
//! (`harness/orders.rs`). It answers with counts and percentiles; what the processes cost is read from outside by pid
//! (`trunkline-measure`), so client, daemons and server all count. Peers take turns round by round
//! (`harness/rounds.rs`), and every comparison is a ratio within one round; the report has the median of the rounds and
//! the least and most, because machines this runs on are shared.
//!
//! A study hands in *sheets* of figures (`report/sheet.rs`); tables, plots and marks are made from these alone. The
//! processes are this program again in another *role* (`roles.rs`), or programs built from `peers/` or fetched. A peer
//! that cannot be had is named in the report with the reason. Nothing asserts a time: a run says what is, and
//! `docs/targets.toml` says what was wanted.
#![forbid(unsafe_code)]

mod harness;
mod peers;
mod report;
mod roles;
mod run;
mod studies;

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
