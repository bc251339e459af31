//! What the chain has to do with one call, from its admission to its end.

use crate::target::Target;
use std::sync::Arc;
use trunkline_call::{Instant, TimerKey, WorkerChoice};
use trunkline_policy::{Class, Permits, Plan, Rejection, Ticket};

/// The policies of one call, and what they have said. Calls no policy applies to have none.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct CallPolicies {
    /// What applies on the side of the application that calls, and of the one that serves.
    #[serde(skip)]
    pub(super) plans: [Option<Arc<Plan>>; 2],
    /// Kept for messages to come, if policies look at those.
    #[serde(with = "trunkline_call::octets")]
    pub(super) metadata: Box<[u8]>,
    pub permits: Permits,
    pub(super) log: bool,
    /// Its place among the calls of this host.
    pub class: Option<Class>,
    /// The opening waits until then.
    pub held_until: Option<Instant>,
    /// How the call ends when that time is over, instead of going on.
    #[serde(default)]
    pub ends: Option<Box<Rejection>>,
    /// The opening waits for other calls to end.
    pub queued: Option<Enqueued>,
    /// Where the call begins once its request is whole.
    #[serde(default)]
    pub begins_at: Option<Target>,
}

/// Boxes of calls that are over, for calls to come: a call with policies takes no memory either.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "it is the boxes that are used again")]
pub(super) struct SparePolicies(Vec<Box<CallPolicies>>);

/// A call's place in the queue of a policy that lets only so many calls be under way.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Enqueued {
    pub ticket: Ticket,
    /// Until when it waits at most.
    pub timer: TimerKey,
}

impl CallPolicies {
    /// Of a call that holds these and passes no policy.
    pub fn holding(permits: Permits) -> Self {
        Self { permits, ..Self::default() }
    }

    /// Of a call that is refused, and logged as others are.
    pub fn refused(log: bool) -> Self {
        Self { log, ..Self::default() }
    }

    /// Whether the call's end is to be logged.
    pub fn is_logged(&self) -> bool {
        self.log
    }

    /// Forgets all but its plans. What it held has been given back.
    #[inline]
    fn clear(&mut self) {
        let Self { plans: _, metadata, permits, log, class, held_until, ends, queued, begins_at } = self;
        *begins_at = None;
        if ends.is_some() {
            *ends = None;
        }
        if !metadata.is_empty() {
            *metadata = Box::default();
        }
        if !permits.is_empty() {
            *permits = Permits::default();
        }
        (*log, *class, *held_until, *queued) = (false, None, None, None);
    }

    /// Whether all they can do is to refuse the call when it begins, by nothing but its metadata and its message.
    pub fn only_refuse(&self) -> bool {
        let mut plans = self.plans.iter().flatten();
        plans.all(|plan| plan.only_refuses() && !plan.needs_facts() && !plan.inspects_messages())
    }

    /// Whether nothing is to be remembered until the call ends.
    pub(super) fn is_idle(&self) -> bool {
        let Self { plans: _, metadata: _, permits, log, class, held_until, ends: _, queued, begins_at: _ } =
            self;
        let waits = held_until.is_some() || queued.is_some();
        !(waits || *log || class.is_some() || !permits.is_empty() || self.inspects_messages())
    }

    /// Which worker the policies of whoever makes the call want for it.
    pub fn choice(&self) -> WorkerChoice {
        self.plans[0].as_ref().map_or(WorkerChoice::default(), |plan| plan.choice())
    }

    /// The longest a call may take by policies of whoever makes it, whatever is in it.
    pub fn timeout_ns(&self) -> Option<u64> {
        self.plans[0].as_ref()?.timeout_ns()
    }

    /// Whether any policy looks at messages.
    pub fn reads_messages(&self) -> bool {
        self.plans.iter().flatten().any(|plan| plan.needs_message())
    }

    /// Whether any policy looks at the one message that a request has.
    pub fn read_one_message(&self) -> bool {
        self.plans.iter().flatten().any(|plan| plan.needs_message() && !plan.client_streams())
    }

    /// Whether any policy looks at anything of the call beside its messages.
    pub fn reads_facts(&self) -> bool {
        self.plans.iter().flatten().any(|plan| plan.needs_facts())
    }

    /// Whether any policy looks at the messages of a stream that is under way.
    pub fn inspects_messages(&self) -> bool {
        self.plans.iter().flatten().any(|plan| plan.inspects_messages())
    }
}

impl SparePolicies {
    /// Most that are kept: 100 KiB. More than are at once is never kept.
    const MAX: usize = 1024;

    /// For a call that no policy has looked at.
    #[inline]
    pub fn take(&mut self) -> Box<CallPolicies> {
        self.0.pop().unwrap_or_default()
    }

    /// Of a call that is over. What it held has been given back.
    pub fn keep(&mut self, mut policies: Box<CallPolicies>) {
        policies.clear();
        self.keep_unused(policies);
    }

    /// Of a call of which nothing but its plans was noted.
    #[inline]
    pub fn keep_unused(&mut self, mut policies: Box<CallPolicies>) {
        policies.plans = [None, None];
        debug_assert!(policies.is_idle(), "nothing is remembered of a call that is over");
        if self.0.len() < Self::MAX {
            self.0.push(policies);
        }
    }
}
