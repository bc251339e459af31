//! What this thread is doing: which session it drains, for which delivered call it works.

use crate::kick::Kick;
use crate::session::{Asker, Session};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use trunkline_call::{CallId, Deadline};
use trunkline_shm::ForkGuard;

thread_local! {
    static THREAD: Thread = const { Thread::new() };
}

struct Thread {
    /// What this thread sleeps on.
    kick: RefCell<Option<Rc<OwnKick>>>,
    /// How many `block_on` are on the stack.
    blocking: Cell<u32>,
    /// The session the innermost `block_on` is to drain.
    target: RefCell<Option<Arc<Session>>>,
    /// The session this thread runs handlers for.
    serving: RefCell<Option<Arc<Session>>>,
    /// The handler being polled.
    task: Cell<Option<Task>>,
}

/// A kick, and the process it belongs to: its eventfd must not be shared with a forked child.
pub(crate) struct OwnKick {
    guard: ForkGuard,
    pub(crate) kick: Arc<Kick>,
    pub(crate) waker: Waker,
}

/// A handler while it is polled.
#[derive(Clone, Copy)]
struct Task {
    parent: Parent,
    /// Identity of the waker it is polled with.
    waker: *const (),
}

/// The delivered call whose handler is running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    pub(crate) call: CallId,
    pub(crate) deadline: Deadline,
}

impl Thread {
    const fn new() -> Self {
        Self {
            kick: RefCell::new(None),
            blocking: Cell::new(0),
            target: RefCell::new(None),
            serving: RefCell::new(None),
            task: Cell::new(None),
        }
    }
}

/// What this thread does. `None` when the thread ends and has destroyed that: destructors of other thread-local values
/// may make calls all the same, which then are nobody's but the listener's to look after.
fn with_thread<T>(act: impl FnOnce(&Thread) -> T) -> Option<T> {
    THREAD.try_with(act).ok()
}

/// The kick of this thread and its waker.
///
/// # Panics
/// If the kernel has no descriptor left for the thread's eventfd: a blocking call could then never be woken.
pub(crate) fn own_kick() -> Rc<OwnKick> {
    let own = with_thread(|thread| {
        let mut own = thread.kick.borrow_mut();
        if let Some(own) = own.as_ref().filter(|own| !own.guard.is_foreign()) {
            return Rc::clone(own);
        }
        Rc::clone(own.insert(OwnKick::new()))
    });
    own.unwrap_or_else(OwnKick::new)
}

impl OwnKick {
    fn new() -> Rc<Self> {
        let kick = Kick::new().expect("an eventfd for a blocking thread");
        let waker = Waker::from(Arc::clone(&kick));
        Rc::new(Self { guard: ForkGuard::new(), kick, waker })
    }
}

/// A `block_on` on this thread, from here to its drop.
pub(crate) struct Blocking {
    outer_target: Option<Arc<Session>>,
}

impl Blocking {
    pub(crate) fn enter() -> Self {
        let outer_target = with_thread(|thread| {
            thread.blocking.set(thread.blocking.get() + 1);
            thread.target.take()
        });
        Self { outer_target: outer_target.flatten() }
    }

    /// The session the future polled last waits for, if it waits for one.
    pub(crate) fn take_target(&self) -> Option<Arc<Session>> {
        with_thread(|thread| thread.target.take()).flatten()
    }

    /// Whether another `block_on` on this thread polls the future that called this one.
    pub(crate) fn is_nested(&self) -> bool {
        with_thread(|thread| thread.blocking.get() > 1).unwrap_or(false)
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        with_thread(|thread| {
            thread.blocking.set(thread.blocking.get() - 1);
            thread.target.replace(self.outer_target.take());
        });
    }
}

/// This thread runs handlers for `session` from now on, or for none.
pub(crate) fn serve(session: Option<Arc<Session>>) {
    with_thread(|thread| thread.serving.replace(session));
}

/// Runs `poll` on behalf of a delivered call.
pub(crate) fn on_behalf<T>(parent: Parent, waker: &Waker, poll: impl FnOnce() -> T) -> T {
    struct Restore<'a>(&'a Thread, Option<Task>);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            self.0.task.set(self.1);
        }
    }
    THREAD.with(|thread| {
        let outer = thread.task.replace(Some(Task { parent, waker: waker.data() }));
        let _restore = Restore(thread, outer);
        poll()
    })
}

/// Runs `poll` on behalf of a call delivered to `session`, on any thread. Others must drain for what it waits for.
pub(crate) fn on_behalf_of<T>(session: &Arc<Session>, parent: Parent, poll: impl FnOnce() -> T) -> T {
    struct Restore(Option<(Option<Arc<Session>>, Option<Task>)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let Some((serving, task)) = self.0.take() else { return };
            with_thread(|thread| {
                thread.serving.replace(serving);
                thread.task.set(task);
            });
        }
    }
    let _restore = Restore(with_thread(|thread| {
        let serving = thread.serving.replace(Some(Arc::clone(session)));
        (serving, thread.task.replace(Some(Task { parent, waker: std::ptr::null() })))
    }));
    poll()
}

/// Who asks about a call of `session`, and whether the thread that polls will drain it without being told.
///
/// The waker tells: it is this thread's own (our `block_on`) or the running handler's (our worker). Under any other
/// waker the future is in the hands of another executor, even if that runs inside of ours, and someone else must drain.
pub(crate) fn asker<'a>(session: &Arc<Session>, cx: &'a Context<'_>) -> Asker<'a> {
    let waker = cx.waker();
    let ours =
        with_thread(|thread| is_own_task(thread, session, waker) || is_own_wait(thread, session, waker));
    Asker { waker, foreign: ours != Some(true) }
}

/// After an asker that is not foreign had to wait: what `block_on` drains next. A worker drains its session anyway.
pub(crate) fn aim(session: &Arc<Session>) {
    with_thread(|thread| {
        if thread.blocking.get() > 0 && thread.target.borrow().is_none() {
            thread.target.replace(Some(Arc::clone(session)));
        }
    });
}

/// Whether the future with this waker is driven by this thread's own `block_on` or worker.
pub(crate) fn is_blocking_here(waker: &Waker) -> bool {
    with_thread(|thread| thread.blocking.get() > 0 && is_own_kick(thread, waker)).unwrap_or(false)
}

/// The session whose handler is running on this thread, and the call it was delivered for.
pub(crate) fn parent() -> Option<(Arc<Session>, Parent)> {
    with_thread(|thread| {
        let task = thread.task.get()?;
        let session = thread.serving.borrow().clone()?;
        Some((session, task.parent))
    })
    .flatten()
}

fn is_own_task(thread: &Thread, session: &Arc<Session>, waker: &Waker) -> bool {
    thread.task.get().is_some_and(|task| task.waker == waker.data())
        && thread.serving.borrow().as_ref().is_some_and(|serving| Arc::ptr_eq(serving, session))
}

fn is_own_wait(thread: &Thread, session: &Arc<Session>, waker: &Waker) -> bool {
    thread.blocking.get() > 0
        && is_own_kick(thread, waker)
        && thread.target.borrow().as_ref().is_none_or(|target| Arc::ptr_eq(target, session))
}

fn is_own_kick(thread: &Thread, waker: &Waker) -> bool {
    thread.kick.borrow().as_ref().is_some_and(|own| own.waker.will_wake(waker))
}
