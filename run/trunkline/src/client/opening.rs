//! The start of a streaming call: made by whichever half is used first.

use super::attempt::Attempt;
use super::draft::{Draft, NotStarted};
use super::made::{Made, OpenStream};
use crate::message::Sendable;
use crate::wakers;
use parking_lot::Mutex;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use trunkline_call::{Execution, Status};

/// A call that both halves of a stream share.
///
/// Either half drives the start when it is polled, and a half that stops waiting leaves it to the other. Nobody holds a
/// lock while it waits, and a start that nobody waits for holds no place in any queue.
pub(crate) struct Opening<B> {
    state: Mutex<State<B>>,
}

/// Which half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Sender,
    Receiver,
}

/// An [`Opening`] as the receiving half sees it.
pub(crate) trait Start: fmt::Debug + Send + Sync {
    /// The call, started without a message if it has not been started.
    fn poll_start(&self, cx: &mut Context<'_>) -> Poll<Result<Arc<OpenStream>, Status>>;
    /// The receiver does not wait at the moment.
    fn leave(&self);
    /// Nobody will receive: the call is cancelled, or not made.
    fn abandon(&self);
}

struct State<B> {
    stage: Stage<B>,
    /// Who waits for the call, by half.
    waiting: [Option<Waker>; 2],
    /// Somebody came to wait while the attempt was being polled on behalf of others.
    came: bool,
    /// No message follows: to be said as soon as there is a call to say it about.
    closed: bool,
    /// The receiver is gone.
    abandoned: bool,
}

enum Stage<B> {
    Fresh(Box<Draft<B>>),
    /// Not here while it is polled.
    Starting(Option<Box<Attempt<B>>>),
    Open(Arc<OpenStream>),
    Failed(Status),
}

/// What a half that asks for the call is to do.
enum Turn<B> {
    Done(Result<Arc<OpenStream>, Status>),
    Try(Box<Draft<B>>),
    Go(Box<Attempt<B>>, Waker),
    Wait,
}

impl<B: Sendable> Opening<B> {
    pub(super) fn new(draft: Draft<B>) -> Arc<Self> {
        let state = State {
            stage: Stage::Fresh(Box::new(draft)),
            waiting: [None, None],
            came: false,
            closed: false,
            abandoned: false,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Changes the draft, if the call has not been started.
    pub(super) fn adjust(&self, change: impl FnOnce(&mut Draft<B>)) {
        match &mut self.state.lock().stage {
            Stage::Fresh(draft) => change(draft),
            Stage::Starting(Some(attempt)) => change(attempt.draft_mut()),
            Stage::Starting(None) | Stage::Open(_) | Stage::Failed(_) => {}
        }
    }

    /// The call. Starts it if it has not been started, with `first` as its first message (which is taken then).
    ///
    /// Whoever stops waiting here leaves the start to the next who asks; a message taken stays part of it.
    pub(crate) async fn open(
        &self,
        half: Half,
        first: &mut Option<B>,
        end: bool,
    ) -> Result<Arc<OpenStream>, Status> {
        let _waiting = Waiting { opening: self, half };
        poll_fn(|cx| self.poll_open(half, first, end, cx)).await
    }

    fn poll_open(
        &self,
        half: Half,
        first: &mut Option<B>,
        end: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Arc<OpenStream>, Status>> {
        let turn = self.state.lock().turn(half, cx.waker());
        let (mut attempt, waker) = match turn {
            Turn::Done(result) => return Poll::Ready(result),
            Turn::Wait => return Poll::Pending,
            Turn::Go(attempt, waker) => (attempt, waker),
            Turn::Try(mut draft) => {
                draft.body = first.take();
                draft.end = end;
                let unwinding = Unwinding(self);
                let tried = draft.try_start(cx.waker(), None);
                std::mem::forget(unwinding);
                match tried {
                    Ok(made) => return Poll::Ready(self.settle(Ok(made))),
                    Err(NotStarted::Never(status)) => return Poll::Ready(self.settle(Err(status))),
                    Err(_) => (Box::new(Attempt::new(*draft)), cx.waker().clone()),
                }
            }
        };
        let unwinding = Unwinding(self);
        let polled = Pin::new(&mut *attempt).poll(&mut Context::from_waker(&waker));
        std::mem::forget(unwinding);
        match polled {
            Poll::Ready(made) => Poll::Ready(self.settle(made)),
            Poll::Pending => {
                self.put_back(attempt);
                Poll::Pending
            }
        }
    }

    /// The attempt goes on when somebody asks. Whoever came meanwhile asks again: only then does it wake them, too.
    fn put_back(&self, attempt: Box<Attempt<B>>) {
        let mut state = self.state.lock();
        if state.abandoned {
            drop(state);
            return drop(self.settle(Err(abandoned())));
        }
        state.stage = Stage::Starting(Some(attempt));
        let came = std::mem::take(&mut state.came).then(|| state.waiting.clone());
        drop(state);
        came.into_iter().flatten().flatten().for_each(wakers::wake);
    }

    fn poll_start(&self, cx: &mut Context<'_>) -> Poll<Result<Arc<OpenStream>, Status>> {
        self.poll_open(Half::Receiver, &mut None, false, cx)
    }

    /// This half waits no longer. If nobody does, the attempt gives up what others may be waiting for.
    fn leave(&self, half: Half) {
        let mut state = self.state.lock();
        state.waiting[half as usize] = None;
        if state.waiting.iter().any(Option::is_some) {
            return;
        }
        let Stage::Starting(attempt) = &mut state.stage else { return };
        let Some(mut attempt) = attempt.take() else { return };
        drop(state);
        attempt.rest();
        self.put_back(attempt);
    }
}

impl<B> Opening<B> {
    /// No message follows.
    pub(crate) fn close(&self) {
        let open = {
            let mut state = self.state.lock();
            state.closed = true;
            state.open()
        };
        if let Some(stream) = open {
            stream.half_close();
        }
    }

    /// As [`OpenStream::drop_sender`].
    pub(crate) fn drop_sender(&self) {
        let open = {
            let state = self.state.lock();
            let ends = std::thread::panicking() && !state.closed;
            state.open().ok_or(ends)
        };
        match open {
            Ok(stream) => stream.drop_sender(),
            Err(true) => self.abandon(),
            Err(false) => self.close(),
        }
    }

    /// The attempt is over. What was said meanwhile is made true of the call.
    fn settle(&self, made: Result<Made, Status>) -> Result<Arc<OpenStream>, Status> {
        let settled = made.map(|made| Arc::new(OpenStream::new(made)));
        let mut state = self.state.lock();
        state.stage = match &settled {
            Ok(stream) => Stage::Open(Arc::clone(stream)),
            Err(status) => Stage::Failed(status.clone()),
        };
        let waiting = std::mem::take(&mut state.waiting);
        let (closed, is_abandoned) = (state.closed, state.abandoned);
        drop(state);
        if let Ok(stream) = &settled {
            if is_abandoned {
                stream.abandon();
            } else if closed {
                stream.half_close();
            }
        }
        waiting.into_iter().flatten().for_each(wakers::wake);
        settled
    }

    fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        if let Some(stream) = state.open() {
            drop(state);
            return stream.abandon();
        }
        // One that is being polled is cancelled by whoever polls it.
        if matches!(state.stage, Stage::Fresh(_) | Stage::Starting(Some(_))) {
            let unmade = std::mem::replace(&mut state.stage, Stage::Failed(abandoned()));
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            drop(unmade);
            waiting.into_iter().flatten().for_each(wakers::wake);
        }
    }
}

impl<B> State<B> {
    fn open(&self) -> Option<Arc<OpenStream>> {
        match &self.stage {
            Stage::Open(stream) => Some(Arc::clone(stream)),
            _ => None,
        }
    }

    fn turn(&mut self, half: Half, waker: &Waker) -> Turn<B> {
        match &mut self.stage {
            Stage::Open(stream) => return Turn::Done(Ok(Arc::clone(stream))),
            Stage::Failed(status) => return Turn::Done(Err(status.clone())),
            Stage::Fresh(_) | Stage::Starting(_) => {}
        }
        self.waiting[half as usize] = Some(waker.clone());
        match std::mem::replace(&mut self.stage, Stage::Starting(None)) {
            Stage::Fresh(draft) => Turn::Try(draft),
            Stage::Starting(Some(attempt)) => Turn::Go(attempt, self.everybody(waker)),
            _ => {
                self.came = true;
                Turn::Wait
            }
        }
    }

    /// A waker of all who wait. As a rule that is one, whose own waker tells who drains for it.
    fn everybody(&self, asking: &Waker) -> Waker {
        let mut others = self.waiting.iter().flatten().filter(|waker| !waker.will_wake(asking));
        match others.next() {
            None => asking.clone(),
            Some(other) => Waker::from(Arc::new(Both([asking.clone(), other.clone()]))),
        }
    }
}

impl<B> fmt::Debug for Opening<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}

impl<B: Sendable> Start for Opening<B> {
    fn poll_start(&self, cx: &mut Context<'_>) -> Poll<Result<Arc<OpenStream>, Status>> {
        self.poll_start(cx)
    }

    fn leave(&self) {
        self.leave(Half::Receiver);
    }

    fn abandon(&self) {
        self.abandon();
    }
}

/// A half that waits, until it is dropped.
struct Waiting<'a, B: Sendable> {
    opening: &'a Opening<B>,
    half: Half,
}

impl<B: Sendable> Drop for Waiting<'_, B> {
    fn drop(&mut self) {
        self.opening.leave(self.half);
    }
}

/// Somebody's code panicked while the attempt was polled: the other half must not wait for it.
struct Unwinding<'a, B>(&'a Opening<B>);

impl<B> Drop for Unwinding<'_, B> {
    fn drop(&mut self) {
        let why = Status::internal("starting the stream panicked").with_execution(Execution::NotExecuted);
        drop(self.0.settle(Err(why)));
    }
}

struct Both([Waker; 2]);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.iter().for_each(Waker::wake_by_ref);
    }
}

/// The status of a call that was not made because nobody would have received its answer.
fn abandoned() -> Status {
    Status::cancelled("the stream was dropped before its call was made")
        .with_execution(Execution::NotExecuted)
}
