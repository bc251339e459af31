//! Plans for everything that is bound, made as a whole when the chain is exchanged.

use super::plans::Applicant;
use crate::registry::{Form, MethodTypes};
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_policy::{Chain, Plan, PolicyError, Side};
use trunkline_schema::Schema;

/// A method as somebody here has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MethodSubject<'a> {
    /// Whether it is called or served.
    pub side: Side,
    pub types: &'a Arc<MethodTypes>,
    /// By whom; `None` if those are gone.
    pub holder: Option<MethodHolder<'a>>,
}

/// Who calls or serves a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MethodHolder<'a> {
    /// Its name without the process.
    pub application: &'a str,
    pub identity: &'a str,
}

/// All methods that somebody calls or serves, in an order in which plans can be [put](BoundPlans) in their places.
#[derive(Debug)]
pub(crate) struct BoundMethods<'a> {
    pub called: Vec<MethodSubject<'a>>,
    pub served: Vec<MethodSubject<'a>>,
    /// What the operator has told the types of besides.
    pub told: Vec<&'a Schema>,
}

/// A plan for each of [`BoundMethods`], in the same order.
#[derive(Debug, Default)]
pub(crate) struct BoundPlans {
    pub called: Vec<Option<Arc<Plan>>>,
    pub served: Vec<Option<Arc<Plan>>>,
}

/// How a chain is put in the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainExchange {
    /// Not at all: it is only said whether it would do.
    Trial,
    /// If it fits what is bound.
    IfFits,
    /// In any case, because every shard of the host has found it to do before.
    Found,
}

/// Which methods a chain fits as some application has them, and which not as another has them.
#[derive(Debug, Default)]
pub(super) struct Fitting {
    fitting: HashSet<(Side, Arc<str>)>,
    unfit: HashSet<(Side, Arc<str>)>,
    /// One of each that is unfit, in the order in which they were found.
    misfits: Vec<((Side, Arc<str>), PolicyError)>,
}

impl MethodSubject<'_> {
    /// What of a chain applies to it, and the policy that does not fit it, if there is one.
    pub(super) fn plan(&self, chain: &mut Chain) -> (Option<Arc<Plan>>, Option<PolicyError>) {
        let application = self.holder.map_or("", |holder| holder.application);
        Applicant { side: self.side, application }.plan(chain, self.types, &self.types.path)
    }
}

impl BoundMethods<'_> {
    /// What of a chain applies to each, and what it fits.
    pub(super) fn plan(&self, chain: &mut Chain) -> (BoundPlans, Fitting) {
        let mut found = Fitting::default();
        let mut plan = |method: &MethodSubject<'_>| {
            let (plan, misfit) = method.plan(chain);
            if plan.is_some() {
                found.note(method, misfit);
            }
            plan
        };
        let called = self.called.iter().map(&mut plan).collect();
        let served = self.served.iter().map(&mut plan).collect();
        (BoundPlans { called, served }, found)
    }

    /// Every schema that something was bound with, once.
    pub(super) fn schemas(&self) -> Vec<&Schema> {
        let mut seen = HashSet::new();
        let bound = self.called.iter().chain(&self.served);
        let typed = bound.filter_map(|method| match &method.types.input {
            Form::Typed(of) => Some(&*of.schema.schema),
            Form::Opaque => None,
        });
        let all = typed.chain(self.told.iter().copied());
        all.filter(|schema| seen.insert(std::ptr::from_ref::<Schema>(schema))).collect()
    }
}

impl Fitting {
    /// What was found of a method that the chain applies to, as one application has it.
    fn note(&mut self, bound: &MethodSubject<'_>, misfit: Option<PolicyError>) {
        let method = (bound.side, Arc::clone(&bound.types.path));
        let Some(mut misfit) = misfit else {
            self.fitting.insert(method);
            return;
        };
        if self.unfit.insert(method.clone()) {
            if let Some(MethodHolder { application, identity }) = bound.holder {
                misfit.problem += &format!(", as {application:?} ({identity}) has it");
            }
            self.misfits.push((method, misfit));
        }
    }

    /// # Errors
    /// A policy that does not fit a method as anybody has it. An application that alone has it otherwise must not keep
    /// the operator from what fits the others.
    pub(super) fn refuse(&self) -> Result<(), PolicyError> {
        let mut unfit = self.misfits.iter().filter(|(method, _)| !self.fitting.contains(method));
        unfit.next().map_or(Ok(()), |(_, misfit)| Err(misfit.clone()))
    }

    /// Policies that do not fit a method as some have it: each once.
    pub(super) fn into_misfits(self) -> impl Iterator<Item = PolicyError> {
        self.misfits.into_iter().map(|(_, misfit)| misfit)
    }
}
