//! Shows how connections end: go-away, close, loss; and what is then known of each call.

use crate::pair;
use pair::*;
use trunkline_call::{Code, Execution};
use trunkline_native::*;

fn small() -> Option<Payload<'static>> {
    Some(linear(Body::Inline(b"x")))
}

#[test]
fn go_away_ends_calls_the_peer_never_took() {
    let mut pair = Pair::established(&Config::default());
    let before = pair.north.connection.open_call(NOW, &unary(1), small()).unwrap();
    pair.settle();
    pair.south.connection.go_away(NOW, Code::Unavailable);
    let after = pair.north.connection.open_call(NOW, &unary(2), small()).unwrap();
    pair.settle();
    let (stream, execution) = (after, Execution::NotExecuted);
    assert_eq!(pair.north.notices, [Notice::Ended { stream, tag: 2, execution }]);
    assert_eq!(pair.north.told, [Told::GoAway { code: Code::Unavailable }]);
    assert_eq!(pair.south.told.len(), 1, "the later call was not taken");
    assert_eq!(pair.north.connection.open_call(NOW, &unary(3), small()), Err(Refused::Draining));
    assert!(!pair.south.connection.is_drained());
    pair.south.connection.send_result(NOW, before, &Outcome::default(), small()).unwrap();
    pair.settle();
    assert!(matches!(pair.north.told[..], [_, Told::Result { tag: 1, .. }]));
    assert!(pair.south.connection.is_drained() && pair.north.connection.is_drained());
}

#[test]
fn go_away_lets_the_other_direction_be() {
    let mut pair = Pair::established(&Config::default());
    pair.south.connection.announce_schema("/a.B/C", 0, 0).unwrap();
    pair.north.connection.go_away(NOW, Code::Unavailable);
    let stream = pair.north.connection.open_call(NOW, &unary(1), small());
    assert_eq!(stream, Err(Refused::Draining), "who leaves opens nothing either");
    pair.settle();
    assert_eq!(pair.south.connection.open_call(NOW, &unary(1), None), Err(Refused::Draining));
}

/// It is a wish: calls go on, and new ones are taken.
#[test]
fn who_is_asked_to_redial_may_stay() {
    let mut pair = Pair::established(&Config::default());
    let before = pair.north.connection.open_call(NOW, &unary(1), small()).unwrap();
    pair.settle();
    pair.south.connection.ask_to_redial();
    pair.settle();
    assert_eq!(pair.north.told, [Told::Redial]);
    let after = pair.north.connection.open_call(NOW, &unary(2), small()).unwrap();
    pair.settle();
    for stream in [before, after] {
        pair.south.connection.send_result(NOW, stream, &Outcome::default(), small()).unwrap();
    }
    pair.settle();
    assert!(matches!(pair.north.told[..], [_, Told::Result { tag: 1, .. }, Told::Result { tag: 2, .. }]));
    assert!(!pair.north.connection.is_draining() && !pair.south.connection.is_draining());
}

#[test]
fn close_says_why_and_is_the_last_word() {
    let mut pair = Pair::established(&Config::default());
    pair.south.connection.close(Code::Unavailable, "upgrade");
    let stream = StreamId(1);
    assert_eq!(pair.south.connection.send_headers(NOW, stream, b""), Err(Refused::Draining));
    let last = pair.south.write(1 << 20);
    assert_eq!(pair.north.read(&last), Err(ProtocolError::Closed));
    let why = "upgrade".to_owned();
    assert_eq!(pair.north.told, [Told::Closed { code: Code::Unavailable, why }]);
    assert_eq!(pair.north.read(b"more"), Err(ProtocolError::Closed));
    assert_eq!(pair.north.connection.next_timeout(), None);
}

/// Opens four calls and hands `bytes` of them to the socket before it is lost: what is known of each?
fn known_after(bytes: usize) -> Vec<(u64, Execution)> {
    let mut pair = Pair::established(&Config::default());
    let body = pair.north.share(1, &pattern(100_000, 1));
    let north = &mut pair.north.connection;
    north.open_call(NOW, &unary(1), small()).unwrap();
    north.open_call(NOW, &unary(2), Some(linear(body))).unwrap();
    north.open_call(NOW, &unary(3), small()).unwrap();
    pair.north.write(bytes);
    pair.north.connection.lost();
    pair.north.read(b"").unwrap_err();
    let mut known = Vec::new();
    while let Some(notice) = pair.north.connection.poll_notice() {
        match notice {
            Notice::Ended { tag, execution, .. } => known.push((tag, execution)),
            Notice::BodyDone { token } => assert!(pair.north.shared.remove(&token).is_some()),
            other => panic!("{other:?}"),
        }
    }
    assert!(pair.north.shared.is_empty());
    assert_eq!(pair.north.connection.stream_count(), 0);
    known
}

#[test]
fn loss_says_what_had_reached_the_socket() {
    use Execution::{NotExecuted, Unknown};
    // Frames: CALL 1 (17 bytes), CALL 2's head (20), CALL 3 (17), then segments of 2: 16 + 65536, 16 + 34464.
    let all = 17 + 20 + 17 + 16 + 65_536 + 16 + 34_464;
    for (bytes, expected) in [
        (0, [NotExecuted, NotExecuted, NotExecuted]),
        (16, [NotExecuted, NotExecuted, NotExecuted]),
        (17, [Unknown, NotExecuted, NotExecuted]),
        (53, [Unknown, NotExecuted, NotExecuted]),
        (54, [Unknown, NotExecuted, Unknown]),
        (all - 1, [Unknown, NotExecuted, Unknown]),
        (all, [Unknown, Unknown, Unknown]),
    ] {
        let known = known_after(bytes);
        assert_eq!(known, [(1, expected[0]), (2, expected[1]), (3, expected[2])], "after {bytes} bytes");
    }
}

#[test]
fn loss_tells_handlers_that_nobody_waits() {
    let mut pair = Pair::established(&Config::default());
    let stream = pair.north.connection.open_call(NOW, &unary(1), small()).unwrap();
    pair.settle();
    pair.south.connection.set_tag(stream, 9);
    pair.south.connection.lost();
    assert_eq!(pair.south.connection.poll_notice(), Some(Notice::Orphaned { stream, tag: 9 }));
    assert_eq!(pair.south.connection.poll_notice(), None);
}

#[test]
fn loss_does_not_call_back_a_handler_that_has_answered() {
    let mut pair = Pair::established(&Config::default());
    pair.north.grants = false;
    let stream = pair.north.connection.open_call(NOW, &unary(1), small()).unwrap();
    pair.settle();
    let body = pair.south.share(1, &pattern(4 << 20, 1));
    pair.south.connection.send_result(NOW, stream, &Outcome::default(), Some(linear(body))).unwrap();
    pair.settle();
    pair.south.connection.lost();
    assert_eq!(pair.south.connection.poll_notice(), Some(Notice::BodyDone { token: 1 }));
    assert_eq!(pair.south.connection.poll_notice(), None);
    pair.north.connection.lost();
    let execution = Execution::Unknown;
    assert_eq!(pair.north.connection.poll_notice(), Some(Notice::Ended { stream, tag: 1, execution }));
}

#[test]
fn hello_has_to_come_in_time() {
    let config = Config { hello_timeout_ns: 100, keepalive_ns: 10, ..Config::default() };
    let mut end = End::new(Side::Acceptor, config);
    assert_eq!(end.connection.next_timeout(), Some(NOW.plus_ns(10)));
    assert_eq!(end.connection.handle_timeout(NOW.plus_ns(99)), Ok(()));
    let error = end.connection.handle_timeout(NOW.plus_ns(100)).unwrap_err();
    assert_eq!(error, ProtocolError::HelloTimeout { after_ns: 100 });
}

/// A connection is made when it is dialled, and its socket may be there much later.
#[test]
fn hello_has_its_time_from_the_connection_on() {
    let config = Config { hello_timeout_ns: 100, keepalive_ns: 1000, ..Config::default() };
    let mut end = End::new(Side::Initiator, config);
    end.connection.connected(NOW.plus_ns(150));
    assert_eq!(end.connection.handle_timeout(NOW.plus_ns(249)), Ok(()));
    let error = end.connection.handle_timeout(NOW.plus_ns(250)).unwrap_err();
    assert_eq!(error, ProtocolError::HelloTimeout { after_ns: 100 });
}

#[test]
fn a_half_open_connection_is_found_out() {
    let config = Config { keepalive_ns: 100, keepalive_timeout_ns: 50, ..Config::default() };
    let mut pair = Pair::established(&config);
    pair.north.connection.handle_timeout(NOW.plus_ns(100)).unwrap();
    assert_eq!(pair.north.connection.next_timeout(), Some(NOW.plus_ns(150)));
    pair.settle();
    assert_eq!(pair.north.told, [Told::Pong { payload: NOW.0 + 100 }]);
    pair.north.connection.handle_timeout(NOW.plus_ns(150)).unwrap();
    let error = pair.north.connection.handle_timeout(NOW.plus_ns(200)).unwrap_err();
    assert_eq!(error, ProtocolError::PeerSilent { after_ns: 50 });
    assert_eq!(pair.north.connection.handle_timeout(NOW.plus_ns(201)), Err(error));
}

#[test]
fn draining_ends_in_time() {
    let config = Config { keepalive_ns: 0, drain_timeout_ns: 70, ..Config::default() };
    let mut pair = Pair::established(&config);
    pair.north.connection.open_call(NOW, &unary(1), small()).unwrap();
    pair.settle();
    assert_eq!(pair.south.connection.next_timeout(), None);
    pair.south.connection.go_away(NOW, Code::Unavailable);
    assert_eq!(pair.south.connection.next_timeout(), Some(NOW.plus_ns(70)));
    let mut late = pair.south.connection;
    assert_eq!(late.handle_timeout(NOW.plus_ns(70)), Err(ProtocolError::DrainTimeout { after_ns: 70 }));
    assert_eq!(late.next_timeout(), None);
}
