//! The ends of calls, whatever they speak: what each can do, and the one place that tells them apart.
//!
//! A call has a client end and a server end (`call.rs`). An end is named by a small value: a session and an id, a
//! connection and a stream. Whoever moves items along a call knows the value's traits and nothing of what is behind it:
//!
//! ```text
//!   ClientSide ──▶ EndOfCall ◀── ServerSide      Opens
//!   finish         deliver       cancel          open
//!                  credit
//!                  release
//! ```
//!
//! Another transport is another value with these traits, in a folder of its own (`grpc/`, `peers/`), a variant of
//! [`ClientEnd`] or [`ServerEnd`], and an arm of a macro below. Which end it is is a jump; nothing is boxed. An item is
//! large: it is lent to the end, stays where it is while there is no room for it ([`Refusal::Blocked`]), and is moved
//! once, when it has to wait. The call is lent to its end with every other owner (`owners.rs`), and what follows for
//! more than this call is said by a value ([`HandedItem`]).
//! `tests/integration/ends.rs` holds every end to the same conduct.

use crate::CallKey;
use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::grpc::WebStream;
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::registry::MethodTypes;
use crate::shard::{ShardIndex, ShardLine, ShardStage};
use crate::turn::Turn;
use crate::{GrpcKey, PeerKey, RemoteKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{CallId, Code, Fault, Instant, Status};
use trunkline_native::StreamId;
use trunkline_r2p2::{CallName, RequestKey};

/// Why an item could not be handed over. It is still whole: whoever lent it keeps it or throws it away.
pub(crate) enum Refusal {
    /// Not now: the item waits for what is named.
    Blocked(Blocker),
    /// Never.
    Fault(Fault),
}

impl Refusal {
    /// A call waits in the line of an endpoint or a name, if it may.
    pub fn in_line(remote: RemoteKey, may: Result<(), Fault>) -> Self {
        may.map_or_else(Self::Fault, |()| Self::Blocked(Blocker::Remote(remote)))
    }
}

/// What follows from an item that an end has taken: whoever has handed it over does it (`pass.rs`).
#[must_use]
pub(crate) enum HandedItem {
    /// Nothing.
    Taken,
    /// The call is over, and in the books with this code: it is history.
    Served(Code),
    /// The call is history, and nobody is told.
    Over,
    /// A call of another shard is over that only this session has had to do with (`shard/whole.rs`).
    Left { session: SessionKey, shard: ShardIndex, number: u64 },
    /// It ends so.
    Ends(Box<Status>),
    /// The end is attempts, each a call of its own: the item is still whole, and theirs.
    ToAttempts,
    /// The end is this call, of which an attempt was made: the item is still whole, and is its answer or in vain.
    OfAttempt(CallKey),
}

/// What an item waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blocker {
    /// Room in the session's receive heap.
    Session(SessionKey),
    /// Openings of its source to be released, which hold its part of that heap.
    Opening(SessionKey),
    /// Room there, for a stream that holds nothing of it: others go before.
    Streams(SessionKey),
    /// The stream's own messages to be released, of which it holds its share.
    Share,
    /// Room in the connection's queue, or window.
    Peer(PeerKey),
    /// Room in the gRPC connection's queue.
    Grpc(GrpcKey),
    /// Requests over R2P2 to be answered, of the call's source or there.
    R2p2(RemoteKey),
    /// Room in the queue of the call's own stream: the connection names the call when there is.
    Stream,
    /// A connection to the endpoint.
    Remote(RemoteKey),
    /// Room on the way to another shard.
    Shard(ShardLine),
}

impl Blocker {
    /// Whether it is room in a session's receive heap.
    pub fn is_room(self) -> bool {
        matches!(self, Self::Session(_) | Self::Opening(_) | Self::Streams(_))
    }
}

/// An item came to the end that says such.
pub(crate) fn wrong_way() -> Fault {
    Fault::HandlerProtocol { why: "an item of the other direction" }
}

/// Either end of a call.
pub(crate) trait EndOfCall {
    /// Hands an item over that travels to this end. It is used up then: nobody gives back what it held a second time.
    ///
    /// # Errors
    /// What it has to wait for, or what ends the call.
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal>;

    /// Lets this end send so many bytes more along a stream; `over`: nothing more comes from it.
    fn credit(&self, owners: &mut Owners, call: (CallKey, &Call), bytes: u32, over: bool);

    /// The call is through with this end, which is taken out of it: nothing there names it any more.
    fn release(&self, owners: &mut Owners, call: (CallKey, &mut Call));
}

/// The end that makes a call.
pub(crate) trait ClientSide: EndOfCall {
    /// Tells it the end of the call, which is made here and waits for nothing.
    fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem;
}

/// The end that serves a call.
pub(crate) trait ServerSide: EndOfCall {
    /// Tells it that nobody waits for its answer any more.
    fn cancel(&self, owners: &mut Owners, now: Instant, call: (CallKey, &Call), code: Code);
}

/// What a call gets a server end at.
pub(crate) trait Opens {
    /// Opens a call there by its first item, which is used up. That is its server end from then on.
    ///
    /// # Errors
    /// What the item has to wait for, or what ends the call.
    fn open(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal>;
}

/// A session that makes a call.
pub(crate) struct SessionMaker<'t> {
    pub session: SessionKey,
    pub id: CallId,
    pub types: &'t MethodTypes,
}

/// A session that serves a call.
pub(crate) struct SessionHandler<'t> {
    pub session: SessionKey,
    pub types: &'t MethodTypes,
}

/// A stream of a native connection.
pub(crate) struct PeerStream {
    pub peer: PeerKey,
    pub stream: StreamId,
}

/// A request that came in datagrams.
pub(crate) struct DatagramRequest {
    pub request: RequestKey,
}

/// A request that went out in datagrams.
pub(crate) struct DatagramCall {
    pub name: CallName,
}

/// An endpoint that is called by datagrams.
pub(crate) struct DatagramTarget {
    pub remote: RemoteKey,
}

/// A call, of which an attempt is made.
pub(crate) struct AttemptCaller {
    pub call: CallKey,
}

/// Attempts, each a call of its own.
pub(crate) struct AttemptsServer;

/// Nobody: the call is a copy, with so many message bytes.
pub(crate) struct MirrorCaller {
    pub bytes: u32,
}

/// Endpoints, one of which is to serve a call.
pub(crate) struct ClusterTarget {
    pub cluster: ClusterKey,
}

/// An endpoint, however it is reached.
pub(crate) struct EndpointTarget {
    pub remote: RemoteKey,
}

/// An endpoint that speaks gRPC.
pub(crate) struct PoolTarget {
    pub remote: RemoteKey,
}

/// A call of another shard.
pub(crate) struct ShardCaller {
    pub shard: ShardIndex,
    pub call: u64,
}

/// A shard that serves a call.
pub(crate) struct ShardServer {
    pub shard: ShardIndex,
    pub stage: ShardStage,
}

/// Has a client end do something, whichever it is.
macro_rules! at_client {
    ($client:expr, $end:ident => $does:expr) => {
        match $client {
            ClientEnd::Session { session, id, types } => {
                let $end = SessionMaker { session: *session, id: *id, types };
                $does
            }
            ClientEnd::Peer { peer, stream } => {
                let $end = PeerStream { peer: *peer, stream: *stream };
                $does
            }
            ClientEnd::Grpc { peer, stream, .. } => {
                let $end = WebStream { peer: *peer, tag: *stream };
                $does
            }
            ClientEnd::R2p2 { request } => {
                let $end = DatagramRequest { request: *request };
                $does
            }
            ClientEnd::Shard { shard, call, .. } => {
                let $end = ShardCaller { shard: *shard, call: *call };
                $does
            }
            ClientEnd::Attempt { call, .. } => {
                let $end = AttemptCaller { call: *call };
                $does
            }
            ClientEnd::Mirror { bytes, .. } => {
                let $end = MirrorCaller { bytes: *bytes };
                $does
            }
        }
    };
}

/// The same at a server end. What is done with calls that have none yet follows.
macro_rules! at_server {
    ($server:expr, $end:ident => $does:expr, $($own:pat => $instead:expr),+ $(,)?) => {
        match $server {
            ServerEnd::Session { session, types } => {
                let $end = SessionHandler { session: *session, types };
                $does
            }
            ServerEnd::Peer { peer, stream } => {
                let $end = PeerStream { peer: *peer, stream: *stream };
                $does
            }
            ServerEnd::Grpc { peer, stream } => {
                let $end = WebStream { peer: *peer, tag: *stream };
                $does
            }
            ServerEnd::R2p2 { name, .. } => {
                let $end = DatagramCall { name: *name };
                $does
            }
            ServerEnd::Shard { shard, stage, .. } => {
                let $end = ShardServer { shard: *shard, stage: *stage };
                $does
            }
            ServerEnd::Attempts => {
                let $end = AttemptsServer;
                $does
            }
            $($own => $instead),+
        }
    };
}

/// Hands an item to the end its direction leads to. Most ends are sessions, native streams and shards; of the others
/// nobody counts what a copy takes.
///
/// # Errors
/// What it has to wait for, or what ends the call.
#[inline(always)]
pub(crate) fn deliver(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    call: &mut LentCall<'_>,
    direction: Direction,
    item: &mut Item<'_>,
) -> Result<HandedItem, Refusal> {
    match direction {
        Direction::Request => deliver_to_server(owners, turn, call, item),
        Direction::Response => deliver_to_client(owners, turn, call, item),
    }
}

#[inline(always)]
fn deliver_to_server(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    call: &mut LentCall<'_>,
    item: &mut Item<'_>,
) -> Result<HandedItem, Refusal> {
    let direction = Direction::Request;
    match &call.call.server {
        ServerEnd::Session { session, types } => {
            let (session, types) = (*session, Arc::clone(types));
            SessionHandler { session, types: &types }.deliver(owners, turn, call, direction, item)
        }
        &ServerEnd::Peer { peer, stream } => {
            PeerStream { peer, stream }.deliver(owners, turn, call, direction, item)
        }
        &ServerEnd::Shard { shard, stage, .. } => {
            ShardServer { shard, stage }.deliver(owners, turn, call, direction, item)
        }
        server => server.clone().deliver(owners, turn, call, direction, item),
    }
}

/// The same, to the client end.
#[inline(always)]
pub(crate) fn deliver_to_client(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    call: &mut LentCall<'_>,
    item: &mut Item<'_>,
) -> Result<HandedItem, Refusal> {
    let direction = Direction::Response;
    match &call.call.client {
        ClientEnd::Session { session, id, types } => {
            let (session, id, types) = (*session, *id, Arc::clone(types));
            SessionMaker { session, id, types: &types }.deliver(owners, turn, call, direction, item)
        }
        &ClientEnd::Peer { peer, stream } => {
            PeerStream { peer, stream }.deliver(owners, turn, call, direction, item)
        }
        &ClientEnd::Shard { shard, call: number, .. } => {
            ShardCaller { shard, call: number }.deliver(owners, turn, call, direction, item)
        }
        client => client.clone().deliver(owners, turn, call, direction, item),
    }
}

impl ClientEnd {
    /// As [`EndOfCall::deliver`].
    pub fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        at_client!(self, end => end.deliver(owners, turn, call, direction, item))
    }

    /// As [`EndOfCall::credit`].
    #[inline]
    pub fn credit(&self, owners: &mut Owners, call: (CallKey, &Call), bytes: u32, over: bool) {
        at_client!(self, end => end.credit(owners, call, bytes, over));
    }

    /// As [`EndOfCall::release`].
    #[inline(always)]
    pub fn release(&self, owners: &mut Owners, call: (CallKey, &mut Call)) {
        at_client!(self, end => end.release(owners, call));
    }

    /// As [`ClientSide::finish`].
    pub fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem {
        at_client!(self, end => end.finish(owners, turn, call, finish))
    }
}

impl ServerEnd {
    /// As [`EndOfCall::deliver`].
    pub fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        at_server!(
            self,
            end => end.deliver(owners, turn, call, direction, item),
            Self::Nobody => {
                owners.drop_item(item);
                Ok(HandedItem::Taken)
            },
            Self::Cluster { cluster } => {
                ClusterTarget { cluster: *cluster }.open(owners, turn, call, item).map(|()| HandedItem::Taken)
            },
        )
    }

    /// As [`EndOfCall::credit`].
    #[inline]
    pub fn credit(&self, owners: &mut Owners, call: (CallKey, &Call), bytes: u32, over: bool) {
        at_server!(
            self,
            end => end.credit(owners, call, bytes, over),
            Self::Nobody | Self::Cluster { .. } => {},
        );
    }

    /// As [`EndOfCall::release`].
    #[inline(always)]
    pub fn release(&self, owners: &mut Owners, call: (CallKey, &mut Call)) {
        at_server!(
            self,
            end => end.release(owners, call),
            Self::Nobody | Self::Cluster { .. } => {},
        );
    }

    /// As [`ServerSide::cancel`].
    pub fn cancel(&self, owners: &mut Owners, now: Instant, call: (CallKey, &Call), code: Code) {
        at_server!(
            self,
            end => end.cancel(owners, now, call, code),
            Self::Nobody | Self::Cluster { .. } => {},
        );
    }
}
