//! The chain as a whole: compiled for every method somebody here calls or serves, exchanged in one step.

use crate::SessionKey;
use crate::admission::Applicant;
use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::registry::{BoundSchema, Form, MethodTypes, Registry};
use crate::session::{Route, Session};
use crate::table::Table;
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_policy::{Chain, ExportedModule, Module, Modules, Plan, PolicyError, PolicyRow, Side};
use trunkline_schema::Schema;

/// A plan for every place that has one.
#[derive(Debug, Default)]
struct Plans {
    routes: Vec<(SessionKey, usize, Option<Arc<Plan>>)>,
    /// In the order in which the registry has them.
    servers: Vec<Option<Arc<Plan>>>,
    found: Found,
}

/// Which methods the chain fits as some application has them, and which not as another has them.
#[derive(Debug, Default)]
struct Found {
    fitting: HashSet<(Side, Arc<str>)>,
    unfit: HashSet<(Side, Arc<str>)>,
    /// One of each that is unfit, in the order in which they were found.
    misfits: Vec<((Side, Arc<str>), PolicyError)>,
}

impl Engine {
    /// Puts a chain in the place of the one at work, for all calls from now on; or only says whether it would do
    /// (`dry_run`). Calls in flight keep what they were admitted by; policies that keep name and kind keep their state,
    /// and modules hand theirs to their next version. Returns which modules were upgraded, in words.
    ///
    /// # Errors
    /// [`PolicyError`] if the chain does not fit a method as anybody here has bound it, names a method that a service
    /// bound here does not have, or a module does not take over from the one at work; nothing has changed then. If it
    /// fits the method as some have it, it refuses the calls of the others, and the host is told.
    pub fn exchange_policies(
        &mut self,
        chain: Chain,
        modules: Modules,
        dry_run: bool,
    ) -> Result<Vec<String>, PolicyError> {
        self.exchange_chain(chain, modules, dry_run, false)
    }

    /// The same for a chain that every shard of the host has found to do: what was bound since does not keep this one
    /// from it, or their chains would differ. Calls it does not fit are refused, and the host is told.
    ///
    /// # Errors
    /// [`PolicyError`] if a module does not take over from the one at work.
    pub fn exchange_checked_policies(
        &mut self,
        chain: Chain,
        modules: Modules,
    ) -> Result<Vec<String>, PolicyError> {
        self.exchange_chain(chain, modules, false, true)
    }

    fn exchange_chain(
        &mut self,
        chain: Chain,
        modules: Modules,
        dry_run: bool,
        checked: bool,
    ) -> Result<Vec<String>, PolicyError> {
        let Self { admission, sessions, registry, gateway, .. } = self;
        let plans = |chain: &mut Chain| {
            let plans = Plans::of(chain, sessions, registry);
            if !checked {
                chain.misnamed(&schemas(sessions, registry, gateway)).map_or(Ok(()), Err)?;
                gateway.check(chain)?;
                plans.found.refuse()?;
            }
            Ok(plans)
        };
        let (upgraded, plans) = admission.exchange(chain, modules, dry_run, plans)?;
        if let Some(plans) = plans {
            self.install(plans);
            self.rebalance();
        }
        Ok(upgraded)
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
        self.admission.take_retired_modules()
    }

    /// A module that was ejected because it is faulty, for the host to log.
    pub fn poll_ejected_module(&mut self) -> Option<PolicyError> {
        self.admission.poll_ejected_module()
    }

    /// The states of all modules, for a daemon that takes over from this one, and why some are not among them.
    pub fn export_modules(&self) -> (Vec<ExportedModule>, Vec<PolicyError>) {
        self.admission.export_modules()
    }

    /// Hands the states of another daemon's modules to those of this one, before its first call; returns which of them
    /// did not take theirs.
    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        self.admission.import_modules(exported)
    }

    /// The policies at work, in order, with their figures.
    pub fn policy_rows(&self) -> Vec<PolicyRow> {
        self.admission.rows()
    }

    /// Policies that do not fit a method bound since they were applied, for the host to log. Those methods' calls are
    /// refused.
    pub fn poll_policy_misfit(&mut self) -> Option<PolicyError> {
        self.admission.poll_misfit()
    }

    /// A record of the access log.
    pub fn poll_access_record(&mut self) -> Option<crate::AccessRecord> {
        self.admission.poll_access_record()
    }

    /// A change of the daemon that an operator asked for who may not.
    pub fn poll_denied_change(&mut self) -> Option<crate::DeniedChange> {
        self.denied.poll()
    }

    /// What of the chain applies to a method a session binds.
    pub(crate) fn plan_for(
        &mut self,
        side: Side,
        session: SessionKey,
        types: &MethodTypes,
    ) -> Option<Arc<Plan>> {
        let Self { admission, sessions, .. } = self;
        let application = sessions.find(session).map_or("", |session| session.application());
        let applicant = Applicant { side, application };
        let (plan, misfit) = applicant.plan(admission.chain_mut(), types, &types.path);
        admission.note_misfit(misfit);
        plan
    }

    /// Says for the host to log that a policy names a method that a service in `schema` does not have.
    pub(crate) fn note_misnamed(&mut self, schema: &BoundSchema) {
        let misnamed = self.admission.chain().misnamed(&[&*schema.schema]);
        self.admission.note_misfit(misnamed);
    }

    fn install(&mut self, plans: Plans) {
        for (_, misfit) in plans.found.misfits {
            self.admission.note_misfit(Some(misfit));
        }
        // Plans of methods that are forwarded are made when they are called.
        self.gateway.forget_plans();
        for (session, index, plan) in plans.routes {
            let routes = self.sessions.find_mut(session).map(|session| &mut session.routes);
            if let Some(Route::Calls { plan: old, .. }) = routes.and_then(|routes| routes.get_mut(index)) {
                *old = plan;
            }
        }
        for (server, plan) in self.registry.every_server_mut().zip(plans.servers) {
            server.plan = plan;
        }
        self.reserve_workers();
    }
}

impl Plans {
    fn of(chain: &mut Chain, sessions: &Table<Session>, registry: &Registry) -> Self {
        let mut plans = Self::default();
        for (key, session) in sessions.iter().filter(|(_, session)| !session.gone) {
            let applicant = Applicant { side: Side::Client, application: session.application() };
            for (index, route) in session.routes.iter().enumerate() {
                let Route::Calls { types, .. } = route else { continue };
                let (plan, misfit) = applicant.plan(chain, types, &types.path);
                plans.found.note((Side::Client, &types.path), plan.is_some(), misfit, Some(session));
                plans.routes.push((key, index, plan));
            }
        }
        for (_, server) in registry.every_server() {
            let application = sessions.find(server.session).map_or("", |session| session.application());
            let applicant = Applicant { side: Side::Server, application };
            let (plan, misfit) = applicant.plan(chain, &server.types, &server.types.path);
            let session = sessions.find(server.session);
            plans.found.note((Side::Server, &server.types.path), plan.is_some(), misfit, session);
            plans.servers.push(plan);
        }
        plans
    }
}

impl Found {
    /// What was found of a method as one application calls it, or serves it.
    fn note(
        &mut self,
        (side, path): (Side, &Arc<str>),
        applies: bool,
        misfit: Option<PolicyError>,
        session: Option<&Session>,
    ) {
        if !applies {
            return;
        }
        let method = (side, Arc::clone(path));
        let Some(mut misfit) = misfit else {
            self.fitting.insert(method);
            return;
        };
        if self.unfit.insert(method.clone()) {
            if let Some(session) = session {
                let (name, identity) = (session.application(), &session.identity);
                misfit.problem += &format!(", as {name:?} ({identity}) has it");
            }
            self.misfits.push((method, misfit));
        }
    }

    /// # Errors
    /// A policy that does not fit a method as anybody has it. An application that alone has it otherwise must not keep
    /// the operator from what fits the others.
    fn refuse(&self) -> Result<(), PolicyError> {
        let mut unfit = self.misfits.iter().filter(|(method, _)| !self.fitting.contains(method));
        unfit.next().map_or(Ok(()), |(_, misfit)| Err(misfit.clone()))
    }
}

/// Every schema that something here was bound with, once.
fn schemas<'a>(
    sessions: &'a Table<Session>,
    registry: &'a Registry,
    gateway: &'a Gateway,
) -> Vec<&'a Schema> {
    let routes = sessions.iter().flat_map(|(_, session)| &session.routes);
    let called = routes.filter_map(|route| match route {
        Route::Calls { types, .. } => Some(types),
        _ => None,
    });
    let served = registry.every_server().map(|(_, server)| &server.types);
    let mut seen = HashSet::new();
    let forwarded = gateway.settings.schemas.iter().map(|schema| &*schema.schema);
    let typed = called.chain(served).filter_map(|types| match &types.input {
        Form::Typed(of) => Some(&*of.schema.schema),
        Form::Opaque => None,
    });
    typed.chain(forwarded).filter(|schema| seen.insert(std::ptr::from_ref::<Schema>(schema))).collect()
}
