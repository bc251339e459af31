//! Asking the policies about a call that somebody has at hand, and binding it to what they say.
//!
//! [`AdmissionOfCall`] is lent those who know of its ends what policies ask for (`call_facts.rs`); [`AdmissionControl`]
//! asks the policies. The engine does what is answered (`start.rs`).

use crate::CallKey;
use crate::admission::{AdmissionControl, CallFacts, CallPolicies, Denied, Inspection, add_metadata};
use crate::call::{Call, Item};
use crate::call_facts::types_to_read;
use crate::due::Due;
use crate::gateway::Gateway;
use crate::grpc::GrpcEnds;
use crate::peers::PeerEnds;
use crate::registry::Registry;
use crate::sessions::SessionEnds;
use crate::source::CallSources;
use crate::turn::Turn;
use trunkline_call::{Deadline, Execution, Fault, Instant, TimerTable};
use trunkline_message::transcode::DecodeLimits;
use trunkline_policy::Admission;

/// Those who know what policies ask of a call.
pub(crate) struct AdmissionOfCall<'e> {
    pub control: &'e mut AdmissionControl,
    pub sessions: &'e SessionEnds,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
    pub registry: &'e Registry,
    pub gateway: &'e Gateway,
    pub limits: &'e DecodeLimits,
    pub timers: &'e mut TimerTable<Due>,
}

impl AdmissionOfCall<'_> {
    /// Asks about a call that begins. If it may go on, it is bound to what was said, and so is its opening.
    ///
    /// # Errors
    /// Why it may not.
    pub fn admit<'i>(
        &mut self,
        turn: &mut Turn<'_>,
        (key, call): (CallKey, &mut Call),
        policies: Box<CallPolicies>,
        opening: &mut Item<'i>,
        inspection: Option<&'i mut Inspection>,
        admission: &mut Admission,
    ) -> Result<(), Denied> {
        self.judge(turn, call, &policies, opening, inspection, admission)?;
        // Nearly always: nothing is to be remembered, and nothing to be done.
        if admission.says_nothing() && !policies.inspects_messages() {
            self.control.spare(policies);
            return Ok(());
        }
        self.bind_to_terms(turn.now, (key, &mut *call), policies, admission, opening);
        if call.deadline.has_passed(turn.now) {
            // What it waited for before it was judged has taken all the time that a policy gives it.
            return Err(Fault::DeadlinePassed { executed: Execution::NotExecuted }.into());
        }
        Ok(add_metadata(opening, &admission.metadata)?)
    }

    /// Tells the policies of a call about an item of it, and what is known of both as far as they ask for it.
    pub fn judge<'i>(
        &mut self,
        turn: &mut Turn<'_>,
        call: &Call,
        policies: &CallPolicies,
        item: &mut Item<'i>,
        inspection: Option<&'i mut Inspection>,
        admission: &mut Admission,
    ) -> Result<(), Denied> {
        let Self { control, sessions, peers, grpc, registry, gateway, limits, .. } = self;
        let reads = policies.reads_messages();
        let types = if reads { types_to_read(gateway, call, item)? } else { Default::default() };
        let facts = match policies.reads_facts() {
            true => CallSources { sessions, peers, grpc }.facts(call, registry, types),
            false => CallFacts { types, ..CallFacts::default() },
        };
        control.judge(turn.now, turn.heaps, limits, policies, &facts, item, inspection, admission)
    }

    /// Does what the policies said about a call that may go on.
    fn bind_to_terms(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        policies: Box<CallPolicies>,
        admission: &mut Admission,
        opening: &Item<'_>,
    ) {
        let Self { control, timers, .. } = self;
        let queue = |until| timers.insert(until, Due::Queued(key));
        let terms = control.settle(now, key.to_bits(), policies, admission, opening, queue);
        call.policies = terms.kept;
        if let Some(said) = terms.encoding {
            (call.request_encoding, call.keeps_encoding) = (Some(said), false);
        }
        if let Some(timeout_ns) = admission.timeout_ns {
            end_in_time(timers, now, (key, call), timeout_ns);
        }
    }
}

/// A call that was admitted takes no longer than this, from its entry on.
#[inline(never)]
pub(crate) fn end_in_time(
    timers: &mut TimerTable<Due>,
    now: Instant,
    (key, call): (CallKey, &mut Call),
    timeout_ns: u64,
) {
    let deadline = call.deadline.earlier(Deadline::at(call.entered(now).plus_ns(timeout_ns)));
    if deadline != call.deadline {
        call.deadline = deadline;
        let timer = deadline.instant().map(|at| timers.insert(at, Due::Deadline(key)));
        if let Some(replaced) = std::mem::replace(&mut call.timer, timer) {
            timers.cancel(replaced);
        }
    }
}
