//! Shows whose bytes leave first, and what happens when they do not leave at all.

use crate::pair;
use pair::*;
use trunkline_native::*;

/// The frames in `bytes`: type, stream, length.
fn frames(mut bytes: &[u8]) -> Vec<(FrameType, u32, u32)> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(head).unwrap();
        found.push((header.frame, header.stream, header.length));
        bytes = rest.get(header.length as usize..).unwrap_or_default();
    }
    found
}

fn small() -> Option<Payload<'static>> {
    Some(linear(Body::Inline(b"small")))
}

#[test]
fn a_small_call_overtakes_a_large_one() {
    let mut pair = Pair::established(&Config::default());
    let body = pair.north.share(1, &pattern(8 << 20, 1));
    let large = pair.north.connection.open_call(NOW, &unary(1), Some(linear(body))).unwrap();
    // The socket takes a part of the first segment; many more wait.
    pair.north.write(30_000);
    let small = pair.north.connection.open_call(NOW, &unary(2), small()).unwrap();
    let rest = (20 + 16 + 65_536) - 30_000;
    let next = pair.north.write(rest + 21 + 16);
    let expected = [(FrameType::Call, small.0, 5), (FrameType::Segment, large.0, 65_536)];
    assert_eq!(frames(&next[rest..]), expected, "behind the segment under way comes the small call");
}

#[test]
fn large_bodies_take_turns() {
    let mut pair = Pair::established(&Config::default());
    for token in 1..=3 {
        let body = pair.north.share(token, &pattern(150_000, 1));
        pair.north.connection.open_call(NOW, &unary(token), Some(linear(body))).unwrap();
    }
    let order: Vec<_> = frames(&pair.north.write(1 << 20)).iter().map(|&(_, stream, _)| stream).collect();
    assert_eq!(order, [1, 3, 5, 1, 3, 5, 1, 3, 5, 1, 3, 5]);
}

#[test]
fn small_messages_do_not_starve_large_ones() {
    let mut pair = Pair::established(&Config::default());
    let body = pair.north.share(1, &pattern(200_000, 1));
    pair.north.connection.open_call(NOW, &unary(1), Some(linear(body))).unwrap();
    let mut polls = 0;
    while !pair.north.shared.is_empty() {
        // More small messages than one write is asked for, every time.
        for _ in 0..40 {
            pair.north.connection.open_call(NOW, &unary(0), small()).unwrap();
        }
        let shown: usize = pair.north.connection.poll_transmit(NOW, 500).map(|chunk| chunk.len()).sum();
        pair.north.write(shown);
        polls += 1;
        assert!(polls <= 4, "one segment a write at least");
    }
}

#[test]
fn one_stream_keeps_its_order() {
    let mut pair = Pair::established(&Config::default());
    let call = NewCall { end: false, ..unary(1) };
    let stream = pair.north.connection.open_call(NOW, &call, None).unwrap();
    let body = pair.north.share(1, &pattern(100_000, 1));
    pair.north.connection.send_message(NOW, stream, linear(body), false).unwrap();
    pair.north.connection.send_message(NOW, stream, linear(Body::Inline(b"after")), false).unwrap();
    pair.north.connection.half_close(NOW, stream).unwrap();
    pair.settle();
    let lengths: Vec<_> = pair.south.told[1..]
        .iter()
        .map(|told| match told {
            Told::Message { bytes, .. } => bytes.len(),
            Told::HalfClose { .. } => 0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [100_000, 5, 0]);
}

#[test]
fn a_command_between_showing_and_writing_loses_nothing() {
    let mut pair = Pair::established(&Config::default());
    let body = pair.north.share(1, &pattern(100_000, 1));
    pair.north.connection.open_call(NOW, &unary(1), Some(linear(body))).unwrap();
    let mut shown = Vec::new();
    for chunk in pair.north.connection.poll_transmit(NOW, 1 << 20) {
        match chunk {
            Chunk::Bytes(bytes) => shown.extend(bytes),
            Chunk::Shared(range) => {
                shown.extend(&pair.north.shared[&range.token][range.offset as usize..][..range.len as usize]);
            }
        }
    }
    pair.north.connection.open_call(NOW, &unary(2), small()).unwrap();
    let written = 20 + 16 + 10_000;
    pair.north.connection.transmitted(written);
    pair.south.read(&shown[..written]).unwrap();
    pair.settle();
    assert_eq!(pair.south.told.len(), 2);
}

#[test]
fn a_trickle_of_grants_is_not_a_trickle_of_frames() {
    let limits = Limits { stream_window_bytes: 64 << 10, ..Limits::default() };
    let mut pair = Pair::established(&Config { limits, ..Config::default() });
    let body = pair.north.share(1, &pattern(200_000, 1));
    let stream = pair.north.connection.open_call(NOW, &unary(1), Some(linear(body))).unwrap();
    pair.north.write(1 << 20);
    // A receiver that gives back every hundred bytes at once, which ours would not.
    let header = Header { frame: FrameType::Window, flags: 0, code: 0, stream: stream.0, length: 4 };
    let grant = [&header.encode()[..], &100u32.to_le_bytes()].concat();
    let mut segments = Vec::new();
    while !pair.north.shared.is_empty() {
        pair.north.read(&grant).unwrap();
        segments.extend(frames(&pair.north.write(1 << 20)).into_iter().map(|(_, _, length)| length));
    }
    let last = segments.pop();
    assert!(segments.iter().all(|length| (4096..4196).contains(length)), "{segments:?}, {last:?}");
}

#[test]
fn a_slow_reader_fills_its_queue_and_no_more() {
    let config = Config { queue_bytes_max: 100_000, ..Config::default() };
    let mut pair = Pair::established(&config);
    let body = || Some(linear(Body::Owned(vec![1; 1000])));
    let refused = loop {
        if let Err(refused) = pair.north.connection.open_call(NOW, &unary(1), body()) {
            break refused;
        }
    };
    assert_eq!(refused, Refused::QueueFull { limit: 100_000 });
    assert!(pair.north.connection.send_queue_bytes() < 102_000);
    pair.north.write(40_000);
    assert_eq!(pair.north.notices, []);
    pair.north.write(20_000);
    assert_eq!(pair.north.notices, [Notice::Writable]);
    assert!(pair.north.connection.open_call(NOW, &unary(1), body()).is_ok());
}

#[test]
fn a_stream_without_a_window_waits_alone() {
    let config = Config { stream_queue_bytes_max: 300_000, ..Config::default() };
    let mut pair = Pair::established(&config);
    pair.south.grants = false;
    let call = NewCall { end: false, ..unary(7) };
    let stuck = pair.north.connection.open_call(NOW, &call, None).unwrap();
    let mut sent = 0;
    let refused = loop {
        let message = linear(Body::Owned(vec![2; 10_000]));
        match pair.north.connection.send_message(NOW, stuck, message, false) {
            Ok(()) => sent += 1,
            Err(refused) => break refused,
        }
        pair.settle();
    };
    assert_eq!(refused, Refused::StreamQueueFull { limit: 300_000 });
    let taken = (1 << 20) / (10_000 + MESSAGE_COST_BYTES as usize);
    assert_eq!(pair.south.told.len(), 1 + taken, "a window's worth has arrived");
    pair.north.connection.open_call(NOW, &unary(8), small()).unwrap();
    pair.settle();
    assert_eq!(pair.south.told.len(), 2 + taken, "others pass");
    for _ in 0..sent {
        pair.south.connection.grant(stuck, 10_000 + MESSAGE_COST_BYTES);
        pair.settle();
    }
    assert_eq!(pair.north.notices, [Notice::StreamWritable { stream: stuck, tag: 7 }]);
    assert_eq!(pair.south.told.len(), 2 + sent);
}
