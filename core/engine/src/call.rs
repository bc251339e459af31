//! One call between two ends, and what travels along it.

use crate::admission::CallPolicies;
use crate::attempts::CallAttempts;
use crate::cluster::{ClusterKey, Placed};
use crate::grpc::WebStream;
use crate::heaps::Heaps;
use crate::registry::{MethodKey, MethodTypes};
use crate::session::delivered_id;
use crate::shard::{Origin, ShardIndex, ShardStage};
use crate::table::{Renewed, Table};
use crate::trace::Trace;
use crate::workers::{Place, Queued};
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{
    CallId, ClientStamps, Code, Deadline, Execution, Instant, RouteIndex, ServerStamps, Step, Steps,
    TimerKey, VouchedCaller, WorkerChoice,
};
use trunkline_grpc::StreamTag;
use trunkline_grpc::compress::{Accepts, Encoding as Compression};
use trunkline_native::StreamId;
use trunkline_r2p2::{CallName, RequestKey};
use trunkline_telemetry::{CallTrace, PeerIndex};

pub(crate) use crate::half::Half;
pub(crate) use crate::item::{Body, Direction, Item};

/// All calls. Each takes about a kilobyte, which goes with it.
pub(crate) type Calls = Table<Call, Box<Call>>;

/// A call in flight: two ends and two directions.
///
/// ```text
///   client end ──── request half ───▶ server end
///   (session            ◀── response half ────   (session
///    or peer)                                      or peer)
/// ```
///
/// Session to session is a same-host call; session to peer is the client's daemon; peer to session is the server's. A
/// peer is another daemon (`Peer`), anything that speaks gRPC (`Grpc`), or whoever is called by datagrams (`R2p2`).
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Call {
    pub method: MethodKey,
    pub client: ClientEnd,
    pub server: ServerEnd,
    pub request: Half,
    pub response: Half,
    pub deadline: Deadline,
    pub timer: Option<TimerKey>,
    /// The delivered call whose handler makes this one.
    pub parent: Option<CallKey>,
    /// Calls the handler of this one has made; cancelled with it. Some are over.
    pub children: Vec<CallKey>,
    /// The trace context the call came with, inherited by its children.
    pub trace: Option<Box<Trace>>,
    /// Its spans, set at its start if it belongs to a trace that is exported here.
    #[serde(default)]
    pub spans: Option<Box<CallTrace>>,
    /// Whether it waits for a connection until its deadline, instead of failing when there is none to be had.
    pub waits_for_ready: bool,
    /// Longest message in each direction, by service config.
    pub message_bytes_max: [u32; 2],
    pub client_stamps: ClientStamps,
    pub server_stamps: ServerStamps,
    /// What its request waited in front of whoever serves it here, in nanoseconds: for a free worker, or, if another
    /// host makes the call, for anything else before it is delivered. Booked as the server's receive queue.
    #[serde(default)]
    pub receive_wait_ns: u64,
    /// When it began, if it is an attempt at another call, or was one before it took that call's place.
    #[serde(default)]
    pub attempt_began: Instant,
    /// What of its client's wait was over when it began as an attempt: what its call had waited before, and the
    /// attempts before it.
    #[serde(default)]
    pub attempt_waited_ns: u64,
    /// Calls below it that are over: those its handler made, and what was below those.
    #[serde(default)]
    pub subtree_below: u32,
    /// Its last item, in either direction.
    #[serde(skip)]
    pub last_step: Option<Step>,
    /// Whether the server end sent its stamps (a peer may be older, or not ask).
    pub server_measured: bool,
    /// Whether it has passed admission: a request that arrives in parts does so with its head.
    pub admitted: bool,
    /// How often it has moved to another shard with its session: so many calls hand on what is said of it.
    #[serde(default)]
    pub moves: u8,
    /// Which worker it asks for, by its metadata or the policies of whoever makes it here.
    #[serde(default)]
    pub choice: WorkerChoice,
    /// How its request is compressed for a gRPC server, if a policy says so, or a client of the gateway has done it.
    pub request_encoding: Option<Compression>,
    /// It is what a client of the gateway has done, and no policy says otherwise.
    #[serde(default)]
    pub keeps_encoding: bool,
    /// How a gRPC server may compress its answer: as whoever gets it reads it, or as this host does.
    #[serde(default = "everything")]
    pub accepts: Accepts,
    /// The endpoint it was given, until it is known how it ended there.
    pub placed: Option<Placed>,
    /// The attempts made for it, while more than one may be.
    pub attempts: Option<Box<CallAttempts>>,
    /// Endpoints it was at before, in vain.
    pub tried: Vec<RemoteKey>,
    /// Times its request was sent again because a server said it had not seen it.
    pub resent: u32,
    /// Whether any byte of the request left for the server end: decides *not executed* against *unknown*.
    pub handed_over: bool,
    /// An attempt before this one, or beside it, may have been seen: that this one was not says nothing of the call.
    #[serde(default)]
    pub seen_before: bool,
    /// A call from another host of the operator's: who makes it there, by the word of that host's daemon.
    #[serde(default)]
    pub caller: Option<Arc<VouchedCaller>>,
    /// A call from a peer: the request and response types it holds. Linear messages have these fingerprints.
    pub offered: Option<[u64; 2]>,
    /// A call from a peer: the types this host has told it of, if they are the peer's too. Linear requests are of
    /// these.
    pub agreed: Option<Arc<MethodTypes>>,
    /// The method's path, if `method` stands for others too.
    pub path: Option<Box<str>>,
    /// The host that serves it, for the record.
    #[serde(skip, default = "local")]
    pub peer_index: PeerIndex,
    /// What policies have to do with it.
    #[serde(rename = "policed")]
    pub policies: Option<Box<CallPolicies>>,
    /// The version of the chain by which it was told that, if it waits to begin; else any that is no newer: also that
    /// of an earlier call.
    #[serde(skip)]
    pub planned_by: u64,
    /// Its place among what its worker may have in hand.
    #[serde(skip)]
    pub place: Option<Place>,
    /// A worker of this shard has a place kept for it.
    #[serde(skip)]
    pub kept_at: Option<ShardIndex>,
    /// It waits for a worker.
    pub queued: Option<Queued>,
    /// The route of the session that serves it, from the moment on in which that is found: it may have withdrawn when
    /// the call gets there.
    #[serde(default)]
    pub served_as: Option<RouteIndex>,
    /// Its handler knows it by this, because it was delivered on another shard (`shard/migration.rs`).
    #[serde(default)]
    pub known_as: Option<CallId>,
    /// Set with the Finish completion; the call then waits for its Release.
    pub outcome: Option<Code>,
}

/// Where a call comes from.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum ClientEnd {
    Session {
        session: SessionKey,
        id: CallId,
        types: Arc<MethodTypes>,
    },
    /// From another call, of which this is an attempt (`attempts/`).
    Attempt {
        call: CallKey,
        types: Arc<MethodTypes>,
    },
    /// From nobody: a copy of another call, with its message bytes.
    Mirror {
        types: Arc<MethodTypes>,
        bytes: u32,
    },
    Peer {
        peer: PeerKey,
        stream: StreamId,
    },
    /// `types`: of a call that goes on to an endpoint (`gateway.rs`), whose messages pass unread.
    Grpc {
        peer: GrpcKey,
        stream: StreamTag,
        #[serde(default)]
        types: Option<Arc<MethodTypes>>,
    },
    R2p2 {
        request: RequestKey,
    },
    /// From another shard of this host, where it has this number; `types` are those of whoever makes it, if they are
    /// known, and that shard writes its line into the access log if it is `logged`.
    Shard {
        shard: ShardIndex,
        call: u64,
        types: Option<Arc<MethodTypes>>,
        origin: Arc<Origin>,
        logged: bool,
    },
}

/// Where a call goes.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum ServerEnd {
    /// Not found yet, or already through with the call.
    Nobody,
    /// An endpoint of these, that is being dialled or is out of room.
    Cluster {
        cluster: ClusterKey,
    },
    /// To attempts, each a call of its own.
    Attempts,
    Session {
        session: SessionKey,
        types: Arc<MethodTypes>,
    },
    Peer {
        peer: PeerKey,
        stream: StreamId,
    },
    Grpc {
        peer: GrpcKey,
        stream: StreamTag,
    },
    R2p2 {
        name: CallName,
        remote: RemoteKey,
    },
    /// To another shard of this host. `late`: its deadline has passed, and that shard is about to say so.
    Shard {
        shard: ShardIndex,
        types: Arc<MethodTypes>,
        stage: ShardStage,
        late: bool,
    },
}

fn local() -> PeerIndex {
    PeerIndex::LOCAL
}

fn everything() -> Accepts {
    Accepts::ALL
}

impl Renewed for Call {
    fn blank() -> Self {
        Self::new(MethodKey::NOTHING, ClientEnd::VACANT, ServerEnd::Nobody, Deadline::NONE)
    }

    /// What was said when it began is said again of the next: its method, its deadline.
    fn clear(&mut self) {
        let Self {
            method: _,
            client,
            server,
            request,
            response,
            deadline: _,
            timer,
            parent,
            children,
            trace,
            spans,
            waits_for_ready,
            message_bytes_max,
            client_stamps,
            server_stamps,
            receive_wait_ns,
            attempt_began,
            attempt_waited_ns,
            subtree_below,
            last_step,
            server_measured,
            admitted,
            moves,
            choice,
            request_encoding,
            keeps_encoding,
            accepts,
            placed,
            attempts,
            tried,
            resent,
            handed_over,
            seen_before,
            caller,
            offered,
            agreed,
            path,
            peer_index,
            policies,
            planned_by: _,
            place,
            kept_at,
            queued,
            served_as,
            known_as,
            outcome,
        } = self;
        (*client, *server) = (ClientEnd::VACANT, ServerEnd::Nobody);
        request.clear();
        response.clear();
        (*timer, *parent, *trace, *spans) = (None, None, None, None);
        if children.capacity() > 0 {
            *children = Vec::new();
        }
        if tried.capacity() > 0 {
            *tried = Vec::new();
        }
        (*waits_for_ready, *server_measured, *admitted, *keeps_encoding) = (false, false, false, false);
        (*seen_before, *message_bytes_max, *accepts) = (false, [u32::MAX; 2], Accepts::ALL);
        (*client_stamps, *server_stamps) = (ClientStamps::default(), ServerStamps::default());
        (*receive_wait_ns, *subtree_below, *resent, *handed_over, *moves) = (0, 0, 0, false, 0);
        (*attempt_began, *attempt_waited_ns) = (Instant::default(), 0);
        (*last_step, *choice) = (None, WorkerChoice::default());
        (*request_encoding, *placed, *attempts) = (None, None, None);
        (*caller, *offered, *agreed, *path) = (None, None, None, None);
        (*peer_index, *policies, *place) = (PeerIndex::LOCAL, None, None);
        (*kept_at, *queued, *served_as, *known_as, *outcome) = (None, None, None, None, None);
    }
}

impl ClientEnd {
    /// Of a call that is over, or has not begun: no connection has this stream.
    pub const VACANT: Self = Self::Peer { peer: PeerKey::NOTHING, stream: StreamId(0) };

    /// Whether it can be answered by another process that takes over: a gRPC client cannot follow.
    pub fn follows(&self) -> bool {
        match self {
            Self::Grpc { .. } => false,
            Self::Shard { origin, .. } => !matches!(**origin, Origin::Grpc { .. }),
            _ => true,
        }
    }
}

impl Call {
    /// A call as it enters the engine.
    pub fn new(method: MethodKey, client: ClientEnd, server: ServerEnd, deadline: Deadline) -> Self {
        Self {
            method,
            client,
            server,
            request: Half::default(),
            response: Half::default(),
            deadline,
            timer: None,
            parent: None,
            children: Vec::new(),
            trace: None,
            spans: None,
            waits_for_ready: false,
            message_bytes_max: [u32::MAX; 2],
            client_stamps: ClientStamps::default(),
            server_stamps: ServerStamps::default(),
            receive_wait_ns: 0,
            attempt_began: Instant::default(),
            attempt_waited_ns: 0,
            subtree_below: 0,
            last_step: None,
            server_measured: false,
            admitted: false,
            moves: 0,
            choice: WorkerChoice::default(),
            request_encoding: None,
            keeps_encoding: false,
            accepts: Accepts::ALL,
            placed: None,
            attempts: None,
            tried: Vec::new(),
            resent: 0,
            handed_over: false,
            seen_before: false,
            caller: None,
            offered: None,
            agreed: None,
            path: None,
            peer_index: PeerIndex::LOCAL,
            policies: None,
            planned_by: 0,
            place: None,
            kept_at: None,
            queued: None,
            served_as: None,
            known_as: None,
            outcome: None,
        }
    }

    /// What every call has from the beginning, of one that was blank.
    #[inline]
    pub fn begin(&mut self, method: MethodKey, client: ClientEnd, deadline: Deadline) {
        (self.method, self.client, self.deadline) = (method, client, deadline);
    }

    /// When it came into this daemon, or into this shard; `now` if it just comes.
    pub fn entered(&self, now: Instant) -> Instant {
        let at = if self.is_made_here() { self.client_stamps.d2 } else { self.server_stamps.d8 };
        if at == Instant::default() { now } else { at }
    }

    pub fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }
    }

    /// The id by which its handler knows it, where a shard has it by this key.
    pub fn delivered_id(&self, own: ShardIndex, key: CallKey) -> CallId {
        self.known_as.unwrap_or_else(|| delivered_id(own, key))
    }

    /// Blocks that are being written lie in other heaps now.
    pub fn rename_blocks(&mut self, heaps: &dyn Heaps) {
        [&mut self.request, &mut self.response].into_iter().for_each(|half| half.rename_blocks(heaps));
    }

    pub fn half_of(&self, direction: Direction) -> &Half {
        match direction {
            Direction::Request => &self.request,
            Direction::Response => &self.response,
        }
    }

    /// Whether an application makes it that alone knows its types.
    pub fn is_made_opaque(&self) -> bool {
        let types = self.sender_types(Direction::Request);
        types.is_some_and(|types| types.output.is_opaque())
    }

    /// Whether a request's message can become one of the serving session's type. A linear message of a peer can only if
    /// it has this very type: peers may send what was agreed with a server that is gone since, and nobody here can read
    /// it.
    pub fn bridgeable(&self, types: &MethodTypes, item: &Item<'_>) -> bool {
        let (Some(Body::Wire { encoding, .. } | Body::Placed { encoding, .. }), Some([request, _])) =
            (item.body(), self.offered)
        else {
            return true;
        };
        *encoding != trunkline_call::Encoding::Linear
            || request == types.input.fingerprint()
            || self.agreed.is_some()
    }

    /// The fingerprint of linear requests from a peer, if this host told it one.
    pub fn agreed_input(&self) -> Option<u64> {
        self.agreed.as_ref().map(|types| types.input.fingerprint())
    }

    /// What is known of the execution if the call ends now without an answer.
    pub fn execution(&self) -> Execution {
        if self.handed_over { Execution::Unknown } else { Execution::NotExecuted }
    }

    /// The session that makes the call, and the id it chose.
    pub fn maker(&self) -> Option<(SessionKey, CallId)> {
        match self.client {
            ClientEnd::Session { session, id, .. } => Some((session, id)),
            _ => None,
        }
    }

    /// An item comes: what is waited for, and how long that takes, tells a shard how to wait.
    #[inline]
    pub fn note_step(&mut self, steps: &mut Steps, now: Instant, direction: Direction, item: &Item<'_>) {
        let back = direction == Direction::Response;
        steps.note(&mut self.last_step, Step { at: now, back, message: item.body().is_some() });
    }

    /// Whether it begins when its request, of which parts have come, is whole.
    pub fn has_begun_in_parts(&self) -> bool {
        matches!(self.server, ServerEnd::Nobody) && self.request.gathered.is_some()
    }

    /// Whether it has a place at a worker of this host, or waits for one.
    pub fn is_at_worker(&self) -> bool {
        self.kept_at.is_some() || self.place.is_some() || self.queued.is_some()
    }

    /// Whether its server end is through with it, and nothing waits in it.
    #[inline]
    pub fn has_let_go(&self) -> bool {
        let is_left = matches!(self.server, ServerEnd::Nobody) && !self.is_at_worker();
        is_left && self.is_at_rest()
    }

    /// Whether the engine makes it itself, from a request it keeps, or does not want to make it twice.
    pub fn is_made_for_another(&self) -> bool {
        matches!(self.client, ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. })
    }

    /// Whether the one message of a method is not there. One that does not know the method sends it ahead of its end.
    pub fn lacks_message(&self, direction: Direction) -> bool {
        !self.streams(direction) && self.half_of(direction).messages == 0
    }

    /// A message has come whole: from here on time is stack.
    pub fn note_complete(&mut self, direction: Direction, arrived: Instant, now: Instant) {
        if direction == Direction::Request && !self.handed_over {
            (self.server_stamps.k7, self.server_stamps.d8) = (arrived, now);
            if self.is_forwarded() && !self.streams(direction) && self.request.backlog.is_empty() {
                // It begins with all of its request: what its client took to send that, behind the head, is nobody's
                // here.
                let client = &mut self.client_stamps;
                (client.a0, client.a1, client.d2) = (arrived, arrived, now);
            }
        }
    }

    /// Whether it is a copy, and nobody waits for its end.
    pub fn is_copy(&self) -> bool {
        matches!(self.client, ClientEnd::Mirror { .. })
    }

    /// Whether policies look at this item, a message of a stream that is under way.
    pub fn is_inspected(&self, direction: Direction, item: &Item<'_>) -> bool {
        direction == Direction::Request
            && matches!(item, Item::Message { .. })
            && self.policies.as_ref().is_some_and(|policies| policies.inspects_messages())
    }

    /// Whether a gRPC client makes it, and it goes on to an endpoint (`gateway.rs`).
    pub fn is_forwarded(&self) -> bool {
        matches!(self.client, ClientEnd::Grpc { types: Some(_), .. })
    }

    /// The gRPC connection that brings this direction of a call that is forwarded.
    pub fn forwarded_from(&self, direction: Direction) -> Option<GrpcKey> {
        match (direction, &self.client, &self.server) {
            (Direction::Request, ClientEnd::Grpc { peer, types: Some(_), .. }, _)
            | (Direction::Response, ClientEnd::Grpc { types: Some(_), .. }, ServerEnd::Grpc { peer, .. }) => {
                Some(*peer)
            }
            _ => None,
        }
    }

    /// The stream of a gRPC connection that brings this direction.
    pub fn grpc_sender(&self, direction: Direction) -> Option<WebStream> {
        match (direction, &self.client, &self.server) {
            (Direction::Request, &ClientEnd::Grpc { peer, stream: tag, .. }, _)
            | (Direction::Response, _, &ServerEnd::Grpc { peer, stream: tag }) => {
                Some(WebStream { peer, tag })
            }
            _ => None,
        }
    }

    /// Whether what this host says of the calls it makes holds for this one.
    pub fn is_made_here(&self) -> bool {
        self.maker().is_some() || self.is_forwarded() || self.has_moved()
    }

    /// Whether a session made it here that is on another shard now (`shard/migration.rs`). Of calls that came from
    /// another shard that one has the stamps.
    pub fn has_moved(&self) -> bool {
        matches!(self.client, ClientEnd::Shard { .. }) && self.client_stamps.d2 != Instant::default()
    }

    /// Whether this is its end and goes on as it comes: nothing waits before it, nobody here has to do with it, and
    /// whoever makes the call takes it in this shape.
    #[inline]
    pub fn ends_as_it_comes(&self, item: &Item<'_>) -> bool {
        let half = &self.response;
        let is_next = !half.ended && half.backlog.is_empty() && half.gathered.is_none();
        let fits = match &self.client {
            ClientEnd::Session { types, .. } => !types.output.is_opaque() && !types.pattern.server_streams(),
            client => matches!(client, ClientEnd::Shard { .. } | ClientEnd::Peer { .. }),
        };
        let is_any_length = self.message_bytes_max[Direction::Response as usize] == u32::MAX;
        let is_end = matches!(item, Item::Finish { .. });
        is_end && is_next && fits && is_any_length && self.policies.is_none() && self.placed.is_none()
    }

    /// What its end says of the execution is said of all attempts there were.
    pub fn tell_of_all(&self, item: &mut Item<'_>) {
        if self.seen_before
            && let Item::Finish { execution, .. } = item
            && *execution == Execution::NotExecuted
        {
            *execution = Execution::Unknown;
        }
    }

    /// Whether the stream of a gRPC connection is its client end.
    pub fn comes_by(&self, at: WebStream) -> bool {
        matches!(self.client, ClientEnd::Grpc { peer, stream, .. } if (peer, stream) == (at.peer, at.tag))
    }

    /// Whether a session makes or serves it.
    pub fn is_of(&self, session: SessionKey) -> bool {
        self.handler() == Some(session) || self.maker().is_some_and(|(maker, _)| maker == session)
    }

    /// The session that serves the call.
    pub fn handler(&self) -> Option<SessionKey> {
        match self.server {
            ServerEnd::Session { session, .. } => Some(session),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that nothing of a call is left in the one that is made of it.
    use super::*;
    use crate::table::Key;

    fn full() -> Call {
        let types = || Arc::new(MethodTypes::opaque("/a.B/C", false));
        let (session, peer, at) = (Key::from_bits(1), Key::from_bits(2), Instant(3));
        let client = ClientEnd::Session { session, id: CallId(4), types: types() };
        let server = ServerEnd::Peer { peer, stream: StreamId(5) };
        let mut call = Call::new(MethodKey::NOTHING, client, server, Deadline::NONE);
        for direction in [Direction::Request, Direction::Response] {
            let half = call.half(direction);
            half.backlog.push_back(Item::HalfClose);
            half.gathered = Some(Box::new(Item::HalfClose));
            (half.waiting_since, half.paced_until, half.large_of) = (Some(at), Some(at), Some(peer));
            (half.ended, half.introduced, half.large_waits, half.is_of_stream) = (true, true, true, true);
            half.waits_for_room = true;
            half.count(6);
            half.expect_release(7, 8);
            half.charged = 9;
            half.released_bytes = 10;
            half.share.hold(session, 11);
        }
        let key = Key::from_bits(12);
        (call.parent, call.children, call.tried) = (Some(key), vec![key], vec![Key::from_bits(13)]);
        (call.waits_for_ready, call.server_measured, call.admitted) = (true, true, true);
        (call.keeps_encoding, call.handed_over, call.resent) = (true, true, 14);
        call.seen_before = true;
        (call.message_bytes_max, call.accepts) = ([15; 2], Accepts::default());
        (call.client_stamps.a18, call.server_stamps.k14, call.attempt_began) = (at, at, at);
        (call.receive_wait_ns, call.subtree_below, call.peer_index) = (16, 17, PeerIndex::OTHER);
        call.attempt_waited_ns = 21;
        call.last_step = Some(Step { at, back: true, message: true });
        call.choice = WorkerChoice { class: Some(1), sticky: Some(true) };
        call.request_encoding = Some(Compression::Gzip);
        (call.caller, call.offered, call.agreed) = (Some(Arc::default()), Some([18; 2]), Some(types()));
        (call.path, call.kept_at, call.outcome) =
            (Some("/a.B/C".into()), Some(ShardIndex(1)), Some(Code::Ok));
        (call.served_as, call.known_as) = (Some(RouteIndex(19)), Some(CallId(20)));
        call.policies = Some(Box::default());
        call.spans = Some(Box::default());
        call
    }

    #[test]
    fn nothing_of_a_call_is_left_in_the_next() {
        let mut call = full();
        call.clear();
        assert_eq!(format!("{call:?}"), format!("{:?}", Call::blank()));
    }
}
