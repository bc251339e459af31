//! A daemon is replaced while a session lives: nothing in the rings is lost, and old answers stay readable.
#![cfg(not(loom))]

use rustix::fd::AsFd;
use trunkline_shm::{SessionConfig, Span, create_session, inherit_session, open_receive_heap, open_session};

#[test]
fn a_successor_goes_on_where_the_daemon_stopped() {
    let config = SessionConfig { receive_heap_bytes: 64 << 10, ..SessionConfig::default() };
    let (mut old, fds) = create_session(&config).unwrap();
    let copies = fds.as_fds().iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
    let mut app = open_session(trunkline_shm::SessionFds::from_fds(copies).unwrap(), &config).unwrap();

    // Three submissions, one of them consumed; one answer read and held, one lying in the ring; one block lent.
    (1..=3).for_each(|number| app.submissions.push(&[number; 8]).map(drop).unwrap());
    assert_eq!(old.submissions.pop(), Ok(Some([1; 8])));
    let mut answer = old.receive_heap.allocate(5).unwrap();
    answer.bytes_mut()[..5].copy_from_slice(b"first");
    let held = app.receive_heap.block(answer.lend(5)).unwrap();
    (11..=12).for_each(|number| old.completions.push(&[number; 8]).map(drop).unwrap());
    assert_eq!(app.completions.pop(), Ok(Some([11; 8])));
    old.completions.stage(&[99; 8]).unwrap(); // never published, so never sent
    let mut block = app.send_heap.allocate(3).unwrap();
    block.bytes_mut()[..3].copy_from_slice(b"req");
    let request = block.lend(3);

    let ringer = old.peer_doorbell.as_fd().try_clone_to_owned().unwrap();
    let indices = old.indices();
    drop(old);
    let (mut new, heap_fd) = inherit_session(&fds, ringer, indices, &config).unwrap();

    assert_eq!(new.submissions.pop(), Ok(Some([2; 8])));
    assert_eq!(new.send_heap.seal(request).unwrap(), b"req");
    new.completions.push(&[13; 8]).map(drop).unwrap();
    assert_eq!(app.completions.pop(), Ok(Some([12; 8])));
    assert_eq!(app.completions.pop(), Ok(Some([13; 8])));
    assert_eq!(new.submissions.pop(), Ok(Some([3; 8])));

    app.receive_heap = open_receive_heap(heap_fd, config.receive_heap_bytes).unwrap();
    let mut answer = new.receive_heap.allocate(6).unwrap();
    answer.bytes_mut()[..6].copy_from_slice(b"second");
    let second = app.receive_heap.block(answer.lend(6)).unwrap();
    assert_eq!((&held[..], &second[..]), (b"first".as_slice(), b"second".as_slice()));
    drop(held);
    assert!(!app.receive_heap.has_returns(), "the old heap has nobody to return to");
    drop(second);
    let mut returns = Vec::new();
    app.receive_heap.take_returns(&mut returns);
    assert_eq!(returns.len(), 1);

    assert!(app.completions.arm().unwrap());
    new.completions.stage(&[14; 8]).unwrap();
    new.peer_doorbell.publish(&mut new.completions).unwrap();
    assert!(app.own_doorbell.quiet().unwrap());
    app.peer_doorbell.ring().unwrap();
    assert!(new.own_doorbell.quiet().unwrap());
    assert!(app.receive_heap.block(Span { offset: 65_536, len: 1 }).is_err());
}
