//! The words of a hand-over, and the socket they travel on.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use trunkline_engine::Engine;
use trunkline_net::{Keys, Portable};
use trunkline_shm::{
    BLOB_BYTES_MAX, BlockState, ControlError, ControlSocket, PACKET_FDS_MAX, RingIndices, SessionConfig,
    create_blob, read_blob,
};
use zeroize::Zeroizing;

/// Version of these words and of the state they carry. A daemon hands over only to one that knows its version.
pub const VERSION: u32 = 100 + Engine::STATE_VERSION;

/// Words up to this size travel in the packet, larger ones in a sealed memfd beside it.
const PACKET_BYTES: usize = 32 << 10;

/// One word.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// Old: who begins.
    Hello { version: u32, build: String, process: u32, shards: usize },
    /// New: it can be done.
    Able { build: String },
    /// New: it cannot.
    Unable { why: String },
    /// Old: a descriptor set somebody has bound.
    Schema(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Old: the control socket at this path. Descriptors: the listener, its lock.
    Socket { path: String, sessions: u64 },
    /// Old: a connection of an application. Descriptor: its socket.
    Client { shard: usize, session: Option<u64>, may_move: bool },
    /// Old: where peers connect, as configured and as it is. Descriptor: the listener.
    Listener { shard: usize, configured: String, endpoint: String },
    /// Old: a port of R2P2, where replies arrive or requests. Descriptor: its socket.
    Datagrams { shard: usize, is_client: bool },
    /// Old: a connection whose protocol is not known yet. Descriptor: its socket. Its name is that of earlier versions.
    #[serde(rename = "Visitor")]
    Pending { shard: usize, first: Vec<u8> },
    /// Old: an engine's state, and the descriptor sets it names by place.
    State { shard: usize, state: serde_bytes::ByteBuf, sets: Vec<serde_bytes::ByteBuf> },
    /// Old: what the modules of a shard's chain have exported.
    Modules { shard: usize, states: serde_bytes::ByteBuf },
    /// Old: a session's memory. Descriptors: rings, send heap; and if it lives own doorbell, both ends of the other.
    Memory { shard: usize, session: u64, memory: Memory },
    /// Old: a connection to another daemon. Descriptor: its socket. With TLS, the keys follow in a packet of their own,
    /// as they are ([`Channel::send_keys`]).
    Peer { shard: usize, peer: u64, endpoint_is_tcp: bool, secure: Option<Secure> },
    /// Old: that was all; it stopped at this instant of the host's clock.
    End { stopped_ns: u64 },
    /// New: it is all there.
    Ready,
    /// New: it is not.
    Failed { why: String },
    /// Old: from here on the other daemon is the daemon.
    Go,
    /// In the packet's place: the word lies in the first descriptor.
    Enclosed,
}

/// A TLS session, but for its keys.
#[derive(Debug, Serialize, Deserialize)]
pub struct Secure {
    /// Plain text nobody has read.
    plain: serde_bytes::ByteBuf,
    /// Cipher text that was not taken apart.
    unread: serde_bytes::ByteBuf,
    /// Cipher text that waits for the socket.
    unsent: serde_bytes::ByteBuf,
}

/// A session's memory, but for the descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Entries of both rings, bytes of both heaps.
    pub sizes: [u32; 4],
    /// Ring positions, if the session lives.
    pub indices: Option<[u32; 3]>,
    /// The receive heap's number.
    pub heap_number: u32,
    /// Its blocks: offset, length, whether it was handed over.
    pub blocks: Vec<(u32, u32, bool)>,
    /// What has been written of blocks that were not.
    pub open: Vec<(u32, serde_bytes::ByteBuf)>,
}

/// Why the other side cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// It is gone, or takes too long.
    #[error("the other daemon: {0}")]
    Socket(ControlError),
    /// It has closed the channel.
    #[error("the other daemon ended")]
    Ended,
    /// A word cannot be written or read.
    #[error("a word of the hand-over: {0}")]
    Word(String),
}

impl From<ControlError> for ChannelError {
    /// Whoever has closed has ended, whether that shows in reading or in writing.
    fn from(error: ControlError) -> Self {
        if error.is_closed() { Self::Ended } else { Self::Socket(error) }
    }
}

/// One end of the channel.
#[derive(Debug)]
pub struct Channel {
    socket: ControlSocket,
}

impl Channel {
    /// A channel over a socket; every step of it takes `step_max` at most.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(socket: ControlSocket, step_max: Duration) -> std::io::Result<Self> {
        let channel = Self { socket };
        channel.set_step_max(step_max)?;
        Ok(channel)
    }

    /// From now on every step takes so long at most.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_step_max(&self, step_max: Duration) -> std::io::Result<()> {
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&self.socket, direction, Some(step_max))?;
        }
        Ok(())
    }

    /// Sends a word with what it is about.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn send(&self, word: &Word, fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let bytes = written(word)?;
        if bytes.len() <= PACKET_BYTES {
            return Ok(self.socket.send(&bytes, fds)?);
        }
        let blob = create_blob(&bytes).map_err(|error| ChannelError::Word(error.to_string()))?;
        let all: Vec<BorrowedFd<'_>> = std::iter::once(blob.as_fd()).chain(fds.iter().copied()).collect();
        Ok(self.socket.send(&written(&Word::Enclosed)?, &all)?)
    }

    /// The next word, with its descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn next(&self) -> Result<(Word, Vec<OwnedFd>), ChannelError> {
        let mut packet = Vec::new();
        let fds = self.socket.recv(&mut packet, PACKET_FDS_MAX)?.ok_or(ChannelError::Ended)?;
        match read(&packet)? {
            Word::Enclosed => {
                let mut fds = fds.into_iter();
                let blob = fds.next().ok_or_else(|| ChannelError::Word("nothing is enclosed".into()))?;
                let bytes =
                    read_blob(blob, BLOB_BYTES_MAX).map_err(|error| ChannelError::Word(error.to_string()))?;
                Ok((read(&bytes)?, fds.collect()))
            }
            word => Ok((word, fds)),
        }
    }
}

impl Channel {
    /// Sends the keys of a TLS session: a packet of their own, which no buffer and no file keeps.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn send_keys(&self, keys: &Keys) -> Result<(), ChannelError> {
        Ok(self.socket.send(&keys.to_bytes(), &[])?)
    }

    /// The keys that follow a word.
    ///
    /// # Errors
    /// [`ChannelError`]: also if they are none.
    pub fn next_keys(&self) -> Result<Keys, ChannelError> {
        let mut packet = Zeroizing::new(Vec::new());
        self.socket.recv(&mut packet, 0)?.ok_or(ChannelError::Ended)?;
        Keys::of_bytes(&packet).ok_or_else(|| ChannelError::Word("keys of a TLS session".into()))
    }
}

impl Secure {
    /// What goes in the word, and what does not.
    pub fn of(session: Portable) -> (Self, Keys) {
        let Portable { keys, plain, unread, unsent } = session;
        (Self { plain: plain.into(), unread: unread.into(), unsent: unsent.into() }, keys)
    }

    /// The session.
    pub fn with(self, keys: Keys) -> Portable {
        let Self { plain, unread, unsent } = self;
        Portable { keys, plain: plain.into_vec(), unread: unread.into_vec(), unsent: unsent.into_vec() }
    }
}

impl Memory {
    /// The sizes as the shared-memory room has them.
    pub fn config(&self) -> SessionConfig {
        let [submission_entries, completion_entries, send_heap_bytes, receive_heap_bytes] = self.sizes;
        SessionConfig { submission_entries, completion_entries, send_heap_bytes, receive_heap_bytes }
    }

    /// The same, the other way.
    pub fn sizes_of(config: &SessionConfig) -> [u32; 4] {
        [
            config.submission_entries,
            config.completion_entries,
            config.send_heap_bytes,
            config.receive_heap_bytes,
        ]
    }

    /// The receive heap's books.
    pub fn books(&self) -> Vec<BlockState> {
        self.blocks.iter().map(|&(offset, len, lent)| BlockState { offset, len, lent }).collect()
    }

    /// Where the daemon stood in the rings.
    pub fn ring_indices(&self) -> Option<RingIndices> {
        let [submission_head, completion_tail, completion_head] = self.indices?;
        Some(RingIndices { submission_head, completion_tail, completion_head })
    }
}

fn written(word: &Word) -> Result<Vec<u8>, ChannelError> {
    let mut bytes = Vec::new();
    ciborium::into_writer(word, &mut bytes).map_err(|error| ChannelError::Word(error.to_string()))?;
    Ok(bytes)
}

/// Reads one word. Nothing in it is believed before the parts it is about have been held against each other.
fn read(bytes: &[u8]) -> Result<Word, ChannelError> {
    ciborium::from_reader(bytes).map_err(|error| ChannelError::Word(error.to_string()))
}

#[cfg(test)]
mod tests {
    //! Shows that words of every size arrive with their descriptors, and that noise is refused.
    use super::*;
    use proptest::prelude::*;

    fn channels() -> (Channel, Channel) {
        let (one, other) = ControlSocket::pair().unwrap();
        let channel = |socket| Channel::new(socket, Duration::from_secs(5)).unwrap();
        (channel(one), channel(other))
    }

    #[test]
    fn small_and_large_words_arrive_with_their_descriptors() {
        let (one, other) = channels();
        for bytes in [10, 1 << 20] {
            let state = serde_bytes::ByteBuf::from(vec![7; bytes]);
            let word = Word::State { shard: 3, state, sets: Vec::new() };
            one.send(&word, &[one.socket.as_fd()]).unwrap();
            let (found, fds) = other.next().unwrap();
            assert!(matches!(found, Word::State { shard: 3, state, .. } if state.len() == bytes));
            assert_eq!(fds.len(), 1);
        }
        drop(one);
        assert!(matches!(other.next(), Err(ChannelError::Ended)));
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&bytes);
        }
    }
}
