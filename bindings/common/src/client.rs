//! Making calls: each step is a future that owns what it needs.

use crate::cancel::Cancel;
use crate::tray::{Borrowed, Tray};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use trunkline::opaque::{self, Answer, Answers, EndWatch, Message, OpaqueBody, Outcome, Requests, Scope};
use trunkline::{Code, Execution, Metadata, Status};

/// A call to be made.
#[derive(Debug)]
pub struct CallOpening {
    call: opaque::Call,
    scope: Option<Scope>,
    cancel: Cancel,
}

/// The response of a call of one request and one response.
#[derive(Debug)]
pub struct Answered {
    /// Response headers; empty if there were none.
    pub headers: Metadata,
    /// The response; `None` in a failed call.
    pub message: Option<Message>,
    /// How it ended; its metadata are the trailers.
    pub status: Status,
}

/// A call that was made.
#[derive(Clone, Debug)]
pub struct OpenCall(Arc<OpenParts>);

#[derive(Debug)]
struct OpenParts {
    requests: Tray<Requests>,
    answers: Tray<Answers>,
    watch: EndWatch,
    cancel: Cancel,
}

/// What came along a call.
#[derive(Debug)]
pub enum CallEvent {
    /// Response headers.
    Headers(Metadata),
    /// A message.
    Message(Message),
    /// A caller has said all it had to say. Only servers hear it.
    RequestsEnd,
    /// The end; its metadata are the trailers.
    End(Status),
}

impl CallOpening {
    /// A call of the method at `path`, on behalf of `scope` if there is one.
    pub fn new(client: &opaque::Client, path: &str, scope: Option<Scope>, cancel: Cancel) -> Self {
        let call = match &scope {
            Some(scope) => scope.enter(|| client.call(path)),
            None => client.call(path),
        };
        Self { call, scope, cancel }
    }

    /// With this metadata.
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.call = self.call.with_metadata(metadata);
        self
    }

    /// It must have ended when this time has passed.
    pub fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        if let Some(timeout) = timeout {
            self.call = self.call.with_timeout(timeout);
        }
        self
    }

    /// One request, one response.
    pub async fn unary(self, request: OpaqueBody) -> Answered {
        let Self { call, scope, cancel } = self;
        let mut unary = call.with_message(request).unary();
        let answered = match cancel.or(within(scope.as_ref(), &mut unary)).await {
            Some(answered) => answered,
            None => unary.cancel(),
        };
        let opaque::UnaryAnswer { headers, message, outcome } = answered;
        Answered { headers, message, status: status_of(outcome) }
    }

    /// Makes the call, with a first message if there is one, and with the news that nothing follows if so said.
    ///
    /// # Errors
    /// What kept it from being made; it was not executed.
    pub async fn open(self, first: Option<OpaqueBody>, no_more: bool) -> Result<OpenCall, Status> {
        let Self { mut call, scope, cancel } = self;
        if let Some(first) = first {
            call = call.with_message(first);
        }
        if no_more {
            call = call.with_no_more();
        }
        let opening = within(scope.as_ref(), call.open());
        let (requests, answers) = cancel.or(opening).await.ok_or_else(not_made)??;
        let watch = answers.watch();
        let (requests, answers) = (Tray::new(requests), Tray::new(answers));
        let opened = OpenCall(Arc::new(OpenParts { requests, answers, watch, cancel }));
        if no_more {
            opened.half_close();
        }
        Ok(opened)
    }
}

impl OpenCall {
    /// Sends a message; nothing follows if `is_last`.
    ///
    /// # Errors
    /// The status of the call if it has ended; what is wrong with the message, which then is the call's end;
    /// FAILED_PRECONDITION after the last message and while another operation sends.
    pub async fn send(&self, message: OpaqueBody, is_last: bool) -> Result<(), Status> {
        let mut held = self.0.requests.take().ok_or_else(|| busy("sends, or nothing may follow"))?;
        let Some(requests) = held.get() else { return Err(busy("sends")) };
        let sent = self.0.cancel.or(requests.send(message)).await;
        match sent {
            None => {
                if let Some(requests) = held.keep() {
                    requests.abandon(&Outcome::from(&cancelled()));
                }
                Err(cancelled())
            }
            Some(sent) => {
                if is_last {
                    held.keep();
                }
                sent
            }
        }
    }

    /// Says that no messages follow.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if that was said, and while an operation sends.
    pub fn end_requests(&self) -> Result<(), Status> {
        self.0.requests.empty().map(drop).ok_or_else(|| busy("sends, or nothing may follow"))
    }

    /// What comes next. After the end: FAILED_PRECONDITION, as while another operation receives.
    pub async fn receive(&self) -> CallEvent {
        let Some(mut held) = self.0.answers.take() else {
            let status =
                if self.0.cancel.is_set() { cancelled() } else { busy("receives, or the call has ended") };
            return CallEvent::End(status);
        };
        let Some(answers) = held.get() else { return CallEvent::End(busy("receives")) };
        let arrived = match self.0.cancel.or(answers.next()).await {
            Some(Some(Answer::Headers(headers))) => CallEvent::Headers(headers),
            Some(Some(Answer::Message(message))) => CallEvent::Message(message),
            Some(Some(Answer::End(outcome))) => CallEvent::End(status_of(outcome)),
            Some(None) => CallEvent::End(Status::internal("the call was asked for more after its end")),
            None => CallEvent::End(cancelled()),
        };
        if matches!(arrived, CallEvent::End(_)) {
            held.keep();
        } else {
            drop(held);
            // Cancelled by whoever opened it.
            if self.0.cancel.is_set() {
                drop(self.0.answers.empty());
            }
        }
        arrived
    }

    /// Waits until the call has ended, also while what came before its end has not been received. The trailers of an
    /// OK are not in it. One operation at a time.
    pub async fn ended(&self) -> Status {
        self.0.watch.clone().ended().await
    }

    /// Cancels the call, and ends operations under way.
    pub fn cancel(&self) {
        self.0.cancel.set();
        self.let_go();
    }

    /// The server must not take what was sent for the whole: no half-close goes before the cancellation.
    fn let_go(&self) {
        let answers = self.0.answers.close();
        if let Some(requests) = self.0.requests.close() {
            requests.abandon(&Outcome::from(&cancelled()));
        }
        drop(answers);
    }

    fn half_close(&self) {
        drop(self.0.requests.empty());
    }
}

/// A status with its trailers, of how a call ended.
fn status_of(outcome: Outcome) -> Status {
    let Outcome { code, mut trailers, execution } = outcome;
    Status::take_from(&mut trailers, code).with_execution(execution)
}

/// Polls `work` on behalf of `scope`, each time.
async fn within<F: Future>(scope: Option<&Scope>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| match scope {
        Some(scope) => scope.enter(|| work.as_mut().poll(cx)),
        None => work.as_mut().poll(cx),
    })
    .await
}

fn not_made() -> Status {
    Status::cancelled("cancelled before it was made").with_execution(Execution::NotExecuted)
}

fn cancelled() -> Status {
    Status::new(Code::Cancelled, "cancelled by the caller").with_execution(Execution::Unknown)
}

/// Two operations of one kind at a time.
pub(crate) fn busy(what: &str) -> Status {
    Status::failed_precondition(format!("another operation {what}"))
}

/// Whether something is still there.
pub(crate) fn held_or<'t, T>(held: Option<Borrowed<'t, T>>, what: &str) -> Result<Borrowed<'t, T>, Status> {
    held.ok_or_else(|| busy(what))
}
