//! R2P2: requests and replies over datagrams, without I/O.
//!
//! A [`Client`] makes requests and takes replies on one UDP port, a [`Server`] takes requests and sends replies on
//! another. Both take datagrams, the time and commands, and give events, datagrams to send and the next time to wake.
//! They do not know what a socket, a service or a worker thread is: a request is bytes, a class and a deadline. The
//! protocol is that of the paper (Kogias et al., *R2P2: Making RPCs first-class datacenter citizens*, USENIX ATC 2019)
//! and, byte for byte, that of its authors' library; docs/r2p2.md has the bytes, and tests read its examples.
//!
//! # Two modes
//! *Compatible*: what the authors' endpoints understand, and nothing else. Nothing is acknowledged but the first packet
//! of a long request, nothing is sent twice; a lost datagram is a lost call, which ends at its deadline as *unknown*.
//!
//! *Extended*: announced by one reserved flag bit, used with whoever shows it. An extension behind the header names the
//! request for good, says its class, age and deadline, which packets have come, why something is refused, and how a
//! worker stands. Losses, duplicates and reordering are then mended; messages may have 65,534 packets.
//!
//! # The way of the data
//! `wire.rs` and `extension.rs` take a datagram apart. In `client.rs` it finds its `Call` (`client_call.rs`), in
//! `server.rs` its request (`served.rs`); `incoming.rs` puts packets in order, `outgoing.rs` says which may go.
//! `seal.rs` stands before all of it, where a cluster has a key: it proves where a datagram comes from.
//! `peer_bytes.rs` counts what is held for whom, `headway.rs` what goes on too slowly for that.
//! `reply.rs` answers, `feedback.rs` tells routers, `memory.rs` remembers what has ended. `envelope.rs` stands apart:
//! the words hosts put before the messages of their services, which nothing else here reads. `handover.rs` lets an
//! endpoint go on in another process, with what has ended packed by `ended.rs`.
//!
//! A [`Router`] (`router.rs`, `workers.rs`) keeps a lease for what is out (`lease.rs`), remembers what is over
//! (`history.rs`), judges silence by the time it was awake (`attention.rs`) and what may wait by how long clients do
//! (`patience.rs`). `greeting.rs` shows workers what it understands.
//!
//! # Invariants
//! * A handler sees a request at most once, whatever the network does. A server remembers what has ended for longer
//!   than anybody repeats it; of what it may have forgotten (it was restarted, its memory was full) it executes
//!   nothing.
//! * Every call taken ends in exactly one [`ClientEvent`], unless it is cancelled.
//! * What is known of a failed call errs only towards *unknown*.
//! * Bytes from the network never panic, never allocate by a claim.
//!
//! # Limits
//! [`Config`] names them, each with its reason: calls, message bytes, bytes held for an address and for all, replies
//! kept. At a limit a request is dropped with a [`Reason`], a command is [`Refused`], a reply has no room
//! ([`PortFull`]). IPv4 only: a FEEDBACK has room for nothing else. Addresses are `core::net`'s: values, which open
//! nothing. The number of requests is a port's, not a client's: one client can fill a server's table, as it can fill
//! its socket buffer. What is due all at once is done some hundred at a time: [`Server::next_timeout`] then says that
//! more is due now.
#![forbid(unsafe_code)]

mod attention;
mod client;
mod client_call;
mod config;
mod cut;
mod ended;
mod envelope;
mod extension;
mod feedback;
mod greeting;
mod handover;
mod headway;
mod history;
mod horizon;
mod incoming;
mod lease;
mod memory;
mod outgoing;
mod packet;
mod patience;
mod peer_bytes;
mod reply;
mod router;
mod router_config;
mod seal;
mod served;
mod server;
mod transmit;
mod wire;
mod workers;
mod workers_feedback;

pub use client::{CallFailure, CallName, Client, ClientCounters, ClientEvent, Refused};
pub use client_call::NewCall;
pub use config::{Config, Mode};
pub use envelope::{EnvelopeError, ReplyEnvelope, RequestEnvelope};
pub use extension::{
    AckPart, Extension, FeedbackPart, Head, Identity, NO_REQUEST, Part, Reason, RequestPart,
};
pub use handover::{ClientState, ServerState, Unsound};
pub use packet::Packet;
pub use peer_bytes::PortFull;
pub use router::{Forward, Router, Sending};
pub use router_config::{OnBehalf, RouterConfig, RouterCounters};
pub use seal::{Opener, SEAL_BYTES, SEAL_KEYS_MAX, SEALED_MAGIC, SealCounters, SealKeys, Sealer, Unbelieved};
pub use served::{RequestKey, Timing};
pub use server::{Request, Server, ServerCounters, ServerEvent};
pub use transmit::Transmit;
pub(crate) use trunkline_call::mix;
pub use wire::{
    FIRST_BYTES, FeedbackFor, Flags, HEADER_BYTES, Header, MAGIC, Malformed, PACKETS_MAX_COMPATIBLE,
    PACKETS_MAX_EXTENDED, PAYLOAD_BYTES_MAX, PacketType, Policy,
};
pub use workers::WorkerRow;
