//! Recorded calls on their way to another daemon: as bytes, a part at a time.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_telemetry::{CallsAnswer, RecordedCall, RecordedTrace};

/// Parts of a shard's recorder that are sent before it stands still; what is behind these is sent then.
pub(super) const PARTS_MAX: usize = 32;

/// Calls of one recorder, all of some numbers.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordedPart {
    /// The number of the next call behind them.
    next: u64,
    rows: ByteBuf,
    /// Places of rows, and what belongs to a trace of theirs.
    places: Vec<u32>,
    traces: ByteBuf,
    methods: Vec<(u32, String)>,
    peers: Vec<(u32, String)>,
}

impl RecordedPart {
    /// These; `None` if there are none.
    pub(super) fn of(calls: CallsAnswer) -> Option<Self> {
        if calls.rows.is_empty() {
            return None;
        }
        let mut rows = Vec::with_capacity(calls.rows.len() * RecordedCall::BYTES);
        calls.rows.iter().for_each(|row| row.encode(&mut rows));
        let mut traces = Vec::with_capacity(calls.traces.len() * RecordedTrace::BYTES);
        calls.traces.iter().for_each(|(_, trace)| trace.encode(&mut traces));
        Some(Self {
            next: calls.next,
            rows: rows.into(),
            places: calls.traces.iter().map(|(place, _)| *place).collect(),
            traces: traces.into(),
            methods: calls.methods,
            peers: calls.peers,
        })
    }

    /// What a recorder takes up; `None` if a row is none, as of a daemon that has other rows.
    pub(super) fn calls(self) -> Option<CallsAnswer> {
        let row = |bytes: &[u8]| RecordedCall::decode(bytes).ok();
        let trace = |bytes: &[u8]| RecordedTrace::decode(bytes).ok();
        let traces: Option<Vec<_>> = self.traces.chunks_exact(RecordedTrace::BYTES).map(trace).collect();
        Some(CallsAnswer {
            next: self.next,
            rows: self.rows.chunks_exact(RecordedCall::BYTES).map(row).collect::<Option<_>>()?,
            traces: self.places.into_iter().zip(traces?).collect(),
            methods: self.methods,
            peers: self.peers,
            ..CallsAnswer::default()
        })
    }
}

#[cfg(test)]
mod tests {
    //! Shows that recorded calls come as they went, and that rows of another kind are left out.
    use super::*;
    use trunkline_telemetry::{CallsAsk, Telemetry};

    #[test]
    fn calls_come_as_they_went() {
        let none = Telemetry::new().calls(&CallsAsk::all_from(0));
        assert!(RecordedPart::of(none).is_none());
        let mut bytes = Vec::new();
        let row = RecordedCall::decode(&ONE).unwrap();
        row.encode(&mut bytes);
        assert_eq!(bytes, ONE);
        let calls = CallsAnswer {
            next: 7,
            rows: vec![row; 3],
            methods: vec![(0, "/a.B/C".into())],
            ..CallsAnswer::default()
        };
        let part = RecordedPart::of(calls.clone()).unwrap();
        assert_eq!(part.calls(), Some(calls.clone()));
        let mut part = RecordedPart::of(calls).unwrap();
        part.rows[116] = 99;
        assert_eq!(part.calls(), None, "there is no such code");
    }

    /// A call that took no time, and stands for itself.
    const ONE: [u8; RecordedCall::BYTES] = {
        let mut bytes = [0; RecordedCall::BYTES];
        let one = 1.0_f32.to_bits().to_le_bytes();
        let mut at = 0;
        while at < 4 {
            bytes[108 + at] = one[at];
            at += 1;
        }
        (bytes[120], bytes[121]) = (0xff, 0xff);
        bytes
    };
}
