//! What sessions have bound, as policies are asked about it, and the plans that are put there.

use crate::SessionKey;
use crate::admission::{BoundMethods, BoundPlans, MethodHolder, MethodSubject};
use crate::gateway::Gateway;
use crate::registry::{MethodTypes, Registry};
use crate::session::{Route, Session};
use crate::sessions::SessionEnds;
use std::sync::Arc;
use trunkline_policy::{Plan, Side};

/// A method as a session has it.
pub(crate) fn bound_method<'e>(
    sessions: &'e SessionEnds,
    session: SessionKey,
    side: Side,
    types: &'e Arc<MethodTypes>,
) -> MethodSubject<'e> {
    MethodSubject { side, types, holder: sessions.find(session).map(holder) }
}

/// Everything that is bound, and what the gateway was told.
pub(crate) fn bound_methods<'e>(
    sessions: &'e SessionEnds,
    registry: &'e Registry,
    gateway: &'e Gateway,
) -> BoundMethods<'e> {
    let attached = sessions.iter().filter(|(_, session)| !session.gone);
    let called = attached.flat_map(|(_, session)| {
        session.routes.iter().filter_map(|route| match route {
            Route::Calls { types, .. } => {
                Some(MethodSubject { side: Side::Client, types, holder: Some(holder(session)) })
            }
            Route::Serves => None,
        })
    });
    let served = registry
        .every_server()
        .map(|(_, server)| bound_method(sessions, server.session, Side::Server, &server.types));
    let told = gateway.settings.schemas.iter().map(|schema| &*schema.schema);
    BoundMethods { called: called.collect(), served: served.collect(), told: told.collect() }
}

/// Puts plans where [`bound_methods`] found the methods; nothing was bound or has gone since.
pub(crate) fn put_plans(sessions: &mut SessionEnds, registry: &mut Registry, plans: BoundPlans) {
    let attached = sessions.iter_mut().filter(|(_, session)| !session.gone);
    let places = attached.flat_map(|(_, session)| session.routes.iter_mut().filter_map(place));
    places.zip(plans.called).for_each(|(place, plan)| *place = plan);
    for (server, plan) in registry.every_server_mut().zip(plans.served) {
        server.plan = plan;
    }
}

fn place(route: &mut Route) -> Option<&mut Option<Arc<Plan>>> {
    match route {
        Route::Calls { plan, .. } => Some(plan),
        Route::Serves => None,
    }
}

fn holder(session: &Session) -> MethodHolder<'_> {
    MethodHolder { application: session.application(), identity: &session.identity }
}
