//! A call delivered to this application.

use crate::message::{encoded, write_bytes};
use crate::session::{self, Asker, End, Resource, Session, returned, stop_receiving, wait_for};
use std::sync::Arc;
use std::task::{Context, Poll};
use trunkline_call::entry::Submission;
use trunkline_call::{CallId, Code, Deadline, Encoding, Metadata, Status};

/// Names a delivered call. Whether it is still open, the session's books know.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    session: Arc<Session>,
    id: CallId,
    deadline: Deadline,
}

impl Call {
    pub(super) fn new(session: &Arc<Session>, id: CallId, deadline: Deadline) -> Self {
        Self { session: Arc::clone(session), id, deadline }
    }

    /// Waits for the next message of the request stream; `None` after the last.
    pub(crate) fn poll_message(
        &self,
        wanted: Encoding,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<session::Received>, Status>> {
        let id = self.id;
        let arrived = self.session.poll_with(cx, |books, asker, _| {
            let Some(state) = books.call(id) else { return Poll::Ready(Err(gone(None))) };
            if let Some(payload) = state.incoming.pop_front() {
                return Poll::Ready(Ok(Some(payload)));
            }
            if let Some(end) = state.end {
                return Poll::Ready(Err(gone(Some(end))));
            }
            if state.incoming_ended {
                return Poll::Ready(Ok(None));
            }
            books.wait_to_receive(id, asker);
            Poll::Pending
        });
        arrived.map(|arrived| match arrived.unwrap_or_else(|| Err(gone(None)))? {
            Some(payload) => session::Received::message(&self.session, id, payload, wanted).map(Some),
            None => Ok(None),
        })
    }

    /// Sends response headers, unless there are none.
    pub(crate) async fn send_headers(&self, headers: &Metadata) -> Result<(), Status> {
        if headers.is_empty() { Ok(()) } else { self.send_header_bytes(&encoded(headers)).await }
    }

    /// Sends response headers, also empty ones: they tell that the server has begun to answer.
    pub(crate) async fn begin_answer(&self, headers: &Metadata) -> Result<(), Status> {
        if headers.is_empty() {
            return self.send_header_bytes(&Metadata::NO_PAIRS).await;
        }
        self.send_header_bytes(&encoded(headers)).await
    }

    async fn send_header_bytes(&self, headers: &[u8]) -> Result<(), Status> {
        let mut turn = None;
        loop {
            match write_bytes(&self.session, headers) {
                Ok(written) => {
                    let call = self.id;
                    self.session.with(|books, effects| {
                        books.say(Submission::Headers { call, metadata: written.lend() }, effects);
                    });
                    return Ok(());
                }
                Err(wanted_bytes) => {
                    turn = wait_for(turn, &self.session, Resource::Heap, wanted_bytes, Some(self.id)).await;
                    if self.is_over() {
                        return Err(self.reason());
                    }
                }
            }
        }
    }

    /// Keeps what is to be sent with the end of the call.
    pub(crate) fn set_trailers(&self, trailers: Metadata) {
        self.session.with(|books, _| {
            if let Some(state) = books.call(self.id) {
                state.trailers = trailers;
            }
        });
    }

    /// What was kept to be sent with the end.
    pub(crate) fn take_trailers(&self) -> Metadata {
        let kept = self
            .session
            .with(|books, _| books.call(self.id).map(|state| std::mem::take(&mut state.trailers)));
        kept.flatten().unwrap_or_default()
    }

    /// Nobody reads the request stream: what came and what comes goes back at once.
    pub(crate) fn discard(&self) {
        let id = self.id;
        let waker = self.session.with(|books, effects| {
            let state = books.call(id)?;
            state.discards = true;
            let waits = state.receiver.is_parked();
            for payload in std::mem::take(&mut state.incoming) {
                books.release(returned(id, payload.block()), effects);
            }
            if waits { books.stop_waiting_to_receive(id) } else { None }
        });
        // Not under the lock: it may be the last of its task.
        drop(waker);
    }

    /// Whoever waited for a message has gone.
    pub(crate) fn stop_receiving(&self) {
        stop_receiving(&self.session, self.id);
    }

    /// Whether the caller has gone or the deadline has passed; looks into the ring first, so that a handler that never
    /// yields learns it too.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.session.look();
        self.is_over()
    }

    /// Waits until the call is no longer wanted; at once if it has been answered. The waiting task is nobody's burden:
    /// a worker drains its session in any case.
    pub(crate) fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        let asker = Asker { waker: cx.waker(), foreign: false };
        let polled = self.session.with(|books, _| {
            if !books.is_open(self.id) {
                return Poll::Ready(());
            }
            books.wait_for_end(self.id, asker);
            Poll::Pending
        });
        polled.unwrap_or(Poll::Ready(()))
    }

    /// Why nothing can be sent any more.
    pub(crate) fn reason(&self) -> Status {
        gone(self.session.with(|books, _| books.call(self.id).and_then(|state| state.end)).flatten())
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    pub(super) fn is_over(&self) -> bool {
        self.session.with(|books, _| books.is_open(self.id)) != Some(true)
    }
}

/// The status of a delivered call that is no longer wanted.
pub(super) fn gone(end: Option<End>) -> Status {
    match end {
        Some(End::Cancelled(Code::DeadlineExceeded)) => {
            Status::deadline_exceeded("the call's deadline passed")
        }
        Some(End::SessionLost { .. }) => Status::unavailable("the session with the daemon ended"),
        _ => Status::cancelled("the call is no longer wanted"),
    }
}
