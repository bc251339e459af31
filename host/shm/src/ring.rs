//! Single-producer, single-consumer rings over shared words.
//!
//! Each side keeps its own index in private memory and publishes copies. It reads the other side's index rarely
//! (only when its last copy says full or empty) and believes it only if it could be true: between what it was and
//! what our own index allows. An index that is not is a typed fault, and the session ends.
//!
//! Entries are copied word by word with relaxed atomics. A hostile other side can thus hand over any words at any
//! time, but neither a torn pointer nor undefined behaviour.

use crate::entry::Entry;
use crate::ring_memory::RingMemory;
use crate::sync::{Ordering, fence, monotonic_ns};

/// Why a ring operation did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Every slot holds an entry the other side has not consumed. Retry after it has.
    #[error("the ring is full: {capacity} entries not consumed")]
    Full {
        /// Entries the ring holds.
        capacity: u32,
    },
    /// The other side published an impossible index: it is broken or hostile, and the session must end.
    #[error(
        "the other side moved its {word} to {claimed}, which cannot be: ours is {ours} of {capacity} entries"
    )]
    Index {
        /// `"head"` or `"tail"`.
        word: &'static str,
        /// What the shared word said.
        claimed: u32,
        /// Our own index at that time.
        ours: u32,
        /// Entries the ring holds.
        capacity: u32,
    },
    /// This process was forked from the one that opened the session; the ring is not its own.
    #[error("the session belongs to the parent of this forked process")]
    Forked,
}

/// The side that writes entries. `Send`: may move to another thread, but one thread at a time uses it.
#[derive(Debug)]
pub struct Producer {
    memory: RingMemory,
    /// Entries written, modulo 2^32; ahead of `published` by what is staged.
    tail: u32,
    published: u32,
    /// The last head we believed.
    head: u32,
}

impl Producer {
    /// A producer that has published up to `tail` and believes the consumer to be at `head`; both 0 in a new ring.
    pub(crate) fn resume(memory: RingMemory, tail: u32, head: u32) -> Producer {
        Producer { memory, tail, published: tail, head }
    }

    /// The published tail and the head last believed.
    #[cfg(not(loom))]
    pub(crate) fn indices(&self) -> (u32, u32) {
        (self.published, self.head)
    }

    /// Writes an entry that the consumer sees after the next [`Producer::publish`].
    ///
    /// # Errors
    /// [`RingError::Full`] when there is no room; [`RingError::Index`] when the consumer's head cannot be true.
    #[inline]
    pub fn stage(&mut self, entry: &Entry) -> Result<(), RingError> {
        if self.tail.wrapping_sub(self.head) == self.memory.capacity() {
            self.look_at_head()?;
        }
        if self.memory.is_foreign() {
            return Err(RingError::Forked);
        }
        self.memory.write(self.tail, entry);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    // LIFE: 2
    /// Shows all staged entries to the consumer. `true`: it sleeps, and the caller must ring its doorbell.
    /// `Ringer::publish` does both.
    ///
    /// Publishing nothing costs nothing and returns `false`.
    #[inline]
    #[must_use = "a sleeping consumer must be rung"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail || self.memory.is_foreign() {
            return false;
        }
        self.published = self.tail;
        // SYNC: pairs with the Acquire load in `Consumer::look_at_tail`: whoever sees the tail sees the entries.
        self.memory.tail().store(self.tail, Ordering::Release);
        self.consumer_sleeps()
    }

    /// Shows all staged entries without asking whether the consumer sleeps: for entries that can wait until it looks
    /// next (returned blocks). Whoever must be sure that they are seen asks [`Producer::must_ring`] later.
    #[inline]
    pub fn publish_quietly(&mut self) {
        if self.published == self.tail || self.memory.is_foreign() {
            return;
        }
        self.published = self.tail;
        // SYNC: as in `publish`.
        self.memory.tail().store(self.tail, Ordering::Release);
    }

    /// Whether the consumer sleeps on entries that were published quietly; `true` takes its flag, and the caller must
    /// ring.
    #[inline]
    #[must_use = "a sleeping consumer must be rung"]
    pub fn must_ring(&mut self) -> bool {
        !self.memory.is_foreign() && self.consumer_sleeps()
    }

    /// [`Producer::stage`] and [`Producer::publish`] of one entry.
    ///
    /// # Errors
    /// As [`Producer::stage`].
    #[inline]
    pub fn push(&mut self, entry: &Entry) -> Result<bool, RingError> {
        self.stage(entry)?;
        Ok(self.publish())
    }

    /// Entries that can be staged now, after looking at the consumer's head.
    ///
    /// # Errors
    /// [`RingError::Index`] when the consumer's head cannot be true.
    pub fn room(&mut self) -> Result<u32, RingError> {
        match self.look_at_head() {
            Ok(()) | Err(RingError::Full { .. }) => {
                Ok(self.memory.capacity() - self.tail.wrapping_sub(self.head))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Whether the consumer sleeps and had taken everything by then. A hint: it may wake at any moment.
    ///
    /// # Errors
    /// As [`Producer::room`].
    pub fn consumer_rests(&mut self) -> Result<bool, RingError> {
        let sleeps = !self.memory.is_foreign() && self.memory.sleeping().load(Ordering::Relaxed) != 0;
        Ok(sleeps && self.room()? == self.memory.capacity())
    }

    /// Whether there is no room, after looking at the consumer's head.
    ///
    /// # Errors
    /// As [`Producer::room`].
    pub fn is_full(&mut self) -> Result<bool, RingError> {
        Ok(self.room()? == 0)
    }

    /// Entries written and, as far as we know, not consumed.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether, as far as we know, every entry written was consumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries staged but not published.
    #[must_use]
    pub fn staged(&self) -> u32 {
        self.tail.wrapping_sub(self.published)
    }

    /// Entries the ring holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.memory.capacity()
    }

    /// Takes over the consumer's head if it lies between the last one and our published tail.
    #[cold]
    fn look_at_head(&mut self) -> Result<(), RingError> {
        if self.memory.is_foreign() {
            return Err(RingError::Forked);
        }
        let capacity = self.memory.capacity();
        // SYNC: pairs with the Release store in `Consumer::pop`: its reads of the slot are done before we write it.
        let claimed = self.memory.head().load(Ordering::Acquire);
        if self.published.wrapping_sub(claimed) > self.published.wrapping_sub(self.head) {
            return Err(RingError::Index { word: "head", claimed, ours: self.published, capacity });
        }
        self.head = claimed;
        if self.tail.wrapping_sub(claimed) == capacity { Err(RingError::Full { capacity }) } else { Ok(()) }
    }

    /// Whether the consumer said it would sleep; takes the flag, so that one sleep is rung once.
    #[inline]
    fn consumer_sleeps(&self) -> bool {
        // SYNC: pairs with the fence in `Consumer::arm`. Either we see its flag or it sees our tail (Dekker).
        fence(Ordering::SeqCst);
        let sleeping = self.memory.sleeping();
        let sleeps = sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::Relaxed) != 0;
        if sleeps {
            self.memory.rung().store(clock_word(monotonic_ns()), Ordering::Relaxed);
        }
        sleeps
    }
}

/// A time as a shared word holds it: no time is 0.
fn clock_word(now_ns: u64) -> u32 {
    now_ns as u32 | 1
}

/// The side that reads entries. `Send`: may move to another thread, but one thread at a time uses it.
#[derive(Debug)]
pub struct Consumer {
    memory: RingMemory,
    head: u32,
    /// The last tail we believed.
    tail: u32,
    armed: bool,
    /// When the producer rang, as last seen.
    rung: u32,
    /// The producer took an announcement and has rung for it, or will.
    has_rung: bool,
}

impl Consumer {
    /// A consumer that has consumed up to `head`; 0 in a new ring.
    pub(crate) fn resume(memory: RingMemory, head: u32) -> Consumer {
        Consumer { memory, head, tail: head, armed: false, rung: 0, has_rung: false }
    }

    /// Entries consumed, modulo 2^32.
    #[cfg(not(loom))]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Takes the oldest entry, a private copy that the other side can no longer change.
    ///
    /// # Errors
    /// [`RingError::Index`] when the producer's tail cannot be true.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Entry>, RingError> {
        if self.head == self.tail && !self.look_at_tail()? {
            return Ok(None);
        }
        if self.memory.is_foreign() {
            return Err(RingError::Forked);
        }
        let entry = self.memory.read(self.head);
        self.advance();
        Ok(Some(entry))
    }

    /// The slot of the oldest entry is the producer's again.
    fn advance(&mut self) {
        self.head = self.head.wrapping_add(1);
        // SYNC: pairs with the Acquire load in `Producer::look_at_head`: our reads are done before the slot is
        // written again.
        self.memory.head().store(self.head, Ordering::Release);
    }

    /// Takes the entry that [`Consumer::peek`] has read: it is not read again, and may be another there by now.
    pub fn take_peeked(&mut self) {
        if self.head != self.tail {
            self.advance();
        }
    }

    /// The oldest entry, which stays where it is: the other side may change it until it is taken.
    ///
    /// # Errors
    /// As [`Consumer::pop`].
    pub fn peek(&mut self) -> Result<Option<Entry>, RingError> {
        if self.head == self.tail && !self.look_at_tail()? {
            return Ok(None);
        }
        if self.memory.is_foreign() {
            return Err(RingError::Forked);
        }
        Ok(Some(self.memory.read(self.head)))
    }

    /// Entries waiting, after looking at the producer's tail. Costs one load of a line the producer writes.
    ///
    /// # Errors
    /// [`RingError::Index`] when the producer's tail cannot be true.
    #[inline]
    pub fn ready(&mut self) -> Result<u32, RingError> {
        self.look_at_tail()?;
        Ok(self.tail.wrapping_sub(self.head))
    }

    /// Announces that we are about to block. `false`: entries are there, do not block (and nothing is announced).
    ///
    /// After `true` the producer rings the doorbell with its next publish. Call [`Consumer::disarm`] on waking; an
    /// armed ring that is not disarmed stays armed, which is how an idle session costs its shard nothing.
    ///
    /// # Errors
    /// [`RingError::Index`] when the producer's tail cannot be true.
    pub fn arm(&mut self) -> Result<bool, RingError> {
        if self.memory.is_foreign() {
            return Err(RingError::Forked);
        }
        // Both sides write this word, and both by read-modify-write: their writes then stand in one order that the
        // model checker knows too. A plain store would do, and would be cheaper on a path that ends in a system call.
        let stands = self.memory.sleeping().swap(1, Ordering::Relaxed) != 0;
        self.has_rung |= self.armed && !stands;
        self.armed = true;
        // SYNC: pairs with the fence in `Producer::consumer_sleeps`. Either it sees our flag or we see its tail.
        fence(Ordering::SeqCst);
        if self.look_at_tail()? {
            self.disarm();
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes the announcement back: the producer need not ring. Costs nothing when nothing is announced.
    #[inline]
    pub fn disarm(&mut self) {
        if self.armed && !self.memory.is_foreign() {
            self.has_rung |= self.memory.sleeping().swap(0, Ordering::Relaxed) == 0;
        }
        self.armed = false;
    }

    /// Whether the producer has taken an announcement since this was last asked, as far as [`Consumer::arm`] and
    /// [`Consumer::disarm`] saw: then its ring lies in the doorbell, or is about to.
    pub fn take_rung(&mut self) -> bool {
        std::mem::take(&mut self.has_rung)
    }

    /// How long ago the producer rang, in nanoseconds, if it has since this was last asked; for a sleeper that was
    /// woken ([`crate::Waiter::woken`]). Alleged by the producer, and right for two seconds.
    pub fn rung_ns_ago(&mut self, now_ns: u64) -> Option<u64> {
        if self.memory.is_foreign() {
            return None;
        }
        let rung = self.memory.rung().load(Ordering::Relaxed);
        let is_news = rung != std::mem::replace(&mut self.rung, rung) && rung != 0;
        // A ring later than `now_ns` was long ago, or is just now.
        is_news.then(|| clock_word(now_ns).wrapping_sub(rung) as i32).map(|ago| ago.max(0) as u64)
    }

    /// Whether the last [`Consumer::arm`] still stands on our side (the producer may have taken it and rung).
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Entries the ring holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.memory.capacity()
    }

    /// Takes over the producer's tail if it lies between the last one and a full ring; tells whether entries wait.
    #[inline]
    fn look_at_tail(&mut self) -> Result<bool, RingError> {
        if self.memory.is_foreign() {
            return Err(RingError::Forked);
        }
        let capacity = self.memory.capacity();
        // SYNC: pairs with the Release store in `Producer::publish`.
        let claimed = self.memory.tail().load(Ordering::Acquire);
        let waiting = claimed.wrapping_sub(self.head);
        if waiting > capacity || waiting < self.tail.wrapping_sub(self.head) {
            return Err(RingError::Index { word: "tail", claimed, ours: self.head, capacity });
        }
        self.tail = claimed;
        Ok(waiting != 0)
    }
}

/// Both ends of a ring in loom's memory, with indices that begin at `start`: for the models only.
#[cfg(loom)]
#[must_use]
pub fn model_ring(capacity: u32, start: u32) -> (Producer, Consumer) {
    let memory = RingMemory::new(capacity, start);
    (Producer::resume(memory.clone(), start, start), Consumer::resume(memory, start))
}
