//! Serving opaque calls.

use super::message::{Message, OpaqueBody, Outcome};
use super::types::{Space, Types};
use crate::clock;
use crate::context::{self, Parent};
use crate::server::{self, Answer, Handling};
use crate::stream::{Push, push};
use std::task::{Context, Poll};
use std::time::Duration;
use trunkline_call::{Deadline, Encoding, Metadata, Status};

/// A service whose methods only it knows. Given to [`ServerBuilder::add_opaque_service`].
///
/// [`ServerBuilder::add_opaque_service`]: crate::ServerBuilder::add_opaque_service
pub trait Service: Send + Sync + 'static {
    /// Full name: `search.v1.Search`.
    fn name(&self) -> &str;

    /// The types of its messages, which are linear then; `None`: they are protobuf.
    fn types(&self) -> Option<&Types> {
        None
    }

    /// Handles one call. What is returned is polled by the worker's thread; work may also be given to another executor,
    /// [`Scope::poll_over`] then tells it to stop.
    fn call(&self, call: Delivered) -> Handling;
}

/// A call that arrived.
#[derive(Debug)]
pub struct Delivered {
    /// `/package.Service/Method`, as the caller wrote it.
    pub path: Box<str>,
    /// Metadata of the request (gRPC: headers).
    pub metadata: Metadata,
    /// Requests.
    pub incoming: Incoming,
    /// The duty to answer.
    pub responder: Responder,
}

/// The request stream of a delivered call. Dropping it discards what follows.
#[derive(Debug)]
pub struct Incoming {
    call: server::Call,
    encoding: Encoding,
}

impl Incoming {
    /// Waits for the next message; `None` after the last.
    ///
    /// # Errors
    /// Why the call is no longer wanted.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Message>, Status>> {
        self.call.poll_message(self.encoding, cx).map_ok(|received| received.map(Message))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.call.discard();
    }
}

/// The answering side of a delivered call. Dropped before [`Responder::finish`], it answers UNAVAILABLE, or INTERNAL if
/// its thread panics.
#[derive(Debug)]
pub struct Responder {
    call: server::Call,
    /// `None`: a response could not be sent, and with that the call was answered.
    answer: Option<Answer>,
    encoding: Encoding,
}

impl Responder {
    /// Sends response headers, also empty ones, which tell the caller that the answer begins: at most once, before the
    /// first message.
    ///
    /// # Errors
    /// Why the call is no longer wanted.
    pub async fn send_headers(&mut self, headers: &Metadata) -> Result<(), Status> {
        self.call.begin_answer(headers).await
    }

    /// Sends a message; waits while the caller has as many bytes before it as it allows.
    ///
    /// # Errors
    /// Why the call is no longer wanted; what is wrong with the message, which then is the status of the call: its
    /// caller never takes the responses for all of them.
    ///
    /// # Cancel safety
    /// A message whose `send` is dropped was not sent.
    pub async fn send(&mut self, message: impl Into<OpaqueBody>) -> Result<(), Status> {
        let call = &self.call;
        match push(call.session(), call.id(), message.into().into_raw(self.encoding)).await {
            Ok(()) => Ok(()),
            Err(Push::Ended) => Err(call.reason()),
            Err(Push::Never(status)) => {
                if let Some(answer) = self.answer.take() {
                    let _is_wanted = answer.conclude(&Outcome::from(&status), None).await;
                }
                Err(status)
            }
        }
    }

    /// Ends the call; with `message`, which then is the only response, or the last.
    ///
    /// # Errors
    /// Why the call was no longer wanted when the answer was there: its caller does not get it. A message that cannot
    /// be sent becomes the status of the call. FAILED_PRECONDITION if an earlier one has ended it.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it answers as a [`Responder`] that is dropped.
    pub async fn finish(self, outcome: &Outcome, message: Option<OpaqueBody>) -> Result<(), Status> {
        let message = message.map(|message| message.into_raw(self.encoding));
        let Some(answer) = self.answer else {
            return Err(Status::failed_precondition(
                "a response could not be sent, which has ended the call",
            ));
        };
        answer.conclude(outcome, message).await
    }

    /// The application takes the call only now, out of a queue of its own: until now it was in the *server receive
    /// queue* and not in the *server application*, wherever somebody looks where time goes.
    pub fn taken_now(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.take_now();
        }
    }

    /// The answer is there, and goes into a queue of the application's: what passes until [`Responder::finish`] is
    /// *server send queue*.
    pub fn answer_queued(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.is_ready_now();
        }
    }

    /// When the call must have ended.
    pub fn deadline(&self) -> Deadline {
        self.call.deadline()
    }

    /// How long the handler has, if there is a limit.
    pub fn time_left(&self) -> Option<Duration> {
        let at = self.deadline().instant()?;
        Some(Duration::from_nanos(at.since_ns(clock::now())))
    }

    /// The scope of the call, for work done elsewhere than on the worker's thread.
    pub fn scope(&self) -> Scope {
        Scope { call: self.call.clone() }
    }
}

impl Delivered {
    /// A call whose messages are in `encoding`.
    pub(crate) fn new(path: Box<str>, metadata: Metadata, answer: Answer, encoding: Encoding) -> Self {
        let call = answer.call().clone();
        let incoming = Incoming { call: call.clone(), encoding };
        Self { path, metadata, incoming, responder: Responder { call, answer: Some(answer), encoding } }
    }
}

/// What work done elsewhere needs of a delivered call: word of its end, and the call as the one on whose behalf others
/// are made: those inherit its deadline, its cancellation and its trace context.
#[derive(Clone, Debug)]
pub struct Scope {
    call: server::Call,
}

impl Scope {
    /// Ready when the call is over: answered, or no longer wanted because its caller has gone, its deadline has passed
    /// or the session has ended. One task at a time.
    pub fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        self.call.poll_over(cx)
    }

    /// Whether it is over; looks into the ring first, so that a handler that never waits learns it, too.
    pub fn is_over(&self) -> bool {
        self.call.is_cancelled()
    }

    /// Memory of `bytes` or more to build a linear message of the call in, where it will be sent from.
    pub fn space(&self, bytes: usize) -> Space {
        Space::of_session(Some(self.call.session()), bytes)
    }

    /// Runs `poll`, a single poll of the handler's future, on behalf of the call.
    pub fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        let parent = Parent { call: self.call.id(), deadline: self.call.deadline() };
        context::on_behalf_of(self.call.session(), parent, poll)
    }
}
