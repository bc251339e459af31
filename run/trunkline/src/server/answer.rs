//! From what a handler returns to the answer of its call.

use super::call::{Call, gone};
use super::meter;
use crate::clock;
use crate::message::{NotPlaced, Raw, Response, Sendable, write_metadata};
use crate::opaque::Outcome;
use crate::session::{Resource, Written, wait_for};
use std::future::Future;
use std::pin::Pin;
use trunkline_call::entry::Finish;
use trunkline_call::{Code, Execution, Instant, Metadata, Status};
use trunkline_message::Message;

/// A handler at work: completes when the call has been answered.
pub type Handling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The duty to answer a call. If it is dropped unanswered (the handler panicked, or was dropped because the server
/// stops), the caller is told.
#[derive(Debug)]
pub(crate) struct Answer {
    call: Call,
    taken: Instant,
    /// When it was there, if its application keeps answers in a queue of its own.
    ready: Option<Instant>,
    given: bool,
}

impl Answer {
    /// Of a call a worker has just taken.
    pub(super) fn due(call: Call) -> Self {
        Self { call, taken: clock::now(), ready: None, given: false }
    }

    /// It was taken just now, from a queue of the application's.
    pub(crate) fn take_now(&mut self) {
        self.taken = clock::now();
    }

    /// The answer is there now, and goes into a queue of the application's.
    pub(crate) fn is_ready_now(&mut self) {
        self.ready = Some(clock::now());
    }

    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// Answers with an outcome of the application's own wording.
    ///
    /// # Errors
    /// Why the call was no longer wanted when the answer was there: nobody gets it.
    pub(crate) async fn conclude(self, outcome: &Outcome, mut message: Option<Raw>) -> Result<(), Status> {
        if let Some(body) = &mut message
            && let Err(status) = place(&self.call, body).await
        {
            return self.fail(&status).await;
        }
        let trailers = self.written(&outcome.trailers).await;
        self.give(outcome.code, message.as_mut().and_then(Raw::take_written), trailers)
    }

    /// Answers with a status alone, without waiting: without space for its text the code has to do.
    pub(super) fn end_now(mut self, status: &Status) {
        let mut trailers = Metadata::new();
        let _ = status.put_into(&mut trailers);
        let trailers = write_metadata(self.call.session(), &trailers).ok();
        let _is_wanted = self.finish(status.code(), None, trailers);
    }

    /// Answers with a response or a status. A handler that has returned is not told whether anybody wanted it.
    pub(super) async fn respond<R: Message>(self, result: Result<Response<R>, Status>) {
        let _is_wanted = match result {
            Ok(response) => self.respond_with(response).await,
            Err(status) => self.fail(&status).await,
        };
    }

    async fn respond_with<R: Message>(self, response: Response<R>) -> Result<(), Status> {
        let Response { mut body, headers, trailers } = response;
        if self.call.send_headers(&headers).await.is_err() {
            return self.give(Code::Cancelled, None, None);
        }
        match place(&self.call, &mut body).await {
            Ok(()) => {
                let trailers = self.written(&trailers).await;
                self.give(Code::Ok, body.take_written(), trailers)
            }
            Err(status) => self.fail(&status).await,
        }
    }

    /// Answers with a status, and with the trailers a stream was given.
    pub(super) async fn end(self, result: Result<(), Status>) {
        let _is_wanted = match result {
            Ok(()) => {
                let trailers = self.written(&self.call.take_trailers()).await;
                self.give(Code::Ok, None, trailers)
            }
            Err(status) => self.fail(&status).await,
        };
    }

    async fn fail(self, status: &Status) -> Result<(), Status> {
        let trailers = self.written(&words(status, &self.call.take_trailers())).await;
        self.give(failure(status), None, trailers)
    }

    /// Metadata in the send heap; waits for space there as long as the call is wanted.
    async fn written(&self, metadata: &Metadata) -> Option<Written> {
        if metadata.is_empty() {
            return None;
        }
        let session = self.call.session();
        let mut turn = None;
        loop {
            match write_metadata(session, metadata) {
                Ok(written) => return Some(written),
                Err(wanted_bytes) => {
                    let call = Some(self.call.id());
                    turn = Some(wait_for(turn.take(), session, Resource::Heap, wanted_bytes, call).await?)
                }
            }
            if self.call.is_over() {
                return None;
            }
        }
    }

    fn give(mut self, code: Code, message: Option<Written>, trailers: Option<Written>) -> Result<(), Status> {
        self.finish(code, message, trailers)
    }

    // LIFE: 16 | handler ran; response built and published | status (a11) | 5 server application
    fn finish(
        &mut self,
        code: Code,
        message: Option<Written>,
        trailers: Option<Written>,
    ) -> Result<(), Status> {
        self.given = true;
        let (call, taken) = (self.call.id(), self.taken);
        let published = self.ready.unwrap_or_else(clock::now);
        let cpu_ns = meter::taken_ns(published.since_ns(taken));
        let finished = self.call.session().with(|books, effects| {
            let is_wanted = books.call(call).is_some_and(|state| state.end.is_none());
            if !is_wanted {
                let end = books.forget(call, effects).and_then(|state| state.end);
                // The blocks go back unsent.
                drop((message, trailers));
                books.made_available(Resource::Heap, effects);
                return Err(gone(end));
            }
            let payload = message.map(Written::into_payload);
            let metadata = trailers.map(Written::lend).unwrap_or_default();
            let execution = Execution::Executed;
            let finish =
                Finish { call, code, execution, payload, metadata, taken, published, cpu_ns, subtree: 0 };
            books.answer(finish, effects);
            Ok(())
        });
        finished.unwrap_or_else(|| Err(gone(None)))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.given {
            return;
        }
        let status = if std::thread::panicking() {
            Status::internal("the handler panicked")
        } else {
            Status::unavailable("the server is shutting down")
        };
        let mut trailers = Metadata::new();
        let _ = status.put_into(&mut trailers);
        // No waiting in a drop: without space for the text the code alone has to do.
        let trailers = write_metadata(self.call.session(), &trailers).ok();
        let _is_wanted = self.finish(status.code(), None, trailers);
    }
}

/// The code of a handler's error, which cannot mean success: without a response the call would not end well.
fn failure(status: &Status) -> Code {
    match status.code() {
        Code::Ok => Code::Internal,
        code => code,
    }
}

/// A status and further trailers as metadata, as far as they fit: a status too large for it keeps its code.
fn words(status: &Status, trailers: &Metadata) -> Metadata {
    let mut words = Metadata::new();
    let _ = status.put_into(&mut words);
    let _ = trailers.iter().try_for_each(|(key, value)| words.insert(key, value));
    words
}

/// Puts a response into the send heap; waits for space there as long as the call is wanted.
async fn place<B: Sendable>(call: &Call, body: &mut B) -> Result<(), Status> {
    let session = call.session();
    let (mut turn, mut wanted) = (None, 0);
    loop {
        match body.place(session, wanted) {
            Ok(()) => return Ok(()),
            Err(NotPlaced::Never(status)) => return Err(status),
            Err(NotPlaced::Full { wanted_bytes }) => {
                wanted = wanted_bytes;
                turn = wait_for(turn, session, Resource::Heap, wanted_bytes, Some(call.id())).await;
                if turn.is_none() || call.is_over() {
                    return Err(call.reason());
                }
            }
        }
    }
}
