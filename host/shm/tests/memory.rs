//! What a session costs in pages: little when idle, and what a burst took can be given back.
#![cfg(not(loom))]

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use trunkline_shm::{AppEnd, DaemonEnd, SessionConfig, SessionFds, create_session, open_session};

/// Pages the kernel holds for a memfd, whoever mapped them.
fn resident_bytes(fd: BorrowedFd<'_>) -> u64 {
    fstat(fd).unwrap().st_blocks as u64 * 512
}

/// Bytes resident of rings, send heap and receive heap.
fn resident(fds: &SessionFds) -> [u64; 3] {
    let [rings, send, receive, ..] = fds.as_fds();
    [rings, send, receive].map(resident_bytes)
}

fn session() -> (DaemonEnd, AppEnd, SessionFds) {
    let config = SessionConfig::default();
    let (daemon, fds) = create_session(&config).unwrap();
    let copies = fds.as_fds().iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
    (daemon, open_session(SessionFds::from_fds(copies).unwrap(), &config).unwrap(), fds)
}

/// One call with a message of `len` bytes each way, one outstanding.
fn call(daemon: &mut DaemonEnd, app: &mut AppEnd, len: u32) {
    let mut request = app.send_heap.allocate(len).unwrap();
    request.bytes_mut().fill(1);
    let span = request.lend(len);
    app.submissions.push(&[1; 8]).map(drop).unwrap();
    daemon.submissions.pop().unwrap().unwrap();
    let mut answer = daemon.receive_heap.allocate(len).unwrap();
    answer.bytes_mut().fill(2);
    let answer = answer.lend(len);
    daemon.completions.push(&[2; 8]).map(drop).unwrap();
    app.completions.pop().unwrap().unwrap();
    app.send_heap.free(span.offset).unwrap();
    drop(app.receive_heap.block(answer).unwrap());
    daemon.receive_heap.free(answer.offset).unwrap();
}

/// Attached and never used: one page. After any number of small calls: the rings' slots and a page of each heap.
#[test]
fn an_idle_session_is_small() {
    let (mut daemon, mut app, fds) = session();
    assert_eq!(resident(&fds), [4 << 10, 0, 0]);
    (0..2_000).for_each(|_| call(&mut daemon, &mut app, 500));
    let [rings, send, receive] = resident(&fds);
    assert_eq!((rings, send, receive), (68 << 10, 4 << 10, 4 << 10));
    assert!(rings + send + receive < 256 << 10, "what an idle application may cost in all");
}

/// The send heap gives back what a burst took; the receive heap's seals forbid it.
#[test]
fn a_burst_can_be_given_back() {
    let (daemon, app, fds) = session();
    let burst: Vec<_> = (0..32).map(|_| app.send_heap.allocate(100_000).unwrap()).collect();
    let kept = app.send_heap.allocate(64).unwrap();
    let mut blocks = burst;
    blocks.iter_mut().for_each(|block| block.bytes_mut().fill(1));
    let [_, before, _] = resident(&fds);
    assert!(before > 3_000_000, "{before}");
    assert_eq!(app.send_heap.trim(), Ok(0), "everything below the kept block is in use");
    drop(kept);
    drop(blocks);
    assert!(app.send_heap.trim().unwrap() as u64 >= before - 4096);
    assert_eq!(resident(&fds)[1], 0);
    assert_eq!(app.send_heap.trim(), Ok(0), "once");
    let mut again = app.send_heap.allocate(100).unwrap();
    assert_eq!(again.bytes_mut()[..100], [0; 100], "pages given back come again as zeros");

    daemon.receive_heap.allocate(100_000).unwrap().bytes_mut().fill(1);
    assert_eq!(daemon.receive_heap.trim(), Err(Errno::PERM));
    let [_, send, _, ..] = fds.as_fds();
    assert!(fstat(send.as_fd()).unwrap().st_size == 64 << 20, "the size stays");
}
