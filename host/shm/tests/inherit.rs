//! A daemon is replaced while a session lives: nothing in the rings is lost, old answers stay readable and are
//! returned, what was being written is written on, and books that cannot be are refused.
#![cfg(not(loom))]

use rustix::fd::AsFd;
use trunkline_shm::{
    Bells, BlockState, DaemonEnd, RingIndices, SessionConfig, SessionError, Span, create_session,
    heap_number, inherit_heaps, inherit_rings, open_session, open_successor_heap,
};

/// The doorbells of a session, again.
fn bells(end: &DaemonEnd) -> Bells {
    let [own, ringer] = [end.own_doorbell.as_fd(), end.peer_doorbell.as_fd()];
    Bells { own: own.try_clone_to_owned().unwrap(), ringer: ringer.try_clone_to_owned().unwrap() }
}

#[test]
fn a_successor_goes_on_where_the_daemon_stopped() {
    let config = SessionConfig { receive_heap_bytes: 64 << 10, ..SessionConfig::default() };
    let (mut old, fds) = create_session(&config).unwrap();
    let mut app = open_session(fds, &config).unwrap();

    // Three submissions, one of them consumed; one answer read and held, one block half written; one answer lying in
    // the ring; one block lent.
    (1..=3).for_each(|number| app.submissions.push(&[number; 8]).map(drop).unwrap());
    assert_eq!(old.submissions.pop(), Ok(Some([1; 8])));
    let mut answer = old.receive_heap.allocate(5).unwrap();
    answer.bytes_mut()[..5].copy_from_slice(b"first");
    let held = app.receive_heap.block(answer.lend(5)).unwrap();
    let half = old.receive_heap.allocate(2000).unwrap();
    let half_at = half.offset();
    (11..=12).for_each(|number| old.completions.push(&[number; 8]).map(drop).unwrap());
    assert_eq!(app.completions.pop(), Ok(Some([11; 8])));
    old.completions.stage(&[99; 8]).unwrap(); // never published, so never sent
    let mut block = app.send_heap.allocate(3).unwrap();
    block.bytes_mut()[..3].copy_from_slice(b"req");
    let request = block.lend(3);

    let (bells, regions) = (bells(&old), &old.regions);
    let indices = RingIndices::of(&old.submissions, &old.completions);
    let blocks = old.receive_heap.blocks();
    let (mut submissions, mut completions, ringer, doorbell) =
        inherit_rings(&regions.rings, bells, indices, &regions.config).unwrap();
    let (send_heap, receive_heap, heap_fd) = inherit_heaps(&regions.send_heap, &blocks, &config).unwrap();
    drop((old, half));

    assert_eq!(submissions.pop(), Ok(Some([2; 8])));
    assert_eq!(send_heap.seal(request).unwrap(), b"req");
    completions.push(&[13; 8]).map(drop).unwrap();
    assert_eq!(app.completions.pop(), Ok(Some([12; 8])));
    assert_eq!(app.completions.pop(), Ok(Some([13; 8])));
    assert_eq!(submissions.pop(), Ok(Some([3; 8])));

    let next = open_successor_heap(heap_fd, config.receive_heap_bytes, 1).unwrap();
    let [mut half] = <[_; 1]>::try_from(receive_heap.take_held()).unwrap();
    assert_eq!((half.offset(), half.capacity() >= 2000), (half_at, true));
    half.bytes_mut()[..6].copy_from_slice(b"second");
    let Span { offset, len } = half.lend(6);
    let tagged = Span { offset: offset | 1, len };
    assert!(app.receive_heap.block(tagged).is_err(), "the number says that it lies in the other heap");
    let second = next.block(tagged).unwrap();
    assert_eq!((&held[..], &second[..]), (b"first".as_slice(), b"second".as_slice()));
    // Blocks of both heaps are in the one set of books.
    let returned = held.into_span().offset;
    assert!(heap_number(returned) == 0 && receive_heap.free(returned).is_ok());
    assert_eq!(second.into_span(), tagged);
    assert!(receive_heap.free(offset).is_ok() && receive_heap.free(returned).is_err());
    assert_eq!(receive_heap.bytes_in_use(), 0);

    assert!(app.completions.arm().unwrap());
    completions.stage(&[14; 8]).unwrap();
    ringer.publish(&mut completions).unwrap();
    assert!(app.own_doorbell.quiet().unwrap());
    app.peer_doorbell.ring().unwrap();
    assert!(doorbell.quiet().unwrap());
}

/// A daemon of an earlier version rang through pipes, which applications can hold shut.
#[test]
fn a_doorbell_that_is_a_pipe_is_refused() {
    let config = SessionConfig::default();
    let (end, _fds) = create_session(&config).unwrap();
    let (_reader, ringer) = rustix::pipe::pipe().unwrap();
    let indices = RingIndices::of(&end.submissions, &end.completions);
    let inherited = inherit_rings(&end.regions.rings, Bells { ringer, ..bells(&end) }, indices, &config);
    assert!(matches!(inherited, Err(SessionError::Doorbell)), "{inherited:?}");
}

#[test]
fn books_that_cannot_be_are_refused() {
    let config = SessionConfig::default();
    let (end, _fds) = create_session(&config).unwrap();
    let block = |offset, len| BlockState { offset, len, lent: true };
    let refused: [&[BlockState]; 6] = [
        &[block(0, 0)],
        &[block(1, 64)],
        &[block(0, 65)],
        &[block(0, 128), block(64, 64)],
        &[block(128, 64), block(0, 64)],
        &[block(config.receive_heap_bytes - 64, 128)],
    ];
    for blocks in refused {
        let inherited = inherit_heaps(&end.regions.send_heap, blocks, &config);
        assert!(matches!(inherited, Err(SessionError::Blocks)), "{blocks:?}");
    }
    let good = [block(0, 64), block(64, 64), block(config.receive_heap_bytes - 64, 64)];
    let (_, heap, _) = inherit_heaps(&end.regions.send_heap, &good, &config).unwrap();
    assert_eq!((heap.blocks(), heap.take_held().len()), (good.to_vec(), 0));
}
