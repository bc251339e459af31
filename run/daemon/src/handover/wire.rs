//! The words of a hand-over, and the socket they travel on.

use super::records::RecordedPart;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::time::Duration;
use trunkline_engine::STATE_VERSION;
use trunkline_net::{Keys, Portable};
use trunkline_shm::{
    BLOB_BYTES_MAX, BlockState, ControlError, ControlSocket, PACKET_FDS_MAX, RingIndices, SessionConfig,
    create_blob, read_blob,
};
use trunkline_telemetry::{CallHistory, Entry, ToldApart};
use zeroize::Zeroizing;

/// Version of these words and of the state they carry. A daemon hands over only to one that knows its version.
pub const VERSION: u32 = 100 + STATE_VERSION;

/// Words up to this size travel in the packet, larger ones in a sealed memfd beside it.
const PACKET_BYTES: usize = 32 << 10;
/// And those that are larger than this in several, one after the other: no word is too large, and neither side holds it
/// more than once beside what it is about.
const PART_BYTES: usize = 8 << 20;
const _: () = assert!(PART_BYTES <= BLOB_BYTES_MAX, "a part fits in a memfd");

/// One word.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// Old: who begins, and where it listens, as [`Word::Listener`] and addresses of R2P2 call it; earlier versions do
    /// not say.
    Hello {
        version: u32,
        build: String,
        process: u32,
        shards: usize,
        #[serde(default)]
        listening: Option<Vec<String>>,
    },
    /// New: it can be done. `prepares`: it knows [`Word::Prepare`], and descriptor sets by their numbers.
    Able {
        build: String,
        #[serde(default)]
        prepares: bool,
        /// It knows [`Word::Counted`].
        #[serde(default)]
        counts: bool,
        /// It knows [`Word::Past`] and [`Word::Recorded`].
        #[serde(default)]
        records: bool,
        /// It knows [`Word::ToldApart`].
        #[serde(default)]
        tells_apart: bool,
    },
    /// New: it cannot.
    Unable { why: String },
    /// Old: a descriptor set somebody has bound. They are numbered as they come, from 0.
    Schema(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Old: those were all so far.
    Prepare,
    /// New: their schemas are built.
    Prepared,
    /// Old: the control socket at this path. Descriptors: the listener, its lock.
    Socket { path: String, sessions: u64 },
    /// Old: a connection of an application. Descriptor: its socket.
    Client {
        shard: usize,
        session: Option<u64>,
        may_move: bool,
        /// Of one that a relay has attached.
        #[serde(default)]
        identity: Option<Box<str>>,
    },
    /// Old: where peers connect, as configured and as it is. Descriptor: the listener.
    Listener { shard: usize, configured: String, endpoint: String },
    /// Old: a port of R2P2, where replies arrive or requests. Descriptor: its socket.
    Datagrams { shard: usize, is_client: bool },
    /// Old: a connection whose protocol is not known yet. Descriptor: its socket. Its name is that of earlier versions.
    #[serde(rename = "Visitor")]
    Pending { shard: usize, first: Vec<u8> },
    /// Old: an engine's state, and the descriptor sets it names by place: by their numbers, or themselves.
    State {
        shard: usize,
        state: serde_bytes::ByteBuf,
        sets: Vec<serde_bytes::ByteBuf>,
        #[serde(default)]
        numbers: Vec<usize>,
    },
    /// Old: what the modules of a shard's chain have exported.
    Modules { shard: usize, states: serde_bytes::ByteBuf },
    /// Old: what a shard's telemetry has counted.
    Counted { shard: usize, series: Vec<Entry> },
    /// Old: what was counted when.
    Past(Box<CallHistory>),
    /// Old: which series readers of counters are told of one by one.
    ToldApart(Box<ToldApart>),
    /// Old: calls that a shard has recorded, oldest first; each word goes on where the one before it ended.
    Recorded { shard: usize, part: RecordedPart },
    /// Old: a session's memory. Descriptors: rings, send heap; and if it lives own doorbell, and the other's twice.
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
    /// In the packet's place: the word lies in the first descriptor, or its end.
    Enclosed,
    /// In the packet's place: a part of the word lies in the descriptor, and the next comes with the next packet.
    Part,
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
    /// It takes too long to say its first word.
    #[error("the other daemon does not answer")]
    Silent,
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
        let mut parts = Parts { channel: self, held: Vec::new(), sent: 0, failed: None };
        let written = ciborium::into_writer(word, &mut parts);
        match (written, parts.failed.take()) {
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(ChannelError::Word(error.to_string())),
            (Ok(()), None) => parts.end(fds),
        }
    }

    /// Waits for a word for so long at most. Whether there is one, or the channel's end.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn has_word(&self, longest: Duration) -> Result<bool, ChannelError> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        match poll(&mut ready, Some(&longest)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(ChannelError::Socket(ControlError::System { what: "poll", errno })),
        }
    }

    /// The next word, with its descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn next(&self) -> Result<(Word, Vec<OwnedFd>), ChannelError> {
        let (mut packet, mut parts) = (Vec::new(), Vec::new());
        loop {
            let fds = self.socket.recv(&mut packet, PACKET_FDS_MAX)?.ok_or(ChannelError::Ended)?;
            let mut fds = fds.into_iter();
            match read(&packet)? {
                Word::Part => enclosed(fds.next(), &mut parts)?,
                Word::Enclosed => {
                    enclosed(fds.next(), &mut parts)?;
                    return Ok((read(&parts)?, fds.collect()));
                }
                word if parts.is_empty() => return Ok((word, fds.collect())),
                _ => return Err(ChannelError::Word("one ends in the middle".into())),
            }
        }
    }
}

/// A word on its way out: a packet, a memfd, or several.
struct Parts<'a> {
    channel: &'a Channel,
    held: Vec<u8>,
    sent: usize,
    failed: Option<ChannelError>,
}

impl Parts<'_> {
    /// Sends what is left, with what the word is about.
    fn end(self, fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let Self { channel, held, sent, .. } = self;
        if sent == 0 && held.len() <= PACKET_BYTES {
            return Ok(channel.socket.send(&held, fds)?);
        }
        channel.enclose(&Word::Enclosed, &held, fds)
    }

    fn send_part(&mut self) -> Result<(), ChannelError> {
        self.channel.enclose(&Word::Part, &self.held, &[])?;
        self.sent += 1;
        self.held.clear();
        Ok(())
    }
}

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        if self.held.len() == PART_BYTES {
            self.send_part().map_err(|error| {
                let said = io::Error::other(error.to_string());
                self.failed = Some(error);
                said
            })?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel {
    fn enclose(&self, word: &Word, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let blob = create_blob(bytes).map_err(|error| ChannelError::Word(error.to_string()))?;
        let all: Vec<BorrowedFd<'_>> = std::iter::once(blob.as_fd()).chain(fds.iter().copied()).collect();
        Ok(self.socket.send(&written(word)?, &all)?)
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

/// Adds what lies in a descriptor.
fn enclosed(blob: Option<OwnedFd>, parts: &mut Vec<u8>) -> Result<(), ChannelError> {
    let blob = blob.ok_or_else(|| ChannelError::Word("nothing is enclosed".into()))?;
    let bytes = read_blob(blob, BLOB_BYTES_MAX).map_err(|error| ChannelError::Word(error.to_string()))?;
    parts.extend_from_slice(&bytes);
    Ok(())
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

    /// The bytes of a state that goes through, each another than the one before.
    fn sent(bytes: usize) -> serde_bytes::ByteBuf {
        let (one, other) = channels();
        let state: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let said = serde_bytes::ByteBuf::from(state);
        let word = Word::State { shard: 3, state: said.clone(), sets: Vec::new(), numbers: vec![1] };
        let (beside, heard) = std::thread::scope(|scope| {
            // More packets than a socket holds.
            scope.spawn(move || {
                one.send(&word, &[one.socket.as_fd()]).unwrap();
                one.send(&Word::Ready, &[]).unwrap();
            });
            let (found, fds) = other.next().unwrap();
            let beside = fds.len();
            // What came with it is the other end.
            drop(fds);
            assert!(matches!(other.next().unwrap(), (Word::Ready, _)), "it ends where it ends");
            assert!(matches!(other.next(), Err(ChannelError::Ended)));
            (beside, found)
        });
        assert_eq!(beside, 1, "{bytes} bytes");
        let Word::State { shard: 3, state, .. } = heard else { panic!("{heard:?}") };
        assert!(state == said, "{bytes} bytes");
        state
    }

    #[test]
    fn words_of_every_size_arrive_with_their_descriptors() {
        let edges = [PACKET_BYTES, PART_BYTES, 2 * PART_BYTES];
        let around = edges.into_iter().flat_map(|edge| (edge - 60..edge + 4).step_by(9));
        for bytes in [0, 10, 1 << 20].into_iter().chain(around) {
            assert_eq!(sent(bytes).len(), bytes);
        }
        // More than one memfd of the largest size has.
        assert_eq!(sent(BLOB_BYTES_MAX + 5).len(), BLOB_BYTES_MAX + 5);
    }

    #[test]
    fn a_word_that_begins_in_another_is_refused() {
        let (one, other) = channels();
        one.enclose(&Word::Part, b"begins", &[]).unwrap();
        one.send(&Word::Ready, &[]).unwrap();
        assert!(matches!(other.next(), Err(ChannelError::Word(_))));
        one.socket.send(&written(&Word::Part).unwrap(), &[]).unwrap();
        assert!(matches!(other.next(), Err(ChannelError::Word(_))), "a part without bytes");
    }

    /// Whoever reads counters is told of the same series one by one.
    #[test]
    fn what_was_told_apart_is_told_apart_by_the_next() {
        let series = |peers: usize| -> Vec<Entry> {
            let entry = |peer| {
                let mut series = trunkline_telemetry::Series::default();
                series.codes[0] = 7;
                let (method, peer) = ("/s.S/M".to_owned(), format!("10.0.0.{peer}"));
                let (side, exemplars) = (trunkline_telemetry::Side::Served, Default::default());
                Entry { side, method, peer, series, exemplars }
            };
            (0..peers).map(entry).collect()
        };
        let mut told_apart = ToldApart::default();
        let most = ToldApart::SERIES_MAX;
        assert_eq!(told_apart.tell(series(most + 9), 1).len(), most + 1);
        let (mut one, other) = (told_apart.clone(), channels());
        other.0.send(&Word::ToldApart(Box::new(told_apart)), &[]).unwrap();
        let Word::ToldApart(came) = other.1.next().unwrap().0 else { panic!("another word") };
        let (mut came, mut turned) = (came.taken_up(), series(most + 12));
        turned.reverse();
        assert_eq!(came.tell(turned.clone(), 1), one.tell(turned, 1));
    }

    /// What a daemon says that knows no numbers of sets.
    #[test]
    fn words_of_earlier_daemons_are_read() {
        #[derive(Serialize)]
        enum Earlier {
            State { shard: usize, state: serde_bytes::ByteBuf, sets: Vec<serde_bytes::ByteBuf> },
            Able { build: String },
        }
        let said = |word: &Earlier| {
            let mut bytes = Vec::new();
            ciborium::into_writer(word, &mut bytes).unwrap();
            read(&bytes).unwrap()
        };
        let state = Earlier::State { shard: 1, state: vec![1].into(), sets: vec![vec![2].into()] };
        let Word::State { sets, numbers, .. } = said(&state) else { panic!("another word") };
        assert_eq!((sets.len(), numbers), (1, Vec::new()));
        let able = said(&Earlier::Able { build: "x".into() });
        assert!(
            matches!(
                able,
                Word::Able { prepares: false, counts: false, records: false, tells_apart: false, .. }
            ),
            "{able:?}"
        );
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&bytes);
        }
    }
}
