//! Sockets as the daemon's turn loop wants them: non-blocking, without callbacks, without threads.
//!
//! This room opens, accepts, reads, writes and waits. It does not know what the bytes mean, when to reconnect, or how
//! names become addresses: the control plane resolves names, and everything that decides is in `core`.
//!
//! * [`Endpoint`]: `tcp://ADDRESS:PORT`, `unix:PATH` or `unix-abstract:NAME`, parsed once, with errors that say what to
//!   write instead. [`Target`]: what users write to say whom they call, gRPC's syntax included; perhaps a name.
//! * [`Stream`]: a connected (or connecting) TCP or Unix stream socket. Reads and writes end in a [`Transfer`]: bytes,
//!   *not ready*, or *ended*; only real failures are errors. It may speak TLS ([`TlsServer`], [`TlsClient`]): the same
//!   reads and writes then carry plain text.
//!   A stream knows when the last bytes it read were in the kernel ([`Stream::arrived_ns`]).
//! * [`First`]: what an accepted connection speaks, by its first bytes.
//! * [`Http2`]: a connection of HTTP/2 over a stream: events up, commands down, without a runtime.
//! * [`Datagrams`]: a UDP socket, read and written in batches ([`DatagramBatch`]), which know when each datagram came
//!   ([`ReceivedDatagram`]); [`RawDatagrams`]: one that sends in others' names.
//! * [`LingeringClose`]: closes a stream so that the peer hears why.
//! * [`Listener`]: accepts streams; knows when a socket file is a leftover.
//! * [`Poller`]: which of many descriptors are ready, over epoll, level-triggered. Doorbells and control sockets
//!   register here, too.
//!
//! # The way of the data
//! The loop waits in [`Poller::wait`], reads a ready stream into the shard's buffer or straight into a receive block
//! ([`Stream::read`], [`Stream::read_vectored`]), and writes what the protocol shows ([`Stream::write_vectored`]). A
//! gather list that contains an application's heap is written by `trunkline_shm::send_gather` on the same socket (a
//! [`Stream`] is [`AsFd`](std::os::fd::AsFd)), so that no slice over racing memory is ever made here;
//! [`Transfer::of_write`] reads its outcome. HTTP/2 and TLS need the bytes here; they get the turn's memory lent
//! ([`Buffers`]), so that a connection at rest has none.
//!
//! # Invariants
//! * Every descriptor is non-blocking and close-on-exec; no call here waits except [`Poller::wait`]. Nobody may send
//!   descriptors to a stream ([`accept_descriptors`]): a kernel before Linux 6.16 cannot refuse them, and there one
//!   whose last close waits makes the read that drops it wait.
//! * What a peer of HTTP/2 makes us do is counted against a limit with a name ([`Http2Settings`]); so is its time.
//! * No write raises SIGPIPE, whatever the embedding process does with signals.
//! * A socket file is removed only if nobody listens on it, or if this process made it and it is still the same file.
//!
//! # Limits
//! One wait tells of at most [`Poller::EVENTS_MAX`] descriptors, one vectored call uses at most [`Stream::PIECES_MAX`]
//! pieces; what is left comes with the next.
#![deny(unsafe_code)]

mod budget;
mod datagram;
mod datagram_batch;
mod descriptors;
mod endpoint;
mod first;
mod http2;
mod kernel_stamps;
mod key_file;
mod lingering_close;
mod listener;
mod poller;
mod regular_file;
mod stream;
mod target;
mod tls;
mod transfer;

pub use budget::{ConnectionBudget, ConnectionLimits, Full, Place, Source};
pub use datagram::{Datagrams, Disguised, Outgoing, RawDatagrams};
pub use datagram_batch::{DatagramBatch, ReceivedDatagram};
pub use descriptors::accept_descriptors;
pub use endpoint::{Endpoint, EndpointError};
pub use first::{FIRST_BYTES_MAX, First, HTTP1_ANSWER, TLS_REFUSAL};
pub use http2::{
    AgeSettings, Buffers, Ended, Http2, Http2Settings, KeepaliveSettings, PingSettings, Rate, State,
};
pub use kernel_stamps::plant_wall_clock;
pub use key_file::{KeyFileError, read_key_file};
pub use lingering_close::LingeringClose;
pub use listener::{Accepted, BindError, Listener};
pub use poller::{Interest, Poller, Ready, Token};
pub use stream::{PeerCredentials, Stream};
pub use target::{Name, Target, TargetError};
pub use tls::{
    Alpn, ClientFiles, Identity, Keys, Portable, Records, ServerFiles, Svid, TLS_FILE_BYTES_MAX, TlsClient,
    TlsError, TlsServer, TlsVersion, TlsVersions, TlsWatch, Validity,
};
pub use transfer::Transfer;
