//! The chain at work: what it decides about calls, what it remembers, and how it is exchanged.

use crate::admission::{Admission, Exchanged, Mirror, Permits, Rejection, Ticket, Verdict, Watched};
use crate::bucket::Rate;
use crate::chain::Chain;
use crate::definition::{Definition, OnFault};
use crate::expr::{EvalError, FieldValue, Inputs};
use crate::host::HostPart;
use crate::module::{MODULE_FIELDS_MAX, Module, ModuleCall, ModuleEnd, ModuleError, ModuleRow};
use crate::plan::{Plan, Step};
use crate::queue::{self, QueueSettings};
use crate::refused::PolicyError;
use crate::rule::{Action, Rule};
use crate::running::Running;
use crate::state::{Figures, Slot, State, States};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_balance::Random;
use trunkline_call::{Code, Instant};

/// A chain and the state of its policies.
#[derive(Debug)]
pub struct Policies {
    pub(crate) chain: Chain,
    pub(crate) states: States,
    pub(crate) random: Random,
    /// Keeps others from choosing keys that collide.
    pub(crate) seed: u64,
    /// Whether another process had that seed before: buckets know their keys by it.
    pub(crate) is_inherited: bool,
    /// Queues with room for one more.
    pub(crate) freed: Vec<Slot>,
    /// What follows from an exchange for calls that wait.
    pub(crate) exchanged: Exchanged,
    /// Modules nobody needs any more, until the host takes them.
    pub(crate) retired: Vec<Box<dyn Module>>,
    /// Modules that were ejected, until the host has logged it. Each is ejected once.
    pub(crate) ejected: VecDeque<PolicyError>,
    /// When it was last asked about a call.
    pub(crate) latest: Instant,
    /// The other shards of the host, if there are any.
    pub(crate) host: Option<HostPart>,
}

/// A policy and what it has done, for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRow {
    /// As it was written.
    pub definition: Definition,
    /// Since it was added.
    pub figures: Figures,
    /// Of a module.
    pub module: Option<ModuleRow>,
}

impl Policies {
    /// No policy. `seed` is chance from the host.
    pub fn new(seed: u64) -> Self {
        Self {
            chain: Chain::default(),
            states: States::default(),
            random: Random::new(seed),
            seed: !seed,
            is_inherited: false,
            freed: Vec::new(),
            exchanged: Exchanged::default(),
            retired: Vec::new(),
            ejected: VecDeque::new(),
            latest: Instant::default(),
            host: None,
        }
    }

    /// Takes chance in from the host; the chain stays.
    pub fn seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
        let was = std::mem::replace(&mut self.seed, !seed);
        if let Some(host) = &self.host {
            host.seed_keys_in_place_of(was, self.seed);
        }
    }

    /// Asks every policy of a plan about a call that begins, and adds what they say to what those of another plan said.
    /// Once a fault is to end it, only logs are asked. `message` tells whether its first message is there.
    ///
    /// # Errors
    /// The first refusal; what was held is given back, and the admission worth nothing.
    pub fn admit(
        &mut self,
        plan: &Plan,
        now: Instant,
        inputs: &Inputs<'_>,
        message: bool,
        admission: &mut Admission,
    ) -> Result<(), Rejection> {
        self.latest = now;
        let seed = self.key_seed();
        for (index, step) in plan.steps.iter().enumerate() {
            if admission.ends.is_some() {
                // It reaches nobody who is behind a fault that ends it.
                self.logs(plan, now, inputs, index, admission);
                return Ok(());
            }
            let Some(state) = self.states.find(step.rule.slot) else { continue };
            state.figures.seen += 1;
            if step.reads_message && !message {
                // A stream: its messages are looked at as they come.
                continue;
            }
            let (random, ejected) = (&mut self.random, &mut self.ejected);
            let mut asked = Asked { step, state, random, ejected, seed, now };
            if let Err(mut rejection) = asked.ask(inputs, admission) {
                asked.state.figures.refused += 1;
                self.finish(now, std::mem::take(&mut admission.permits), rejection.code);
                rejection.log = self.logs(plan, now, inputs, index + 1, admission);
                return Err(rejection);
            }
        }
        Ok(())
    }

    /// Asks every policy of a plan that [only refuses](Plan::only_refuses) about a call that begins, as
    /// [`Policies::admit`] does: there is nothing else it could say.
    ///
    /// # Errors
    /// The first refusal.
    #[inline]
    pub fn permit(
        &mut self,
        plan: &Plan,
        now: Instant,
        inputs: &Inputs<'_>,
        message: bool,
    ) -> Result<(), Rejection> {
        self.latest = now;
        for step in &plan.steps {
            let Some(state) = self.states.find(step.rule.slot) else { continue };
            state.figures.seen += 1;
            if step.reads_message && !message {
                continue;
            }
            let (random, ejected) = (&mut self.random, &mut self.ejected);
            let mut asked = Asked { step, state, random, ejected, seed: 0, now };
            if let Err(rejection) = asked.pass(inputs) {
                asked.state.figures.refused += 1;
                return Err(rejection);
            }
        }
        Ok(())
    }

    /// Asks the policies that look at messages about a later one.
    ///
    /// # Errors
    /// The first refusal.
    pub fn inspect(&mut self, plan: &Plan, now: Instant, inputs: &Inputs<'_>) -> Result<(), Rejection> {
        let seed = self.key_seed();
        for step in plan.steps.iter().filter(|step| step.reads_message) {
            let Some(state) = self.states.find(step.rule.slot) else { continue };
            let (random, ejected) = (&mut self.random, &mut self.ejected);
            let mut asked = Asked { step, state, random, ejected, seed, now };
            if let Err(rejection) = asked.ask(inputs, &mut Admission::default()) {
                asked.state.figures.refused += 1;
                return Err(rejection);
            }
        }
        Ok(())
    }

    /// Whether a call that is refused, or will be ended, is to be logged: by a log before the policy that says so, or
    /// behind.
    fn logs(
        &mut self,
        plan: &Plan,
        now: Instant,
        inputs: &Inputs<'_>,
        from: usize,
        admission: &mut Admission,
    ) -> bool {
        let seed = self.key_seed();
        let behind = plan.steps.iter().skip(from);
        for step in behind.filter(|step| matches!(step.rule.action, Action::AccessLog { .. })) {
            let Some(state) = self.states.find(step.rule.slot) else { continue };
            state.figures.seen += 1;
            let (random, ejected) = (&mut self.random, &mut self.ejected);
            let mut asked = Asked { step, state, random, ejected, seed, now };
            let _ = asked.ask(inputs, admission);
        }
        admission.log
    }

    /// A call that was admitted has ended with `code`.
    pub fn finish(&mut self, now: Instant, permits: Permits, code: Code) {
        for Watched { slot, token, since } in permits.watched {
            let running = self.states.find(slot).and_then(|state| state.module.as_mut());
            let end = ModuleEnd { code, now, elapsed_ns: now.since_ns(since), token };
            let told = running.map_or(Ok(()), |running| running.finish(&end));
            if let Err(error) = told
                && let Some(rule) = self.chain.rules.iter().find(|rule| rule.slot == slot)
            {
                self.ejected.push_back(ejection(&rule.definition, error));
            }
        }
        for slot in permits.places {
            let Some(state) = self.states.find(slot) else { continue };
            state.places.give_back();
            match state.places.next_turn() {
                Some(shard) => self.tell(Some(shard), slot),
                None if state.queue.len() > 0 => self.look_at(slot),
                None => {}
            }
        }
    }

    /// A call that was admitted is gone, and nobody says how: it was given up.
    pub fn release(&mut self, permits: Permits) {
        self.finish(self.latest, permits, Code::Cancelled);
    }

    /// A module that was ejected since, for the host to log.
    pub fn poll_ejected(&mut self) -> Option<PolicyError> {
        self.ejected.pop_front()
    }

    /// A call waits from now on, until it is [served](Policies::serve) under `token`, leaves, or is late.
    pub fn enqueue(&mut self, now: Instant, ticket: Ticket, token: u64) {
        if let Some(state) = self.states.find(ticket.slot) {
            state.figures.delayed += 1;
            state.queue.push(now, token, ticket.urgent);
            if state.note_waiting() {
                self.tell(None, ticket.slot);
                // A place may have come free meanwhile.
                self.look_at(ticket.slot);
            }
        }
    }

    /// A call that waited has ended otherwise.
    pub fn leave(&mut self, ticket: Ticket, token: u64) {
        if let Some(state) = self.states.find(ticket.slot) {
            state.queue.remove(token);
            state.note_waiting();
            if state.places.is_waited_for() {
                // A place that was meant for it is somebody else's.
                self.look_at(ticket.slot);
            }
        }
    }

    /// Whether [`Policies::serve`] may have something to say.
    #[inline]
    pub fn may_serve(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The next call that may go on because others have ended, or that must not wait any longer.
    #[inline]
    pub fn serve(&mut self, now: Instant) -> Option<Verdict> {
        // Asked after everything that happens; nearly always, nobody waits.
        if self.freed.is_empty() { None } else { self.serve_freed(now) }
    }

    fn serve_freed(&mut self, now: Instant) -> Option<Verdict> {
        if let Some(verdict) = self.poll_exchanged(now) {
            return Some(verdict);
        }
        while let Some(slot) = self.freed.last().copied() {
            match self.states.find(slot).and_then(|state| state.next_waiting(now)) {
                None => {
                    self.freed.pop();
                    self.pass_place_on(slot);
                }
                Some(queue::Turn::Shed(token)) => return Some(Verdict::Shed(token, self.shed(slot))),
                Some(queue::Turn::Served(token)) => {
                    return Some(Verdict::Served(token, Permits::of(slot)));
                }
            }
        }
        None
    }

    /// A call has waited as long as any may; unless another chain says otherwise by now. One whose policy is gone goes
    /// on.
    pub fn late(&mut self, now: Instant, ticket: Ticket, token: u64) -> Verdict {
        let Some(state) = self.states.find(ticket.slot) else {
            return Verdict::Served(token, Permits::default());
        };
        if let Some(until) = state.queue.end(token).filter(|until| *until > now) {
            return Verdict::Waits(token, until);
        }
        state.queue.remove(token);
        state.note_waiting();
        if state.places.is_waited_for() {
            self.look_at(ticket.slot);
        }
        Verdict::Shed(token, self.shed(ticket.slot))
    }

    /// The longest a call may wait.
    pub fn waits_ns(&mut self, ticket: Ticket) -> u64 {
        self.states.find(ticket.slot).map_or(0, |state| state.queue.settings.interval_ns)
    }

    fn shed(&mut self, slot: Slot) -> Rejection {
        if let Some(state) = self.states.find(slot) {
            state.figures.refused += 1;
        }
        let rule = self.chain.rules.iter().find(|rule| rule.slot == slot);
        let definition = rule.map(|rule| &rule.definition);
        let own = || "overloaded: the call has waited too long".to_owned();
        let why = definition.and_then(|definition| definition.message.clone()).unwrap_or_else(own);
        let policy = definition.map_or_else(String::new, |definition| definition.name.clone());
        Rejection { policy, code: Code::Unavailable, why, log: false }
    }

    /// The chain at work.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The same, to have it compiled for methods.
    pub fn chain_mut(&mut self) -> &mut Chain {
        &mut self.chain
    }

    /// The policies in order, with their figures.
    pub fn rows(&self) -> Vec<PolicyRow> {
        let row = |rule: &Arc<Rule>| PolicyRow {
            definition: rule.definition.clone(),
            figures: self.states.figures(rule.slot),
            module: self.states.look(rule.slot).and_then(|state| state.module.as_ref()).map(Running::row),
        };
        self.chain.rules.iter().map(row).collect()
    }
}

/// One policy being asked about one call.
struct Asked<'p> {
    step: &'p Step,
    state: &'p mut State,
    random: &'p mut Random,
    ejected: &'p mut VecDeque<PolicyError>,
    seed: u64,
    now: Instant,
}

impl Asked<'_> {
    /// What a policy says that only refuses.
    fn pass(&mut self, inputs: &Inputs<'_>) -> Result<(), Rejection> {
        if self.step.broken.is_some() {
            return self.ask(inputs, &mut Admission::default());
        }
        match self.step.rule.action {
            Action::Access { passes_if, .. } if self.concerns(inputs) => self.access(inputs, passes_if),
            _ => Ok(()),
        }
    }

    fn ask(&mut self, inputs: &Inputs<'_>, admission: &mut Admission) -> Result<(), Rejection> {
        if let Some(broken) = &self.step.broken {
            return Err(self.refusal(Code::Internal, &format!("it does not fit this method: {broken}")));
        }
        if !self.concerns(inputs) {
            return Ok(());
        }
        match &self.step.rule.action {
            Action::Access { passes_if, .. } => self.access(inputs, *passes_if),
            Action::RateLimit { interval_ns, burst, keys_max, .. } => {
                let rate = Rate { interval_ns: *interval_ns, burst: *burst, keys_max: *keys_max };
                self.rate_limit(inputs, rate)
            }
            Action::Fault { percent, delay_ns, abort } => self.fault(*percent, *delay_ns, *abort, admission),
            Action::Timeout { ns } => {
                admission.timeout_ns = Some(admission.timeout_ns.map_or(*ns, |sooner| sooner.min(*ns)));
                Ok(())
            }
            Action::AccessLog { percent } => {
                admission.log |= self.random.happens(*percent);
                Ok(())
            }
            Action::ConcurrencyLimit { calls_max } => self.concurrency_limit(*calls_max, admission),
            Action::Compress { encoding } => {
                admission.encoding.get_or_insert(*encoding);
                Ok(())
            }
            Action::Priority(class) => {
                admission.class.get_or_insert(*class);
                Ok(())
            }
            Action::Mirror { percent, target, timeout_ns, calls_max } => {
                if self.random.happens(*percent) {
                    let (slot, target) = (self.step.rule.slot, Arc::clone(target));
                    let (calls_max, timeout_ns) = (*calls_max, *timeout_ns);
                    admission.mirrors.push(Mirror { slot, calls_max, target, timeout_ns });
                }
                Ok(())
            }
            Action::Queue { settings, .. } => self.queue(inputs, *settings, admission),
            Action::Module { on_fault, .. } => self.module(inputs, *on_fault, admission),
            // Says something about endpoints or workers, which are found elsewhere.
            Action::Balance(_) | Action::Workers { .. } => Ok(()),
        }
    }

    /// Whether `when` holds. Where it has no value, policies that keep calls out apply, the others do not.
    fn concerns(&mut self, inputs: &Inputs<'_>) -> bool {
        let Some(when) = &self.step.when else { return true };
        let guards = matches!(
            self.step.rule.action,
            Action::Access { .. }
                | Action::RateLimit { .. }
                | Action::ConcurrencyLimit { .. }
                | Action::Queue { .. }
                | Action::Module { .. }
        );
        when.test(inputs).unwrap_or_else(|_| {
            self.state.figures.errors += 1;
            guards
        })
    }

    fn access(&mut self, inputs: &Inputs<'_>, passes_if: bool) -> Result<(), Rejection> {
        let Some(condition) = &self.step.program else { return Ok(()) };
        match condition.test(inputs) {
            Ok(value) if value == passes_if => Ok(()),
            Ok(_) => Err(self.refusal(Code::PermissionDenied, "")),
            // No value is no permission, whichever way the condition is worded.
            Err(error) => {
                self.state.figures.errors += 1;
                Err(self.undecided(error))
            }
        }
    }

    fn rate_limit(&mut self, inputs: &Inputs<'_>, rate: Rate) -> Result<(), Rejection> {
        let key = match &self.step.program {
            None => 0,
            // Calls without a value share the bucket of none.
            Some(program) => program.key(inputs, self.seed).unwrap_or_else(|_| {
                self.state.figures.errors += 1;
                0
            }),
        };
        self.state.buckets.take(self.now, key, rate).map_err(|wait_ns| {
            let why = format!("rate limit reached; a call may pass in {} ms", wait_ns.div_ceil(1_000_000));
            self.refusal(Code::ResourceExhausted, &why)
        })
    }

    fn fault(
        &mut self,
        percent: f64,
        delay_ns: u64,
        abort: Option<Code>,
        admission: &mut Admission,
    ) -> Result<(), Rejection> {
        if !self.random.happens(percent) {
            return Ok(());
        }
        if let Some(code) = abort {
            let rejection = self.refusal(code, "fault injected");
            if delay_ns == 0 {
                return Err(rejection);
            }
            self.state.figures.refused += 1;
            admission.ends.get_or_insert(rejection);
        }
        self.state.figures.delayed += 1;
        admission.delay_ns = admission.delay_ns.saturating_add(delay_ns);
        Ok(())
    }

    fn concurrency_limit(&mut self, calls_max: u32, admission: &mut Admission) -> Result<(), Rejection> {
        if !self.state.places.take(calls_max) {
            return Err(self.refusal(Code::ResourceExhausted, &format!("{calls_max} calls are under way")));
        }
        admission.permits.places.push(self.step.rule.slot);
        Ok(())
    }

    /// A call waits in one queue at most; further ones it meets let it in or refuse it.
    fn queue(
        &mut self,
        inputs: &Inputs<'_>,
        settings: QueueSettings,
        admission: &mut Admission,
    ) -> Result<(), Rejection> {
        self.state.queue.settings = settings;
        if self.state.queue.len() == 0 && self.state.places.take(settings.calls_max) {
            self.state.queue.note_idle(self.now);
            admission.permits.places.push(self.step.rule.slot);
            return Ok(());
        }
        let elsewhere = self.state.places.waiting_elsewhere();
        if !self.state.queue.has_room(elsewhere) || admission.ticket.is_some() {
            let why = format!("overloaded: {} calls wait", self.state.queue.len() + elsewhere);
            return Err(self.refusal(Code::Unavailable, &why));
        }
        let urgent = self.step.program.as_ref().is_some_and(|urgent| {
            urgent.test(inputs).unwrap_or_else(|_| {
                self.state.figures.errors += 1;
                false
            })
        });
        admission.ticket = Some(Ticket { slot: self.step.rule.slot, urgent });
        Ok(())
    }

    fn module(
        &mut self,
        inputs: &Inputs<'_>,
        on_fault: OnFault,
        admission: &mut Admission,
    ) -> Result<(), Rejection> {
        let step = self.step;
        let mut values = [FieldValue::None; MODULE_FIELDS_MAX];
        for (value, program) in values.iter_mut().zip(&step.fields) {
            *value = program.as_ref().map_or(FieldValue::None, |program| program.value(inputs));
        }
        let call = ModuleCall {
            side: step.rule.definition.side,
            now: self.now,
            deadline: inputs.deadline,
            request_bytes: inputs.request_bytes,
            client_streams: step.client_streams,
            path: inputs.path,
            application: inputs.application,
            peer_identity: inputs.peer_identity,
            peer_address: inputs.peer_address,
            metadata: inputs.metadata,
            values: values.get(..step.fields.len()).unwrap_or_default(),
        };
        let answer = self.state.module.as_mut().and_then(|running| running.decide(&call));
        match answer {
            Some(Ok(answer)) => match answer.denied {
                Some((code, words)) => Err(self.refusal(code, &words)),
                None => {
                    self.watch(answer.token, admission);
                    admission.metadata.extend(answer.metadata);
                    Ok(())
                }
            },
            faulty => {
                if let Some(Err(error)) = faulty {
                    self.ejected.push_back(ejection(&step.rule.definition, error));
                }
                match on_fault {
                    OnFault::Pass => Ok(()),
                    OnFault::Deny => {
                        Err(self.refusal(Code::Internal, "its module is faulty and was ejected"))
                    }
                }
            }
        }
    }

    fn watch(&self, token: u64, admission: &mut Admission) {
        if self.state.module.as_ref().is_some_and(Running::wants_end) {
            admission.permits.watched.push(Watched { slot: self.step.rule.slot, token, since: self.now });
        }
    }

    fn undecided(&self, error: EvalError) -> Rejection {
        self.refusal(Code::PermissionDenied, &format!("its condition has no value for this call: {error}"))
    }

    fn refusal(&self, code: Code, own: &str) -> Rejection {
        let definition = &self.step.rule.definition;
        let why = definition.message.clone().unwrap_or_else(|| own.to_owned());
        Rejection { policy: definition.name.clone(), code, why, log: false }
    }
}

/// What is said about a module that was ejected.
fn ejection(definition: &Definition, error: ModuleError) -> PolicyError {
    let calls = match definition.on_fault.unwrap_or_default() {
        OnFault::Deny => "its calls are refused",
        OnFault::Pass => "its calls pass",
    };
    let problem = format!("the module was ejected: {}", error.problem);
    let advice = format!("{calls} until another version takes its place (`trunkline policy set`)");
    PolicyError { index: usize::MAX, name: definition.name.clone(), key: error.key, problem, advice }
}
