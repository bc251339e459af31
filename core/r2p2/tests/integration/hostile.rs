//! Shows that no bytes, in no order, make an endpoint panic, grow or execute anything twice, and that what is parsed is
//! written again as it was.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use trunkline_call::{Deadline, Instant};
use trunkline_r2p2::*;

const START: Instant = Instant(100_000_000_000);

fn from(host: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 7000)
}

/// Bytes that often look like a datagram.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let extension = (2u8..22, any::<u8>(), 0u16..3, 0u32..2, proptest::collection::vec(any::<u8>(), 0..80));
    let shaped = (0u8..5, 0u8..3, any::<u8>(), 0u16..4, 0u16..6, extension).prop_map(
        |(kind, policy, flags, id, order, (len, bits, round, epoch, rest))| {
            let mut out = vec![0xcc, 8, kind << 4 | policy, flags & 0xf0];
            out.extend(id.to_be_bytes());
            out.extend(order.to_be_bytes());
            out.extend([len, bits & 0x1f]);
            out.extend(round.to_be_bytes());
            out.extend(epoch.to_be_bytes());
            out.extend(rest);
            out
        },
    );
    prop_oneof![4 => shaped, 1 => proptest::collection::vec(any::<u8>(), 0..100)]
}

#[derive(Clone, Debug)]
enum Event {
    Datagram(u8, Vec<u8>),
    Later(u64),
    Call,
    Answer,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u8..4, datagram()).prop_map(|(host, bytes)| Event::Datagram(host, bytes)),
        2 => (0u64..3_000_000_000).prop_map(Event::Later),
        1 => Just(Event::Call),
        1 => Just(Event::Answer),
    ]
}

#[derive(Clone, Debug)]
enum AtRouter {
    Request(u8, Vec<u8>),
    Feedback(u8, Vec<u8>),
    Later(u64),
}

/// What comes to a router: half of it from clients and workers that know the protocol.
fn at_router() -> impl Strategy<Value = AtRouter> {
    let sound = |kind, part, body: &[u8], id, flags| {
        let flags = Flags(Flags::FIRST | Flags::LAST | flags);
        let header = Header { kind, policy: Policy::Unrestricted, flags, id, order: 1 };
        let extension = Extension { identity: Identity { epoch: 1, round: 0 }, part };
        let extension = flags.has(Flags::EXTENDED).then_some(&extension);
        [Packet::head(&header, extension).as_slice(), body].concat()
    };
    let request = (0u16..6, any::<bool>(), prop_oneof![Just(0x20u8), Just(0x30)]).prop_map(
        move |(id, again, flags)| {
            let (class, router, client) = (0, None, None);
            let part = RequestPart { again, class, router, client, age_us: 0, budget_us: u32::MAX };
            sound(PacketType::Request, Part::Request(part), &[1; 4], id, flags)
        },
    );
    let cancel = (0u16..6).prop_map(move |id| {
        let part = Part::Drop { reason: Reason::Cancelled, delay_us: 0, client: None };
        sound(PacketType::Drop, part, b"DROP", id, 0x30)
    });
    let feedback = (0u16..6, 0u8..3, any::<bool>(), any::<bool>(), 0u64..9, 0u64..9).prop_map(
        move |(id, host, leaving, on_behalf, taken, served)| {
            let about = FeedbackFor { id, port: 7000, ip: u32::from(*from(host).ip()) };
            let about = if id == 0 { NO_REQUEST } else { about };
            let (slots, queue_ns, service_ns, epoch) = (2, 0, 1000, u32::from(host > 1));
            let part = FeedbackPart { slots, leaving, on_behalf, queue_ns, service_ns, epoch, taken, served };
            sound(PacketType::Feedback, Part::Feedback(part), &about.encode(), id, 0x30)
        },
    );
    let asked = prop_oneof![3 => request, 1 => cancel, 1 => datagram()];
    let said = prop_oneof![3 => feedback, 1 => datagram()];
    prop_oneof![
        4 => (0u8..3, asked).prop_map(|(host, bytes)| AtRouter::Request(host, bytes)),
        3 => (4u8..7, said).prop_map(|(host, bytes)| AtRouter::Feedback(host, bytes)),
        1 => (0u64..1_500_000_000).prop_map(AtRouter::Later),
    ]
}

fn config(mode: Mode) -> Arc<Config> {
    Arc::new(Config {
        mode,
        calls_max: 8,
        remembered_max: 8,
        routers: vec![from(3)],
        held_bytes_per_peer_max: 12_000,
        held_bytes_max: HELD_BYTES_MAX,
        ..Config::default()
    })
}

const HELD_BYTES_MAX: usize = 16_000;
/// What shows that no more is to be held.
const PACKET_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64;

proptest! {
    #[test]
    fn what_is_parsed_is_written_again(bytes in datagram(), extended: bool) {
        let Ok(packet) = Packet::parse(&bytes, extended) else { return Ok(()) };
        if packet.header.kind == PacketType::Feedback && bytes.len() == 16 {
            return Ok(());
        }
        let head = Packet::head(&packet.header, packet.extension.as_ref());
        let again = [head.as_slice(), packet.payload].concat();
        prop_assert_eq!(Packet::parse(&again, extended), Ok(packet));
    }

    #[test]
    fn a_server_takes_anything(events in proptest::collection::vec(event(), 1..200), mode in 0..3) {
        let mode = [Mode::Compatible, Mode::Offer, Mode::Extended][mode as usize];
        let mut server = Server::new(config(mode), Instant(0));
        let (mut now, mut held) = (START, Vec::new());
        let mut live = HashSet::new();
        for event in events {
            match event {
                Event::Datagram(host, bytes) => server.handle_datagram(now, now, from(host), &bytes),
                Event::Later(ns) => {
                    now = now.plus_ns(ns);
                    server.handle_timeout(now);
                }
                Event::Call | Event::Answer => if let Some(key) = held.pop() {
                    live.remove(&key);
                    server.reply(now, key, Bytes::from_static(&[1; 5000]), None, Timing::default());
                },
            }
            while let Some(event) = server.poll_event() {
                if let ServerEvent::Request(request) = event {
                    prop_assert!(live.insert(request.key), "handed out twice");
                    held.push(request.key);
                }
            }
            while let Some(transmit) = server.poll_transmit() {
                prop_assert!(transmit.len() <= HEADER_BYTES + PAYLOAD_BYTES_MAX);
            }
            prop_assert!(server.len() <= 8);
            prop_assert!(server.held_bytes() <= HELD_BYTES_MAX * 5 / 4 + PACKET_BYTES_MAX);
        }
        for key in held {
            server.refuse(now, key, Reason::Busy);
        }
        for _ in 0..60 {
            now = now.plus_ns(1_000_000_000);
            server.handle_timeout(now);
        }
        prop_assert!(server.is_empty(), "nothing is held for ever");
        prop_assert_eq!((server.held_bytes(), server.remembered_bytes()), (0, 0));
    }

    #[test]
    fn a_router_takes_anything(
        events in proptest::collection::vec(at_router(), 1..200),
        on_behalf in prop_oneof![Just(OnBehalf::Never), Just(OnBehalf::Preferred), Just(OnBehalf::Only)],
    ) {
        let config = RouterConfig {
            control: from(9),
            on_behalf,
            workers: vec![(from(4), 1)],
            join_from: vec![(Ipv4Addr::new(10, 0, 0, 0), 24)],
            workers_max: 2,
            leases_max: 8,
            queue_max: 4,
            ..RouterConfig::default()
        };
        let mut router = Router::new(config, Instant(0));
        let mut now = START;
        for event in events {
            match event {
                AtRouter::Request(host, bytes) => router.handle_request(now, now, from(host), &bytes),
                AtRouter::Feedback(host, bytes) => router.handle_feedback(now, from(host), &bytes),
                AtRouter::Later(ns) => {
                    now = now.plus_ns(ns);
                    router.handle_timeout(now);
                }
            }
            while let Some(forward) = router.poll_forward() {
                let packet = Packet::parse(&forward.datagram, true).expect("what is sent on can be read");
                let client = forward.on_behalf.then_some(forward.client);
                prop_assert_eq!(packet.on_behalf_of(), client);
                prop_assert!(on_behalf != OnBehalf::Never || !forward.on_behalf);
                prop_assert!(on_behalf != OnBehalf::Only || forward.on_behalf);
            }
            while let Some(transmit) = router.poll_transmit() {
                prop_assert!(Packet::parse(&transmit.to_vec(), true).is_ok());
            }
            // Half as many again for other sources.
            prop_assert!(router.live() <= 8 && router.queued() <= 6 && router.workers().len() <= 2);
        }
        for _ in 0..100 {
            now = now.plus_ns(100_000_000);
            router.handle_timeout(now);
        }
        prop_assert_eq!((router.live(), router.queued()), (0, 0), "nothing is held for ever");
    }

    #[test]
    fn a_client_takes_anything(events in proptest::collection::vec(event(), 1..200), mode in 0..3) {
        let mode = [Mode::Compatible, Mode::Offer, Mode::Extended][mode as usize];
        let mut client = Client::new(config(mode), 1);
        let (mut now, mut made, mut ended) = (START, 0u64, HashSet::new());
        let mut last = Vec::new();
        for event in events {
            match event {
                // What is aimed at the last call, with the rest of it as it comes.
                Event::Datagram(host, mut bytes) => {
                    if bytes.len() > 16 && last.len() > 16 && host > 0 {
                        bytes[4..6].copy_from_slice(&last[4..6]);
                        bytes[10..16].copy_from_slice(&last[10..16]);
                    }
                    client.handle_datagram(now, from(host), &bytes);
                }
                Event::Later(ns) => {
                    now = now.plus_ns(ns);
                    client.handle_timeout(now);
                }
                Event::Call | Event::Answer => {
                    let deadline = Deadline::at(now.plus_ns(5_000_000_000));
                    let (sticky, body) = (false, Bytes::from_static(&[2; 3000]));
                    let new = NewCall { tag: made, target: from(1), sticky, class: 0, deadline, body };
                    made += u64::from(client.call(now, new).is_ok());
                }
            }
            while let Some(transmit) = client.poll_transmit() {
                last = transmit.to_vec();
            }
            while let Some(event) = client.poll_event() {
                let (ClientEvent::Replied { tag, .. } | ClientEvent::Failed { tag, .. }) = event;
                prop_assert!(ended.insert(tag), "call {} ended twice", tag);
            }
            prop_assert!(client.held_bytes() <= HELD_BYTES_MAX * 5 / 4 + PACKET_BYTES_MAX);
        }
        client.handle_timeout(now.plus_ns(6_000_000_000));
        while let Some(event) = client.poll_event() {
            let (ClientEvent::Replied { tag, .. } | ClientEvent::Failed { tag, .. }) = event;
            prop_assert!(ended.insert(tag), "call {} ended twice", tag);
        }
        prop_assert_eq!(ended.len() as u64, made, "every call ends");
        prop_assert!(client.is_empty() && client.held_bytes() == 0);
    }
}
