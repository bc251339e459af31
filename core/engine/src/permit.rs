//! Calls whose policies only let them go on or refuse them, and read their messages: nearly all that read any.
//!
//! Nothing is remembered of such a call, nothing else of it is asked for, and its message has one type. What holds for
//! any policy (`admission_of_call.rs`) costs twice as much.

use crate::CallKey;
use crate::admission::{CallPolicies, Denied};
use crate::call::{Body, Call, Direction, Item, ServerEnd};
use crate::convert_error::conversion_fault;
use crate::engine::Engine;
use crate::item::ItemWay;
use crate::owners::Owners;
use crate::registry::{Form, MessageType};
use crate::start;
use crate::turn::Turn;

// LIFE: 7
/// Asks policies that [only refuse](CallPolicies::only_refuse) about a call that begins, and sends it on its way if
/// they let it. Returns them if this is no call for it: its message is not there yet, or has no one type.
pub(crate) fn admit_as_sent(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    policies: Box<CallPolicies>,
    opening: &mut Item<'_>,
) -> Option<Box<CallPolicies>> {
    let Engine { calls, owners: Owners { admission, scratch, .. } } = engine;
    let Some(body) = opening.body() else { return Some(policies) };
    let Some(sent) = calls.find(key).and_then(type_read) else { return Some(policies) };
    let mut inspection = admission.take_inspection();
    let judged = match inspection.inspect(turn.heaps, &scratch.limits, sent, body) {
        Ok(inspected) => {
            let view = inspection.view(turn.heaps, inspected);
            admission.permit(turn.now, policies, opening, view)
        }
        Err(error) => Err(Denied::from(conversion_fault(error, Direction::Request))),
    };
    match (judged, &mut *opening) {
        (Err(denied), _) => deny(engine, turn, key, denied, opening),
        // What was read is what is sent, whatever its sender makes of the original meanwhile.
        (Ok(()), Item::Open { metadata, body: Some(Body::Lent { session, payload }), end }) => {
            let body = Some(inspection.sealed(*session, *payload));
            let mut sealed = Item::Open { metadata: metadata.as_ref().into(), body, end: *end };
            engine.pass_on(turn, key, Direction::Request, &mut sealed);
        }
        (Ok(()), _) => engine.pass_on(turn, key, Direction::Request, opening),
    }
    engine.owners.admission.put_back(inspection);
    None
}

/// Policies have said no to a call, about this item of it.
pub(crate) fn deny(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    denied: Denied,
    item: &mut Item<'_>,
) {
    let Engine { calls, owners } = engine;
    let Some(call) = calls.find_mut(key) else { return owners.drop_item(item) };
    let onward = start::deny(owners, call, denied, item);
    engine.go_onward(turn, ItemWay { key, direction: Direction::Request }, item, onward);
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
