//! Plans for everything that is bound, made as a whole when the chain is exchanged.

use super::plans::{Applicant, request_of};
use crate::registry::{Form, MethodTypes, service_of};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use trunkline_policy::{Chain, MethodFit, Plan, PolicyError, PolicySet, Side};
use trunkline_schema::{Schema, Service};

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
    /// Not at all: it is only said what of it fits.
    Trial,
    /// If it fits what is bound.
    IfFits,
    /// In any case, because the shards of the host have found it to do before, or it is at work.
    Found,
}

/// What of a chain's new policies fits the methods that are bound, on one shard or on several. Those that were at work
/// before count for nothing: whatever was bound since must not keep the operator from changing others.
#[derive(Debug, Default)]
pub struct ChainFit {
    /// Which of them fit each method as some application has it to which they apply.
    fitting: HashMap<(Side, Arc<str>), PolicySet>,
    /// Methods that one of them does not fit as some application has them, in the order in which they were found.
    unfit: Vec<((Side, Arc<str>), PolicyError)>,
    /// Places of policies that name a method which somebody has.
    known: HashSet<usize>,
    /// Policies that name a method which those who have its service do not have.
    misnamed: Vec<PolicyError>,
    /// What does not fit a type that the operator has told.
    told: Option<PolicyError>,
}

impl MethodSubject<'_> {
    /// What of a chain applies to it, and the policy that does not fit it, if there is one.
    pub(super) fn plan(&self, chain: &mut Chain) -> (Option<Arc<Plan>>, Option<PolicyError>) {
        self.applicant().plan(chain, self.types, &self.types.path)
    }

    /// Which of the policies that count fit it, whose plan this is, each by itself.
    fn fit(&self, chain: &mut Chain, plan: &Plan, counts: PolicySet) -> MethodFit {
        let request = request_of(self.types);
        self.applicant().fit((chain, plan), self.types, request, &self.types.path, counts)
    }

    fn applicant(&self) -> Applicant<'_> {
        let application = self.holder.map_or("", |holder| holder.application);
        Applicant { side: self.side, application }
    }

    /// What does not fit, in words that say who has it so.
    fn held(&self, mut misfit: PolicyError) -> PolicyError {
        if let Some(MethodHolder { application, identity }) = self.holder {
            misfit.problem += &format!(", as {application:?} ({identity}) has it");
        }
        misfit
    }
}

impl BoundMethods<'_> {
    /// What of a chain applies to each, policies that do not fit a method (once for each method), and what of those
    /// that are `news` fits.
    pub(super) fn plan(
        &self,
        chain: &mut Chain,
        news: PolicySet,
    ) -> (BoundPlans, Vec<PolicyError>, ChainFit) {
        let (mut fit, mut misfits) = (ChainFit::default(), Vec::new());
        let (mut seen, mut seen_new) = (HashSet::new(), HashSet::new());
        let mut plan = |method: &MethodSubject<'_>| {
            let (plan, misfit) = method.plan(chain);
            let name = || (method.side, Arc::clone(&method.types.path));
            if let Some(misfit) = misfit
                && seen.insert(name())
            {
                misfits.push(method.held(misfit));
            }
            if let Some(plan) = &plan {
                let found = method.fit(chain, plan, news);
                if !found.fitting.is_empty() {
                    fit.fitting.entry(name()).or_default().join(found.fitting);
                }
                for misfit in found.misfits {
                    if seen_new.insert((misfit.index, name())) {
                        fit.unfit.push((name(), method.held(misfit)));
                    }
                }
            }
            plan
        };
        let called = self.called.iter().map(&mut plan).collect();
        let served = self.served.iter().map(&mut plan).collect();
        let named = chain.methods_named(&self.services());
        fit.known.extend(named.known);
        fit.misnamed.extend(named.misnamed.into_iter().filter(|misnamed| news.contains(misnamed.index)));
        (BoundPlans { called, served }, misfits, fit)
    }

    /// Every service of which somebody has bound a method, as those describe it, each description once; and those that
    /// the operator has told. That a descriptor set has a service says nothing: whoever wants may send one.
    fn services(&self) -> Vec<&Service> {
        let mut seen = HashSet::new();
        let bound = self.called.iter().chain(&self.served);
        let typed = bound.filter_map(|method| match &method.types.input {
            Form::Typed(of) => of.schema.schema.service_named(service_of(&method.types.path)),
            Form::Opaque => None,
        });
        let all = typed.chain(self.told.iter().flat_map(|schema| schema.services()));
        all.filter(|service| seen.insert(std::ptr::from_ref::<Service>(service))).collect()
    }
}

impl ChainFit {
    /// Adds what another shard has found, or that it does not fit what the operator has told of types.
    pub fn join(&mut self, other: Self) {
        let Self { fitting, unfit, known, misnamed, told } = other;
        fitting.into_iter().for_each(|(name, set)| self.fitting.entry(name).or_default().join(set));
        self.unfit.extend(unfit);
        self.known.extend(known);
        self.misnamed.extend(misnamed);
        self.told = self.told.take().or(told);
    }

    pub(super) fn note_told(&mut self, fits: Result<(), PolicyError>) {
        self.told = fits.err();
    }

    /// # Errors
    /// A new policy that names a method which cannot exist, or does not fit a method as anybody has it. An application
    /// that alone has it otherwise must not keep the operator from what fits the others.
    pub fn refuse(&self) -> Result<(), PolicyError> {
        let misnamed = self.misnamed.iter().find(|misnamed| !self.known.contains(&misnamed.index));
        let fits = |method, index| self.fitting.get(method).is_some_and(|set| set.contains(index));
        let mut unfit = self.unfit.iter().filter(|(method, misfit)| !fits(method, misfit.index));
        let unfit = || unfit.next().map(|(_, misfit)| misfit);
        let first = misnamed.or(self.told.as_ref()).or_else(unfit);
        first.map_or(Ok(()), |misfit| Err(misfit.clone()))
    }
}
