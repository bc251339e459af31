//! Ids of spans, while somebody exports them: what a call of a trace is known by, and what the other side is told as
//! its parent (the shape of gRFC A72: *sent*, *attempt*, *received*).
//!
//! A call whose `traceparent` says that it is sampled gets spans of its own below the one named there, and its metadata
//! names the innermost of them from there on. A call without one may begin a trace, if it is no handler's. Any other
//! call passes untouched.

use trunkline_call::{MetadataReader, MetadataWriter, TraceParent, mix};
use trunkline_telemetry::CallTrace;

/// Where ids come from, and which calls get some.
#[derive(Debug, Default)]
pub(crate) struct SpanIds {
    pub is_on: bool,
    /// A draw below it begins a trace.
    begins_below: u64,
    seed: u64,
    drawn: u64,
}

/// What metadata says of a trace.
enum Named {
    Nothing,
    /// It is malformed, or not sampled.
    Unsampled,
    Sampled(TraceParent),
}

impl SpanIds {
    /// Spans are made from now on; a trace begins with `share` (0…1) of the calls that could begin one.
    pub fn of_share(share: f64, seed: u64) -> Self {
        let begins_below = (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        Self { is_on: true, begins_below, seed, drawn: 0 }
    }

    /// The spans of a call with this metadata, and the metadata that names them.
    pub fn open(
        &mut self,
        metadata: &[u8],
        is_received: bool,
        may_begin: bool,
    ) -> Option<(CallTrace, Vec<u8>)> {
        let (trace, parent) = match named(metadata) {
            Named::Sampled(parent) => (parent.trace, parent.span),
            Named::Unsampled => return None,
            Named::Nothing if may_begin && self.begins() => {
                (u128::from(self.draw()) << 64 | u128::from(self.draw()), 0)
            }
            Named::Nothing => return None,
        };
        let span = self.draw();
        let attempt = if is_received { 0 } else { self.draw() };
        let innermost = if is_received { span } else { attempt };
        let told = naming(metadata, &TraceParent { trace, span: innermost, sampled: true })?;
        Some((CallTrace { trace, parent, span, attempt, ..CallTrace::default() }, told))
    }

    fn begins(&mut self) -> bool {
        self.begins_below > 0 && self.draw() <= self.begins_below
    }

    /// Never zero, which is no id.
    pub fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        mix(self.seed ^ mix(self.drawn)).max(1)
    }
}

fn named(metadata: &[u8]) -> Named {
    if metadata.is_empty() {
        return Named::Nothing;
    }
    // What is malformed is refused at the call's admission.
    let Ok(mut pairs) = MetadataReader::read(metadata) else { return Named::Unsampled };
    let first = pairs.find_map(|pair| match pair {
        Ok((TraceParent::KEY, value)) => Some(std::str::from_utf8(value).unwrap_or_default()),
        _ => None,
    });
    let Some(text) = first else { return Named::Nothing };
    TraceParent::parse(text).filter(|parent| parent.sampled).map_or(Named::Unsampled, Named::Sampled)
}

/// The same metadata with this parent; `None` if there is no room for it, or it is malformed.
pub(crate) fn naming(metadata: &[u8], parent: &TraceParent) -> Option<Vec<u8>> {
    const PAIR_BYTES: usize = 80;
    let (mut out, mut is_named) = (MetadataWriter::with_capacity(metadata.len() + PAIR_BYTES), false);
    let value = parent.to_string();
    if !metadata.is_empty() {
        for pair in MetadataReader::read(metadata).ok()? {
            match pair.ok()? {
                (TraceParent::KEY, _) if is_named => {}
                (TraceParent::KEY, _) => {
                    is_named = true;
                    out.insert(TraceParent::KEY, value.as_bytes()).ok()?;
                }
                (key, value) => out.insert(key, value).ok()?,
            }
        }
    }
    if !is_named {
        out.insert(TraceParent::KEY, value.as_bytes()).ok()?;
    }
    Some(out.into_bytes())
}

#[cfg(test)]
mod tests {
    //! Shows which calls get spans, and what their metadata says then.
    use super::*;
    use trunkline_call::Metadata;

    const PARENT: TraceParent = TraceParent { trace: 7, span: 9, sampled: true };

    fn encoded(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut metadata = Metadata::new();
        for (key, value) in pairs {
            metadata.insert(key, value).unwrap();
        }
        let mut out = Vec::new();
        metadata.encode(&mut out);
        out
    }

    fn told(metadata: &[u8]) -> TraceParent {
        let metadata = Metadata::decode(metadata).unwrap();
        TraceParent::parse(metadata.text(TraceParent::KEY).unwrap()).unwrap()
    }

    #[test]
    fn a_sampled_call_gets_spans_below_its_parent() {
        let mut ids = SpanIds { is_on: true, seed: 3, ..SpanIds::default() };
        let metadata = encoded(&[("a", "b"), (TraceParent::KEY, &PARENT.to_string()), ("tracestate", "x=1")]);
        let (sent, named) = ids.open(&metadata, false, true).unwrap();
        assert_eq!((sent.trace, sent.parent), (7, 9));
        assert_eq!(told(&named), TraceParent { trace: 7, span: sent.attempt, sampled: true });
        let all = Metadata::decode(&named).unwrap();
        assert_eq!((all.text("a"), all.text("tracestate"), all.len()), (Some("b"), Some("x=1"), 3));
        let (received, named) = ids.open(&named, true, false).unwrap();
        assert_eq!((received.parent, received.attempt), (sent.attempt, 0));
        assert_eq!(told(&named).span, received.span);
        let drawn = [sent.span, sent.attempt, received.span];
        assert!(drawn.iter().all(|id| *id != 0 && drawn.iter().filter(|other| *other == id).count() == 1));
    }

    #[test]
    fn others_pass_untouched() {
        let mut ids = SpanIds { is_on: true, ..SpanIds::default() };
        let unsampled = TraceParent { sampled: false, ..PARENT }.to_string();
        for value in [&*unsampled, "00-a", ""] {
            let metadata = encoded(&[(TraceParent::KEY, value)]);
            ids.begins_below = u64::MAX;
            assert!(ids.open(&metadata, false, true).is_none(), "{value:?}");
        }
        assert!(ids.open(&[1], false, true).is_none(), "malformed");
        assert!(ids.open(&[], true, false).is_none(), "others begin their traces themselves");
        let full = encoded(&[("k", &"v".repeat(Metadata::BYTES_MAX - 20))]);
        assert!(ids.open(&full, false, true).is_none(), "there is no room");
    }

    #[test]
    fn a_share_of_the_rest_begins_a_trace() {
        let mut ids = SpanIds { is_on: true, seed: 11, ..SpanIds::default() };
        let begun = |ids: &mut SpanIds| (0..4000).filter(|_| ids.open(&[], false, true).is_some()).count();
        assert_eq!(begun(&mut ids), 0);
        ids.begins_below = u64::MAX / 4;
        let quarter = begun(&mut ids);
        assert!((800..1200).contains(&quarter), "{quarter} of 4000");
        let (root, named) = std::iter::repeat_with(|| ids.open(&[], false, true)).flatten().next().unwrap();
        assert_eq!((root.parent, told(&named).trace), (0, root.trace));
    }
}
