//! One attachment: what its owners are, how the books are opened, and how it ends.

use super::books::{Books, Limits, Phase};
use super::completions::Completions;
use super::dispatch::TRIM_BYTES;
use super::effects::Effects;
use super::heaps::ReceiveHeaps;
use super::link::ControlLink;
use super::listener::{HubId, SessionIdentity, SessionListener};
use super::queues::Resource;
use super::replies::Replies;
use super::state::EndedBy;
use crate::kick::Kick;
use crate::refusals::unavailable;
use crate::wakers;
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline_call::Status;
use trunkline_call::entry::Span;
use trunkline_shm::{
    AppEnd, Block, ControlSocket, Doorbell, ForkGuard, Heap, HeapFull, ReceivedBlock, Ringer, heap_number,
};

/// How long a large free block stays warm: one who sends such messages one after the other keeps its pages.
const TRIM_AFTER_NS: u64 = 1_000_000_000;

/// One attachment. Shared by every call, message and thread that uses it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) books: Mutex<Books>,
    pub(super) completions: Mutex<Completions>,
    pub(super) replies: Mutex<Replies>,
    pub(super) link: ControlLink,
    pub(super) send_heap: Heap,
    /// The block at offset 0, if the heap has one there: kept, because a zero in a `Freed` entry means no block.
    first: Option<Block>,
    daemon_doorbell: Ringer,
    pub(super) doorbell: Doorbell,
    /// The thread that runs this session's handlers, if it is a worker's.
    worker: Option<Arc<Kick>>,
    tells_callers: bool,
    /// The send heap is going to be trimmed.
    trims: AtomicBool,
    /// Whether new calls may be made: the books' phase, readable without their lock.
    open: AtomicBool,
    lost: AtomicBool,
    /// A listener watches the doorbell for tasks whose threads do not.
    pub(super) watched: AtomicBool,
    /// That listener is awake.
    pub(super) attended: AtomicBool,
    listener: Arc<dyn SessionListener>,
    identity: SessionIdentity,
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
        socket: ControlSocket,
        limits: Limits,
        worker: Option<Arc<Kick>>,
        identity: SessionIdentity,
        listener: Arc<dyn SessionListener>,
    ) -> Arc<Self> {
        let first = end.send_heap.allocate(1).ok().filter(|block| block.offset() == 0);
        Arc::new(Self {
            first,
            books: Mutex::new(Books::new(end.submissions, end.send_heap.clone(), limits)),
            completions: Mutex::new(Completions::new(end.completions)),
            replies: Mutex::default(),
            link: ControlLink::new(socket, ReceiveHeaps::new(end.receive_heap)),
            send_heap: end.send_heap,
            daemon_doorbell: end.peer_doorbell,
            doorbell: end.own_doorbell,
            worker,
            tells_callers: limits.tells_callers,
            trims: AtomicBool::new(false),
            open: AtomicBool::new(true),
            lost: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            attended: AtomicBool::new(false),
            listener,
            identity,
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

    /// Does what the books noted. Called without their lock.
    pub(super) fn settle(&self, effects: &mut Effects) {
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
        if std::mem::take(&mut effects.listen) {
            self.call_listener();
        }
        if std::mem::take(&mut effects.trim) {
            self.trim_later();
        }
        if let Some(fault) = effects.fault.take() {
            self.lose(&fault);
        }
    }

    /// Ends the session: every call learns it, every waiter wakes, the daemon sees the socket closed.
    pub(crate) fn lose(&self, reason: &str) {
        self.end(reason, EndedBy::Us);
    }

    /// The same when the daemon has ended it, if `end` says so.
    pub(crate) fn end(&self, reason: &str, end: EndedBy) {
        let first = self.with(|books, effects| {
            // Before anybody is woken: who comes back must not find this session open.
            self.open.store(false, Ordering::Release);
            self.lost.store(true, Ordering::Release);
            books.lose(reason, end, effects)
        });
        if first != Some(true) {
            return;
        }
        let (wakers, questions) = self.replies.lock().lose();
        wakers.into_iter().for_each(wakers::wake);
        for asked in questions {
            asked.settle(Err(unavailable("the session ended while a service was being bound")));
        }
        self.link.shut_down();
        wakers::caught(|| tracing::debug!(reason, "session over"));
    }

    /// Wakes the listener and has it watch this session.
    pub(super) fn call_listener(&self) {
        self.watched.swap(true, Ordering::AcqRel);
        self.listener.watch(self.identity.session);
    }

    /// Has the send heap's unused memory given back, in a while.
    fn trim_later(&self) {
        if !self.trims.swap(true, Ordering::AcqRel) {
            self.listener.trim_at(crate::clock::now().plus_ns(TRIM_AFTER_NS), self.identity.session);
        }
    }

    /// For the listener: gives the pages above the highest block of the send heap in use back to the kernel.
    pub(crate) fn trim(&self) {
        self.trims.store(false, Ordering::Release);
        if self.guard.is_foreign() {
            return;
        }
        if let Err(error) = self.send_heap.trim() {
            wakers::caught(|| tracing::debug!(%error, "the send heap's memory stays"));
        }
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
        // In a forked child the block is its parent's, and so may be the heap's lock.
        if self.guard.is_foreign() {
            return;
        }
        if self.send_heap.touched_bytes() >= TRIM_BYTES {
            self.trim_later();
        }
        self.with(|books, effects| books.made_available(Resource::Heap, effects));
    }

    /// A block a completion named.
    ///
    /// # Errors
    /// INTERNAL when it does not lie in its heap, or there is no such heap.
    pub(crate) fn received_block(&self, span: Span) -> Result<ReceivedBlock, Status> {
        if let Some(block) = self.link.heaps.block(span) {
            return block;
        }
        if self.link.look_for_heap(heap_number(span.offset)) {
            self.call_listener();
        }
        let unknown = || Status::internal("the daemon named a receive heap that it has not sent");
        self.link.heaps.block(span).unwrap_or_else(|| Err(unknown()))
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

    /// Whether the daemon says in the metadata of delivered calls who makes them.
    pub(crate) fn tells_callers(&self) -> bool {
        self.tells_callers
    }

    /// Whether new calls may be made here, in this process.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire) && !self.guard.is_foreign()
    }

    /// Whether the session is over, or another process's.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.guard.is_foreign()
    }

    /// Whether the session is that of the parent of this forked process.
    pub(crate) fn is_foreign(&self) -> bool {
        self.guard.is_foreign()
    }

    /// The hub this session belongs to.
    pub(crate) fn hub(&self) -> HubId {
        self.identity.hub
    }

    /// Whether the daemon is one inside this process because none was found on the host.
    pub(crate) fn is_alone(&self) -> bool {
        self.identity.alone
    }

    /// For the listener, which listens on behalf of other executors.
    pub(crate) fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
