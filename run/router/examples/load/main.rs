//! What the router costs: single-packet requests past it and through it, in turns, in one run.
//!
//! `cargo run --release -p trunkline-router --example load [CALLS [ROUNDS]]`
//!
//! First 64 calls at once, then one after the other (`calls.rs`): CPU time of the router's thread per request, what the
//! kernel takes for one datagram in the same round (`bare.rs`), and the latency it adds to the same calls made to the
//! worker directly. Then the largest rate that one core forwards
//! (`rate.rs`): the router alone on one core, everything else on another, more and more requests a second until some
//! are lost; a third as many rounds. Every figure is the median of all rounds, with the least and the most.

mod bare;
mod calls;
mod rate;
mod route;
#[path = "../../tests/integration/support/mod.rs"]
mod support;

use route::Route;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline_r2p2::Mode;
use trunkline_router::Forwarding;

fn main() {
    let argument = |index| std::env::args().nth(index).and_then(|text| text.parse::<usize>().ok());
    let (calls, rounds) = (argument(1).unwrap_or(100_000), argument(2).unwrap_or(5).max(1));
    let stop = Arc::new(AtomicBool::new(false));
    let mut routes = Vec::new();
    for forwarding in [Forwarding::Preserve, Forwarding::Proxy] {
        for mode in [Mode::Compatible, Mode::Extended] {
            match Route::open(forwarding, mode, &stop) {
                Ok(route) => routes.push(route),
                Err(error) => println!("{forwarding:?}: skipped, {error}"),
            }
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    for (at_once, calls) in [(64, calls), (1, calls / 10)] {
        calls::measure(&routes, at_once, calls.max(1), rounds);
    }
    stop.store(true, Ordering::Relaxed);
    rate::measure(rounds.div_ceil(3));
}

/// Median, least and most of some measurements, for a table.
struct Spread(Vec<f64>);

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        let digits = if most.abs() < 1000.0 { 2 } else { 0 };
        write!(f, "{:.digits$} ({least:.digits$}–{most:.digits$})", values[values.len() / 2])
    }
}
