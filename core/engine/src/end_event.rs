//! What comes to an end of calls, as what follows from it: an end's owner says it, and the engine carries it out.

use crate::admission::CallPolicies;
use crate::assembly::Shape;
use crate::call::{Direction, Item};
use crate::grpc::{SentOn, WebStream};
use crate::remote::LaneIndex;
use crate::target::Target;
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey, SessionKey};
use trunkline_call::{Code, Encoding, Fault, Instant};
use trunkline_grpc::Outcome;
use trunkline_grpc::compress::Encoding as Compression;
use trunkline_native::StreamId;

/// What follows from what came. An item is lent to whoever it goes to, from here.
pub(crate) enum EndEvent<'a> {
    /// Nothing.
    Nothing,
    /// A call begins.
    Opens { call: CallKey, target: Target, opening: Item<'a> },
    /// A call that has its server end already begins, if its policies let it.
    OpensSettled { call: CallKey, policies: Option<Box<CallPolicies>>, opening: Item<'a> },
    /// An item goes along its call.
    Passes { call: CallKey, direction: Direction, item: Item<'a> },
    /// A large message begins: it is put together first.
    Long(LongMessage),
    /// The whole answer to a call: headers, if there are any, and its end, or what is wrong with that.
    Answer { call: CallKey, headers: Option<&'a [u8]>, finish: Result<Item<'a>, Fault> },
    /// A gRPC client asks for a call.
    Asked(GrpcOpening),
    /// There is more to read of a gRPC stream, or its `end`.
    Reads { at: WebStream, end: bool },
    /// An answer begins over gRPC, with its head.
    AnswerBegins { call: CallKey, encoding: Compression, metadata: Vec<u8> },
    /// Bytes of a call have left over gRPC.
    Sent(SentOn),
    /// A call ends with this outcome.
    Ended { call: CallKey, outcome: Outcome<'static> },
    /// A session has released a block.
    Released(ReleasedBlock),
    /// A session wants to end: it serves nothing more, and hears when its calls are over if it wants an `answer`.
    Drains { session: SessionKey, answer: bool },
    /// A handler says what it took for a call that is over.
    LateHandler { call: CallKey, session: SessionKey, cpu_ns: u64 },
    /// Nobody waits for a call any more.
    Cancelled { call: CallKey, code: Code },
    /// A call ends so.
    Failed { call: CallKey, fault: Fault },
    /// What waits in one direction of a call may go on.
    Room { call: CallKey, direction: Direction },
    /// Whoever sends in a direction may send so much more.
    Credit { call: CallKey, direction: Direction, bytes: u32 },
    /// Calls in line for an endpoint, or for a name, may go on.
    Line(RemoteKey),
    /// Calls that wait for room on a native connection may go on.
    Writable(PeerKey),
    /// A dialled native connection said hello.
    LaneUp { remote: RemoteKey, lane: LaneIndex, peer: PeerKey },
    /// It takes no new calls.
    LaneLeft { remote: RemoteKey, lane: LaneIndex, peer: PeerKey },
    /// It would rather have them on another.
    WantsAnother(PeerKey),
    /// A peer ends its connection.
    PeerClosed { peer: PeerKey, why: String },
    /// A gRPC connection is up, whose endpoint's calls it takes if that is new.
    PoolReady { remote: Option<RemoteKey>, peer: GrpcKey },
    /// It takes no new calls.
    PoolLeaves { remote: RemoteKey, peer: GrpcKey },
}

impl EndEvent<'_> {
    /// Throws away what is left of it when it is carried out. Nearly always that is nothing, and nobody looks further.
    #[inline(always)]
    pub fn discard(self) {
        let holds_nothing = match &self {
            Self::Nothing | Self::Released(_) => true,
            Self::Opens { opening: item, .. } | Self::Passes { item, .. } => item.holds_nothing(),
            _ => false,
        };
        if holds_nothing {
            std::mem::forget(self);
        }
    }
}

/// A message of a native connection that begins, and comes in parts.
pub(crate) struct LongMessage {
    pub peer: PeerKey,
    pub stream: StreamId,
    pub call: CallKey,
    pub direction: Direction,
    pub encoding: Encoding,
    /// Its length, as the peer says.
    pub total: u32,
    /// What it is part of.
    pub shape: Shape,
}

/// A call that a gRPC client asks for.
pub(crate) struct GrpcOpening {
    pub at: WebStream,
    pub call: CallKey,
    pub target: Target,
    /// Whether it begins at once, and messages follow.
    pub streams: bool,
    pub metadata: Vec<u8>,
    /// Nothing follows.
    pub end: bool,
}

/// A block that a session has released: there is room in its receive heap.
pub(crate) struct ReleasedBlock {
    pub session: SessionKey,
    /// The call it was of, while that is there.
    pub call: Option<CallKey>,
    pub direction: Direction,
    /// What whoever sent it may send more.
    pub credit: u32,
    /// Whether the stream waited for it.
    pub was_awaited: bool,
    /// When the last message of the call was taken, if this was that.
    pub a18: Instant,
}

impl ReleasedBlock {
    /// Of a call that is over.
    pub fn of_nobody(session: SessionKey) -> Self {
        let (direction, a18) = (Direction::Request, Instant::default());
        Self { session, call: None, direction, credit: 0, was_awaited: false, a18 }
    }
}
