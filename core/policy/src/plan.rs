//! The part of a chain that applies to a method, compiled, and shared by all it is the same for.
//!
//! One user's applications may have 131,072 methods, and what ten ordinary policies are compiled to takes 10 KB. So a
//! plan knows neither the path nor the application: it is made of the policies that apply, the type of the request if
//! one of them asks for it, and whether requests stream. A policy that asks for no type is compiled once, one that does
//! once for each type.
//!
//! What is here is bounded by what is in use: plans belong to the methods and calls that have them, and are found here
//! for as long as somebody has them. Those that ask for no type are few, since they differ by policies only; some are
//! kept beyond that, for calls whose methods are not told apart.

use crate::definition::Side;
use crate::expr::{Expression, Program};
use crate::policy_set::PolicySet;
use crate::refused::{PolicyError, Wrong};
use crate::rule::{Action, ModuleInput, Rule};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use trunkline_call::WorkerChoice;
use trunkline_schema::{MessageIndex, Schema};

/// Plans without a type that are kept though nobody has them, and policies of which it was found out what they fit.
const KEPT_MAX: usize = 256;

/// Entries below which nobody looks for those that are worth nothing any more.
const SWEPT_MIN: usize = 64;

/// A method as an application calls or serves it: what a chain is compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Whether the application calls or serves it.
    pub side: Side,
    /// The application's name.
    pub application: &'a str,
    /// `/package.Service/Method`
    pub path: &'a str,
    /// The request's type; `None` if the application brought no descriptors.
    pub request: Option<(&'a Arc<Schema>, MessageIndex)>,
    /// Requests are streams.
    pub client_streams: bool,
}

/// The part of a chain that applies to one [`Subject`], its expressions compiled.
#[derive(Debug)]
pub struct Plan {
    pub(crate) steps: Box<[Arc<Step>]>,
    applicable: PolicySet,
    needs_message: bool,
    needs_facts: bool,
    only_refuses: bool,
    client_streams: bool,
    choice: WorkerChoice,
    timeout_ns: Option<u64>,
}

/// One policy of a plan.
#[derive(Debug)]
pub(crate) struct Step {
    pub rule: Arc<Rule>,
    pub when: Option<Program>,
    /// The condition or the key.
    pub program: Option<Program>,
    /// What a module wants to see; `None` for what this type does not have.
    pub fields: Box<[Option<Program>]>,
    /// Cannot be asked before there is a message.
    pub reads_message: bool,
    /// Looks at something of the call beside its message.
    pub reads_facts: bool,
    /// Requests are streams.
    pub client_streams: bool,
    /// Why it could not be compiled for this type. It then refuses every call: an access rule that nobody can evaluate
    /// must not let anybody in.
    pub broken: Option<Box<PolicyError>>,
}

/// What was compiled of a chain.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    plans: Shared<PlanKey, Plan>,
    steps: Shared<StepKey, Step>,
    /// At most [`KEPT_MAX`].
    kept: Vec<Arc<Plan>>,
    /// At most [`KEPT_MAX`], which no plan has.
    kept_steps: Vec<Arc<Step>>,
}

/// Which policies of a chain fit a method, each held against it by itself, whatever those before it do.
#[derive(Debug, Default)]
pub struct MethodFit {
    /// Those that apply to it and fit.
    pub fitting: PolicySet,
    /// Those that apply and do not.
    pub misfits: Vec<PolicyError>,
}

/// What two plans differ by.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PlanKey {
    /// Those that apply.
    rules: PolicySet,
    request: Option<RequestType>,
    client_streams: bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StepKey {
    rule: usize,
    request: Option<RequestType>,
    client_streams: bool,
}

/// A message type. While this is kept, no other schema can be where its schema was.
#[derive(Clone, Debug)]
struct RequestType {
    schema: Weak<Schema>,
    index: MessageIndex,
}

/// Values for as long as somebody has them.
#[derive(Debug)]
struct Shared<K, V> {
    known: HashMap<K, Weak<V>>,
    /// So many entries there may be before those without a value are taken out.
    sweep_at: usize,
}

/// A clone is another shard's, which compiles its own.
impl Clone for Plans {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Plans {
    /// The plan for a method, compiled unless somebody has one like it; `None` if nothing applies.
    pub fn plan(&mut self, rules: &[Arc<Rule>], subject: &Subject<'_>) -> Option<Arc<Plan>> {
        let method = subject.path.strip_prefix('/').and_then(|path| path.split_once('/')).unwrap_or_default();
        let (mut applicable, mut needs_schema) = (PolicySet::default(), false);
        for (index, rule) in rules.iter().enumerate() {
            if rule.applies_to(subject.side, subject.application, method) {
                applicable.insert(index);
                needs_schema |= rule.needs_schema();
            }
        }
        if applicable.is_empty() {
            return None;
        }
        let request = RequestType::of(subject).filter(|_| needs_schema);
        let key = PlanKey { rules: applicable, request, client_streams: subject.client_streams };
        if let Some(known) = self.plans.find(&key) {
            return Some(known);
        }
        let plan = Arc::new(self.compile(rules, &key, subject));
        if key.request.is_none() {
            if self.kept.len() >= KEPT_MAX {
                self.kept.clear();
            }
            self.kept.push(Arc::clone(&plan));
        }
        self.plans.insert(key, &plan);
        Some(plan)
    }

    fn compile(&mut self, rules: &[Arc<Rule>], key: &PlanKey, subject: &Subject<'_>) -> Plan {
        let mut steps: Vec<Arc<Step>> = Vec::new();
        for (index, rule) in rules.iter().enumerate().filter(|(index, _)| key.rules.contains(*index)) {
            // One that does not fit refuses every call: of those behind it only logs are asked.
            let is_over = steps.iter().any(|step| step.broken.is_some());
            if !is_over || matches!(rule.action, Action::AccessLog { .. }) {
                steps.push(self.step(index, rule, subject));
            }
        }
        Plan::of(steps, key.rules, subject.client_streams)
    }

    /// Which of those that count and apply to a method fit it, whose plan this is: a plan ends at the first that does
    /// not.
    pub fn fit(
        &mut self,
        rules: &[Arc<Rule>],
        plan: &Plan,
        subject: &Subject<'_>,
        counts: PolicySet,
    ) -> MethodFit {
        let counting = plan.applicable.common(counts);
        if plan.steps.iter().all(|step| step.broken.is_none()) {
            return MethodFit { fitting: counting, misfits: Vec::new() };
        }
        let mut fit = MethodFit::default();
        for (index, rule) in rules.iter().enumerate().filter(|(index, _)| counting.contains(*index)) {
            let step = self.step(index, rule, subject);
            match &step.broken {
                None => fit.fitting.insert(index),
                Some(misfit) => fit.misfits.push(misfit_at(misfit, subject.path)),
            }
            if Arc::strong_count(&step) == 1 {
                // Nobody else has it; the next method may be one of many that it is asked for.
                if self.kept_steps.len() >= KEPT_MAX {
                    self.kept_steps.clear();
                }
                self.kept_steps.push(step);
            }
        }
        fit
    }

    fn step(&mut self, index: usize, rule: &Arc<Rule>, subject: &Subject<'_>) -> Arc<Step> {
        let request = RequestType::of(subject).filter(|_| rule.needs_schema());
        let key = StepKey { rule: index, request, client_streams: subject.client_streams };
        self.steps.find(&key).unwrap_or_else(|| {
            let step = Step::compile(rule, subject)
                .unwrap_or_else(|wrong| Step::broken(rule, wrong.of_policy(index, &rule.definition.name)));
            let step = Arc::new(step);
            self.steps.insert(key, &step);
            step
        })
    }
}

impl Plan {
    fn of(steps: Vec<Arc<Step>>, applicable: PolicySet, client_streams: bool) -> Self {
        let mut choice = WorkerChoice::default();
        for step in &steps {
            if let Action::Workers { choice: said, .. } = step.rule.action {
                choice = choice.or(said);
            }
        }
        let timeout = |step: &Arc<Step>| match step.rule.action {
            Action::Timeout { ns } if step.when.is_none() && step.broken.is_none() => Some(ns),
            _ => None,
        };
        Self {
            timeout_ns: steps.iter().filter_map(timeout).min(),
            needs_message: steps.iter().any(|step| step.reads_message),
            needs_facts: steps.iter().any(|step| step.reads_facts),
            only_refuses: steps.iter().all(|step| matches!(step.rule.action, Action::Access { .. })),
            steps: steps.into(),
            applicable,
            client_streams,
            choice,
        }
    }

    /// The first policy that does not fit the method at this path.
    pub(crate) fn misfit(&self, path: &str) -> Option<PolicyError> {
        let misfit = self.steps.iter().find_map(|step| step.broken.as_deref())?;
        Some(misfit_at(misfit, path))
    }

    /// Whether some policy looks at the message, so that it must be private and checked before.
    pub fn needs_message(&self) -> bool {
        self.needs_message
    }

    /// Whether some policy looks at anything of the call beside its message: if none does, nothing of it is asked for.
    pub fn needs_facts(&self) -> bool {
        self.needs_facts
    }

    /// Whether its policies do nothing but let calls go on or refuse them:
    /// [`Policies::permit`](crate::Policies::permit) does for it.
    pub fn only_refuses(&self) -> bool {
        self.only_refuses
    }

    /// Whether requests are streams.
    pub fn client_streams(&self) -> bool {
        self.client_streams
    }

    /// Which worker calls go to: of several policies the first that says something holds.
    pub fn choice(&self) -> WorkerChoice {
        self.choice
    }

    /// The longest that policies without a condition let calls take.
    pub fn timeout_ns(&self) -> Option<u64> {
        self.timeout_ns
    }

    /// Whether later messages of the call are looked at, too.
    pub fn inspects_messages(&self) -> bool {
        self.needs_message && self.client_streams
    }
}

impl Step {
    fn compile(rule: &Arc<Rule>, subject: &Subject<'_>) -> Result<Self, Wrong> {
        let mut step = Self { client_streams: subject.client_streams, ..Self::empty(rule) };
        for (key, expression) in rule.expressions() {
            let program = compiled(key, expression, subject)?;
            step.reads_message |= expression.reads_request();
            step.reads_facts |= program.reads_facts();
            match key {
                "when" => step.when = Some(program),
                _ => step.program = Some(program),
            }
        }
        if let Action::Module { fields, .. } = &rule.action {
            // It is told all of them.
            step.reads_facts = true;
            let compiled: Result<_, _> = fields.iter().map(|field| step.field(field, subject)).collect();
            step.fields = compiled?;
        }
        if step.reads_message && subject.client_streams && !matches!(rule.action, Action::Access { .. }) {
            let problem = "looks at the request, and the method has a stream of them; only kind \"access\" looks at \
                           every message";
            return Err(Wrong::new("", problem, "name a unary method, or decide by metadata"));
        }
        Ok(step)
    }

    /// A field a module wants to see. One it can do without may be missing: in the type, or on a stream, where there
    /// is no message yet.
    fn field(&mut self, field: &ModuleInput, subject: &Subject<'_>) -> Result<Option<Program>, Wrong> {
        let reads = field.expression.reads_request();
        if field.optional && reads && subject.client_streams {
            return Ok(None);
        }
        match compiled("path", &field.expression, subject) {
            Ok(program) => {
                self.reads_message |= reads;
                Ok(Some(program))
            }
            Err(_) if field.optional => Ok(None),
            Err(wrong) => {
                let problem = format!("its module wants {}: {}", field.expression.text(), wrong.problem);
                Err(Wrong { problem, ..wrong })
            }
        }
    }

    fn empty(rule: &Arc<Rule>) -> Self {
        Self {
            rule: Arc::clone(rule),
            when: None,
            program: None,
            fields: Box::default(),
            reads_message: false,
            reads_facts: false,
            client_streams: false,
            broken: None,
        }
    }

    fn broken(rule: &Arc<Rule>, error: PolicyError) -> Self {
        Self { broken: Some(error.into()), ..Self::empty(rule) }
    }
}

impl RequestType {
    fn of(subject: &Subject<'_>) -> Option<Self> {
        let (schema, index) = subject.request?;
        Some(Self { schema: Arc::downgrade(schema), index })
    }
}

impl PartialEq for RequestType {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && self.schema.ptr_eq(&other.schema)
    }
}

impl Eq for RequestType {}

impl Hash for RequestType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.schema.as_ptr(), self.index).hash(state);
    }
}

impl<K, V> Default for Shared<K, V> {
    fn default() -> Self {
        Self { known: HashMap::new(), sweep_at: SWEPT_MIN }
    }
}

impl<K: Hash + Eq, V> Shared<K, V> {
    fn find(&self, key: &K) -> Option<Arc<V>> {
        self.known.get(key)?.upgrade()
    }

    /// Notes a value that somebody is about to have. From time to time those nobody has any more are taken out, so that
    /// there are at most twice as many entries as were in use then.
    fn insert(&mut self, key: K, value: &Arc<V>) {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, value| value.strong_count() > 0);
            self.known.shrink_to(self.known.len() * 2);
            self.sweep_at = SWEPT_MIN.max(self.known.len() * 2);
        }
        self.known.insert(key, Arc::downgrade(value));
    }
}

/// In words that name the method.
fn misfit_at(misfit: &PolicyError, path: &str) -> PolicyError {
    PolicyError { problem: format!("{} (for {path})", misfit.problem), ..misfit.clone() }
}

fn compiled(key: &'static str, expression: &Expression, subject: &Subject<'_>) -> Result<Program, Wrong> {
    let request = subject.request.map(|(schema, index)| (&**schema, index));
    expression.compile(request).map_err(|error| Wrong::of_expression(key, error))
}
