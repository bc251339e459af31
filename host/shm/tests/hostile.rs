//! An application that keeps no rules: whatever it writes into its shared memory or sends, the daemon's end answers
//! with a typed fault or with bytes, and never with a panic, a hang or memory of others.
#![cfg(not(loom))]

use proptest::prelude::*;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_setfl, ftruncate, memfd_create};
use rustix::io::{Errno, dup, pwrite};
use trunkline_shm::{
    DaemonEnd, RegionFault, RingError, SessionConfig, SessionError, SessionFds, Span, create_session,
    open_session,
};

/// Where the words lie, as `docs/shared-memory.md` says.
const SUBMISSION_TAIL: u64 = 128;
const SUBMISSION_SLEEPING: u64 = 384;
const SUBMISSION_RUNG: u64 = 388;
const COMPLETION_HEAD: u64 = 640;

fn small() -> SessionConfig {
    SessionConfig {
        submission_entries: 16,
        completion_entries: 16,
        send_heap_bytes: 64 << 10,
        receive_heap_bytes: 64 << 10,
    }
}

/// A daemon's end and the raw descriptors of an application that does what it likes with them.
fn session() -> (DaemonEnd, [OwnedFd; 5]) {
    let (daemon, fds) = create_session(&small()).unwrap();
    (daemon, fds.as_fds().map(|fd| dup(fd).unwrap()))
}

fn scribble(rings: &OwnedFd, at: u64, word: u32) {
    pwrite(rings, &word.to_le_bytes(), at).unwrap();
}

#[test]
fn a_tail_beyond_the_capacity_is_a_fault() {
    let (mut daemon, [rings, ..]) = session();
    scribble(&rings, SUBMISSION_TAIL, 16);
    assert_eq!(daemon.submissions.ready(), Ok(16), "a full ring is possible");
    for claimed in [17, 15, u32::MAX, 0] {
        scribble(&rings, SUBMISSION_TAIL, claimed);
        let fault = Err(RingError::Index { word: "tail", claimed, ours: 0, capacity: 16 });
        assert_eq!(daemon.submissions.ready(), fault, "a tail of {claimed} after one of 16");
        assert_eq!(daemon.submissions.arm().map(drop), fault.map(drop));
    }
}

#[test]
fn a_head_that_was_never_published_is_a_fault() {
    let (mut daemon, [rings, ..]) = session();
    (0..16).for_each(|_| daemon.completions.stage(&[1; 8]).unwrap());
    let _ = daemon.completions.publish();
    scribble(&rings, COMPLETION_HEAD, 10);
    assert_eq!(daemon.completions.room(), Ok(10));
    for claimed in [9, 17, u32::MAX] {
        scribble(&rings, COMPLETION_HEAD, claimed);
        let fault = RingError::Index { word: "head", claimed, ours: 16, capacity: 16 };
        assert_eq!(daemon.completions.room(), Err(fault), "a head of {claimed} after one of 10");
    }
}

/// An application that claims to sleep all the time makes the daemon ring, and that is all.
#[test]
fn a_liar_about_sleep_is_rung() {
    let (mut daemon, [rings, ..]) = session();
    for entry in 0..16 {
        scribble(&rings, 768, u32::MAX);
        assert!(daemon.completions.push(&[entry; 8]).unwrap());
        daemon.peer_doorbell.ring().unwrap();
    }
    scribble(&rings, SUBMISSION_SLEEPING, 77);
    assert_eq!(daemon.submissions.pop(), Ok(None));
}

/// What an application says about when it rang is a number within two seconds, or nothing; the truth is told once.
#[test]
fn a_liar_about_when_it_rang_is_bounded() {
    let (mut daemon, [rings, ..]) = session();
    let now_ns = 7_000_000_001;
    let told = [
        (0, None),
        (now_ns as u32, Some(0)),
        (now_ns as u32, None),
        (now_ns as u32 - 35_000, Some(35_000)),
        (now_ns as u32 + 1, Some(0)),
        ((now_ns as u32).wrapping_add(1 << 31), Some(0)),
        ((now_ns as u32).wrapping_add(1 << 31) + 1, Some(u64::from(u32::MAX / 2))),
        (0, None),
    ];
    for (rung, late_ns) in told {
        scribble(&rings, SUBMISSION_RUNG, rung);
        assert_eq!(daemon.submissions.rung_ns_ago(now_ns), late_ns, "{rung}");
    }
}

/// Neither a drained, a stuffed nor a blocking doorbell can make the daemon wait.
#[test]
fn doorbells_never_block_the_daemon() {
    let (daemon, [.., bell, peer_bell]) = session();
    for fd in [&bell, &peer_bell] {
        fcntl_setfl(fd, rustix::fs::OFlags::empty()).unwrap();
    }
    assert_eq!(daemon.own_doorbell.quiet(), Ok(false), "empty and blocking");
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert_eq!(daemon.own_doorbell.quiet(), Ok(true));
    for _ in 0..10_000 {
        daemon.peer_doorbell.ring().unwrap(); // nobody reads
    }
    let sent = rustix::net::send(&peer_bell, &[1], rustix::net::SendFlags::NOSIGNAL);
    assert_eq!(sent, Err(Errno::PIPE), "nothing can be put into the daemon's end, no descriptor either");
    drop(peer_bell);
    daemon.peer_doorbell.ring().unwrap(); // and raises no signal when nobody can
}

/// Whoever reads a pipe by `splice` into something full holds the lock of the pipe that a writer waits for: a doorbell
/// that is one fails here. Of a socket the kernel waits for room before it touches the socket.
#[test]
fn who_reads_its_doorbell_for_long_does_not_block_the_daemon() {
    let (daemon, [.., peer_bell]) = session();
    fcntl_setfl(&peer_bell, rustix::fs::OFlags::empty()).unwrap();
    daemon.peer_doorbell.ring().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let moving = std::thread::spawn(move || {
        let _ = tell.send(rustix::thread::gettid());
        // Where neither works the thread ends, and there is nothing that the ring could wait for.
        let _ = splice_to_full(&peer_bell, false).or_else(|_| splice_to_full(&peer_bell, true));
    });
    let reader = told.recv().unwrap();
    let waits = || {
        let state = std::fs::read_to_string(format!("/proc/self/task/{}/stat", reader.as_raw_nonzero()));
        state.is_ok_and(|state| state.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
    };
    while !waits() && !moving.is_finished() {
        std::thread::yield_now();
    }
    let (done, rung) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(daemon.peer_doorbell.ring()));
    rung.recv_timeout(std::time::Duration::from_secs(60)).expect("the ring returns").unwrap();
}

/// Has the kernel move a byte to where there is no room for it, which takes for ever.
fn splice_to_full(from: &OwnedFd, to_pipe: bool) -> Result<usize, Errno> {
    let (_reader, full) = match to_pipe {
        true => rustix::pipe::pipe()?,
        false => rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::empty(),
            None,
        )?,
    };
    fcntl_setfl(&full, rustix::fs::OFlags::NONBLOCK)?;
    while rustix::io::write(&full, &[0; 4096]).is_ok() {}
    fcntl_setfl(&full, rustix::fs::OFlags::empty())?;
    rustix::pipe::splice(from, None, &full, None, 1, rustix::pipe::SpliceFlags::empty())
}

/// Holes and new contents in its own regions change what is read, not whether it can be read.
#[test]
fn regions_cannot_be_cut_short_or_made_writable() {
    let (daemon, [rings, send, receive, ..]) = session();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(pwrite(&receive, b"forged", 0), Err(Errno::BADF), "it is given to read");
    assert_eq!(rustix::fs::fallocate(&receive, hole, 0, 4096), Err(Errno::BADF));
    // Whoever runs as the daemon's own user opens it anew, for writing, too.
    let path = format!("/proc/self/fd/{}", receive.as_raw_fd());
    let receive = OwnedFd::from(std::fs::File::options().read(true).write(true).open(path).unwrap());
    for fd in [&rings, &send, &receive] {
        assert_eq!(ftruncate(fd, 0), Err(Errno::PERM));
        assert_eq!(ftruncate(fd, 1 << 30), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM), "sealed against further seals");
    }
    assert_eq!(pwrite(&receive, b"forged", 0), Err(Errno::PERM), "the receive heap is the daemon's to write");
    assert_eq!(rustix::fs::fallocate(&receive, hole, 0, 4096), Err(Errno::PERM));
    pwrite(&send, b"claim", 0).unwrap();
    rustix::fs::fallocate(&send, hole, 0, 4096).unwrap();
    assert_eq!(daemon.send_heap.seal(Span { offset: 0, len: 5 }).unwrap(), [0; 5]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any words in the rings region give entries, nothing or a fault, never more entries than the ring holds.
    #[test]
    fn any_ring_words_are_survived(words in prop::collection::vec((0..32u64, any::<u32>()), 1..20)) {
        let (mut daemon, [rings, ..]) = session();
        for (line, word) in words {
            scribble(&rings, line * 32, word);
            let ready = daemon.submissions.ready().unwrap_or(0);
            prop_assert!(ready <= 16);
            while let Ok(Some(_)) = daemon.submissions.pop() {}
            let _ = daemon.submissions.arm();
            daemon.submissions.disarm();
            let _ = daemon.completions.push(&[u64::from(word); 8]);
            prop_assert!(daemon.completions.room().unwrap_or(0) <= 16);
        }
    }

    /// Any span is either within the heap or refused.
    #[test]
    fn any_span_is_survived(offset in any::<u32>(), len in any::<u32>()) {
        let (daemon, _fds) = session();
        let span = Span { offset, len };
        let within = u64::from(offset) + u64::from(len) <= 64 << 10;
        prop_assert_eq!(daemon.send_heap.gather(span).is_ok(), within);
        prop_assert_eq!(daemon.send_heap.seal(span).map(|copy| copy.len()).ok(), within.then_some(len as usize));
    }

    /// Any offset is returned at most once, and only if it was handed over.
    #[test]
    fn any_return_is_survived(offsets in prop::collection::vec(0..70_000u32, 1..50)) {
        let (daemon, _fds) = session();
        let held = daemon.receive_heap.allocate(100).unwrap();
        let lent = daemon.receive_heap.allocate(100).unwrap().lend(100).offset;
        let mut returned = 0;
        for offset in offsets.into_iter().chain([lent, lent, held.offset()]) {
            returned += u32::from(daemon.receive_heap.free(offset).is_ok());
        }
        prop_assert_eq!(returned, 1);
        prop_assert_eq!(daemon.receive_heap.bytes_in_use(), held.capacity());
    }
}

/// The application checks what it is given as well: a daemon that is none is found out before anything is mapped.
#[test]
fn forged_descriptors_are_refused() {
    let config = small();
    let forge = |which: usize, forged: OwnedFd| {
        let (_daemon, fds) = session();
        let mut fds = Vec::from(fds);
        fds[which] = forged;
        open_session(SessionFds::from_fds(fds).unwrap(), &config).map(drop).unwrap_err()
    };
    let memfd = |bytes: u64, seals| {
        let fd = memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, bytes).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for (which, region) in [(0, "rings"), (1, "send heap"), (2, "receive heap")] {
        let of = |error| match error {
            SessionError::Region { region: found, fault } if found == region => fault,
            other => panic!("{region}: {other}"),
        };
        assert_eq!(of(forge(which, tempfile::tempfile().unwrap().into())), RegionFault::NotMemfd);
        let unsealed = of(forge(which, memfd(64 << 10, SealFlags::GROW)));
        assert!(matches!(unsealed, RegionFault::Seals { .. }), "{region}: {unsealed}");
        let short = of(forge(which, memfd(4096, size | SealFlags::FUTURE_WRITE)));
        assert!(matches!(short, RegionFault::Length { found: 4096, .. }), "{region}: {short}");
    }
    let writable = forge(2, memfd(64 << 10, size));
    assert!(matches!(
        writable,
        SessionError::Region { region: "receive heap", fault: RegionFault::Seals { .. } }
    ));
    let blank = forge(0, memfd(config.rings_bytes() as u64, size));
    assert!(matches!(blank, SessionError::Header { word: "magic", found: 0, .. }), "{blank}");
    let (_daemon, fds) = session();
    let few = Vec::from(fds).into_iter().take(4).collect();
    assert!(matches!(SessionFds::from_fds(few), Err(SessionError::DescriptorCount { found: 4 })));
}

#[test]
fn sizes_beyond_the_limits_are_refused() {
    let refused = |change: fn(&mut SessionConfig), name: &str| {
        let mut config = SessionConfig::default();
        change(&mut config);
        match create_session(&config) {
            Err(SessionError::Size { field, .. }) => assert_eq!(field, name),
            other => panic!("{other:?}"),
        }
    };
    refused(|config| config.submission_entries = 8, "submission_entries");
    refused(|config| config.submission_entries = 48, "submission_entries");
    refused(|config| config.completion_entries = 1 << 17, "completion_entries");
    refused(|config| config.completion_entries = 0, "completion_entries");
    refused(|config| config.send_heap_bytes = 0, "send_heap_bytes");
    refused(|config| config.receive_heap_bytes = (64 << 10) + 64, "receive_heap_bytes");
    refused(|config| config.receive_heap_bytes = u32::MAX, "receive_heap_bytes");
}

/// The doorbell's descriptor can be polled: readable after a ring, silent after `quiet`.
#[test]
fn a_doorbell_wakes_a_poll() {
    let (daemon, [.., bell, _]) = session();
    let readable = || trunkline_shm::sleep_on(&[daemon.own_doorbell.as_fd()], Some(0)).unwrap();
    assert_eq!(readable(), 0);
    rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
    assert_eq!(readable(), 1);
    daemon.own_doorbell.quiet().unwrap();
    assert_eq!(readable(), 0);
}
