//! Samples of calls with their messages: which calls, how much of them is held until somebody takes it, and what did
//! not fit (docs/replay.md).
//!
//! Off unless a rule names a service. A rule has a rate, a bound on the bytes of a message and the fields that are
//! emptied; they are empty before anything is held here. What is held is bounded by calls and by bytes; what does not
//! fit is counted and left out, and no call waits for any of this.

use crate::CallKey;
use crate::method_types::BoundSchema;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use trunkline_call::{Code, Instant};
use trunkline_message::Redaction;

/// Of which calls samples are kept.
#[derive(Clone, Debug)]
pub struct SampleRule {
    /// Full name of the service.
    pub service: String,
    /// Names of the methods; none for all of them.
    pub methods: Vec<String>,
    /// Calls a second, at most. Every shard of a daemon has the whole of it: whoever takes samples holds all to it
    /// ([`SampleAllowance`]).
    pub per_second: f64,
    /// A call with a longer request is not kept; of one with a longer response that is left out.
    pub message_bytes_max: u32,
    /// Fields that are emptied.
    pub redaction: Arc<Redaction>,
}

/// A call with its messages, in protobuf and without what was to be emptied.
#[derive(Clone, Debug)]
pub struct TakenSample {
    /// `/package.Service/Method`
    pub path: Arc<str>,
    /// It came from another host.
    pub served: bool,
    /// When its request went on its way here.
    pub began: Instant,
    /// From then to its answer.
    pub duration_ns: u64,
    /// The time it had left; `None` for no end.
    pub timeout_ns: Option<u64>,
    /// How it ended.
    pub code: Code,
    /// Where its types are declared, if anybody here knows them.
    pub schema: Option<Arc<BoundSchema>>,
    /// What was emptied.
    pub redaction: Arc<Redaction>,
    /// Something was.
    pub emptied: bool,
    /// The request.
    pub request: Vec<u8>,
    /// The response; `None` if there was none, or it could not be kept.
    pub response: Option<Vec<u8>>,
    /// Its rule's.
    pub message_bytes_max: u32,
    /// Which of the rules, in their order.
    pub rule: usize,
}

/// What became of the calls that rules chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Kept whole.
    pub kept: u64,
    /// A message was longer than the rule takes.
    pub too_large: u64,
    /// A message could not be read: compressed on its way through, or of a type nobody here knows although fields are
    /// to be emptied.
    pub unreadable: u64,
    /// There was no room: samples are taken too slowly.
    pub no_room: u64,
    /// It ended without an answer, or turned out to be a stream.
    pub unanswered: u64,
}

/// Why a message is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsampled {
    TooLarge,
    Unreadable,
}

/// Calls that are chosen and not over, and calls that are over and were not taken yet: so many of each. A disk's pause
/// of some seconds is bridged at tens of calls a second.
const CALLS_MAX: usize = 256;
/// Bytes of messages of all of them.
const BYTES_MAX: usize = 4 << 20;

/// One shard's samples.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    rules: Vec<(SampleRule, SampleAllowance)>,
    /// By the call's key.
    pending: BTreeMap<u64, TakenSample>,
    done: VecDeque<TakenSample>,
    /// Bytes of messages in both.
    bytes: usize,
    pub counts: SampleCounts,
}

/// What is left of a rule's rate.
#[derive(Clone, Copy, Debug)]
pub struct SampleAllowance {
    calls: f64,
    at: Instant,
}

impl Samples {
    pub fn new(rules: Vec<SampleRule>) -> Self {
        let rules = rules.into_iter().map(|rule| (rule, SampleAllowance::default()));
        Self { rules: rules.collect(), ..Self::default() }
    }

    /// Whether any call may be kept.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether an answer may complete a sample.
    #[inline]
    pub fn awaits_answers(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The rule by which this call is kept and which one that is, if it is to be and the rule's rate has room for it.
    pub fn choose(&mut self, now: Instant, path: &str) -> Option<(usize, SampleRule)> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let covers = |rule: &SampleRule| {
            rule.service == service
                && (rule.methods.is_empty() || rule.methods.iter().any(|one| one == method))
        };
        let (index, (rule, allowance)) =
            self.rules.iter_mut().enumerate().find(|(_, (rule, _))| covers(rule))?;
        allowance.draw(now, rule.per_second, rule.per_second.max(1.0)).then(|| (index, rule.clone()))
    }

    /// Holds what there is of a call until its answer comes.
    pub fn begin(&mut self, key: CallKey, sample: TakenSample) {
        let bytes = sample.request.len();
        if self.pending.len() >= CALLS_MAX || self.bytes + bytes > BYTES_MAX {
            self.counts.no_room += 1;
            return;
        }
        self.bytes += bytes;
        if let Some(before) = self.pending.insert(key.to_bits(), sample) {
            self.bytes -= before.bytes();
        }
    }

    /// The sample of a call, if it is one of those.
    pub fn of(&mut self, key: CallKey) -> Option<&mut TakenSample> {
        self.pending.get_mut(&key.to_bits())
    }

    /// The response of a call: kept, if there is room.
    pub fn respond(&mut self, key: CallKey, response: Vec<u8>, emptied: bool) {
        let Self { pending, bytes, .. } = self;
        let Some(sample) = pending.get_mut(&key.to_bits()) else { return };
        let len = response.len();
        if *bytes + len > BYTES_MAX {
            pending.remove(&key.to_bits()).into_iter().for_each(|sample| *bytes -= sample.bytes());
            self.counts.no_room += 1;
            return;
        }
        *bytes += len;
        sample.emptied |= emptied;
        *bytes -= sample.response.replace(response).map_or(0, |before| before.len());
    }

    /// The answer of a call has come: the sample is whole.
    pub fn finish(&mut self, now: Instant, key: CallKey, code: Code) {
        let Some(mut sample) = self.pending.remove(&key.to_bits()) else { return };
        if self.done.len() >= CALLS_MAX {
            self.bytes -= sample.bytes();
            self.counts.no_room += 1;
            return;
        }
        (sample.code, sample.duration_ns) = (code, now.since_ns(sample.began));
        self.counts.kept += 1;
        self.done.push_back(sample);
    }

    /// There is no more of this call.
    #[inline]
    pub fn forget(&mut self, key: CallKey) {
        if self.pending.is_empty() {
            return;
        }
        if let Some(sample) = self.pending.remove(&key.to_bits()) {
            self.bytes -= sample.bytes();
            self.counts.unanswered += 1;
        }
    }

    /// A call is known by another key from now on.
    pub fn rename(&mut self, key: CallKey, to: CallKey) {
        if let Some(sample) = self.pending.remove(&key.to_bits()) {
            self.pending.insert(to.to_bits(), sample);
        }
    }

    /// The oldest sample that is whole.
    pub fn take(&mut self) -> Option<TakenSample> {
        let sample = self.done.pop_front()?;
        self.bytes -= sample.bytes();
        Some(sample)
    }

    pub fn count(&mut self, why: Unsampled) {
        match why {
            Unsampled::TooLarge => self.counts.too_large += 1,
            Unsampled::Unreadable => self.counts.unreadable += 1,
        }
    }
}

impl TakenSample {
    fn bytes(&self) -> usize {
        self.request.len() + self.response.as_ref().map_or(0, Vec::len)
    }
}

impl Default for SampleAllowance {
    /// One call.
    fn default() -> Self {
        Self { calls: 1.0, at: Instant::default() }
    }
}

impl SampleAllowance {
    /// Whether there is one more call, of so many a second and `most` at once. Times may come in any order.
    pub fn draw(&mut self, at: Instant, per_second: f64, most: f64) -> bool {
        let since = at.since_ns(self.at) as f64 / 1e9;
        self.at = self.at.max(at);
        self.calls = (self.calls + since * per_second).min(most);
        let has_one = self.calls >= 1.0;
        self.calls -= f64::from(u8::from(has_one));
        has_one
    }
}

#[cfg(test)]
mod tests {
    //! Shows which calls are chosen and how often, and that what is held is bounded and is let go.
    use super::*;

    fn rule(service: &str, methods: &[&str], per_second: f64) -> SampleRule {
        SampleRule {
            service: service.into(),
            methods: methods.iter().map(|name| (*name).to_owned()).collect(),
            per_second,
            message_bytes_max: 1000,
            redaction: Arc::default(),
        }
    }

    fn sample(bytes: usize) -> TakenSample {
        TakenSample {
            path: "/a.B/C".into(),
            served: false,
            began: Instant(5),
            duration_ns: 0,
            timeout_ns: None,
            code: Code::Unknown,
            schema: None,
            redaction: Arc::default(),
            emptied: false,
            request: vec![0; bytes],
            response: None,
            message_bytes_max: 1000,
            rule: 0,
        }
    }

    #[test]
    fn calls_are_chosen_by_name_and_rate() {
        let mut samples = Samples::new(vec![rule("a.B", &["C", "D"], 2.0), rule("a.E", &[], 0.5)]);
        let second = 1_000_000_000;
        let mut chosen = BTreeMap::new();
        for ms in 0..10_000 {
            for path in ["/a.B/C", "/a.B/X", "/a.E/any", "/a.F/C", "a.B/C"] {
                let is_chosen = samples.choose(Instant(50 * second + ms * 1_000_000), path).is_some();
                *chosen.entry(path).or_insert(0) += u32::from(is_chosen);
            }
        }
        assert!((20..=22).contains(&chosen["/a.B/C"]), "{chosen:?}");
        assert!((5..=6).contains(&chosen["/a.E/any"]), "{chosen:?}");
        assert_eq!([chosen["/a.B/X"], chosen["/a.F/C"], chosen["a.B/C"]], [0; 3]);
    }

    #[test]
    fn what_is_held_is_bounded_and_let_go() {
        let key = |n: u32| CallKey::from_bits(u64::from(n));
        let mut samples = Samples::new(vec![rule("a.B", &[], 1.0)]);
        (0..CALLS_MAX as u32 + 7).for_each(|n| samples.begin(key(n), sample(10)));
        assert_eq!((samples.pending.len(), samples.counts.no_room), (CALLS_MAX, 7));
        samples.respond(key(1), vec![0; 20], false);
        samples.respond(key(1), vec![0; 5], true);
        assert_eq!(samples.bytes, 10 * CALLS_MAX + 5);
        samples.respond(key(2), vec![0; BYTES_MAX], false);
        assert_eq!((samples.bytes, samples.counts.no_room), (10 * (CALLS_MAX - 1) + 5, 8));
        samples.rename(key(1), key(100_000));
        samples.finish(Instant(25), key(1), Code::Ok);
        assert!(samples.take().is_none());
        samples.finish(Instant(25), key(100_000), Code::Ok);
        let taken = samples.take().unwrap();
        assert_eq!((taken.code, taken.duration_ns, taken.response), (Code::Ok, 20, Some(vec![0; 5])));
        assert!(taken.emptied);
        (0..CALLS_MAX as u32).for_each(|n| samples.forget(key(n)));
        assert_eq!((samples.bytes, samples.awaits_answers()), (0, false));
        assert_eq!((samples.counts.kept, samples.counts.unanswered), (1, CALLS_MAX as u64 - 2));
        // Nobody takes them.
        for n in 0..2 * CALLS_MAX as u32 {
            samples.begin(key(n), sample(1));
            samples.finish(Instant(25), key(n), Code::Ok);
        }
        assert_eq!((samples.done.len(), samples.bytes), (CALLS_MAX, CALLS_MAX));
    }
}
