//! Calls whose policies only let them go on or refuse them: nearly all that have any.
//!
//! Nothing is remembered of such a call, nothing else of it is asked for, and its message has one type. What holds for
//! any policy (`judged.rs`, `admission_of_call.rs`) costs twice as much.

use crate::admission::{CallPolicies, Denied};
use crate::call::{Body, Call, Direction, Item, ServerEnd};
use crate::convert_error::conversion_fault;
use crate::lent_call::LentCall;
use crate::onward::{Onward, pass_on};
use crate::owners::Owners;
use crate::registry::{Form, MessageType};
use crate::turn::Turn;
use trunkline_call::Fault;
use trunkline_message::View;

// LIFE: 7 | judged by the policies of both sides that are this host's: let through, held, or refused; copied where a
// policy mirrors | a private copy, if a policy looks at the message |
/// Asks the policies about a call that begins, if they [only refuse](CallPolicies::only_refuse), and sends it on its
/// way if they let it.
#[inline(never)]
pub(crate) fn permit(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    policies: Box<CallPolicies>,
    opening: &mut Item<'_>,
) -> Onward {
    if !policies.only_refuse() {
        return Onward::IsOpened(policies);
    }
    if policies.reads_messages() {
        return permit_as_sent(owners, turn, lent, policies, opening);
    }
    match owners.admission.permit(turn.now, policies, opening, View::EMPTY) {
        Ok(()) => pass_on(owners, turn, lent, Direction::Request, opening),
        Err(denied) => deny(owners, lent.call, denied, opening),
    }
}

/// The same of policies that read messages. If this is no call for it, since its message is not there yet, or has no
/// one type, any policy's way is theirs.
fn permit_as_sent(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    policies: Box<CallPolicies>,
    opening: &mut Item<'_>,
) -> Onward {
    let Owners { admission, scratch, .. } = &mut *owners;
    let (Some(body), Some(sent)) = (opening.body(), type_read(lent.call)) else {
        return Onward::IsOpened(policies);
    };
    let mut inspection = admission.take_inspection();
    let judged = match inspection.inspect(turn.heaps, &scratch.limits, sent, body) {
        Ok(inspected) => {
            let view = inspection.view(turn.heaps, inspected);
            admission.permit(turn.now, policies, opening, view)
        }
        Err(error) => Err(Denied::from(conversion_fault(error, Direction::Request))),
    };
    let onward = match (judged, &mut *opening) {
        (Err(denied), _) => deny(owners, lent.call, denied, opening),
        // What was read is what is sent, whatever its sender makes of the original meanwhile.
        (Ok(()), Item::Open { metadata, body: Some(Body::Lent { session, payload }), end }) => {
            let body = Some(inspection.sealed(*session, *payload));
            let mut sealed = Item::Open { metadata: metadata.as_ref().into(), body, end: *end };
            let onward = pass_on(owners, turn, lent, Direction::Request, &mut sealed);
            if onward.goes_on_with_item() {
                *opening = sealed.into_owned();
            }
            onward
        }
        (Ok(()), _) => pass_on(owners, turn, lent, Direction::Request, opening),
    };
    owners.admission.put_back(inspection);
    onward
}

/// Policies have said no to a call, about this item of it.
pub(crate) fn deny(owners: &mut Owners, call: &mut Call, denied: Denied, item: &mut Item<'_>) -> Onward {
    // A call that is refused is logged as others are: its end finds what says so with it.
    if denied.log {
        call.policies = Some(Box::new(CallPolicies::refused(true)));
    }
    refuse(owners, item, denied.fault)
}

/// A call does not begin, or go on, with this item.
#[inline(never)]
pub(crate) fn refuse(owners: &mut Owners, item: &mut Item<'_>, fault: Fault) -> Onward {
    owners.drop_item(item);
    Onward::Fails(fault)
}

/// The type as which policies of both sides read the message a call begins with, if that is how it was sent: its
/// server, if that is here, has it, too.
fn type_read(call: &Call) -> Option<&MessageType> {
    let Some(Form::Typed(sent)) = call.form_sent(Direction::Request) else { return None };
    let is_served_as_sent = match &call.server {
        ServerEnd::Session { types, .. } => types.input.fingerprint() == sent.fingerprint,
        _ => true,
    };
    is_served_as_sent.then_some(sent)
}
