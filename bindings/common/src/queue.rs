//! A completion queue: operations are polled by whoever asks for events, and a descriptor tells when to ask.
//!
//! A forked child has its parent's descriptor, and a lock that no thread of its own may have: there a queue of the
//! parent's is one that was closed, and nothing of it is touched. The lock is the standard library's, because those
//! that sleep in another's stand in a table of the process, which a child may find locked for ever.

use async_task::{Runnable, Task};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use slab::Slab;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;
use trunkline_shm::ForkGuard;

/// Operations polled in a row before a thread that asked for events looks for one: what is woken again and again
/// keeps nobody from an event that is there.
const POLLS_MAX: usize = 64;

/// Operations under way and events that are there. Cheap to clone; used from any thread.
///
/// An operation given to it is polled once at once, so what it sends is on its way; then whenever it is woken, by a
/// thread in [`CompletionQueue::next`].
pub struct CompletionQueue<E> {
    shared: Arc<Shared<E>>,
}

struct Shared<E> {
    state: Mutex<State<E>>,
    bell: QueueBell,
    /// Of the process that made it.
    guard: ForkGuard,
}

/// Who hears that there is something: one of the threads that sleep in `next`, for one thing one of them, and whoever
/// watches the descriptor.
struct QueueBell {
    sleepers: Condvar,
    /// Readable while `state.rung`, once somebody has asked for it: until then nobody watches it.
    watched: OwnedFd,
}

struct State<E> {
    /// Operations that were woken.
    woken: VecDeque<Runnable>,
    /// Each with its number; those rise.
    events: VecDeque<(u64, E)>,
    /// Of the last event, from 1.
    last_number: u64,
    /// Every operation that has not ended; dropping one cancels it.
    under_way: Slab<Option<Task<()>>>,
    /// Threads in `next` that will look again before they sleep or leave: nobody need ring for those.
    looking: usize,
    /// There is something that no thread is looking at.
    rung: bool,
    /// Somebody has asked for the descriptor.
    is_watched: bool,
    is_closed: bool,
}

/// What a thread that asked for events got.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited {
    /// As many events as were added.
    Events(usize),
    /// None came in time.
    Late,
    /// Nothing will come any more, or the queue is the process's that this one was forked from.
    Closed,
}

impl<E: Send + 'static> CompletionQueue<E> {
    /// An empty queue.
    ///
    /// # Errors
    /// What the kernel says when it has no descriptor to give.
    pub fn new() -> io::Result<Self> {
        let watched = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = QueueBell { sleepers: Condvar::new(), watched };
        let state = State {
            woken: VecDeque::new(),
            events: VecDeque::new(),
            last_number: 0,
            under_way: Slab::new(),
            looking: 0,
            rung: false,
            is_watched: false,
            is_closed: false,
        };
        Ok(Self { shared: Arc::new(Shared { state: Mutex::new(state), bell, guard: ForkGuard::new() }) })
    }

    /// Begins an operation; what it comes to is an event. Nothing happens in a queue that is closed.
    pub fn begin(&self, work: impl Future<Output = E> + Send + 'static) {
        let key = match self.shared.lock() {
            Some(mut state) if !state.is_closed => state.under_way.insert(None),
            _ => return,
        };
        let (ends, wakes) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.shared));
        let work = async move {
            let event = work.await;
            end(&ends, key, event);
        };
        let (runnable, task) = async_task::spawn(work, move |runnable| wake(&wakes, runnable));
        let Some(mut state) = self.shared.lock() else { return };
        state.keep(key, task);
        drop(state);
        runnable.run();
    }

    /// Adds an event.
    pub fn push(&self, event: E) {
        if let Some(mut state) = self.shared.lock() {
            state.add(event, &self.shared.bell);
        }
    }

    /// Adds an event that is taken out again if `poll_over` becomes ready before anybody has taken it: what is not
    /// wanted any more does not wait here. `poll_over` is asked once, before the event is there, and wakes.
    pub fn push_while_wanted(&self, event: E, poll_over: impl FnOnce(&Context<'_>) -> Poll<()>) {
        let withdrawal =
            Arc::new(Withdrawal { shared: Arc::downgrade(&self.shared), number: AtomicU64::new(NOT_ADDED) });
        let waker = Waker::from(Arc::clone(&withdrawal));
        if poll_over(&Context::from_waker(&waker)).is_ready() {
            return;
        }
        let Some(mut state) = self.shared.lock() else { return };
        // Relaxed: the lock orders it with whoever takes it out.
        let number = state.last_number + 1;
        let added =
            withdrawal.number.compare_exchange(NOT_ADDED, number, Ordering::Relaxed, Ordering::Relaxed);
        if added.is_ok() {
            state.add(event, &self.shared.bell);
        } else {
            drop(state);
            drop(event);
        }
    }

    /// Moves up to `max` events into `out`; waits for the first until `deadline`, or for ever.
    pub fn next(&self, out: &mut Vec<E>, max: usize, deadline: Option<Instant>) -> Waited {
        loop {
            match self.look(out, max) {
                Waited::Late => {}
                found => return found,
            }
            if !self.sleep(deadline) {
                return self.look(out, max);
            }
        }
    }

    /// Ends all operations; who waits for events learns it.
    pub fn close(&self) {
        let Some(mut state) = self.shared.lock() else { return };
        state.is_closed = true;
        state.ring(&self.shared.bell);
        self.shared.bell.sleepers.notify_all();
        let tasks = mem::take(&mut state.under_way);
        let (woken, events) = (mem::take(&mut state.woken), mem::take(&mut state.events));
        drop(state);
        // Not under the lock: what is dropped may wake others.
        drop((tasks, woken, events));
    }

    /// Operations under way.
    pub fn under_way(&self) -> usize {
        self.shared.lock().map_or(0, |state| state.under_way.len())
    }

    /// Polls what was woken and takes the events that are there; `Late` if there is none.
    fn look(&self, out: &mut Vec<E>, max: usize) -> Waited {
        let shared = &*self.shared;
        let Some(mut state) = shared.lock() else { return Waited::Closed };
        state.looking += 1;
        drop(state);
        let mut looking = Looking { shared: Some(shared) };
        let mut polls = 0;
        loop {
            let Some(mut state) = shared.lock() else { return Waited::Closed };
            if state.is_closed {
                return Waited::Closed;
            }
            let can_take = state.woken.is_empty() || polls >= POLLS_MAX || state.events.len() >= max;
            if can_take && !state.events.is_empty() {
                let count = state.events.len().min(max);
                out.extend(state.events.drain(..count).map(|(_, event)| event));
                looking.leave(&mut state);
                return Waited::Events(count);
            }
            let Some(runnable) = state.woken.pop_front() else {
                looking.leave(&mut state);
                return Waited::Late;
            };
            drop(state);
            polls += 1;
            runnable.run();
        }
    }

    /// Whether there was something before the deadline. Who has no time left does not sleep.
    fn sleep(&self, deadline: Option<Instant>) -> bool {
        let sleepers = &self.shared.bell.sleepers;
        let Some(mut state) = self.shared.lock() else { return true };
        while !state.rung {
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => sleepers.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return false,
                Some(left) => sleepers.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        true
    }
}

impl<E> Shared<E> {
    /// What everybody shares, for some instructions; `None` in a forked child, for whose threads it is not.
    fn lock(&self) -> Option<MutexGuard<'_, State<E>>> {
        let is_ours = !self.guard.is_foreign();
        is_ours.then(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<E> Drop for Shared<E> {
    /// In a forked child operations are not dropped either: they are the parent's, and as its threads had them.
    fn drop(&mut self) {
        if self.guard.is_foreign() {
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget((
                mem::take(&mut state.under_way),
                mem::take(&mut state.woken),
                mem::take(&mut state.events),
            ));
        }
    }
}

/// What takes an event out: its number, or one of those below.
struct Withdrawal<E> {
    shared: Weak<Shared<E>>,
    number: AtomicU64,
}

const NOT_ADDED: u64 = 0;
const NOT_WANTED: u64 = u64::MAX;

impl<E: Send + 'static> Wake for Withdrawal<E> {
    fn wake(self: Arc<Self>) {
        let number = self.number.swap(NOT_WANTED, Ordering::Relaxed);
        let is_there = number != NOT_ADDED && number != NOT_WANTED;
        if let Some(shared) = self.shared.upgrade().filter(|_| is_there) {
            // Not under the lock: what is dropped may wake others.
            let event = shared.lock().and_then(|mut state| state.take_out(number, &shared.bell));
            drop(event);
        }
    }
}

/// A thread between two looks. When it leaves, and however, others are told what is left.
struct Looking<'a, E> {
    shared: Option<&'a Shared<E>>,
}

impl<E> Looking<'_, E> {
    fn leave(&mut self, state: &mut State<E>) {
        let Some(shared) = self.shared.take() else { return };
        state.looking -= 1;
        if state.is_empty() && !state.is_closed {
            state.hush(&shared.bell);
        } else {
            state.ring(&shared.bell);
        }
    }
}

/// An operation panicked, or the queue is closed.
impl<E> Drop for Looking<'_, E> {
    fn drop(&mut self) {
        if let Some(mut state) = self.shared.and_then(Shared::lock) {
            self.leave(&mut state);
        }
    }
}

/// An operation was woken. In a queue that is gone it is dropped, which cancels it.
fn wake<E>(shared: &Weak<Shared<E>>, runnable: Runnable) {
    let Some(shared) = shared.upgrade() else { return };
    let Some(mut state) = shared.lock() else { return mem::forget(runnable) };
    if state.is_closed {
        drop(state);
        return drop(runnable);
    }
    state.woken.push_back(runnable);
    state.ring_unless_looked(&shared.bell);
}

/// An operation came to its end.
fn end<E>(shared: &Weak<Shared<E>>, key: usize, event: E) {
    let Some(shared) = shared.upgrade() else { return };
    let task = {
        let Some(mut state) = shared.lock() else { return };
        if state.is_closed {
            return;
        }
        let task = state.under_way.try_remove(key);
        state.add(event, &shared.bell);
        task
    };
    if let Some(Some(task)) = task {
        task.detach();
    }
}

impl<E> State<E> {
    /// Keeps the handle of an operation that has not ended.
    fn keep(&mut self, key: usize, task: Task<()>) {
        match self.under_way.get_mut(key) {
            Some(place) if !self.is_closed => *place = Some(task),
            // The queue was closed in between: dropping the handle cancels it.
            _ => drop(task),
        }
    }

    fn add(&mut self, event: E, bell: &QueueBell) {
        if !self.is_closed {
            self.last_number += 1;
            self.events.push_back((self.last_number, event));
            self.ring_unless_looked(bell);
        }
    }

    /// An event that nobody has taken.
    fn take_out(&mut self, number: u64, bell: &QueueBell) -> Option<E> {
        let at = self.events.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let event = self.events.remove(at);
        if self.is_empty() && self.looking == 0 {
            self.hush(bell);
        }
        event.map(|(_, event)| event)
    }

    fn is_empty(&self) -> bool {
        self.woken.is_empty() && self.events.is_empty()
    }

    fn ring_unless_looked(&mut self, bell: &QueueBell) {
        if self.looking == 0 {
            self.ring(bell);
        }
    }

    /// Wakes one thread, also where another was woken before: that one may have taken what it was woken for, and be
    /// busy with it.
    fn ring(&mut self, bell: &QueueBell) {
        if !mem::replace(&mut self.rung, true) && self.is_watched {
            bell.show();
        }
        bell.sleepers.notify_one();
    }

    fn hush(&mut self, bell: &QueueBell) {
        if mem::replace(&mut self.rung, false) && self.is_watched {
            let _ = io::read(&bell.watched, &mut [0; 8]);
        }
    }
}

impl QueueBell {
    fn show(&self) {
        // A full counter is readable already; nothing else can go wrong with an eventfd of ours.
        let _ = io::write(&self.watched, &1u64.to_ne_bytes());
    }
}

impl<E> AsFd for CompletionQueue<E> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let bell = &self.shared.bell;
        if let Some(mut state) = self.shared.lock()
            && !mem::replace(&mut state.is_watched, true)
            && state.rung
        {
            bell.show();
        }
        bell.watched.as_fd()
    }
}

impl<E> Clone for CompletionQueue<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E> fmt::Debug for CompletionQueue<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |count: fn(&State<E>) -> usize| self.shared.lock().map(|state| count(&state));
        f.debug_struct("CompletionQueue")
            .field("events", &of(|state| state.events.len()))
            .field("under_way", &of(|state| state.under_way.len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that every operation's event comes once, that the descriptor tells of it, and what closing does.
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Poll, Waker};

    fn is_readable(queue: &CompletionQueue<usize>) -> bool {
        let mut watched = [PollFd::new(queue, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).unwrap() == 1
    }

    fn now() -> Option<Instant> {
        Some(Instant::now())
    }

    #[test]
    fn the_descriptor_is_readable_while_there_is_something() {
        let queue = CompletionQueue::new().unwrap();
        assert!(!is_readable(&queue));
        let mut out = Vec::new();
        assert_eq!(queue.next(&mut out, 8, now()), Waited::Late);
        (0..3).for_each(|number| queue.push(number));
        assert!(is_readable(&queue));
        assert_eq!(queue.next(&mut out, 2, now()), Waited::Events(2));
        assert!(is_readable(&queue), "one is left");
        assert_eq!(queue.next(&mut out, 2, now()), Waited::Events(1));
        assert_eq!((out, is_readable(&queue)), (vec![0, 1, 2], false));
    }

    #[test]
    fn an_operation_is_polled_at_once_and_again_when_woken() {
        let queue = CompletionQueue::new().unwrap();
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let kept = Arc::clone(&waker);
        queue.begin(poll_fn(move |cx| match kept.lock().unwrap().replace(cx.waker().clone()) {
            None => Poll::Pending,
            Some(_) => Poll::Ready(5),
        }));
        assert!(waker.lock().unwrap().is_some(), "polled once");
        let mut out = Vec::new();
        assert_eq!((queue.next(&mut out, 8, now()), is_readable(&queue)), (Waited::Late, false));
        let woken = waker.lock().unwrap().clone().unwrap();
        woken.wake();
        assert!(is_readable(&queue));
        assert_eq!((queue.next(&mut out, 8, now()), queue.under_way()), (Waited::Events(1), 0));
    }

    #[test]
    fn many_threads_take_every_event_once() {
        const EVENTS: usize = 4000;
        let queue = CompletionQueue::new().unwrap();
        let (sum, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut out = Vec::new();
                    while let Waited::Events(count) = queue.next(&mut out, 7, None) {
                        sum.fetch_add(out.drain(..).sum(), Ordering::Relaxed);
                        if taken.fetch_add(count, Ordering::Relaxed) + count == EVENTS {
                            queue.close();
                        }
                    }
                });
            }
            for begin in 0..2 {
                let queue = &queue;
                scope.spawn(move || {
                    for number in (begin..EVENTS).step_by(2) {
                        if number % 3 == 0 {
                            queue.push(number);
                        } else {
                            let mut is_second = false;
                            queue.begin(poll_fn(move |cx| {
                                if mem::replace(&mut is_second, true) {
                                    return Poll::Ready(number);
                                }
                                cx.waker().wake_by_ref();
                                Poll::Pending
                            }));
                        }
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), EVENTS * (EVENTS - 1) / 2);
    }

    /// Each event is followed by the next only when it was taken by a thread that is busy with it from then on: whoever
    /// still sleeps has to hear of what comes.
    #[test]
    fn while_one_is_busy_others_hear() {
        const THREADS: usize = 4;
        for _ in 0..200 {
            let queue = CompletionQueue::<usize>::new().unwrap();
            let all_busy = std::sync::Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        assert_eq!(queue.next(&mut Vec::new(), 1, None), Waited::Events(1));
                        all_busy.wait();
                    });
                }
                (0..THREADS).for_each(|number| queue.push(number));
            });
        }
    }

    #[test]
    fn who_watches_the_descriptor_late_hears_of_what_was_there() {
        let queue = CompletionQueue::new().unwrap();
        queue.push(1);
        assert!(is_readable(&queue));
        let mut out = Vec::new();
        assert_eq!(queue.next(&mut out, 8, now()), Waited::Events(1));
        assert!(!is_readable(&queue));
    }

    #[test]
    fn what_is_not_wanted_any_more_is_taken_out() {
        let queue = CompletionQueue::new().unwrap();
        let wakers: Vec<_> = (0..5)
            .map(|number| {
                let mut kept = None;
                queue.push_while_wanted(number, |cx| {
                    kept = Some(cx.waker().clone());
                    Poll::Pending
                });
                queue.push(10 + number);
                kept.unwrap()
            })
            .collect();
        queue.push_while_wanted(5, |_| Poll::Ready(()));
        queue.push_while_wanted(6, |cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        wakers[0].wake_by_ref();
        wakers[3].wake_by_ref();
        wakers[3].wake_by_ref();
        let mut out = Vec::new();
        assert_eq!(queue.next(&mut out, 3, now()), Waited::Events(3));
        // One was taken, one was not.
        wakers[1].wake_by_ref();
        wakers[4].wake_by_ref();
        assert_eq!(queue.next(&mut out, 8, now()), Waited::Events(4));
        assert_eq!(out, [10, 1, 11, 2, 12, 13, 14]);
        let mut waker = None;
        queue.push_while_wanted(7, |cx| {
            waker = Some(cx.waker().clone());
            Poll::Pending
        });
        assert!(is_readable(&queue));
        waker.unwrap().wake();
        assert!(!is_readable(&queue), "nothing is left");
        assert_eq!(queue.next(&mut out, 8, now()), Waited::Late);
    }

    #[test]
    fn closing_drops_operations_and_wakes_those_who_wait() {
        struct Dropped(Arc<AtomicUsize>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(AtomicUsize::new(0));
        let queue = CompletionQueue::<usize>::new().unwrap();
        for _ in 0..3 {
            let dropped = Dropped(Arc::clone(&count));
            queue.begin(async move {
                std::future::pending::<()>().await;
                drop(dropped);
                0
            });
        }
        let waits = {
            let queue = queue.clone();
            std::thread::spawn(move || queue.next(&mut Vec::new(), 1, None))
        };
        queue.close();
        assert_eq!((waits.join().unwrap(), count.load(Ordering::Relaxed)), (Waited::Closed, 3));
        queue.begin(async { 1 });
        queue.push(1);
        assert_eq!(queue.next(&mut Vec::new(), 1, now()), Waited::Closed);
    }
}
