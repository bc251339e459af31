//! What the timers of an engine are for.

use crate::call::Direction;
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey};

/// What a timer of the engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Due {
    /// A call must have ended.
    Deadline(CallKey),
    /// A call may have another attempt.
    Attempt(CallKey),
    /// A call has waited for its turn as long as it may.
    Queued(CallKey),
    /// A held item may go on.
    Held(CallKey, Direction),
    /// A paced item may have its turn, or be in nobody's way any more.
    Paced(CallKey, Direction),
    /// A connection wants to look at the clock.
    Peer(PeerKey),
    /// Large messages of a connection may have stalled.
    Assemblies(PeerKey),
    /// An endpoint may be dialled again.
    Remote(RemoteKey),
    /// Services that were away may be back, or are not waited for any longer.
    Awaited,
    /// Other shards may be told again what is served here.
    Offers,
    /// Streams of a gRPC connection may have stalled, or have answers that nobody waits for any more.
    Sweep(GrpcKey),
    /// There may be room for messages to other shards that wait for it.
    Starved,
}
