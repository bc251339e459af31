//! A child made by `fork` without `exec` must not touch its parent's session, and can have one of its own.
#![cfg(not(loom))]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use trunkline_shm::{
    AppEnd, ControlListener, DaemonEnd, ForkGuard, PerProcess, RingError, SessionConfig, Span,
    create_session, open_session,
};

fn session() -> (DaemonEnd, AppEnd) {
    let config =
        SessionConfig { send_heap_bytes: 64 << 10, receive_heap_bytes: 64 << 10, ..SessionConfig::default() };
    let (daemon, fds) = create_session(&config).unwrap();
    (daemon, open_session(fds, &config).unwrap())
}

/// Runs `check` in a forked child, which then becomes `true`. Its message is this test's failure.
fn in_forked_child(check: impl FnMut() -> Result<(), &'static str> + Send + Sync + 'static) {
    let mut check = check;
    let mut command = Command::new("true");
    let checked = move || {
        check().map_err(|what| {
            eprintln!("in the child: {what}"); // only the number of an error crosses to the parent
            io::Error::from(io::ErrorKind::Other)
        })
    };
    // SAFETY: the closure allocates, which glibc makes safe after fork, and takes no lock that another thread of
    // this test could hold.
    let status = unsafe { command.pre_exec(checked) }.status();
    assert!(status.expect("the child's check").success());
}

fn that(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

#[test]
fn a_guard_tells_parent_from_child_from_grandchild() {
    let guard = ForkGuard::new();
    assert!(!guard.is_foreign());
    in_forked_child(move || {
        that(guard.is_foreign(), "the parent's guard is foreign")?;
        let own = ForkGuard::new();
        that(!own.is_foreign() && own != guard, "its own is not")
    });
    assert!(!guard.is_foreign());
}

/// What another thread of the parent holds locked at the moment of the fork would be locked for ever in the child.
#[test]
fn a_child_begins_with_a_value_of_its_own() {
    static NUMBERS: PerProcess<Mutex<Vec<u32>>> = PerProcess::new();
    let mut numbers = NUMBERS.get().lock().unwrap();
    numbers.push(1);
    in_forked_child(|| {
        let own = NUMBERS.get().try_lock().map_err(|_| "it is locked")?;
        that(own.is_empty(), "it is its parent's")
    });
    numbers.push(2);
    drop(numbers);
    assert_eq!(*NUMBERS.get().lock().unwrap(), [1, 2]);
}

/// A child that drops an inherited listener leaves its parent's socket alone.
#[test]
fn a_child_does_not_remove_its_parents_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon.sock");
    let listener = Arc::new(Mutex::new(Some(ControlListener::bind(&path, 0o600).unwrap())));
    let inherited = listener.clone();
    in_forked_child(move || {
        drop(inherited.lock().unwrap().take());
        Ok(())
    });
    assert!(path.exists());
    drop(listener.lock().unwrap().take());
    assert!(!path.exists());
}

/// In the child rings answer `Forked`, memory is gone, and dropping everything disturbs neither side.
#[test]
fn a_child_cannot_touch_its_parents_session() {
    let (daemon, mut app) = session();
    let mut block = app.send_heap.allocate(100).unwrap();
    block.bytes_mut().fill(1);
    let _ = app.submissions.push(&[1; 8]).unwrap();
    let written = daemon.receive_heap.allocate(10).unwrap();
    let received = app.receive_heap.block(written.lend(10)).unwrap();
    let parents = Arc::new(Mutex::new(Some((app, daemon, block, received))));
    let inherited = parents.clone();
    in_forked_child(move || {
        let (mut app, mut daemon, block, received) = inherited.lock().unwrap().take().ok_or("no session")?;
        that(app.submissions.push(&[2; 8]) == Err(RingError::Forked), "push")?;
        that(app.completions.pop() == Err(RingError::Forked), "pop")?;
        that(app.completions.arm() == Err(RingError::Forked), "arm")?;
        app.completions.disarm();
        that(daemon.submissions.ready() == Err(RingError::Forked), "ready")?;
        that(daemon.completions.room() == Err(RingError::Forked), "room")?;
        that(received.is_empty(), "received bytes")?;
        that(daemon.send_heap.seal(Span { offset: 0, len: 1 }).is_err(), "alleged bytes")?;
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| "maps")?;
        that(!maps.contains("trunkline-"), "the regions are not mapped")?;
        drop((block, received, app, daemon));
        let (mut daemon, mut app) = session();
        that(app.submissions.push(&[3; 8]) == Ok(false), "its own session")?;
        that(daemon.submissions.pop() == Ok(Some([3; 8])), "works")
    });
    let (mut app, mut daemon, block, received) = parents.lock().unwrap().take().unwrap();
    assert_eq!(daemon.submissions.pop(), Ok(Some([1; 8])), "the child pushed nothing");
    assert_eq!(app.submissions.push(&[4; 8]), Ok(false));
    assert_eq!((block.bytes()[0], received.len()), (1, 10));
    drop(received);
    assert!(app.receive_heap.has_returns());
}
