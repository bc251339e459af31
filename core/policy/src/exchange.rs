//! One chain in the place of another: staged, then put to work or given up. Modules hand their state over meanwhile.

use crate::admission::{Permits, Verdict};
use crate::bucket::Rate;
use crate::bundle::ExportedModule;
use crate::chain::Chain;
use crate::definition::{Definition, Kind};
use crate::module::{Module, Modules};
use crate::policies::Policies;
use crate::policy_set::PolicySet;
use crate::refused::{PolicyError, Wrong};
use crate::rule::{Action, Rule};
use crate::running::Running;
use crate::state::{Slot, State};
use std::sync::Arc;
use trunkline_call::Instant;

/// A chain about to take the place of the one at work.
#[derive(Debug)]
pub struct Staged {
    chain: Chain,
    /// Those that are other than one at work: new, changed, or with another module.
    news: PolicySet,
    added: Vec<Slot>,
    changes_priorities: bool,
    /// Instances that hold the state already.
    fresh: Vec<(Slot, Box<dyn Module>)>,
    upgraded: Vec<String>,
}

impl Policies {
    /// Readies a chain: policies that keep name and kind keep their state, and modules whose file or settings are
    /// others now have taken over the state of those at work. A policy that is as it was, and for which there is no
    /// module, keeps the one it has. Nothing changes for calls until [`Policies::commit`],
    /// before which none may be asked about: what is handed over would be old.
    ///
    /// # Errors
    /// [`PolicyError`] if a module does not hand its state over, or another does not take it; nothing has changed then.
    pub fn stage(&mut self, mut chain: Chain, mut modules: Modules) -> Result<Staged, PolicyError> {
        let mut added = Vec::new();
        for rule in chain.rules_mut() {
            let same = |old: &&Arc<Rule>| {
                old.definition.name == rule.definition.name && old.definition.kind == rule.definition.kind
            };
            let kept = self.chain.rules.iter().find(same);
            let slot = kept.map(|old| old.slot).unwrap_or_else(|| {
                added.extend([self.states.add()]);
                added.last().copied().unwrap_or(Slot::NONE)
            });
            if let Some(old) = kept.filter(|old| old.definition == rule.definition)
                && matches!(rule.action, Action::Module { .. })
                && !modules.has(&rule.definition.name)
            {
                // Of a module nobody has loaded anew, which stays at work: what it wants to see.
                Arc::make_mut(rule).action = old.action.clone();
            }
            Arc::make_mut(rule).slot = slot;
        }
        let changes_priorities = !priorities(&self.chain).eq(priorities(&chain));
        let mut staged = Staged {
            chain,
            news: PolicySet::default(),
            added,
            changes_priorities,
            fresh: Vec::new(),
            upgraded: Vec::new(),
        };
        let handed = self.hand_over(&mut staged, &mut modules);
        // Those that were not wanted, or not come to: whoever asked takes them apart.
        self.retired.extend(modules.into_rest());
        match handed {
            Ok(()) => {
                staged.news = PolicySet::of(staged.chain.rules.iter().map(|rule| self.is_new(rule, &staged)));
                Ok(staged)
            }
            Err(error) => {
                self.abandon(staged);
                Err(error)
            }
        }
    }

    /// Puts a staged chain to work. Returns which modules were upgraded, in words. What it means for calls that wait is
    /// said by [`Policies::serve`].
    pub fn commit(&mut self, staged: Staged) -> Vec<String> {
        let old = std::mem::replace(&mut self.chain, staged.chain);
        for (slot, module) in staged.fresh {
            let rule = self.chain.rules.iter().find(|rule| rule.slot == slot);
            let (Some(rule), Some(state)) = (rule, self.states.find(slot)) else { continue };
            match &mut state.module {
                Some(running) => self.retired.extend(running.replace(&rule.definition, module)),
                None => state.module = Some(Running::new(&rule.definition, module)),
            }
        }
        for rule in old.rules {
            match self.chain.rules.iter().find(|kept| kept.slot == rule.slot) {
                Some(kept) if kept.definition == rule.definition => continue,
                Some(_) => self.exchanged.slots.push(rule.slot),
                None => {
                    let Some(state) = self.states.remove(rule.slot) else { continue };
                    let waited = state.queue.ends();
                    let released = waited.map(|(token, _)| Verdict::Served(token, Permits::default()));
                    self.exchanged.verdicts.extend(released);
                    self.retired.extend(state.module.and_then(Running::into_module));
                }
            }
            // Has `serve` look.
            self.freed.push(rule.slot);
        }
        self.join_added(&staged.added);
        staged.upgraded
    }

    /// Policies that are new have their limits with those of the other shards.
    fn join_added(&mut self, added: &[Slot]) {
        let Some(host) = &self.host else { return };
        for rule in self.chain.rules.iter().filter(|rule| added.contains(&rule.slot)) {
            if let Some(state) = self.states.find(rule.slot) {
                host.join(self.latest, rule, state);
            }
        }
    }

    /// What an exchange means for a call that waits.
    pub(crate) fn poll_exchanged(&mut self, now: Instant) -> Option<Verdict> {
        while let Some(slot) = self.exchanged.slots.pop() {
            let rule = self.chain.rules.iter().find(|rule| rule.slot == slot);
            if let (Some(rule), Some(state)) = (rule, self.states.find(slot)) {
                take_up(now, &rule.action, state);
                if let Some(host) = &self.host {
                    host.join(now, rule, state);
                }
                let waits = state.queue.ends().map(|(token, until)| Verdict::Waits(token, until));
                self.exchanged.verdicts.extend(waits);
            }
        }
        self.exchanged.verdicts.pop_front()
    }

    /// Gives a staged chain up.
    pub fn abandon(&mut self, staged: Staged) {
        self.retired.extend(staged.fresh.into_iter().map(|(_, module)| module));
        for slot in staged.added {
            self.states.remove(slot);
        }
    }

    /// Modules nobody needs any more. Taking one apart may take its time: not on the way of calls.
    pub fn take_retired(&mut self) -> Vec<Box<dyn Module>> {
        std::mem::take(&mut self.retired)
    }

    /// The states of all modules, for another process, and why some are not among them.
    pub fn export_modules(&self) -> (Vec<ExportedModule>, Vec<PolicyError>) {
        let (mut exported, mut errors) = (Vec::new(), Vec::new());
        for (index, rule) in self.chain.rules.iter().enumerate() {
            let Some(running) = self.states.look(rule.slot).and_then(|state| state.module.as_ref()) else {
                continue;
            };
            let (policy, module) = (rule.definition.name.clone(), running.about().name.clone());
            match running.export() {
                None => {}
                Some(Ok(state)) => exported.push(ExportedModule { policy, module, state }),
                Some(Err(error)) => errors.push(error.wrong().of_policy(index, &policy)),
            }
        }
        (exported, errors)
    }

    /// Hands states of another process to modules that have not been asked about a call yet; returns which of them did
    /// not take theirs. They are as they were, and had better be loaded again.
    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        let mut errors = Vec::new();
        for ExportedModule { policy, module, state } in exported {
            let found = self.chain.rules.iter().enumerate().find(|(_, rule)| rule.definition.name == *policy);
            let Some((index, rule)) = found else { continue };
            let running = self.states.find(rule.slot).and_then(|state| state.module.as_mut());
            // Another module than the one the state is of begins anew, as it does in an upgrade.
            let Some(running) = running.filter(|running| running.about().name == *module) else { continue };
            let taken = running.import(state);
            errors.extend(taken.err().map(|error| error.wrong().of_policy(index, policy)));
        }
        errors
    }

    /// Whether a policy of a staged chain is other than the one at work.
    fn is_new(&self, rule: &Rule, staged: &Staged) -> bool {
        let is_at_work = self.chain.definitions().any(|old| *old == rule.definition);
        !is_at_work || staged.fresh.iter().any(|(slot, _)| *slot == rule.slot)
    }

    fn hand_over(&mut self, staged: &mut Staged, modules: &mut Modules) -> Result<(), PolicyError> {
        for (index, rule) in staged.chain.rules.iter().enumerate() {
            if !matches!(rule.action, Action::Module { .. }) {
                continue;
            }
            let definition = &rule.definition;
            let wrong = |wrong: Wrong| wrong.of_policy(index, &definition.name);
            let running = self.states.look(rule.slot).and_then(|state| state.module.as_ref());
            let Some(mut fresh) = modules.take(&definition.name) else {
                if running.is_some() && self.chain.definitions().any(|old| old == definition) {
                    continue;
                }
                let advice = "put the chain to work as a whole (`trunkline policy apply`)";
                return Err(wrong(Wrong::new("path", "its module is not loaded", advice)));
            };
            if running.is_some_and(|running| running.is(definition, &*fresh)) {
                self.retired.push(fresh);
                continue;
            }
            if let Some(running) = running {
                match running.hand_over(&mut *fresh) {
                    Ok(bytes) => staged.upgraded.push(upgrade(&definition.name, running, &*fresh, bytes)),
                    Err(error) => {
                        self.retired.push(fresh);
                        return Err(wrong(error));
                    }
                }
            }
            staged.fresh.push((rule.slot, fresh));
        }
        Ok(())
    }
}

/// What is said about the order of calls.
fn priorities(chain: &Chain) -> impl Iterator<Item = &Definition> {
    chain.definitions().filter(|policy| policy.kind == Kind::Priority)
}

/// What a policy remembers goes on under what is said about it now.
fn take_up(now: Instant, action: &Action, state: &mut State) {
    match action {
        Action::Queue { settings, .. } => state.queue.settings = *settings,
        Action::RateLimit { interval_ns, burst, keys_max, .. } => {
            let rate = Rate { interval_ns: *interval_ns, burst: *burst, keys_max: *keys_max };
            state.buckets.change_rate(now, rate);
        }
        _ => {}
    }
}

impl Staged {
    /// The chain, to be compiled for methods.
    pub fn chain_mut(&mut self) -> &mut Chain {
        &mut self.chain
    }

    /// The policies that are new, have changed, or have another module.
    pub fn news(&self) -> PolicySet {
        self.news
    }

    /// Whether it says anything else about the order of calls than the chain at work.
    pub fn changes_priorities(&self) -> bool {
        self.changes_priorities
    }

    /// Which modules are upgraded with it, in words.
    pub fn upgraded(&self) -> &[String] {
        &self.upgraded
    }
}

/// `limit (token-bucket 1 to token-bucket 2, 48 bytes of state)`
fn upgrade(policy: &str, from: &Running, to: &dyn Module, bytes: Option<usize>) -> String {
    let state = bytes.map_or_else(|| "no state".to_owned(), |bytes| format!("{bytes} bytes of state"));
    format!("{policy} ({} to {}, {state})", from.about().label(), to.about().label())
}
