//! What any policies say of a call, done: it goes on, is held for a while, waits for calls before it to end, is copied
//! elsewhere (`mirrors.rs`), or ends.
//!
//! [`AdmissionOfCall`](crate::admission_of_call::AdmissionOfCall) asks them. What policies have read of a message is
//! lent to its item, so that this goes on with it before anything else is read. Those that only refuse have a shorter
//! way (`permit.rs`).

use crate::CallKey;
use crate::admission::{CallPolicies, Denied, Inspection};
use crate::call::{Direction, Item};
use crate::engine::Engine;
use crate::item::ItemWay;
use crate::mirrors::{copy_for_mirrors, send_copies};
use crate::permit;
use crate::turn::Turn;
use trunkline_call::Fault;
use trunkline_policy::Admission;

// LIFE: 7
/// Asks the policies about a call that begins, and sends it on its way if they let it.
#[inline(never)]
pub(crate) fn judge_opening(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    policies: Box<CallPolicies>,
    opening: &mut Item<'_>,
) {
    let mut admission = Admission::default();
    if !policies.reads_messages() {
        let judged = judge(engine, turn, key, policies, opening, None, &mut admission);
        return go_on_judged(engine, turn, key, judged, &admission, opening);
    }
    let mut inspection = engine.owners.admission.take_inspection();
    // What policies have read is lent to it until it is handed over.
    let mut opening = opening.take();
    let judged = judge(engine, turn, key, policies, &mut opening, Some(&mut inspection), &mut admission);
    go_on_judged(engine, turn, key, judged, &admission, &mut opening);
    drop(opening);
    engine.owners.admission.put_back(inspection);
}

fn judge<'i>(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    policies: Box<CallPolicies>,
    opening: &mut Item<'i>,
    inspection: Option<&'i mut Inspection>,
    admission: &mut Admission,
) -> Result<(), Denied> {
    let Engine { calls, owners } = engine;
    let call = calls.find_mut(key).ok_or(Fault::Ended)?;
    owners.admission_of_call().admit(turn, (key, call), policies, opening, inspection, admission)
}

fn go_on_judged(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    judged: Result<(), Denied>,
    admission: &Admission,
    opening: &mut Item<'_>,
) {
    match judged {
        Ok(()) if admission.mirrors.is_empty() => engine.pass_on(turn, key, Direction::Request, opening),
        Ok(()) => {
            let copies = copy_for_mirrors(engine, turn, key, opening, &admission.mirrors);
            engine.pass_on(turn, key, Direction::Request, opening);
            send_copies(engine, turn, copies);
        }
        Err(denied) => deny(engine, turn, key, denied, opening),
    }
}

fn deny(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, denied: Denied, item: &mut Item<'_>) {
    let Engine { calls, owners } = engine;
    let Some(call) = calls.find_mut(key) else { return owners.drop_item(item) };
    let onward = permit::deny(owners, call, denied, item);
    engine.go_onward(turn, ItemWay { key, direction: Direction::Request }, item, onward);
}

/// Asks the policies about a later message.
pub(crate) fn judge_message(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, message: &mut Item<'_>) {
    let Engine { calls, owners } = engine;
    let call = calls.find_mut(key).and_then(|call| Some((call.policies.take()?, call)));
    let Some((policies, call)) = call else { return owners.drop_item(message) };
    let mut asked = owners.admission_of_call();
    let (mut inspection, mut admission) = (asked.control.take_inspection(), Admission::default());
    let mut message = message.take();
    let judged = asked.judge(turn, call, &policies, &mut message, Some(&mut inspection), &mut admission);
    call.policies = Some(policies);
    match judged {
        Ok(()) => engine.pass_on(turn, key, Direction::Request, &mut message),
        Err(denied) => deny(engine, turn, key, denied, &mut message),
    }
    drop(message);
    engine.owners.admission.put_back(inspection);
}
