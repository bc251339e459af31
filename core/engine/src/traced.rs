//! Spans of calls as they begin: which call gets ids, and where it names them.

use crate::CallKey;
use crate::call::{Call, Calls, ClientEnd, Item};
use crate::registry::{Registry, is_own_service};
use crate::source::CallSources;
use crate::spans::{SpanIds, naming};
use std::borrow::Cow;
use trunkline_call::TraceParent;
use trunkline_telemetry::CallTrace;

/// Gives a call that begins its spans, if it is to have some.
pub(crate) fn open_spans(
    (spans, registry, sources): (&mut SpanIds, &Registry, &CallSources<'_>),
    calls: &mut Calls,
    key: CallKey,
    opening: &mut Item<'_>,
) {
    let Item::Open { metadata, .. } = opening else { return };
    let begins = |call: &&Call| !call.admitted && call.spans.is_none();
    let Some(call) = calls.find(key).filter(begins) else { return };
    let is_received = match call.client {
        ClientEnd::Session { .. } | ClientEnd::Grpc { types: Some(_), .. } => false,
        ClientEnd::Peer { .. } | ClientEnd::Grpc { .. } | ClientEnd::R2p2 { .. } => true,
        // These belong to a call that has its spans.
        ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } | ClientEnd::Shard { .. } => return,
    };
    // Whoever looks at this host is no part of what there is to see.
    let path = registry.path(call.method);
    let is_own = is_own_service(path.trim_start_matches('/'));
    let may_begin = !is_received && call.parent.is_none() && !is_own;
    let Some((ids, named)) = spans.open(metadata, is_received, may_begin) else { return };
    *metadata = Cow::Owned(named);
    let above = call.parent.and_then(|served| calls.find(served)?.trace.as_ref()?.sampled());
    let above = above.filter(|above| above.trace == ids.trace).map_or(0, |above| above.span);
    let source = sources.of_spans(call, path);
    if let Some(call) = calls.find_mut(key) {
        call.spans = Some(Box::new(CallTrace { above, source, ..ids }));
    }
}

/// The ids of an attempt of a call, if that has its spans. The first has the span that the call's metadata names; what
/// others are to name instead comes with them.
pub(crate) fn span_of_attempt(spans: &mut SpanIds, call: &Call) -> Option<(CallTrace, Option<TraceParent>)> {
    let ids = call.spans.as_deref()?;
    let is_first = ids.attempt != 0;
    let own = if is_first { ids.attempt } else { spans.draw() };
    let named = TraceParent { trace: ids.trace, span: own, sampled: true };
    Some((CallTrace { attempt: own, ..*ids }, (!is_first).then_some(named)))
}

/// An opening names this parent instead of its own.
pub(crate) fn name_parent(opening: &mut Item<'_>, parent: &TraceParent) {
    if let Item::Open { metadata, .. } = opening
        && let Some(named) = naming(metadata, parent)
    {
        *metadata = Cow::Owned(named);
    }
}
