//! The end of a call that somebody has at hand: its server end is told to stop, and its caller how it has ended.
//!
//! Who is told that a call is over `records.rs` says. What concerns other calls is said by a value ([`CallEnding`],
//! [`HandedItem`]), and done by whoever found the call (`pass.rs`).

use crate::attempts::CallAttempts;
use crate::call::{Call, Item};
use crate::ends::HandedItem;
use crate::in_vain::name_peer_in_vain;
use crate::lent_call::LentCall;
use crate::limits::STALLED;
use crate::owners::Owners;
use crate::records::is_stream;
use crate::sampled::sample_answer;
use crate::turn::Turn;
use std::borrow::Cow;
use trunkline_call::{Blame, Execution, Fault, Status};
use trunkline_grpc::Outcome;

/// What follows from the end of a call.
pub(crate) enum CallEnding {
    /// It had one.
    Had,
    /// These are to end before its caller is told.
    Attempts(Box<CallAttempts>),
    /// Its caller is told.
    Told(HandedItem),
}

/// What the caller of a call is told that a fault ends.
pub(crate) fn status_of(owners: &Owners, lent: &LentCall<'_>, fault: &Fault) -> Status {
    let mut status = fault.status();
    if lent.call.handed_over && status.execution() == Execution::NotExecuted && !fault.knows_execution() {
        // A limit that strikes in the middle of a stream: the handler has been at work for long.
        status = status.with_execution(Execution::Unknown);
    }
    match lent.made_for().is_some_and(Call::is_for_elsewhere) {
        true => owners.peers.said_here(&status),
        false => status,
    }
}

/// Ends a call: its server end is told to stop, and its caller how it has ended, unless attempts are to end before.
pub(crate) fn end(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    finish: &mut Item<'_>,
) -> CallEnding {
    let &mut Item::Finish { code, .. } = finish else { return CallEnding::Had };
    if lent.call.outcome.is_some() {
        return CallEnding::Had;
    }
    name_peer_in_vain(owners, lent.call);
    if let Some(placed) = lent.call.leave_endpoint(Some(code)) {
        owners.clusters.finished(turn.now, placed, Some(code), &[]);
    }
    match owners.stop_server(turn.now, lent.named(), code) {
        Some(attempts) => CallEnding::Attempts(attempts),
        None => CallEnding::Told(tell(owners, turn, lent, finish)),
    }
}

/// Tells the caller how its call has ended, when its server end knows.
pub(crate) fn tell(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    finish: &mut Item<'_>,
) -> HandedItem {
    let call = &mut *lent.call;
    // Calls its handler made end with it: soon.
    if let Item::Finish { code, .. } = *finish {
        owners.nested.add(call.take_children(), code);
    }
    (call.server_measured, call.response.ended) = (call.ends_at_server(turn.now), true);
    call.response.is_of_stream = is_stream(call);
    owners.leave_server(lent.named());
    finish_at_client(owners, turn, lent, finish)
}

/// Hands the end over, which waits for nothing.
pub(crate) fn finish_at_client(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    finish: &mut Item<'_>,
) -> HandedItem {
    sample_answer(owners, turn, (lent.key, lent.call), finish);
    lent.call.client.clone().finish(owners, turn, lent, finish)
}

/// The last item of a call that ends so.
pub(crate) fn finish_of<'o>(outcome: &'o Outcome<'_>) -> Item<'o> {
    let metadata = Cow::Borrowed(&*outcome.metadata);
    Item::Finish { code: outcome.code, execution: outcome.execution, body: None, metadata }
}

/// Whether a fault may be that of the server a call was given to: not what its caller or an operator has asked for, as
/// answers above a limit of the caller's are. A message that does not go on is.
pub(crate) fn is_of_server(fault: &Fault) -> bool {
    let is_stalled = matches!(fault, Fault::Limit { name, .. } if *name == STALLED);
    is_stalled || !matches!(fault.blame(), Blame::Caller | Blame::Operator)
}
