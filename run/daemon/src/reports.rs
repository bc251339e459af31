//! What a shard tells about itself when it is asked: values, copied a part in each turn.
//!
//! Reports are asked for by every user who may look, as often as they like, and what is known of a busy shard is tens
//! of megabytes. So a turn copies as much as takes a tenth of a millisecond, and whoever asked puts the parts together
//! on a thread of its own. One report is made at a time, and the next begins when nine times as long has passed as the
//! last one took of the shard: reports have a tenth of its time however many ask.
//!
//! ```text
//!   rings: what applications published without ringing ▸ state: rows of sessions, services, … ▸ figures ▸ told
//! ```

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use trunkline_call::Instant;
use trunkline_engine::{SessionKey, StateParts};
use trunkline_telemetry::{Ask, CallsAnswer, CallsAsk, SnapshotParts, Telemetry};

/// A report has this part of a shard's time, at most.
const TIME_PART: u64 = 10;
/// The longest that a report waits for the one before.
const REST_NS_MAX: u64 = 1_000_000_000;

/// The reports of a shard. Whoever asks waits for the answer, so there are no more than threads that ask.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: VecDeque<AskedReport>,
    under_way: Option<UnderWay>,
    not_before: Instant,
}

/// What somebody asks for, and where to answer.
#[derive(Debug)]
pub(crate) enum AskedReport {
    /// The state of things and what was measured.
    Whole(Ask, Sender<Reported>),
    /// Calls one by one.
    Calls(CallsAsk, Sender<CallsAnswer>),
}

/// What a shard was found to be, to be put together elsewhere.
#[derive(Debug)]
pub(crate) struct Reported {
    pub state: StateParts,
    pub measured: SnapshotParts,
}

/// A whole report.
#[derive(Debug)]
struct UnderWay {
    ask: Ask,
    reply: Sender<Reported>,
    spent_ns: u64,
    stage: ReportStage,
}

/// How far it is.
#[derive(Debug)]
pub(crate) enum ReportStage {
    /// Sessions whose rings are to be looked at, and how often the last of them was.
    Rings(Vec<SessionKey>, usize),
    /// Rows are copied.
    State(Box<StateParts>),
    /// Figures are copied.
    Figures(Box<Reported>),
}

impl Reports {
    /// Somebody asks.
    pub fn ask(&mut self, asked: AskedReport) {
        self.waiting.push_back(asked);
    }

    /// The next one to answer, if none is being answered.
    pub fn take_asked(&mut self) -> Option<AskedReport> {
        if self.is_under_way() { None } else { self.waiting.pop_front() }
    }

    /// A whole report begins, with these sessions.
    pub fn begin(&mut self, ask: Ask, reply: Sender<Reported>, sessions: Vec<SessionKey>) {
        self.under_way = Some(UnderWay { ask, reply, spent_ns: 0, stage: ReportStage::Rings(sessions, 0) });
    }

    /// Goes on with the report under way, in a visit that began then. `part` does a part of a stage that is not the
    /// last, or says what comes next.
    pub fn go_on(
        &mut self,
        began: Instant,
        now: fn() -> Instant,
        part: impl FnOnce(&Ask, ReportStage) -> CopiedPart,
    ) {
        let Some(UnderWay { ask, reply, mut spent_ns, stage }) = self.under_way.take() else { return };
        let copied = part(&ask, stage);
        let ended = now();
        spent_ns += ended.since_ns(began);
        match copied {
            CopiedPart::More(stage) => self.under_way = Some(UnderWay { ask, reply, spent_ns, stage }),
            CopiedPart::All(report) => {
                self.rest(ended, spent_ns);
                // Who has asked may have gone.
                let _ = reply.send(*report);
            }
        }
    }

    /// A report has taken so long of the shard.
    pub fn rest(&mut self, ended: Instant, spent_ns: u64) {
        self.not_before = ended.plus_ns((spent_ns * (TIME_PART - 1)).min(REST_NS_MAX));
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

/// What a visit has come to.
#[derive(Debug)]
pub(crate) enum CopiedPart {
    /// There is more, from here.
    More(ReportStage),
    /// The report is whole.
    All(Box<Reported>),
}

/// Copies a part of the figures.
pub(crate) fn copy_figures(telemetry: &Telemetry, mut report: Box<Reported>) -> CopiedPart {
    if telemetry.copy_part(&mut report.measured) {
        CopiedPart::More(ReportStage::Figures(report))
    } else {
        CopiedPart::All(report)
    }
}
