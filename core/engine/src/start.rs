//! The start of a call that somebody has at hand: is it sound, who serves it, and what do the policies say?
//!
//! Is it sound, and who serves it, [`StartOfCall`] answers. Policies stand between that and its hand-over
//! (`onward.rs`): those that only refuse are asked at once (`permit.rs`), the others by `judged.rs`. If its deadline
//! passes or its caller goes away while it waits, its handler never hears of it.
//!
//! [`StartOfCall`]: crate::start_of_call::StartOfCall

use crate::call::{Calls, Direction, Item};
use crate::gather::is_whole;
use crate::lent_call::LentCall;
use crate::onward::{Onward, pass_on};
use crate::owners::Owners;
use crate::permit::{permit, refuse};
use crate::start_of_call::CallStart;
use crate::target::Target;
use crate::turn::Turn;
use crate::workers::Queued;
use crate::{CallKey, SessionKey};
use trunkline_call::{Execution, Fault, Instant};

/// What follows for a call that begins, and the session of this host that serves it, which is to count it.
pub(crate) type Begun = (Onward, Option<SessionKey>);

/// Finds the server end of a new call and sends its opening item on the way.
#[inline(always)]
pub(crate) fn start(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    target: Target,
    opening: &mut Item<'_>,
) -> Begun {
    let (mut start, (key, call)) = (owners.start_of_call(), lent.named());
    call.note_step(start.steps, turn.now, Direction::Request, opening);
    if !is_whole(opening) && start.routing().begins_whole(call, target) {
        if let Some(policies) = call.policies.as_mut() {
            policies.begins_at = Some(target);
        }
        // Deadline and cancellation hold from here on.
        let admitted = start.admit_early(turn.now, (key, call), opening);
        return (admitted.map_or_else(|fault| refuse(owners, opening, fault), |()| Onward::IsPart), None);
    }
    if start.is_awaited(call, target) {
        return (Onward::IsAwaited(target), None);
    }
    let started = start.start(turn.now, (key, call), target, opening);
    go_on_started(owners, turn, lent, target, opening, started)
}

/// A call for the daemon's own, who are between two processes, waits for the next if there is room for it.
pub(crate) fn start_awaited(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    (target, waits): (Target, bool),
    opening: &mut Item<'_>,
) -> Begun {
    let (mut start, call) = (owners.start_of_call(), lent.named());
    let started = match waits {
        true => start.wait(turn.now, call, Queued::for_none(target, opening.parked_bytes()), opening),
        false => start.start(turn.now, call, target, opening),
    };
    go_on_started(owners, turn, lent, target, opening, started)
}

/// Starts a call that has waited for its place at a worker.
pub(crate) fn start_at_worker(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    target: Target,
    opening: &mut Item<'_>,
) -> Begun {
    let (mut start, call) = (owners.start_of_call(), lent.named());
    // Of a call of another shard that shard says when its deadline has passed, and may be late.
    let started = match call.1.deadline.has_passed(turn.now) {
        true => CallStart::Refused(Fault::DeadlinePassed { executed: Execution::NotExecuted }),
        false => start.start_now(turn.now, call, target, opening),
    };
    go_on_started(owners, turn, lent, target, opening, started)
}

/// Does with a call that begins, and with its opening, what has been said.
#[inline(always)]
fn go_on_started(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    target: Target,
    opening: &mut Item<'_>,
    started: CallStart,
) -> Begun {
    match started {
        CallStart::Settled { handler, policies: None } => {
            (pass_on(owners, turn, lent, Direction::Request, opening), handler)
        }
        CallStart::Settled { handler, policies: Some(policies) } => {
            (permit(owners, turn, lent, policies, opening), handler)
        }
        CallStart::Waits => (Onward::Rests, None),
        CallStart::Refused(fault) => (refuse(owners, opening, fault), None),
        CallStart::Unserved(fault) => (Onward::IsUnserved(target, fault), None),
    }
}

/// Admits a call of a peer whose first message, of so many bytes, is still to come, and gives it its server end.
///
/// # Errors
/// What ends it.
pub(crate) fn settle(
    calls: &mut Calls,
    owners: &mut Owners,
    now: Instant,
    key: CallKey,
    (metadata, bytes): (&[u8], u32),
) -> Result<(), Fault> {
    let call = calls.find_mut(key).ok_or(Fault::Ended)?;
    let mut start = owners.start_of_call();
    let handler = start.settle(now, (key, &mut *call), Target::Here, metadata, bytes)?;
    // Until its message is there, policies may be exchanged.
    call.planned_by = start.admission.version();
    handler.into_iter().for_each(|session| owners.count_served(calls, key, session));
    Ok(())
}
