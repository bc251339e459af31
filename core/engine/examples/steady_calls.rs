//! Makes calls through engines and ends: what `cargo xtask counts` counts the instructions of.
//!
//! `steady_calls one-host|two-hosts|two-shards none|null|content OUTSTANDING CALLS`

#[path = "../tests/steady/mod.rs"]
mod steady;

use steady::{Hosts, Steady, chain};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [hosts, policies, outstanding, calls] = words.as_slice() else { panic!("four words are expected") };
    let hosts = match hosts.as_str() {
        "one-host" => Hosts::One,
        "two-shards" => Hosts::Shards,
        _ => Hosts::Two,
    };
    let (outstanding, calls): (u32, u32) = (outstanding.parse().unwrap(), calls.parse().unwrap());
    let mut steady = Steady::new(hosts, &chain(policies));
    for _ in 0..calls / outstanding {
        steady.calls(outstanding);
    }
}
