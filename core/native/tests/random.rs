//! Shows that whatever two sides say to each other in whatever order, and wherever the bytes are cut, each is told
//! exactly what the other said, in order; and that when all is over, windows are whole, queues empty, bodies given
//! back.

mod pair;
use pair::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use trunkline_call::{Code, Execution};
use trunkline_native::*;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Inline,
    Owned,
    Shared,
}

#[derive(Clone, Debug)]
enum Op {
    Open { message: Option<(usize, Kind)>, end: bool },
    Message { pick: usize, len: usize, kind: Kind, end: bool },
    HalfClose { pick: usize },
    Cancel { pick: usize },
    Headers { pick: usize },
    Result { pick: usize, message: Option<(usize, Kind)> },
    Error { pick: usize, abort: bool },
    Ping,
    Move { write_bytes: usize, read_bytes: usize },
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..100usize, 2 => 16_000..17_000usize, 2 => 60_000..70_000usize, 1 => 100_000..300_000usize]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Inline), Just(Kind::Owned), Just(Kind::Shared)]
}

fn op() -> impl Strategy<Value = Op> {
    let message = || prop::option::weighted(0.8, (len(), kind()));
    let size = || prop_oneof![1 => 1..40usize, 1 => 100..5_000usize, 3 => 60_000..200_000usize];
    prop_oneof![
        4 => (message(), any::<bool>()).prop_map(|(message, end)| Op::Open { message, end }),
        6 => (any::<usize>(), len(), kind(), prop::bool::weighted(0.2))
            .prop_map(|(pick, len, kind, end)| Op::Message { pick, len, kind, end }),
        1 => any::<usize>().prop_map(|pick| Op::HalfClose { pick }),
        1 => any::<usize>().prop_map(|pick| Op::Cancel { pick }),
        1 => any::<usize>().prop_map(|pick| Op::Headers { pick }),
        4 => (any::<usize>(), message()).prop_map(|(pick, message)| Op::Result { pick, message }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(pick, abort)| Op::Error { pick, abort }),
        1 => Just(Op::Ping),
        8 => (size(), size()).prop_map(|(write_bytes, read_bytes)| Op::Move { write_bytes, read_bytes }),
    ]
}

/// One side, and everything it has said on each stream, as the other will be told.
struct Speaker {
    end: End,
    said: BTreeMap<StreamId, Vec<Told>>,
    /// The tags of the calls it opened.
    tags: BTreeMap<StreamId, u64>,
    parity: u32,
    next: u8,
    next_token: u64,
}

impl Speaker {
    fn new(side: Side, config: &Config, places: bool) -> Self {
        let parity = if side == Side::Initiator { 1 } else { 0 };
        let mut end = End::new(side, config.clone());
        end.places = places;
        Self { end, said: BTreeMap::new(), tags: BTreeMap::new(), parity, next: 0, next_token: parity.into() }
    }

    fn body(&mut self, len: usize, kind: Kind) -> (Body<'static>, Vec<u8>) {
        self.next = self.next.wrapping_add(1);
        self.next_token += 2;
        let bytes = pattern(len, self.next);
        let body = match kind {
            Kind::Inline => Body::Inline(bytes.clone().leak()),
            Kind::Owned => Body::Owned(bytes.clone()),
            Kind::Shared => self.end.share(self.next_token, &bytes),
        };
        (body, bytes)
    }

    /// A stream this side has opened, or one of the other side it has heard of, that it has not ended.
    fn pick(&self, pick: usize, own: bool, other: &Self) -> Option<StreamId> {
        let opener = if own { self } else { other };
        let is_open = |id: &StreamId| match self.said.get(id).and_then(|said| said.last()) {
            Some(Told::Result { .. } | Told::Error { .. } | Told::Cancelled { .. }) => false,
            _ => own || self.has_heard(*id),
        };
        let ids: Vec<_> = opener.tags.keys().copied().filter(is_open).collect();
        ids.get(pick % ids.len().max(1)).copied()
    }

    fn has_heard(&self, id: StreamId) -> bool {
        self.end.told.iter().any(|told| matches!(told, Told::Call { stream, .. } if *stream == id))
    }

    fn say(&mut self, stream: StreamId, told: Told) {
        self.said.entry(stream).or_default().push(told);
    }

    fn open(&mut self, message: Option<(usize, Kind)>, end: bool) {
        let (payload, bytes) = message.map(|(len, kind)| self.body(len, kind)).unzip();
        let call = NewCall { end, ..unary(self.tags.len() as u64 + 1) };
        let opened = self.end.connection.open_call(NOW, &call, payload.map(linear));
        let Ok(stream) = opened else { return self.take_back(message) };
        self.tags.insert(stream, call.tag);
        let metadata = Vec::new();
        let told = Told::Call {
            stream,
            method: 0,
            caller: None,
            deadline_ns: None,
            stamps: false,
            metadata,
            message: bytes,
            end,
        };
        self.say(stream, told);
    }

    fn message(&mut self, stream: StreamId, len: usize, kind: Kind, end: bool) {
        let (body, bytes) = self.body(len, kind);
        match self.end.connection.send_message(NOW, stream, linear(body), end) {
            Ok(()) => self.say(stream, Told::Message { stream, bytes, end }),
            Err(_) => self.take_back(Some((len, kind))),
        }
    }

    fn result(&mut self, stream: StreamId, tag: u64, message: Option<(usize, Kind)>) {
        let (payload, bytes) = message.map(|(len, kind)| self.body(len, kind)).unzip();
        let outcome = Outcome { trailer: None, metadata: b"trailing" };
        match self.end.connection.send_result(NOW, stream, &outcome, payload.map(linear)) {
            Ok(()) => {
                let metadata = b"trailing".to_vec();
                self.say(stream, Told::Result { stream, tag, bytes, metadata, trailer: None });
            }
            Err(_) => self.take_back(message),
        }
    }

    fn error(&mut self, stream: StreamId, tag: u64, abort: bool) {
        let (code, execution) = (Code::Aborted, Execution::Executed);
        let failure =
            Failure { code, execution, metadata: if abort { b"abort" } else { b"" }, trailer: None };
        let connection = &mut self.end.connection;
        let sent = if abort { Connection::abort } else { Connection::send_error };
        if sent(connection, NOW, stream, &failure).is_ok() {
            let metadata = failure.metadata.to_vec();
            self.say(stream, Told::Error { stream, tag, code, execution, metadata });
        }
    }

    fn cancel(&mut self, stream: StreamId) {
        let code = Code::Cancelled;
        if self.end.connection.cancel(NOW, stream, code).is_ok() {
            self.say(stream, Told::Cancelled { stream, code });
        }
    }

    /// A refused shared body stays with the host.
    fn take_back(&mut self, message: Option<(usize, Kind)>) {
        if matches!(message, Some((_, Kind::Shared))) {
            self.end.shared.remove(&self.next_token).expect("a refused body");
        }
    }

    fn told_of(&self, stream: StreamId) -> Vec<Told> {
        self.end.told.iter().filter(|told| stream_of(told) == Some(stream)).cloned().collect()
    }
}

fn stream_of(told: &Told) -> Option<StreamId> {
    match *told {
        Told::Call { stream, .. }
        | Told::Message { stream, .. }
        | Told::Headers { stream, .. }
        | Told::Result { stream, .. }
        | Told::Error { stream, .. }
        | Told::HalfClose { stream }
        | Told::Cancelled { stream, .. } => Some(stream),
        _ => None,
    }
}

fn act(op: &Op, me: &mut Speaker, other: &mut Speaker) {
    match *op {
        Op::Open { message, end } => me.open(message, end),
        Op::Message { pick, len, kind, end } => {
            let own = pick % 2 == 0;
            if let Some(stream) = me.pick(pick / 2, own, other) {
                me.message(stream, len, kind, end && own);
            }
        }
        Op::HalfClose { pick } => {
            if let Some(stream) = me.pick(pick, true, other)
                && me.end.connection.half_close(NOW, stream).is_ok()
            {
                me.say(stream, Told::HalfClose { stream });
            }
        }
        Op::Cancel { pick } => {
            if let Some(stream) = me.pick(pick, true, other) {
                me.cancel(stream);
            }
        }
        Op::Headers { pick } => {
            if let Some(stream) = me.pick(pick, false, other)
                && me.end.connection.send_headers(NOW, stream, b"early").is_ok()
            {
                me.say(stream, Told::Headers { stream, metadata: b"early".to_vec() });
            }
        }
        Op::Result { pick, message } => {
            if let Some(stream) = me.pick(pick, false, other) {
                me.result(stream, other.tags[&stream], message);
            }
        }
        Op::Error { pick, abort } => {
            if let Some(stream) = me.pick(pick, false, other) {
                me.error(stream, other.tags[&stream], abort);
            }
        }
        Op::Ping => me.end.connection.ping(5),
        Op::Move { write_bytes, read_bytes } => {
            transfer(me, other, write_bytes, read_bytes);
        }
    }
}

fn transfer(from: &mut Speaker, to: &mut Speaker, write_bytes: usize, read_bytes: usize) -> bool {
    let bytes = from.end.write(write_bytes);
    for piece in bytes.chunks(read_bytes) {
        to.end.read(piece).expect("an honest peer");
    }
    !bytes.is_empty()
}

fn settle(north: &mut Speaker, south: &mut Speaker, size: usize) {
    while transfer(north, south, size, size / 2 + 1) | transfer(south, north, size, size) {}
}

fn agree(north: &mut Speaker, south: &mut Speaker) {
    settle(north, south, 1 << 16);
    for end in [&mut north.end, &mut south.end] {
        end.connection.announce_schema("/a.B/C", 1, 2).unwrap();
    }
    settle(north, south, 1 << 16);
    for end in [&mut north.end, &mut south.end] {
        end.connection.answer_schema(MethodIndex(0), true, 1, 2).unwrap();
    }
    settle(north, south, 1 << 16);
}

/// Ends every call that is still open, from the serving side if it has heard of it.
fn wind_up(me: &mut Speaker, other: &mut Speaker) {
    let ids: Vec<_> = me.said.keys().filter(|id| id.0 % 2 == me.parity).copied().collect();
    for stream in ids {
        let tag = me.tags[&stream];
        other.error(stream, tag, false);
    }
}

fn is_prefix(told: &[Told], said: &[Told]) -> bool {
    told.len() <= said.len() && told == &said[..told.len()]
}

/// Checks one stream's both directions against what was said on it.
fn check(stream: StreamId, opener: &Speaker, acceptor: &Speaker) {
    let nothing = Vec::new();
    let (request, response) = (&opener.said[&stream], acceptor.said.get(&stream).unwrap_or(&nothing));
    let (heard, answered) = (acceptor.told_of(stream), opener.told_of(stream));
    let is_cancel = |told: &&Told| matches!(told, Told::Cancelled { .. });
    let is_abort = |told: &&Told| matches!(told, Told::Error { metadata, .. } if metadata == b"abort");
    let cancelled = request.last().filter(is_cancel);
    match heard.split_last() {
        Some((last, before)) if is_cancel(&last) => {
            assert_eq!(Some(last), cancelled);
            assert!(is_prefix(before, request), "{heard:?} of {request:?}");
        }
        _ => assert!(is_prefix(&heard, request), "{heard:?} of {request:?}"),
    }
    match answered.split_last() {
        Some((last, before)) if is_abort(&last) => assert!(is_prefix(before, response)),
        _ if cancelled.is_some() => assert!(is_prefix(&answered, response)),
        _ => assert_eq!(&answered, response),
    }
}

fn check_all(north: &Speaker, south: &Speaker, limits: &Limits) {
    for (opener, acceptor) in [(north, south), (south, north)] {
        for stream in opener.said.keys().filter(|id| id.0 % 2 == opener.parity) {
            check(*stream, opener, acceptor);
        }
    }
    for (me, other) in [(north, south), (south, north)] {
        assert_eq!(me.end.connection.send_queue_bytes(), 0);
        assert_eq!(me.end.connection.stream_count(), 0);
        assert!(me.end.shared.is_empty(), "bodies were not given back");
        let (mine, theirs) = (me.end.connection.windows(), other.end.connection.windows());
        let whole = u64::from(limits.connection_window_bytes);
        assert_eq!(mine.receive_bytes + u64::from(mine.unreturned_bytes), whole);
        assert_eq!(mine.send_bytes + u64::from(theirs.unreturned_bytes), whole);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 192,
        rng_seed: RngSeed::Fixed(7),
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn each_is_told_what_the_other_said(
        ops in prop::collection::vec((any::<bool>(), op()), 1..120),
        places in any::<bool>(),
        segment_bytes in prop_oneof![Just(1024u32), 4096..70_000u32],
        windows in prop_oneof![Just((64u32 << 10, 64u32 << 10)), Just((1 << 20, 256 << 10)), Just((100_000, 1 << 20))],
        last_size in 300..100_000usize,
        checksums in prop::bool::weighted(0.3),
        placement_bytes_min in prop_oneof![Just(16u32 << 10), 0..100u32],
    ) {
        let limits = Limits { stream_window_bytes: windows.0, connection_window_bytes: windows.1, ..Limits::default() };
        let base = if checksums { checked() } else { Config::default() };
        let config =
            Config { limits, segment_bytes, placement_bytes_min, stream_queue_bytes_max: 200_000, ..base };
        let (mut north, mut south) =
            (Speaker::new(Side::Initiator, &config, places), Speaker::new(Side::Acceptor, &config, !places));
        agree(&mut north, &mut south);
        for (is_north, op) in &ops {
            let (me, other) = if *is_north { (&mut north, &mut south) } else { (&mut south, &mut north) };
            act(op, me, other);
        }
        settle(&mut north, &mut south, last_size);
        wind_up(&mut north, &mut south);
        wind_up(&mut south, &mut north);
        settle(&mut north, &mut south, last_size);
        check_all(&north, &south, &limits);
    }
}
