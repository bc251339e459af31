//! The submission side: the ring, what found it full, and whether the daemon is rung for what was put there.
//!
//! Entries come in two kinds. Calls and messages of streams wait for space, so a caller feels back-pressure. Everything
//! else (cancellations, answers, returned blocks) makes space elsewhere and must not wait; if the ring is full it goes
//! to the backlog, and no call or message overtakes it there.

use super::effects::Effects;
use std::collections::VecDeque;
use trunkline_call::entry::Entry;
use trunkline_shm::Producer;

/// Returned blocks that may lie in the ring before the daemon is rung for them.
const QUIET_ENTRIES_MAX: u32 = 32;

/// Returned and held blocks may be this part of the receive heap before each return rings: the rest is enough for the
/// daemon to go on with.
const QUIET_HEAP_PART: u64 = 4;

/// Returned blocks may be this part of a stream's window before each return rings: a sender whose receiver takes its
/// time still has the rest.
const QUIET_WINDOW_PART: u64 = 4;

/// The submission ring and what waits to be put there.
#[derive(Debug)]
pub(super) struct Outbox {
    ring: Producer,
    /// Entries that must not wait for anybody and found the ring full. Bounded by the blocks and calls they are about.
    backlog: VecDeque<Entry>,
    /// Entries ever staged, modulo 2^32.
    staged: u32,
    /// What was published since the daemon was last rung or seen awake: entries, and bytes of blocks they return.
    quiet_entries: u32,
    quiet_bytes: u64,
    /// Whoever drains the completion ring sleeps: nobody will look at what was published quietly before something else
    /// happens.
    asleep: bool,
    /// Bytes of the receive heap that messages of the usual sizes share, and of one stream's window.
    usual_bytes: u64,
    window_bytes: u64,
}

impl Outbox {
    pub(super) fn new(ring: Producer, usual_bytes: u64, window_bytes: u32) -> Self {
        Self {
            ring,
            backlog: VecDeque::new(),
            staged: 0,
            quiet_entries: 0,
            quiet_bytes: 0,
            asleep: false,
            usual_bytes,
            window_bytes: window_bytes.into(),
        }
    }

    /// Whether a call or message may be put into the ring now.
    pub(super) fn has_space(&mut self, effects: &mut Effects) -> bool {
        self.flush(effects);
        self.backlog.is_empty() && self.slots_free(effects)
    }

    /// Puts an entry for which there is space.
    pub(super) fn put(&mut self, entry: &Entry, effects: &mut Effects) {
        self.stage(entry, effects);
        effects.ring |= self.publish();
    }

    /// Puts an entry that is not to wait.
    pub(super) fn put_or_keep(&mut self, entry: &Entry, effects: &mut Effects) {
        if self.has_space(effects) {
            self.put(entry, effects);
        } else {
            // Nobody may be waiting for anything here, so nobody would look whether there is space again.
            effects.listen |= self.backlog.is_empty();
            self.backlog.push_back(*entry);
        }
    }

    /// Puts the entry that returns `bytes` of the receive heap, of which `held_bytes` are still held here. It rides
    /// along with the next entry that rings, or is rung for before the next sleep; unless much has been returned so, or
    /// whoever would ring sleeps already: what it waits for may need this block.
    pub(super) fn put_return(&mut self, entry: &Entry, bytes: u64, held_bytes: u64, effects: &mut Effects) {
        self.quiet_bytes += bytes;
        self.quiet_entries += 1;
        let crowded = self.quiet_entries > QUIET_ENTRIES_MAX
            || (self.quiet_bytes + held_bytes) * QUIET_HEAP_PART > self.usual_bytes
            || self.quiet_bytes * QUIET_WINDOW_PART > self.window_bytes;
        if self.asleep || crowded || !self.has_space(effects) {
            self.put_or_keep(entry, effects);
        } else {
            self.stage(entry, effects);
            self.ring.publish_quietly();
        }
    }

    /// Moves the backlog into the ring as far as there is space.
    pub(super) fn flush(&mut self, effects: &mut Effects) {
        let mut moved = false;
        while !self.backlog.is_empty() && self.slots_free(effects) {
            if let Some(entry) = self.backlog.pop_front() {
                self.stage(&entry, effects);
                moved = true;
            }
        }
        if moved {
            effects.ring |= self.publish();
        }
    }

    /// From now on nobody is awake who would say loudly, before sleeping, what was said quietly.
    pub(super) fn leave_to_sleeper(&mut self, effects: &mut Effects) {
        self.asleep = true;
        if self.quiet_entries > 0 {
            self.loud();
            effects.ring |= self.ring.must_ring();
        }
    }

    /// Somebody drains, is awake, and speaks before it or the listener sleeps.
    pub(super) fn drainer_is_awake(&mut self) {
        self.asleep = false;
    }

    /// The number of the next entry among all of the session: tells later whether the daemon has taken it.
    pub(super) fn next_sequence(&self) -> u32 {
        self.staged
    }

    /// The number that follows the last entry, with those in the backlog.
    pub(super) fn end_sequence(&self) -> u32 {
        self.staged.wrapping_add(self.backlog.len() as u32)
    }

    /// How many of our entries the daemon has taken; `None` when its head cannot be believed.
    pub(super) fn taken(&mut self) -> Option<u32> {
        let room = self.ring.room().ok()?;
        Some(self.staged.wrapping_sub(self.ring.capacity() - room))
    }

    /// Whether the daemon has taken everything.
    pub(super) fn is_taken(&mut self) -> bool {
        self.backlog.is_empty() && self.ring.room().is_ok_and(|room| room == self.ring.capacity())
    }

    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    fn slots_free(&mut self, effects: &mut Effects) -> bool {
        if self.ring.len() < self.ring.capacity() {
            return true;
        }
        match self.ring.room() {
            Ok(room) => room > 0,
            Err(fault) => {
                effects.note_fault(&fault);
                false
            }
        }
    }

    fn stage(&mut self, entry: &Entry, effects: &mut Effects) {
        match self.ring.stage(entry) {
            Ok(()) => self.staged = self.staged.wrapping_add(1),
            Err(fault) => effects.note_fault(&fault),
        }
    }

    fn publish(&mut self) -> bool {
        self.loud();
        self.ring.publish()
    }

    fn loud(&mut self) {
        self.quiet_entries = 0;
        self.quiet_bytes = 0;
    }
}
