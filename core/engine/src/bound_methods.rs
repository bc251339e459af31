//! What sessions have bound, as policies are asked about it, and the plans that are put there.

use crate::SessionKey;
use crate::admission::{AdmissionControl, Applicant, BoundMethods, BoundPlans, MethodHolder, MethodSubject};
use crate::call::{Call, ClientEnd};
use crate::gateway::Gateway;
use crate::gateway_client::APPLICANT;
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

/// What applies to a call at the session that serves it.
pub(crate) fn handler_plan(
    admission: &mut AdmissionControl,
    registry: &Registry,
    sessions: &SessionEnds,
    call: &Call,
) -> Option<Arc<Plan>> {
    let session = call.handler()?;
    match registry.servers(call.method).iter().find(|server| server.session == session) {
        // Its methods are known by their calls only.
        Some(server) if server.types.whole_service => {
            let path = call.path.as_deref().unwrap_or(registry.path(call.method));
            let application = sessions.find(session).map_or("", |session| session.application());
            let applicant = Applicant { side: Side::Server, application };
            applicant.plan(admission.chain_mut(), &server.types, path).0
        }
        server => server.and_then(|server| server.plan.clone()),
    }
}

/// What applies to a call that was handed over, or waits while policies are exchanged, where it is made.
pub(crate) fn maker_plan(
    admission: &mut AdmissionControl,
    registry: &Registry,
    sessions: &SessionEnds,
    gateway: &Gateway,
    call: &Call,
) -> Option<Arc<Plan>> {
    let path = || call.path.as_deref().unwrap_or(registry.path(call.method));
    let (application, types) = match &call.client {
        ClientEnd::Session { session, types, .. } => {
            (sessions.find(*session).map_or("", |session| session.application()), types)
        }
        ClientEnd::Shard { types: Some(types), origin, .. } if call.has_moved() => {
            (origin.application(), types)
        }
        ClientEnd::Grpc { types: Some(types), .. } => {
            let request = gateway.message_of(call);
            return APPLICANT.plan_by(admission.chain_mut(), types, request.as_ref(), path()).0;
        }
        _ => return None,
    };
    let applicant = Applicant { side: Side::Client, application };
    applicant.plan(admission.chain_mut(), types, path()).0
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
