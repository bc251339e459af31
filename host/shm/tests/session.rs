//! One session in one process: entries cross the rings, blocks cross the heaps, sleepers are rung.
#![cfg(not(loom))]

use trunkline_shm::{
    AppEnd, ControlSocket, DaemonEnd, Entry, SESSION_FDS, SessionConfig, SessionFds, Span, create_session,
    open_session,
};

fn small() -> SessionConfig {
    SessionConfig {
        submission_entries: 16,
        completion_entries: 16,
        send_heap_bytes: 64 << 10,
        receive_heap_bytes: 64 << 10,
    }
}

fn attached(config: &SessionConfig) -> (DaemonEnd, AppEnd) {
    let (daemon, fds) = create_session(config).unwrap();
    let (ours, theirs) = ControlSocket::pair().unwrap();
    ours.send(b"session", &fds.as_fds()).unwrap();
    let mut packet = Vec::new();
    let received = theirs.recv(&mut packet, SESSION_FDS).unwrap().unwrap();
    assert_eq!(packet, b"session");
    (daemon, open_session(SessionFds::from_fds(received).unwrap(), config).unwrap())
}

#[test]
fn entries_cross_both_rings_in_order() {
    let (mut daemon, mut app) = attached(&small());
    for round in 0..100u64 {
        for index in 0..16 {
            app.submissions.stage(&[round * 16 + index; 8]).unwrap();
        }
        assert!(app.submissions.stage(&[0; 8]).is_err(), "a seventeenth entry is refused");
        assert!(!app.submissions.publish(), "nobody sleeps");
        for index in 0..16 {
            let entry: Entry = daemon.submissions.pop().unwrap().unwrap();
            assert_eq!(entry, [round * 16 + index; 8]);
            daemon.completions.push(&entry).unwrap();
        }
        assert_eq!(daemon.submissions.pop().unwrap(), None);
        while app.completions.pop().unwrap().is_some() {}
    }
}

#[test]
fn a_message_crosses_the_send_heap_and_its_block_returns() {
    let (daemon, app) = attached(&small());
    let mut block = app.send_heap.allocate(100).unwrap();
    block.bytes_mut()[..5].copy_from_slice(b"hello");
    block.grow(4000).unwrap();
    let span = block.lend(5);
    assert_eq!(app.send_heap.bytes_in_use(), 64);
    assert_eq!(daemon.send_heap.seal(span).unwrap(), b"hello");
    app.send_heap.free(span.offset).unwrap();
    assert!(app.send_heap.free(span.offset).is_err(), "a block returns once");
    assert_eq!(app.send_heap.bytes_in_use(), 0);
}

#[test]
fn a_message_crosses_the_receive_heap_and_returns_when_dropped() {
    let (daemon, app) = attached(&small());
    let mut block = daemon.receive_heap.allocate(3000).unwrap();
    block.bytes_mut()[..3000].fill(7);
    let span = block.lend(3000);
    let received = app.receive_heap.block(span).unwrap();
    assert_eq!(&received[..], &[7; 3000]);
    let mut returns = Vec::new();
    app.receive_heap.take_returns(&mut returns);
    assert!(returns.is_empty());
    drop(received);
    app.receive_heap.take_returns(&mut returns);
    assert_eq!(returns, [span.offset]);
    assert_eq!(daemon.receive_heap.free(span.offset).unwrap(), 3008);
    assert!(app.receive_heap.block(Span { offset: 65_000, len: 1_000 }).is_err());
}

#[test]
fn an_armed_consumer_is_rung_once() {
    let (mut daemon, mut app) = attached(&small());
    assert!(daemon.submissions.arm().unwrap());
    assert!(app.submissions.push(&[1; 8]).unwrap(), "it sleeps");
    app.peer_doorbell.ring().unwrap();
    assert!(!app.submissions.push(&[2; 8]).unwrap(), "it was rung");
    assert!(daemon.own_doorbell.quiet().unwrap());
    assert!(!daemon.own_doorbell.quiet().unwrap());
    daemon.submissions.disarm();
    assert!(!daemon.submissions.arm().unwrap(), "entries wait: it must not sleep");

    assert!(app.completions.arm().unwrap());
    assert!(daemon.completions.push(&[3; 8]).unwrap());
    daemon.peer_doorbell.ring().unwrap();
    assert!(app.own_doorbell.quiet().unwrap());
    assert!(!app.own_doorbell.quiet().unwrap());
}

/// What may be used from where; the crate's documentation says the same.
#[test]
fn thread_safety_is_as_documented() {
    fn send<T: Send>() {}
    fn send_and_sync<T: Send + Sync>() {}
    send::<DaemonEnd>();
    send::<AppEnd>();
    send::<trunkline_shm::Waiter>();
    send_and_sync::<trunkline_shm::Heap>();
    send_and_sync::<trunkline_shm::Block>();
    send_and_sync::<trunkline_shm::ReceivedHeap>();
    send_and_sync::<trunkline_shm::ReceivedBlock>();
    send_and_sync::<trunkline_shm::AllegedHeap>();
    send_and_sync::<trunkline_shm::SharedSlice>();
    send_and_sync::<trunkline_shm::Ringer>();
}
