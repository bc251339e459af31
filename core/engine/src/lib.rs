//! The daemon's brain: from ring entry to transport core and back, without I/O.
//!
//! An [`Engine`] is one shard's whole state: the sessions attached to it, the peers it is connected to, and the calls
//! between them. It decides and remembers; it does not know what a ring, a memfd, a socket or a clock is. The host
//! gives it entries, bytes and the time ([`Turn`]), and takes from it completions to publish, endpoints to dial and
//! bytes to send.
//!
//! # Owners and joints
//! Every piece of state has an owner that knows nothing of the engine: it is asked with values and answers with values.
//! `admission/` owns the policies and what they remember (`bound_methods.rs` tells it what is bound), `attempts/` what
//! bounds further attempts, `registry.rs` who serves what (`services.rs`, `service_users.rs`), `workers.rs` places at
//! workers and their queues (`shared_queue.rs`), `cluster.rs` the balancing, `remote.rs` endpoints and what there is of
//! connections to them (`connecting.rs`, `names.rs`, `r2p2_remote.rs`), `sessions/` (`session.rs` is one), `peers/`
//! (`peer.rs`), `grpc/` and `r2p2.rs` one kind of end each (`r2p2_messages.rs` has what is said over R2P2 as calls and
//! items, `r2p2_made.rs` what is kept of calls that are not answered), `parked.rs` who waits for a receive heap,
//! `held.rs` what may be held for whom, `shared_room.rs` what one source may have of a server's room (`source.rs`),
//! `gateway.rs` what the gateway is told (`gateway_client.rs`) and knows of methods, `nested.rs` the calls that end
//! with others, `invariants.rs` which of our own rules was found broken. `in_line.rs` has a call join the line of what
//! blocks it (`call_line.rs`, `turn_lines.rs`). `call.rs` is one call, `half.rs` one of its directions, `item.rs` what
//! travels along it.
//!
//! Above them [`Engine`] is the calls and every other owner (`owners.rs`), and the files that implement it join them. A
//! call is found once, and lent with the others (`lent_call.rs`); what follows for more than this call comes back as a
//! value. An owner may be lent the accounts that all have (`held.rs`, `invariants.rs`) and calls, and `cluster.rs` and
//! `r2p2.rs` the endpoints they choose from or talk to. Some decisions need several owners, but not the engine; a type
//! that is lent them makes these: `routing.rs` says where a call goes, `course.rs` what becomes of an item,
//! `wait_accounts.rs` charges whoever pays for what waits, `bind.rs` binds what a session may call and serve
//! (`bound_targets.rs`), `unused_names.rs` has names forgotten that nobody uses, `reach.rs` says what becomes of
//! connections to endpoints and whose calls in line for them go on, `called_paths.rs` what callers from elsewhere mean
//! by a path, `r2p2_events.rs` what follows from a datagram. Imports lead downwards.
//!
//! # The way of a call
//! A call joins two *ends*, each a session of this host or a stream of a peer. Everything that travels is an item
//! (open, message, half-close, headers, finish) going in one of two directions, and every item goes the same way:
//!
//! 1. `sessions/entries.rs` (entries of sessions), `peers/events.rs` (events of native connections), `grpc/events.rs`
//!    and `grpc/openings.rs` (events of HTTP/2 connections) or `r2p2_events.rs` (requests and replies in datagrams)
//!    turns what came in into an item; the host brings it to `arrive.rs`, which
//!    carries out what each says by a value (`end_event.rs`); connections come in, and what goes out is asked for, by
//!    `connections.rs`;
//! 2. `pass.rs` finds the call, and `onward.rs` keeps the order, holds what cannot go on yet (`course.rs` says what
//!    that is), and picks the end it goes to; `gather.rs` joins or splits what the two ends say in a different number
//!    of items;
//! 3. `ends.rs` says what every end can do and tells them apart; `sessions/end.rs`, `peers/end.rs`, `grpc/end.rs`,
//!    `r2p2_end.rs`, `endpoint_end.rs` or `shard/end.rs` hands the item over: `convert.rs` brings the message into the
//!    form that end needs.
//!
//! `start.rs` has a new call begin: `start_of_call.rs` finds its server end, at a worker of this host or elsewhere
//! (`routing.rs`), `admission_of_call.rs` asks the policies about it (`permit.rs` those that only refuse); `reach.rs`
//! has it wait for a connection to its endpoint. A call that may be tried again has `attempts/` as its server end, each
//! of which is a call of its own. `pass.rs` also ends calls in every way they can end (`ending.rs`), `records.rs` says
//! who is told of it, and `worker_places.rs` gives places at workers back. `step.rs` does what follows from an event,
//! what time brings, and what follows for all when somebody leaves, serves something else, or policies are exchanged.
//!
//! `operator.rs` says what those may ask who ask the daemon itself, `observe.rs` puts together what owners tell
//! operators of themselves, `books.rs` tells tests whether every count agrees with what it counts, `mirrors.rs` says
//! what a copy of a call for policies is, `call_facts.rs` what policies and the access log may
//! know of a call, `opaque.rs` is about ends whose types only their application knows, `packing.rs` leaves messages
//! compressed between gRPC peers, `shard/` has calls whose other end is on another shard of the host, `handover/` is an
//! engine that goes on in another process.
//!
//! # Invariants
//! * A call has exactly one outcome, and a handler sees a call at most once: no path sends an `Open` twice.
//! * Every send block taken from a session is given back once, every receive block is allocated for one completion.
//! * No message reaches an application unchecked (`convert.rs`).
//! * The message a policy looked at is the message that is sent: a private copy (`admission/inspection.rs`).
//! * What waits is bounded: by the sender's window, by the number of its calls, or by a named limit ([`Limits`]); a
//!   full pool is a status for the call that met it, never growth and never somebody else's failure.
//! * Once warm, a unary call takes no memory from the allocator (`tests/allocation.rs` counts).
//! * Bytes from sessions and peers end in a [`SessionFault`] or a protocol error for the one who sent them.
#![forbid(unsafe_code)]

mod admission;
mod admission_of_call;
mod announcers;
mod arrive;
mod assembly;
mod attempts;
mod bind;
mod books;
mod bound_methods;
mod bound_targets;
mod call;
mod call_ends;
mod call_facts;
mod call_line;
mod called_paths;
mod callers;
mod cluster;
mod connecting;
mod connections;
mod convert;
mod convert_error;
mod course;
mod decode;
mod due;
mod end_event;

mod ended;
mod ending;
mod endpoint_end;
mod ends;
mod engine;
mod gateway;
mod gateway_client;
mod gather;
mod grpc;
mod half;
mod handover;
mod heaps;
mod held;
mod host_numbers;
mod in_line;
mod in_vain;
mod invariants;
mod item;
mod judged;
mod known_services;
mod lent_call;
mod limits;
mod method_key;
mod method_types;
mod methods;
mod mirrors;
mod named_peer;
mod names;
mod nested;
mod observe;
mod onward;
mod opaque;
mod operator;
mod owners;
mod packing;
mod parked;
mod pass;
mod peer;
mod peers;
mod permit;
mod plant;
mod r2p2;
mod r2p2_end;
mod r2p2_events;
mod r2p2_made;
mod r2p2_messages;
mod r2p2_remote;
mod r2p2_settings;
mod reach;
mod records;
mod registry;
mod remote;
mod routing;
mod sampled;
mod samples;
mod served_calls;
mod served_later;
mod servers;
mod service_users;
mod service_workers;
mod services;
mod session;
mod session_fault;
mod sessions;
mod shard;
mod shared_queue;
mod shared_room;
mod shares;
mod snapshot;
mod source;
mod spans;
mod start;
mod start_of_call;
mod step;
mod table;
mod target;
mod trace;
mod traced;
mod turn;
mod turn_lines;
mod unproven;
mod unserved;
mod unused_names;
mod vouching;
mod wait_accounts;
mod waiting_line;
mod worker_places;
mod workers;

pub use admission::{AccessRecord, ChainFit};
pub use bind::{BindError, BindRequest, Binding, Bound};
pub use connections::{HttpConnections, NativeConnections, OutgoingDatagrams};
pub use engine::Engine;
pub use gateway_client::{CallRights, CallRule, GatewaySettings};
pub use grpc::{GrpcLeft, GrpcSettings, PeerIdentity};
pub use handover::{
    Brought, Exported, HandoverError, LeftOutReason, LeftOutSession, STATE_VERSION, export_state,
    go_on_elsewhere, hold_own_services, leave_grpc, left_out_connections, left_out_sessions, schemas_in_use,
    shards_needed, stay_with_grpc, take_over,
};
pub use heaps::Heaps;
pub use limits::Limits;
pub use observe::StateParts;
pub use operator::{DeniedChange, Operator};
pub use peer::{PeerFault, UnwantedPeer};
pub use peers::{Piece, SentCall};
pub use plant::Plant;
pub use r2p2_settings::{R2p2Port, R2p2Settings};
pub use registry::{BoundSchema, MessageType, is_own_service, is_reading};
pub use remote::{Dial, Dialled};
pub use samples::{SampleAllowance, SampleCounts, SampleRule, TakenSample};
pub use services::ServiceState;
pub use session_fault::SessionFault;
pub use sessions::Outboxes;
pub use shard::{
    Crossing, CrossingBatch, MovedSession, ShardIndex, Stays, adopt_session, ask_to_redial, audit_crossings,
    handle_crossings, has_crossings, join_shards, next_crossings, park_crossing, release_session,
    share_limits, take_crossing_peer, take_partner,
};
pub use snapshot::{
    AttemptFigures, BalancedRow, PeerRow, Protocol, RemoteRow, RemoteState, ServiceRow, SessionRow, Snapshot,
};
pub use table::{Key, Table};
pub use trunkline_call::CALLER_KEY;
pub use turn::Turn;
pub use vouching::PeerRule;

/// Names an attached session.
pub type SessionKey = Key<session::Session>;
/// Names a connection to another daemon.
pub type PeerKey = Key<peer::Peer>;
/// Names an HTTP/2 connection to a peer that speaks gRPC.
pub type GrpcKey = Key<grpc::GrpcPeer>;
/// Names an endpoint other daemons listen on.
pub type RemoteKey = Key<remote::Remote>;
/// Names a call in flight.
pub(crate) type CallKey = Key<call::Call>;
