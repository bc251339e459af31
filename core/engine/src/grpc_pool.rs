//! The connections to an endpoint that speaks gRPC: how many, which of them, and a request sent again.
//!
//! HTTP/2 servers limit the streams of a connection (a hundred is usual), so an endpoint has a pool: a call takes the
//! connection with the fewest streams, and when none has room another is dialled, up to a limit; beyond it calls wait
//! in line for a stream to end.
//!
//! A request the server says it has not seen (REFUSED_STREAM, or a GOAWAY that leaves it out) is sent again, once and
//! elsewhere if there is an elsewhere (gRFC A6, "Transparent Retries"). For that it is kept until the server has shown
//! that it has it, or it is too large.

use crate::call::KeptBody;
use crate::call::{Body, Direction, Item, ServerEnd};
use crate::ends::{Opens, Refusal};
use crate::engine::{Engine, Turn};
use crate::grpc_peer::{GrpcLeaving, GrpcPeer, PeerIdentity};
use crate::grpc_stream::Replay;
use crate::held::HELD_STEP_BYTES;
use crate::packing::Packing;
use crate::remote::{Dial, Dialled, Remote, Speaks};
use crate::source::source_of;
use crate::{CallKey, GrpcKey, RemoteKey};
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::entry::MessageCompression;
use trunkline_call::{Code, Encoding, Execution, Fault, Instant};
use trunkline_grpc::compress::Encoding as Compression;
use trunkline_grpc::framing::PREFIX_BYTES;
use trunkline_grpc::{Command, Reason, StreamTag};

/// Times a request the server has not seen is sent again. The specification says once.
const TRANSPARENT_RETRIES_MAX: u32 = 1;

impl Engine {
    // LIFE: 9 gRPC
    /// A call for an endpoint that speaks gRPC: over the connection with most room, or in line until there is room.
    pub(crate) fn hand_to_pool(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let is_held = self.grpc_is_held() && !self.is_for_grpc_client(key);
        if let Some(peer) = self.pooled_with_room(remote_key).filter(|_| !is_held) {
            return peer.open(self, turn, key, item);
        }
        if !is_held {
            self.grow_pool(turn.now, remote_key);
        }
        let Some(remote) = self.remotes.find(remote_key) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        if remote.pool.is_unused() && self.grpc_leaving != GrpcLeaving::Held {
            return Err(self.unreachable(key, remote_key));
        }
        Err(self.wait_in_line(key, remote_key))
    }

    /// Dials one more connection, one at a time, if the limit and the last failure allow it.
    fn grow_pool(&mut self, now: Instant, remote_key: RemoteKey) {
        let connections_max = self.limits.grpc_connections_per_endpoint;
        let Some(remote) = self.remotes.find(remote_key) else { return };
        let pool = &remote.pool;
        if pool.dialling.is_some() || pool.open.len() >= connections_max || remote.not_before > now {
            return;
        }
        let endpoint = Arc::clone(&remote.endpoint);
        let peer = self.insert_grpc(endpoint.to_string(), PeerIdentity::default(), Some(remote_key));
        self.dials.push_back(Dial { connection: Dialled::Grpc(peer), endpoint, is_known: true });
        if let Some(remote) = self.remotes.find_mut(remote_key) {
            remote.pool.dialling = Some(peer);
        }
    }

    /// A connection that was dialled as native turns out to speak HTTP/2 (TLS has agreed on `h2`): from here on it is
    /// the key returned. `None` if the connection is not one that was dialled here.
    pub fn dialled_speaks_grpc(&mut self, key: crate::PeerKey, identity: PeerIdentity) -> Option<GrpcKey> {
        let (remote_key, lane) = self.peers.find(key)?.lane?;
        let label = self.remotes.find(remote_key)?.endpoint.to_string();
        let peer = self.insert_grpc(label, identity, Some(remote_key));
        let remote = self.remotes.find_mut(remote_key)?;
        remote.speaks = Speaks::Grpc;
        remote.pool.dialling.get_or_insert(peer);
        if let Some(peer) = self.peers.remove(key) {
            self.announces_no_more(key, &peer);
        }
        self.lane_given_up(remote_key, lane, key);
        Some(peer)
    }

    /// A dialled connection proved who it is.
    pub fn grpc_identified(&mut self, key: GrpcKey, identity: PeerIdentity) {
        if let Some(peer) = self.grpc_peers.find_mut(key) {
            peer.identity = identity;
        }
    }

    /// A dialled connection is up.
    pub(crate) fn grpc_ready(&mut self, key: GrpcKey, streams_max: u32) {
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        peer.streams_max = streams_max;
        // One that leaves already takes no calls.
        let is_new = !peer.leaving && !std::mem::replace(&mut peer.ready, true);
        if let Some(remote_key) = peer.remote.filter(|_| is_new)
            && let Some(remote) = self.remotes.find_mut(remote_key)
        {
            remote.connected(Speaks::Grpc);
            remote.pool.dialled(key);
        }
        self.touch(key);
        self.forget_unwanted();
    }

    pub(crate) fn grpc_streams_max(&mut self, key: GrpcKey, streams_max: u32) {
        if let Some(peer) = self.grpc_peers.find_mut(key) {
            peer.streams_max = streams_max;
        }
        self.touch(key);
    }

    /// The peer takes no new streams: those it has go on, new ones go elsewhere.
    pub(crate) fn grpc_leaving(&mut self, turn: &mut Turn<'_>, key: GrpcKey) {
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        peer.leaving = true;
        let remote_key = peer.remote;
        self.touch(key);
        let Some(remote_key) = remote_key else { return };
        if let Some(remote) = self.remotes.find_mut(remote_key) {
            remote.pool.open.retain(|open| *open != key);
            if remote.pool.dialling == Some(key) && !remote.pool.excuse_dialling() {
                self.remotes.dial_failed(turn.now, remote_key, "it takes connections and leaves at once");
            }
        }
        if self.unlearn_unused(remote_key) {
            self.serve_line(turn, remote_key);
        }
    }

    /// A connection of a pool ended, or never came about.
    pub(crate) fn pooled_lost(
        &mut self,
        turn: &mut Turn<'_>,
        remote_key: RemoteKey,
        key: GrpcKey,
        why: &str,
    ) {
        self.remotes.ask_names_of(remote_key);
        let Some(remote) = self.remotes.find_mut(remote_key) else { return };
        remote.pool.open.retain(|open| *open != key);
        if remote.pool.dialling == Some(key) {
            remote.pool.dialling = None;
            self.remotes.dial_failed(turn.now, remote_key, why);
        }
        self.unlearn_unused(remote_key);
        self.serve_line(turn, remote_key);
        self.forget_unwanted();
    }

    /// Nobody calls over a connection any more: it ends with its streams.
    pub(crate) fn leave_pooled(&mut self, key: GrpcKey) {
        if let Some(peer) = self.grpc_peers.find_mut(key) {
            peer.leaving = true;
        }
        self.touch(key);
    }

    /// Forgets that an endpoint speaks gRPC when no connection shows it any more: a daemon that answered nothing when
    /// it was asked, or was older then, is found out when it is dialled next. Whether that was so.
    fn unlearn_unused(&mut self, remote_key: RemoteKey) -> bool {
        // Calls held for the daemon that takes over are its own to dial for.
        if self.grpc_is_held() {
            return false;
        }
        let is_unused = |remote: &Remote| remote.speaks == Speaks::Grpc && remote.pool.is_unused();
        let unused = self.remotes.find(remote_key).is_some_and(is_unused);
        if unused {
            self.remotes.unlearn(remote_key);
        }
        unused
    }

    /// Notes that a connection has changed; [`Engine::settle_grpc`] sees to what that allows.
    pub(crate) fn touch(&mut self, key: GrpcKey) {
        if let Some(peer) = self.grpc_peers.find_mut(key)
            && !std::mem::replace(&mut peer.touched, true)
        {
            self.touched.push(key);
        }
    }

    /// Those who waited for room on a connection go on, and a connection that is left and has nothing to do ends.
    pub(crate) fn settle_grpc(&mut self, turn: &mut Turn<'_>) {
        while let Some(key) = self.touched.pop() {
            let Some(peer) = self.grpc_peers.find_mut(key) else { continue };
            peer.touched = false;
            self.unblock_grpc(turn, key);
            let Some(peer) = self.grpc_peers.find_mut(key) else { continue };
            let Some(remote) = peer.remote else { continue };
            if peer.leaving && peer.streams.is_empty() && !std::mem::replace(&mut peer.closed, true) {
                self.http(key, Command::Close { reason: Reason::NO_ERROR });
            }
            self.serve_pool_line(turn, remote);
        }
    }

    fn unblock_grpc(&mut self, turn: &mut Turn<'_>, key: GrpcKey) {
        let has_line = |peer: &GrpcPeer| !peer.blocked.is_empty();
        while self.grpc_peers.find(key).is_some_and(has_line)
            && self.grpc_has_room(key)
            && let Some((call, direction)) =
                self.grpc_peers.find_mut(key).and_then(|peer| peer.blocked.pop_front())
        {
            self.unblock(turn, call, direction);
        }
    }

    /// Whether a connection takes another message: its own queue has room, and so has the budget of where it leads.
    /// What waits goes on when something of its queue has left.
    pub(crate) fn grpc_has_room(&mut self, key: GrpcKey) -> bool {
        let Self { grpc_peers, held, limits, .. } = self;
        let Some(peer) = grpc_peers.find_mut(key) else { return true };
        let queued_bytes = peer.queued_bytes;
        queued_bytes < limits.connection_queue_bytes as u64
            && (queued_bytes < HELD_STEP_BYTES || peer.book(held).is_ok())
    }

    /// Calls in line take the room there is. Every call touches its connection several times; there is seldom a line.
    fn serve_pool_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let has_line = |remote: &Remote| remote.speaks == Speaks::Grpc && remote.waiting.len() > 0;
        if !self.remotes.find(remote_key).is_some_and(has_line) {
            return;
        }
        if self.grpc_is_held() {
            return self.serve_held_line(turn, remote_key);
        }
        while self.pooled_with_room(remote_key).is_some()
            && let Some(key) = self.remotes.next_in_line(remote_key)
        {
            self.go_on_from_line(turn, key);
        }
        if self.remotes.find(remote_key).is_some_and(|remote| remote.waiting.len() > 0) {
            self.grow_pool(turn.now, remote_key);
        }
    }

    /// Of those in line only calls of gRPC clients take the room there is: the others wait for another engine.
    fn serve_held_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let line = self.remotes.find_mut(remote_key).map(|remote| remote.waiting.drain());
        let (goes, waits): (Vec<_>, Vec<_>) =
            line.unwrap_or_default().into_iter().partition(|key| self.is_for_grpc_client(*key));
        for key in waits {
            let source = source_of(self, key);
            self.remotes.line_up(remote_key, key, source);
        }
        for key in goes {
            self.go_on_from_line(turn, key);
        }
    }

    /// The connection of a pool with the fewest streams, if it takes one more.
    fn pooled_with_room(&self, remote_key: RemoteKey) -> Option<GrpcKey> {
        let pool = &self.remotes.find(remote_key)?.pool;
        let queue_max = self.limits.connection_queue_bytes as u64;
        let room = |key: &GrpcKey| {
            let peer = self.grpc_peers.find(*key)?;
            (peer.streams.len() < peer.streams_max as usize && peer.queued_bytes < queue_max)
                .then_some((peer.streams.len(), *key))
        };
        pool.open.iter().filter_map(room).min_by_key(|(streams, _)| *streams).map(|(_, key)| key)
    }

    /// Keeps the head of a request, to send it again if the server has not seen it.
    pub(crate) fn keep(&mut self, key: GrpcKey, tag: StreamTag, metadata: Vec<u8>) {
        let call_max = self.limits.grpc_replay_bytes_per_call;
        let peer_max = self.limits.grpc_replay_bytes_per_peer;
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        let bytes = metadata.len();
        let Some(stream) = peer.streams.get_mut(&tag) else { return };
        if bytes <= call_max && peer.replay_bytes + bytes <= peer_max {
            peer.replay_bytes += bytes;
            stream.replay = Some(Replay { metadata, bytes, frames: Vec::new() });
        }
    }

    /// Keeps one of its messages; a request that grows too large is not kept any more.
    pub(crate) fn keep_message(&mut self, key: GrpcKey, tag: StreamTag, frame: &Bytes) {
        let call_max = self.limits.grpc_replay_bytes_per_call;
        let peer_max = self.limits.grpc_replay_bytes_per_peer;
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        let Some(replay) = peer.streams.get_mut(&tag).and_then(|stream| stream.replay.as_mut()) else {
            return;
        };
        if replay.bytes + frame.len() > call_max || peer.replay_bytes + frame.len() > peer_max {
            return self.commit(key, tag);
        }
        replay.bytes += frame.len();
        replay.frames.push(frame.clone());
        peer.replay_bytes += frame.len();
    }

    /// The server has the request: it is never sent again.
    pub(crate) fn commit(&mut self, key: GrpcKey, tag: StreamTag) {
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        let replay = peer.streams.get_mut(&tag).and_then(|stream| stream.replay.take());
        peer.replay_bytes -= replay.map_or(0, |replay| replay.bytes);
    }

    /// The server says it has not seen a request. Whether it is sent again.
    pub(crate) fn retry_refused(&mut self, turn: &mut Turn<'_>, peer: GrpcKey, tag: StreamTag) -> bool {
        let Some(key) = self.grpc_stream(peer, tag).and_then(|stream| stream.call) else { return false };
        if self.is_attempt(key) {
            return false;
        }
        let Some(call) = self.calls.find_mut(key) else { return false };
        let Some(placed) = call.placed else { return false };
        if call.outcome.is_some() || call.resent >= TRANSPARENT_RETRIES_MAX {
            return false;
        }
        let Some(mut stream) = self.remove_grpc_stream(peer, tag) else { return false };
        self.release_bytes(peer, tag, stream.incoming.unreleased);
        let Some(replay) = stream.replay.take() else {
            let endpoint = self.grpc_peers.find(peer).map_or_else(String::new, |peer| peer.label.clone());
            let executed = Execution::NotExecuted;
            self.fail(turn, key, Fault::ConnectionLost { endpoint, executed });
            return true;
        };
        self.tell_balancer(turn.now, key, Some(Code::Unavailable), &[]);
        let Some(call) = self.calls.find_mut(key) else { return true };
        call.resent += 1;
        call.server = ServerEnd::Cluster { cluster: placed.cluster };
        call.handed_over = false;
        let ended = stream.outgoing.ended;
        (call.request.bytes, call.request.messages) = (0, 0);
        let encoding = stream.outgoing.encoding;
        for item in replayed(replay, encoding, ended).into_iter().rev() {
            call.request.backlog.push_front(item);
        }
        self.unblock(turn, key, Direction::Request);
        true
    }
}

/// The items a request was made of.
fn replayed(replay: Replay, encoding: Compression, ended: bool) -> Vec<Item<'static>> {
    let count = replay.frames.len();
    let mut bodies = replay.frames.iter().map(|frame| kept(frame, encoding));
    let metadata = Cow::Owned(replay.metadata);
    let mut items = vec![Item::Open { metadata, body: bodies.next(), end: ended && count <= 1 }];
    for (index, body) in bodies.enumerate() {
        items.push(Item::Message { body, end: ended && index + 2 == count });
    }
    items
}

/// A message without its prefix, packed as it was sent.
fn kept(frame: &Bytes, encoding: Compression) -> Body<'static> {
    let (prefix, message) = frame.split_at(PREFIX_BYTES.min(frame.len()));
    let compressed = prefix.first() == Some(&1);
    let packing = (encoding != Compression::Identity).then_some(Packing { encoding, compressed });
    let compression = MessageCompression::Unsaid;
    Body::Kept(KeptBody { bytes: message.into(), encoding: Encoding::Protobuf, packing, compression })
}
