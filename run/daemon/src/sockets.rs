//! The sockets of a shard: bytes in to the engine, bytes out of it.

use crate::clock::now;
use crate::heaps::SessionHeaps;
use crate::purpose::identity_of_daemon;
use crate::socket_work::SocketWork;
use crate::token::Token;
use crate::unidentified::UnidentifiedKey;
use std::borrow::Cow;
use std::io::IoSlice;
use std::time::Duration;
use trunkline_call::entry::Span;
use trunkline_call::{Instant, KeyedMap};
use trunkline_engine::{Engine, Heaps, PeerKey, Piece, SentCall, Turn, UnwantedPeer};
use trunkline_net::{Interest, LingeringClose, Portable, Ready, Stream, Transfer};
use trunkline_shm::{GATHER_PIECES_MAX, Piece as Chunk, send_gather};
use trunkline_telemetry::{TaxStage, tax_stage};

/// The sockets of native connections, and those of them that are to be read again.
#[derive(Default)]
pub(crate) struct NativeSockets {
    open: KeyedMap<PeerKey, Socket>,
    /// Connections that were left before all was read that TLS holds, of which the poller does not know. Each at most
    /// once: those that are open bound it.
    unread: Vec<PeerKey>,
    /// How many had more to say, the last time, than they were listened to.
    long: usize,
    /// Writes since the kernel was asked when one left.
    unasked: u32,
    /// Planted (`debug.read_stall_us`): what is there is read so much later.
    stall_us: u64,
    /// The read buffer all of them share: filled, handled and empty again within one visit.
    input: Vec<u8>,
}

/// One connection's socket.
pub(crate) struct Socket {
    stream: Stream,
    state: State,
    /// Why it is closing.
    closes_for: Cow<'static, str>,
    /// It is among the unread.
    is_unread: bool,
    /// There was more to read than its share of a turn when it was last looked at.
    is_long: bool,
    /// A call, and how many bytes of the write that sent it came before its last: the kernel is to say when that left.
    asked: Option<(SentCall, u32)>,
    /// Its key among the unidentified, if it was accepted.
    unidentified: Option<UnidentifiedKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Writes are taken.
    Open,
    /// The kernel's buffer is full: decided when it becomes writable.
    Full,
    /// What is queued tells the peer why, then it is closed.
    Closing,
}

impl NativeSockets {
    pub fn new(stall_us: u64) -> Self {
        Self { stall_us, input: vec![0; INPUT_BYTES], ..Self::default() }
    }

    /// Lets the planted time pass, as for a thread that has no core.
    fn stall(&self) {
        if self.stall_us > 0 {
            std::thread::sleep(Duration::from_micros(self.stall_us));
        }
    }

    pub fn insert(&mut self, key: PeerKey, stream: Stream, unidentified: Option<UnidentifiedKey>) {
        self.open.insert(
            key,
            Socket {
                stream,
                state: State::Open,
                closes_for: Cow::Borrowed(""),
                is_unread: false,
                is_long: false,
                asked: None,
                unidentified,
            },
        );
    }

    /// Whether connections had more to say, the last time, than they were listened to.
    pub fn are_long(&self) -> bool {
        self.long > 0
    }

    /// Whether this one had: it is served when the others have been.
    pub fn is_long(&self, key: PeerKey) -> bool {
        self.open.get(&key).is_some_and(|socket| socket.is_long)
    }

    fn note_long(&mut self, key: PeerKey, is_long: bool) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        let was_long = std::mem::replace(&mut socket.is_long, is_long);
        self.long = self.long + usize::from(is_long) - usize::from(was_long);
    }

    pub fn contains(&self, key: PeerKey) -> bool {
        self.open.contains_key(&key)
    }

    /// Whether it is here and has not greeted. One that is about to be closed is not meant: it keeps its place until
    /// it has read why.
    pub fn is_unidentified(&self, key: PeerKey, unidentified: UnidentifiedKey) -> bool {
        let socket = self.open.get(&key).filter(|socket| socket.state != State::Closing);
        socket.is_some_and(|socket| socket.unidentified == Some(unidentified))
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (PeerKey, &Socket)> {
        self.open.iter().map(|(key, socket)| (*key, socket))
    }

    /// Makes each one that can go on in another process, if that can be.
    pub fn make_portable(&mut self) {
        self.open.values_mut().for_each(Socket::make_portable);
    }

    /// Takes the streams of all.
    pub fn take_streams(&mut self) -> impl Iterator<Item = Stream> + use<> {
        std::mem::take(&mut self.open).into_values().map(|socket| socket.stream)
    }

    /// Has a connection read again if TLS holds what the poller will not tell of.
    fn remember_unread(&mut self, key: PeerKey) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        if socket.stream.has_buffered()
            && socket.state != State::Closing
            && !std::mem::replace(&mut socket.is_unread, true)
        {
            self.unread.push(key);
        }
    }

    /// The kernel reports when something left: it is the call's that was asked about.
    fn take_report(&mut self, key: PeerKey, engine: &mut Engine) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        let (reported, asked) = (socket.stream.sent_ns(now().0), socket.asked.take());
        if let (Some((before, at)), Some((call, asked_before))) = (reported, asked)
            && before == asked_before
        {
            engine.native().note_sent(call, Instant(at));
        }
    }

    /// The connections to be read again.
    fn take_unread(&mut self) -> Vec<PeerKey> {
        let unread = std::mem::take(&mut self.unread);
        for key in &unread {
            if let Some(socket) = self.open.get_mut(key) {
                socket.is_unread = false;
            }
        }
        unread
    }
}

impl Socket {
    fn make_portable(&mut self) {
        if self.state != State::Closing {
            self.stream.make_portable();
        }
    }

    /// Whether it can go on in another process, and the TLS session that goes with it.
    pub fn can_move(&self) -> Option<Option<Portable>> {
        let session = self.stream.portable();
        let can_move = self.state != State::Closing && (session.is_some() || !self.stream.is_secure());
        can_move.then_some(session)
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// A read of less than this has very likely emptied the socket. To read again only to hear *not ready* is a system call
/// per small message; if there was more after all, the poller (level-triggered) says so.
const SHORT_READ_BYTES: usize = 16 << 10;
/// Connections with large messages that are written to before rings and sockets are looked at again.
const BULK_PER_TURN: usize = 2;
/// Reads of so much from a connection that takes nothing any more: above what a kernel keeps for a socket.
const READS_OF_THE_GONE_MAX: usize = 16;
/// One write in so many has the kernel say when it left: a report costs 1 µs.
const WRITES_PER_REPORT: u32 = 1000;
/// Bytes encrypted at once: several of the largest records.
const SEALED_BYTES_MAX: usize = 64 << 10;
/// Size of the read buffer: several small calls or the beginning of a large one; large bodies are read in place.
const INPUT_BYTES: usize = 256 << 10;

/// What a visit of a socket led to.
enum Visit {
    /// All that could be done was done.
    Done,
    /// There is more, after the others had their turn.
    More,
    /// The connection is over.
    Over(String),
}

impl NativeSockets {
    /// Takes in a connection that speaks the native protocol, of which `first` has been read.
    pub fn begin(
        &mut self,
        lent: &mut SocketWork<'_>,
        key: PeerKey,
        stream: Stream,
        first: &[u8],
        unidentified: Option<UnidentifiedKey>,
    ) {
        lent.engine.native().identified(key, identity_of_daemon(&stream));
        let interest = Interest::Read;
        if let Err(error) = lent.poller.set_interest(&stream, Token::Peer(key).to_poller(), interest) {
            tracing::error!(%error, "cannot watch a socket");
        }
        self.insert(key, stream, unidentified);
        lent.engine.native().transmit(key);
        let start = lent.engine.native().resume(key, &mut self.input);
        self.input[start..start + first.len()].copy_from_slice(first);
        if !first.is_empty() {
            let seen = now();
            self.handle_frames(lent, key, seen, seen, start + first.len());
            self.note_greeting(lent, key);
        }
        // What TLS has read already, the poller does not tell.
        self.read(lent, key);
    }

    /// Serves a socket the poller named.
    pub fn serve(&mut self, lent: &mut SocketWork<'_>, key: PeerKey, ready: Ready) {
        if ready.writable {
            self.become_writable(lent, key);
        }
        if ready.is_gone {
            self.take_report(key, lent.engine);
        }
        if ready.readable {
            self.stall();
            self.read(lent, key);
        }
    }

    /// Has whatever TLS holds read in the next turn: of sessions that came from another process, or might have gone.
    pub fn read_buffered_soon(&mut self) {
        let keys: Vec<PeerKey> = self.open.keys().copied().collect();
        keys.into_iter().for_each(|key| self.remember_unread(key));
    }

    /// Goes on with connections that were left with bytes TLS holds. Whether there were any.
    pub fn read_on(&mut self, lent: &mut SocketWork<'_>) -> bool {
        let unread = self.take_unread();
        unread.iter().for_each(|key| self.read(lent, *key));
        !unread.is_empty()
    }

    /// Lets out what connections have queued.
    pub fn transmit(&mut self, lent: &mut SocketWork<'_>) {
        while let Some(UnwantedPeer { key, why, is_told }) = lent.engine.native().poll_unwanted() {
            match self.open.get_mut(&key) {
                Some(socket) if is_told && socket.state != State::Full => {
                    (socket.state, socket.closes_for) = (State::Closing, why);
                    lent.engine.native().transmit(key);
                }
                _ => self.lose(lent, key, &why),
            }
        }
        let (mut bulk, mut later) = (Vec::new(), Vec::new());
        while let Some(key) = lent.engine.native().poll_transmitting() {
            // Nobody's small call waits for what others send at length.
            match lent.engine.native().is_bulk(key) {
                true => bulk.push(key),
                false => self.write_out(lent, key, &mut later),
            }
        }
        for (index, key) in bulk.into_iter().enumerate() {
            match index < BULK_PER_TURN {
                true => self.write_out(lent, key, &mut later),
                false => later.push(key),
            }
        }
        for key in later {
            lent.engine.native().transmit(key);
            lent.left.is_pressing = true;
        }
    }

    fn write_out(&mut self, lent: &mut SocketWork<'_>, key: PeerKey, later: &mut Vec<PeerKey>) {
        match self.write(lent, key) {
            Visit::Done => {}
            Visit::More => later.push(key),
            Visit::Over(why) => self.lose(lent, key, &why),
        }
    }

    /// The poller says that there is room again.
    fn become_writable(&mut self, lent: &mut SocketWork<'_>, key: PeerKey) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        if socket.state == State::Full {
            socket.state = State::Open;
            let _ = lent.poller.set_interest(&socket.stream, Token::Peer(key).to_poller(), Interest::Read);
            lent.engine.native().transmit(key);
        }
    }

    fn read(&mut self, lent: &mut SocketWork<'_>, key: PeerKey) {
        let visit = self.read_some(lent, key);
        self.note_long(key, matches!(visit, Visit::More));
        match visit {
            Visit::Done => {}
            // Of what the kernel holds the poller tells again.
            Visit::More => {
                lent.left.is_pressing = true;
                self.remember_unread(key);
            }
            Visit::Over(why) => self.lose(lent, key, &why),
        }
    }

    // LIFE: 12 | read from the socket, method and stream known | stream, method (k7) | 3 request wire
    /// Reads until the socket is empty or its share of the turn is used up.
    fn read_some(&mut self, lent: &mut SocketWork<'_>, key: PeerKey) -> Visit {
        let mut left = lent.turn_bytes;
        while left > 0 {
            let moved = match self.read_in_place(lent, key, left) {
                Some(moved) => moved,
                None => self.read_frames(lent, key),
            };
            match moved {
                Ok(Transfer::Bytes(bytes)) if bytes < SHORT_READ_BYTES && !self.has_buffered(key) => {
                    return Visit::Done;
                }
                Ok(Transfer::Bytes(bytes)) => left = left.saturating_sub(bytes),
                Ok(Transfer::NotReady) => return Visit::Done,
                Ok(Transfer::Ended) => return Visit::Over("peer closed the connection".into()),
                Err(why) => return Visit::Over(why),
            }
        }
        Visit::More
    }

    /// Reads the body of a large message straight to where it belongs; `None` if that is not what comes next.
    fn read_in_place(
        &mut self,
        lent: &mut SocketWork<'_>,
        key: PeerKey,
        left: usize,
    ) -> Option<Result<Transfer, String>> {
        let socket = self.open.get_mut(&key)?;
        let room = lent.engine.native().wanted(&mut *lent.heaps, key)?;
        let seen = now();
        let room_bytes = room.len().min(left);
        let moved = socket.stream.read(&mut room[..room_bytes]).map_err(|e| e.to_string());
        if let Ok(Transfer::Bytes(bytes)) = moved {
            let mut turn = Turn { now: now(), heaps: &mut *lent.heaps };
            let arrived = socket.stream.arrived_ns(turn.now.0).map_or(seen, Instant);
            lent.engine.placed(&mut turn, key, arrived, bytes);
        }
        Some(moved)
    }

    /// Reads frames into the shared buffer and hands them to the engine.
    fn read_frames(&mut self, lent: &mut SocketWork<'_>, key: PeerKey) -> Result<Transfer, String> {
        let Some(socket) = self.open.get_mut(&key).filter(|socket| socket.state != State::Closing) else {
            return Ok(Transfer::NotReady);
        };
        let is_unidentified = socket.unidentified.is_some();
        let start = lent.engine.native().resume(key, &mut self.input);
        let seen = now();
        let moved = socket.stream.read(&mut self.input[start..]).map_err(|e| e.to_string())?;
        let read = now();
        let arrived = socket.stream.arrived_ns(read.0).map_or(seen, Instant);
        let end = match moved {
            Transfer::Bytes(bytes) => start + bytes,
            Transfer::NotReady | Transfer::Ended => start,
        };
        let is_sound = self.handle_frames(lent, key, arrived, read, end);
        if is_unidentified {
            self.note_greeting(lent, key);
        }
        Ok(if is_sound { moved } else { Transfer::NotReady })
    }

    /// Whoever has greeted is no longer among the unidentified.
    fn note_greeting(&mut self, lent: &mut SocketWork<'_>, key: PeerKey) {
        if let Some(socket) = self.open.get_mut(&key)
            && lent.engine.native().has_greeted(key)
            && let Some(unidentified) = socket.unidentified.take()
        {
            lent.left.greeted.push((key, unidentified));
        }
    }

    /// Hands the shared buffer to the engine. `false` if the peer broke the protocol.
    fn handle_frames(
        &mut self,
        lent: &mut SocketWork<'_>,
        key: PeerKey,
        arrived: Instant,
        now: Instant,
        end: usize,
    ) -> bool {
        let mut turn = Turn { now, heaps: &mut *lent.heaps };
        let handled = lent.engine.handle_input(&mut turn, key, arrived, &self.input[..end]);
        if let Err(fault) = &handled {
            tracing::warn!(peer = ?key, %fault, "peer broke the protocol");
            if let Some(socket) = self.open.get_mut(&key) {
                (socket.state, socket.closes_for) = (State::Closing, "peer broke the protocol".into());
            }
        }
        handled.is_ok()
    }

    fn has_buffered(&self, key: PeerKey) -> bool {
        self.open.get(&key).is_some_and(|socket| socket.stream.has_buffered())
    }

    // LIFE: 11 | written to the socket | (d4) | 2 request processing + stack, A's part
    /// Writes until nothing is queued, the kernel's buffer is full, or its share of the turn is used up.
    fn write(&mut self, lent: &mut SocketWork<'_>, key: PeerKey) -> Visit {
        let mut left = lent.turn_bytes;
        while left > 0 {
            let Some(socket) = self.open.get_mut(&key) else { return Visit::Done };
            if socket.state == State::Full {
                return Visit::Done;
            }
            let asks = self.unasked >= WRITES_PER_REPORT
                && !socket.stream.is_secure()
                && socket.asked.is_none()
                && socket.stream.ask_sent(true).is_ok();
            let moved = if socket.stream.is_secure() {
                let plain = seal(lent.engine, lent.heaps, key, left);
                match plain.is_empty() {
                    false => socket.stream.write_vectored(&[IoSlice::new(&plain)]),
                    // What was taken before may still wait for room.
                    true => match socket.stream.flush() {
                        Ok(true) => break,
                        waits => waits.map(|_| Transfer::NotReady),
                    },
                }
            } else {
                let chunks = gather(lent.engine, lent.heaps, key, left);
                if chunks.is_empty() {
                    break;
                }
                let _networking = tax_stage(TaxStage::Networking);
                Transfer::of_write(send_gather(&socket.stream, &chunks))
            };
            self.unasked = if asks { 0 } else { self.unasked.saturating_add(1) };
            if asks {
                let _ = socket.stream.ask_sent(false);
            }
            match moved {
                Ok(Transfer::Bytes(bytes)) => {
                    left = left.saturating_sub(bytes);
                    let mut turn = Turn { now: now(), heaps: &mut *lent.heaps };
                    let ended = lent.engine.transmitted(&mut turn, key, bytes);
                    if asks {
                        socket.asked = ended.map(|call| (call, bytes as u32 - 1));
                    }
                }
                Ok(Transfer::NotReady | Transfer::Ended) => {
                    if socket.state == State::Closing {
                        return Visit::Over(format!("{}, and reads nothing", socket.closes_for));
                    }
                    socket.state = State::Full;
                    let _ = lent.poller.set_interest(
                        &socket.stream,
                        Token::Peer(key).to_poller(),
                        Interest::ReadWrite,
                    );
                    return Visit::Done;
                }
                Err(error) => {
                    self.hear_out(lent, key);
                    return Visit::Over(error.to_string());
                }
            }
        }
        match self.open.get(&key) {
            Some(socket) if socket.state == State::Closing => Visit::Over(socket.closes_for.to_string()),
            _ if left == 0 => Visit::More,
            _ => Visit::Done,
        }
    }

    /// The peer takes nothing any more. What it said before counts: an answer, or which calls it has not seen.
    fn hear_out(&mut self, lent: &mut SocketWork<'_>, key: PeerKey) {
        for _ in 0..READS_OF_THE_GONE_MAX {
            if !matches!(self.read_some(lent, key), Visit::More) {
                return;
            }
        }
    }

    pub fn lose(&mut self, lent: &mut SocketWork<'_>, key: PeerKey, why: &str) {
        self.note_long(key, false);
        if let Some(socket) = self.open.remove(&key) {
            if let Some(key) = socket.unidentified {
                lent.left.unidentified.push(key);
            }
            tracing::info!(peer = ?key, %why, "connection over");
            if socket.state == State::Closing {
                // It is to read why.
                lent.left.closings.push(LingeringClose::new(socket.stream, Vec::new(), now()));
            }
        }
        lent.engine.peer_lost(&mut Turn { now: now(), heaps: &mut *lent.heaps }, key, why);
        lent.left.has_ended = true;
        // Its calls may want another connection dialled, and a turn that found this out in sending is past dialling.
        lent.left.is_pressing = true;
    }
}

/// What a connection wants to write, as the kernel takes it.
fn gather<'a>(
    engine: &'a mut Engine,
    heaps: &SessionHeaps,
    key: PeerKey,
    bytes_max: usize,
) -> Vec<Chunk<'a>> {
    let pieces = engine.native().poll_transmit(now(), key, bytes_max).take(GATHER_PIECES_MAX);
    // A range outside its heap was refused when it was submitted, so every range is found; were it not, the connection
    // would stall instead of sending something else.
    let mut left = bytes_max;
    // A frame may be longer than a turn's share: its rest comes with the next.
    let chunk = |piece| {
        if left == 0 {
            return None;
        }
        match piece {
            Piece::Bytes(bytes) => {
                let bytes = &bytes[..bytes.len().min(left)];
                left -= bytes.len();
                Some(Chunk::Owned(bytes))
            }
            Piece::Shared { session, span } => {
                let len = (span.len as usize).min(left);
                left -= len;
                heaps.gather(session, Span { len: len as u32, ..span }).map(Chunk::Shared)
            }
        }
    };
    pieces.map_while(chunk).collect()
}

/// The same in memory of our own, to be encrypted.
fn seal(engine: &mut Engine, heaps: &SessionHeaps, key: PeerKey, bytes_max: usize) -> Vec<u8> {
    let mut plain = Vec::new();
    for piece in
        engine.native().poll_transmit(now(), key, bytes_max.min(SEALED_BYTES_MAX)).take(GATHER_PIECES_MAX)
    {
        match piece {
            Piece::Bytes(bytes) => plain.extend_from_slice(bytes),
            Piece::Shared { session, span } => {
                if !heaps.seal(session, span, &mut plain) {
                    break;
                }
            }
        }
    }
    plain
}
