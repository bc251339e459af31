//! Handlers at work on one worker: polled by its thread alone, woken from anywhere.

use super::answer::Handling;
use super::meter::CpuTaken;
use crate::context::{self, Parent};
use crate::kick::Kick;
use crate::session::IdMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use trunkline_call::CallId;

/// The unfinished handlers of one worker.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<usize>,
    by_call: IdMap<CallId, usize>,
    ready: Arc<Ready>,
}

/// A place for a task. Its waker outlives the task and serves the next one: a late wake-up then polls that once in
/// vain.
struct Slot {
    task: Option<Task>,
    waker: Waker,
    flag: Arc<TaskWaker>,
}

struct Task {
    handling: Handling,
    parent: Parent,
    cpu: CpuTaken,
}

/// Which tasks are to be polled, and the thread that does it.
#[derive(Debug)]
struct Ready {
    queue: Mutex<VecDeque<usize>>,
    kick: Arc<Kick>,
}

#[derive(Debug)]
struct TaskWaker {
    index: usize,
    /// In the queue already.
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Tasks {
    /// No tasks; `kick` wakes the worker.
    pub(super) fn new(kick: Arc<Kick>) -> Self {
        let ready = Arc::new(Ready { queue: Mutex::default(), kick });
        Self { slots: Vec::new(), free: Vec::new(), by_call: IdMap::default(), ready }
    }

    /// Polls a new handler, and keeps it if it is not done. Most are.
    pub(super) fn start(&mut self, handling: Handling, parent: Parent) {
        let index = self.free.pop().unwrap_or_else(|| self.add_slot());
        if let Some(unfinished) = self.slots[index].poll(Task { handling, parent, cpu: CpuTaken::begin() }) {
            self.by_call.insert(parent.call, index);
            self.slots[index].task = Some(unfinished);
        } else {
            self.free.push(index);
        }
    }

    /// Polls what was woken before this began. Tells whether there was anything.
    pub(super) fn poll_ready(&mut self) -> bool {
        let woken = self.ready.queue.lock().len();
        for _ in 0..woken {
            let next = self.ready.queue.lock().pop_front();
            if let Some(index) = next {
                self.poll(index);
            }
        }
        woken > 0
    }

    /// Drops the handler of a call. What it took of its processor; 0 if that was not read.
    pub(super) fn dismiss(&mut self, call: CallId) -> u64 {
        let Some(index) = self.by_call.remove(&call) else { return 0 };
        self.free.push(index);
        let task = self.slots[index].task.take();
        let cpu_ns = task.as_ref().map_or(0, |task| task.cpu.ns());
        drop_quietly(task);
        cpu_ns
    }

    /// Drops every handler.
    pub(super) fn dismiss_all(&mut self) {
        let calls: Vec<CallId> = self.by_call.keys().copied().collect();
        for call in calls {
            self.dismiss(call);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_call.is_empty()
    }

    fn poll(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.flag.queued.store(false, Ordering::Release);
        let Some(task) = slot.task.take() else { return };
        let call = task.parent.call;
        match slot.poll(task) {
            Some(unfinished) => slot.task = Some(unfinished),
            None => {
                self.by_call.remove(&call);
                self.free.push(index);
            }
        }
    }

    fn add_slot(&mut self) -> usize {
        let index = self.slots.len();
        let ready = Arc::clone(&self.ready);
        let flag = Arc::new(TaskWaker { index, queued: AtomicBool::new(false), ready });
        self.slots.push(Slot { task: None, waker: Waker::from(Arc::clone(&flag)), flag });
        index
    }
}

impl Slot {
    /// Polls a task once; gives it back if it is not done. One that panics is done: its duty to answer is dropped with
    /// it, and tells the caller.
    fn poll(&self, mut task: Task) -> Option<Task> {
        let mut cx = Context::from_waker(&self.waker);
        let Task { handling, parent, cpu } = &mut task;
        let polled = context::on_behalf(*parent, &self.waker, || {
            cpu.during(|| catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(&mut cx))))
        });
        match polled {
            Ok(Poll::Pending) => Some(task),
            Ok(Poll::Ready(())) => None,
            Err(_panic) => {
                drop_quietly(Some(task));
                None
            }
        }
    }
}

/// Drops a task whose destructors may panic too.
fn drop_quietly(task: Option<Task>) {
    if catch_unwind(AssertUnwindSafe(|| drop(task))).is_err() {
        tracing::error!("a handler panicked while it was dropped");
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.queue.lock().push_back(self.index);
            self.ready.kick.kick();
        }
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("occupied", &self.task.is_some()).finish_non_exhaustive()
    }
}
