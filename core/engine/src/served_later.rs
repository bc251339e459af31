//! Having calls wait until somebody serves their service (`unserved.rs`), and having them begin then.

use crate::CallKey;
use crate::call::Item;
use crate::engine::Engine;
use crate::owners::Owners;
use crate::registry::service_of;
use crate::service_workers::Queued;
use crate::shard::give_back;
use crate::source::CallSources;
use crate::target::Target;
use crate::turn::Turn;
use trunkline_call::Fault;

/// A service that comes may be waited for by thousands. A call takes about a microsecond.
const BEGUN_PER_STEP_MAX: usize = 256;

/// Has a call wait whose method nobody serves, if its caller has said that it waits.
///
/// # Errors
/// What ends it.
pub(crate) fn wait_for_service(
    engine: &mut Engine,
    turn: &Turn<'_>,
    (key, target): (CallKey, Target),
    opening: &mut Item<'_>,
    fault: Fault,
) -> Result<(), Fault> {
    let Engine { calls, owners } = engine;
    let Owners { unserved, sessions, peers, grpc, registry, limits, draining, .. } = &mut *owners;
    let Some(call) = calls.find_mut(key) else { return Err(fault) };
    let is_made_here = call.maker().is_some() || call.has_moved();
    if !matches!(fault, Fault::NoRoute { .. }) || !call.waits_for_ready || !is_made_here {
        return Err(fault);
    }
    if *draining {
        return Err(Fault::Draining);
    }
    let bytes = opening.parked_bytes();
    let service = service_of(registry.path(call.method));
    unserved.admit((key, service, bytes), limits, || CallSources { sessions, peers, grpc }.of(call))?;
    call.queued = Some(Queued::for_none(target, bytes));
    call.request.wait(turn.now, opening.take().into_owned());
    owners.start_of_call().bound_wait(turn.now, (key, call));
    Ok(())
}

/// Nobody serves the method of a call here, or nobody has room: it goes back to the shard it came from, or waits, or
/// ends.
#[cold]
pub(crate) fn go_on_unserved(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    call: (CallKey, Target),
    opening: &mut Item<'_>,
    fault: Fault,
) {
    if give_back(engine, call.0, opening) {
        return;
    }
    if let Err(fault) = wait_for_service(engine, turn, call, opening, fault) {
        engine.owners.drop_item(opening);
        engine.fail(turn, call.0, fault);
    }
}

/// Calls begin again whose service has come: so many at once.
pub(crate) fn settle_unserved(engine: &mut Engine, turn: &mut Turn<'_>) {
    for _ in 0..BEGUN_PER_STEP_MAX {
        let Some(key) = engine.owners.unserved.next_ready() else { return };
        engine.begin_again(turn, key);
    }
}
