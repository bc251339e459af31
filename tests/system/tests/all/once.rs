//! Shows that no call is executed twice and that *not executed* is the truth, while daemons and servers are killed.

use crate::support::{Host, Process, client};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trunkline::{Execution, Request, Wait};
use trunkline_system_tests::proto::probe::Order;
use trunkline_system_tests::proto::probe::order::Task;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;
use trunkline_system_tests::scenario::WATCHDOG;

const THREADS: u64 = 4;

/// Calls that go on whatever happens, each with a number of its own.
pub struct Load {
    numbers: AtomicU64,
    stop: AtomicBool,
    timeout: Duration,
    answered: Mutex<Vec<u64>>,
    not_executed: Mutex<Vec<u64>>,
    last_failure: Mutex<String>,
    longest: Mutex<Duration>,
}

impl Load {
    /// When every call must have ended: none comes near it, unless it is lost or the host does nothing for long.
    pub const TIMEOUT: Duration = Duration::from_secs(30);
    /// The same where calls are lost, and end by it.
    pub const SHORT_TIMEOUT: Duration = Duration::from_secs(5);

    pub fn start(client: &ProbeClient) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        Self::start_within(client, Self::TIMEOUT)
    }

    /// The same, with this timeout of every call.
    pub fn start_within(client: &ProbeClient, timeout: Duration) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let load = Arc::new(Self {
            numbers: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            timeout,
            answered: Mutex::default(),
            not_executed: Mutex::default(),
            last_failure: Mutex::default(),
            longest: Mutex::default(),
        });
        let thread = |_| {
            let (load, client) = (Arc::clone(&load), client.clone());
            std::thread::spawn(move || load.run(&client))
        };
        let threads = (0..THREADS).map(thread).collect();
        (load, threads)
    }

    fn run(&self, client: &ProbeClient) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let order = Order { label: "load".into(), task: Some(Task::Log(number)) };
            let request = Request::new(order).with_timeout(self.timeout).wait_for_ready();
            let began = Instant::now();
            let answer = client.r#do(request).wait();
            let mut longest = self.longest.lock().unwrap();
            *longest = longest.max(began.elapsed());
            drop(longest);
            if let Err(status) = &answer {
                *self.last_failure.lock().unwrap() = status.to_string();
            }
            match answer {
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

    /// How the last call that failed did; empty if none has.
    pub fn failures(&self) -> String {
        self.last_failure.lock().unwrap().clone()
    }

    /// The longest call so far.
    pub fn longest(&self) -> Duration {
        *self.longest.lock().unwrap()
    }

    pub fn until_answered(&self, more: usize) {
        let before = self.answered.lock().unwrap().len();
        let began = Instant::now();
        while self.answered.lock().unwrap().len() < before + more {
            let why = || self.last_failure.lock().unwrap().clone();
            assert!(began.elapsed() < WATCHDOG, "no answers any more, but: {}", why());
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}

fn is_true_of_the_log(load: &Load, host: &Host) {
    are_true_of_the_logs(load, std::slice::from_ref(host));
}

/// Holds what callers were told against what the servers did.
pub fn are_true_of_the_logs(load: &Load, hosts: &[Host]) {
    let log: String = hosts.iter().map(|host| std::fs::read_to_string(host.log()).unwrap()).collect();
    are_true_of_a_log(&log, &load.answered.lock().unwrap(), &load.not_executed.lock().unwrap());
}

/// Holds the numbers of calls that were answered, and of those reported as not executed, against what servers logged.
pub fn are_true_of_a_log(log: &str, answered: &[u64], not_executed: &[u64]) {
    let numbers: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    let executed: HashSet<u64> = numbers.iter().copied().collect();
    assert_eq!(executed.len(), numbers.len(), "a call was executed twice");
    for number in not_executed {
        assert!(!executed.contains(number), "call {number} was reported as not executed, and was");
    }
    for number in answered {
        assert!(executed.contains(number), "call {number} was answered and not executed");
    }
}

pub fn finish(load: &Load, threads: Vec<JoinHandle<()>>) {
    load.stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn on_one_host() {
    let mut host = Host::alone();
    let mut server: Process = host.server("server");
    let (load, threads) = Load::start(&client(&host, ""));
    for round in 0..10 {
        load.until_answered(50);
        if round % 2 == 0 {
            server.kill();
            server = host.server("server");
        } else {
            host.kill_daemon();
            host.start();
        }
    }
    load.until_answered(50);
    finish(&load, threads);
    is_true_of_the_log(&load, &host);
    host.until_idle();
}

#[test]
fn between_two_hosts() {
    let mut far = Host::over_tcp();
    let mut near = Host::alone();
    let mut server: Process = far.server("server");
    let (load, threads) = Load::start(&client(&near, far.endpoint()));
    for round in 0..12 {
        load.until_answered(50);
        match round % 3 {
            0 => {
                server.kill();
                server = far.server("server");
            }
            1 => {
                far.kill_daemon();
                far.start();
            }
            _ => {
                near.kill_daemon();
                near.start();
            }
        }
    }
    load.until_answered(50);
    finish(&load, threads);
    is_true_of_the_log(&load, &far);
    near.until_idle();
    far.until_idle();
}
