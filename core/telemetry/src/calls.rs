//! Calls one by one for who keeps them: which ones, with what weight, and as which bytes (docs/insight.md).

use crate::component::{Component, Components, Coverage, StampSet};
use crate::flight::FlightRow;
use crate::record::Side;
use crate::recorded_trace::RecordedTrace;
use crate::recorder::{FlightRecorder, LateHandler};
use crate::row_fault::RowFault;
use crate::{MethodIndex, PeerIndex};
use trunkline_call::{Code, Instant, mix};

/// Which calls of one shard are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsAsk {
    /// The number of the first call, as the last [`CallsAnswer::next`] said; `None` for none, only the next number.
    pub from: Option<u64>,
    /// Of 2 to the power of this many calls that ended well one is kept; at most 32.
    pub one_in_log2: u32,
    /// Of 2 to the power of this many traces the calls of one are kept; at most 32.
    pub traces_one_in_log2: u32,
    /// Keep every call of the slowest twentieth of its method.
    pub keeps_slow: bool,
    /// Pass over calls of daemons' own services without a word: who looks on is no part of what there is to see.
    pub leaves_own_out: bool,
    /// Most calls in the answer; one with its trace takes the room of three.
    pub rows_max: usize,
}

impl CallsAsk {
    /// Every call from this number on.
    pub fn all_from(number: u64) -> Self {
        Self { from: Some(number), rows_max: CallsAnswer::SCAN_MAX as usize, ..Self::default() }
    }
}

/// Calls of one shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallsAnswer {
    /// The number to go on with.
    pub next: u64,
    /// Calls that were looked at, with those they stand for.
    pub seen: u64,
    /// Those of them that belong to a trace.
    pub traced: u64,
    /// Calls that were overwritten before they could be looked at; those they stood for are not among them.
    pub lost: u64,
    /// There are more already.
    pub more: bool,
    /// The calls that were kept, oldest first.
    pub rows: Vec<RecordedCall>,
    /// What belongs to a trace in `rows`: its place there, and the trace. In the order of places.
    pub traces: Vec<(u32, RecordedTrace)>,
    /// What handlers said meanwhile whose calls were over before.
    pub late: Vec<LateHandler>,
    /// Names of the methods in `rows` and `late`, by number.
    pub methods: Vec<(u32, String)>,
    /// Names of the other hosts in `rows`, by number.
    pub peers: Vec<(u32, String)>,
}

/// A call that was kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedCall {
    /// The call.
    pub row: FlightRow,
    /// Calls it stands for, itself included: the inverse of the probability with which it was kept.
    pub weight: f32,
    /// Calls above it in its tree; `None` if nobody told.
    pub ancestors: Option<u16>,
}

impl CallsAnswer {
    /// Most calls looked at for one answer.
    pub const SCAN_MAX: u64 = 8192;
    /// The room of a call with its trace, in calls without.
    const TRACED_ROWS: usize = 1 + RecordedTrace::BYTES.div_ceil(RecordedCall::BYTES);

    /// Without names. `is_own`: whether a method is one of daemons' own services.
    pub(crate) fn of(
        recorder: &FlightRecorder,
        ask: &CallsAsk,
        is_own: impl Fn(MethodIndex) -> bool,
    ) -> Self {
        let written = recorder.written();
        let Some(from) = ask.from else { return Self { next: written, ..Self::default() } };
        // A number from another daemon's life is ahead of this one's.
        let from = from.min(written);
        let mut answer = Self { next: from, ..Self::default() };
        let (one_in_log2, traces_one_in_log2) = (ask.one_in_log2.min(32), ask.traces_one_in_log2.min(32));
        let mut traces = recorder.traces_since(from).peekable();
        for (number, row) in recorder.since(from).take(Self::SCAN_MAX as usize) {
            if answer.rows.len() + (Self::TRACED_ROWS - 1) * answer.traces.len() >= ask.rows_max {
                break;
            }
            while traces.next_if(|trace| trace.number < number).is_some() {}
            let trace = traces.next_if(|trace| trace.number == number);
            if answer.next == from {
                answer.lost = number - from;
            }
            answer.next = number + 1;
            if ask.leaves_own_out && is_own(row.method) {
                continue;
            }
            answer.seen += u64::from(row.stands_for);
            answer.traced += u64::from(trace.is_some());
            // The calls of a trace are kept together, on every host.
            let (drawn_by, log2) = match trace {
                Some(trace) => ((trace.ids.trace >> 64) as u64 ^ trace.ids.trace as u64, traces_one_in_log2),
                None => (number, one_in_log2),
            };
            let (is_drawn, stands_for) = (is_drawn(drawn_by, log2), (1_u64 << log2) as f32);
            let is_certain = row.code != Code::Ok || (ask.keeps_slow && row.slow);
            if !is_certain && !is_drawn {
                continue;
            }
            if let Some(trace) = trace {
                let trees = if is_drawn { stands_for } else { 0.0 };
                answer.traces.push((answer.rows.len() as u32, RecordedTrace::of(trace, trees)));
            }
            let weight = if is_certain { 1.0 } else { stands_for } * f32::from(row.stands_for);
            answer.rows.push(RecordedCall { row, weight, ancestors: None });
        }
        answer.more = answer.next < written;
        answer.late = recorder.late_between(from, answer.next).copied().collect();
        answer
    }
}

/// Whether a call is one of those kept. Its number or its trace decides, so that two who record the same daemon keep
/// the same calls, two hosts the same traces, and who keeps one in four has all of those who keep one in eight.
fn is_drawn(number: u64, one_in_log2: u32) -> bool {
    mix(number).trailing_zeros() >= one_in_log2
}

impl RecordedCall {
    /// Bytes of one call.
    pub const BYTES: usize = 124;
    /// No call takes longer: thirty days.
    pub const TOTAL_NS_MAX: u64 = 30 * 86_400 * 1_000_000_000;
    /// Nobody told how many calls are above.
    const NO_ANCESTORS: u16 = u16::MAX;

    /// The call as bytes, little-endian (docs/insight.md has the table). One that took longer than any can take, a
    /// stream of months or one whose application stamps nonsense, is told as so long.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let row = &self.row;
        out.extend(row.at.0.to_le_bytes());
        row.components.at_most(Self::TOTAL_NS_MAX).iter().for_each(|ns| out.extend(ns.to_le_bytes()));
        let half_width_ns = if has_wires(row.components.coverage) { row.half_width_ns } else { u32::MAX };
        let words = [
            half_width_ns,
            row.cpu_ns,
            row.subtree,
            row.request_bytes,
            row.response_bytes,
            row.method.0,
            row.peer.0,
            self.weight.to_bits(),
            row.components.stand_ins.bits(),
        ];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        let flags = u8::from(row.components.clipped)
            | u8::from(row.components.kernel_sent) << 1
            | u8::from(row.slow) << 2
            | u8::from(row.is_stream) << 3;
        out.extend([row.code.number() as u8, row.side as u8, row.components.coverage as u8, flags]);
        out.extend(self.ancestors.unwrap_or(Self::NO_ANCESTORS).to_le_bytes());
        out.extend(row.stands_for.saturating_sub(1).to_le_bytes());
    }

    /// A call from its bytes; bytes behind them belong to a later version.
    ///
    /// # Errors
    /// What no call can be.
    ///
    /// # Panics
    /// With fewer than [`RecordedCall::BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RowFault> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let ns: [u64; Component::COUNT] = std::array::from_fn(|index| long(8 + 8 * index));
        let [code, side, coverage, flags] = word(116).to_le_bytes();
        let weight = f32::from_bits(word(108));
        let total = ns.iter().try_fold(0_u64, |sum, ns| sum.checked_add(*ns));
        if total.is_none_or(|total| total > Self::TOTAL_NS_MAX) {
            return Err(RowFault::Stamps);
        }
        if !weight.is_finite() || weight < 1.0 {
            return Err(RowFault::Weight);
        }
        if code > 16 {
            return Err(RowFault::Code);
        }
        let coverage = *Coverage::ALL.get(usize::from(coverage)).ok_or(RowFault::Coverage)?;
        let row = FlightRow {
            at: Instant(long(0)),
            side: *Side::ALL.get(usize::from(side)).ok_or(RowFault::Side)?,
            method: MethodIndex(word(100)),
            peer: PeerIndex(word(104)),
            code: Code::from_number(code.into()),
            components: Components {
                ns,
                coverage,
                stand_ins: StampSet::from_bits(word(112)),
                clipped: flags & 1 != 0,
                kernel_sent: flags & 2 != 0,
                ..Components::default()
            },
            request_bytes: word(92),
            response_bytes: word(96),
            cpu_ns: word(84),
            subtree: word(88),
            // Earlier versions said 0.
            half_width_ns: if has_wires(coverage) { word(80) } else { u32::MAX },
            slow: flags & 4 != 0,
            is_stream: flags & 8 != 0,
            stands_for: ((word(120) >> 16) as u16).saturating_add(1),
        };
        let ancestors = Some(word(120) as u16).filter(|ancestors| *ancestors != Self::NO_ANCESTORS);
        Ok(Self { row, weight, ancestors })
    }
}

/// Whether two wires of a call were told apart: of others nothing is said of clocks.
fn has_wires(coverage: Coverage) -> bool {
    coverage == Coverage::Whole
}

#[cfg(test)]
mod tests {
    //! Shows which calls are kept with what weight, that none is told twice or passed over unsaid, and that bytes give
    //! back the call or say what is wrong.
    use super::*;
    use crate::Record;
    use crate::Telemetry;
    use crate::flight::Flight;
    use crate::recorder::RING_CALLS;
    use crate::traced::CallTrace;
    use proptest::prelude::*;

    fn flight(at: u64, record: &Record, slow: bool) -> Flight {
        let (mut flight, _) = Flight::pack(Instant(at), record, &Components::default(), 0, 5);
        flight.bits |= u32::from(slow) * Flight::SLOW;
        flight
    }

    fn recorder(calls: u64) -> FlightRecorder {
        let mut recorder = FlightRecorder::new();
        for n in 0..calls {
            let code = if n % 100 == 7 { Code::Internal } else { Code::Ok };
            let record = Record {
                side: Side::Made,
                method: MethodIndex(1),
                peer: PeerIndex(1),
                code,
                request_bytes: 1,
                response_bytes: 2,
                client: Default::default(),
                server: None,
                is_stream: false,
            };
            recorder.record(&flight(n + 1, &record, n % 20 == 3));
        }
        recorder
    }

    fn drain(recorder: &FlightRecorder, mut ask: CallsAsk) -> (Vec<RecordedCall>, u64, u64) {
        let (mut rows, mut seen, mut lost) = (Vec::new(), 0, 0);
        loop {
            let answer = CallsAnswer::of(recorder, &ask, |_| false);
            assert!(answer.seen <= CallsAnswer::SCAN_MAX && answer.rows.len() <= ask.rows_max);
            (seen, lost, ask.from) = (seen + answer.seen, lost + answer.lost, Some(answer.next));
            rows.extend(answer.rows);
            if !answer.more {
                return (rows, seen, lost);
            }
        }
    }

    #[test]
    fn failed_and_slow_calls_are_kept_and_weights_add_up() {
        let recorder = recorder(40_000);
        let ask = CallsAsk {
            from: Some(0),
            one_in_log2: 4,
            keeps_slow: true,
            rows_max: 700,
            ..CallsAsk::default()
        };
        let (rows, seen, lost) = drain(&recorder, ask);
        assert_eq!((seen, lost), (40_000, 0));
        let certain = rows.iter().filter(|kept| kept.row.slow || kept.row.code != Code::Ok);
        assert_eq!(certain.clone().count(), 2_000 + 400);
        assert!(certain.clone().all(|kept| kept.weight == 1.0));
        let stood_for: f64 = rows.iter().map(|kept| f64::from(kept.weight)).sum();
        assert!((stood_for - 40_000.0).abs() < 3_000.0, "{stood_for}");
        // Who keeps less keeps some of the same.
        let (fewer, ..) = drain(&recorder, CallsAsk { one_in_log2: 6, ..ask });
        assert!(fewer.len() < rows.len());
        let kept: Vec<_> = rows.iter().map(|kept| kept.row.at).collect();
        assert!(fewer.iter().all(|one| kept.contains(&one.row.at)));
    }

    #[test]
    fn calls_of_a_trace_are_kept_together_on_every_host() {
        let traced = |salt: u64| {
            let mut recorder = recorder(1_000);
            for n in 0..4_000_u64 {
                let record = Record {
                    side: Side::Made,
                    method: MethodIndex(1),
                    peer: PeerIndex(1),
                    code: if n == 5 { Code::Internal } else { Code::Ok },
                    request_bytes: 1,
                    response_bytes: 2,
                    client: Default::default(),
                    server: None,
                    is_stream: false,
                };
                recorder.record(&flight(n + 2_000, &record, false));
                let ids = CallTrace { trace: (n / 2 + 1).into(), span: n * salt + 1, ..CallTrace::default() };
                recorder.note_trace(&record, ids);
            }
            recorder
        };
        let ask = CallsAsk { from: Some(0), traces_one_in_log2: 3, one_in_log2: 32, ..CallsAsk::default() };
        let kept = |salt: u64, log2: u32| {
            let ask = CallsAsk { rows_max: usize::MAX, traces_one_in_log2: log2, ..ask };
            let answer = CallsAnswer::of(&traced(salt), &ask, |_| false);
            assert_eq!((answer.seen, answer.traced), (5_000, 4_000));
            let of_trees = answer.traces.iter().filter(|(_, trace)| trace.weight > 0.0);
            let ids: Vec<u128> = of_trees.map(|(_, trace)| trace.ids.trace).collect();
            (ids, answer)
        };
        let (one, answer) = kept(3, 3);
        assert!((300..700).contains(&one.len()), "{} of 4000", one.len());
        assert!(one.chunks(2).all(|pair| pair[0] == pair[1]), "both calls of each");
        assert_eq!(one, kept(7, 3).0, "another host keeps the same");
        assert!(kept(3, 4).0.iter().all(|trace| one.contains(trace)));
        let failed = answer.traces.iter().find(|(_, trace)| trace.ids.span == 16).expect("it failed");
        assert_eq!(answer.rows[failed.0 as usize].weight, 1.0);
        let others = answer.traces.iter().filter(|(place, _)| *place != failed.0);
        assert!(others.clone().all(|(place, _)| answer.rows[*place as usize].weight == 8.0));
        let few = {
            let ask = CallsAsk { rows_max: 100, from: Some(1_000), ..ask };
            CallsAnswer::of(&traced(3), &ask, |_| false)
        };
        assert!(few.more && few.rows.len() <= 100 / 3 + 1, "{}", few.rows.len());
    }

    #[test]
    fn what_was_overwritten_is_counted() {
        let ring = RING_CALLS as u64;
        let recorder = recorder(ring + 1_000);
        let ask = CallsAsk { from: Some(400), rows_max: usize::MAX, ..CallsAsk::default() };
        let (rows, seen, lost) = drain(&recorder, ask);
        assert_eq!((seen, lost), (ring, 600));
        let ats: Vec<u64> = rows.iter().map(|kept| kept.row.at.0).collect();
        assert_eq!(ats, (1_001..=ring + 1_000).collect::<Vec<_>>());
        let none = CallsAnswer::of(&recorder, &CallsAsk::default(), |_| false);
        assert_eq!((none.next, none.seen, none.more), (ring + 1_000, 0, false));
        let ahead = CallsAnswer::of(&recorder, &CallsAsk { from: Some(u64::MAX), ..ask }, |_| false);
        assert_eq!((ahead.next, ahead.seen, ahead.lost), (ring + 1_000, 0, 0));
    }

    #[test]
    fn what_a_handler_says_late_is_told_once() {
        let mut telemetry = Telemetry::new();
        let (method, peer) = (telemetry.method("/shop.v1.Cart/Add"), telemetry.peer("x", true));
        let call = |telemetry: &mut Telemetry, n: u64| {
            let (side, code, client, server) = (Side::Served, Code::Cancelled, Default::default(), None);
            let (request_bytes, response_bytes) = (1, 2);
            let is_stream = false;
            let record =
                Record { side, method, peer, code, request_bytes, response_bytes, client, server, is_stream };
            telemetry.record(Instant(n + 1), &record);
        };
        let ask = |telemetry: &mut Telemetry, from: u64| {
            // Few calls an answer, so that there are several.
            let answer = telemetry.calls(&CallsAsk { rows_max: 3, ..CallsAsk::all_from(from) });
            (
                answer.next,
                answer.late.iter().map(|late| late.cpu_ns).collect::<Vec<_>>(),
                answer.methods.len(),
            )
        };
        for n in 0..8 {
            call(&mut telemetry, n);
            telemetry.note_failed_cpu((Side::Served, method, peer), Code::Cancelled, 100 + n);
        }
        assert_eq!(ask(&mut telemetry, 0), (3, vec![100, 101], 1));
        assert_eq!(ask(&mut telemetry, 3), (6, vec![102, 103, 104], 1));
        assert_eq!(ask(&mut telemetry, 6), (8, vec![105, 106], 1), "the last comes with the next call");
        call(&mut telemetry, 8);
        assert_eq!(ask(&mut telemetry, 8), (9, vec![107], 1));
        let handed_over = telemetry.calls(&CallsAsk { from: None, ..CallsAsk::default() });
        assert_eq!(handed_over.late, []);
    }

    #[test]
    fn calls_of_daemons_own_services_are_passed_over() {
        let mut telemetry = Telemetry::new();
        let peer = telemetry.peer("x", true);
        for n in 0..100_u64 {
            let path = if n % 4 == 0 { "/shop.v1.Cart/Add" } else { "/trunkline.admin.v1.Admin/Calls" };
            let method = telemetry.method(path);
            let (side, code, client, server) = (Side::Made, Code::Ok, Default::default(), None);
            let (request_bytes, response_bytes) = (1, 2);
            let is_stream = false;
            let record =
                Record { side, method, peer, code, request_bytes, response_bytes, client, server, is_stream };
            telemetry.record(Instant(n + 1), &record);
        }
        let everything = telemetry.calls(&CallsAsk::all_from(0));
        assert_eq!((everything.seen, everything.rows.len()), (100, 100), "a daemon hands all of them over");
        let answer = telemetry.calls(&CallsAsk { leaves_own_out: true, ..CallsAsk::all_from(0) });
        assert_eq!((answer.seen, answer.lost, answer.rows.len(), answer.next), (25, 0, 25, 100));
        assert_eq!(
            answer.methods.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(),
            ["/shop.v1.Cart/Add"]
        );
    }

    #[test]
    fn another_shard_goes_on_where_one_stopped() {
        let mut old = Telemetry::new();
        let call = |telemetry: &mut Telemetry, n: u64| {
            let method = telemetry.method(&format!("/a.B/C{}", n % 3));
            let peer = telemetry.peer(if n.is_multiple_of(2) { "x" } else { "y" }, true);
            let server = None;
            let (request_bytes, response_bytes) = (n, 2 * n);
            let (side, code, client) = (Side::Made, Code::Ok, Default::default());
            let is_stream = false;
            let record =
                Record { side, method, peer, code, request_bytes, response_bytes, client, server, is_stream };
            match n % 5 {
                0 => telemetry.record_traced(
                    Instant(n),
                    &record,
                    CallTrace { trace: n.into(), span: 1, ..CallTrace::default() },
                ),
                _ => telemetry.record(Instant(n), &record),
            }
        };
        // More than a ring holds, so that numbers do not begin with the first.
        let calls = RING_CALLS as u64 + 500;
        (1..=calls).for_each(|n| call(&mut old, n));
        let mut new = Telemetry::new();
        new.method("/another/one");
        let parts = |telemetry: &mut Telemetry, mut from: u64, take: &mut dyn FnMut(CallsAnswer)| loop {
            let part = telemetry.calls(&CallsAsk::all_from(from));
            from = part.next;
            let more = part.more;
            take(part);
            if !more {
                return from;
            }
        };
        let next = parts(&mut old, 0, &mut |part| new.take_up_calls(part));
        (calls + 1..=calls + 50).for_each(|n| call(&mut old, n));
        parts(&mut old, next, &mut |part| new.take_up_calls(part));
        (calls + 51..=calls + 60).for_each(|n| {
            call(&mut old, n);
            call(&mut new, n);
        });
        let all = |telemetry: &mut Telemetry| {
            let mut all = Vec::new();
            parts(telemetry, 0, &mut |part| {
                let name = |names: &[(u32, String)], number: u32| {
                    names.iter().find(|(known, _)| *known == number).unwrap().1.clone()
                };
                let traces: Vec<_> =
                    part.traces.iter().map(|(place, trace)| (*place, trace.ids.trace)).collect();
                all.push((part.next, part.lost, Vec::new(), traces));
                let rows = part.rows.iter().map(|call| {
                    let named = (name(&part.methods, call.row.method.0), name(&part.peers, call.row.peer.0));
                    (call.row.at, call.row.request_bytes, named)
                });
                all.last_mut().unwrap().2.extend(rows);
            });
            all
        };
        let (old, new) = (all(&mut old), all(&mut new));
        assert_eq!(new.last().unwrap().0, calls + 60);
        assert!(old == new, "the same calls have the same numbers, names and traces");
    }

    proptest! {
        #[test]
        fn bytes_are_a_call_or_named(bytes in prop::collection::vec(any::<u8>(), RecordedCall::BYTES..140)) {
            if let Ok(call) = RecordedCall::decode(&bytes) {
                let mut again = Vec::new();
                call.encode(&mut again);
                prop_assert_eq!(again.len(), RecordedCall::BYTES);
                prop_assert_eq!(RecordedCall::decode(&again), Ok(call));
            }
        }
    }

    #[test]
    fn a_call_of_months_is_told_as_one_of_thirty_days() {
        let (mut rows, ..) =
            drain(&recorder(1), CallsAsk { from: Some(0), rows_max: 1, ..CallsAsk::default() });
        for ns in [[7; 9], [u64::MAX; 9], [0, 0, 0, 0, RecordedCall::TOTAL_NS_MAX, 0, 0, 0, 1]] {
            rows[0].row.components.ns = ns;
            let mut bytes = Vec::new();
            rows[0].encode(&mut bytes);
            let told = RecordedCall::decode(&bytes).expect("it is a call").row.components;
            let whole: u128 = ns.iter().map(|ns| u128::from(*ns)).sum();
            let most = u128::from(RecordedCall::TOTAL_NS_MAX);
            let sum = u128::from(told.total_ns());
            assert!(sum == whole.min(most) || (whole > most && most - sum < 9), "{told:?}");
        }
    }

    #[test]
    fn of_a_call_without_two_wires_nothing_is_said_of_clocks() {
        let (mut rows, ..) =
            drain(&recorder(1), CallsAsk { from: Some(0), rows_max: 1, ..CallsAsk::default() });
        for coverage in Coverage::ALL {
            rows[0].row.components.coverage = coverage;
            let mut bytes = Vec::new();
            rows[0].encode(&mut bytes);
            let mut earlier = bytes.clone();
            earlier[80..84].copy_from_slice(&5_u32.to_le_bytes());
            let expected = if coverage == Coverage::Whole { 5 } else { u32::MAX };
            for bytes in [bytes, earlier] {
                let row = RecordedCall::decode(&bytes).unwrap().row;
                assert_eq!((row.components.coverage, row.half_width_ns), (coverage, expected));
            }
        }
    }

    #[test]
    fn what_no_call_can_be_is_named() {
        let (rows, ..) = drain(&recorder(1), CallsAsk { from: Some(0), rows_max: 1, ..CallsAsk::default() });
        let mut sound = Vec::new();
        rows[0].encode(&mut sound);
        assert_eq!(RecordedCall::decode(&sound), Ok(rows[0]));
        for (at, byte, fault) in [
            (15, 0xff, RowFault::Stamps),
            (111, 0xff, RowFault::Weight),
            (116, 17, RowFault::Code),
            (117, 3, RowFault::Side),
            (118, 5, RowFault::Coverage),
        ] {
            let mut wrong = sound.clone();
            wrong[at] = byte;
            assert_eq!(RecordedCall::decode(&wrong), Err(fault), "byte {at}");
        }
    }
}
