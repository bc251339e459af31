//! One attachment to the daemon: two rings, two heaps, two doorbells, and the books about them.
//!
//! Two locks, never held while anything blocks that another thread could be waiting for:
//!
//! * the *books* ([`books::Books`]): calls, submissions, who waits for what; held for some tens of nanoseconds;
//! * the *seat* ([`drive::Seat`]): the right to drain the completion ring; held by the thread that looks at the ring or
//!   sleeps on its doorbell. Whoever wants the seat asks with `try_lock` and otherwise waits as a follower.
//!
//! The seat is taken before the books, never the other way round.

mod agreement;
mod books;
mod control;
mod dispatch;
mod drive;
mod heaps;
mod ids;
mod received;
mod room;
mod state;
mod submit;
#[cfg(test)]
mod tests;

pub(crate) use agreement::Agreement;
pub(crate) use books::{BindingId, Books, Effects, Limits, Phase, Place, Work};
pub(crate) use control::{refused, unavailable};
pub(crate) use ids::IdMap;
pub(crate) use received::Received;
pub(crate) use room::Room;
pub(crate) use state::{Asker, End};
pub(crate) use submit::{Order, Refusal, Written, returned};

use crate::context;
use crate::hub::Keeper;
use crate::kick::Kick;
use crate::wakers;
use control::Replies;
use dispatch::TRIM_BYTES;
use drive::Seat;
use heaps::ReceiveHeaps;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use trunkline_shm::{AppEnd, Block, ControlSocket, Doorbell, ForkGuard, Heap, HeapFull, Ringer};

/// How long a large free block stays warm: one who sends such messages one after the other keeps its pages.
const TRIM_AFTER_NS: u64 = 1_000_000_000;

/// One attachment. Shared by every call, message and thread that uses it.
#[derive(Debug)]
pub(crate) struct Session {
    books: Mutex<Books>,
    seat: Mutex<Seat>,
    replies: Mutex<Replies>,
    send_heap: Heap,
    /// The block at offset 0, if the heap has one there: kept, because a zero in a `Freed` entry means no block.
    first: Option<Block>,
    receive_heaps: ReceiveHeaps,
    daemon_doorbell: Ringer,
    doorbell: Doorbell,
    /// `None` once closed, which only the keeper does, or a forked child to its copy.
    control: Mutex<Option<ControlSocket>>,
    /// The thread that runs this session's handlers, if it is a worker's.
    worker: Option<Arc<Kick>>,
    tells_callers: bool,
    /// The keeper is going to trim the send heap.
    trims: AtomicBool,
    /// Whether new calls may be made: the books' phase, readable without their lock.
    open: AtomicBool,
    lost: AtomicBool,
    /// A listener watches the doorbell for tasks whose threads do not.
    watched: AtomicBool,
    /// That listener is awake.
    attended: AtomicBool,
    keeper: Arc<Keeper>,
    me: Weak<Session>,
    guard: ForkGuard,
}

impl PartialEq for Session {
    /// A session is only itself.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Session {
    /// A session just opened.
    pub(crate) fn new(
        end: AppEnd,
        control: ControlSocket,
        limits: Limits,
        worker: Option<Arc<Kick>>,
        keeper: Arc<Keeper>,
    ) -> Arc<Self> {
        let first = end.send_heap.allocate(1).ok().filter(|block| block.offset() == 0);
        Arc::new_cyclic(|me| Self {
            first,
            me: Weak::clone(me),
            books: Mutex::new(Books::new(end.submissions, end.send_heap.clone(), limits)),
            seat: Mutex::new(Seat::new(end.completions)),
            replies: Mutex::default(),
            send_heap: end.send_heap,
            receive_heaps: ReceiveHeaps::new(end.receive_heap),
            daemon_doorbell: end.peer_doorbell,
            doorbell: end.own_doorbell,
            control: Mutex::new(Some(control)),
            worker,
            tells_callers: limits.tells_callers,
            trims: AtomicBool::new(false),
            open: AtomicBool::new(true),
            lost: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            attended: AtomicBool::new(false),
            keeper,
            guard: ForkGuard::new(),
        })
    }

    /// Opens the books, and when they are closed again does what came of it. `None` in a forked child: the session is
    /// its parent's, and the books may be locked for ever by a thread that was not forked.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Books, &mut Effects) -> T) -> Option<T> {
        if self.guard.is_foreign() {
            return None;
        }
        let mut effects = Effects::default();
        let out = act(&mut self.books.lock(), &mut effects);
        self.settle(&mut effects);
        Some(out)
    }

    /// Asks the books on behalf of a task. If it has to wait, sees to it that somebody drains the ring meanwhile: the
    /// task's own thread, if that is driving it, else the keeper. `Ready(None)` as [`Session::with`].
    pub(crate) fn poll_with<T>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        ask: impl FnOnce(&mut Books, Asker<'_>, &mut Effects) -> Poll<T>,
    ) -> Poll<Option<T>> {
        let asker = context::asker(self, cx);
        let asked = self.with(|books, effects| {
            let polled = ask(books, asker, effects);
            if asker.foreign && !self.is_attended() {
                effects.keeper |= books.must_wake_listener();
            }
            polled
        });
        match asked {
            None => Poll::Ready(None),
            Some(Poll::Ready(out)) => Poll::Ready(Some(out)),
            Some(Poll::Pending) => {
                if asker.foreign {
                    self.rely_on_keeper();
                } else {
                    context::aim(self);
                }
                Poll::Pending
            }
        }
    }

    /// A task waits here whose thread does not drain.
    fn rely_on_keeper(&self) {
        self.hand_over();
        if !self.set_watched(true) {
            self.call_keeper();
        }
    }

    /// Wakes the keeper and has it watch this session.
    fn call_keeper(&self) {
        if let Some(session) = self.me.upgrade() {
            self.set_watched(true);
            self.keeper.watch(&session);
        }
    }

    /// Has the keeper give the send heap's unused memory back, in a while.
    fn trim_later(&self) {
        if let Some(session) = self.me.upgrade()
            && !self.trims.swap(true, Ordering::AcqRel)
        {
            self.keeper.trim_at(crate::clock::now().plus_ns(TRIM_AFTER_NS), &session);
        }
    }

    /// For the keeper: gives the pages above the highest block of the send heap in use back to the kernel.
    pub(crate) fn trim(&self) {
        self.trims.store(false, Ordering::Release);
        if self.guard.is_foreign() {
            return;
        }
        if let Err(error) = self.send_heap.trim() {
            tracing::debug!(%error, "the send heap's memory stays");
        }
    }

    /// The keeper of the hub this session belongs to.
    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Whether the daemon says in the metadata of delivered calls who makes them.
    pub(crate) fn tells_callers(&self) -> bool {
        self.tells_callers
    }

    /// A block of the send heap.
    ///
    /// # Errors
    /// [`HeapFull`], also when the block could never be had: compare with [`Session::block_bytes_max`].
    pub(crate) fn allocate(&self, len: u32) -> Result<Block, HeapFull> {
        self.send_heap.allocate(len)
    }

    /// A block was dropped without being sent: somebody may wait for it.
    pub(crate) fn block_given_back(&self) {
        if self.send_heap.touched_bytes() >= TRIM_BYTES {
            self.trim_later();
        }
        self.with(|books, effects| books.room_made(Room::Heap, effects));
    }

    /// Why the session is over, if it is.
    pub(crate) fn lost_because(&self) -> Arc<str> {
        let reason = self.with(|books, _| match books.phase() {
            Phase::Lost(reason) => Some(Arc::clone(reason)),
            Phase::Open | Phase::Leaving => None,
        });
        reason.flatten().unwrap_or_else(|| "it is another process's".into())
    }

    /// The largest block the send heap can ever give.
    pub(crate) fn block_bytes_max(&self) -> u32 {
        self.send_heap.capacity_bytes() - self.first.as_ref().map_or(0, Block::capacity)
    }

    /// Whether new calls may be made here, in this process.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire) && !self.guard.is_foreign()
    }

    /// Whether the session is over, or another process's.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.guard.is_foreign()
    }

    /// Ends the session: every call learns it, every waiter wakes, the daemon sees the socket closed.
    pub(crate) fn lose(&self, reason: &str) {
        let first = self.with(|books, effects| {
            // Before anybody is woken: who comes back must not find this session open.
            self.open.store(false, Ordering::Release);
            self.lost.store(true, Ordering::Release);
            books.lose(reason, effects)
        });
        if first == Some(true) {
            self.lose_replies();
            self.shut_down();
            tracing::debug!(reason, "session over");
        }
    }

    /// Does what the books noted. Called without their lock.
    fn settle(&self, effects: &mut Effects) {
        if std::mem::take(&mut effects.ring) {
            // Fails only if the descriptor is none of ours any more; the control socket tells of a daemon gone.
            let _ = self.daemon_doorbell.ring();
        }
        if std::mem::take(&mut effects.closed) {
            self.open.store(false, Ordering::Release);
        }
        effects.wakes.drain(..).for_each(wakers::wake);
        if std::mem::take(&mut effects.worker)
            && let Some(worker) = &self.worker
        {
            worker.kick();
        }
        if std::mem::take(&mut effects.keeper) {
            self.call_keeper();
        }
        if std::mem::take(&mut effects.trim) {
            self.trim_later();
        }
        if let Some(fault) = effects.fault.take() {
            self.lose(&fault);
        }
    }
}
