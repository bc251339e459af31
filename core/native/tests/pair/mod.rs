//! Two connections wired back to back, with a host that cuts the bytes anywhere and keeps what it is told.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::sync::Arc;
use trunkline_call::{Code, Encoding, Execution, Instant, VouchedCaller};
use trunkline_native::*;

/// What one side was told, with bodies put together: events in order, and notices apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Established,
    Call {
        stream: StreamId,
        method: u16,
        caller: Option<u16>,
        deadline_ns: Option<u64>,
        stamps: bool,
        metadata: Vec<u8>,
        message: Option<Vec<u8>>,
        end: bool,
    },
    Message {
        stream: StreamId,
        bytes: Vec<u8>,
        end: bool,
    },
    Headers {
        stream: StreamId,
        metadata: Vec<u8>,
    },
    Result {
        stream: StreamId,
        tag: u64,
        bytes: Option<Vec<u8>>,
        metadata: Vec<u8>,
        trailer: Option<Trailer>,
    },
    Error {
        stream: StreamId,
        tag: u64,
        code: Code,
        execution: Execution,
        metadata: Vec<u8>,
    },
    HalfClose {
        stream: StreamId,
    },
    Cancelled {
        stream: StreamId,
        code: Code,
    },
    Schema {
        method: u16,
        path: String,
    },
    SchemaAnswer {
        method: u16,
        found: bool,
    },
    Caller {
        number: u16,
        caller: VouchedCaller,
    },
    Redial,
    Pong {
        payload: u64,
    },
    GoAway {
        code: Code,
    },
    Closed {
        code: Code,
        why: String,
    },
}

/// One side: the connection and the host around it.
pub struct End {
    pub connection: Connection,
    pub told: Vec<Told>,
    pub notices: Vec<Notice>,
    /// Memory the host gathers from, by token.
    pub shared: HashMap<u64, Vec<u8>>,
    /// Whether the host reads long bodies into place.
    pub places: bool,
    /// Whether the host grants what it was handed, as an application that consumes at once.
    pub grants: bool,
    /// Messages of which only a part has come.
    assembling: HashMap<StreamId, (Told, Vec<u8>)>,
    buffer: Vec<u8>,
}

pub const NOW: Instant = Instant(1_000_000);

impl End {
    pub fn new(side: Side, config: Config) -> Self {
        Self {
            connection: Connection::new(side, Arc::new(config), NOW),
            told: Vec::new(),
            notices: Vec::new(),
            shared: HashMap::new(),
            places: true,
            grants: true,
            assembling: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// A body in this host's memory.
    pub fn share(&mut self, token: u64, bytes: &[u8]) -> Body<'static> {
        // A range inside a larger block, so that offsets matter.
        let mut block = vec![0xee; 24];
        block.extend(bytes);
        self.shared.insert(token, block);
        Body::Shared(SharedRange { token, offset: 24, len: bytes.len() as u32 })
    }

    /// Takes up to `count` bytes off the connection, as a socket would.
    pub fn write(&mut self, count: usize) -> Vec<u8> {
        self.write_at(NOW, count)
    }

    /// The same at another time.
    pub fn write_at(&mut self, now: Instant, count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in self.connection.poll_transmit(now, count) {
            assert!(!chunk.is_empty(), "an empty chunk was shown");
            match chunk {
                Chunk::Bytes(bytes) => out.extend(bytes),
                Chunk::Shared(SharedRange { token, offset, len }) => {
                    out.extend(&self.shared[&token][offset as usize..][..len as usize]);
                }
            }
        }
        out.truncate(count);
        self.connection.transmitted(out.len());
        self.collect_notices();
        out
    }

    /// Hands bytes to the connection, as a host reading `bytes.len()` at once would.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), ProtocolError> {
        while let Some(placement) = self.connection.wanted().filter(|_| self.places && !bytes.is_empty()) {
            let (here, rest) = bytes.split_at(bytes.len().min(placement.bytes as usize));
            bytes = rest;
            self.chunk(placement.stream, placement.offset, here, false);
            let done = self.connection.placed(NOW, here.len() as u32);
            if let Some(Event::Chunk { stream, offset, bytes, last, .. }) = done {
                self.chunk(stream, offset, bytes, last);
            }
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(buffer.len().max(INPUT_BYTES_MIN + bytes.len()), 0);
        let start = self.connection.resume(&mut buffer);
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        let mut input = Input::new(&buffer[..start + bytes.len()]);
        while let Some(event) = self.connection.handle_bytes(NOW, &mut input)? {
            self.event(event);
        }
        self.buffer = buffer;
        self.collect_notices();
        Ok(())
    }

    fn collect_notices(&mut self) {
        while let Some(notice) = self.connection.poll_notice() {
            if let Notice::BodyDone { token } = notice {
                assert!(self.shared.remove(&token).is_some(), "token {token} given back twice");
            }
            self.notices.push(notice);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Established => self.told.push(Told::Established),
            Event::Call(call) => {
                let told = Told::Call {
                    stream: call.stream,
                    method: call.method.0,
                    caller: call.caller.map(|caller| caller.0),
                    deadline_ns: call.deadline_remaining_ns,
                    stamps: call.stamps_wanted,
                    metadata: call.metadata.to_vec(),
                    message: call.message.map(|_| Vec::new()),
                    end: call.end,
                };
                self.begin(call.stream, told, call.message, 0);
            }
            Event::Message { stream, message, end, .. } => {
                let told = Told::Message { stream, bytes: Vec::new(), end };
                self.begin(stream, told, Some(message), MESSAGE_COST_BYTES);
            }
            Event::Result { stream, tag, message, metadata, trailer } => {
                let (metadata, trailer) = (metadata.to_vec(), trailer.copied());
                let bytes = message.map(|_| Vec::new());
                self.begin(stream, Told::Result { stream, tag, bytes, metadata, trailer }, message, 0);
            }
            Event::Chunk { stream, offset, bytes, last, .. } => self.chunk(stream, offset, bytes, last),
            Event::Headers { stream, metadata, .. } => {
                self.told.push(Told::Headers { stream, metadata: metadata.to_vec() });
            }
            Event::Error { stream, tag, code, execution, metadata, .. } => {
                self.assembling.remove(&stream);
                self.told.push(Told::Error { stream, tag, code, execution, metadata: metadata.to_vec() });
            }
            Event::HalfClose { stream, .. } => self.told.push(Told::HalfClose { stream }),
            Event::Cancelled { stream, code, .. } => {
                self.assembling.remove(&stream);
                self.told.push(Told::Cancelled { stream, code });
            }
            Event::Schema { method, path, .. } => {
                self.told.push(Told::Schema { method: method.0, path: path.to_owned() });
            }
            Event::SchemaAnswer { method, found, .. } => {
                self.told.push(Told::SchemaAnswer { method: method.0, found });
            }
            Event::Caller { number, caller } => self.told.push(Told::Caller { number: number.0, caller }),
            Event::Redial => self.told.push(Told::Redial),
            Event::Pong { payload } => self.told.push(Told::Pong { payload }),
            Event::GoAway { code } => self.told.push(Told::GoAway { code }),
            Event::Closed { code, why } => self.told.push(Told::Closed { code, why: why.to_owned() }),
        }
    }

    fn begin(&mut self, stream: StreamId, told: Told, message: Option<Incoming<'_>>, cost: u32) {
        match message.map(|message| message.body) {
            None => self.told.push(told),
            Some(Arriving::Whole(bytes)) => {
                self.told.push(filled(told, bytes.to_vec()));
                self.grant(stream, bytes.len() as u32 + cost);
            }
            Some(Arriving::Cut { total }) => {
                let before = self.assembling.insert(stream, (told, Vec::with_capacity(total as usize)));
                assert_eq!(before, None, "two messages at once on {stream:?}");
                self.grant(stream, cost);
            }
        }
    }

    fn chunk(&mut self, stream: StreamId, offset: u32, bytes: &[u8], last: bool) {
        let (_, so_far) = self.assembling.get_mut(&stream).expect("a chunk of a message that began");
        if !bytes.is_empty() {
            assert_eq!(so_far.len(), offset as usize);
        }
        so_far.extend(bytes);
        if last {
            let (told, bytes) = self.assembling.remove(&stream).unwrap();
            self.told.push(filled(told, bytes));
        }
        self.grant(stream, bytes.len() as u32);
    }

    fn grant(&mut self, stream: StreamId, bytes: u32) {
        if self.grants && bytes > 0 {
            self.connection.grant(stream, bytes);
        }
    }
}

fn filled(told: Told, body: Vec<u8>) -> Told {
    match told {
        Told::Call { stream, method, caller, deadline_ns, stamps, metadata, end, .. } => {
            Told::Call { stream, method, caller, deadline_ns, stamps, metadata, message: Some(body), end }
        }
        Told::Message { stream, end, .. } => Told::Message { stream, bytes: body, end },
        Told::Result { stream, tag, metadata, trailer, .. } => {
            Told::Result { stream, tag, bytes: Some(body), metadata, trailer }
        }
        other => other,
    }
}

/// Both sides.
pub struct Pair {
    pub north: End,
    pub south: End,
}

impl Pair {
    /// Fresh, nothing exchanged.
    pub fn new(north: Config, south: Config) -> Self {
        Self { north: End::new(Side::Initiator, north), south: End::new(Side::Acceptor, south) }
    }

    /// Past hello, with method 0 of the north agreed on linear bodies.
    pub fn established(config: &Config) -> Self {
        let mut pair = Self::new(config.clone(), config.clone());
        pair.settle();
        let method = pair.north.connection.announce_schema("/greeter.Greeter/SayHello", 11, 12).unwrap();
        pair.settle();
        pair.south.connection.answer_schema(method, true, 11, 12).unwrap();
        pair.settle();
        pair.north.told.clear();
        pair.south.told.clear();
        pair
    }

    /// Moves bytes until neither side has any.
    pub fn settle(&mut self) {
        self.settle_cut(1 << 20, 1 << 20);
    }

    /// The same, with reads and writes of at most so many bytes.
    pub fn settle_cut(&mut self, write_bytes: usize, read_bytes: usize) {
        loop {
            let there = self.step_to_south(write_bytes, read_bytes);
            let back = self.step_to_north(write_bytes, read_bytes);
            if !there && !back {
                return;
            }
        }
    }

    pub fn step_to_south(&mut self, write_bytes: usize, read_bytes: usize) -> bool {
        step(&mut self.north, &mut self.south, write_bytes, read_bytes)
    }

    pub fn step_to_north(&mut self, write_bytes: usize, read_bytes: usize) -> bool {
        step(&mut self.south, &mut self.north, write_bytes, read_bytes)
    }
}

fn step(from: &mut End, to: &mut End, write_bytes: usize, read_bytes: usize) -> bool {
    let bytes = from.write(write_bytes);
    for piece in bytes.chunks(read_bytes) {
        to.read(piece).expect("an honest peer");
    }
    !bytes.is_empty()
}

/// Both sides offer checksums.
pub fn checked() -> Config {
    Config { features: Features::CHECKSUM, ..Config::default() }
}

/// Both sides offer to name callers.
pub fn naming() -> Config {
    Config { features: Features::CALLERS, ..Config::default() }
}

/// Somebody to name.
pub fn till() -> VouchedCaller {
    VouchedCaller {
        identity: "uid:1000".into(),
        name: "till".into(),
        program: "/bin/till".into(),
        services: vec!["pay.v1.Pay".into()],
    }
}

/// A unary call of method 0.
pub fn unary(tag: u64) -> NewCall<'static> {
    NewCall {
        tag,
        method: MethodIndex(0),
        caller: None,
        deadline: trunkline_call::Deadline::NONE,
        stamps: false,
        metadata: &[],
        end: true,
    }
}

/// A linear message.
pub fn linear(body: Body<'_>) -> Payload<'_> {
    Payload { encoding: Encoding::Linear, body }
}

/// Bytes that show where they came from.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}
