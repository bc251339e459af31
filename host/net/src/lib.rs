//! Sockets as the daemon's turn loop wants them: non-blocking, without callbacks, without threads.
//!
//! This room opens, accepts, reads, writes and waits. It does not know what the bytes mean, when to reconnect, or how
//! names become addresses: the control plane resolves names, and everything that decides is in `core`.
//!
//! * [`Endpoint`]: `tcp://ADDRESS:PORT`, `unix:PATH` or `unix-abstract:NAME`, parsed once, with errors that say what to
//!   write instead. [`Target`]: what users write to say whom they call, gRPC's syntax included; perhaps a name.
//! * [`Stream`]: a connected (or connecting) TCP or Unix stream socket. Reads and writes end in a [`Transfer`]: bytes,
//!   *not ready*, or *ended*; only real failures are errors.
//! * [`Listener`]: accepts streams; knows when a socket file is a leftover.
//! * [`Poller`]: which of many descriptors are ready, over epoll, level-triggered. Doorbells and control sockets
//!   register here, too.
//!
//! # The way of the data
//! The loop waits in [`Poller::wait`], reads a ready stream into the shard's buffer or straight into a receive block
//! ([`Stream::read`], [`Stream::read_vectored`]), and writes what the protocol shows ([`Stream::write_vectored`]). A
//! gather list that contains an application's heap is written by `trunkline_shm::send_gather` on the same socket (a
//! [`Stream`] is [`AsFd`](std::os::fd::AsFd)), so that no slice over racing memory is ever made here;
//! [`Transfer::of_write`] reads its outcome.
//!
//! # Invariants
//! * Every descriptor is non-blocking and close-on-exec; no call here waits except [`Poller::wait`].
//! * No write raises SIGPIPE, whatever the embedding process does with signals.
//! * A socket file is removed only if nobody listens on it, or if this process made it and it is still the same file.
//!
//! # Limits
//! One wait tells of at most [`Poller::EVENTS_MAX`] descriptors, one vectored call uses at most [`Stream::PIECES_MAX`]
//! pieces; what is left comes with the next.
#![forbid(unsafe_code)]

mod datagram;
mod endpoint;
mod listener;
mod poller;
mod stream;
mod target;

pub use datagram::{Datagrams, Disguised, Outgoing, RawDatagrams};
pub use endpoint::{Endpoint, EndpointError};
pub use listener::{Accepted, BindError, Listener};
pub use poller::{Interest, Poller, Ready, Token};
pub use stream::{PeerCredentials, Stream, Transfer};
pub use target::{Name, Target, TargetError};
