//! Two processes: the test binary starts itself again as the other side. Either side may be killed at any moment, and
//! the other learns it from the control socket.
#![cfg(not(loom))]

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, Signal, kill_process};
use trunkline_shm::{
    AppEnd, ControlSocket, DaemonEnd, SESSION_FDS, SessionConfig, SessionFds, Span, WaitLimits, Waiter,
    Woken, create_session, monotonic_ns, open_session, sleep_on, wait_for_entries,
};

const ROLE: &str = "TRUNKLINE_SHM_TEST_ROLE";

/// No wait of these tests is longer, so that none can hang.
const WATCHDOG_NS: u64 = 60_000_000_000;

fn config() -> SessionConfig {
    SessionConfig {
        submission_entries: 64,
        completion_entries: 64,
        send_heap_bytes: 1 << 20,
        receive_heap_bytes: 1 << 20,
    }
}

/// Not a test of its own: what the second process does. Without a role it does nothing.
#[test]
fn other_side() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let control = ControlSocket::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    match role.as_str() {
        "application" => call_until_closed(&control),
        "daemon" => {
            let mut daemon = serve_session(&control);
            serve(&mut daemon, &control, u64::MAX);
        }
        other => panic!("no role {other}"),
    }
}

fn start(role: &str) -> (Child, ControlSocket) {
    let (ours, theirs) = ControlSocket::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "other_side", "--nocapture"]).env(ROLE, role);
    (command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn().unwrap(), ours)
}

fn kill(child: &mut Child) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
}

fn serve_session(control: &ControlSocket) -> DaemonEnd {
    let (daemon, fds) = create_session(&config()).unwrap();
    control.send(b"session", &fds.as_fds()).unwrap();
    daemon
}

fn receive_session(control: &ControlSocket) -> AppEnd {
    let fds = control.recv(&mut Vec::new(), SESSION_FDS).unwrap().expect("a session");
    open_session(SessionFds::from_fds(fds).unwrap(), &config()).unwrap()
}

/// The daemon's side: answers each message with the same bytes, each plus one. Entry: kind, number, offset, length.
/// Returns the number of calls answered when the application is gone or `calls` were answered.
fn serve(daemon: &mut DaemonEnd, control: &ControlSocket, calls: u64) -> u64 {
    let mut waiter = Waiter::new(WaitLimits::of_this_process());
    let mut answered = 0;
    while answered < calls {
        let deadline = Some(monotonic_ns() + WATCHDOG_NS);
        let (ring, bell) = (&mut daemon.submissions, &daemon.own_doorbell);
        match wait_for_entries(ring, bell, &[control.as_fd()], &mut waiter, deadline).unwrap() {
            Woken::Entries => {}
            Woken::Other(_) => return answered,
            Woken::TimedOut => panic!("no entry within the watchdog's time"),
        }
        let mut entry = daemon.submissions.pop().unwrap().expect("announced");
        if entry[0] == 1 {
            daemon.receive_heap.free(entry[2] as u32).unwrap();
            continue;
        }
        let request = Span { offset: entry[2] as u32, len: entry[3] as u32 };
        let mut block = daemon.receive_heap.allocate(request.len).expect("blocks return");
        let bytes = &mut block.bytes_mut()[..request.len as usize];
        daemon.send_heap.copy_out(request.offset, bytes).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        let answer = block.lend(request.len);
        (entry[4], entry[5]) = (u64::from(answer.offset), u64::from(answer.len));
        daemon.completions.stage(&entry).unwrap();
        daemon.peer_doorbell.publish(&mut daemon.completions).unwrap();
        answered += 1;
    }
    answered
}

/// One call with a message of `len` bytes; `false` when the daemon is gone.
fn call(app: &mut AppEnd, control: &ControlSocket, waiter: &mut Waiter, number: u64, len: u32) -> bool {
    let mut block = app.send_heap.allocate(len).unwrap();
    block.bytes_mut()[..len as usize].fill(number as u8);
    let request = block.lend(len);
    let entry = [0, number, u64::from(request.offset), u64::from(len), 0, 0, 0, 0];
    app.submissions.stage(&entry).unwrap();
    app.peer_doorbell.publish(&mut app.submissions).unwrap();
    let deadline = Some(monotonic_ns() + WATCHDOG_NS);
    match wait_for_entries(&mut app.completions, &app.own_doorbell, &[control.as_fd()], waiter, deadline)
        .unwrap()
    {
        Woken::Entries => {}
        Woken::Other(_) => return false,
        Woken::TimedOut => panic!("no entry within the watchdog's time"),
    }
    let entry = app.completions.pop().unwrap().expect("announced");
    assert_eq!(entry[1], number);
    app.send_heap.free(entry[2] as u32).unwrap();
    let answer = app.receive_heap.block(Span { offset: entry[4] as u32, len: entry[5] as u32 }).unwrap();
    assert!(
        answer.len() == len as usize && answer.iter().all(|byte| *byte == (number as u8).wrapping_add(1))
    );
    drop(answer);
    let mut returns = Vec::new();
    app.receive_heap.take_returns(&mut returns);
    assert_eq!(returns.len(), 1);
    app.submissions.stage(&[1, 0, u64::from(returns[0]), 0, 0, 0, 0, 0]).unwrap();
    app.peer_doorbell.publish(&mut app.submissions).unwrap();
    true
}

fn call_until_closed(control: &ControlSocket) {
    let mut app = receive_session(control);
    let mut waiter = Waiter::new(WaitLimits::of_this_process());
    let lens = [0, 1, 64, 100, 5_000, 100_000];
    for number in 0.. {
        if !call(&mut app, control, &mut waiter, number, lens[number as usize % lens.len()]) {
            return;
        }
    }
}

/// Twenty thousand calls of mixed sizes cross whole, and both heaps are empty again when the application has gone.
#[test]
fn calls_cross_between_two_processes() {
    let (mut child, control) = start("application");
    let mut daemon = serve_session(&control);
    assert_eq!(serve(&mut daemon, &control, 20_000), 20_000);
    drop(control);
    assert!(child.wait().unwrap().success(), "the application saw every byte and the end");
    while let Some(entry) = daemon.submissions.pop().unwrap() {
        if entry[0] == 1 {
            daemon.receive_heap.free(entry[2] as u32).unwrap();
        }
    }
    assert_eq!(daemon.receive_heap.bytes_in_use(), 0);
}

/// An application killed amid its calls is noticed by the control socket and by its process descriptor.
#[test]
fn a_killed_application_is_noticed() {
    let (mut child, control) = start("application");
    let mut daemon = serve_session(&control);
    assert_eq!(serve(&mut daemon, &control, 100), 100);
    let child_pid = Pid::from_raw(child.id() as i32).unwrap();
    let process = rustix::process::pidfd_open(child_pid, rustix::process::PidfdFlags::empty()).unwrap();
    kill(&mut child);
    // One after the other: a process another test has forked and that has not yet executed its program holds a copy of
    // the socket's other end for so long.
    for descriptor in [process.as_fd(), control.as_fd()] {
        assert_eq!(sleep_on(&[descriptor], Some(WATCHDOG_NS)).unwrap(), 1);
    }
    assert!(
        serve(&mut daemon, &control, u64::MAX) <= 64,
        "what it left in the ring is served or not, then the end"
    );
    daemon.peer_doorbell.ring().unwrap();
}

/// A killed daemon is noticed, and the application's end stays harmless to use.
#[test]
fn a_killed_daemon_is_noticed() {
    let (mut child, control) = start("daemon");
    let mut app = receive_session(&control);
    let mut waiter = Waiter::new(WaitLimits::of_this_process());
    assert!((0..100).all(|number| call(&mut app, &control, &mut waiter, number, 100)));
    kill(&mut child);
    assert!((100..200).any(|number| !call(&mut app, &control, &mut waiter, number, 100)));
    let refused = (0..100).find_map(|_| app.submissions.push(&[9; 8]).err());
    assert!(refused.is_some(), "the ring fills up");
    app.peer_doorbell.ring().unwrap();
    assert!(app.send_heap.allocate(100).is_ok());
}
