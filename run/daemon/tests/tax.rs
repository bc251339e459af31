//! Shows that a daemon knows what its processor time goes into: between two real daemons that speak gRPC over TLS with
//! compressed requests, at least 95 % lies in stages, and processor time that is planted in a stage is found there
//! within 5 %. The others may have a little more, too: what follows a long pause finds caches that others have used,
//! and takes longer. So does the stage itself, by as much as those in which nothing is planted tell.
//!
//! All of it is processor time by the threads' own clocks: what else runs on the host is not in it.

mod raw;

use raw::*;
use trunkline_call::Code;
use trunkline_daemon::{Config, Daemon};
use trunkline_telemetry::{TaxStage, TaxTotals};

/// Calls before it is measured, and then.
const WARM: usize = 20;
const CALLS: usize = 40;
/// Attempts of which one must fit: processors get slower and faster by themselves.
const ROUNDS: usize = 4;

/// Planted each time the stage is entered: far above what the stage takes otherwise, and in the library, which is in
/// every turn and grows with every pause, farther.
const fn spin_us(stage: TaxStage) -> u64 {
    if matches!(stage, TaxStage::RpcLibrary) { 10_000 } else { 2_000 }
}

/// The host that is called.
struct Far {
    daemon: Daemon,
    keys: Keys,
}

/// A daemon whose application calls there over gRPC, encrypted and compressed.
struct Near {
    daemon: Daemon,
    app: RawApp,
}

impl Far {
    fn new() -> Self {
        let keys = Keys::new();
        let listen = "[daemon]\nshards = 1\nlisten = [\"tcp://127.0.0.1:0\"]\n";
        let text = format!("{listen}{}", keys.config("required = true\n"));
        let daemon = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
        echo_in_thread(RawApp::attach(&daemon, "", true));
        Self { daemon, keys }
    }

    fn near(&self, more: &str) -> Near {
        let grpc = "[daemon]\nshards = 1\n[grpc]\nalways = true\nrequest_encoding = \"gzip\"\n";
        let text = format!("{grpc}{more}{}", self.keys.config(""));
        let daemon = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
        let address = self.daemon.endpoints()[0].strip_prefix("tcp://").unwrap();
        let app = RawApp::attach(&daemon, &format!("tls://search.internal@{address}"), false);
        Near { daemon, app }
    }
}

impl Near {
    fn call(&mut self, times: usize) {
        let data = vec![7; 2000];
        (0..times).for_each(|_| assert_eq!(self.app.unary(&data).code, Code::Ok));
    }
}

/// What the near daemons' time goes into for so many calls of each, a few of one and a few of the other in turn, so
/// that whatever makes this host slower makes it slower for all.
fn measure<const DAEMONS: usize>(mut all: [Near; DAEMONS]) -> [TaxTotals; DAEMONS] {
    all.iter_mut().for_each(|near| near.call(WARM));
    let before: Vec<TaxTotals> = all.iter().map(|near| near.daemon.tax()).collect();
    for _ in 0..CALLS / 10 {
        all.iter_mut().for_each(|near| near.call(10));
    }
    std::array::from_fn(|index| {
        let (before, after) = (before[index], all[index].daemon.tax());
        TaxTotals {
            stages_ns: std::array::from_fn(|stage| after.stages_ns[stage] - before.stages_ns[stage]),
            all_ns: after.all_ns - before.all_ns,
            spun_ns: after.spun_ns - before.spun_ns,
        }
    })
}

/// How many times as long the stages take in which nothing is planted: the median of those that take anything.
fn slower_otherwise(planted: TaxStage, plain: &TaxTotals, spun: &TaxTotals) -> f64 {
    let others = TaxStage::ALL.into_iter().filter(|one| ![planted, TaxStage::Idle].contains(one));
    let others = others.map(|one| [plain, spun].map(|totals| totals.stages_ns[one as usize] as f64));
    let mut times: Vec<f64> =
        others.filter(|[plain, _]| *plain > 0.0).map(|[plain, spun]| spun / plain).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Every round is measured, and none is spent on looking for work: a spin would be in each of those, too.
fn every_round(debug: &str) -> String {
    format!("[recorder]\ntax_rounds = 1\n[waiting]\npatience_us_max = 0\n[debug]\n{debug}\n")
}

#[test]
fn stages_explain_what_the_daemon_takes() {
    let far = Far::new();
    for recorder in ["[recorder]\ntax_rounds = 1\n", "[recorder]\ntax_rounds = 4\n"] {
        let [totals] = measure([far.near(recorder)]);
        let explained = 1.0 - totals.unattributed_ns() as f64 / totals.all_ns as f64;
        assert!(explained >= 0.95, "{recorder}: {explained} of {:?}", totals.by_label());
        for stage in TaxStage::ALL {
            assert!(totals.stages_ns[stage as usize] > 0, "{recorder}: {stage:?} has nothing: {totals:?}");
        }
    }
}

#[test]
fn a_daemon_that_is_not_to_measure_does_not() {
    let far = Far::new();
    assert_eq!(measure([far.near("[recorder]\ntax_rounds = 0\n")]), [TaxTotals::default()]);
}

#[test]
fn what_is_planted_in_a_stage_is_found_there() {
    let far = Far::new();
    for stage in TaxStage::ALL.into_iter().filter(|stage| *stage != TaxStage::Idle) {
        let debug = format!("spin_us = {}\nspin_stage = {:?}", spin_us(stage), stage.label());
        let mut found = Vec::new();
        let fits = (0..ROUNDS).any(|_| {
            let [plain, spun] = measure([far.near(&every_round("")), far.near(&every_round(&debug))]);
            // What the last rounds took is added a little later.
            let entries = spun.spun_ns as f64 / (spin_us(stage) * 1000) as f64;
            assert!(entries >= 0.9 * CALLS as f64, "{stage:?}: entered in every call: {spun:?}");
            let slower = slower_otherwise(stage, &plain, &spun);
            let of_planted = |one: TaxStage| {
                let own = plain.stages_ns[one as usize] as f64 * if one == stage { slower } else { 1.0 };
                (spun.stages_ns[one as usize] as f64 - own) / spun.spun_ns as f64
            };
            let rises = TaxStage::ALL.map(of_planted);
            found.push(rises);
            let others = TaxStage::ALL.into_iter().filter(|one| ![stage, TaxStage::Idle].contains(one));
            (rises[stage as usize] - 1.0).abs() <= 0.05
                && others.into_iter().all(|one| rises[one as usize].abs() <= 0.25)
        });
        assert!(fits, "{stage:?}: parts of what was planted, by stage: {found:?}");
        println!("{stage:?}: {found:.3?}");
    }
}
