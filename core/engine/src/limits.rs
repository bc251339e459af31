//! Every pool of the engine, with its size and the reason for it. What happens at a limit is a typed outcome.

use trunkline_call::Fault;

// What a status says of a limit that is met in several places: what it bounds, and the key that sets it.
pub(crate) const MESSAGE_BYTES: &str = "bytes of a message (limits.message_bytes)";
pub(crate) const LINEAR_GROWTH: &str = "bytes of a short message once decoded (limits.linear_growth)";
pub(crate) const KEPT: &str = "bytes of requests kept for further attempts (limits.attempts_bytes)";
pub(crate) const WAITING: &str =
    "calls waiting for a connection (limits.calls_waiting_per_endpoint, or pending_max of a balance policy)";
pub(crate) const UNSERVED: &str =
    "calls waiting for a service nobody serves (limits.calls_waiting_per_endpoint)";
pub(crate) const UNSERVED_BYTES: &str =
    "bytes of calls waiting for a service nobody serves (limits.parked_bytes_per_session)";
pub(crate) const GRPC_MESSAGE_BYTES: &str =
    "bytes of a message once decompressed (limits.grpc_message_bytes)";
pub(crate) const ARRIVING: &str = "bytes of large messages arriving (limits.assembling_bytes_per_peer)";
pub(crate) const ANSWERS: &str =
    "bytes of large answers waiting for a full receive heap (limits.assembling_bytes_per_peer)";
pub(crate) const HELD_OF_SOURCE: &str = "bytes held for one address or user (limits.held_bytes_per_source)";
pub(crate) const HELD_OF_HOST: &str = "bytes held for all connections and applications (limits.held_bytes)";
pub(crate) const UNSENT: &str = "deadline of an answer that its client had not read";
pub(crate) const STALLED: &str =
    "seconds in which nothing of an unfinished message has come (limits.message_stall_s)";
pub(crate) const CROSSING: &str = "bytes waiting for another shard (limits.parked_bytes_per_session)";
pub(crate) const METHODS_UNPROVEN: &str = "methods of one connection without an answer (fixed)";
pub(crate) const METHODS_LEARNED: &str =
    "methods of a service known here by their calls only (limits.methods_learned_per_service)";
pub(crate) const RECEIVE_HEAP: &str =
    "bytes of the receiver's heap (sessions.heap_bytes, or TRUNKLINE_HEAP_BYTES in its environment)";
pub(crate) const R2P2_REPLY: &str =
    "bytes of an R2P2 reply (limits.message_bytes; less in the compatible mode)";

/// Largest message unless the configuration says otherwise: a payload of 256 MiB, and room for the fields around it.
const MESSAGE_BYTES_MAX: u32 = 257 << 20;

/// The engine's limits. All are per shard unless they say otherwise; those of the host count for all its shards
/// ([`crate::share_limits`]).
#[derive(Clone, Debug)]
pub struct Limits {
    /// Calls one session may have made and not seen released. Each holds about 1 KB here and at most one
    /// completion outside flow control. More are refused with RESOURCE_EXHAUSTED.
    pub calls_made_per_session: usize,
    /// Calls delivered to one session and not finished. A server that stops taking calls holds this many, and no more.
    pub calls_delivered_per_session: usize,
    /// Bytes one stream may have under way in one direction before the receiver gives credit.
    pub stream_window_bytes: u32,
    /// Routes of one session: methods it may call and serves.
    pub routes_per_session: usize,
    /// Routes of all sessions of one user. Their names are of the applications' making, some as long as a path may be:
    /// two thousand processes that call and serve sixty methods each.
    pub routes_per_user: usize,
    /// Methods peers may name of a service that is served as a whole (`opaque.rs`) before further ones share one name
    /// in reports. Services have tens of methods.
    pub methods_learned_per_service: usize,
    /// Messages waiting for room in one session's receive heap whose bytes the daemon holds itself (they came from a
    /// peer), and metadata with them. Same-host messages wait in their sender's heap and cost nothing here; messages
    /// above a stream's window are counted in `assembling_bytes_per_peer`, where they were let in. As many may one
    /// sender have under way to other shards of the host.
    pub parked_bytes_per_session: usize,
    /// Bytes of large messages one connection may be sending that the daemon must hold itself, because they need
    /// decoding or their receive heap is full, also while they wait for room there, and openings of calls whose one
    /// message has not come, over gRPC, too. One of the largest, or many.
    pub assembling_bytes_per_peer: usize,
    /// Calls waiting for one endpoint to be dialled; and calls waiting until somebody serves their service on this host
    /// (`unserved.rs`).
    pub calls_waiting_per_endpoint: usize,
    /// Endpoints known at once.
    pub endpoints: usize,
    /// Endpoints that the applications of one user may name as targets; they are forgotten with the last of them that
    /// does.
    pub endpoints_per_user: usize,
    /// Largest message, as linear extent or on the wire. The format allows 2 GiB; a host wants less.
    pub message_bytes: u32,
    /// Bytes of a decoded message for each byte it had as protobuf, beyond 1 MiB. A message takes two bytes there and
    /// its whole block here, wide types some KiB: whoever sends little would have much written. Rows of a hundred
    /// fields of which five are set grow by fifty.
    pub linear_growth: u32,
    /// Bodies up to this size are copied into the connection's buffer, so that many leave in one write and the block is
    /// free at once. Above it the kernel gathers from the application's heap. 4 KiB costs 0.1 µs to copy.
    pub inline_body_bytes: u32,
    /// Requests above this size take the endpoint's bulk connection, so that small calls never share a socket buffer
    /// with them. Half of the default socket buffer slice one turn writes.
    pub bulk_body_bytes: u32,
    /// Largest message a gRPC peer may send, before and after decompression. 4 MiB is what every gRPC library takes
    /// unless told otherwise.
    pub grpc_message_bytes: u32,
    /// Connections to one endpoint that speaks gRPC. Servers take a hundred streams on each as a rule.
    pub grpc_connections_per_endpoint: usize,
    /// Bytes of one request to a gRPC server kept to be sent again if the server has not seen it. gRPC's libraries keep
    /// as much for retries.
    pub grpc_replay_bytes_per_call: usize,
    /// Such bytes of all calls of one connection; a request that does not fit is not kept. The same source.
    pub grpc_replay_bytes_per_peer: usize,
    /// Bytes of requests kept for further attempts, by all calls of the host. A call that does not fit has one attempt.
    pub attempts_bytes: usize,
    /// Further attempts (retries, hedges) for a hundred calls that may have them, over the whole host. More would make
    /// a failure of one service an overload of all: a fifth is what Finagle and Linkerd allow.
    pub attempts_percent: u32,
    /// Further attempts per second beside that share, over the whole host, so that a host with few calls has some.
    pub attempts_per_second: u32,
    /// Bytes of requests that are on their way as copies, over the whole host, to where policies of kind `mirror` say.
    /// A copy that does not fit is not sent: a thousand of 16 KiB are more than a shadow that keeps up has outstanding.
    pub mirror_bytes: usize,
    /// Bytes queued on one connection beyond which calls wait in their session instead.
    pub connection_queue_bytes: usize,
    /// Bytes held for all connections of one address, for one endpoint, or for all sessions of one user: queued,
    /// arriving, kept to be sent again or waiting for a receive heap, beside 256 KiB for each connection. Over all
    /// shards. Whoever reads slowly has the streams that lead to it paused, whoever sends has its call refused. One of
    /// the largest messages and the queue of two lanes. R2P2's two ports count anew, each for itself.
    pub held_bytes_per_source: usize,
    /// The same for all of the host.
    pub held_bytes: usize,
    /// Seconds in which something must come of a message of a gRPC peer, or a large one of another daemon, that is not
    /// complete; 0 for as long as it takes. Not while the receiver keeps its sender from going on. Over R2P2: some tens
    /// of packets of a message of several.
    pub message_stall_s: u32,
}

impl Limits {
    /// Largest message of a gRPC peer.
    pub(crate) fn grpc_bytes_max(&self) -> u32 {
        self.grpc_message_bytes.min(self.message_bytes)
    }

    /// Whether a message may be so long, whoever sends it.
    ///
    /// # Errors
    /// What ends its call.
    #[inline]
    pub(crate) fn check_message(&self, bytes: u32) -> Result<(), Fault> {
        let limit = self.message_bytes;
        if bytes > limit { Err(Fault::Limit { name: MESSAGE_BYTES, limit: limit.into() }) } else { Ok(()) }
    }

    /// Whether a message of a peer was let in as a large one: more than one window of a stream.
    pub(crate) fn is_large(&self, bytes: usize) -> bool {
        bytes > self.stream_window_bytes as usize
    }

    /// How long nothing need come of a message that is not complete.
    pub(crate) fn message_stall_ns(&self) -> Option<u64> {
        (self.message_stall_s > 0).then(|| u64::from(self.message_stall_s) * 1_000_000_000)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls_made_per_session: 4096,
            calls_delivered_per_session: 4096,
            stream_window_bytes: 1 << 20,
            routes_per_session: 4096,
            routes_per_user: 1 << 17,
            methods_learned_per_service: 256,
            parked_bytes_per_session: 16 << 20,
            assembling_bytes_per_peer: MESSAGE_BYTES_MAX as usize,
            calls_waiting_per_endpoint: 4096,
            endpoints: 4096,
            endpoints_per_user: 3072,
            message_bytes: MESSAGE_BYTES_MAX,
            linear_growth: 64,
            inline_body_bytes: 4096,
            bulk_body_bytes: 32 << 10,
            connection_queue_bytes: 64 << 20,
            grpc_message_bytes: 4 << 20,
            grpc_connections_per_endpoint: 8,
            grpc_replay_bytes_per_call: 256 << 10,
            grpc_replay_bytes_per_peer: 16 << 20,
            attempts_bytes: 64 << 20,
            attempts_percent: 20,
            attempts_per_second: 10,
            mirror_bytes: 16 << 20,
            held_bytes_per_source: MESSAGE_BYTES_MAX as usize / 2 * 3,
            held_bytes: MESSAGE_BYTES_MAX as usize / 2 * 9,
            message_stall_s: 30,
        }
    }
}
