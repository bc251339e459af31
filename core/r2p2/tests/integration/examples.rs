//! Shows that the examples of docs/r2p2.md are what endpoints write, and that they take them: among them every datagram
//! captured from the authors' library.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use trunkline_call::{Deadline, Instant};
use trunkline_r2p2::*;

const PAGE: &str = include_str!("../../../../docs/r2p2.md");
const NOW: Instant = Instant(100_000_000_000);

/// The fenced `hex` blocks of the page by name; `#` begins a comment.
fn examples() -> BTreeMap<&'static str, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let block: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
        let digits: String =
            block.iter().flat_map(|line| line.split('#').next()).flat_map(str::split_whitespace).collect();
        let bytes = (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap());
        assert!(found.insert(name, bytes.collect()).is_none(), "two examples named {name}");
    }
    found
}

fn at(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

/// A client whose next request id is 1, and whose ids have come round `0` times if that is asked for.
fn client_at_one(config: &Arc<Config>) -> Client {
    let id_is_one = |seed: &u64| {
        let mut client = Client::new(Arc::clone(config), *seed);
        client.call(NOW, new_call(b"")).unwrap();
        client.poll_transmit().unwrap().to_vec()[4..6] == [0, 1]
    };
    Client::new(Arc::clone(config), (0..).find(id_is_one).unwrap())
}

fn new_call(body: &[u8]) -> NewCall {
    NewCall {
        tag: 9,
        target: at("127.0.0.1:8000"),
        sticky: false,
        class: 2,
        deadline: Deadline::NONE,
        body: Bytes::copy_from_slice(body),
    }
}

fn server(config: &Arc<Config>) -> Server {
    Server::new(Arc::clone(config), Instant(0))
}

fn sent(mut poll: impl FnMut() -> Option<Transmit>) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| poll().map(|transmit| transmit.to_vec())).collect()
}

fn request_of(server: &mut Server) -> Request {
    match server.poll_event() {
        Some(ServerEvent::Request(request)) => request,
        other => panic!("{other:?} is no request"),
    }
}

const CLIENT: &str = "127.0.0.1:33000";
const SERVER: &str = "127.0.0.1:8000";

/// Calls with `request`, answers with `reply`; everything client and server write, in order.
fn exchange(config: &Arc<Config>, request: &[u8], reply: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut client, mut server) = (client_at_one(config), server(config));
    client.call(NOW, new_call(request)).unwrap();
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    let mut ended = None;
    while ended.is_none() {
        let datagrams = sent(|| client.poll_transmit());
        datagrams.iter().for_each(|datagram| server.handle_datagram(NOW, NOW, at(CLIENT), datagram));
        said.extend(datagrams);
        if let Some(ServerEvent::Request(taken)) = server.poll_event() {
            assert_eq!(taken.body, request);
            let body = Bytes::copy_from_slice(reply);
            assert!(server.reply(NOW, taken.key, body, None, Timing::default()));
        }
        let datagrams = sent(|| server.poll_transmit());
        datagrams.iter().for_each(|datagram| client.handle_datagram(NOW, at(SERVER), datagram));
        answered.extend(datagrams);
        ended = client.poll_event();
    }
    let replied = ClientEvent::Replied { tag: 9, server: at(SERVER), body: reply.into(), trailer: None };
    assert_eq!(ended, Some(replied));
    (said, answered)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7) as u8).collect()
}

#[test]
fn compatible_exchanges_are_the_captured_ones() {
    let examples = examples();
    let config = Arc::default();
    let (said, answered) = exchange(&config, b"abcd", b"abcd");
    assert_eq!(
        (&said[..], &answered[..]),
        (&[examples["request-4"].clone()][..], &[examples["reply-4"].clone()][..])
    );

    let long = pattern(1465);
    let (said, answered) = exchange(&config, &long, &long);
    let with = |name: &str, payload: &[u8]| [&examples[name], payload].concat();
    assert_eq!(said, [with("request-1465-0", &long[..14]), with("request-1465-1", &long[14..])]);
    let replies = [with("reply-1465-0", &long[..1464]), with("reply-1465-1", &long[1464..])];
    assert_eq!(answered, [&[examples["ack"].clone()][..], &replies[..]].concat());

    let reply = pattern(5000);
    let (_, answered) = exchange(&config, b"", &reply);
    for (index, datagram) in answered.iter().enumerate() {
        let payload = &reply[index * 1464..(index * 1464 + 1464).min(5000)];
        assert_eq!(*datagram, with(&format!("reply-5000-{index}"), payload));
    }
    assert_eq!(answered.len(), 4);
}

#[test]
fn drop_and_feedback_are_the_captured_ones() {
    let examples = examples();
    let routers = vec![at("10.77.0.9:9000")];
    let mut server = server(&Arc::new(Config { routers, ..Config::default() }));
    let mut request = examples["request-4"].clone();
    server.handle_datagram(NOW, NOW, at("10.77.0.1:33000"), &request);
    let key = request_of(&mut server).key;
    server.reply(NOW, key, Bytes::new(), None, Timing::default());
    let written = sent(|| server.poll_transmit());
    assert_eq!(written[1], examples["feedback"]);
    request[5] = 2;
    server.handle_datagram(NOW, NOW, at("10.77.0.1:33000"), &request);
    let key = request_of(&mut server).key;
    server.refuse(NOW, key, Reason::Busy);
    assert_eq!(sent(|| server.poll_transmit())[0], examples["drop"]);

    // As the authors' library sends it: what it leaves unset is anything.
    let garbage = [&[0xcc, 0x77, 0x2f, 0xff, 9, 9, 9, 9], &examples["feedback"][8..]].concat();
    for datagram in [&examples["feedback"], &garbage] {
        let about = Packet::parse(datagram, true).unwrap().feedback_for().unwrap();
        assert_eq!(about, FeedbackFor { id: 1, port: 33_000, ip: 0x0a4d_0001 });
    }
}

#[test]
fn extended_exchanges_are_the_page_s() {
    let examples = examples();
    let config = Arc::new(Config { mode: Mode::Extended, ..Config::default() });
    let (said, answered) = exchange(&config, b"abcd", b"abcd");
    // Round and epoch are drawn; the page shows others.
    let as_on_the_page = |datagram: &[u8]| {
        let mut datagram = datagram.to_vec();
        datagram[10..16].copy_from_slice(&[0, 0, 0x11, 0x22, 0x33, 0x44]);
        datagram
    };
    assert_eq!(as_on_the_page(&said[0]), examples["extended-request"]);
    assert_eq!(as_on_the_page(&answered[0]), examples["extended-reply"]);

    let mut server = server(&config);
    server.handle_datagram(NOW, NOW, at(CLIENT), &examples["extended-request"]);
    let request = request_of(&mut server);
    assert_eq!((request.class, &request.body[..]), (2, &b"abcd"[..]));
    server.handle_datagram(NOW, NOW, at(CLIENT), &examples["extended-request"]);
    assert_eq!(sent(|| server.poll_transmit()), [examples["extended-ack"].clone()]);
    assert!(server.poll_event().is_none(), "a repetition is not a request");
}

/// Router and worker have met: the worker has said that it takes what is sent on behalf.
#[test]
fn what_is_sent_on_behalf_is_the_page_s() {
    let examples = examples();
    let (request, on_behalf) = (&examples["extended-request"], &examples["extended-on-behalf"]);
    let (control, worker) = (at("10.77.0.9:9000"), at("10.77.0.2:8000"));
    let (preferred, workers) = (OnBehalf::Preferred, vec![(worker, 1)]);
    let config = RouterConfig { control, on_behalf: preferred, workers, ..RouterConfig::default() };
    let mut router = Router::new(config, Instant(0));
    let config = Config { mode: Mode::Extended, routers: vec![control], ..Config::default() };
    let mut server = server(&Arc::new(config));
    server.handle_timeout(NOW);
    router.handle_feedback(NOW, worker, &server.poll_transmit().unwrap().to_vec());

    router.handle_request(NOW, NOW, at(CLIENT), request);
    let forward = router.poll_forward().unwrap();
    assert_eq!((forward.client, forward.to, forward.on_behalf), (at(CLIENT), worker, true));
    assert_eq!(&forward.datagram, on_behalf);
    server.handle_datagram(NOW, NOW, at("10.77.0.8:9000"), on_behalf);
    assert_eq!((server.poll_event(), server.counters().stray), (None, 1), "nobody else speaks for clients");
    server.handle_datagram(NOW, NOW, control, on_behalf);
    let key = request_of(&mut server).key;
    server.reply(NOW, key, Bytes::from_static(b"abcd"), None, Timing::default());
    let said: Vec<Transmit> = std::iter::from_fn(|| server.poll_transmit()).collect();
    assert_eq!(said.iter().map(|transmit| transmit.to).collect::<Vec<_>>(), [at(CLIENT), control]);
    assert_eq!(said[0].to_vec(), examples["extended-reply"]);
    server.handle_datagram(NOW, NOW, at(CLIENT), request);
    assert_eq!(server.poll_event(), None, "it is the request it would be from the client itself");

    // A client that says so is none.
    router.handle_request(NOW, NOW, at(CLIENT), on_behalf);
    assert_eq!((router.poll_forward(), router.counters().stray), (None, 1));
    // Nor is one that cannot be answered: its request would take a place that nobody frees.
    router.handle_request(NOW, NOW, at("127.0.0.1:0"), request);
    assert_eq!((router.poll_forward(), router.counters().stray), (None, 2));
    // Other types, and the compatible mode, know nothing of it.
    for (kind, flags) in [(0x12, 0xf0), (0x02, 0xe0), (0x02, 0x70)] {
        let mut changed = on_behalf.clone();
        (changed[2], changed[3]) = (kind, flags);
        assert!(Packet::parse(&changed, true).is_err(), "{kind:x} {flags:x}");
    }
    assert!(Packet::parse(on_behalf, false).is_err());
}

#[test]
fn reserved_bits_mean_nothing_to_a_compatible_server() {
    let mut request = examples()["request-4"].clone();
    request[3] |= 0x3f;
    let mut server = server(&Arc::default());
    server.handle_datagram(NOW, NOW, at(CLIENT), &request);
    let taken = request_of(&mut server);
    assert_eq!(taken.body, b"abcd");
    server.reply(NOW, taken.key, Bytes::from_static(b"abcd"), None, Timing::default());
    assert_eq!(sent(|| server.poll_transmit()), [examples()["reply-4"].clone()], "answered clear");
}

#[test]
fn a_router_greets_its_workers_as_the_page_says() {
    let workers = vec![(at(SERVER), 1)];
    let mut router = Router::new(RouterConfig { workers, ..RouterConfig::default() }, NOW);
    router.handle_timeout(NOW);
    assert_eq!(sent(|| router.poll_greeting()), [examples()["greeting-of-a-router"].clone()]);
}

#[test]
fn a_seal_is_as_the_page_shows_it() {
    let examples = examples();
    let (client, server, sealed_at_us) = (at("127.0.0.1:33000"), at(SERVER), 1_700_000_000_000_000);
    let keys = SealKeys::new(&[&[1; 32]]).unwrap();
    let mut sealed = Vec::new();
    let request = &examples["request-4"];
    Sealer::new(keys.clone(), 7).seal(sealed_at_us, client, server, &[request], &mut sealed);
    assert_eq!(sealed, examples["sealed-request-4"]);
    let (mut opener, mut opened) = (Opener::new(keys, 0), Vec::new());
    opener.open(sealed_at_us, server, client, &sealed, &mut opened).unwrap();
    assert_eq!(&opened, request);
}
