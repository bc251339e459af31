//! What policies have in common with those of the other shards of the host: limits count for all of them.
//!
//! Each shard has policies of its own. Of a limit that an operator has written once they hold a part each
//! (`core/share`), by the policy's name. Calls wait on their own shard for a place of a `queue`; who gives a place back
//! while others wait tells one of them ([`PlaceNotice`]), and the host carries what is told from shard to shard.

use crate::bucket::Rate;
use crate::rule::{Action, Rule};
use crate::state::{Slot, State};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_share::{HostLimits, RateLimits};

/// The limits of the host, and this shard among those who hold them.
#[derive(Debug)]
pub(crate) struct HostPart {
    limits: Arc<HostLimits>,
    own: u16,
    /// What others are to be told.
    notices: VecDeque<(Option<u16>, Slot)>,
}

/// What one shard tells another about the places of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceNotice {
    /// Whom, by its number; all others if none is named: they give up places they keep in spare.
    pub to: Option<u16>,
    /// The policy's name.
    pub policy: String,
}

impl HostPart {
    /// The part of this shard.
    pub fn new(limits: &Arc<HostLimits>, own: u16) -> Self {
        Self { limits: Arc::clone(limits), own, notices: VecDeque::new() }
    }

    /// This shard has another seed than it `was`; keys are made of it unless others are already.
    pub fn seed_keys_in_place_of(&self, was: u64, seed: u64) {
        self.limits.seed_keys_in_place_of(was, seed);
    }

    /// What keys are made of.
    pub fn key_seed(&self) -> u64 {
        self.limits.key_seed()
    }

    /// A shard is to know that a place is free; all are to know that calls wait here, if none is named.
    pub fn note(&mut self, to: Option<u16>, slot: Slot) {
        if !self.notices.contains(&(to, slot)) {
            self.notices.push_back((to, slot));
        }
    }

    /// Whether there is anything to tell.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// The next thing to tell, and of which policy.
    pub fn next_notice(&mut self) -> Option<(Option<u16>, Slot)> {
        self.notices.pop_front()
    }

    /// A policy's state is a part of what the host has from now on, by what is said of it.
    pub fn join(&self, now: Instant, rule: &Rule, state: &mut State) {
        let (name, own) = (&rule.definition.name, self.own);
        match &rule.action {
            Action::RateLimit { key, interval_ns, burst, keys_max } => {
                let rate = Rate { interval_ns: *interval_ns, burst: *burst, keys_max: *keys_max };
                let shared = self.limits.rate(name, RateLimits::from(rate), key.is_some(), now.0);
                state.buckets.share(&shared, self.limits.shards(), own == 0);
            }
            Action::ConcurrencyLimit { .. } | Action::Queue { .. } | Action::Mirror { .. } => {
                let shared = self.limits.places(&format!("{:?} {name}", rule.definition.kind));
                if !state.places.has_joined(&shared) {
                    state.places.join(&shared, own, state.queue.len());
                }
            }
            _ => {}
        }
    }
}
