//! Shows HTTP/2 end to end, our client against our server: calls, windows, many streams, early ends, leaving.

use crate::ends;

use bytes::Bytes;
use ends::{End, WATCHDOG, own, pair, request, response, streams, trailers, until};
use std::io::IoSlice;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_grpc::{Command, Event, Reason, ResetBy, StreamTag};
use trunkline_net::{Http2, Http2Settings, Interest, Transfer};

fn settings() -> (Http2Settings, Http2Settings) {
    (Http2Settings::server(), Http2Settings::client())
}

fn start(client: &mut End, number: u64, body: &[u8], end: bool) -> StreamTag {
    let stream = own(number);
    client.command(Command::Request { stream, head: request("/a.B/C"), end: false });
    client.command(Command::Data { stream, bytes: Bytes::copy_from_slice(body), end });
    stream
}

fn answer(server: &mut End, stream: StreamTag, body: Bytes) {
    server.command(Command::Response { stream, head: response(), end: false });
    server.command(Command::Data { stream, bytes: body, end: false });
    server.command(Command::Trailers { stream, trailers: trailers() });
}

/// Bytes of one stream's body, and whether it has ended.
fn body_of(end: &End, wanted: StreamTag) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    let mut has_ended = false;
    for event in &end.events {
        match event {
            Event::Data { stream, bytes, end } if *stream == wanted => {
                assert!(!has_ended, "data after the end");
                body.extend_from_slice(bytes);
                has_ended = *end;
            }
            Event::Trailers { stream, .. } if *stream == wanted => has_ended = true,
            _ => {}
        }
    }
    (body, has_ended)
}

fn reset_of(end: &mut End, wanted: StreamTag) -> Option<Reason> {
    end.take(|event| match event {
        Event::Reset { stream, reason, .. } if *stream == wanted => Some(*reason),
        _ => None,
    })
}

#[test]
fn a_unary_call() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, b"question", true);
    let (tag, head) = until(&mut server, &mut client, |server, _| {
        server.take(|event| match event {
            Event::Request { stream, head, end: false } => Some((*stream, head.clone())),
            _ => None,
        })
    });
    assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/a.B/C"));
    assert_eq!(head.headers["te"], "trailers");
    until(&mut server, &mut client, |server, _| body_of(server, tag).1.then_some(()));
    assert_eq!(body_of(&server, tag).0, b"question");
    answer(&mut server, tag, Bytes::from_static(b"answer"));
    until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
    assert_eq!(body_of(&client, stream).0, b"answer");
    let kinds: Vec<&str> = client.events.iter().map(kind).collect();
    assert_eq!(kinds, ["written", "sent", "response", "data", "trailers"]);
    assert_eq!(server.http.as_ref().unwrap().streams_open(), 0);
    client.command(Command::Release { stream, bytes: 6 });
    assert_eq!(client.http.as_ref().unwrap().streams_open(), 0, "all is released");
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Ready { .. } => "ready",
        Event::Request { .. } => "request",
        Event::Response { .. } => "response",
        Event::Data { .. } => "data",
        Event::Trailers { .. } => "trailers",
        Event::Reset { .. } => "reset",
        Event::Sent { .. } => "sent",
        Event::Written { .. } => "written",
        Event::GoAway { .. } => "go away",
        Event::StreamsMax { .. } => "streams max",
    }
}

#[test]
fn an_end_behind_the_last_bytes_is_told_with_them() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, b"question", false);
    // What has not left yet leaves with the end; what has, is followed by a frame of its own.
    client.turn();
    client.command(Command::Data { stream, bytes: Bytes::new(), end: true });
    client.turn();
    until(&mut server, &mut client, |server, _| {
        server.events.iter().any(|event| kind(event) == "data").then_some(())
    });
    let data: Vec<(usize, bool)> = server
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Data { bytes, end, .. } => Some((bytes.len(), *end)),
            _ => None,
        })
        .collect();
    assert_eq!(data, [(8, true)]);
}

#[test]
fn a_refusal_is_one_frame() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, b"", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    server.command(Command::Response { stream: tag, head: response(), end: true });
    let end = until(&mut server, &mut client, |_, client| {
        client.take(|event| match event {
            Event::Response { stream: of, end, .. } if *of == stream => Some(*end),
            _ => None,
        })
    });
    assert!(end);
    assert_eq!(client.http.as_ref().unwrap().streams_open(), 0);
}

/// A head or trailers of an answer above the limit end its call by name, not one field is told, and the connection goes
/// on: those that h2 would read in part, too.
#[test]
fn large_header_lists_of_answers_are_refused_by_name() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let lists = [("v", 66_000), ("v", 400_000), ("X", 500_000), ("X", 1_000_000), ("v", 1_100_000)]
        .map(|(value, bytes)| value.repeat(bytes));
    for (number, list) in lists.iter().chain(&lists).enumerate() {
        let stream = start(&mut client, number as u64 + 1, b"question", true);
        let tag = until(&mut server, &mut client, |server, _| server.take_request());
        let (mut head, mut last) = (response(), trailers());
        let headers = if number < lists.len() { &mut last } else { &mut head.headers };
        *headers = http::HeaderMap::new();
        headers.insert("a", "1".parse().unwrap());
        headers.insert("big", list.parse().unwrap());
        headers.insert("grpc-status", "0".parse().unwrap());
        server.command(Command::Response { stream: tag, head, end: false });
        server.command(Command::Trailers { stream: tag, trailers: last });
        let by = until(&mut server, &mut client, |_, client| {
            client.take(|event| match event {
                Event::Trailers { .. } => panic!("{event:?}"),
                Event::Reset { stream: of, by, .. } if *of == stream => Some(*by),
                _ => None,
            })
        });
        assert_eq!(by, ResetBy::Limit("http2.header_list_bytes_max"), "{} bytes", list.len());
    }
    let stream = start(&mut client, 20, b"question", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    answer(&mut server, tag, Bytes::from_static(b"answer"));
    until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
    assert_eq!((server.over, client.over), (None, None));
}

/// Huffman's code has more bits than eight for some characters: lists within the limit come in blocks of twice as many
/// bytes, and are told.
#[test]
fn lists_within_the_limit_are_told_however_they_are_written() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    for (number, value) in ["~", "\\", "\u{e4}"].into_iter().enumerate() {
        let list = value.repeat(60_000 / value.len());
        let list = http::HeaderValue::from_bytes(list.as_bytes()).unwrap();
        let stream = start(&mut client, number as u64 + 1, b"question", true);
        let tag = until(&mut server, &mut client, |server, _| server.take_request());
        let (mut head, mut last) = (response(), trailers());
        head.headers.insert("big", list.clone());
        last.insert("big", list.clone());
        server.command(Command::Response { stream: tag, head, end: false });
        server.command(Command::Trailers { stream: tag, trailers: last });
        let told = until(&mut server, &mut client, |_, client| {
            client.take(|event| match event {
                Event::Trailers { stream: of, trailers } if *of == stream => Some(trailers.clone()),
                Event::Reset { .. } => panic!("{value}: {event:?}"),
                _ => None,
            })
        });
        assert_eq!(told["big"], list);
    }
}

/// Servers are told the limit itself, though more than that is read.
#[test]
fn servers_are_told_the_largest_header_list() {
    let (mut server, client) = streams();
    let settings = Http2Settings { header_list_bytes_max: 50_000, ..Http2Settings::client() };
    let mut client = End::new(Http2::client(client, Arc::new(settings), Instant(0)));
    let (mut heard, mut part) = (Vec::new(), [0; 4096]);
    while heard.len() < 24 + 9 {
        client.turn();
        if let Transfer::Bytes(bytes) = server.read(&mut part).unwrap() {
            heard.extend_from_slice(&part[..bytes]);
        }
    }
    let (head, payload) = heard[24..].split_at(9);
    assert_eq!(head[3], 4, "SETTINGS");
    let lists = payload[..usize::from(head[2])].chunks(6).filter(|entry| entry[..2] == [0, 6]);
    assert_eq!(lists.map(|entry| entry[2..].to_vec()).collect::<Vec<_>>(), [50_000u32.to_be_bytes()]);
}

/// The receiver's window bounds what leaves; what is told as sent is what left; release opens it again.
#[test]
fn windows_stop_and_release_opens() {
    let (server, client) = settings();
    let server = Http2Settings { stream_window_bytes: 100_000, ..server };
    let (mut server, mut client) = pair(server, client);
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    start(&mut client, 1, &body, true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    until(&mut server, &mut client, |server, _| (body_of(server, tag).0.len() >= 100_000).then_some(()));
    for _ in 0..100 {
        server.turn();
        client.turn();
    }
    assert_eq!(body_of(&server, tag).0.len(), 100_000, "the window is full");
    let sent = |client: &End| -> usize {
        client.events.iter().map(|event| if let Event::Sent { bytes, .. } = event { *bytes } else { 0 }).sum()
    };
    assert_eq!(sent(&client), 100_000);
    let mut released = 0;
    until(&mut server, &mut client, |server, _| {
        let (got, has_ended) = body_of(server, tag);
        server.command(Command::Release { stream: tag, bytes: got.len() - released });
        released = got.len();
        has_ended.then_some(())
    });
    assert!(body_of(&server, tag).0 == body, "the same bytes");
    assert_eq!(sent(&client), body.len());
}

/// What a client does not take is dropped, and the end that takes its place reaches the client though its window is
/// closed; the connection goes on.
#[test]
fn a_body_that_is_cut_off_ends_at_once() {
    let (server, client) = settings();
    let client = Http2Settings { stream_window_bytes: 100_000, ..client };
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, b"question", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    answer(&mut server, tag, Bytes::from(vec![7; 3_000_000]));
    until(&mut server, &mut client, |_, client| (body_of(client, stream).0.len() == 100_000).then_some(()));
    assert!(!body_of(&client, stream).1);
    let mut late = trailers();
    late.insert("grpc-status", http::HeaderValue::from_static("4"));
    server.command(Command::CutOff { stream: tag, trailers: late });
    let said = until(&mut server, &mut client, |_, client| {
        client.take(|event| match event {
            Event::Trailers { stream: of, trailers } if *of == stream => Some(trailers.clone()),
            _ => None,
        })
    });
    assert_eq!(said["grpc-status"], "4");
    assert_eq!(body_of(&client, stream).0.len(), 100_000, "nothing more came");
    assert_eq!(server.http.as_ref().unwrap().streams_open(), 0);
    let next = start(&mut client, 2, b"next", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    answer(&mut server, tag, Bytes::from_static(b"reply"));
    until(&mut server, &mut client, |_, client| body_of(client, next).1.then_some(()));
}

/// A stream nobody releases does not stop another.
#[test]
fn a_slow_stream_stops_only_itself() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    start(&mut client, 1, &vec![1; 4 << 20], true);
    let slow = until(&mut server, &mut client, |server, _| server.take_request());
    until(&mut server, &mut client, |server, _| (body_of(server, slow).0.len() == 1 << 20).then_some(()));
    for number in 2..20 {
        let stream = start(&mut client, number, b"quick", true);
        let tag = until(&mut server, &mut client, |server, _| server.take_request());
        answer(&mut server, tag, Bytes::from_static(b"reply"));
        until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
    }
}

#[test]
fn many_streams_at_once_and_slots_are_used_again() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    for round in 0..3u64 {
        let numbers = round * 1000..round * 1000 + 500;
        for number in numbers.clone() {
            start(&mut client, number, &number.to_le_bytes(), true);
        }
        let mut answered = 0;
        until(&mut server, &mut client, |server, _| {
            while let Some(tag) = server.take_request() {
                let (body, has_ended) = body_of(server, tag);
                assert!(has_ended, "all of it came in one read");
                answer(server, tag, body.into());
                answered += 1;
            }
            (answered == 500).then_some(())
        });
        until(&mut server, &mut client, |_, client| {
            numbers.clone().all(|number| body_of(client, own(number)).1).then_some(())
        });
        for number in numbers {
            assert_eq!(body_of(&client, own(number)).0, number.to_le_bytes());
            client.command(Command::Release { stream: own(number), bytes: 8 });
        }
        assert_eq!(client.http.as_ref().unwrap().streams_open(), 0);
        assert_eq!(server.http.as_ref().unwrap().streams_open(), 0);
        client.events.clear();
        server.events.clear();
    }
}

#[test]
fn either_side_resets() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, b"x", false);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    client.command(Command::Reset { stream, reason: Reason::CANCEL });
    assert_eq!(until(&mut server, &mut client, |server, _| reset_of(server, tag)), Reason::CANCEL);

    let stream = start(&mut client, 2, b"x", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    server.command(Command::Reset { stream: tag, reason: Reason::REFUSED_STREAM });
    assert_eq!(until(&mut server, &mut client, |_, client| reset_of(client, stream)), Reason::REFUSED_STREAM);

    // After the request's end, and after the answer's head.
    let stream = start(&mut client, 3, b"x", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    server.command(Command::Response { stream: tag, head: response(), end: false });
    until(&mut server, &mut client, |_, client| client.take(|e| (kind(e) == "response").then_some(())));
    client.command(Command::Reset { stream, reason: Reason::CANCEL });
    assert_eq!(until(&mut server, &mut client, |server, _| reset_of(server, tag)), Reason::CANCEL);
    assert_eq!(server.http.as_ref().unwrap().streams_open(), 0);
}

/// A server may answer before it has heard all; what is left of the request is then of no interest.
#[test]
fn an_early_answer_ends_the_request() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, &vec![7; 8 << 20], false);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    answer(&mut server, tag, Bytes::new());
    until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
    assert_eq!(client.http.as_ref().unwrap().streams_open(), 0);
    // The connection's window is whole again: the unread part does not count against it.
    for number in 2..80 {
        let stream = start(&mut client, number, &vec![7; 1 << 20], true);
        let tag = until(&mut server, &mut client, |server, _| server.take_request());
        until(&mut server, &mut client, |server, _| body_of(server, tag).1.then_some(()));
        answer(&mut server, tag, Bytes::new());
        until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
        server.events.clear();
    }
}

/// What still comes of a request that was answered as no call is read, and judged, until its sender has heard.
#[test]
fn a_refused_request_is_heard_to_its_end() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    for (number, bytes) in [(1, 1), (2, 8 << 20), (3, 8 << 20)] {
        let stream = start(&mut client, number, &vec![7; bytes], false);
        let tag = until(&mut server, &mut client, |server, _| server.take_request());
        let mut head = response();
        head.status = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
        server.command(Command::Response { stream: tag, head, end: false });
        server.command(Command::Data { stream: tag, bytes: Bytes::from_static(b"no"), end: true });
        server.turn();
        server.events.clear();
        if bytes == 1 {
            assert_eq!(server.http.as_ref().unwrap().streams_open(), 1, "its sender may say more");
        }
        until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
        client.command(Command::Release { stream, bytes: 2 });
        until(&mut server, &mut client, |server, client| {
            let open = [server, client].map(|end| end.http.as_ref().unwrap().streams_open());
            (open == [0, 0]).then_some(())
        });
        let told = |event: &Event| matches!(event, Event::Data { .. } | Event::Trailers { .. });
        assert!(!server.events.iter().any(told), "nobody hears of it");
    }
    let stream = start(&mut client, 4, &vec![7; 8 << 20], true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    answer(&mut server, tag, Bytes::new());
    until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
}

#[test]
fn leaving_lets_calls_end() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, b"x", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    server.command(Command::GoAway);
    let reason = until(&mut server, &mut client, |_, client| {
        client.take(|event| match event {
            Event::GoAway { reason, .. } => Some(*reason),
            _ => None,
        })
    });
    assert_eq!(reason, Reason::NO_ERROR);
    let late = start(&mut client, 2, b"late", true);
    assert_eq!(until(&mut server, &mut client, |_, client| reset_of(client, late)), Reason::REFUSED_STREAM);
    answer(&mut server, tag, Bytes::from_static(b"still"));
    until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
    client.command(Command::Release { stream, bytes: 5 });
    let ended =
        until(&mut server, &mut client, |server, client| server.over.clone().zip(client.over.clone()));
    assert_eq!((ended.0.reason, ended.1.reason), (Reason::NO_ERROR, Reason::NO_ERROR));
}

/// A server that ends without waiting: whoever finds out in writing reads the answer all the same.
#[test]
fn an_answer_is_read_though_nobody_takes_more() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let stream = start(&mut client, 1, b"x", true);
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    let body = vec![7; 50_000];
    answer(&mut server, tag, Bytes::from(body.clone()));
    (0..10).for_each(|_| server.turn());
    let http = server.http.take().unwrap();
    assert_eq!((http.streams_open(), http.interest()), (0, Interest::Read), "all is written");
    drop(http);
    for number in 2..5 {
        start(&mut client, number, b"late", true);
        client.turn_unready();
    }
    until(&mut server, &mut client, |_, client| client.over.clone());
    assert_eq!(body_of(&client, stream), (body, true));
}

/// A server that ends in good order with nothing under way leaves, also if it does not say so first.
#[test]
fn a_server_that_hangs_up_leaves() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    (0..10).for_each(|_| {
        client.turn();
        server.turn();
    });
    drop(server.http.take().unwrap());
    client.events.clear();
    let ended = until(&mut server, &mut client, |_, client| client.over.clone());
    assert_eq!(ended.reason, Reason::NO_ERROR, "{ended:?}");
    let kinds: Vec<&str> = client.events.iter().map(kind).collect();
    assert_eq!(kinds, ["go away"]);
}

#[test]
fn closing_tells_the_peer_why() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    start(&mut client, 1, b"x", true);
    until(&mut server, &mut client, |server, _| server.take_request());
    server.command(Command::Close { reason: Reason::ENHANCE_YOUR_CALM });
    let ended = until(&mut server, &mut client, |_, client| client.over.clone());
    assert_eq!(ended.reason, Reason::ENHANCE_YOUR_CALM);
    assert_eq!(server.over.unwrap().reason, Reason::ENHANCE_YOUR_CALM);
}

/// More requests than the server takes at once wait their turn; none is lost.
#[test]
fn the_peers_limit_of_streams_is_kept() {
    let (server, client) = settings();
    let server = Http2Settings { streams_max: 3, ..server };
    let (mut server, mut client) = pair(server, client);
    for number in 0..10 {
        start(&mut client, number, b"x", true);
    }
    let mut waiting = Vec::new();
    until(&mut server, &mut client, |server, _| {
        waiting.extend(server.take_request());
        (waiting.len() == 3).then_some(())
    });
    for _ in 0..20 {
        server.turn();
        client.turn();
    }
    assert_eq!(server.take_request(), None, "a fourth is not sent");
    let mut answered = 0;
    until(&mut server, &mut client, |server, _| {
        waiting.extend(server.take_request());
        while let Some(tag) = waiting.pop() {
            answer(server, tag, Bytes::new());
            answered += 1;
        }
        (answered == 10).then_some(())
    });
}

#[test]
fn a_dead_peer_is_noticed() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    start(&mut client, 1, b"x", true);
    until(&mut server, &mut client, |server, _| server.take_request());
    drop(client.http.take());
    let watchdog = std::time::Instant::now() + ends::WATCHDOG;
    while server.over.is_none() {
        server.turn();
        assert!(std::time::Instant::now() < watchdog);
    }
}

/// A server that answers before it has the request, again and again, and never reads the rest: the connection bears it,
/// and the calls beside it.
#[test]
fn early_answers_do_not_end_a_connection() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let beside = start(&mut client, 1, b"beside", false);
    let beside_tag = until(&mut server, &mut client, |server, _| server.take_request());
    let body = vec![3; 512 << 10];
    for round in 0..40 {
        let numbers = (0..20).map(|number| 2 + 20 * round + number);
        let mut open: Vec<StreamTag> =
            numbers.map(|number| start(&mut client, number, &body, true)).collect();
        until(&mut server, &mut client, |server, client| {
            while let Some(tag) = server.take_request() {
                server.command(Command::Response { stream: tag, head: response(), end: true });
            }
            assert_eq!((&server.over, &client.over), (&None, &None), "round {round}");
            let answered = |event: &Event| match event {
                Event::Response { stream, end: true, .. } => Some(*stream),
                _ => None,
            };
            while let Some(tag) = client.take(answered) {
                open.retain(|of| *of != tag);
            }
            open.is_empty().then_some(())
        });
        client.events.clear();
        server.events.retain(|event| matches!(event, Event::Request { .. }));
    }
    client.command(Command::Data { stream: beside, bytes: Bytes::new(), end: true });
    answer(&mut server, beside_tag, Bytes::from_static(b"answer"));
    until(&mut server, &mut client, |_, client| body_of(client, beside).1.then_some(()));
    assert_eq!(server.http.as_ref().unwrap().streams_open(), 0);
}

/// A client that cancels much is told to take another connection before the server minds, and no call it has under way
/// is lost.
#[test]
fn a_client_that_cancels_much_takes_another_connection() {
    let (server, client) = settings();
    let burst = u64::from(server.resets.burst);
    let (mut server, mut client) = pair(server, client);
    let beside = start(&mut client, 1, b"beside", true);
    let beside_tag = until(&mut server, &mut client, |server, _| server.take_request());
    let mut cancelled = 0;
    until(&mut server, &mut client, |server, client| {
        let told = |event: &Event| matches!(event, Event::GoAway { .. }).then_some(());
        if client.take(told).is_some() {
            return Some(());
        }
        let stream = start(client, 2 + cancelled, b"", true);
        client.turn();
        client.command(Command::Reset { stream, reason: Reason::CANCEL });
        cancelled += 1;
        assert_eq!((&server.over, &client.over), (&None, &None), "after {cancelled}");
        None
    });
    assert!((burst / 2..burst).contains(&cancelled), "{cancelled}");
    answer(&mut server, beside_tag, Bytes::from_static(b"answer"));
    until(&mut server, &mut client, |_, client| body_of(client, beside).1.then_some(()));
    assert_eq!((&server.over, &client.over), (&None, &None));
}

/// Calls that were answered, wholly or in part, may be given up as often as anybody likes.
#[test]
fn resets_of_answered_calls_cost_nothing() {
    let (server, client) = settings();
    let (mut server, mut client) = pair(server, client);
    let body = vec![3; 2 << 10];
    for number in 1..3000 {
        // Never ended here, so that each is reset when its answer has come.
        start(&mut client, number, &body, false);
        until(&mut server, &mut client, |server, client| {
            if let Some(tag) = server.take_request() {
                server.command(Command::Response { stream: tag, head: response(), end: true });
            }
            client.events.clear();
            (client.http.as_ref().unwrap().streams_open() == 0).then_some(())
        });
        assert_eq!(server.over, None, "after {number}");
        if client.over.is_some() {
            panic!("{:?}", client.over);
        }
    }
}

/// Whoever named a wrong port is told what answers there, not what HTTP/2 thinks of its bytes.
#[test]
fn another_protocol_is_told_by_its_name() {
    let cases: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "it answers HTTP/1, not gRPC"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "it answers SSH, not gRPC"),
        (&[0x15, 3, 1, 0, 2, 2, 10, 0, 0, 0], "it answers TLS, not gRPC"),
        (b"220 mail.example ESMTP\r\n", "it answers something else, not gRPC"),
    ];
    for (said, expected) in cases {
        let (mut server, stream) = streams();
        server.write_vectored(&[IoSlice::new(said)]).unwrap();
        let mut client = End::new(Http2::client(stream, Arc::new(Http2Settings::client()), Instant(0)));
        let watchdog = std::time::Instant::now() + WATCHDOG;
        while client.over.is_none() {
            client.turn();
            // What is too short for a frame is given up in time.
            client.now = Instant(client.now.0 + 1_000_000);
            assert!(std::time::Instant::now() < watchdog, "{expected}");
        }
        let why = client.over.unwrap().why;
        assert!(why.starts_with(expected), "{why}");
    }
}

#[test]
fn a_silent_server_is_told_as_one() {
    let (_server, stream) = streams();
    let settings = Http2Settings::client();
    let late = Instant(settings.unfinished_ns_max + 1);
    let mut client = End::new(Http2::client(stream, Arc::new(settings), Instant(0)));
    client.turn();
    client.now = late;
    client.turn();
    let why = client.over.unwrap().why;
    assert_eq!(why, format!("it accepted the connection and said nothing for {} s", late.0 / 1_000_000_000));
}

/// The ids of a connection's streams end. Before the last is reached no more streams are opened on it, calls
/// under way go on, and a request that comes too late all the same was not sent.
#[test]
fn a_connection_whose_stream_ids_run_out_is_left_in_time() {
    let go_away = |event: &Event| matches!(event, Event::GoAway { .. }).then_some(());
    let (server, mut client) = settings();
    client.own_stream_max = (64 << 10) + 1;
    let (mut server, mut client) = pair(server, client);
    let one = start(&mut client, 1, b"one", true);
    let one_tag = until(&mut server, &mut client, |server, _| server.take_request());
    client.turn();
    assert_eq!(client.take(go_away), None);
    let two = start(&mut client, 2, b"two", true);
    client.turn();
    assert_eq!((client.take(go_away), client.take(go_away)), (Some(()), None), "told once");
    let two_tag = until(&mut server, &mut client, |server, _| server.take_request());
    for (tag, stream) in [(one_tag, one), (two_tag, two)] {
        answer(&mut server, tag, Bytes::from_static(b"answer"));
        until(&mut server, &mut client, |_, client| body_of(client, stream).1.then_some(()));
    }

    let (server, mut client) = settings();
    client.own_stream_max = 1;
    let (mut server, mut client) = pair(server, client);
    let last = start(&mut client, 1, b"last", true);
    let beyond = start(&mut client, 2, b"beyond", true);
    client.turn();
    assert_eq!(reset_of(&mut client, beyond), Some(Reason::REFUSED_STREAM));
    assert_eq!((client.take(go_away), client.take(go_away)), (Some(()), None), "told once");
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    answer(&mut server, tag, Bytes::from_static(b"answer"));
    until(&mut server, &mut client, |_, client| body_of(client, last).1.then_some(()));
    assert_eq!((&server.over, &client.over), (&None, &None));
}
