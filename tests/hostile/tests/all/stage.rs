//! A host, a good pair, an attacker of another user, and what is asserted of all of them.

use crate::pair::Pair;
use std::path::Path;
use std::time::Instant;
use trunkline_hostile_tests::application::Application;
use trunkline_system_tests::harness::{Host, Process, shards, until, use_program};

/// The attacker's user. Nobody has it.
const USER: u32 = 54_321;
/// What a daemon may have grown by for good: pages of its fixed pools that nobody had touched before, and what the
/// allocator keeps.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// The same for each further shard, which has pools and an arena of the allocator of its own.
const KEPT_BYTES_PER_SHARD: u64 = 4 << 20;
/// Calls of the good pair after an attack, with the attacker still there and holding what it holds.
const CALLS_BESIDE: u64 = 100;

/// A stage on which one attack is made.
pub struct Stage {
    pub host: Host,
    attack: &'static str,
    attacker: Process,
    pair: Pair,
    before: Before,
    most_bytes: u64,
}

/// What the daemon held before the attack.
struct Before {
    own_bytes: u64,
    sessions: u64,
    endpoints: u64,
}

impl Stage {
    /// Sets it, with more keys of `[daemon]` and more configuration. `None`: this cannot be shown here, as is said on
    /// standard error.
    pub fn set(attack: &'static str, daemon: &str, more: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("{attack}: NOT SHOWN, because only root can start a program of another user");
            return None;
        }
        use_program(env!("CARGO_BIN_EXE_hostile"));
        let mut host = Host::open_to_users(daemon, more);
        let address = host.endpoint().trim_start_matches("tcp://").to_owned();
        let socket = host.socket();
        let pair = Pair::begin(&host);
        let port = host.datagrams().unwrap_or_default().to_owned();
        let words = ["attacker", text(&socket), &address, &port];
        let attacker = Process::start_as(USER, &words, &[]);
        let held = host.held();
        let (sessions, endpoints) = (held.of("sessions"), held.of("endpoints"));
        let before = Before { own_bytes: host.daemon().own_bytes(), sessions, endpoints };
        Some(Self { host, attack, attacker, pair, before, most_bytes: 0 })
    }

    /// Has the attacker do something, and waits until the good pair has gone on beside what it holds. What it says.
    pub fn attack(&mut self, order: &str) -> String {
        let said = self.attacker.ask(order);
        self.pair.until_more(CALLS_BESIDE);
        let grown_bytes = self.grown_bytes();
        self.most_bytes = self.most_bytes.max(grown_bytes);
        eprintln!("{}: {order}: {said}; the daemon has grown by {} KiB", self.attack, grown_bytes >> 10);
        assert!(said.starts_with("done: "), "{}: {order}: {said}", self.attack);
        said
    }

    /// Sessions of the good pair.
    pub fn sessions(&self) -> u64 {
        self.before.sessions
    }

    /// What the daemon has grown by, as it is now.
    pub fn grown_bytes(&mut self) -> u64 {
        self.host.daemon().own_bytes().saturating_sub(self.before.own_bytes)
    }

    /// Waits until the daemon has given back what the attacker had it hold, though the attacker is still there.
    pub fn until_grown_by_at_most(&mut self, bytes: u64) {
        let what = format!("{}: memory given back before the attacker leaves", self.attack);
        until(&what, || (self.grown_bytes() <= bytes).then_some(()));
    }

    /// Waits until the daemon holds so much of something, or less, though the attacker is still there.
    pub fn until_held_at_most(&mut self, name: &str, count: u64) {
        let what = format!("{}: {name} given back before the attacker leaves", self.attack);
        until(&what, || (self.host.held().of(name) <= count).then_some(()));
    }

    /// An application of this process attaches, whatever the attacker does.
    pub fn attach(&self) -> Application {
        Application::attach(&self.host.socket()).unwrap_or_else(|why| panic!("{}: {why}", self.attack))
    }

    /// The daemon's memory was within `bytes_max` all the time, the good pair noticed nothing, and once the attacker
    /// has left the daemon holds what it held before.
    pub fn end(mut self, bytes_max: u64) {
        let attack = self.attack;
        assert!(self.most_bytes <= bytes_max, "{attack}: {} bytes, more than {bytes_max}", self.most_bytes);
        drop(self.attacker);
        self.pair.until_more(CALLS_BESIDE);
        let left = Instant::now();
        self.host.until_held("sessions", self.before.sessions);
        self.host.until_held("endpoints", self.before.endpoints);
        let (host, own_bytes) = (&mut self.host, self.before.own_bytes);
        let kept_bytes_max = KEPT_BYTES_MAX + u64::from(shards() - 1) * KEPT_BYTES_PER_SHARD;
        until(&format!("{attack}: memory given back"), || {
            let kept_bytes = host.daemon().own_bytes().saturating_sub(own_bytes);
            (kept_bytes <= kept_bytes_max).then_some(())
        });
        let kept_kib = host.daemon().own_bytes().saturating_sub(own_bytes) >> 10;
        eprintln!("{attack}: {kept_kib} KiB are left {:?} after the attacker has gone", left.elapsed());
        let noticed = self.pair.end();
        assert_eq!(noticed.errors, [""; 0], "{attack}");
        noticed.print(attack);
        self.host.until_idle();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}
