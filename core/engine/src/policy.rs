//! The chain as a whole: compiled for every method somebody here calls or serves, exchanged in one step.

use crate::SessionKey;
use crate::engine::Engine;
use crate::police::is_policed;
use crate::registry::{BoundSchema, Form, MessageType, MethodKey, MethodTypes};
use crate::session::Route;
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_policy::{Chain, ExportedModule, Module, Modules, Plan, PolicyError, PolicyRow, Side, Subject};
use trunkline_schema::Schema;

/// Misfits kept for the host.
pub(crate) const MISFITS_MAX: usize = 64;

/// A plan for every place that has one.
#[derive(Debug, Default)]
struct Plans {
    routes: Vec<(SessionKey, usize, Option<Arc<Plan>>)>,
    servers: Vec<(MethodKey, SessionKey, Option<Arc<Plan>>)>,
}

impl Engine {
    /// Puts a chain in the place of the one at work, for all calls from now on; or only says whether it would do
    /// (`dry_run`). Calls in flight keep what they were admitted by; policies that keep name and kind keep their state,
    /// and modules hand theirs to their next version. Returns which modules were upgraded, in words.
    ///
    /// # Errors
    /// [`PolicyError`] if the chain does not fit a method somebody here has bound, names a method that a service bound
    /// here does not have, or a module does not take over from the one at work; nothing has changed then.
    pub fn exchange_policies(
        &mut self,
        chain: Chain,
        modules: Modules,
        dry_run: bool,
    ) -> Result<Vec<String>, PolicyError> {
        let staged = self.policies.stage(chain, modules)?;
        match self.plans(staged.chain()) {
            Ok(_) if dry_run => {
                let upgraded = staged.upgraded().to_vec();
                self.policies.abandon(staged);
                Ok(upgraded)
            }
            Ok(plans) => {
                let upgraded = self.policies.commit(staged);
                self.install(plans);
                self.rebalance();
                Ok(upgraded)
            }
            Err(error) => {
                self.policies.abandon(staged);
                Err(error)
            }
        }
    }

    /// The same for a chain without modules.
    ///
    /// # Errors
    /// As [`Engine::exchange_policies`].
    pub fn apply_policies(&mut self, chain: Chain) -> Result<(), PolicyError> {
        self.exchange_policies(chain, Modules::default(), false).map(drop)
    }

    /// Whether a chain without modules would be applied.
    ///
    /// # Errors
    /// As [`Engine::exchange_policies`].
    pub fn try_policies(&mut self, chain: &Chain) -> Result<(), PolicyError> {
        self.exchange_policies(chain.clone(), Modules::default(), true).map(drop)
    }

    /// Modules nobody needs any more, to be dropped where it may take its time.
    pub fn take_retired_modules(&mut self) -> Vec<Box<dyn Module>> {
        self.policies.take_retired()
    }

    /// A module that was ejected because it is faulty, for the host to log.
    pub fn poll_ejected_module(&mut self) -> Option<PolicyError> {
        self.policies.poll_ejected()
    }

    /// The states of all modules, for a daemon that takes over from this one, and why some are not among them.
    pub fn export_modules(&self) -> (Vec<ExportedModule>, Vec<PolicyError>) {
        self.policies.export_modules()
    }

    /// Hands the states of another daemon's modules to those of this one, before its first call; returns which of them
    /// did not take theirs.
    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        self.policies.import_modules(exported)
    }

    /// The policies at work, in order, with their figures.
    pub fn policy_rows(&self) -> Vec<PolicyRow> {
        self.policies.rows()
    }

    /// Policies that do not fit a method bound since they were applied, for the host to log. Those methods' calls are
    /// refused.
    pub fn poll_policy_misfit(&mut self) -> Option<PolicyError> {
        self.policy_misfits.pop_front()
    }

    /// What of the chain applies to a method a session binds.
    pub(crate) fn plan_for(
        &mut self,
        side: Side,
        session: SessionKey,
        types: &MethodTypes,
    ) -> Option<Arc<Plan>> {
        let (plan, misfit) = self.planned(self.policies.chain(), side, session, types, &types.path);
        // More than the host has room for would only say the same again.
        if self.policy_misfits.len() < MISFITS_MAX {
            self.policy_misfits.extend(misfit);
        }
        plan
    }

    pub(crate) fn planned(
        &self,
        chain: &Chain,
        side: Side,
        session: SessionKey,
        types: &MethodTypes,
        path: &str,
    ) -> (Option<Arc<Plan>>, Option<PolicyError>) {
        if chain.is_empty() || !is_policed(path) {
            return (None, None);
        }
        let subject = Subject {
            side,
            application: self.sessions.find(session).map_or("", |session| session.application()),
            path,
            request: match &types.input {
                Form::Typed(of) => Some((&*of.schema.schema, of.index)),
                Form::Opaque => None,
            },
            client_streams: types.pattern.client_streams(),
        };
        let (plan, misfit) = chain.plan(&subject);
        (plan.map(Arc::new), misfit)
    }

    /// The same for a method that clients of the gateway call.
    pub(crate) fn planned_at_gateway(
        chain: &Chain,
        types: &MethodTypes,
        message: Option<&MessageType>,
        path: &str,
    ) -> (Option<Arc<Plan>>, Option<PolicyError>) {
        if chain.is_empty() || !is_policed(path) {
            return (None, None);
        }
        let subject = Subject {
            side: Side::Client,
            application: crate::gateway::APPLICATION,
            path,
            request: message.map(|of| (&*of.schema.schema, of.index)),
            client_streams: types.pattern.client_streams(),
        };
        let (plan, misfit) = chain.plan(&subject);
        (plan.map(Arc::new), misfit)
    }

    /// Says for the host to log that a policy names a method that a service in `schema` does not have.
    pub(crate) fn note_misnamed(&mut self, schema: &BoundSchema) {
        let misnamed = self.policies.chain().misnamed(&[&*schema.schema]);
        if self.policy_misfits.len() < MISFITS_MAX {
            self.policy_misfits.extend(misnamed);
        }
    }

    /// Every schema that something here was bound with, once.
    fn schemas(&self) -> Vec<&Schema> {
        let routes = self.sessions.iter().flat_map(|(_, session)| &session.routes);
        let called = routes.filter_map(|route| match route {
            Route::Calls { types, .. } => Some(types),
            _ => None,
        });
        let served = self.registry.all_servers().map(|(_, server)| &server.types);
        let mut seen = HashSet::new();
        let forwarded = self.gateway.settings.schemas.iter().map(|schema| &*schema.schema);
        let typed = called.chain(served).filter_map(|types| match &types.input {
            Form::Typed(of) => Some(&*of.schema.schema),
            Form::Opaque => None,
        });
        typed.chain(forwarded).filter(|schema| seen.insert(std::ptr::from_ref::<Schema>(schema))).collect()
    }

    fn plans(&self, chain: &Chain) -> Result<Plans, PolicyError> {
        chain.misnamed(&self.schemas()).map_or(Ok(()), Err)?;
        let mut plans = Plans::default();
        for (key, session) in self.sessions.iter().filter(|(_, session)| !session.gone) {
            for (index, route) in session.routes.iter().enumerate() {
                let Route::Calls { types, .. } = route else { continue };
                let (plan, misfit) = self.planned(chain, Side::Client, key, types, &types.path);
                misfit.map_or(Ok(()), Err)?;
                plans.routes.push((key, index, plan));
            }
        }
        self.gateway.check(chain)?;
        for (method, server) in self.registry.all_servers() {
            let (plan, misfit) =
                self.planned(chain, Side::Server, server.session, &server.types, &server.types.path);
            misfit.map_or(Ok(()), Err)?;
            plans.servers.push((method, server.session, plan));
        }
        Ok(plans)
    }

    fn install(&mut self, plans: Plans) {
        // Plans of methods that are forwarded are made when they are called.
        self.gateway.forget_plans();
        for (session, index, plan) in plans.routes {
            let routes = self.sessions.find_mut(session).map(|session| &mut session.routes);
            if let Some(Route::Calls { plan: old, .. }) = routes.and_then(|routes| routes.get_mut(index)) {
                *old = plan;
            }
        }
        for (method, session, plan) in plans.servers {
            self.registry.set_plan(method, session, plan);
        }
        self.reserve_workers();
    }
}
