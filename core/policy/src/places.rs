//! Places of policies: for copies of calls that policies of kind `mirror` want sent elsewhere, and what shards of a
//! host tell each other of places that calls wait for.

use crate::admission::{Mirror, Permits};
use crate::host::{HostPart, PlaceNotice};
use crate::policies::Policies;
use crate::state::Slot;
use std::sync::Arc;
use trunkline_call::{Code, Instant};
use trunkline_share::HostLimits;

impl Policies {
    /// These are the policies of one of several shards, by this number among them: limits count for all.
    pub fn share(&mut self, limits: &Arc<HostLimits>, own: u16) {
        if limits.is_of_one() {
            return;
        }
        if self.is_inherited {
            limits.seed_keys(self.seed);
        } else {
            limits.seed_keys_in_place_of(self.seed, self.seed);
        }
        let host = HostPart::new(limits, own);
        for rule in &self.chain.rules {
            let Some(state) = self.states.find(rule.slot) else { continue };
            host.join(self.latest, rule, state);
            if state.queue.len() > 0 {
                self.freed.push(rule.slot);
            }
        }
        self.host = Some(host);
    }

    /// Whether there is anything to tell other shards.
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.host.as_ref().is_some_and(HostPart::has_notices)
    }

    /// The next thing to tell other shards.
    pub fn poll_notice(&mut self) -> Option<PlaceNotice> {
        let host = self.host.as_mut()?;
        while let Some((to, slot)) = host.next_notice() {
            if let Some(rule) = self.chain.rules.iter().find(|rule| rule.slot == slot) {
                return Some(PlaceNotice { to, policy: rule.definition.name.clone() });
            }
        }
        None
    }

    /// Another shard says that calls wait there for places of this policy (`is_wanted`), or that one is free.
    /// [`Policies::serve`] says what follows.
    pub fn handle_notice(&mut self, policy: &str, is_wanted: bool) {
        let rule = self.chain.rules.iter().find(|rule| rule.definition.name == policy);
        let Some(slot) = rule.map(|rule| rule.slot) else { return };
        let kept = self.states.find(slot).is_some_and(|state| state.places.keep_nothing());
        if kept || !is_wanted {
            self.look_at(slot);
        }
    }

    /// What keys are made of: what others do not know, lest they choose keys that collide.
    pub(crate) fn key_seed(&self) -> u64 {
        self.host.as_ref().map_or(self.seed, HostPart::key_seed)
    }

    /// There may be a place for those who wait.
    pub(crate) fn look_at(&mut self, slot: Slot) {
        if !self.freed.contains(&slot) {
            self.freed.push(slot);
        }
    }

    /// Nobody waits here, or there is no place: one that is free is for those who wait elsewhere.
    pub(crate) fn pass_place_on(&mut self, slot: Slot) {
        let Some(state) = self.states.find(slot).filter(|state| state.queue.len() == 0) else { return };
        if let Some(shard) = state.places.next_turn() {
            self.tell(Some(shard), slot);
        }
    }

    /// A shard is to know that a place is free; all are to know that calls wait here, if none is named.
    pub(crate) fn tell(&mut self, shard: Option<u16>, slot: Slot) {
        if let Some(host) = &mut self.host {
            host.note(shard, slot);
        }
    }

    /// A copy is about to be sent. What it holds is to be given back by [`Policies::end_mirror`]; `None` if as many are
    /// under way as may be.
    pub fn begin_mirror(&mut self, mirror: &Mirror) -> Option<Permits> {
        let state = self.states.find(mirror.slot)?;
        if !state.places.take(mirror.calls_max) {
            return None;
        }
        state.figures.mirrored += 1;
        Some(Permits::of(mirror.slot))
    }

    /// A copy is not sent: there is no room for it.
    pub fn leave_out_mirror(&mut self, mirror: &Mirror) {
        if let Some(state) = self.states.find(mirror.slot) {
            state.figures.left_out += 1;
        }
    }

    /// A copy has ended with `code`.
    pub fn end_mirror(&mut self, now: Instant, permits: Permits, code: Code) {
        for slot in permits.places.iter().filter(|_| code != Code::Ok) {
            if let Some(state) = self.states.find(*slot) {
                state.figures.failed += 1;
            }
        }
        self.finish(now, permits, code);
    }
}
