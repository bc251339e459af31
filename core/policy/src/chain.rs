//! The chain: policies in order, and the part of it that stands in the way of one method.

use crate::definition::{Definition, Side};
use crate::expr::{Expression, Wanted, did_you_mean};
use crate::module::{self, MODULE_FIELDS_MAX, Module, ModuleError, ModuleLoader, Modules};
use crate::plan::{MethodFit, Plan, Plans, Subject};
use crate::policy_set::{POLICIES_MAX, PolicySet};
use crate::refused::{PolicyError, Wrong};
use crate::rule::{Action, Class, ModuleInput, Rule};
use crate::setting::SettingValue;
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_balance::Settings;
use trunkline_call::WorkerChoice;
use trunkline_schema::Service;

/// A chain that was found sound as far as it can be without schemas.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// Whether any of them stands on the client's side, and on the server's.
    sides: [bool; 2],
    /// What was compiled of it and is in use.
    plans: Plans,
}

/// Policies that name a method, as far as its service is known. By their places in the chain.
#[derive(Debug, Default)]
pub struct MethodsNamed {
    /// Those whose method is there.
    pub known: Vec<usize>,
    /// Those whose method is not.
    pub misnamed: Vec<PolicyError>,
}

impl Chain {
    /// Checks definitions one by one and against each other.
    ///
    /// # Errors
    /// [`PolicyError`] names the policy, the key and what to write instead.
    pub fn build(definitions: &[Definition]) -> Result<Self, PolicyError> {
        let mut chain = Self::default();
        let mut names = HashSet::new();
        for (index, definition) in definitions.iter().enumerate() {
            let wrong = |wrong: Wrong| wrong.of_policy(index, &definition.name);
            if index >= POLICIES_MAX {
                let problem = format!("the chain has more than {POLICIES_MAX} policies");
                return Err(wrong(Wrong::new("", problem, "join conditions with ||")));
            }
            let rule = Rule::of(definition).map_err(wrong)?;
            if !names.insert(&definition.name) {
                let problem = format!("there are two policies named {:?}", definition.name);
                return Err(wrong(Wrong::new("name", problem, "give every policy a name of its own")));
            }
            chain.check_reachable(&rule).map_err(wrong)?;
            chain.check_alone(&rule).map_err(wrong)?;
            chain.sides[definition.side as usize] = true;
            chain.rules.push(Arc::new(rule));
        }
        Ok(chain)
    }

    /// What the chain was built from.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.rules.iter().map(|rule| &rule.definition)
    }

    /// Which policies name a method that is there, and which one that cannot be: its service is among these, and has it
    /// in none of them. Such a policy would judge nothing, and nobody would know. Several may describe one service.
    pub fn methods_named(&self, services: &[&Service]) -> MethodsNamed {
        let mut found = MethodsNamed::default();
        for (index, rule) in self.rules.iter().enumerate() {
            let of = &rule.definition;
            let (Some(service), Some(method)) = (of.service.as_deref(), of.method.as_deref()) else {
                continue;
            };
            let known = services.iter().filter(|known| known.full_name == service);
            let methods = known.flat_map(|service| &service.methods).map(|known| known.name.as_str());
            let mut methods: Vec<_> = methods.collect();
            if methods.contains(&method) {
                found.known.push(index);
            } else if !methods.is_empty() {
                methods.sort_unstable();
                methods.dedup();
                found.misnamed.push(misnamed(service, method, &methods).of_policy(index, &of.name));
            }
        }
        found
    }

    /// What is said about the endpoints of a service: by the first policy that names it, else by one for all services.
    pub fn balance(&self, service: &str) -> Option<&Settings> {
        let of = |named: Option<&str>| {
            self.rules.iter().find_map(|rule| match &rule.action {
                Action::Balance(settings) if rule.definition.service.as_deref() == named => Some(&**settings),
                _ => None,
            })
        };
        of(Some(service)).or_else(|| of(None))
    }

    /// The least rate that it gives calls of class *batch*.
    pub fn batch_rate_min(&self) -> Option<u64> {
        let rates = self.rules.iter().filter_map(|rule| match rule.action {
            Action::Priority(Class::Batch { bytes_per_second }) => Some(bytes_per_second),
            _ => None,
        });
        rates.min()
    }

    /// How many workers of this host a service's policies keep for which class.
    pub fn reservations(&self, service: &str) -> Vec<(u8, usize)> {
        let of_service = self.rules.iter().filter(|rule| rule.definition.service.as_deref() == Some(service));
        let mut all: Vec<(u8, usize)> = Vec::new();
        for rule in of_service {
            let Action::Workers { choice: WorkerChoice { class: Some(class), .. }, reserved } = rule.action
            else {
                continue;
            };
            // Several policies, each for a method, may name one class: its workers serve all of them.
            match all.iter_mut().find(|(known, _)| *known == class) {
                Some((_, count)) => *count = (*count).max(reserved),
                None => all.extend((reserved > 0).then_some((class, reserved))),
            }
        }
        all
    }

    /// Makes an instance for every policy that is a module, and learns what it wants to see.
    ///
    /// # Errors
    /// [`PolicyError`]: the file is no module, or refuses its settings, or asks for what nobody can show it.
    pub fn load_modules(&mut self, loader: &dyn ModuleLoader) -> Result<Modules, PolicyError> {
        self.load_some(loader, &|_| true)
    }

    /// The same of those that are `wanted`. Others [stay](crate::Policies::stage) as they are.
    ///
    /// # Errors
    /// As [`Chain::load_modules`].
    pub fn load_some(
        &mut self,
        loader: &dyn ModuleLoader,
        wanted: &dyn Fn(&Definition) -> bool,
    ) -> Result<Modules, PolicyError> {
        self.load_by(|definition, path, settings| {
            wanted(definition).then(|| loader.load(&definition.name, path, settings))
        })
    }

    /// Makes instances of the modules that are `loaded`, by policy and digest, whatever has become of their files.
    ///
    /// # Errors
    /// As [`Chain::load_modules`].
    pub fn load_again(
        &mut self,
        loader: &dyn ModuleLoader,
        loaded: &[(String, [u8; 32])],
    ) -> Result<Modules, PolicyError> {
        self.load_by(|definition, _, settings| {
            let (name, digest) = loaded.iter().find(|(name, _)| *name == definition.name)?;
            loader.load_again(name, digest, settings)
        })
    }

    fn load_by(
        &mut self,
        load: impl Fn(
            &Definition,
            &str,
            &[(String, SettingValue)],
        ) -> Option<Result<Box<dyn Module>, ModuleError>>,
    ) -> Result<Modules, PolicyError> {
        let mut modules = Modules::default();
        for (index, rule) in self.rules_mut().iter_mut().enumerate() {
            let Action::Module { on_fault, .. } = rule.action else { continue };
            let definition = &rule.definition;
            let wrong = |wrong: Wrong| wrong.of_policy(index, &definition.name);
            let (path, settings) = module::source(definition).map_err(wrong)?;
            let Some(loaded) = load(definition, path, &settings) else { continue };
            let module = loaded.map_err(|error| wrong(error.wrong()))?;
            let fields = inputs(&*module).map_err(wrong)?;
            modules.insert(&definition.name, module);
            Arc::make_mut(rule).action = Action::Module { fields, on_fault };
        }
        Ok(modules)
    }

    /// Whether no policy is in it.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any policy stands on this side of calls.
    #[inline]
    pub fn stands_on(&self, side: Side) -> bool {
        self.sides[side as usize]
    }

    /// What applies to a method, compiled; `None` if nothing does. The error is the first one met: the policy it names
    /// is part of the plan all the same, and refuses every call.
    pub fn plan(&mut self, subject: &Subject<'_>) -> (Option<Arc<Plan>>, Option<PolicyError>) {
        let Some(plan) = self.plans.plan(&self.rules, subject) else { return (None, None) };
        let misfit = plan.misfit(subject.path);
        (Some(plan), misfit)
    }

    /// Which of the policies that count fit a method whose plan this is, each by itself. None does that does not apply.
    pub fn fit(&mut self, plan: &Plan, subject: &Subject<'_>, counts: PolicySet) -> MethodFit {
        self.plans.fit(&self.rules, plan, subject, counts)
    }

    /// Policies that are about to change: what was compiled of them is worth nothing.
    pub(crate) fn rules_mut(&mut self) -> &mut [Arc<Rule>] {
        self.plans = Plans::default();
        &mut self.rules
    }

    /// Two policies that say how the same endpoints are picked contradict each other.
    fn check_alone(&self, rule: &Rule) -> Result<(), Wrong> {
        let same = |other: &&Arc<Rule>| {
            let both =
                [&other.action, &rule.action].iter().all(|action| matches!(action, Action::Balance(_)));
            both && other.definition.service == rule.definition.service
        };
        let Some(other) = self.rules.iter().find(same) else { return Ok(()) };
        let problem = format!("{:?} says already how these endpoints are picked", other.definition.name);
        Err(Wrong::new("service", problem, "join the two, or name another service"))
    }

    /// A policy behind one that lets nothing through would be there in vain: that is a mistake.
    fn check_reachable(&self, rule: &Rule) -> Result<(), Wrong> {
        let Some(wall) = self.rules.iter().find(|earlier| earlier.refuses_all() && earlier.covers(rule))
        else {
            return Ok(());
        };
        let problem = format!("can never be reached: {:?} refuses all of its calls", wall.definition.name);
        Err(Wrong::new("", problem, "put it before that one, or take one of the two out"))
    }
}

/// What is said about a method that a service does not have.
fn misnamed(service: &str, method: &str, methods: &[&str]) -> Wrong {
    let listed = || format!("its methods: {}", methods[..methods.len().min(12)].join(", "));
    let advice = did_you_mean(method, methods.iter().copied()).unwrap_or_else(listed);
    Wrong::new("method", format!("{service} has no method {method:?}"), advice)
}

/// What a module wants to see, as far as it can be checked without a schema.
fn inputs(module: &dyn Module) -> Result<Vec<ModuleInput>, Wrong> {
    let about = module.about();
    if about.fields.len() > MODULE_FIELDS_MAX {
        let problem = format!("{} wants to see {} fields", about.label(), about.fields.len());
        return Err(Wrong::new("path", problem, format!("a module may see {MODULE_FIELDS_MAX}")));
    }
    let input = |field: &module::ModuleField| {
        let parsed = Expression::parse(&field.expression, Wanted::Value(field.kind));
        let expression = parsed.map_err(|error| {
            let wrong = Wrong::of_expression("path", error);
            let problem = format!("{} wants {:?}: {}", about.label(), field.expression, wrong.problem);
            Wrong { problem, ..wrong }
        })?;
        Ok(ModuleInput { expression, optional: field.optional })
    };
    about.fields.iter().map(input).collect()
}
