//! Trace context: what a call came with, inherited by the calls its handler makes (W3C Trace Context).

use trunkline_call::{Fault, MetadataError, MetadataReader, MetadataWriter, TraceParent, WorkerChoice};

const TRACEPARENT: &str = TraceParent::KEY;
const TRACESTATE: &str = "tracestate";
/// What a pair takes beside its value.
const PAIR_BYTES: usize = 16;

/// The context a call came with. It is inherited as it came, whatever it says.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Trace {
    /// `traceparent`.
    parent: Box<str>,
    /// `tracestate`, in one: what vendors along the way keep for themselves.
    state: Option<Box<str>>,
}

impl Trace {
    /// Checks metadata and takes out its context, and which worker it asks for.
    ///
    /// # Errors
    /// What is wrong with the metadata.
    #[inline]
    pub fn read(metadata: &[u8]) -> Result<(Option<Box<Self>>, WorkerChoice), Fault> {
        if metadata.is_empty() {
            return Ok((None, WorkerChoice::default()));
        }
        Self::read_some(metadata)
    }

    fn read_some(metadata: &[u8]) -> Result<(Option<Box<Self>>, WorkerChoice), Fault> {
        let malformed = |error: MetadataError| Fault::MalformedMetadata { why: error.to_string() };
        let (mut choice, mut parent, mut states) = (Ok(WorkerChoice::default()), None, Vec::new());
        for pair in MetadataReader::read(metadata).map_err(malformed)? {
            let (key, value) = pair.map_err(malformed)?;
            match (key, std::str::from_utf8(value)) {
                (TRACEPARENT, Ok(value)) => parent = parent.or(Some(value)),
                (TRACESTATE, Ok(value)) => states.push(value),
                _ => choice = choice.and_then(|choice| choice.with(key, value)),
            }
        }
        // What the caller asks for there is as much its request as the message is.
        let choice = choice.map_err(|why| Fault::MalformedRequest { why })?;
        // State without a parent is nobody's (section 3.3 there).
        Ok((parent.map(|parent| Self::of(parent, &states)), choice))
    }

    /// Which trace and span it names, if that is recorded.
    pub fn sampled(&self) -> Option<TraceParent> {
        TraceParent::parse(&self.parent).filter(|parent| parent.sampled)
    }

    /// Several headers are one list, in their order (section 3.3.1.1).
    fn of(parent: &str, states: &[&str]) -> Box<Self> {
        let state = (!states.is_empty()).then(|| states.join(",").into());
        Box::new(Self { parent: parent.into(), state })
    }

    /// Adds the context to a call's metadata, unless the application sent its own: state belongs to its parent.
    pub fn inherited(&self, metadata: &[u8]) -> Vec<u8> {
        self.behind(metadata).unwrap_or_else(|_| metadata.to_vec())
    }

    fn behind(&self, metadata: &[u8]) -> Result<Vec<u8>, MetadataError> {
        let mut has_state = false;
        for pair in MetadataReader::read(metadata)? {
            match pair? {
                (TRACEPARENT, _) => return Ok(metadata.to_vec()),
                (key, _) => has_state |= key == TRACESTATE,
            }
        }
        let state = self.state.as_deref().filter(|_| !has_state);
        let spare_bytes = 2 * PAIR_BYTES + self.parent.len() + state.map_or(0, str::len);
        let mut all = MetadataWriter::behind(metadata, spare_bytes)?;
        all.insert(TRACEPARENT, self.parent.as_bytes())?;
        if let Some(state) = state {
            // Where there is no room for both, the parent is worth more.
            let _ = all.insert(TRACESTATE, state.as_bytes());
        }
        Ok(all.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is taken from metadata, and what a child's metadata becomes.
    use super::*;
    use trunkline_call::Metadata;

    fn encoded(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut metadata = Metadata::new();
        for (key, value) in pairs {
            metadata.insert(key, value).unwrap();
        }
        let mut out = Vec::new();
        metadata.encode(&mut out);
        out
    }

    fn inherits(parent: &[(&str, &str)], own: &[(&str, &str)], becomes: &[(&str, &str)]) {
        let trace = Trace::read(&encoded(parent)).unwrap().0;
        let made = trace.map_or_else(|| encoded(own), |trace| trace.inherited(&encoded(own)));
        assert_eq!(Metadata::decode(&made), Metadata::decode(&encoded(becomes)), "{parent:?} {own:?}");
    }

    #[test]
    fn children_inherit() {
        let (parent, state) = ((TRACEPARENT, "00-a"), (TRACESTATE, "x=1"));
        inherits(&[parent], &[], &[parent]);
        inherits(&[parent, state], &[("k", "v")], &[("k", "v"), parent, state]);
        inherits(&[parent, state, (TRACESTATE, "y=2")], &[], &[parent, (TRACESTATE, "x=1,y=2")]);
        inherits(&[state], &[], &[]);
        inherits(&[parent, state], &[(TRACEPARENT, "00-b")], &[(TRACEPARENT, "00-b")]);
        inherits(&[parent, state], &[(TRACESTATE, "z=3")], &[(TRACESTATE, "z=3"), parent]);
    }

    #[test]
    fn the_parent_is_worth_more_where_there_is_no_room() {
        let state = "x".repeat(20_000);
        let trace = Trace::read(&encoded(&[(TRACEPARENT, "00-a"), (TRACESTATE, &state)])).unwrap().0.unwrap();
        let own = encoded(&[("k", &"v".repeat(20_000))]);
        let made = Metadata::decode(&trace.inherited(&own)).unwrap();
        assert_eq!((made.len(), made.text(TRACEPARENT)), (2, Some("00-a")));
        let full = encoded(&[("k", &"v".repeat(Metadata::BYTES_MAX - 10))]);
        assert_eq!(trace.inherited(&full), full);
    }
}
