//! Shows the ways a call can go, on two connections wired back to back.

use crate::pair;
use pair::*;
use trunkline_call::{Code, Deadline, Encoding, Execution, ServerStamps};
use trunkline_native::*;

fn established() -> Pair {
    Pair::established(&Config::default())
}

/// Opens a call with a small message and lets the other side hear of it.
fn open(pair: &mut Pair, call: &NewCall<'_>) -> StreamId {
    let stream = pair.north.connection.open_call(NOW, call, Some(linear(Body::Inline(b"hello")))).unwrap();
    pair.settle();
    pair.south.told.clear();
    stream
}

fn failure(metadata: &[u8]) -> Failure<'_> {
    Failure { code: Code::NotFound, execution: Execution::Executed, metadata, trailer: None }
}

fn result_of(stream: StreamId, tag: u64, bytes: Option<&[u8]>) -> Told {
    Told::Result { stream, tag, bytes: bytes.map(<[u8]>::to_vec), metadata: Vec::new(), trailer: None }
}

#[test]
fn hello_tells_each_side_who_the_other_is() {
    let north = Config { node_name: "north".into(), clock_id: 1, ..Config::default() };
    let south = Config { node_name: "south".into(), clock_id: 2, ..Config::default() };
    let mut pair = Pair::new(north, south);
    assert_eq!(pair.north.connection.open_call(NOW, &unary(1), None), Err(Refused::NotEstablished));
    pair.settle();
    let seen = |end: &End| end.connection.peer().map(|peer| (peer.node_name.clone(), peer.clock_id));
    assert_eq!(seen(&pair.north), Some(("south".into(), 2)));
    assert_eq!(seen(&pair.south), Some(("north".into(), 1)));
    assert_eq!(pair.north.told, [Told::Established]);
}

#[test]
fn unary_call_and_result() {
    let mut pair = established();
    let call =
        NewCall { deadline: Deadline::at(NOW.plus_ns(500)), stamps: true, metadata: b"meta", ..unary(42) };
    let stream = pair.north.connection.open_call(NOW, &call, Some(linear(Body::Inline(b"hello")))).unwrap();
    assert_eq!(stream, StreamId(1));
    pair.settle();
    let told = Told::Call {
        stream,
        method: 0,
        caller: None,
        deadline_ns: Some(500),
        stamps: true,
        metadata: b"meta".to_vec(),
        message: Some(b"hello".to_vec()),
        end: true,
    };
    assert_eq!(pair.south.told, [told]);
    // It leaves now, and says so.
    let [k7, d8, d9, a10, a11, d12, k14] = [NOW; 7];
    let trailer = ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns: 0, k14, subtree: 7, cpu_ns: 7 }.encode();
    let outcome = Outcome { trailer: Some(&trailer), metadata: b"after" };
    pair.south.connection.send_result(NOW, stream, &outcome, Some(linear(Body::Inline(b"world")))).unwrap();
    pair.settle();
    let (bytes, metadata) = (Some(b"world".to_vec()), b"after".to_vec());
    assert_eq!(pair.north.told, [Told::Result { stream, tag: 42, bytes, metadata, trailer: Some(trailer) }]);
    assert_eq!((pair.north.connection.stream_count(), pair.south.connection.stream_count()), (0, 0));
}

#[test]
fn a_call_is_sent_with_its_last_byte() {
    let mut pair = established();
    let north = &mut pair.north;
    let at = |ns: u64| NOW.plus_ns(ns);
    for tag in [1, 2] {
        north.connection.open_call(NOW, &unary(tag), Some(linear(Body::Inline(b"hello")))).unwrap();
    }
    north.write_at(at(10), 20);
    assert_eq!(north.connection.poll_sent(), None, "a part of the first");
    north.write_at(at(20), 10);
    assert_eq!(north.connection.poll_sent(), Some(CallSent { tag: 1, at: at(20), is_last: false }));
    assert_eq!(north.connection.poll_sent(), None, "each once");
    north.write_at(at(30), 1000);
    assert_eq!(north.connection.poll_sent(), Some(CallSent { tag: 2, at: at(30), is_last: true }));
    let long = vec![7; 40_000];
    north.connection.open_call(NOW, &unary(3), Some(linear(Body::Owned(long)))).unwrap();
    while north.connection.wants_write() {
        assert_eq!(north.connection.poll_sent(), None, "its head alone is no call");
        north.write_at(at(40), 10_000);
    }
    assert_eq!(north.connection.poll_sent(), Some(CallSent { tag: 3, at: at(40), is_last: true }));
}

#[test]
fn stamps_leave_as_late_as_their_frame() {
    let mut pair = established();
    let stream = pair.north.connection.open_call(NOW, &unary(5), Some(linear(Body::Inline(b"?")))).unwrap();
    pair.settle();
    let [k7, d8, d9, a10, a11, d12, k14] = [NOW; 7];
    let queued = ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns: 0, k14, subtree: 1, cpu_ns: 0 };
    let outcome = Outcome { trailer: Some(&queued.encode()), metadata: b"" };
    pair.south.connection.send_result(NOW, stream, &outcome, Some(linear(Body::Inline(b"!")))).unwrap();
    // The socket took nothing for a millisecond, and then all.
    let left = NOW.plus_ns(1_000_000);
    let bytes = pair.south.write_at(left, 1000);
    pair.north.read(&bytes).unwrap();
    let Some(Told::Result { trailer: Some(trailer), .. }) = pair.north.told.last() else {
        panic!("no result")
    };
    assert_eq!(ServerStamps::decode(trailer), ServerStamps { k14: left, ..queued });
}

#[test]
fn an_error_carries_code_and_what_is_known() {
    let mut pair = established();
    let stream = open(&mut pair, &unary(1));
    pair.south.connection.send_error(NOW, stream, &failure(b"why")).unwrap();
    assert_eq!(pair.south.connection.send_error(NOW, stream, &failure(b"why")), Err(Refused::NoStream));
    pair.settle();
    let (code, execution, metadata) = (Code::NotFound, Execution::Executed, b"why".to_vec());
    assert_eq!(pair.north.told, [Told::Error { stream, tag: 1, code, execution, metadata }]);
}

#[test]
fn a_bidirectional_stream() {
    let mut pair = established();
    let call = NewCall { end: false, ..unary(5) };
    let stream = pair.north.connection.open_call(NOW, &call, None).unwrap();
    pair.north.connection.send_message(NOW, stream, linear(Body::Inline(b"one")), false).unwrap();
    pair.settle();
    pair.south.connection.send_headers(NOW, stream, b"early").unwrap();
    pair.south.connection.send_message(NOW, stream, linear(Body::Inline(b"uno")), false).unwrap();
    pair.settle();
    pair.north.connection.half_close(NOW, stream).unwrap();
    let refused = pair.north.connection.send_message(NOW, stream, linear(Body::Inline(b"late")), false);
    assert_eq!(refused, Err(Refused::OutOfPlace));
    pair.settle();
    pair.south.connection.send_result(NOW, stream, &Outcome::default(), None).unwrap();
    pair.settle();
    let message = |bytes: &[u8]| Told::Message { stream, bytes: bytes.to_vec(), end: false };
    assert_eq!(pair.south.told[1..], [message(b"one"), Told::HalfClose { stream }]);
    let headers = Told::Headers { stream, metadata: b"early".to_vec() };
    assert_eq!(pair.north.told, [headers, message(b"uno"), result_of(stream, 5, None)]);
}

#[test]
fn long_bodies_go_both_ways_past_every_window() {
    let mut pair = established();
    let (request, response) = (pattern(9_000_000, 1), pattern(5_000_000, 2));
    let body = pair.north.share(1, &request);
    let stream = pair.north.connection.open_call(NOW, &unary(3), Some(linear(body))).unwrap();
    pair.settle_cut(300_000, 70_000);
    assert_eq!(pair.north.notices, [Notice::BodyDone { token: 1 }]);
    let Told::Call { message: Some(arrived), .. } = &pair.south.told[0] else { panic!("no call arrived") };
    assert!(*arrived == request, "the request changed on its way");
    let payload = linear(Body::Owned(response.clone()));
    pair.south.connection.send_result(NOW, stream, &Outcome::default(), Some(payload)).unwrap();
    pair.settle_cut(1 << 20, 1 << 20);
    assert!(pair.north.told == [result_of(stream, 3, Some(&response))], "the response changed on its way");
}

#[test]
fn a_long_body_costs_one_header_a_segment() {
    let mut pair = established();
    let body = pair.north.share(1, &pattern(1 << 20, 1));
    pair.north.connection.open_call(NOW, &unary(3), Some(linear(body))).unwrap();
    let bytes = pair.north.write(2 << 20).len();
    assert_eq!(bytes, (16 + 4) + 16 * 16 + (1 << 20));
}

#[test]
fn an_early_result_stops_a_request_under_way() {
    let mut pair = established();
    let body = pair.north.share(1, &pattern(4 << 20, 1));
    let stream = pair.north.connection.open_call(NOW, &unary(3), Some(linear(body))).unwrap();
    pair.step_to_south(200_000, 10_000);
    assert_eq!(pair.north.notices, []);
    pair.south.connection.abort(NOW, stream, &failure(b"")).unwrap();
    pair.settle();
    assert_eq!(pair.north.notices, [Notice::BodyDone { token: 1 }]);
    assert!(matches!(pair.north.told[..], [Told::Error { code: Code::NotFound, .. }]));
    assert!(pair.south.connection.ignored_frames() > 0, "segments on their way are ignored");
    assert_eq!(pair.north.connection.send_queue_bytes(), 0);
}

#[test]
fn the_head_of_a_long_result_stops_the_request() {
    let mut pair = established();
    let call = NewCall { end: false, ..unary(3) };
    let body = pair.north.share(1, &pattern(4 << 20, 1));
    let stream = pair.north.connection.open_call(NOW, &call, Some(linear(body))).unwrap();
    pair.step_to_south(200_000, 10_000);
    let response = pattern(100_000, 2);
    let payload = linear(Body::Owned(response.clone()));
    pair.south.connection.send_result(NOW, stream, &Outcome::default(), Some(payload)).unwrap();
    pair.step_to_north(20, 20);
    assert_eq!(pair.north.connection.half_close(NOW, stream), Err(Refused::Answered));
    let rest = pair.north.write(4 << 20);
    assert!(rest.len() < 70_000, "only the segment under way is finished");
    pair.south.read(&rest).unwrap();
    assert_eq!(pair.north.notices, [Notice::BodyDone { token: 1 }]);
    pair.settle_cut(5_000, 5_000);
    assert!(pair.north.told == [result_of(stream, 3, Some(&response))], "the response changed on its way");
    assert!(pair.south.told.is_empty(), "the call was never complete");
}

#[test]
fn a_request_that_is_answered_already_is_dropped() {
    let mut pair = established();
    pair.north.grants = false;
    let call = NewCall { end: false, ..unary(3) };
    let stream = pair.north.connection.open_call(NOW, &call, None).unwrap();
    let body = Body::Owned(pattern(60_000, 1));
    pair.north.connection.send_message(NOW, stream, linear(body), false).unwrap();
    pair.step_to_south(30_000, 30_000);
    assert!(pair.south.connection.wanted().is_some());
    let body = pair.south.share(1, &pattern(4 << 20, 2));
    pair.south.connection.send_result(NOW, stream, &Outcome::default(), Some(linear(body))).unwrap();
    assert_eq!(pair.south.connection.wanted(), None, "nobody wants the rest of the message");
    pair.settle();
    assert_eq!(pair.south.told.len(), 1);
    assert_eq!(pair.south.connection.stream_count(), 1, "the result waits for its window");
}

#[test]
fn cancel_says_what_is_known_and_stops_the_request() {
    let mut pair = established();
    let body = pair.north.share(1, &pattern(4 << 20, 1));
    let long = pair.north.connection.open_call(NOW, &unary(1), Some(linear(body))).unwrap();
    pair.step_to_south(200_000, 10_000);
    assert_eq!(pair.north.connection.cancel(NOW, long, Code::Cancelled), Ok(Execution::NotExecuted));
    let short = pair.north.connection.open_call(NOW, &unary(2), Some(linear(Body::Inline(b"x")))).unwrap();
    assert_eq!(pair.north.connection.cancel(NOW, short, Code::DeadlineExceeded), Ok(Execution::Unknown));
    assert_eq!(pair.north.connection.cancel(NOW, short, Code::Cancelled), Err(Refused::NoStream));
    pair.settle();
    let cancelled = |stream, code| Told::Cancelled { stream, code };
    assert_eq!(pair.south.told[0], cancelled(long, Code::Cancelled));
    assert_eq!(pair.south.told[2], cancelled(short, Code::DeadlineExceeded));
    assert_eq!(pair.north.notices, [Notice::BodyDone { token: 1 }]);
}

#[test]
fn a_cancel_reaches_an_outcome_that_waits_for_its_window() {
    let mut pair = established();
    pair.north.grants = false;
    let stream = open(&mut pair, &unary(1));
    let body = pair.south.share(1, &pattern(4 << 20, 1));
    pair.south.connection.send_result(NOW, stream, &Outcome::default(), Some(linear(body))).unwrap();
    pair.settle();
    assert_eq!(pair.south.notices, [], "the result waits");
    pair.north.connection.cancel(NOW, stream, Code::Cancelled).unwrap();
    pair.settle();
    assert_eq!(pair.south.notices, [Notice::BodyDone { token: 1 }]);
    assert_eq!(pair.south.connection.stream_count(), 0);
    assert_eq!(pair.south.told, [], "the call had ended for its server");
}

#[test]
fn time_spent_waiting_is_not_given_twice() {
    let mut pair = established();
    let call = NewCall { deadline: Deadline::at(NOW.plus_ns(500)), ..unary(1) };
    let body = Some(linear(Body::Inline(b"x")));
    pair.north.connection.open_call(NOW.plus_ns(200), &call, body).unwrap();
    pair.settle();
    assert!(matches!(pair.south.told[0], Told::Call { deadline_ns: Some(300), .. }));
}

#[test]
fn linear_bodies_need_an_agreement() {
    let mut pair = Pair::new(Config::default(), Config::default());
    pair.settle();
    let method = pair.north.connection.announce_schema("/a.B/C", 1, 2).unwrap();
    let small = || linear(Body::Inline(b"x"));
    assert_eq!(pair.north.connection.open_call(NOW, &unary(1), Some(small())), Err(Refused::NotAgreed));
    let protobuf = Payload { encoding: Encoding::Protobuf, body: Body::Inline(b"x") };
    let stream = pair.north.connection.open_call(NOW, &unary(1), Some(protobuf)).unwrap();
    pair.settle();
    pair.south.connection.answer_schema(method, true, 1, 99).unwrap();
    pair.settle();
    assert_eq!(pair.north.connection.agreed(method), (true, false));
    assert!(pair.north.connection.open_call(NOW, &unary(2), Some(small())).is_ok());
    let refused = pair.south.connection.send_result(NOW, stream, &Outcome::default(), Some(small()));
    assert_eq!(refused, Err(Refused::NotAgreed));
    pair.south.connection.answer_schema(method, true, 1, 2).unwrap();
    pair.south.connection.send_result(NOW, stream, &Outcome::default(), Some(small())).unwrap();
    pair.settle();
    assert_eq!(pair.north.told.last(), Some(&result_of(stream, 1, Some(b"x"))));
}

#[test]
fn a_method_without_fingerprints_is_never_linear() {
    let mut pair = Pair::new(Config::default(), Config::default());
    pair.settle();
    let method = pair.north.connection.announce_schema("/a.B/C", 0, 7).unwrap();
    pair.settle();
    pair.south.connection.answer_schema(method, true, 0, 7).unwrap();
    pair.settle();
    assert_eq!(pair.north.connection.agreed(method), (false, true));
    pair.south.connection.answer_schema(method, false, 0, 7).unwrap();
    pair.settle();
    assert_eq!(pair.north.told.last(), Some(&Told::SchemaAnswer { method: 0, found: false }));
}

#[test]
fn what_the_peer_does_not_take_is_refused_here() {
    let limits = Limits {
        message_bytes_max: 1000,
        metadata_bytes_max: 10,
        streams_max: 1,
        methods_max: 1,
        ..Limits::default()
    };
    let mut pair = Pair::established(&Config { limits, ..Config::default() });
    let north = &mut pair.north.connection;
    let long = linear(Body::Owned(vec![0; 1001]));
    assert_eq!(north.open_call(NOW, &unary(1), Some(long)), Err(Refused::MessageTooLarge { limit: 1000 }));
    let call = NewCall { metadata: b"01234567890", ..unary(1) };
    assert_eq!(north.open_call(NOW, &call, None), Err(Refused::MetadataTooLarge { limit: 10 }));
    let call = NewCall { method: MethodIndex(1), ..unary(1) };
    assert_eq!(north.open_call(NOW, &call, None), Err(Refused::UnknownMethod));
    assert_eq!(north.announce_schema("/a.B/D", 0, 0), Err(Refused::Methods { limit: 1 }));
    assert!(north.open_call(NOW, &unary(1), None).is_ok());
    assert_eq!(north.open_call(NOW, &unary(2), None), Err(Refused::Streams { limit: 1 }));
    let stream = StreamId(1);
    assert_eq!(north.send_error(NOW, stream, &failure(b"")), Err(Refused::OutOfPlace));
    assert_eq!(north.announce_schema("", 0, 0), Err(Refused::PathLength { limit: 1024 }));
}

#[test]
fn ping_is_answered() {
    let mut pair = established();
    pair.south.connection.ping(77);
    pair.settle();
    assert_eq!(pair.south.told, [Told::Pong { payload: 77 }]);
}

#[test]
fn with_checksums_bodies_must_stand_still() {
    let mut pair = Pair::established(&checked());
    let body = pair.north.share(1, b"shared");
    let refused = pair.north.connection.open_call(NOW, &unary(1), Some(linear(body)));
    assert_eq!(refused, Err(Refused::SharedBody));
    let long = pattern(3_000_000, 1);
    let payload = Some(linear(Body::Owned(long.clone())));
    pair.north.connection.open_call(NOW, &unary(1), payload).unwrap();
    pair.settle_cut(300_000, 70_000);
    let Told::Call { message: Some(arrived), .. } = &pair.south.told[0] else { panic!("no call arrived") };
    assert!(*arrived == long, "the request changed on its way");
}
