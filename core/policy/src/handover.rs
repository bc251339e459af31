//! A chain that goes on in another process, with what its policies remember.

use crate::chain::Chain;
use crate::definition::Definition;
use crate::policies::Policies;
use crate::refused::PolicyError;
use crate::state::{Slot, States};
use serde::{Deserialize, Serialize, Serializer};
use std::sync::Arc;
use trunkline_balance::Random;

/// A chain at work, as it was handed over: what was written, and the state each policy has.
///
/// Modules are not among it: whoever loads them applies the chain once more, and has them take over what the others
/// export (`bundle.rs`).
#[derive(Debug, Deserialize)]
pub struct PoliciesState {
    definitions: Vec<Definition>,
    slots: Vec<Slot>,
    states: States,
    seed: u64,
    freed: Vec<Slot>,
}

#[derive(Serialize)]
struct Leaving<'a> {
    definitions: Vec<&'a Definition>,
    slots: Vec<Slot>,
    states: &'a States,
    seed: u64,
    freed: &'a [Slot],
}

impl Serialize for Policies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let leaving = Leaving {
            definitions: self.chain.definitions().collect(),
            slots: self.chain.rules.iter().map(|rule| rule.slot).collect(),
            states: &self.states,
            seed: self.key_seed(),
            freed: &self.freed,
        };
        leaving.serialize(serializer)
    }
}

impl PoliciesState {
    /// The chain as it was, put together anew. `chance` is of this host.
    ///
    /// # Errors
    /// [`PolicyError`] if this program does not take the chain that the other did.
    pub fn take_up(mut self, chance: u64) -> Result<Policies, PolicyError> {
        let mut chain = Chain::build(&self.definitions)?;
        self.states.mend();
        let slots = self.slots.into_iter().map(Some).chain(std::iter::repeat(None));
        for (rule, slot) in chain.rules_mut().iter_mut().zip(slots) {
            let known = slot.filter(|slot| self.states.find(*slot).is_some());
            Arc::make_mut(rule).slot = known.unwrap_or_else(|| self.states.add());
        }
        let random = Random::new(chance);
        let (seed, freed) = (self.seed, self.freed);
        let own = Policies::new(chance);
        Ok(Policies { chain, states: self.states, random, seed, is_inherited: true, freed, ..own })
    }
}
