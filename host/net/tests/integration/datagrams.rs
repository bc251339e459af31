//! Shows that datagrams arrive as they were sent, many at once, that each says when it came, however long it lay in its
//! socket, and that a raw socket sends in another's name with a checksum the kernel accepts. Without the right to have
//! a raw socket that part says so and shows nothing.

use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use trunkline_net::{DatagramBatch, Datagrams, Disguised, Outgoing, RawDatagrams};

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// The next `count` datagrams; fewer if they do not come within a minute.
fn receive(socket: &Datagrams, count: usize) -> Vec<(Vec<u8>, SocketAddrV4)> {
    let (mut out, mut batch) = (Vec::new(), DatagramBatch::new());
    let patience = Instant::now() + Duration::from_secs(60);
    while out.len() < count && Instant::now() < patience {
        socket.receive_batch(&mut batch).unwrap();
        out.extend(batch.iter().map(|(from, datagram)| (datagram.to_vec(), from)));
        if batch.is_empty() {
            std::thread::yield_now();
        }
    }
    out
}

#[test]
fn many_at_once() {
    let (one, other) = (Datagrams::bind(ANY).unwrap(), Datagrams::bind(ANY).unwrap());
    let (from, to) = (one.address().unwrap(), other.address().unwrap());
    let bodies: Vec<Vec<u8>> = (0..100).map(|i| vec![i as u8; i * 14]).collect();
    let batch: Vec<_> = bodies.iter().map(|body| Outgoing { to, pieces: [b"head", body] }).collect();
    assert_eq!(one.send(&batch), 100);
    for (body, (datagram, sender)) in bodies.iter().zip(receive(&other, 100)) {
        assert_eq!((datagram, sender), ([b"head", &body[..]].concat(), from));
    }
    let mut batch = DatagramBatch::new();
    other.receive_batch(&mut batch).unwrap();
    assert!(batch.is_empty() && batch.iter().next().is_none());
}

/// What lies in a socket for a while is told to have come when it did, however many batches are read of it; and what
/// came as one (UDP GRO) came together.
#[test]
fn what_has_waited_says_so() {
    let (one, other) = (Datagrams::bind(ANY).unwrap(), Datagrams::bind(ANY).unwrap());
    let to = other.address().unwrap();
    let bodies: Vec<Vec<u8>> = (0..80).map(|i| vec![i as u8; 1 + i / 2]).collect();
    let batch: Vec<_> = bodies.iter().map(|body| Outgoing { to, pieces: [body, &[]] }).collect();
    // The kernel begins to stamp a moment after the first socket of a host has asked for it.
    while !first(&one, &other).1 {}
    let before_ns = monotonic_ns();
    assert_eq!(one.send(&batch), 80);
    let after_ns = monotonic_ns();
    std::thread::sleep(Duration::from_millis(300));
    let (mut count, mut batch) = (0, DatagramBatch::new());
    while count < 80 {
        other.receive_batch(&mut batch).unwrap();
        for received in batch.received() {
            assert_eq!(received.datagram, bodies[count]);
            assert!(is_between(received.came_ns, before_ns, after_ns), "{received:?} of {before_ns}");
            assert!(received.is_told);
            count += 1;
        }
    }
    let (came_ns, is_told) = first(&one, &other);
    assert!(is_between(came_ns, after_ns, monotonic_ns()) && is_told, "and what comes later came later");
}

/// A socket that another process has bound, and in which something lies since then.
#[test]
fn what_has_waited_through_a_handover_says_so() {
    let (one, other) = (Datagrams::bind(ANY).unwrap(), Datagrams::bind(ANY).unwrap());
    let to = other.address().unwrap();
    while !first(&one, &other).1 {}
    let before_ns = monotonic_ns();
    one.send(&[Outgoing { to, pieces: [b"it lay there", &[]] }]);
    let after_ns = monotonic_ns();
    std::thread::sleep(Duration::from_millis(50));
    let next = Datagrams::inherit(other.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let mut batch = DatagramBatch::new();
    next.receive_batch(&mut batch).unwrap();
    let received: Vec<_> = batch.received().map(|one| (one.came_ns, one.is_told)).collect();
    assert!(matches!(received[..], [(came_ns, true)] if is_between(came_ns, before_ns, after_ns)));
}

/// When a datagram that is sent now came, and whether the kernel has said so.
fn first(from: &Datagrams, to: &Datagrams) -> (u64, bool) {
    from.send(&[Outgoing { to: to.address().unwrap(), pieces: [b"now", &[]] }]);
    let mut batch = DatagramBatch::new();
    while batch.is_empty() {
        to.receive_batch(&mut batch).unwrap();
    }
    batch.received().map(|one| (one.came_ns, one.is_told)).next().unwrap()
}

/// As far as one clock tells of the other, which may be slewed.
fn is_between(at_ns: u64, before_ns: u64, after_ns: u64) -> bool {
    const SLEWED_NS: u64 = 1_000_000;
    (before_ns - SLEWED_NS..=after_ns + SLEWED_NS).contains(&at_ns)
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever goes through the kernel as one comes out as it was: nothing joined, cut, lost, or out of its order.
    #[test]
    fn equal_lengths_in_a_row(runs in vec((0usize..2, length(), 1usize..50), 1..8)) {
        let one = Datagrams::bind(ANY).unwrap();
        let others = [Datagrams::bind(ANY).unwrap(), Datagrams::bind(ANY).unwrap()];
        let to = others.each_ref().map(|other| other.address().unwrap());
        let bodies: Vec<(usize, Vec<u8>)> = runs
            .iter()
            .flat_map(|(other, bytes, count)| (0..*count).map(move |i| (*other, vec![i as u8; *bytes])))
            .collect();
        let batch: Vec<_> = bodies
            .iter()
            .map(|(other, body)| (to[*other], body.split_at(body.len() / 2)))
            .map(|(to, (head, rest))| Outgoing { to, pieces: [head, rest] })
            .collect();
        prop_assert_eq!(one.send(&batch), bodies.len());
        for (index, other) in others.iter().enumerate() {
            let sent: Vec<_> = bodies.iter().filter(|(to, _)| *to == index).map(|(_, body)| body).collect();
            let received = receive(other, sent.len());
            prop_assert_eq!(received.iter().map(|(body, _)| body).collect::<Vec<_>>(), sent);
        }
    }
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), Just(1), Just(700), Just(1400), 0..3000usize]
}

#[test]
fn in_another_s_name() {
    let Some(mut raw) = RawDatagrams::open().unwrap() else {
        println!("skipped: no right to open a raw socket (CAP_NET_RAW)");
        return;
    };
    let socket = Datagrams::bind(ANY).unwrap();
    let to = socket.address().unwrap();
    let from = SocketAddrV4::new(Ipv4Addr::new(127, 1, 2, 3), 33_000);
    let bodies: Vec<Vec<u8>> = (0..40).map(|i| vec![0xff - i as u8; i * 36 + 1]).collect();
    let batch: Vec<_> = bodies.iter().map(|datagram| Disguised { from, to, datagram }).collect();
    assert_eq!(raw.send(&batch), 40);
    let received = receive(&socket, 40);
    assert_eq!(received.len(), 40, "the kernel drops what has a wrong checksum");
    for (body, (datagram, sender)) in bodies.iter().zip(received) {
        assert_eq!((&datagram, sender), (body, from));
    }
}
