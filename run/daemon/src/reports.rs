//! What a shard tells about itself when it is asked: values, copied a part in each turn.
//!
//! Reports are asked for by every user who may look, as often as they like, and what is known of a busy shard is tens
//! of megabytes. So a turn copies as much as takes a tenth of a millisecond, and whoever asked puts the parts together
//! on a thread of its own. One report is made at a time, and the next begins when nine times as long has passed as the
//! last one took of the shard: reports have a tenth of its time however many ask.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use trunkline_call::Instant;
use trunkline_engine::Snapshot as State;
use trunkline_telemetry::{Ask, SnapshotParts, Telemetry};

/// A report has this part of a shard's time, at most.
const TIME_PART: u64 = 10;
/// The longest that a report waits for the one before.
const REST_NS_MAX: u64 = 1_000_000_000;

/// The reports of a shard. Whoever asks waits for the answer, so there are no more than threads that ask.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: VecDeque<(Ask, Sender<Reported>)>,
    under_way: Option<UnderWay>,
    not_before: Instant,
}

/// What a shard was found to be, to be put together elsewhere.
#[derive(Debug)]
pub(crate) struct Reported {
    pub state: State,
    pub measured: SnapshotParts,
}

#[derive(Debug)]
struct UnderWay {
    report: Reported,
    reply: Sender<Reported>,
    spent_ns: u64,
}

impl Reports {
    /// Somebody asks.
    pub fn ask(&mut self, ask: Ask, reply: Sender<Reported>) {
        self.waiting.push_back((ask, reply));
    }

    /// The next one to answer, if none is being answered.
    pub fn take_asked(&mut self) -> Option<(Ask, Sender<Reported>)> {
        if self.is_under_way() { None } else { self.waiting.pop_front() }
    }

    /// A report begins, and has taken this time so far.
    pub fn begin(&mut self, report: Reported, reply: Sender<Reported>, spent_ns: u64) {
        self.under_way = Some(UnderWay { report, reply, spent_ns });
    }

    /// Copies another part of the report under way, in a visit that began then.
    pub fn go_on(&mut self, telemetry: &Telemetry, began: Instant, now: fn() -> Instant) {
        let Some(mut under_way) = self.under_way.take() else { return };
        let is_whole = !telemetry.copy_part(&mut under_way.report.measured);
        let ended = now();
        under_way.spent_ns += ended.since_ns(began);
        if !is_whole {
            self.under_way = Some(under_way);
            return;
        }
        let rest_ns = (under_way.spent_ns * (TIME_PART - 1)).min(REST_NS_MAX);
        self.not_before = ended.plus_ns(rest_ns);
        // Who has asked may have gone.
        let _ = under_way.reply.send(under_way.report);
    }

    /// The next one need not wait for the time of the last to pass.
    pub fn hurry(&mut self) {
        self.not_before = Instant::default();
    }

    /// When to go on, if somebody asks.
    pub fn next_due(&self) -> Option<Instant> {
        match self.under_way {
            Some(_) => Some(Instant::default()),
            None => (!self.waiting.is_empty()).then_some(self.not_before),
        }
    }

    /// Whether nobody asks.
    pub fn are_done(&self) -> bool {
        self.waiting.is_empty() && !self.is_under_way()
    }

    /// Whether there is more to copy at once.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }
}
