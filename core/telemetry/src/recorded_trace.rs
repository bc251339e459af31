//! What a file of records has of a call that belongs to a trace, as bytes (docs/insight.md).

use crate::recorder::FlightTrace;
use crate::row_fault::RowFault;
use crate::span_room::SpanSource;
use crate::traced::CallTrace;
use trunkline_call::{ClientStamps, Instant, ServerStamps};

/// The trace of a recorded call, and all its stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecordedTrace {
    /// Its ids.
    pub ids: CallTrace,
    /// Traces that this one stands for, which is kept as a whole; zero if it is not, and the call was kept for itself.
    pub weight: f32,
    /// The stamps of the host that made the call, on its clock.
    pub client: ClientStamps,
    /// Those of the host that served it, on that one's.
    pub server: ServerStamps,
}

impl RecordedTrace {
    /// Bytes of one.
    pub const BYTES: usize = 204;

    pub(crate) fn of(trace: &FlightTrace, weight: f32) -> Self {
        Self { ids: trace.ids, weight, client: trace.client, server: trace.server }
    }

    /// As bytes, little-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let CallTrace { trace, parent, span, attempt, above, source: _ } = self.ids;
        out.extend(self.weight.to_bits().to_le_bytes());
        out.extend(trace.to_le_bytes());
        [parent, span, attempt, above].iter().for_each(|id| out.extend(id.to_le_bytes()));
        let stamps = self.client_words().into_iter().chain(self.server_words());
        stamps.for_each(|word| out.extend(word.to_le_bytes()));
    }

    /// Of its bytes; bytes behind them belong to a later version.
    ///
    /// # Errors
    /// What no trace can be.
    ///
    /// # Panics
    /// With fewer than [`RecordedTrace::BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RowFault> {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let weight = f32::from_bits(u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")));
        let trace = u128::from(long(12)) << 64 | u128::from(long(4));
        let (parent, span, attempt, above) = (long(20), long(28), long(36), long(44));
        let ids = CallTrace { trace, parent, span, attempt, above, source: SpanSource::default() };
        if ids.trace == 0 || ids.span == 0 {
            return Err(RowFault::Trace);
        }
        if !weight.is_finite() || (weight != 0.0 && weight < 1.0) {
            return Err(RowFault::Weight);
        }
        let stamp = |place: usize| Instant(long(52 + 8 * place));
        let client = ClientStamps {
            a0: stamp(0),
            a1: stamp(1),
            d2: stamp(2),
            d3: stamp(3),
            wait_ns: stamp(4).0,
            d4: stamp(5),
            k6: stamp(6),
            k15: stamp(7),
            d16: stamp(8),
            d17: stamp(9),
            a18: stamp(10),
        };
        let server = ServerStamps {
            k7: stamp(11),
            d8: stamp(12),
            d9: stamp(13),
            a10: stamp(14),
            a11: stamp(15),
            d12: stamp(16),
            wait_ns: stamp(17).0,
            k14: stamp(18),
            ..ServerStamps::default()
        };
        Ok(Self { ids, weight, client, server })
    }

    /// The stamps that were taken, by name, in the order a call passes them; those of the server are on its own clock.
    pub fn stamps(&self) -> impl Iterator<Item = (&'static str, Instant)> {
        let (c, s) = (&self.client, &self.server);
        let named = [
            ("a0", c.a0),
            ("a1", c.a1),
            ("d2", c.d2),
            ("d3", c.d3),
            ("d4", c.d4),
            ("k6", c.k6),
            ("k7", s.k7),
            ("d8", s.d8),
            ("d9", s.d9),
            ("a10", s.a10),
            ("a11", s.a11),
            ("d12", s.d12),
            ("k14", s.k14),
            ("k15", c.k15),
            ("d16", c.d16),
            ("d17", c.d17),
            ("a18", c.a18),
        ];
        named.into_iter().filter(|(_, at)| *at != Instant::default())
    }

    fn client_words(&self) -> [u64; 11] {
        let ClientStamps { a0, a1, d2, d3, wait_ns, d4, k6, k15, d16, d17, a18 } = self.client;
        [a0.0, a1.0, d2.0, d3.0, wait_ns, d4.0, k6.0, k15.0, d16.0, d17.0, a18.0]
    }

    fn server_words(&self) -> [u64; 8] {
        let ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns, k14, .. } = self.server;
        [k7.0, d8.0, d9.0, a10.0, a11.0, d12.0, wait_ns, k14.0]
    }
}

#[cfg(test)]
mod tests {
    //! Shows that bytes give back the trace or say what is wrong.
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_are_a_trace_or_named(bytes in prop::collection::vec(any::<u8>(), RecordedTrace::BYTES..220)) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&2.0_f32.to_le_bytes());
            if let Ok(trace) = RecordedTrace::decode(&bytes) {
                let mut again = Vec::new();
                trace.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..RecordedTrace::BYTES]);
                prop_assert!(trace.stamps().count() <= 17);
            }
        }
    }

    #[test]
    fn what_no_trace_can_be_is_named() {
        let ids = CallTrace { trace: 1 << 70, span: 2, attempt: 3, above: 4, ..CallTrace::default() };
        let sound = RecordedTrace { ids, weight: 1.0, ..RecordedTrace::default() };
        for (wrong, fault) in [
            (RecordedTrace { weight: 0.5, ..sound }, RowFault::Weight),
            (RecordedTrace { weight: f32::NAN, ..sound }, RowFault::Weight),
            (RecordedTrace { ids: CallTrace { trace: 0, ..ids }, ..sound }, RowFault::Trace),
            (RecordedTrace { ids: CallTrace { span: 0, ..ids }, ..sound }, RowFault::Trace),
        ] {
            let mut bytes = Vec::new();
            wrong.encode(&mut bytes);
            assert_eq!(RecordedTrace::decode(&bytes), Err(fault));
        }
        let mut bytes = Vec::new();
        sound.encode(&mut bytes);
        assert_eq!(bytes.len(), RecordedTrace::BYTES);
        assert_eq!(RecordedTrace::decode(&bytes), Ok(sound));
    }
}
