//! What the rest of the room relies on, held against a state that came from elsewhere.

use crate::call::{Body, Call, Calls, Half, Item};
use crate::peer::Peer;
use crate::peers::PeerEnds;
use crate::registry::Registry;
use crate::session::{Route, Session};
use crate::shard::ShardLinks;

/// More than any host counts of anything; sums of two stay within 64 bits.
const COUNT_MAX: u64 = 1 << 62;
/// Bytes no heap, stream or connection here holds.
const BYTES_MAX: i64 = 1 << 40;
/// Routes and calls of a session are bounded by limits far below this.
const CALLS_MAX: u32 = 1 << 24;

/// What arrives, as far as it is to be sound.
pub(super) struct Sound<'a> {
    pub calls: &'a Calls,
    pub peers: &'a PeerEnds,
    pub registry: &'a Registry,
    pub shards: &'a ShardLinks,
}

impl Sound<'_> {
    /// # Errors
    /// What does not hold, and whose it is.
    pub fn check(&self) -> Result<(), String> {
        let all = |found: Option<String>| found.map_or(Ok(()), Err);
        let shards = self.shards.elsewhere.is_sound(|method| self.registry.knows(method));
        all((!shards).then(|| "another shard".to_owned()))?;
        let call = self.calls.iter().map(|(_, call)| call).find(|call| !self.call_is_sound(call));
        all(call.map(|call| format!("call of {}", self.registry.path(call.method))))?;
        let in_heap = |span: trunkline_call::entry::Span| span.offset.checked_add(span.len).is_some();
        let lent = self.peers.lent().all(|lent| in_heap(lent.span) && in_heap(lent.block));
        all((!lent).then(|| "lent block".to_owned()))
    }

    fn call_is_sound(&self, call: &Call) -> bool {
        self.registry.knows(call.method)
            && half_is_sound(&call.request)
            && half_is_sound(&call.response)
            && call.attempts.as_ref().is_none_or(|attempts| attempts.is_sound())
    }
}

/// Whether what is said of a session can be so.
pub(super) fn session_is_sound(session: &Session, registry: &Registry) -> bool {
    let known = |route: &Route| match route {
        Route::Calls { method, .. } => registry.knows(*method),
        Route::Serves => true,
    };
    session.routes.iter().all(known)
        && session.parked_bytes.used() <= BYTES_MAX as u64
        && session.answer_bytes as u64 <= BYTES_MAX as u64
        && session.delivered.used() <= BYTES_MAX as u64
        && session.is_sound()
}

/// The same of what arrives over a connection.
pub(super) fn connection_is_sound(peer: &Peer) -> bool {
    let small = |assembly: &crate::assembly::Assembly| {
        assembly.total <= i32::MAX as u32 && assembly.ahead <= i32::MAX as u32
    };
    peer.assembling_bytes as u64 <= BYTES_MAX as u64 && peer.assemblies.values().all(small)
}

/// Brings what is only counted, and told, within the bounds of any honest count. Some of it peers have said, who may
/// say anything: none of it is worth that a host stays with the program it has.
pub(super) fn clip(calls: &mut Calls) {
    for (_, call) in calls.iter_mut() {
        let waits =
            [&mut call.client_stamps.wait_ns, &mut call.server_stamps.wait_ns, &mut call.receive_wait_ns];
        waits.into_iter().for_each(|waited| *waited = (*waited).min(COUNT_MAX));
        call.resent = call.resent.min(CALLS_MAX);
        for half in [&mut call.request, &mut call.response] {
            half.charged = half.charged.clamp(-BYTES_MAX, BYTES_MAX);
            for count in [&mut half.released_bytes, &mut half.bytes, &mut half.messages] {
                *count = (*count).min(COUNT_MAX);
            }
        }
    }
}

fn half_is_sound(half: &Half) -> bool {
    let items = || half.backlog.iter().chain(half.gathered.as_deref());
    items().filter_map(Item::body).all(body_is_sound)
}

fn body_is_sound(body: &Body<'_>) -> bool {
    let span = match body {
        Body::Lent { payload, .. } | Body::Sealed { payload, .. } => payload.span,
        Body::Placed { block, .. } => *block,
        Body::Kept(_) | Body::Wire { .. } | Body::Packed { .. } | Body::Crossed(_) => return true,
    };
    span.offset.checked_add(span.len).is_some()
}
