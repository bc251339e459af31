//! Copies of calls that policies of kind `mirror` send elsewhere, after Envoy's `request_mirror_policies` and the
//! Gateway API's RequestMirror.
//!
//! A copy is a call of its own whose client end is nobody: what comes back is thrown away, and its end is counted. It
//! is made when the policies have let the call go on, leaves behind it, and neither waits for the other. Nothing is
//! inherited but the request, its metadata and the deadline: no retries, no policies (so no mirrors of mirrors), no
//! place among the caller's calls or bytes. A caller that cancels or dies leaves its copies alone: what the other side
//! is tried with is what callers send, and not how patient they are.
//!
//! What copies may cost is bounded by the policy's number of calls and time, and by [`Limits::mirror_bytes`] for all of
//! them; beyond it calls go uncopied, and are counted. Only whole unary requests are copied: a stream's copy would hold
//! its caller back, or grow.
//!
//! [`Limits::mirror_bytes`]: crate::Limits::mirror_bytes

use crate::CallKey;
use crate::attempts::keep_body;
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::engine::{Engine, Turn};
use crate::expire::Due;
use crate::police::Policed;
use crate::registry::MethodTypes;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Instant, Pattern};
use trunkline_policy::Mirror;

/// A copy that has not left yet, and its opening.
pub(crate) type Copy = (Call, Item<'static>);

impl Engine {
    /// Makes the copies policies want of a call that goes on with `opening`.
    pub(crate) fn copy_for_mirrors(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        opening: &Item<'_>,
        wanted: Vec<Mirror>,
    ) -> Vec<Copy> {
        if wanted.is_empty() || self.draining {
            return Vec::new();
        }
        let (Some(types), Item::Open { metadata, body: Some(body), end: true }) =
            (self.mirrored_types(key), opening)
        else {
            return Vec::new();
        };
        // One copy of the bytes, however many are sent; each is counted as if it had its own.
        let mut kept = None;
        let mut copies = Vec::new();
        for mirror in wanted {
            let Some(copy) = self.admit_copy(turn.now, key, &types, body.len(), &mirror) else { continue };
            if kept.is_none() {
                kept = keep_body(turn, body);
            }
            // Outside the heap: the call itself ends for that reason.
            let Some(kept) = kept.clone() else { return Vec::new() };
            self.mirror_bytes += body.len() as usize;
            let metadata = Cow::Owned(metadata.to_vec());
            copies.push((copy, Item::Open { metadata, body: Some(Body::Kept(kept)), end: true }));
        }
        copies
    }

    /// Sends them on their way.
    pub(crate) fn send_copies(&mut self, turn: &mut Turn<'_>, copies: Vec<Copy>) {
        for (copy, opening) in copies {
            let deadline = copy.deadline.instant();
            let key = self.calls.insert(copy);
            let timer = deadline.map(|at| self.timers.insert(at, Due::Deadline(key)));
            if let Some(copy) = self.calls.find_mut(key) {
                copy.timer = timer;
            }
            self.pass_on(turn, key, Direction::Request, opening);
        }
    }

    /// Something comes back: nobody wants it.
    pub(crate) fn discard_answer(&mut self, now: Instant, key: CallKey, item: Item<'_>) {
        let end = match &item {
            Item::Finish { code, .. } => Some(*code),
            _ => None,
        };
        self.drop_item(item);
        if let Some(code) = end {
            self.end_copy(now, key, code);
        }
    }

    /// A long answer to a copy begins: it was answered, and memory for it is not for nobody. `false`: the call is none.
    pub(crate) fn discard_long_answer(&mut self, turn: &mut Turn<'_>, key: CallKey) -> bool {
        let is_copy = self.calls.find(key).is_some_and(Call::is_copy);
        if is_copy {
            self.count_copy(turn.now, key, Code::Ok);
            self.cancel(turn, key);
        }
        is_copy
    }

    /// A copy has ended.
    pub(crate) fn end_copy(&mut self, now: Instant, key: CallKey, code: Code) {
        self.count_copy(now, key, code);
        self.forget(key);
    }

    /// So many bytes of copies are free again.
    pub(crate) fn forget_copy(&mut self, bytes: u32) {
        self.mirror_bytes = self.mirror_bytes.saturating_sub(bytes as usize);
    }

    fn count_copy(&mut self, now: Instant, key: CallKey, code: Code) {
        let policed = self.calls.find_mut(key).and_then(|call| call.policed.take());
        if let Some(policed) = policed {
            self.policies.end_mirror(now, policed.permits, code);
        }
    }

    /// The types of a call that is made here, if it is one that can be copied.
    fn mirrored_types(&self, key: CallKey) -> Option<Arc<MethodTypes>> {
        let types =
            self.calls.find(key).filter(|call| call.is_made_here())?.sender_types(Direction::Request)?;
        (types.pattern == Pattern::Unary || types.input.is_opaque()).then_some(types)
    }

    /// A copy, if there is room for another; else the policy has left one out.
    fn admit_copy(
        &mut self,
        now: Instant,
        key: CallKey,
        types: &Arc<MethodTypes>,
        bytes: u32,
        mirror: &Mirror,
    ) -> Option<Call> {
        let method = self.calls.find(key)?.method;
        let service = crate::start::service_of(self.registry.path(method)).to_owned();
        let room = self.mirror_bytes + bytes as usize <= self.limits.mirror_bytes;
        let cluster = room.then(|| self.mirror_cluster(mirror, &service)).flatten();
        let admitted = cluster.and_then(|cluster| Some((cluster, self.policies.begin_mirror(mirror)?)));
        let Some((cluster, permits)) = admitted else {
            self.policies.leave_out_mirror(mirror);
            return None;
        };
        let Some(call) = self.calls.find(key) else {
            self.policies.release(permits);
            return None;
        };
        let client = ClientEnd::Mirror { types: Arc::clone(types), bytes };
        let longest = Deadline::at(now.plus_ns(mirror.timeout_ns));
        let deadline = call.deadline.earlier(longest);
        let mut copy = Call::new(method, client, ServerEnd::Cluster { cluster }, deadline);
        copy.admitted = true;
        copy.path.clone_from(&call.path);
        copy.request_encoding = call.request_encoding;
        copy.keeps_encoding = call.keeps_encoding;
        copy.choice = call.choice;
        copy.client_stamps = call.client_stamps;
        copy.policed = Some(Box::new(Policed::holding(permits)));
        Some(copy)
    }

    /// `None`: the host knows as many endpoints as it may.
    fn mirror_cluster(&mut self, mirror: &Mirror, service: &str) -> Option<ClusterKey> {
        let remote = self.remotes.intern(&mirror.target, self.limits.endpoints)?;
        self.cluster_of_target(remote, service)
    }
}

impl Call {
    /// Whether it is a copy, and nobody waits for its end.
    pub fn is_copy(&self) -> bool {
        matches!(self.client, ClientEnd::Mirror { .. })
    }
}
