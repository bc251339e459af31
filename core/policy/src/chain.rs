//! The chain: policies in order, and the part of it that stands in the way of one method.

use crate::definition::{Definition, Side};
use crate::expr::{Expression, Program, Wanted, did_you_mean};
use crate::module::{self, MODULE_FIELDS_MAX, Module, ModuleLoader, Modules};
use crate::refused::{PolicyError, Wrong};
use crate::rule::{Action, ModuleInput, Rule};
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_balance::Settings;
use trunkline_call::WorkerChoice;
use trunkline_schema::{MessageIndex, Schema};

/// Policies of one chain. Every call passes those that apply to it, in order.
pub const POLICIES_MAX: usize = 256;

/// A chain that was found sound as far as it can be without schemas.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// Whether any of them stands on the client's side, and on the server's.
    sides: [bool; 2],
}

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
    pub request: Option<(&'a Schema, MessageIndex)>,
    /// Requests are streams.
    pub client_streams: bool,
}

/// The part of a chain that applies to one [`Subject`], its expressions compiled.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) steps: Vec<Step>,
    needs_message: bool,
    needs_facts: bool,
    only_refuses: bool,
    client_streams: bool,
    choice: WorkerChoice,
}

/// One policy of a plan.
#[derive(Clone, Debug)]
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
    /// Why it could not be compiled for this method. It then refuses every call: an access rule that nobody can
    /// evaluate must not let anybody in.
    pub broken: Option<Box<str>>,
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

    /// A policy for a method that cannot exist: some of the schemas have its service, and none has the method there.
    /// It would judge nothing, and nobody would know.
    pub fn misnamed(&self, schemas: &[&Schema]) -> Option<PolicyError> {
        let mut rules = self.rules.iter().enumerate();
        rules.find_map(|(index, rule)| {
            let of = &rule.definition;
            let (service, method) = (of.service.as_deref()?, of.method.as_deref()?);
            let known = schemas.iter().filter_map(|schema| schema.service_named(service));
            let mut methods =
                known.flat_map(|service| &service.methods).map(|known| known.name.as_str()).peekable();
            methods.peek()?;
            // Several schemas may describe one service.
            let mut methods: Vec<_> = methods.collect();
            methods.sort_unstable();
            methods.dedup();
            if methods.contains(&method) {
                return None;
            }
            let advice = did_you_mean(method, methods.iter().copied());
            let advice = advice
                .unwrap_or_else(|| format!("its methods: {}", methods[..methods.len().min(12)].join(", ")));
            let wrong = Wrong::new("method", format!("{service} has no method {method:?}"), advice);
            Some(wrong.of_policy(index, &of.name))
        })
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
        let mut modules = Modules::default();
        for (index, rule) in self.rules.iter_mut().enumerate() {
            let Action::Module { on_fault, .. } = rule.action else { continue };
            let definition = &rule.definition;
            let wrong = |wrong: Wrong| wrong.of_policy(index, &definition.name);
            let (path, settings) = module::source(definition).map_err(wrong)?;
            let loaded = loader.load(&definition.name, path, &settings);
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

    /// Compiles what applies to a method; `None` if nothing does. The error is the first one met: the policy it names
    /// is part of the plan all the same, and refuses every call.
    pub fn plan(&self, subject: &Subject<'_>) -> (Option<Plan>, Option<PolicyError>) {
        let client_streams = subject.client_streams;
        let choice = WorkerChoice::default();
        let mut plan = Plan {
            steps: Vec::new(),
            needs_message: false,
            needs_facts: false,
            only_refuses: true,
            client_streams,
            choice,
        };
        let mut first = None;
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.applies_to(subject.side, subject.application, subject.path) {
                continue;
            }
            let step = Step::compile(rule, subject).unwrap_or_else(|wrong| {
                let error = wrong.of_policy(index, &rule.definition.name);
                let broken = Step::broken(rule, &error);
                first.get_or_insert(error);
                broken
            });
            plan.needs_message |= step.reads_message;
            plan.needs_facts |= step.reads_facts;
            plan.only_refuses &= matches!(rule.action, Action::Access { .. });
            if let Action::Workers { choice, .. } = rule.action {
                plan.choice = plan.choice.or(choice);
            }
            plan.steps.push(step);
        }
        ((!plan.steps.is_empty()).then_some(plan), first)
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

impl Plan {
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
            let problem = format!(
                "looks at the request, and {} has a stream of them; only kind \"access\" looks at every message",
                subject.path
            );
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

    fn broken(rule: &Arc<Rule>, error: &PolicyError) -> Self {
        Self { broken: Some(error.to_string().into()), ..Self::empty(rule) }
    }
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

fn compiled(key: &'static str, expression: &Expression, subject: &Subject<'_>) -> Result<Program, Wrong> {
    let program = expression.compile(subject.request).map_err(|error| Wrong::of_expression(key, error));
    program.map_err(|wrong| Wrong { problem: format!("{} (for {})", wrong.problem, subject.path), ..wrong })
}
