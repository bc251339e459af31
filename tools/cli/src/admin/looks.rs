//! Whose question about the daemon is answered next.
//!
//! Every user who may look may ask as often as it likes, and an answer takes a shard's report, which has a tenth of the
//! shard's time. So questions wait in a line of their own, in which users take turns by the time their answers take
//! (`FairQueue`): however many one asks, another waits for one answer of each. A thread answers them one after the
//! other; the server's own thread stays free. Changes and moves wait in another such line, with a thread of its own: a
//! move takes up to a second for each session, and no question waits for it.
//!
//! # Limits
//! [`WAITING_PER_USER_MAX`] questions of one user wait; more are refused. What nobody waits for any more is not asked.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use trunkline::{Execution, Status};
use trunkline_daemon::FairQueue;

/// Questions of one user that wait.
const WAITING_PER_USER_MAX: usize = 64;

/// The line, and the thread that answers. It ends with this.
pub(super) struct Looks<H> {
    line: Arc<Line<H>>,
}

struct Line<H> {
    state: Mutex<LineState<H>>,
    news: Condvar,
}

struct LineState<H> {
    /// By user, as the kernel numbers them.
    queue: FairQueue<u32, Question<H>>,
    has_ended: bool,
}

/// Answers, where it is told; not if nobody waits any more.
type Question<H> = Box<dyn FnOnce(&H) + Send>;

/// A place for an answer.
struct Slot<T> {
    state: Mutex<SlotState<T>>,
}

struct SlotState<T> {
    answer: Option<T>,
    /// Nobody will answer.
    is_lost: bool,
    waker: Option<Waker>,
}

/// Whoever is to answer. Dropped without a word it says that nobody will.
struct Answerer<T>(Arc<Slot<T>>);

/// The answer, when it is there.
struct Answered<T>(Arc<Slot<T>>);

impl<H: Send + Sync + 'static> Looks<H> {
    /// Begins to answer from what is known of `host`, on a thread of this name.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn begin(host: Arc<H>, thread_name: &str) -> io::Result<Self> {
        let state = LineState { queue: FairQueue::new(), has_ended: false };
        let line = Arc::new(Line { state: Mutex::new(state), news: Condvar::new() });
        let own = Arc::clone(&line);
        std::thread::Builder::new().name(thread_name.into()).spawn(move || own.run(&*host))?;
        Ok(Self { line })
    }

    /// Asks for a user, by its identity.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if too many questions of this user wait already.
    pub async fn ask<T: Send + 'static>(
        &self,
        identity: &str,
        question: impl FnOnce(&H) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let slot =
            Arc::new(Slot { state: Mutex::new(SlotState { answer: None, is_lost: false, waker: None }) });
        let answerer = Answerer(Arc::clone(&slot));
        let question: Question<H> = Box::new(move |host| {
            if answerer.is_wanted() {
                answerer.tell(question(host));
            }
        });
        self.line.push(user(identity), question).map_err(|()| {
            let why = format!(
                "{WAITING_PER_USER_MAX} questions of {identity} to the daemon wait already; ask again when some are \
                 answered (WAITING_PER_USER_MAX)"
            );
            Status::resource_exhausted(why).with_execution(Execution::NotExecuted)
        })?;
        Answered(slot).await.ok_or_else(|| Status::internal("the answer was lost; the daemon's log says why"))
    }
}

impl<H> Line<H> {
    /// `Err`: too many of this user wait.
    fn push(&self, user: u32, question: Question<H>) -> Result<(), ()> {
        let mut state = self.lock();
        if state.queue.waiting(user) >= WAITING_PER_USER_MAX {
            return Err(());
        }
        state.queue.push(user, question);
        drop(state);
        self.news.notify_one();
        Ok(())
    }

    fn run(&self, host: &H) {
        let mut state = self.lock();
        loop {
            let Some((user, question)) = state.queue.pop() else {
                if state.has_ended {
                    return;
                }
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let began = Instant::now();
            // The daemon goes on, and so do those who ask something else.
            let _ = catch_unwind(AssertUnwindSafe(|| question(host)));
            let taken_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            state = self.lock();
            state.queue.charge(user, taken_ns);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LineState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> Drop for Looks<H> {
    fn drop(&mut self) {
        self.line.lock().has_ended = true;
        self.line.news.notify_one();
    }
}

impl<T> Answerer<T> {
    /// Whether anybody waits.
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn tell(&self, answer: T) {
        self.0.lock().answer = Some(answer);
    }
}

impl<T> Drop for Answerer<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_lost = state.answer.is_none();
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, SlotState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Future for Answered<T> {
    /// `None`: nobody has answered.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        if state.is_lost || state.answer.is_some() {
            return Poll::Ready(state.answer.take());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<H> std::fmt::Debug for Looks<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looks").finish_non_exhaustive()
    }
}

/// The user of an identity as the kernel has it; all others share one place.
pub(super) fn user(identity: &str) -> u32 {
    identity.strip_prefix("uid:").and_then(|user| user.parse().ok()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    //! Shows that users take turns, that one can have only so many wait, and that a lost answer is known to be.
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A thread that waits for the answer; what became of it.
    fn ask(
        looks: &Arc<Looks<()>>,
        user: u32,
        question: impl FnOnce(&()) -> u32 + Send + 'static,
    ) -> std::thread::JoinHandle<Result<u32, Status>> {
        let looks = Arc::clone(looks);
        std::thread::spawn(move || {
            trunkline::block_on(async move { looks.ask(&format!("uid:{user}"), question).await })
        })
    }

    /// A question that is under way until it is let go on.
    fn busy(looks: &Arc<Looks<()>>) -> (Sender<()>, std::thread::JoinHandle<Result<u32, Status>>) {
        let (go_on, wait): (Sender<()>, Receiver<()>) = channel();
        let (begun, has_begun) = channel();
        let asked = ask(looks, 1, move |()| {
            let _ = begun.send(());
            let _ = wait.recv();
            0
        });
        has_begun.recv().unwrap();
        (go_on, asked)
    }

    fn until_waiting(looks: &Looks<()>, user: u32, questions: usize) {
        while looks.line.lock().queue.waiting(user) < questions {
            std::thread::yield_now();
        }
    }

    #[test]
    fn users_take_turns_and_a_flood_is_refused() {
        let looks = Arc::new(Looks::begin(Arc::new(()), "looks").unwrap());
        let (go_on, first) = busy(&looks);
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |user: u32| {
            let order = Arc::clone(&order);
            move |(): &()| {
                order.lock().unwrap().push(user);
                user
            }
        };
        let flood: Vec<_> = (0..WAITING_PER_USER_MAX).map(|_| ask(&looks, 1, note(1))).collect();
        until_waiting(&looks, 1, WAITING_PER_USER_MAX);
        let refused = ask(&looks, 1, note(1)).join().unwrap().unwrap_err();
        assert!(refused.message().contains("64 questions of uid:1"), "{refused}");
        let other = ask(&looks, 2, note(2));
        until_waiting(&looks, 2, 1);
        go_on.send(()).unwrap();
        assert_eq!(other.join().unwrap().unwrap(), 2);
        assert!(flood.into_iter().chain([first]).all(|asked| asked.join().unwrap().is_ok()));
        let order = order.lock().unwrap();
        assert!(order.iter().position(|user| *user == 2).unwrap() <= 1, "{order:?}");
    }

    #[test]
    fn an_answer_that_is_lost_is_known_to_be() {
        let looks = Arc::new(Looks::begin(Arc::new(()), "looks").unwrap());
        let lost = ask(&looks, 1, |()| panic!("as is wanted here")).join().unwrap().unwrap_err();
        assert!(lost.message().contains("the answer was lost"), "{lost}");
        assert_eq!(ask(&looks, 1, |()| 7).join().unwrap().unwrap(), 7, "and others are answered");
    }
}
