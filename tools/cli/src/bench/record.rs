//! What became of the calls.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline_call::Code;

/// Three significant digits: as good as any clock and any eye, and 40 KiB per histogram.
const DIGITS: u8 = 3;
/// Different failures whose words are kept.
const WORDS_MAX: usize = 50;
/// Most seconds of which a row is kept; later calls count with the last. A day.
const SECONDS_MAX: usize = 86_400;

/// One call that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// When it was meant to be sent, from the start of the run.
    pub due: Duration,
    /// When it was sent.
    pub sent: Duration,
    /// When it had ended.
    pub over: Duration,
    /// How.
    pub code: Code,
    /// Why, if it failed.
    pub message: String,
    /// Responses it brought.
    pub responses: u64,
    /// Bytes of its requests and responses, encoded.
    pub bytes: [u64; 2],
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Record {
    /// From the moment a call was due to its end: what a user waits.
    pub latency: Histogram<u64>,
    /// From the moment it was sent: what the network and the server take.
    pub service: Histogram<u64>,
    /// From due to sent: how far the bench itself, or a limit, was behind.
    pub behind: Histogram<u64>,
    /// Calls by status.
    pub codes: BTreeMap<Code, u64>,
    /// Calls that were due and never sent, in no other figure.
    pub unsent: u64,
    /// Failures by status and words, the first [`WORDS_MAX`] that differ.
    pub failures: BTreeMap<(Code, String), u64>,
    /// By the second in which they were due.
    pub seconds: Vec<Part>,
    /// By the step they were due in, if there are several.
    pub steps: Vec<Part>,
    /// Responses, for streams.
    pub responses: u64,
    /// Bytes sent and received in messages.
    pub bytes: [u64; 2],
    /// End of the last call.
    pub last: Duration,
}

/// Some of the calls.
#[derive(Clone, Debug)]
pub struct Part {
    /// Calls that ended well.
    pub good: u64,
    /// Others.
    pub bad: u64,
    /// Their latency.
    pub latency: Histogram<u64>,
}

impl Record {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            behind: histogram(),
            codes: BTreeMap::new(),
            unsent: 0,
            failures: BTreeMap::new(),
            seconds: Vec::new(),
            steps: Vec::new(),
            responses: 0,
            bytes: [0; 2],
            last: Duration::ZERO,
        }
    }

    /// Adds a call, and to a step if there are several. Failures count in the latencies, too: a user waits for those as
    /// well.
    pub fn add(&mut self, call: Ended, step: Option<usize>) {
        let latency_ns = ns(call.over.saturating_sub(call.due));
        count(&mut self.latency, latency_ns);
        count(&mut self.service, ns(call.over.saturating_sub(call.sent)));
        count(&mut self.behind, ns(call.sent.saturating_sub(call.due)));
        *self.codes.entry(call.code).or_default() += 1;
        self.responses += call.responses;
        self.bytes = [self.bytes[0] + call.bytes[0], self.bytes[1] + call.bytes[1]];
        self.last = self.last.max(call.over);
        let second = usize::try_from(call.due.as_secs()).unwrap_or(usize::MAX).min(SECONDS_MAX - 1);
        part(&mut self.seconds, second).add(call.code, latency_ns);
        if let Some(step) = step {
            part(&mut self.steps, step).add(call.code, latency_ns);
        }
        if call.code != Code::Ok {
            self.fail(call.code, call.message);
        }
    }

    /// Calls that ended.
    pub fn calls(&self) -> u64 {
        self.latency.len()
    }

    /// Calls that ended well.
    pub fn good(&self) -> u64 {
        self.codes.get(&Code::Ok).copied().unwrap_or(0)
    }

    /// Whether every call that was due was sent and ended well.
    pub fn is_good(&self) -> bool {
        self.good() == self.calls() && self.unsent == 0
    }

    /// Calls per second, from the first that was due to the end of the last.
    pub fn rate(&self) -> f64 {
        let seconds = self.last.as_secs_f64();
        if seconds > 0.0 { self.calls() as f64 / seconds } else { 0.0 }
    }

    fn fail(&mut self, code: Code, message: String) {
        let key = (code, message);
        if let Some(known) = self.failures.get_mut(&key) {
            *known += 1;
        } else if self.failures.len() < WORDS_MAX {
            self.failures.insert(key, 1);
        } else {
            *self.failures.entry((code, "(other words)".into())).or_default() += 1;
        }
    }
}

impl Part {
    fn add(&mut self, code: Code, latency_ns: u64) {
        count(&mut self.latency, latency_ns);
        match code {
            Code::Ok => self.good += 1,
            _ => self.bad += 1,
        }
    }
}

/// The part of this number, and empty ones before it.
fn part(parts: &mut Vec<Part>, at: usize) -> &mut Part {
    while parts.len() <= at {
        // Two digits, and growing: a quiet part costs little.
        let latency = Histogram::new(2).unwrap_or_else(|_| histogram());
        parts.push(Part { good: 0, bad: 0, latency });
    }
    &mut parts[at]
}

fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("three digits are allowed")
}

fn count(histogram: &mut Histogram<u64>, ns: u64) {
    // Grows to what comes; fails only where it may not grow.
    let _ = histogram.record(ns);
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    //! Shows what counts from when, and that a stall shows in the latency though nothing was sent meanwhile.
    use super::*;

    fn ended(due_ms: u64, sent_ms: u64, over_ms: u64) -> Ended {
        let at = Duration::from_millis;
        let (code, message) = (Code::Ok, String::new());
        Ended {
            due: at(due_ms),
            sent: at(sent_ms),
            over: at(over_ms),
            code,
            message,
            responses: 1,
            bytes: [3, 5],
        }
    }

    #[test]
    fn latency_counts_from_when_a_call_was_due() {
        let mut record = Record::new();
        // A call every 10 ms; the server stalls for a second, and the calls of that second are sent behind it.
        record.add(ended(0, 0, 1000), None);
        for call in 1..100 {
            record.add(ended(call * 10, 1000, 1001), Some(call as usize / 50));
        }
        let ms = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) / 1_000_000;
        assert_eq!(ms(&record.service, 0.5), 1, "what a closed loop would show");
        assert!(
            (490..=512).contains(&ms(&record.latency, 0.5)),
            "what users see: {}",
            ms(&record.latency, 0.5)
        );
        assert!((490..=512).contains(&ms(&record.behind, 0.5)));
        assert_eq!((record.calls(), record.good(), record.bytes), (100, 100, [300, 500]));
        assert_eq!((record.seconds.len(), record.steps.len()), (1, 2));
        assert_eq!((record.steps[0].good, record.steps[1].good), (49, 50));
        assert!((99.0..100.0).contains(&record.rate()));
    }

    #[test]
    fn failures_are_counted_by_their_words() {
        let mut record = Record::new();
        for call in 0..200 {
            let failed =
                Ended { code: Code::NotFound, message: format!("no {}", call % 100), ..ended(call, 0, 1) };
            record.add(failed, None);
        }
        assert_eq!(record.codes[&Code::NotFound], 200);
        assert_eq!(record.failures.len(), WORDS_MAX + 1);
        assert_eq!(record.failures.values().sum::<u64>(), 200);
        assert_eq!(record.good(), 0);
    }
}
