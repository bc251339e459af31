//! From a delivered call to its handler.

use super::answer::{Answer, Handling};
use super::call::Call;
use crate::intercept::{ServerInterceptor, ServerInterceptors};
use crate::message::{Incoming, Received, Response, Said};
use crate::opaque;
use crate::session::{self, Session, returned};
use crate::stream::{Receiver, Sender};
use std::future::Future;
use std::sync::Arc;
use trunkline_call::entry::{self, Payload, Span, Submission};
use trunkline_call::{Caller, Encoding, Instant, Metadata, Status};
use trunkline_message::Message;

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
            let out = Sender::of_delivered(self.answer.call().clone());
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
            let out = Sender::of_delivered(self.answer.call().clone());
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
    pub(super) fn opaque(self) -> Option<opaque::Delivered> {
        self.given(Encoding::Protobuf, session::named)
    }

    /// The same of a method that types were said for: its messages are linear.
    pub(super) fn of_types(self, path: &str) -> Option<opaque::Delivered> {
        self.given(Encoding::Linear, |session, block| {
            session::metadata(session, block).map(|metadata| (path.into(), metadata))
        })
    }

    fn given(
        mut self,
        encoding: Encoding,
        read: impl FnOnce(&Session, Span) -> Result<(Box<str>, Metadata), Status>,
    ) -> Option<opaque::Delivered> {
        let block = std::mem::take(&mut self.metadata);
        let call = self.answer.call().clone();
        let named = read(call.session(), block);
        if block.len > 0 {
            call.session().with(|books, effects| books.release(returned(call.id(), block), effects));
        }
        match named {
            Ok((path, metadata)) => {
                self.push_first();
                Some(opaque::Delivered::new(path, metadata, self.answer, encoding))
            }
            Err(status) => {
                let answer = self.give_back();
                answer.end_now(&status);
                None
            }
        }
    }

    // LIFE: 15 | taken by a worker | handler (a10) | 4 server receive queue
    pub(super) fn new(session: &Arc<Session>, call: &entry::Call) -> Self {
        let answer = Answer::due(Call::new(session, call.call, call.deadline));
        Self { answer, payload: call.payload, metadata: call.metadata, interceptors: Default::default() }
    }

    fn incoming<Q: Message>(mut self) -> (Answer, Result<Incoming<Q>, Status>) {
        let call = self.answer.call().clone();
        // Before interceptors run: one that panics drops it, and so returns its block.
        let received = self
            .payload
            .take()
            .map(|payload| session::Received::message(call.session(), call.id(), payload, Encoding::Linear));
        let metadata = self.take_metadata();
        let received = received.unwrap_or_else(|| Err(Status::internal("the call came without its request")));
        let incoming =
            received.and_then(|block| Ok(Incoming::delivered(Received::new(block), metadata?, call)));
        (self.answer, incoming)
    }

    fn receiver<Q: Message>(mut self) -> (Answer, Result<Receiver<Q>, Status>) {
        let call = self.answer.call().clone();
        // Before interceptors run: what is left of a call when one panics is forgotten with it.
        self.push_first();
        let metadata = self.take_metadata();
        (self.answer, metadata.map(|said| Receiver::of_delivered(call, said)))
    }

    /// The message that came with the call becomes the first of its stream.
    fn push_first(&mut self) {
        let call = self.answer.call();
        let Some(first) = self.payload.take() else { return };
        call.session().with(|books, effects| match books.call(call.id()) {
            Some(state) => state.incoming.push_front(first),
            None => books.release(returned(call.id(), first.block()), effects),
        });
    }

    /// What the request says of itself, once it has passed the interceptors.
    fn take_metadata(&mut self) -> Result<Said, Status> {
        let block = std::mem::take(&mut self.metadata);
        let call = self.answer.call();
        let mut said = Said::default();
        if block.len > 0 {
            let metadata = session::metadata(call.session(), block);
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
        let call = self.answer.call();
        let blocks = [self.payload.map_or(Span::default(), |payload| payload.block()), self.metadata];
        call.session().with(|books, effects| {
            for block in blocks.into_iter().filter(|block| block.len > 0) {
                books.release(returned(call.id(), block), effects);
            }
        });
        self.answer
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
