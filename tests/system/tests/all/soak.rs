//! Shows, for every topology, that random calls of every kind, ended in every way, come to what they should: none
//! stalls, no status is wrong about what was executed, nothing is left afterwards, and memory does not grow.
//!
//! Each takes seconds here; `make soak` gives each ten minutes, from another seed every time, which it prints.

use crate::support::{Host, Keys, Process};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trunkline_system_tests::program::LOG_VARIABLE;
use trunkline_system_tests::soak::{Extent, compare};

/// Environment variable: how long each topology is tried.
const SECONDS_VARIABLE: &str = "SOAK_SECONDS";
const SECONDS: u64 = 3;
/// Environment variable: where the random numbers begin.
const SEED_VARIABLE: &str = "SOAK_SEED";
/// Memory is looked at in runs that last at least this long: before, everything is still being touched for the first
/// time.
const LEVEL_AFTER_S: u64 = 60;
/// What memory may grow by from the second third of a run to the last: heaps are touched in any order.
const GROWTH_MAX: f64 = 1.15;
const GROWTH_BYTES: u64 = 24 << 20;

const NATIVE: Extent = Extent { bytes_max: 6 << 20, refused_bytes: 0, streams: true };
/// gRPC's own limit of a message is 4 MiB.
const GRPC: Extent = Extent { bytes_max: 4_000_000, refused_bytes: 5 << 20, streams: true };
const R2P2: Extent = Extent { bytes_max: 300_000, refused_bytes: 0, streams: false };

/// Resident memory of the processes of a run, sampled while it lasts.
#[derive(Default)]
struct Level {
    middle: Vec<u64>,
    last: Vec<u64>,
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Makes calls in `client`, while the memory of `others` is looked at, and holds its ledger against the server's log.
fn soak(
    name: &str,
    extent: Extent,
    client: &mut Process,
    folder: &Path,
    mut others: impl FnMut() -> Vec<u64>,
) -> PathBuf {
    let (seconds, seed) =
        (number(SECONDS_VARIABLE, SECONDS), number(SEED_VARIABLE, u64::from(std::process::id())));
    println!("{name}: seed {seed}, {seconds} s");
    let ledger = folder.join("ledger");
    let Extent { bytes_max, refused_bytes, streams } = extent;
    let order = format!(
        "soak {seed} {seconds} {bytes_max} {refused_bytes} {} {}",
        u8::from(streams),
        ledger.display()
    );
    assert_eq!(client.ask(&order), "begun");
    let mut level = Level::default();
    let began = std::time::Instant::now();
    loop {
        let said = client.ask("soak-look");
        if said.starts_with("done") {
            println!("{name}: {said}");
            break;
        }
        assert!(said.starts_with("running"), "{name}, seed {seed}: {said}");
        std::thread::park_timeout(Duration::from_millis(50));
        let mut now = others();
        now.push(client.resident_bytes());
        level.is(began.elapsed().as_secs_f64() / seconds as f64, now);
    }
    if seconds >= LEVEL_AFTER_S {
        level.holds(name);
    }
    ledger
}

impl Level {
    /// The sizes at this share of the run.
    fn is(&mut self, share: f64, sizes: Vec<u64>) {
        let third = match share {
            ..0.34 => return,
            0.34..0.67 => &mut self.middle,
            _ => &mut self.last,
        };
        third.resize(sizes.len(), 0);
        third.iter_mut().zip(sizes).for_each(|(most, size)| *most = size.max(*most));
    }

    fn holds(&self, name: &str) {
        println!(
            "{name}: resident memory at most {:?} in the second third, {:?} in the last",
            self.middle, self.last
        );
        for (middle, last) in self.middle.iter().zip(&self.last) {
            let most = (*middle as f64 * GROWTH_MAX) as u64 + GROWTH_BYTES;
            assert!(last <= &most, "{name}: memory grows, {middle} and then {last} bytes");
        }
    }
}

/// Between applications of `near` and those of `far`, if that is another host.
fn between(name: &str, extent: Extent, near: Host, far: Option<Host>) {
    through(name, extent, near, None, far);
}

/// The same with a gateway on the way.
fn through(name: &str, extent: Extent, mut near: Host, mut gateway: Option<Host>, mut far: Option<Host>) {
    let server = far.as_ref().unwrap_or(&near).server("server");
    let mut client = near.client("");
    assert_eq!(client.ask("echo-when-ready x"), "OK", "{name}");
    let folder = near.folder().to_owned();
    let sizes = || {
        let mut sizes = vec![server.resident_bytes(), near.daemon().resident_bytes()];
        sizes.extend(gateway.as_mut().map(|gateway| gateway.daemon().resident_bytes()));
        sizes.extend(far.as_mut().map(|far| far.daemon().resident_bytes()));
        sizes
    };
    let ledger = soak(name, extent, &mut client, &folder, sizes);
    near.until_idle();
    gateway.iter_mut().for_each(Host::until_idle);
    if let Some(far) = &mut far {
        far.until_idle();
    }
    assert_eq!(client.ask("echo fresh"), "OK", "{name}: a fresh call");
    is_true(name, &ledger, &far.as_ref().unwrap_or(&near).log());
}

fn is_true(name: &str, ledger: &Path, log: &Path) {
    let [ledger, log] = [ledger, log].map(|path| std::fs::read_to_string(path).unwrap());
    match compare(&ledger, &log) {
        Ok(statements) => println!("{name}: {statements} statements are true"),
        Err(falsehood) => panic!("{name}: {falsehood}"),
    }
}

/// Hosts with TLS of one version; what `near` calls `far` by is native or gRPC.
fn secured(version: &str, more: &str) -> (Host, Host) {
    let keys = Keys::new();
    let far = Host::secured_with(&keys, Some("tcp://127.0.0.1:0"), Vec::new(), version, "");
    let near = Host::secured_with(&keys, None, vec![far.secured_endpoint()], version, more);
    (near, far)
}

const ALWAYS_GRPC: &str = "[grpc]\nalways = true\n";

#[test]
fn embedded() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("executed");
    let environment = [("TRUNKLINE_EMBEDDED", "1".into()), (LOG_VARIABLE, log.clone().into_os_string())];
    let mut both = Process::start(&["both"], &environment);
    let ledger = soak("embedded", NATIVE, &mut both, folder.path(), Vec::new);
    assert_eq!(both.ask("echo fresh"), "OK");
    is_true("embedded", &ledger, &log);
}

#[test]
fn one_daemon() {
    between("one daemon", NATIVE, Host::alone(), None);
}

#[test]
fn unix() {
    let far = Host::over_unix();
    between("unix", NATIVE, Host::routed_to(&far), Some(far));
}

#[test]
fn tcp() {
    let far = Host::over_tcp();
    between("tcp", NATIVE, Host::routed_to(&far), Some(far));
}

#[test]
fn tls_1_2() {
    let (near, far) = secured("1.2", "");
    between("tls 1.2", NATIVE, near, Some(far));
}

#[test]
fn tls_1_3() {
    let (near, far) = secured("1.3", "");
    between("tls 1.3", NATIVE, near, Some(far));
}

#[test]
fn grpc() {
    let far = Host::over_tcp();
    let near = Host::routed_as(vec![far.endpoint().to_owned()], "", ALWAYS_GRPC);
    between("grpc", GRPC, near, Some(far));
}

#[test]
fn grpc_tls() {
    let (near, far) = secured("1.3", ALWAYS_GRPC);
    between("grpc tls", GRPC, near, Some(far));
}

#[test]
fn gateway() {
    let far = Host::over_tcp();
    let gateway = Host::gateway_to(&far, "");
    let near = Host::routed(vec![gateway.gateway()]);
    through("gateway", GRPC, near, Some(gateway), Some(far));
}

#[test]
fn gateway_to_grpc() {
    let far = Host::over_tcp();
    let gateway = Host::gateway_to(&far, ALWAYS_GRPC);
    let near = Host::routed(vec![gateway.gateway()]);
    through("gateway to grpc", GRPC, near, Some(gateway), Some(far));
}

#[test]
fn r2p2() {
    let far = Host::over_r2p2(None, "127.0.0.1:0", &[]);
    between("r2p2", R2P2, Host::routed_to(&far), Some(far));
}
