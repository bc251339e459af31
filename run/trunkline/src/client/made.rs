//! A call that was submitted.

use crate::refusals::unavailable;
use crate::session::{Asker, Books, Effects, End, Session, stop_receiving};
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use trunkline_call::entry::{Payload, Span, Submission};
use trunkline_call::{CallId, Execution, Status};

/// A call this process made. Dropping it gives the call up: cancelled if it is open, forgotten in any case.
#[derive(Debug)]
pub(crate) struct Made {
    session: Arc<Session>,
    call: CallId,
    /// The end was taken: the books have forgotten the call, and nothing is to be given up.
    over: AtomicBool,
    /// The request side is complete.
    closed: AtomicBool,
}

/// What came for a call.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Response headers. Their block is to be returned.
    Headers(Span),
    /// A message of the stream.
    Message(Payload),
    /// The end; nothing follows, and the call is forgotten here.
    End(End),
}

impl Made {
    /// `closed`: the request side is complete already.
    pub(crate) fn new(session: Arc<Session>, call: CallId, closed: bool) -> Self {
        Self { session, call, over: AtomicBool::new(false), closed: AtomicBool::new(closed) }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn call(&self) -> CallId {
        self.call
    }

    /// Waits for what comes next. `Ready(None)` when the end was taken before.
    pub(crate) fn poll_arrival(&self, cx: &Context<'_>) -> Poll<Option<Arrival>> {
        self.poll_arrival_then(cx, |_| ())
    }

    /// The same; `then` sees the end before the books forget the call.
    fn poll_arrival_then(&self, cx: &Context<'_>, then: impl FnOnce(End)) -> Poll<Option<Arrival>> {
        let call = self.call;
        let arrival = self.session.poll_with(cx, |books, asker, effects| {
            let next = next(books, call, asker, effects);
            if let Poll::Ready(Some(Arrival::End(end))) = &next {
                then(*end);
            }
            next
        });
        let arrival = arrival.map(Option::flatten);
        if matches!(arrival, Poll::Ready(Some(Arrival::End(_)))) {
            self.over.store(true, Ordering::Relaxed);
        }
        arrival
    }

    /// Whoever waited for what comes next has gone.
    pub(crate) fn stop_receiving(&self) {
        stop_receiving(&self.session, self.call);
    }

    /// Waits until the call has ended, whether or not what came before that has been taken.
    pub(crate) fn poll_end(&self, cx: &Context<'_>) -> Poll<()> {
        let call = self.call;
        let polled = self.session.poll_with(cx, |books, asker, _| {
            if !books.is_open(call) {
                return Poll::Ready(());
            }
            books.wait_for_end(call, asker);
            Poll::Pending
        });
        polled.map(drop)
    }

    /// Says that no more messages follow, unless that was said.
    pub(crate) fn half_close(&self) {
        let call = self.call;
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        self.session.with(|books, effects| {
            if books.call(call).is_some_and(|state| state.end.is_none()) {
                books.say(Submission::HalfClose { call }, effects);
            }
        });
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Gives the call up while its handle lives on.
    pub(crate) fn abandon(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.session.with(|books, effects| books.abandon(self.call, effects));
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !*self.over.get_mut() {
            self.abandon();
        }
    }
}

/// A call of a stream this process opened. Its halves may be in different hands: it remembers how it ended, for the one
/// that sends.
#[derive(Debug)]
pub(crate) struct OpenStream {
    made: Made,
    ended: Mutex<Ended>,
}

/// What the sending half can learn of an end that the receiving half has taken.
#[derive(Clone, Debug, Default)]
pub(crate) enum Ended {
    #[default]
    No,
    /// What the daemon said, without the words.
    Briefly(End),
    /// The status.
    With(Status),
}

impl OpenStream {
    pub(crate) fn new(made: Made) -> Self {
        Self { made, ended: Mutex::default() }
    }

    /// As [`Made::poll_arrival`].
    pub(crate) fn poll_arrival(&self, cx: &Context<'_>) -> Poll<Option<Arrival>> {
        self.made.poll_arrival_then(cx, |end| *self.ended.lock() = Ended::Briefly(end))
    }

    /// The end that was taken had this status, which is not OK.
    pub(crate) fn note_end(&self, status: &Status) {
        *self.ended.lock() = Ended::With(status.clone());
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.lock().clone()
    }

    /// What is to be sent cannot be had: the call ends with this status here, and is cancelled at the daemon, so that
    /// its server never takes what came for the whole. Nothing happens if it has ended.
    pub(crate) fn fail(&self, status: &Status) {
        let (session, call) = (self.made.session(), self.made.call());
        if session.with(|books, _| books.is_open(call)) != Some(true) {
            return;
        }
        let status = status.clone().with_execution(Execution::Unknown);
        {
            let mut ended = self.ended.lock();
            if matches!(*ended, Ended::No) {
                *ended = Ended::With(status);
            }
        }
        self.made.abandon();
    }

    /// What sends is dropped: nothing follows. While a panic unwinds that is not what its owner meant to say, and the
    /// call ends.
    pub(crate) fn drop_sender(&self) {
        if std::thread::panicking() && !self.made.is_closed() {
            self.fail(&given_up_in_panic());
        } else {
            self.made.half_close();
        }
    }

    /// Why nothing comes any more, though no end was taken.
    pub(crate) fn given_up(&self) -> Status {
        match self.ended() {
            Ended::With(status) => status,
            _ => unavailable("the session is another process's"),
        }
    }

    /// As [`Made::abandon`].
    pub(crate) fn abandon(&self) {
        {
            let mut ended = self.ended.lock();
            if matches!(*ended, Ended::No) {
                let why = Status::cancelled("the receiving half of the stream was dropped");
                *ended = Ended::With(why.with_execution(Execution::Unknown));
            }
        }
        self.made.abandon();
    }
}

impl Deref for OpenStream {
    type Target = Made;

    fn deref(&self) -> &Made {
        &self.made
    }
}

fn given_up_in_panic() -> Status {
    Status::cancelled("the sending half of the stream was dropped in a panic")
}

fn next(books: &mut Books, call: CallId, asker: Asker<'_>, effects: &mut Effects) -> Poll<Option<Arrival>> {
    let Some(state) = books.call(call) else { return Poll::Ready(None) };
    if let Some(headers) = state.headers.take() {
        return Poll::Ready(Some(Arrival::Headers(headers)));
    }
    if let Some(payload) = state.incoming.pop_front() {
        return Poll::Ready(Some(Arrival::Message(payload)));
    }
    if let Some(end) = state.end {
        books.take_end(call, end, effects);
        return Poll::Ready(Some(Arrival::End(end)));
    }
    books.wait_to_receive(call, asker);
    Poll::Pending
}
