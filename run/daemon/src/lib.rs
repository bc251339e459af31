//! The host daemon: shards, their loop, and who may attach.
//!
//! This crate gives the engine hands. It owns every thread, socket, ring and mapping of the daemon and decides nothing
//! about calls: it copies entries out of rings, bytes out of sockets, tells the engine the time, and carries out what
//! the engine wants done.
//!
//! * `turn.rs` is the loop of a shard, on one page. Start reading there. `group.rs` is a thread: a shard as a rule, and
//!   those beside it that have no thread of their own.
//! * `tenants.rs` says whose entries come next where several users want the shard.
//! * `shard.rs` is what a shard holds; `heaps.rs` lets the engine reach the sessions' memory, `token.rs` is what its
//!   poller and timers name.
//! * A connection begins in `pending.rs`, accepted (`purpose.rs` says who may connect where) or dialled, until it is
//!   clear what it speaks, and TLS is set up (`keys.rs`, `workload_api.rs`). Then `sockets.rs` moves its bytes
//!   between it and the engine, or `http.rs` its events. It ends by a lingering close, also when the shard ends:
//!   `shutdown.rs`. Datagrams have no connection: `datagrams.rs`. These three own their sockets; a shard lends them
//!   the rest and does what they leave (`socket_work.rs`).
//! * `control.rs` is the control thread: it attaches applications, builds their schemas (`schemas.rs`) and tells them
//!   why they must go. Everything slow happens there, so that no shard waits for it. `clients.rs` has their
//!   connections, `fair_queue.rs` says whose packet is next, `shard_places.rs` where they go, `bound_sets.rs` which
//!   descriptor sets they hold. `command.rs` is how the two talk, `changes.rs` how others learn that what is served has
//!   changed.
//! * `elastic.rs` says how many shards have threads of their own, `shard_threads.rs` starts and stops these,
//!   `placement.rs` says who moves where, on what `load.rs` has measured, and `session_moves.rs` has it done.
//!   `endpoints.rs` is where the daemon listens.
//! * `crossings.rs` has the queues between shards: calls whose ends sit on different ones go through them.
//! * `memory.rs` gives the kernel back what connections and sessions have left.
//! * `policies.rs` exchanges the chain of policies, `policies_file.rs` keeps it for the next daemon.
//! * `names.rs` looks names up on threads of its own, and tells the shards what they stand for.
//! * `handover/` passes all of it to another process, which goes on in this one's place.
//! * `check.rs` looks at the files a configuration names.
//! * `fresh.rs` makes the engine of a shard.
//! * `handle.rs` starts all of it from a [`Config`] and is what the binary, the tests and embedded applications hold.
//!   `threads.rs` says what happens if one of its threads panics.
//!
//! # Invariants
//! * A shard has its engine to itself: no lock is taken on the way of a call.
//! * A shard blocks only in its poller, and only when every session's ring is armed.
//! * A session that breaks the ABI is detached and told why; no other session notices.
//! * Memory of a session stays mapped until no connection reads from it.
//!
//! # Limits
//! Sizes and counts come from the configuration (docs/configuration.md); what one turn takes from one ring or socket is
//! bounded in `turn.rs` and `sockets.rs`, so that nobody keeps the others waiting.
#![forbid(unsafe_code)]

mod bound_sets;
mod chain_change;
mod changes;
mod check;
mod clients;
mod clock;
mod closer;
mod command;
mod config;
mod control;
mod control_received;
mod crossings;
mod datagrams;
mod denials;
mod elastic;
mod ending_connection;
mod endpoints;
mod ends;
mod fair_queue;
mod fresh;
mod giving_way;
mod group;
mod handle;
mod handover;
mod heap_accounts;
mod heaps;
mod http;
mod keys;
mod listening;
mod load;
mod memory;
mod mounts;
mod names;
mod pending;
mod pending_connections;
mod pending_step;
mod placement;
mod policies;
mod policies_file;
mod policies_lock;
mod processes;
mod purpose;
mod refusal;
mod reports;
mod rights;
mod room;
mod samples;
mod schemas;
mod seals;
mod server_keys;
mod session_moves;
mod session_rings;
mod shard;
mod shard_places;
mod shard_threads;
mod shutdown;
mod socket_work;
mod sockets;
mod start_error;
mod tenants;
mod threads;
mod token;
mod turn;
mod unidentified;
mod unmapper;
mod waker;
mod workload_api;

pub use changes::Watcher;
pub use check::{cannot_listen, check_host, check_relay};
pub use command::{Observation, Services};
pub use config::{
    Address, Bytes, Collector, Config, ConfigError, Egress, GrpcServices, Log, LogFormat, Metrics, Mode,
    Otlp, Principal, Reach, SampleFile, SampledCalls, ServiceRule, Shards, Tenant, UdpAddress, UnixAddress,
    Whom, check_log_level, nearest,
};
pub use fair_queue::FairQueue;
pub use handle::{Daemon, TakenOver};
pub use handover::{
    Arrival, HandOver, HandOverError, Handed, KeptCounts, Step as HandOverStep, TakeOverError,
};
pub use policies_file::{ChangeError, PoliciesFileError, PoliciesKept, PoliciesSource};
pub use samples::SampleTotals;
pub use server_keys::ServerKeys;
pub use start_error::StartError;
pub use threads::before_abort;
