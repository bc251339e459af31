//! What a round trip between two processes over bare rings costs, policy by policy.
//!
//! ```text
//! cargo run --release -p trunkline-shm --example handover [rounds]
//! ```
//!
//! The parent plays the application: it pushes one entry, waits for the answer, and notes the time. The child plays
//! the daemon. Both wait with the same policy. `sparse` leaves a millisecond between calls; `busy` runs one thread
//! per core that never sleeps beside them. `together` ties both to one core, `apart` to two. CPU is that of both
//! waiting threads together.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use trunkline_shm::{
    AppEnd, Consumer, ControlSocket, Doorbell, Producer, Ringer, SESSION_FDS, SessionConfig, SessionFds,
    WaitLimits, Waiter, Woken, create_session, monotonic_ns, open_session, wait_for_entries,
};

const ROLE: &str = "TRUNKLINE_HANDOVER_CHILD";

/// The entry that ends the child.
const GOODBYE: u64 = u64::MAX;

const POLICIES: [&str; 3] = ["adaptive", "block", "spin"];

/// Where the two processes may run: wherever the kernel likes, on one core, on two different ones.
const PLACES: [&str; 3] = ["free", "together", "apart"];

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        let (policy, place) = role.split_once(' ').expect("policy and place");
        return answer(policy_named(policy), place);
    }
    let rounds: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100_000);
    println!("{:<27} {:>9} {:>9} {:>9} {:>12}", "", "p50 us", "p90 us", "p99 us", "CPU us/call");
    for place in PLACES {
        POLICIES.iter().for_each(|policy| measure("", policy, place, rounds, Duration::ZERO));
    }
    for place in PLACES {
        let pause = Duration::from_millis(1);
        ["adaptive", "block"]
            .iter()
            .for_each(|policy| measure("sparse", policy, place, rounds.min(2_000), pause));
    }
    busy(|| {
        for place in PLACES {
            POLICIES.iter().for_each(|policy| measure("busy", policy, place, rounds / 4, Duration::ZERO));
        }
    });
    idle();
}

/// Ties this thread to a core: the first for the application and, `together`, for both.
fn settle(place: &str, child: bool) {
    let mut cores = CpuSet::new();
    match place {
        "together" => cores.set(0),
        "apart" => cores.set(usize::from(child)),
        _ => (0..CpuSet::MAX_CPU).for_each(|core| cores.set(core)),
    }
    sched_setaffinity(None, &cores).expect("two cores to choose from");
}

/// `adaptive`: the defaults; `block`: never looks; `spin`: never sleeps.
fn policy_named(name: &str) -> WaitLimits {
    let patience_ns_max = match name {
        "block" => 0,
        "spin" => u64::MAX,
        _ => WaitLimits::default().patience_ns_max,
    };
    WaitLimits { patience_ns_max, ..WaitLimits::of_this_process() }
}

fn measure(title: &str, policy: &str, place: &str, rounds: u64, pause: Duration) {
    let (mut app, control, mut child) = start(policy, place);
    let mut waiter = Waiter::new(policy_named(policy));
    let warm_up = (rounds / 10).min(1_000);
    let mut taken_ns = Vec::with_capacity(rounds as usize);
    let mut cpu_ns = 0;
    for round in 0..warm_up + rounds {
        if round == warm_up {
            cpu_ns = thread_cpu_ns() + child_cpu_ns(&mut app, &mut waiter, 1);
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let began = monotonic_ns();
        call(&mut app, &mut waiter, 0);
        if round >= warm_up {
            taken_ns.push(monotonic_ns() - began);
        }
    }
    let cpu_ns = thread_cpu_ns() + child_cpu_ns(&mut app, &mut waiter, 1) - cpu_ns;
    stop(app, control, &mut child);
    taken_ns.sort_unstable();
    let at = |part: usize| taken_ns[taken_ns.len() * part / 100] as f64 / 1e3;
    let cpu = cpu_ns as f64 / 1e3 / rounds as f64;
    let title = format!("{policy} {place} {title}");
    println!("{title:<27} {:>9.2} {:>9.2} {:>9.2} {cpu:>12.2}", at(50), at(90), at(99));
}

/// CPU of two processes that have been busy and now have nothing to do for two seconds.
fn idle() {
    let (mut app, control, mut child) = start("adaptive", "free");
    let mut waiter = Waiter::new(policy_named("adaptive"));
    for _ in 0..1_000 {
        call(&mut app, &mut waiter, 0);
    }
    let before = thread_cpu_ns() + child_cpu_ns(&mut app, &mut waiter, 1);
    let deadline = Some(monotonic_ns() + 2_000_000_000);
    wait_for_entries(&mut app.completions, &app.own_doorbell, &[], &mut waiter, deadline).unwrap();
    let spent = thread_cpu_ns() + child_cpu_ns(&mut app, &mut waiter, 1) - before;
    stop(app, control, &mut child);
    println!("idle: {:.4} % of a core for both processes", spent as f64 / 2e9 * 100.0);
}

fn call(app: &mut AppEnd, waiter: &mut Waiter, question: u64) -> u64 {
    send(&mut app.submissions, &app.peer_doorbell, question);
    receive(&mut app.completions, &app.own_doorbell, waiter).expect("the child answers")
}

fn child_cpu_ns(app: &mut AppEnd, waiter: &mut Waiter, question: u64) -> u64 {
    call(app, waiter, question)
}

/// The child: answers 0 with 0, 1 with its CPU time.
fn answer(limits: WaitLimits, place: &str) {
    settle(place, true);
    let control = ControlSocket::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let (mut daemon, fds) = create_session(&SessionConfig::default()).unwrap();
    control.send(b"session", &fds.as_fds()).unwrap();
    let mut waiter = Waiter::new(limits);
    while let Some(question) = receive(&mut daemon.submissions, &daemon.own_doorbell, &mut waiter) {
        let answer = if question == 1 { thread_cpu_ns() } else { 0 };
        send(&mut daemon.completions, &daemon.peer_doorbell, answer);
    }
}

fn send(ring: &mut Producer, bell: &Ringer, word: u64) {
    if ring.push(&[word; 8]).unwrap() {
        bell.ring().unwrap();
    }
}

fn receive(ring: &mut Consumer, bell: &Doorbell, waiter: &mut Waiter) -> Option<u64> {
    assert_eq!(wait_for_entries(ring, bell, &[], waiter, None).unwrap(), Woken::Entries);
    let word = ring.pop().unwrap().expect("an entry was announced")[0];
    (word != GOODBYE).then_some(word)
}

fn start(policy: &str, place: &str) -> (AppEnd, ControlSocket, Child) {
    settle(place, false);
    let (ours, theirs) = ControlSocket::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let child = child
        .env(ROLE, format!("{policy} {place}"))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let mut packet = Vec::new();
    let fds = ours.recv(&mut packet, SESSION_FDS).unwrap().expect("the child sends its session");
    let app = open_session(SessionFds::from_fds(fds).unwrap(), &SessionConfig::default()).unwrap();
    (app, ours, child)
}

fn stop(mut app: AppEnd, control: ControlSocket, child: &mut Child) {
    send(&mut app.submissions, &app.peer_doorbell, GOODBYE);
    drop(control);
    child.wait().unwrap();
}

/// Runs `what` beside one never-sleeping thread per core.
fn busy(what: impl FnOnce()) {
    static STOP: AtomicBool = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let hog = || {
        while !STOP.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let hogs: Vec<_> = (0..cores).map(|_| std::thread::spawn(hog)).collect();
    what();
    STOP.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
