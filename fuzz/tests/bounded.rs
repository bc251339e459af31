//! Runs every target over its seeds and over damage done to them: the same inputs every time, a few seconds in all.

use trunkline_fuzz::{Mutator, TARGETS, Target};

/// Enough that a fault one step from a seed is found; what is further away is libFuzzer's.
const ROUNDS: usize = 60_000;

fn run(name: &str) {
    let target: &Target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = (target.seeds)();
    seeds.iter().for_each(|seed| (target.run)(seed));
    let mut mutator = Mutator::new(name.bytes().map(u64::from).sum());
    for round in 0..rounds(name) {
        let input = mutator.next(&seeds);
        let outcome = std::panic::catch_unwind(|| (target.run)(&input));
        assert!(outcome.is_ok(), "{name}, round {round}: {input:02x?}");
    }
}

/// Files are slow to read, and few are hostile; a connection needs a socket.
fn rounds(name: &str) -> usize {
    match name {
        "config" | "policies" | "http2" | "http2_unix" => ROUNDS / 60,
        "expression" | "engine_state" | "records" => ROUNDS / 10,
        "descriptors" | "native" | "grpc" | "r2p2_routed" => ROUNDS / 4,
        _ => ROUNDS,
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test] fn $name() { run(stringify!($name)); })*

        #[test]
        fn every_target_is_run() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

tests!(
    control relayed
    descriptors linear transcode native r2p2 r2p2_seal r2p2_envelope r2p2_events r2p2_routed entries metadata
    config
    policies expression modules endpoint first http2 http2_unix grpc service_config load_report target r2p2_state
    tls_records tls_svid engine_state records samples sampled reflection
);
