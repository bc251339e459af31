//! What the chain says about a call: that it may go on and with what, that it waits, that it is refused.

use crate::definition::EncodingName;
use crate::rule::Class;
use crate::state::Slot;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{Code, Instant};

/// What holds for a call that may go on.
#[derive(Debug, Default)]
pub struct Admission {
    /// Time to hold it.
    pub delay_ns: u64,
    /// How it ends then, instead of going on.
    pub ends: Option<Rejection>,
    /// Upper bound for its deadline, from its entry into the daemon.
    pub timeout_ns: Option<u64>,
    /// Whether its end is to be logged.
    pub log: bool,
    /// What it holds until it ends.
    pub permits: Permits,
    /// How its request is compressed, if somebody says so.
    pub encoding: Option<EncodingName>,
    /// Its place among the calls of its host.
    pub class: Option<Class>,
    /// What it has to wait for first.
    pub ticket: Option<Ticket>,
    /// Pairs it gets into its metadata.
    pub metadata: Vec<(String, Vec<u8>)>,
    /// Where copies of it go, if there is room for them ([`Policies::begin_mirror`](crate::Policies::begin_mirror)).
    pub mirrors: Vec<Mirror>,
}

impl Admission {
    /// Whether the policies have let the call go on and said nothing else.
    pub fn says_nothing(&self) -> bool {
        let Self { delay_ns, ends, timeout_ns, log, permits, encoding, class, ticket, metadata, mirrors } =
            self;
        let binds = *delay_ns > 0 || ends.is_some() || timeout_ns.is_some() || *log || !permits.is_empty();
        let changes = encoding.is_some() || class.is_some() || ticket.is_some();
        !binds && !changes && metadata.is_empty() && mirrors.is_empty()
    }
}

/// A place in a queue; to be taken by [`Policies::enqueue`](crate::Policies::enqueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ticket {
    pub(crate) slot: Slot,
    pub(crate) urgent: bool,
}

/// What becomes of a call that waited, by the token it waited under.
#[derive(Debug)]
pub enum Verdict {
    /// It goes on.
    Served(u64, Permits),
    /// It has waited too long.
    Shed(u64, Rejection),
    /// It waits on, until then at most: its policy has changed.
    Waits(u64, Instant),
}

/// What a call holds of policies until it ends: places of concurrency limits, and who wants to hear of the end. To be
/// given back by [`Policies::finish`](crate::Policies::finish).
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Permits {
    pub(crate) places: Vec<Slot>,
    /// Not of the next process: its modules have not heard how the call began.
    #[serde(skip)]
    pub(crate) watched: Vec<Watched>,
}

/// A module that wants to hear how a call ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub slot: Slot,
    pub token: u64,
    pub since: Instant,
}

/// Why a call may not go on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rejection {
    /// The policy's name.
    pub policy: String,
    /// The code the caller gets.
    pub code: Code,
    /// Words for the caller.
    pub why: String,
    /// Whether its end is to be logged.
    pub log: bool,
}

/// A copy of a call that a policy wants to be sent elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub(crate) slot: Slot,
    pub(crate) calls_max: u32,
    /// An endpoint, or a name.
    pub target: Arc<str>,
    /// The longest it may take.
    pub timeout_ns: u64,
}

/// What an exchange means for what was there before, until [`Policies::serve`](crate::Policies::serve) is asked next
/// and told the time.
#[derive(Debug, Default)]
pub(crate) struct Exchanged {
    /// Of policies whose definition has changed.
    pub slots: Vec<Slot>,
    /// Of calls that waited: as many as queues held at most.
    pub verdicts: VecDeque<Verdict>,
}

impl Permits {
    /// One place.
    pub(crate) fn of(slot: Slot) -> Self {
        Self { places: vec![slot], watched: Vec::new() }
    }

    /// Whether there is nothing to give back.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.watched.is_empty()
    }

    /// Takes others to these.
    pub fn join(&mut self, other: Self) {
        self.places.extend(other.places);
        self.watched.extend(other.watched);
    }
}
