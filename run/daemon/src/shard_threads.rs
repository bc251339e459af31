//! The threads of shards: which have one of their own, and how one is started and stopped while calls go on.
//!
//! There are as many shards from the beginning as there may be threads. One that nobody needs is beside the first, on
//! that one's thread, where it costs nothing while it has nothing to do (`group.rs`). It gets a thread of its own when
//! there is work for it, and the ports of the first to listen at; it loses both when the others have time for its work.
//! Its sessions move to others before (`session_moves.rs`). Calls that are still under way by it, and connections that
//! were made to it, go on beside the first.

use crate::command::{Command, ShardSender};
use crate::elastic::{Elastic, LOOK_NS};
use crate::group::{Group, ThreadOrder, Threaded};
use crate::load::BusyTime;
use crate::threads::Threads;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// What a shard's thread is called.
pub(crate) const THREAD_NAME: &str = "trunkline-shard";

/// A shard, as whoever gives its thread orders knows it.
pub(crate) struct ThreadOfShard {
    pub shard: ShardSender,
    pub orders: Sender<ThreadOrder>,
    pub busy: Arc<BusyTime>,
}

/// All of them.
pub(crate) struct ShardThreads {
    all: Vec<ThreadOfShard>,
    elastic: Elastic,
    threads: Arc<Threads>,
    /// When it was looked whether one less would do.
    looked_ns: u64,
}

impl ShardThreads {
    pub fn new(all: Vec<ThreadOfShard>, elastic: Elastic, threads: Arc<Threads>) -> Self {
        let own = all.iter().take(elastic.open());
        own.for_each(|one| one.busy.set_thread(true));
        Self { all, elastic, threads, looked_ns: 0 }
    }

    /// How many, the first, take in what is new.
    pub fn open(&self) -> usize {
        self.elastic.open()
    }

    /// How long each of those has been busy.
    pub fn busy_ns(&self) -> Vec<u64> {
        self.all.iter().take(self.open()).map(|one| one.busy.ns()).collect()
    }

    /// The least busy of those.
    pub fn least_busy(&self, now_ns: u64) -> usize {
        let shares = self.all.iter().take(self.open()).map(|one| one.busy.permille(now_ns));
        shares.enumerate().min_by_key(|(_, share)| *share).map_or(0, |(index, _)| index)
    }

    /// Shards that take in nothing new and have a thread.
    pub fn closing(&self) -> impl Iterator<Item = usize> {
        let all = self.all.iter().enumerate().skip(self.open());
        all.filter(|(_, one)| one.busy.has_thread()).map(|(index, _)| index)
    }

    /// When it is to be looked after next, if ever.
    pub fn next_look(&self, now_ns: u64) -> Option<Duration> {
        let looks = self.elastic.is_stretched() || self.closing().next().is_some();
        looks.then(|| Duration::from_nanos((self.looked_ns + LOOK_NS).saturating_sub(now_ns)))
    }

    /// Whether one less would do. Asked no sooner than [`ShardThreads::next_look`] says.
    pub fn look(&mut self, now_ns: u64) -> bool {
        self.looked_ns = now_ns;
        let busy_ns = self.busy_ns();
        self.elastic.look(now_ns, &busy_ns)
    }

    /// Whether another shard may begin.
    pub fn may_open(&self, now_ns: u64) -> bool {
        self.elastic.may_grow(now_ns)
    }

    /// Has the next shard take in what is new, on a thread of its own.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn open_another(&mut self, now_ns: u64) -> io::Result<()> {
        let index = self.open();
        if !self.all.get(index).is_some_and(|one| one.busy.has_thread()) {
            self.start(index)?;
        }
        let (first, another) = (&self.all[0].shard, &self.all[index].shard);
        let ports = first.ask(|reply| Command::ShareListeners { reply });
        another.send(Command::TakeListeners(ports.unwrap_or_default()));
        self.elastic.grew(now_ns);
        Ok(())
    }

    /// Has the last shard take in nothing new. Its sessions are to move; then it is to be parked.
    pub fn close_last(&mut self, now_ns: u64) {
        self.elastic.shrank(now_ns);
        let (first, last) = (&self.all[0].shard, &self.all[self.open()].shard);
        // Whoever has connected and was not accepted waits in these.
        let listeners = last.ask(|reply| Command::GiveListeners { reply });
        first.send(Command::TakeListeners(listeners.unwrap_or_default()));
    }

    /// Ends a shard's thread: the shard goes on beside the first.
    pub fn park(&mut self, index: usize) {
        if let Some(shards) = self.take_from_thread(index) {
            self.order(0, ThreadOrder::Take(shards));
        }
        self.all[index].busy.set_thread(false);
    }

    /// Gives a shard a thread of its own. The thread is there before the shard leaves the one it is on.
    fn start(&self, index: usize) -> io::Result<()> {
        let (give, given) = channel::<Vec<Threaded>>();
        self.threads.spawn(THREAD_NAME, move || {
            if let Some(group) = given.recv().ok().and_then(Group::of) {
                group.run();
            }
        })?;
        if let Some(shards) = self.take_from_thread(index) {
            let _ = give.send(shards);
        }
        self.all[index].busy.set_thread(true);
        Ok(())
    }

    /// `None`: the daemon is ending.
    fn take_from_thread(&self, index: usize) -> Option<Vec<Threaded>> {
        let (reply, answer) = channel();
        self.order(index, ThreadOrder::Give(reply));
        answer.recv().ok()
    }

    fn order(&self, index: usize, order: ThreadOrder) {
        let one = &self.all[index];
        let _ = one.orders.send(order);
        one.shard.send(Command::OrderThread);
    }
}
