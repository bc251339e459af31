//! Shows what a port holds for peers that begin and do not go on: no more for one address than it may have, no more in
//! all, and nothing for longer than its deadline or than it makes headway; and that what is due all at once is done in
//! parts.

use crate::world;
use std::net::SocketAddrV4;
use std::sync::Arc;
use trunkline_call::{Deadline, Execution, Instant};
use trunkline_r2p2::*;
use world::*;

const KIB: usize = 1 << 10;
/// What a packet brings that is not the first of a request.
const PACKET: usize = 1000;

/// For those for whom little is held there is a quarter more.
fn limited() -> Config {
    Config { held_bytes_per_peer_max: 100 * KIB, held_bytes_max: 150 * KIB, ..extended() }
}

fn server(config: Config) -> Server {
    Server::new(Arc::new(config), Instant(START.0 - S))
}

fn client(config: Config, seed: u64) -> Client {
    Client::new(Arc::new(config), seed)
}

fn call(client: &mut Client, tag: u64, bytes: usize, deadline: Deadline) -> Vec<u8> {
    let body = vec![7; bytes].into();
    let new = NewCall { tag, target: address(2, 8000), sticky: false, class: 0, deadline, body };
    client.call(START, new).unwrap();
    client.poll_transmit().unwrap().to_vec()
}

/// A packet behind the first of a message, or ACK of one, of the call whose first packet this is.
fn packet(first: &[u8], kind: PacketType, order: u16, flags: u8, part: Part, payload: &[u8]) -> Vec<u8> {
    let of = Packet::parse(first, true).unwrap();
    let flags = Flags(flags | Flags::OFFER | Flags::EXTENDED);
    let header = Header { kind, policy: Policy::Sticky, flags, id: of.header.id, order };
    let extension = Extension { identity: of.extension.unwrap().identity, part };
    [Packet::head(&header, Some(&extension)).as_slice(), payload].concat()
}

fn further(first: &[u8], index: u16) -> Vec<u8> {
    packet(first, PacketType::Request, index, 0, Part::Later, &[7; PACKET])
}

fn acknowledged(first: &[u8], next: u16) -> Vec<u8> {
    let ack = AckPart { of_reply: true, done: false, next, beyond: 0 };
    packet(first, PacketType::Ack, 1, Flags::FIRST | Flags::LAST, Part::Ack(ack), b"ACK")
}

/// Why what was sent to each was refused, and how many packets it was told besides.
fn said(mut poll: impl FnMut() -> Option<Transmit>) -> (Vec<Reason>, usize) {
    let (mut reasons, mut others) = (Vec::new(), 0);
    while let Some(transmit) = poll() {
        match Packet::parse(&transmit.to_vec(), true).unwrap().extension.map(|extension| extension.part) {
            Some(Part::Drop { reason, .. }) => reasons.push(reason),
            _ => others += 1,
        }
    }
    (reasons, others)
}

#[test]
fn requests_that_do_not_go_on_take_no_more_than_their_clients_may_have() {
    let (mut server, mut maker) = (server(limited()), client(extended(), 1));
    let firsts: Vec<_> = (0..60).map(|tag| call(&mut maker, tag, 50_000, Deadline::NONE)).collect();
    let send = |server: &mut Server, from: SocketAddrV4, datagram: &[u8]| {
        server.handle_datagram(START, START, from, datagram);
        assert_eq!(server.poll_event(), None);
        assert!(server.held_bytes() <= 150 * KIB * 5 / 4 + PACKET, "{}", server.held_bytes());
    };
    // One host from two ports: none of its requests is long, and each is let in.
    let ports = [address(1, 1000), address(1, 1001)];
    for from in ports {
        firsts[..10].iter().for_each(|first| send(&mut server, from, first));
    }
    assert_eq!(said(|| server.poll_transmit()).0, []);
    for index in 1..10 {
        for from in ports {
            firsts[..10].iter().for_each(|first| send(&mut server, from, &further(first, index)));
        }
    }
    let (reasons, _) = said(|| server.poll_transmit());
    assert!(reasons.contains(&Reason::Busy), "{reasons:?}");
    assert!(server.held_bytes() <= 100 * KIB, "{}", server.held_bytes());
    let refused = server.counters().refused;
    assert_eq!(refused as usize, reasons.iter().filter(|reason| **reason == Reason::Busy).count());
    // Others may still begin, until all have what all may have.
    for (host, first) in (3..).zip(&firsts[10..]) {
        send(&mut server, address(host, 1000), first);
        (1..10).for_each(|index| send(&mut server, address(host, 1000), &further(first, index)));
    }
    assert!(server.held_bytes() > 140 * KIB, "{}", server.held_bytes());
    assert!(said(|| server.poll_transmit()).0.contains(&Reason::Busy));
    // A request of one packet needs no room.
    server.handle_datagram(START, START, ports[0], &call(&mut maker, 99, 100, Deadline::NONE));
    assert!(matches!(server.poll_event(), Some(ServerEvent::Request(_))));
    let mut next: Server = Server::new(Arc::new(limited()), START);
    next.take_up(handed_over(&server)).unwrap();
    assert_eq!(next.held_bytes(), server.held_bytes(), "counted anew by whoever goes on");
    while !(next.len() == 1 && next.held_bytes() == 0) {
        let at = next.next_timeout().expect("it is given up");
        next.handle_timeout(at);
    }
}

#[test]
fn packets_that_are_ahead_count_for_what_they_take() {
    let (mut server, mut maker) = (server(limited()), client(extended(), 1));
    for tag in 0..16 {
        let first = call(&mut maker, tag, 500_000, Deadline::NONE);
        server.handle_datagram(START, START, address(1, 1000), &first);
        for index in 2..128 {
            let one_byte = packet(&first, PacketType::Request, index, 0, Part::Later, &[7]);
            server.handle_datagram(START, START, address(1, 1000), &one_byte);
        }
    }
    assert!(said(|| server.poll_transmit()).0.contains(&Reason::Busy));
    assert!(server.held_bytes() > 90 * KIB);
}

#[test]
fn replies_that_do_not_go_on_take_no_more_than_their_servers_may_have() {
    let mut client = client(limited(), 1);
    let firsts: Vec<_> = (0..60).map(|tag| call(&mut client, tag, 8, Deadline::NONE)).collect();
    let mut held = 0;
    for (index, of) in firsts.iter().enumerate() {
        let (from, count) = (address(if index < 40 { 2 } else { index as u8 }, 8000), 50);
        let first = packet(of, PacketType::Reply, count, Flags::FIRST, Part::Reply(None), &[7; PACKET]);
        client.handle_datagram(START, from, &first);
        for index in 1..10 {
            let later = packet(of, PacketType::Reply, index, 0, Part::Later, &[7; PACKET]);
            client.handle_datagram(START, from, &later);
            assert!(client.held_bytes() <= 150 * KIB * 5 / 4 + PACKET, "{}", client.held_bytes());
        }
        if index == 39 {
            held = client.held_bytes();
        }
    }
    assert!((90 * KIB..=100 * KIB).contains(&held), "{held}");
    let failures: Vec<_> = std::iter::from_fn(|| client.poll_event())
        .map(|event| match event {
            ClientEvent::Failed { failure, .. } => failure,
            ClientEvent::Replied { tag, .. } => panic!("call {tag} has a reply"),
        })
        .collect();
    let of = |limit| failures.iter().filter(|failure| **failure == CallFailure::Full(limit)).count();
    let (peer, port) = (PortFull::Peer { limit: 100 * KIB }, PortFull::Port { limit: 150 * KIB });
    assert!(of(peer) > 0 && of(port) > 0 && of(peer) + of(port) == failures.len(), "{failures:?}");
    assert_eq!(failures[0].execution(), Execution::Executed);
    let (reasons, _) = said(|| client.poll_transmit());
    assert_eq!(reasons, vec![Reason::Cancelled; failures.len()], "and their servers stop");
    let mut next = Client::new(Arc::new(limited()), 2);
    next.take_up(handed_over(&client)).unwrap();
    assert_eq!(next.held_bytes(), client.held_bytes());
}

/// Requests with these deadlines, in work.
fn executing(server: &mut Server, deadlines: &[Deadline]) -> (Vec<Vec<u8>>, Vec<RequestKey>) {
    let mut maker = client(extended(), 1);
    let make = |(tag, deadline)| {
        let first = call(&mut maker, tag, 100, deadline);
        server.handle_datagram(START, START, address(1, 1000), &first);
        let Some(ServerEvent::Request(request)) = server.poll_event() else { panic!("it is whole") };
        (first, request.key)
    };
    (0..).zip(deadlines.iter().copied()).map(make).unzip()
}

#[test]
fn replies_nobody_takes_are_counted_for_whoever_asked() {
    let mut server = server(limited());
    let (_, keys) = executing(&mut server, &[Deadline::at(START.plus_ns(3 * S)); 5]);
    let mut answer = |key: RequestKey, bytes: usize| {
        let room = server.room_for(key, bytes);
        let sent = server.reply(START, key, vec![7; bytes].into(), None, Timing::default());
        assert_eq!(room.is_ok(), sent);
        assert!(server.held_bytes() <= 100 * KIB);
        room
    };
    let full = Err(PortFull::Peer { limit: 100 * KIB });
    assert_eq!([keys[0], keys[1]].map(|key| answer(key, 40 * KIB)), [Ok(()); 2]);
    assert_eq!(answer(keys[2], 40 * KIB), full);
    assert_eq!(answer(keys[3], 1000), Ok(()), "one packet is kept elsewhere");
    assert_eq!(answer(keys[4], 20 * KIB), Ok(()));
    let (reasons, _) = said(|| server.poll_transmit());
    assert_eq!(reasons, [Reason::Forgotten], "it was executed, perhaps");
    // They end with their deadline, although eight seconds of silence have not passed.
    server.handle_timeout(START.plus_ns(3 * S));
    assert_eq!((server.held_bytes(), server.len()), (0, 0));
}

#[test]
fn a_reply_that_is_taken_a_packet_at_a_time_ends() {
    let mut server = server(extended());
    let (firsts, keys) = executing(&mut server, &[Deadline::NONE]);
    assert!(server.reply(START, keys[0], vec![7; 1 << 20].into(), None, Timing::default()));
    let (mut now, mut next) = (START, 0);
    while server.held_bytes() > 0 {
        match server.next_timeout().filter(|at| *at < START.plus_ns(u64::from(next + 1) * 7 * S)) {
            Some(at) => {
                now = at;
                server.handle_timeout(at);
            }
            None => {
                next += 1;
                now = START.plus_ns(u64::from(next) * 7 * S);
                server.handle_datagram(now, now, address(1, 1000), &acknowledged(&firsts[0], next));
            }
        }
    }
    assert_eq!(now, START.plus_ns(30 * S));
    assert_eq!(said(|| server.poll_transmit()).0, [Reason::Served]);
}

#[test]
fn a_request_that_comes_a_packet_at_a_time_ends() {
    let (mut server, mut maker) = (server(extended()), client(extended(), 1));
    let (from, first) = (address(1, 1000), call(&mut maker, 1, 1 << 20, Deadline::NONE));
    server.handle_datagram(START, START, from, &first);
    let mut now = START;
    for index in 1.. {
        now = now.plus_ns(7 * S);
        while let Some(at) = server.next_timeout().filter(|at| *at <= now) {
            server.handle_timeout(at);
        }
        if server.is_empty() {
            break;
        }
        server.handle_datagram(now, now, from, &further(&first, index));
    }
    assert_eq!(now, START.plus_ns(35 * S));
    assert_eq!(said(|| server.poll_transmit()).0, [Reason::Partial]);
    assert_eq!(server.held_bytes(), 0);
}

#[test]
fn a_request_that_is_not_whole_at_its_deadline_ends() {
    let (mut server, mut maker) = (server(extended()), client(extended(), 1));
    let first = call(&mut maker, 1, 5000, Deadline::at(START.plus_ns(S)));
    server.handle_datagram(START, START, address(1, 1000), &first);
    let at = server.next_timeout().unwrap();
    assert_eq!(at, START.plus_ns(S));
    server.handle_timeout(at);
    assert_eq!(said(|| server.poll_transmit()).0, [Reason::Deadline]);
    assert!(server.is_empty());
}

#[test]
fn what_is_due_at_once_is_done_in_parts() {
    let (mut server, mut maker) = (server(extended()), client(extended(), 1));
    for tag in 0..1000 {
        let first = call(&mut maker, tag, 5000, Deadline::at(START.plus_ns(60 * S)));
        server.handle_datagram(START, START, address(1, 1000), &first);
    }
    said(|| server.poll_transmit());
    let due = server.next_timeout().unwrap();
    let mut parts = Vec::new();
    while server.next_timeout().is_some_and(|at| at <= due) {
        server.handle_timeout(due);
        parts.push(said(|| server.poll_transmit()).0.len());
    }
    assert_eq!((parts.iter().sum(), parts.iter().max()), (1000, Some(&256)), "{parts:?}");
    // The client's calls all end with their deadline.
    let due = START.plus_ns(60 * S);
    let mut parts = Vec::new();
    while !maker.is_empty() {
        maker.handle_timeout(due);
        parts.push(std::iter::from_fn(|| maker.poll_event()).count());
    }
    assert_eq!((parts.iter().sum(), parts.iter().max()), (1000, Some(&256)), "{parts:?}");
}

#[test]
fn what_has_ended_is_forgotten_also_when_nobody_comes() {
    let mut server = server(extended());
    let (_, keys) = executing(&mut server, &vec![Deadline::NONE; 1000]);
    for key in keys {
        server.reply(START, key, vec![7; 1000].into(), None, Timing::default());
    }
    said(|| server.poll_transmit());
    assert!(server.remembered_bytes() > 1_000_000);
    let mut steps = 0;
    while let Some(at) = server.next_timeout() {
        assert!(at >= START.plus_ns(10 * S), "whatever may be repeated is known");
        server.handle_timeout(at);
        steps += 1;
    }
    assert_eq!((server.remembered_bytes(), steps), (0, 4), "256 at a time");
}
