//! Shows that the engine takes no memory for a unary call once it is warm: between two applications of one host and
//! between two hosts, one at a time and 128 at once, with and without policies. What is taken is named by place.

mod steady;

use serde_json::Value;
use steady::{Hosts, Steady, chain};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Calls before it counts.
const WARM_UP: u32 = 2000;
/// A burst in the warm-up is so much larger: a hash table that has held twice as many tidies up in place from then on.
const BURST_FACTOR: u32 = 2;
/// The flight recorder is a ring of 65,536 calls that is filled once in a daemon's life and grows by doubling until
/// then: ten times in the first minute of a busy daemon, and never again.
const FILLS_ONCE: &str = "trunkline_telemetry::recorder::grow";
const COUNTED: u32 = 2000;

#[test]
fn a_unary_call_takes_no_memory() {
    let mut found = String::new();
    for hosts in [Hosts::One, Hosts::Two] {
        for (policies, outstanding) in [("none", 1), ("none", 128), ("null", 1), ("content", 1)] {
            let mut steady = Steady::new(hosts, &chain(policies));
            calls(&mut steady, WARM_UP, outstanding);
            steady.calls(outstanding * BURST_FACTOR);
            calls(&mut steady, WARM_UP, outstanding);
            for place in places(|| calls(&mut steady, COUNTED, outstanding)) {
                found += &format!("{hosts:?}, policies {policies}, {outstanding} at once: {place}\n");
            }
        }
    }
    assert!(found.is_empty(), "{COUNTED} calls took memory:\n{found}");
}

fn calls(steady: &mut Steady, count: u32, outstanding: u32) {
    for _ in 0..count / outstanding {
        steady.calls(outstanding);
    }
}

/// Where memory is taken meanwhile, and how often.
fn places(meanwhile: impl FnOnce()) -> Vec<String> {
    let file = std::env::temp_dir().join(format!("trunkline-allocation-{}.json", std::process::id()));
    let profiler = dhat::Profiler::builder().file_name(&file).build();
    meanwhile();
    drop(profiler);
    let profile: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let frames = profile["ftbl"].as_array().unwrap();
    let points = profile["pps"].as_array().unwrap();
    points.iter().map(|point| place(point, frames)).filter(|place| !place.contains(FILLS_ONCE)).collect()
}

/// `12 times, 96 B: inner < outer < …`, of the frames that are ours.
fn place(point: &Value, frames: &[Value]) -> String {
    let names =
        point["fs"].as_array().unwrap().iter().map(|at| frames[at.as_u64().unwrap() as usize].as_str());
    let names = names.flatten().filter_map(|name| Some(name.split_once(": ")?.1));
    let ours: Vec<&str> = names.filter(|name| name.contains("trunkline")).take(6).collect();
    format!("{} times, {} B: {}", point["tbk"], point["tb"], ours.join(" < "))
}
