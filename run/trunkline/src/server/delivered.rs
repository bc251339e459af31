//! From a delivered call to its handler, and from what the handler returns to the answer.

use super::call::Call;
use crate::client::{wait_for, write_metadata};
use crate::clock;
use crate::intercept::{ServerInterceptor, ServerInterceptors};
use crate::message::{Hurdle, Incoming, Raw, Received, Response, Said, Sendable};
use crate::opaque::{self, Outcome};
use crate::session::{self, Room, Session, Written, returned};
use crate::stream::{Receiver, Sender};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use trunkline_call::entry::{self, Finish, Payload, Span, Submission};
use trunkline_call::{Caller, Code, Encoding, Execution, Instant, Metadata, Status};
use trunkline_message::Message;

/// A handler at work: completes when the call has been answered.
pub type Handling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A call that arrived for a service: give it the handler that fits the method's pattern.
#[derive(Debug)]
pub struct Delivered {
    answer: Answer,
    payload: Option<Payload>,
    metadata: Span,
    interceptors: ServerInterceptors,
}

impl Delivered {
    /// Runs a handler of one request and one response.
    pub fn unary<Q, R, H, F>(self, handler: H) -> Handling
    where
        Q: Message,
        R: Message,
        H: FnOnce(Incoming<Q>) -> F + Send + 'static,
        F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    {
        Box::pin(async move {
            let (answer, incoming) = self.incoming();
            let result = match incoming {
                Ok(incoming) => handler(incoming).await,
                Err(status) => Err(status),
            };
            answer.respond(result).await;
        })
    }

    /// Runs a handler of one request and many responses.
    pub fn server_streaming<Q, R, H, F>(self, handler: H) -> Handling
    where
        Q: Message,
        R: Message,
        H: FnOnce(Incoming<Q>, Sender<R>) -> F + Send + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        Box::pin(async move {
            let out = Sender::of_delivered(self.answer.call.clone());
            let (answer, incoming) = self.incoming();
            let result = match incoming {
                Ok(incoming) => handler(incoming, out).await,
                Err(status) => Err(status),
            };
            answer.end(result).await;
        })
    }

    /// Runs a handler of many requests and one response.
    pub fn client_streaming<Q, R, H, F>(self, handler: H) -> Handling
    where
        Q: Message,
        R: Message,
        H: FnOnce(Receiver<Q>) -> F + Send + 'static,
        F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    {
        Box::pin(async move {
            let (answer, input) = self.receiver();
            let result = match input {
                Ok(input) => handler(input).await,
                Err(status) => Err(status),
            };
            answer.respond(result).await;
        })
    }

    /// Runs a handler of many requests and many responses.
    pub fn bidirectional<Q, R, H, F>(self, handler: H) -> Handling
    where
        Q: Message,
        R: Message,
        H: FnOnce(Receiver<Q>, Sender<R>) -> F + Send + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        Box::pin(async move {
            let out = Sender::of_delivered(self.answer.call.clone());
            let (answer, input) = self.receiver();
            let result = match input {
                Ok(input) => handler(input, out).await,
                Err(status) => Err(status),
            };
            answer.end(result).await;
        })
    }

    /// The call, to be shown to `interceptor` before its handler; those that are there already come first.
    pub(crate) fn after(mut self, interceptor: Arc<dyn ServerInterceptor>, path: &'static str) -> Self {
        self.interceptors.push(interceptor, path);
        self
    }

    /// Answers UNIMPLEMENTED.
    pub fn unimplemented(self) -> Handling {
        Box::pin(async move {
            let answer = self.give_back();
            answer.end(Err(Status::unimplemented("this server does not implement the method"))).await;
        })
    }

    /// The call as one whose messages only the application can read; `None` if it was answered because it makes no
    /// sense.
    pub(super) fn opaque(mut self) -> Option<opaque::Delivered> {
        let block = std::mem::take(&mut self.metadata);
        let call = self.answer.call.clone();
        let named = call.session().named(block);
        call.session().with(|books, effects| books.release(returned(call.id(), block), effects));
        match named {
            Ok((path, metadata)) => {
                self.push_first();
                Some(opaque::Delivered::new(path, metadata, self.answer))
            }
            Err(status) => {
                let answer = self.give_back();
                answer.end_now(&status);
                None
            }
        }
    }

    pub(super) fn new(session: &Arc<Session>, call: &entry::Call) -> Self {
        let taken = clock::now();
        let answer = Answer { call: Call::new(session, call.call, call.deadline), taken, given: false };
        Self { answer, payload: call.payload, metadata: call.metadata, interceptors: Default::default() }
    }

    fn incoming<Q: Message>(mut self) -> (Answer, Result<Incoming<Q>, Status>) {
        let metadata = self.take_metadata();
        let call = self.answer.call.clone();
        let Some(payload) = self.payload.take() else {
            return (self.answer, Err(Status::internal("the call came without its request")));
        };
        let received = session::Received::message(call.session(), call.id(), payload, Encoding::Linear);
        let incoming =
            received.and_then(|block| Ok(Incoming::delivered(Received::new(block), metadata?, call)));
        (self.answer, incoming)
    }

    fn receiver<Q: Message>(mut self) -> (Answer, Result<Receiver<Q>, Status>) {
        let metadata = self.take_metadata();
        let call = self.answer.call.clone();
        self.push_first();
        (self.answer, metadata.map(|said| Receiver::of_delivered(call, said)))
    }

    /// The message that came with the call becomes the first of its stream.
    fn push_first(&mut self) {
        let call = &self.answer.call;
        let Some(first) = self.payload.take() else { return };
        call.session().with(|books, effects| match books.call(call.id()) {
            Some(state) => state.incoming.push_front(first),
            None => books.release(returned(call.id(), first.block()), effects),
        });
    }

    /// What the request says of itself, once it has passed the interceptors.
    fn take_metadata(&mut self) -> Result<Said, Status> {
        let block = std::mem::take(&mut self.metadata);
        let call = &self.answer.call;
        let mut said = Said::default();
        if block.len > 0 {
            let metadata = call.session().metadata(block);
            call.session().with(|books, effects| books.release(returned(call.id(), block), effects));
            said.metadata = metadata?;
            if call.session().tells_callers() {
                said.caller = Caller::take_from(&mut said.metadata).map(Box::new);
            }
        }
        self.interceptors.intercept(&mut said.metadata, said.caller.as_deref(), call.deadline())?;
        Ok(said)
    }

    /// Returns what came with the call, unread.
    fn give_back(self) -> Answer {
        let call = &self.answer.call;
        let blocks = [self.payload.map_or(Span::default(), |payload| payload.block()), self.metadata];
        call.session().with(|books, effects| {
            for block in blocks.into_iter().filter(|block| block.len > 0) {
                books.release(returned(call.id(), block), effects);
            }
        });
        self.answer
    }
}

/// The duty to answer a call. If it is dropped unanswered (the handler panicked, or was dropped because the server
/// stops), the caller is told.
#[derive(Debug)]
pub(crate) struct Answer {
    call: Call,
    taken: Instant,
    given: bool,
}

impl Answer {
    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// Answers with an outcome of the application's own wording.
    pub(crate) async fn conclude(self, outcome: &Outcome, mut message: Option<Raw>) {
        if let Some(body) = &mut message
            && let Err(status) = place(&self.call, body).await
        {
            return self.end(Err(status)).await;
        }
        let trailers = self.written(&outcome.trailers).await;
        self.give(outcome.code, message.as_mut().and_then(Raw::take_written), trailers);
    }

    /// Answers with a status alone, without waiting: without room for its text the code has to do.
    fn end_now(mut self, status: &Status) {
        let mut trailers = Metadata::new();
        let _ = status.put_into(&mut trailers);
        let trailers = write_metadata(self.call.session(), &trailers).ok();
        self.finish(status.code(), None, trailers);
    }

    /// Answers with a response or a status.
    async fn respond<R: Message>(self, result: Result<Response<R>, Status>) {
        let Response { mut body, headers, trailers } = match result {
            Ok(response) => response,
            Err(status) => return self.end(Err(status)).await,
        };
        if self.call.send_headers(&headers).await.is_err() {
            return self.give(Code::Cancelled, None, None);
        }
        match place(&self.call, &mut body).await {
            Ok(()) => {
                let trailers = self.written(&trailers).await;
                self.give(Code::Ok, body.take_written(), trailers);
            }
            Err(status) => self.end(Err(status)).await,
        }
    }

    /// Answers with a status, and with the trailers a stream was given.
    async fn end(self, result: Result<(), Status>) {
        let kept = self.call.take_trailers();
        let (code, trailers) = match result {
            Ok(()) => (Code::Ok, kept),
            Err(status) => (failure(&status), words(&status, &kept)),
        };
        let trailers = self.written(&trailers).await;
        self.give(code, None, trailers);
    }

    /// Metadata in the send heap; waits for room there as long as the call is wanted.
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
                    turn = Some(wait_for(turn.take(), session, Room::Heap, wanted_bytes, call).await?)
                }
            }
            if self.call.is_over() {
                return None;
            }
        }
    }

    fn give(mut self, code: Code, message: Option<Written>, trailers: Option<Written>) {
        self.finish(code, message, trailers);
    }

    fn finish(&mut self, code: Code, message: Option<Written>, trailers: Option<Written>) {
        self.given = true;
        let (call, taken) = (self.call.id(), self.taken);
        let published = clock::now();
        self.call.session().with(|books, effects| {
            let is_wanted = books.call(call).is_some_and(|state| state.end.is_none());
            if !is_wanted {
                books.forget(call, effects);
                // The blocks go back unsent.
                drop((message, trailers));
                return books.room_made(Room::Heap, effects);
            }
            let payload = message.map(Written::into_payload);
            let metadata = trailers.map(Written::lend).unwrap_or_default();
            let execution = Execution::Executed;
            let finish =
                Finish { call, code, execution, payload, metadata, taken, published, cpu_ns: 0, subtree: 0 };
            books.answer(finish, effects);
        });
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
        // No waiting in a drop: without room for the text the code alone has to do.
        let trailers = write_metadata(self.call.session(), &trailers).ok();
        self.finish(status.code(), None, trailers);
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

/// Puts a response into the send heap; waits for room there as long as the call is wanted.
async fn place<B: Sendable>(call: &Call, body: &mut B) -> Result<(), Status> {
    let session = call.session();
    let (mut turn, mut wanted) = (None, 0);
    loop {
        match body.place(session, wanted) {
            Ok(()) => return Ok(()),
            Err(Hurdle::Never(status)) => return Err(status),
            Err(Hurdle::Full { wanted_bytes }) => {
                wanted = wanted_bytes;
                turn = wait_for(turn, session, Room::Heap, wanted_bytes, Some(call.id())).await;
                if turn.is_none() || call.is_over() {
                    return Err(call.reason());
                }
            }
        }
    }
}

/// Answers a call for which no handler is to run.
pub(super) fn refuse(session: &Arc<Session>, call: &entry::Call, status: Status) {
    Delivered::new(session, call).give_back().end_now(&status);
}

/// Returns what came with a call that was dismissed before its handler ran.
pub(super) fn drop_unstarted(session: &Arc<Session>, call: &entry::Call) {
    session.with(|books, effects| {
        let payload = call.payload.map_or(Span::default(), |payload| payload.block());
        let release =
            Submission::Release { call: call.call, block: payload, metadata: call.metadata, a18: Instant(0) };
        books.release(release, effects);
        books.forget(call.call, effects);
    });
}
