//! Copies of calls, which policies of kind `mirror` send elsewhere, after Envoy's `request_mirror_policies` and the
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
use crate::admission::CallPolicies;
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::due::Due;
use crate::ends::{ClientSide, EndOfCall, HandedItem, MirrorCaller, Refusal};
use crate::engine::Engine;
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::registry::{MethodKey, MethodTypes, service_of};
use crate::turn::Turn;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Instant, Pattern};
use trunkline_policy::{Mirror, Permits};

/// A copy that has not left yet, and its opening.
pub(crate) type Copied = (Call, Item<'static>);

// LIFE: 7
/// Makes the copies policies want of a call that goes on with `opening`.
pub(crate) fn copy_for_mirrors(
    engine: &mut Engine,
    turn: &Turn<'_>,
    key: CallKey,
    opening: &Item<'_>,
    wanted: &[Mirror],
) -> Vec<Copied> {
    let Item::Open { metadata, body: Some(body), end: true } = opening else { return Vec::new() };
    let copied = engine.calls.find(key).filter(|_| !engine.owners.draining);
    let Some((method, types)) = copied.and_then(|call| Some((call.method, mirrored_types(call)?))) else {
        return Vec::new();
    };
    // One copy of the bytes, however many are sent; each is counted as if it had its own.
    let mut kept = None;
    let mut copies = Vec::new();
    for mirror in wanted {
        let Some((cluster, permits)) = begin_copy(engine, method, body.len(), mirror) else { continue };
        kept = kept.or_else(|| body.kept(&*turn.heaps));
        let (Some(call), Some(kept)) = (engine.calls.find(key), kept.clone()) else {
            // Outside the heap: the call itself ends for that reason.
            engine.owners.admission.release(permits);
            return Vec::new();
        };
        let copy = copy_of(turn.now, call, (&types, body.len()), mirror, (cluster, permits));
        engine.owners.admission.count_copy(body.len());
        let metadata = Cow::Owned(metadata.to_vec());
        copies.push((copy, Item::Open { metadata, body: Some(Body::Kept(kept)), end: true }));
    }
    copies
}

/// Sends them on their way.
pub(crate) fn send_copies(engine: &mut Engine, turn: &mut Turn<'_>, copies: Vec<Copied>) {
    for (copy, mut opening) in copies {
        let Engine { calls, owners: Owners { timers, .. } } = engine;
        let (key, call) = calls.renew();
        *call = copy;
        call.timer = call.deadline.instant().map(|at| timers.insert(at, Due::Deadline(key)));
        engine.pass_on(turn, key, Direction::Request, &mut opening);
    }
}

/// A long answer to a copy begins: it was answered, and memory for it is not for nobody. `false`: the call is none.
pub(crate) fn discard_long_answer(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey) -> bool {
    let Some(copy) = engine.calls.find_mut(key).filter(|call| call.is_copy()) else { return false };
    end_copy(&mut engine.owners, turn.now, copy, Code::Ok);
    engine.cancel(turn, key);
    true
}

/// Where a copy of a call goes, with a request of so many bytes, and what it holds, if there is room for another; else
/// the policy has left one out.
fn begin_copy(
    engine: &mut Engine,
    method: MethodKey,
    bytes: u32,
    mirror: &Mirror,
) -> Option<(ClusterKey, Permits)> {
    let service = service_of(engine.owners.registry.path(method)).to_owned();
    let (endpoints_max, bytes_max) = (engine.owners.limits.endpoints, engine.owners.limits.mirror_bytes);
    // Without one the host knows as many endpoints as it may.
    let remote = engine.owners.remotes.intern(&mirror.target, endpoints_max);
    let cluster =
        remote.and_then(|remote| engine.binder().cluster_of_target(remote, &service, endpoints_max));
    engine.owners.admission.begin_copy(mirror, bytes, bytes_max, || cluster)
}

fn end_copy(owners: &mut Owners, now: Instant, copy: &mut Call, code: Code) {
    if let Some(policies) = copy.policies.take() {
        owners.admission.end_copy(now, policies.permits, code);
    }
}

/// The types of a call that is made here, if it is one that can be copied.
fn mirrored_types(call: &Call) -> Option<Arc<MethodTypes>> {
    let types = Some(call).filter(|call| call.is_made_here())?.sender_types(Direction::Request)?;
    (types.pattern == Pattern::Unary || types.input.is_opaque()).then_some(types)
}

/// A copy of a call that has a request of so many bytes.
fn copy_of(
    now: Instant,
    call: &Call,
    (types, bytes): (&Arc<MethodTypes>, u32),
    mirror: &Mirror,
    (cluster, permits): (ClusterKey, Permits),
) -> Call {
    let client = ClientEnd::Mirror { types: Arc::clone(types), bytes };
    let longest = Deadline::at(now.plus_ns(mirror.timeout_ns));
    let deadline = call.deadline.earlier(longest);
    let mut copy = Call::new(call.method, client, ServerEnd::Cluster { cluster }, deadline);
    copy.admitted = true;
    copy.path.clone_from(&call.path);
    copy.request_encoding = call.request_encoding;
    copy.keeps_encoding = call.keeps_encoding;
    copy.choice = call.choice;
    copy.client_stamps = call.client_stamps;
    copy.policies = Some(Box::new(CallPolicies::holding(permits)));
    copy
}

impl EndOfCall for MirrorCaller {
    /// Something comes back to a copy: nobody wants it.
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        _direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        Ok(self.finish(owners, turn, call, item))
    }

    fn credit(&self, _owners: &mut Owners, _call: (CallKey, &Call), _bytes: u32, _over: bool) {}

    fn release(&self, owners: &mut Owners, _call: (CallKey, &mut Call)) {
        owners.admission.forget_copy(self.bytes);
    }
}

impl ClientSide for MirrorCaller {
    fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem {
        let end: Option<Code> = if let Item::Finish { code, .. } = finish { Some(*code) } else { None };
        owners.drop_item(finish);
        let Some(code) = end else { return HandedItem::Taken };
        end_copy(owners, turn.now, call.call, code);
        HandedItem::Over
    }
}
