//! Makes calls through engines and ends: what `cargo xtask counts` counts the instructions of.
//!
//! `steady_calls one-host|two-hosts|two-shards none|null|content OUTSTANDING [unrecorded|traced|sampled|stages] CALLS`

#[path = "../tests/steady/mod.rs"]
mod steady;

use steady::{Hosts, Steady, chain};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [hosts, policies, outstanding, watched @ .., calls] = words.as_slice() else {
        panic!("four words are expected, or five")
    };
    let hosts = match hosts.as_str() {
        "one-host" => Hosts::One,
        "two-shards" => Hosts::Shards,
        _ => Hosts::Two,
    };
    let (outstanding, calls): (u32, u32) = (outstanding.parse().unwrap(), calls.parse().unwrap());
    let mut steady = Steady::new(hosts, &chain(policies));
    watched.iter().for_each(|how| steady.watch(how));
    for _ in 0..calls / outstanding {
        steady.calls(outstanding);
    }
}
