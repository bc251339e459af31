//! The rings of the sessions of a shard, and which of them are looked at every turn.

use crate::ending_connection::EndingConnection;
use crate::heaps::MovingHeaps;
use crate::placement::SessionWork;
use trunkline_engine::{MovedSession, SessionKey};
use trunkline_shm::{Consumer, Doorbell, Producer, Ringer};

/// The rings of a session.
pub(crate) struct Rings {
    pub submissions: Consumer,
    pub completions: Producer,
    pub peer_doorbell: Ringer,
    pub own_doorbell: Doorbell,
    /// Looked at every turn; otherwise its ring is armed and its doorbell brings it back.
    pub active: bool,
    /// Turns without an entry since it became active.
    pub idle_turns: u32,
    /// Its entries wait until it has read completions.
    pub is_held_back: bool,
    /// What it has had done in this interval (`placement.rs`).
    pub work: SessionWork,
}

/// The sessions of a shard, by slot, and those that are looked at every turn.
#[derive(Default)]
pub(crate) struct Sessions {
    slots: Vec<Option<(SessionKey, Rings)>>,
    pub active: Vec<SessionKey>,
    /// Where the next turn begins to look at them.
    pub begins_at: usize,
    /// Some have rung since entries were last taken.
    pub have_rung: bool,
    /// Connections of sessions that end with the daemon.
    pub ending: Vec<EndingConnection>,
}

/// A session on its way from one shard to another. The application notices nothing: its memory and its descriptors are
/// the same.
pub(crate) struct MovingSession {
    pub moved: MovedSession,
    pub rings: Rings,
    pub heaps: MovingHeaps,
}

impl Rings {
    pub fn new(
        submissions: Consumer,
        completions: Producer,
        peer_doorbell: Ringer,
        own_doorbell: Doorbell,
    ) -> Self {
        Self {
            submissions,
            completions,
            peer_doorbell,
            own_doorbell,
            active: false,
            idle_turns: 0,
            is_held_back: false,
            work: SessionWork::default(),
        }
    }
}

impl Sessions {
    /// A session's rings, to be looked at.
    pub fn look(&self, key: SessionKey) -> Option<&Rings> {
        match self.slots.get(key.index())? {
            Some((found, rings)) if *found == key => Some(rings),
            _ => None,
        }
    }

    pub fn insert(&mut self, key: SessionKey, rings: Rings) {
        if self.slots.len() <= key.index() {
            self.slots.resize_with(key.index() + 1, || None);
        }
        self.slots[key.index()] = Some((key, rings));
    }

    pub fn remove(&mut self, key: SessionKey) -> Option<Rings> {
        self.find(key)?;
        self.active.retain(|active| *active != key);
        self.slots[key.index()].take().map(|(_, rings)| rings)
    }

    /// What each session has had done since this was asked last; of those that had anything done.
    pub fn take_work(&mut self) -> Vec<(SessionKey, SessionWork)> {
        let slots = self.slots.iter_mut().flatten();
        let work = slots.map(|(key, rings)| (*key, std::mem::take(&mut rings.work)));
        work.filter(|(_, work)| *work != SessionWork::default()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    pub fn keys(&self) -> Vec<SessionKey> {
        self.slots.iter().flatten().map(|(key, _)| *key).collect()
    }

    pub fn find(&mut self, key: SessionKey) -> Option<&mut Rings> {
        match self.slots.get_mut(key.index())? {
            Some((found, rings)) if *found == key => Some(rings),
            _ => None,
        }
    }

    /// From now on looked at every turn.
    pub fn activate(&mut self, key: SessionKey) {
        let Some(rings) = self.find(key).filter(|rings| !rings.is_held_back) else { return };
        rings.idle_turns = 0;
        if !rings.active {
            rings.active = true;
            rings.submissions.disarm();
            self.active.push(key);
        }
    }

    /// The session at this place of the active ones is looked at no more if its ring was armed. The last one takes its
    /// place, so that many that come to rest cost no more than they are; a turn goes through them backwards, and has
    /// served the last one.
    pub fn leave_resting(&mut self, index: usize) {
        let Some(&key) = self.active.get(index) else { return };
        if self.find(key).is_none_or(|rings| !rings.active) {
            self.active.swap_remove(index);
        }
    }

    /// The same for all of them.
    pub fn leave_all_resting(&mut self) {
        (0..self.active.len()).rev().for_each(|index| self.leave_resting(index));
    }
}
