//! Everything at once: a daemon is replaced again and again, some of its successors die in the middle, its policies and
//! modules change, servers and clients are killed, another user attacks it, and others ask all the time whether it is
//! well.
//!
//! What must hold: no call is executed twice, no status is wrong about whether one was, and no probe ever hears that
//! the daemon is not there.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trunkline::{Execution, Request, Wait};
use trunkline_services::proto::grpc::health::v1::HealthCheckRequest;
use trunkline_services::proto::grpc::health::v1::health_check_response::ServingStatus;
use trunkline_services::proto::grpc::health::v1::health_client::HealthClient;
use trunkline_system_tests::harness::{Host, Process, channel, client, until, until_served, use_program};
use trunkline_system_tests::proto::probe::Order;
use trunkline_system_tests::proto::probe::order::Task;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;
use trunkline_test_modules as built;

/// Environment variable: rounds of the storm, each with a replacement, a change of policies and modules, and three
/// kills: a client, a server, an attacker. `make storm` has 500; a few are what every run can afford.
const ROUNDS_VARIABLE: &str = "STORM_ROUNDS";
/// Rounds after which it is said how far the storm is.
const TOLD_EVERY: usize = 10;
const ROUNDS: usize = 6;
/// Calls and probes that are answered before the next round.
const CALLS: usize = 20;
/// The attacker's user.
const USER: u32 = 54_321;
/// What the attacker of a round does, while the daemon is replaced.
const ATTACKS: [&[&str]; 6] = [
    &["flooding 1", "names 500", "waiting 200", "silent 50"],
    &["unread 100", "halves 1", "references 200", "bare 200"],
    &["untaken 200", "refused 5000", "targets 500", "heaps 5"],
    &["native_unread 50", "overdue 50", "sets 2", "paths 4000"],
    &["slow 1", "large_halves 1", "learned 200", "drains 2000"],
    &["busy 4096", "greeted 50", "flood 2000"],
];
/// Steps of a hand-over at which the successor dies, in every third round.
const DEATHS: [&str; 4] = ["able", "prepared", "sent", "ready"];
/// When every call must have ended.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Calls that go on whatever happens, each with a number of its own.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    numbers: AtomicU64,
    answered: Mutex<Vec<u64>>,
    not_executed: Mutex<Vec<u64>>,
}

impl Load {
    fn run(&self, client: &ProbeClient) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let order = Order { label: "storm".into(), task: Some(Task::Log(number)) };
            match client.r#do(Request::new(order).with_timeout(TIMEOUT).wait_for_ready()).wait() {
                Ok(_) => self.answered.lock().unwrap().push(number),
                Err(status) if status.execution() == Execution::NotExecuted => {
                    self.not_executed.lock().unwrap().push(number);
                    // Nobody there: leave the core to those who come back.
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                Err(_) => {}
            }
        }
    }

    /// Holds what callers were told against what servers did.
    fn is_true_of(&self, log: &Path) -> usize {
        let log = std::fs::read_to_string(log).unwrap();
        let numbers: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
        let executed: HashSet<u64> = numbers.iter().copied().collect();
        assert_eq!(executed.len(), numbers.len(), "a call was executed twice");
        for number in &*self.not_executed.lock().unwrap() {
            assert!(!executed.contains(number), "call {number} was reported as not executed, and was");
        }
        for number in &*self.answered.lock().unwrap() {
            assert!(executed.contains(number), "call {number} was answered and not executed");
        }
        executed.len()
    }
}

/// Probes of the daemon's health.
#[derive(Default)]
struct Probes {
    stop: AtomicBool,
    heard: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Probes {
    fn run(&self, client: &HealthClient) {
        while !self.stop.load(Ordering::Relaxed) {
            match client.check(HealthCheckRequest::default()).wait().map(trunkline::Response::into_inner) {
                Ok(answer) if answer.status == ServingStatus::Serving => {}
                Ok(answer) => self.failures.lock().unwrap().push(format!("{answer:?}")),
                Err(status) => self.failures.lock().unwrap().push(status.to_string()),
            }
            self.heard.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A chain that is new in every round, and keeps nobody out.
fn chain(folder: &Path, round: usize, rounds: usize) -> String {
    let version = if round < rounds / 2 { built::TOKEN_BUCKET_1 } else { built::TOKEN_BUCKET_2 };
    let path = built::rust(folder, version).display().to_string();
    format!(
        "[[policy]]\nname = \"bucket\"\nkind = \"module\"\nside = \"server\"\nservice = \"probe.v1.Probe\"\n\
         path = {path:?}\nconfig = {{ calls_per_second = 1000000, burst = {} }}\n\n\
         [[policy]]\nname = \"rule\"\nkind = \"access\"\nside = \"client\"\nservice = \"probe.v1.Probe\"\n\
         deny = 'application == \"nobody {round}\"'\n",
        1_000_000 + round
    )
}

/// Another user that does what it can, where there may be one: it has begun when this returns.
fn attacker(host: &Host, round: usize) -> Option<Process> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let address = host.endpoint().trim_start_matches("tcp://").to_owned();
    let mut attacker = Process::start_as(USER, &["attacker", host.socket().to_str().unwrap(), &address], &[]);
    ATTACKS[round % ATTACKS.len()].iter().for_each(|order| attacker.tell(order));
    Some(attacker)
}

/// Waits until the attacker has come as far as it gets. A daemon that is being replaced may stop it.
fn until_through(attacker: &mut Process, round: usize) {
    for order in ATTACKS[round % ATTACKS.len()] {
        let said = attacker.hear();
        assert!(said.starts_with("done: ") || said.starts_with("stopped: "), "{order}: {said}");
    }
}

fn spawn<T: Send + Sync + 'static>(of: &Arc<T>, run: impl FnOnce(&T) + Send + 'static) -> JoinHandle<()> {
    let of = Arc::clone(of);
    std::thread::spawn(move || run(&of))
}

#[test]
fn a_storm_executes_nothing_twice_and_finds_the_daemon_well() {
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    use_program(env!("CARGO_BIN_EXE_hostile"));
    let mut host = Host::healthy("", "[egress]\nallow = [\"*\"]\n");
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("chain.toml");
    if !rustix::process::geteuid().is_root() {
        eprintln!("storm: WITHOUT AN ATTACKER, because only root can start a program of another user");
    }
    let mut server = host.server("server");
    let calls = client(&host, "");
    until_served(&calls);
    let (load, probes) = (Arc::new(Load::default()), Arc::new(Probes::default()));
    let mut threads: Vec<_> = (0..2)
        .map(|_| {
            let calls = calls.clone();
            spawn(&load, move |load| load.run(&calls))
        })
        .collect();
    let prober = HealthClient::new(channel(&host, ""));
    threads.push(spawn(&probes, move |probes| probes.run(&prober)));
    let (began, mut died) = (Instant::now(), 0);
    for round in 0..rounds {
        let (answered, heard) = (load.answered.lock().unwrap().len(), probes.heard.load(Ordering::Relaxed));
        let mut attacker = attacker(&host, round);
        std::fs::write(&policies, chain(folder.path(), round, rounds)).unwrap();
        let said = host.daemon().ask(&format!("policies {}", policies.display()));
        assert!(said.starts_with("applied"), "round {round}: {said}");
        drop(host.client(""));
        if round % 3 == 2 {
            let death = DEATHS[round / 3 % DEATHS.len()];
            host.daemon().replace_and_kill("new", death);
            let said = host.daemon().hear();
            assert!(said.starts_with("goes on: "), "round {round}, {death}: {said}");
            died += 1;
        }
        host.replace_daemon();
        attacker.iter_mut().for_each(|attacker| until_through(attacker, round));
        server.kill();
        drop(attacker);
        server = host.server("server");
        until("calls and probes that are answered", || {
            let goes_on = load.answered.lock().unwrap().len() >= answered + CALLS
                && probes.heard.load(Ordering::Relaxed) >= heard + CALLS as u64;
            goes_on.then_some(())
        });
        if (round + 1) % TOLD_EVERY == 0 {
            let (answered, heard) =
                (load.answered.lock().unwrap().len(), probes.heard.load(Ordering::Relaxed));
            let [took, kib] = [began.elapsed().as_secs(), host.daemon().own_bytes() >> 10];
            eprintln!(
                "storm: {} of {rounds} rounds in {took} s; {answered} calls answered, {heard} probes; the daemon has \
                 {kib} KiB",
                round + 1
            );
        }
    }
    load.stop.store(true, Ordering::Relaxed);
    probes.stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let executed = load.is_true_of(&host.log());
    let failures = std::mem::take(&mut *probes.failures.lock().unwrap());
    assert!(
        failures.is_empty(),
        "{} probes failed: {:?}",
        failures.len(),
        &failures[..failures.len().min(5)]
    );
    host.until_idle();
    println!(
        "{rounds} replacements and {died} that failed, {rounds} changes of policies and modules, {} kills: {executed} \
         executions, none twice; {} probes, all answered",
        3 * rounds + died,
        probes.heard.load(Ordering::Relaxed)
    );
}
