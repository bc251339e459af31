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
use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::ends::{ClientSide, EndOfCall, ItemWay, MirrorCaller, Refusal};
use crate::engine::{Engine, Turn};
use crate::registry::MethodTypes;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Instant, Pattern};
use trunkline_policy::{Mirror, Permits};

/// A copy that has not left yet, and its opening.
pub(crate) type Copied = (Call, Item<'static>);

/// The types of a call that is made here, if it is one that can be copied.
pub(crate) fn mirrored_types(call: &Call) -> Option<Arc<MethodTypes>> {
    let types = Some(call).filter(|call| call.is_made_here())?.sender_types(Direction::Request)?;
    (types.pattern == Pattern::Unary || types.input.is_opaque()).then_some(types)
}

/// A copy of a call that has a request of so many bytes.
pub(crate) fn copy_of(
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
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        self.finish(engine, turn, way.key, item);
        Ok(())
    }

    fn credit(&self, _engine: &mut Engine, _key: CallKey, _bytes: u32, _over: bool) {}

    fn release(&self, engine: &mut Engine, _key: CallKey) {
        engine.admission.forget_copy(self.bytes);
    }
}

impl ClientSide for MirrorCaller {
    fn finish(&self, engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>) {
        let end: Option<Code> = if let Item::Finish { code, .. } = finish { Some(*code) } else { None };
        engine.drop_item(finish);
        if let Some(code) = end {
            engine.end_copy(turn.now, key, code);
            engine.forget(key);
        }
    }
}
