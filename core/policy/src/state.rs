//! What policies remember between calls, and keep when the chain around them is changed.

use crate::bucket::Buckets;
use crate::queue::{self, Queue};
use crate::running::Running;
use serde::{Deserialize, Deserializer, Serializer};
use trunkline_call::Instant;
use trunkline_share::PlaceShare;

/// Names the state of one policy for as long as the policy, or a call it let in, is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Slot {
    index: u32,
    generation: u32,
}

/// The state of one policy.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct State {
    pub figures: Figures,
    pub buckets: Buckets,
    /// Calls under way that hold a permit of a concurrency limit, or copies of a mirror.
    #[serde(rename = "under_way", serialize_with = "used_places", deserialize_with = "places_used")]
    pub places: PlaceShare,
    /// Calls that wait for one.
    pub queue: Queue,
    /// The module of a policy that is one.
    #[serde(skip)]
    pub module: Option<Running>,
}

/// What a policy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// Calls it was asked about.
    pub seen: u64,
    /// Calls, or messages of calls, it refused.
    pub refused: u64,
    /// Calls it held for a time.
    pub delayed: u64,
    /// Calls for which an expression of it had no value.
    pub errors: u64,
    /// Copies it sent elsewhere.
    #[serde(default)]
    pub mirrored: u64,
    /// Copies it wanted to send, and for which there was no room.
    #[serde(default)]
    pub left_out: u64,
    /// Copies that ended other than with OK.
    #[serde(default)]
    pub failed: u64,
}

/// All states.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct States {
    slots: Vec<(u32, Option<State>)>,
    free: Vec<u32>,
}

impl Figures {
    /// Adds what another shard has counted.
    pub fn add(&mut self, other: Self) {
        self.seen += other.seen;
        self.refused += other.refused;
        self.delayed += other.delayed;
        self.errors += other.errors;
        self.mirrored += other.mirrored;
        self.left_out += other.left_out;
        self.failed += other.failed;
    }
}

/// Places are handed over as a number: whoever takes over has a part of its own.
fn used_places<S: Serializer>(places: &PlaceShare, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(places.used())
}

fn places_used<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PlaceShare, D::Error> {
    let used = u64::deserialize(deserializer)?;
    Ok(PlaceShare::using(used.min(PLACES_MAX)))
}

/// More than any host has calls under way.
const PLACES_MAX: u64 = 1 << 31;

impl State {
    /// The next call that waits and may go on, or must not wait any longer.
    pub fn next_waiting(&mut self, now: Instant) -> Option<queue::Turn> {
        if self.queue.len() == 0 || !self.places.take_waited_for(self.queue.settings.calls_max) {
            return None;
        }
        let next = self.queue.pop(now);
        if !matches!(next, Some(queue::Turn::Served(_))) {
            self.places.give_back();
        }
        self.note_waiting();
        next
    }

    /// A call has come to those that wait, or has left them. `true`: the first has come, and there are other shards.
    pub fn note_waiting(&mut self) -> bool {
        self.places.wait(self.queue.len())
    }
}

impl Slot {
    /// No state.
    pub const NONE: Self = Self { index: u32::MAX, generation: 0 };
}

impl States {
    pub fn add(&mut self) -> Slot {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, state) = &mut self.slots[index as usize];
        *state = Some(State::default());
        Slot { index, generation: *generation }
    }

    /// Makes what follows from the rest of states that came from elsewhere, and bounds what is counted on.
    pub fn mend(&mut self) {
        let empty = (0..).zip(&self.slots).filter(|(_, (_, state))| state.is_none());
        self.free = empty.map(|(index, _)| index).collect();
        for state in self.slots.iter_mut().filter_map(|(_, state)| state.as_mut()) {
            let Figures { seen, refused, delayed, errors, mirrored, left_out, failed } = &mut state.figures;
            for count in [seen, refused, delayed, errors, mirrored, left_out, failed] {
                *count = (*count).min(u64::MAX / 2);
            }
        }
    }

    pub fn remove(&mut self, slot: Slot) -> Option<State> {
        self.find(slot)?;
        let (generation, state) = &mut self.slots[slot.index as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(slot.index);
        state.take()
    }

    /// The state, unless its policy is gone.
    pub fn find(&mut self, slot: Slot) -> Option<&mut State> {
        let (generation, state) = self.slots.get_mut(slot.index as usize)?;
        state.as_mut().filter(|_| *generation == slot.generation)
    }

    /// The same, to look at.
    pub fn look(&self, slot: Slot) -> Option<&State> {
        let (generation, state) = self.slots.get(slot.index as usize)?;
        state.as_ref().filter(|_| *generation == slot.generation)
    }

    pub fn figures(&self, slot: Slot) -> Figures {
        let found = self.slots.get(slot.index as usize);
        found.and_then(|(_, state)| state.as_ref()).map_or_else(Figures::default, |state| state.figures)
    }
}
