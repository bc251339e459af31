//! R2P2: datagrams one by one, and sequences of events.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use trunkline_call::{Deadline, Instant};
use trunkline_r2p2::*;

const MODES: [Mode; 3] = [Mode::Compatible, Mode::Offer, Mode::Extended];
/// Among the hosts that send to the server.
const ROUTER: u8 = 7;
pub(crate) const START: Instant = Instant(100_000_000_000);

/// One datagram: what is parsed is written again as it was.
pub(crate) fn datagrams(bytes: &[u8]) {
    for extended in [false, true] {
        let Ok(packet) = Packet::parse(bytes, extended) else { continue };
        let head = Packet::head(&packet.header, packet.extension.as_ref());
        let again = [head.as_slice(), packet.payload].concat();
        if packet.header.kind == PacketType::Feedback {
            let _ = packet.feedback_for();
        } else {
            assert_eq!(Packet::parse(&again, extended), Ok(packet));
        }
    }
}

/// A sealed datagram, at whatever address: what is opened was sealed with the key, and is opened once.
pub(crate) fn seals(bytes: &[u8]) {
    let (own, from) = (address(1), address(2));
    let mut opener = Opener::new(seal_keys(), SEALED_AT_US);
    let mut out = Vec::new();
    if opener.open(SEALED_AT_US, own, from, bytes, &mut out).is_ok() {
        assert_eq!(out.len() + SEAL_BYTES, bytes.len());
        assert_eq!(opener.open(SEALED_AT_US, own, from, bytes, &mut out), Err(Unbelieved::Replayed));
    }
    // What anybody seals is opened as it was.
    let mut sealed = Vec::new();
    let datagram = [&[MAGIC; HEADER_BYTES][..], bytes].concat();
    Sealer::new(seal_keys(), 1).seal(SEALED_AT_US, from, own, &[&datagram], &mut sealed);
    Opener::new(seal_keys(), 0)
        .open(SEALED_AT_US, own, from, &sealed, &mut out)
        .expect("it was sealed for it");
    assert_eq!(out, datagram);
}

const SEALED_AT_US: u64 = 1_700_000_000_000_000;

fn seal_keys() -> SealKeys {
    SealKeys::new(&[&[7; 32]]).expect("it is long enough")
}

/// One that is good.
pub(crate) fn seal_seeds() -> Vec<Vec<u8>> {
    let mut sealed = Vec::new();
    let pieces: [&[u8]; 2] = [&[MAGIC, 8, 0, 0xf0, 0, 1, 0, 1], b"body"];
    Sealer::new(seal_keys(), 9).seal(SEALED_AT_US, address(2), address(1), &pieces, &mut sealed);
    vec![sealed]
}

/// One envelope, as request and as reply: what is parsed says the same when it is written and parsed again.
pub(crate) fn envelopes(bytes: &[u8]) {
    if let Ok(request) = RequestEnvelope::parse(bytes) {
        let again = request.encode().expect("it came with lengths that fit");
        assert_eq!(RequestEnvelope::parse(&again), Ok(request));
    }
    if let Ok(reply) = ReplyEnvelope::parse(bytes)
        && reply.headers.is_some()
        && reply.message.is_some()
    {
        let again = reply.encode().expect("it came with lengths that fit");
        assert_eq!(ReplyEnvelope::parse(&again), Ok(reply));
    }
}

/// A request and a reply.
pub(crate) fn envelope_seeds() -> Vec<Vec<u8>> {
    let request =
        RequestEnvelope { path: "/a.B/C", message: b"abc", metadata: &[0, 0], ..Default::default() };
    let reply = ReplyEnvelope::of(trunkline_call::Code::Ok, trunkline_call::Execution::Executed);
    let reply = ReplyEnvelope { headers: Some(&[0, 0]), message: Some(b"abc"), ..reply };
    [request.encode(), reply.encode()].into_iter().flatten().collect()
}

/// Steps of a client, a server and whoever sends to them: each begins with what to do and how much of it, and is
/// followed by a datagram if it brings one.
pub(crate) fn events(bytes: &[u8]) {
    let Some((mode, mut rest)) = bytes.split_first() else { return };
    let mode = MODES[usize::from(*mode) % 3];
    let routers = vec![address(ROUTER)];
    let config = Arc::new(Config { mode, calls_max: 8, remembered_max: 8, routers, ..Config::default() });
    let (mut client, mut server) =
        (Client::new(Arc::clone(&config), 1), Server::new(Arc::clone(&config), Instant(0)));
    let (mut now, mut held, mut made, mut ended) = (START, Vec::new(), 0, 0);
    while let [what, amount, tail @ ..] = rest {
        let bytes = if *what % 7 < 2 { usize::from(*amount) } else { 0 };
        let (taken, tail) = tail.split_at(bytes.min(tail.len()));
        match what % 7 {
            0 => server.handle_datagram(now, now, address(*what), taken),
            1 => client.handle_datagram(now, address(*what), taken),
            2 => now = now.plus_ns(u64::from(*amount) * 10_000_000),
            3 => made += u64::from(client.call(now, call(now, *amount)).is_ok()),
            4 => {
                if let Some(key) = held.pop() {
                    server.reply(
                        now,
                        key,
                        vec![1; usize::from(*amount) * 40].into(),
                        None,
                        Timing::default(),
                    );
                }
            }
            5 => exchange(now, &mut client, &mut server, *amount),
            _ => hand_over(&config, now, &mut client, &mut server),
        }
        server.handle_timeout(now);
        client.handle_timeout(now);
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Request(request) = event {
                assert!(!held.contains(&request.key), "handed out twice");
                held.push(request.key);
            }
        }
        ended += std::iter::from_fn(|| client.poll_event()).count() as u64;
        rest = tail;
    }
    client.handle_timeout(now.plus_ns(100_000_000_000));
    ended += std::iter::from_fn(|| client.poll_event()).count() as u64;
    assert_eq!(ended, made, "every call ends once");
}

/// Both go on as others, which know what the first have written down.
fn hand_over(config: &Arc<Config>, now: Instant, client: &mut Client, server: &mut Server) {
    let mut taken = Client::new(Arc::clone(config), 2);
    let state = ciborium::from_reader(written(client).as_slice()).expect("it was written");
    taken.take_up(state).expect("it is sound");
    *client = taken;
    let mut taken = Server::new(Arc::clone(config), now);
    let state = ciborium::from_reader(written(server).as_slice()).expect("it was written");
    taken.take_up(state).expect("it is sound");
    *server = taken;
}

fn written(endpoint: &impl serde::Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(endpoint, &mut bytes).expect("it can be written");
    bytes
}

/// The state of a client or a server that was handed over: what is taken up goes on.
pub(crate) fn states(bytes: &[u8]) {
    let config = Arc::new(Config { mode: Mode::Extended, ..Config::default() });
    let (mut client, mut server) = (Client::new(Arc::clone(&config), 1), Server::new(config, START));
    let read = ciborium::from_reader(bytes).ok();
    let took_client = read.is_some_and(|state| client.take_up(state).is_ok());
    let read = ciborium::from_reader(bytes).ok();
    let took_server = read.is_some_and(|state| server.take_up(state).is_ok());
    if took_client || took_server {
        for step in 0..12 {
            let now = START.plus_ns(step * 1_000_000_000);
            client.handle_timeout(now);
            server.handle_timeout(now);
            exchange(now, &mut client, &mut server, 3);
            server.executing().into_iter().for_each(|key| server.refuse(now, key, Reason::Busy));
        }
    }
}

/// A client and a server in the middle of everything.
pub(crate) fn state_seeds() -> Vec<Vec<u8>> {
    let config = Arc::new(Config { mode: Mode::Extended, ..Config::default() });
    let (mut client, mut server) = (Client::new(Arc::clone(&config), 1), Server::new(config, Instant(0)));
    for (number, amount) in [1, 80, 200, 2].into_iter().enumerate() {
        client.call(START, call(START, amount)).expect("it is short");
        exchange(START, &mut client, &mut server, 6);
        while let Some(ServerEvent::Request(request)) = server.poll_event() {
            let body = vec![3; 2000 * (number % 2)];
            server.reply(START, request.key, body.into(), Some([1; 64]), Timing::default());
        }
    }
    client.call(START, call(START, 90)).expect("it is short");
    exchange(START, &mut client, &mut server, 1);
    vec![written(&client), written(&server)]
}

/// Each gets what the other has said, but for one in `lost`.
fn exchange(now: Instant, client: &mut Client, server: &mut Server, lost: u8) {
    let lost = u32::from(lost) + 1;
    let mut count = 0;
    while let Some(datagram) = client.poll_transmit() {
        count += 1;
        if count % lost != 0 {
            server.handle_datagram(now, now, address(9), &datagram.to_vec());
        }
    }
    while let Some(datagram) = server.poll_transmit() {
        count += 1;
        if count % lost != 0 {
            client.handle_datagram(now, address(1), &datagram.to_vec());
        }
    }
}

pub(crate) fn address(host: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 7000)
}

pub(crate) fn call(now: Instant, amount: u8) -> NewCall {
    NewCall {
        tag: 0,
        target: address(1),
        sticky: false,
        class: 0,
        deadline: Deadline::at(now.plus_ns(3_000_000_000)),
        body: vec![2; usize::from(amount) * 40].into(),
    }
}

/// What a client and a server say to each other in each mode.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut out = vec![[&[0xcc, 8, 0x20, 0xc0, 0, 0, 0, 1][..], &[7; 8]].concat()];
    for mode in MODES {
        let routers = vec![address(3)];
        let config = Arc::new(Config { mode, routers, ..Config::default() });
        let (mut client, mut server) = (Client::new(Arc::clone(&config), 1), Server::new(config, Instant(0)));
        server.handle_timeout(START);
        for amount in [1, 80] {
            client.call(START, call(START, amount)).expect("it is short");
            for _ in 0..4 {
                while let Some(datagram) = client.poll_transmit() {
                    out.push(datagram.to_vec());
                    out.push(on_behalf(datagram.to_vec()));
                    server.handle_datagram(START, START, address(9), &datagram.to_vec());
                }
                while let Some(ServerEvent::Request(request)) = server.poll_event() {
                    server.reply(START, request.key, request.body.into(), None, Timing::default());
                }
                while let Some(datagram) = server.poll_transmit() {
                    out.push(datagram.to_vec());
                    client.handle_datagram(START, address(1), &datagram.to_vec());
                }
            }
        }
    }
    out
}

/// As a router sends it in its own name, if it is the first packet of an extended request.
fn on_behalf(mut datagram: Vec<u8>) -> Vec<u8> {
    datagram[2] = 0x02;
    datagram.get_mut(18..24).into_iter().for_each(|address| address.fill(9));
    datagram
}

pub(crate) fn event_seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for mode in 0..3 {
        out.push(vec![
            mode, 3, 1, 5, 200, 4, 1, 5, 200, 2, 9, 3, 90, 5, 3, 5, 4, 2, 3, 5, 9, 4, 200, 5, 7, 2, 50, 5, 9,
        ]);
        for seed in seeds() {
            if let Ok(len) = u8::try_from(seed.len()) {
                out.push([&[mode, 3, 1, ROUTER, len][..], &seed, &[4, 1, 1, len], &seed].concat());
            }
        }
    }
    out
}
