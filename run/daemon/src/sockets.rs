//! The sockets of a shard: bytes in to the engine, bytes out of it.

use crate::heaps::SessionHeaps;
use crate::shard::{Shard, Token, now};
use trunkline_engine::{Dial, Dialled, Engine, PeerKey, Piece, Turn};
use trunkline_net::{Endpoint, Interest, Listener, Ready, Stream, Transfer};
use trunkline_shm::{GATHER_PIECES_MAX, Piece as Chunk, send_gather};

/// One connection's socket.
pub(crate) struct Socket {
    stream: Stream,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Connecting: decided when it becomes writable.
    Connecting,
    /// Writes are taken.
    Open,
    /// The kernel's buffer is full: decided when it becomes writable.
    Full,
    /// The peer broke the protocol: what is queued tells it why, then it is closed.
    Closing,
}

/// A listener, and what it is called.
pub(crate) struct Listening {
    pub listener: Listener,
    pub endpoint: String,
}

/// Bytes read from one connection before the others get their turn.
const READ_BYTES_PER_TURN: usize = 1 << 20;
/// A read of less than this has very likely emptied the socket. To read again only to hear *not ready* is a system call
/// per small message; if there was more after all, the poller (level-triggered) says so.
const SHORT_READ_BYTES: usize = 16 << 10;
/// Bytes written to one connection before the others get their turn.
const WRITE_BYTES_PER_TURN: usize = 1 << 20;
/// Size of the read buffer: several small calls or the beginning of a large one; large bodies are read in place.
pub(crate) const INPUT_BYTES: usize = 256 << 10;

/// What a visit of a socket led to.
enum Visit {
    /// All that could be done was done.
    Done,
    /// There is more, after the others had their turn.
    More,
    /// The connection is over.
    Over(String),
}

impl Shard {
    /// Begins to connect wherever the engine wants a connection.
    pub fn dial(&mut self) {
        while let Some(dial) = self.engine.poll_dial() {
            if let Err(why) = self.connect(&dial) {
                tracing::warn!(endpoint = %dial.endpoint, %why, "cannot dial");
                let mut turn = Turn { now: now(), heaps: &mut self.heaps };
                self.engine.handle_dial_failed(&mut turn, dial.connection, &why);
            }
        }
    }

    /// Serves a socket the poller named.
    pub fn serve_socket(&mut self, key: PeerKey, ready: Ready) {
        if ready.writable && !self.become_writable(key) {
            return;
        }
        if ready.readable {
            self.read(key);
        }
    }

    /// Accepts whatever waits at a listener.
    pub fn accept(&mut self, index: usize) {
        let Some(listening) = self.listening.get(index) else { return };
        let mut accepted = Vec::new();
        loop {
            match listening.listener.accept() {
                Ok(Some(stranger)) => accepted.push(stranger.stream),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(endpoint = %listening.endpoint, %error, "cannot accept");
                    break;
                }
            }
        }
        for stream in accepted {
            let label = stream
                .peer_address()
                .ok()
                .flatten()
                .map_or("unix".into(), |address| format!("tcp://{address}"));
            let key = self.engine.accept_peer(now(), label);
            self.insert_socket(key, stream, State::Open);
        }
    }

    /// Lets out what connections have queued.
    pub fn transmit(&mut self) {
        let mut later = Vec::new();
        while let Some(key) = self.engine.poll_transmitting() {
            match self.write(key) {
                Visit::Done => {}
                Visit::More => later.push(key),
                Visit::Over(why) => self.lose(key, &why),
            }
        }
        for key in later {
            self.engine.transmit(key);
            self.pressing = true;
        }
    }

    fn connect(&mut self, dial: &Dial) -> Result<(), String> {
        let endpoint: Endpoint = dial.endpoint.parse().map_err(|e| format!("{e}"))?;
        let Dialled::Native(peer) = dial.connection else {
            return Err("the endpoint does not speak the native protocol".into());
        };
        let stream = Stream::connect(&endpoint).map_err(|e| e.to_string())?;
        self.insert_socket(peer, stream, State::Connecting);
        Ok(())
    }

    fn insert_socket(&mut self, key: PeerKey, stream: Stream, state: State) {
        let interest = if state == State::Open { Interest::Read } else { Interest::ReadWrite };
        if let Err(error) = self.poller.add(&stream, Token::Peer(key).to_poller(), interest) {
            tracing::error!(%error, "cannot watch a socket");
        }
        self.sockets.insert(key, Socket { stream, state });
        self.engine.transmit(key);
    }

    /// The poller says writable: connected, or room again. `false` if the connection is over.
    fn become_writable(&mut self, key: PeerKey) -> bool {
        let Some(socket) = self.sockets.get_mut(&key) else { return false };
        if socket.state == State::Connecting {
            match socket.stream.finish_connect() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    self.lose(key, &error.to_string());
                    return false;
                }
            }
        }
        if matches!(socket.state, State::Connecting | State::Full) {
            socket.state = State::Open;
            let _ = self.poller.set_interest(&socket.stream, Token::Peer(key).to_poller(), Interest::Read);
            self.engine.transmit(key);
        }
        true
    }

    fn read(&mut self, key: PeerKey) {
        match self.read_some(key) {
            Visit::Done => {}
            // The poller tells again.
            Visit::More => self.pressing = true,
            Visit::Over(why) => self.lose(key, &why),
        }
    }

    /// Reads until the socket is empty or its share of the turn is used up.
    fn read_some(&mut self, key: PeerKey) -> Visit {
        let mut left = READ_BYTES_PER_TURN;
        while left > 0 {
            let moved = match self.read_in_place(key) {
                Some(moved) => moved,
                None => self.read_frames(key),
            };
            match moved {
                Ok(Transfer::Bytes(bytes)) if bytes < SHORT_READ_BYTES => return Visit::Done,
                Ok(Transfer::Bytes(bytes)) => left = left.saturating_sub(bytes),
                Ok(Transfer::NotReady) => return Visit::Done,
                Ok(Transfer::Ended) => return Visit::Over("peer closed the connection".into()),
                Err(why) => return Visit::Over(why),
            }
        }
        Visit::More
    }

    /// Reads the body of a large message straight to where it belongs; `None` if that is not what comes next.
    fn read_in_place(&mut self, key: PeerKey) -> Option<Result<Transfer, String>> {
        let socket = self.sockets.get(&key)?;
        let room = self.engine.wanted(&mut self.heaps, key)?;
        let arrived = now();
        let moved = socket.stream.read(room).map_err(|e| e.to_string());
        if let Ok(Transfer::Bytes(bytes)) = moved {
            let mut turn = Turn { now: now(), heaps: &mut self.heaps };
            self.engine.placed(&mut turn, key, arrived, bytes);
        }
        Some(moved)
    }

    /// Reads frames into the shared buffer and hands them to the engine.
    fn read_frames(&mut self, key: PeerKey) -> Result<Transfer, String> {
        let Some(socket) = self.sockets.get(&key).filter(|socket| socket.state != State::Closing) else {
            return Ok(Transfer::NotReady);
        };
        let start = self.engine.resume(key, &mut self.input);
        let arrived = now();
        let moved = socket.stream.read(&mut self.input[start..]).map_err(|e| e.to_string())?;
        let end = match moved {
            Transfer::Bytes(bytes) => start + bytes,
            Transfer::NotReady | Transfer::Ended => start,
        };
        let mut turn = Turn { now: now(), heaps: &mut self.heaps };
        let handled = self.engine.handle_input(&mut turn, key, arrived, &self.input[..end]);
        if let Err(fault) = handled {
            tracing::warn!(peer = ?key, %fault, "peer broke the protocol");
            if let Some(socket) = self.sockets.get_mut(&key) {
                socket.state = State::Closing;
            }
            return Ok(Transfer::NotReady);
        }
        Ok(moved)
    }

    /// Writes until nothing is queued, the kernel's buffer is full, or its share of the turn is used up.
    fn write(&mut self, key: PeerKey) -> Visit {
        let mut left = WRITE_BYTES_PER_TURN;
        while left > 0 {
            let Some(socket) = self.sockets.get_mut(&key) else { return Visit::Done };
            if matches!(socket.state, State::Connecting | State::Full) {
                return Visit::Done;
            }
            let moved = {
                let chunks = gather(&mut self.engine, &self.heaps, key, left);
                if chunks.is_empty() {
                    break;
                }
                Transfer::of_write(send_gather(&socket.stream, &chunks))
            };
            match moved {
                Ok(Transfer::Bytes(bytes)) => {
                    left = left.saturating_sub(bytes);
                    let mut turn = Turn { now: now(), heaps: &mut self.heaps };
                    self.engine.transmitted(&mut turn, key, bytes);
                }
                Ok(Transfer::NotReady | Transfer::Ended) => {
                    if socket.state == State::Closing {
                        return Visit::Over("peer broke the protocol and reads nothing".into());
                    }
                    socket.state = State::Full;
                    let _ = self.poller.set_interest(
                        &socket.stream,
                        Token::Peer(key).to_poller(),
                        Interest::ReadWrite,
                    );
                    return Visit::Done;
                }
                Err(error) => return Visit::Over(error.to_string()),
            }
        }
        match self.sockets.get(&key) {
            Some(socket) if socket.state == State::Closing => Visit::Over("peer broke the protocol".into()),
            _ if left == 0 => Visit::More,
            _ => Visit::Done,
        }
    }

    fn lose(&mut self, key: PeerKey, why: &str) {
        let socket = self.sockets.remove(&key);
        tracing::info!(peer = ?key, %why, "connection over");
        let mut turn = Turn { now: now(), heaps: &mut self.heaps };
        if socket.is_some_and(|socket| socket.state == State::Connecting) {
            self.engine.handle_dial_failed(&mut turn, Dialled::Native(key), why);
        } else {
            self.engine.peer_lost(&mut turn, key, why);
        }
    }
}

/// What a connection wants to write, as the kernel takes it.
fn gather<'a>(
    engine: &'a mut Engine,
    heaps: &SessionHeaps,
    key: PeerKey,
    bytes_max: usize,
) -> Vec<Chunk<'a>> {
    let pieces = engine.poll_transmit(now(), key, bytes_max).take(GATHER_PIECES_MAX);
    // A range outside its heap was refused when it was submitted, so every range is found; were it not, the connection
    // would stall instead of sending something else.
    let chunk = |piece| match piece {
        Piece::Bytes(bytes) => Some(Chunk::Owned(bytes)),
        Piece::Shared { session, span } => heaps.gather(session, span).map(Chunk::Shared),
    };
    pieces.map_while(chunk).collect()
}
