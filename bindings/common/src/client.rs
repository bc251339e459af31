//! Making calls: each step is a future that owns what it needs.

use crate::cancel::Cancel;
use crate::tray::{Borrowed, Tray};
use std::future::{Future, poll_fn};
use std::pin::pin;
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
pub struct OpenCall {
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
        let mut answered = Answered { headers: Metadata::new(), message: None, status: Status::ok() };
        let cancel = self.cancel.clone();
        let opened = match self.open(Some(request), true).await {
            Ok(opened) => opened,
            Err(status) => return Answered { status, ..answered },
        };
        loop {
            match opened.receive_with(&cancel).await {
                CallEvent::Headers(headers) => answered.headers = headers,
                CallEvent::Message(message) if answered.message.is_none() => answered.message = Some(message),
                CallEvent::Message(_) => {
                    // Not by the flag: that is the caller's, who may use it for other calls.
                    opened.let_go();
                    let status = cardinality("the server sent more than one response");
                    return Answered { message: None, status, ..answered };
                }
                CallEvent::RequestsEnd => {}
                CallEvent::End(status) => return answered.ended(status),
            }
        }
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
        let opening = within(scope, call.open());
        let (requests, answers) = cancel.or(opening).await.ok_or_else(not_made)??;
        let watch = answers.watch();
        let opened = OpenCall { requests: Tray::new(requests), answers: Tray::new(answers), watch, cancel };
        if no_more {
            opened.half_close();
        }
        Ok(opened)
    }
}

impl Answered {
    fn ended(self, status: Status) -> Self {
        let status = match (&self.message, status.is_ok()) {
            (None, true) => cardinality("the server ended the call without a response"),
            _ => status,
        };
        let message = self.message.filter(|_| status.is_ok());
        Self { message, status, ..self }
    }
}

impl OpenCall {
    /// Sends a message; nothing follows if `is_last`.
    ///
    /// # Errors
    /// The status of the call if it has ended; what is wrong with the message, which then is the call's end;
    /// FAILED_PRECONDITION after the last message and while another operation sends.
    pub async fn send(&self, message: OpaqueBody, is_last: bool) -> Result<(), Status> {
        let mut held = self.requests.take().ok_or_else(|| busy("sends, or nothing may follow"))?;
        let Some(requests) = held.get() else { return Err(busy("sends")) };
        let sent = self.cancel.or(requests.send(message)).await;
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
        self.requests.empty().map(drop).ok_or_else(|| busy("sends, or nothing may follow"))
    }

    /// What comes next. After the end: FAILED_PRECONDITION, as while another operation receives.
    pub async fn receive(&self) -> CallEvent {
        self.receive_with(&self.cancel).await
    }

    /// Waits until the call has ended, also while what came before its end has not been received. The trailers of an
    /// OK are not in it. One operation at a time.
    pub async fn ended(&self) -> Status {
        self.watch.clone().ended().await
    }

    /// Cancels the call, and ends operations under way.
    pub fn cancel(&self) {
        self.cancel.set();
        self.let_go();
    }

    /// The server must not take what was sent for the whole: no half-close goes before the cancellation.
    fn let_go(&self) {
        let answers = self.answers.close();
        if let Some(requests) = self.requests.close() {
            requests.abandon(&Outcome::from(&cancelled()));
        }
        drop(answers);
    }

    fn half_close(&self) {
        drop(self.requests.empty());
    }

    async fn receive_with(&self, cancel: &Cancel) -> CallEvent {
        let Some(mut held) = self.answers.take() else {
            let status = if cancel.is_set() { cancelled() } else { busy("receives, or the call has ended") };
            return CallEvent::End(status);
        };
        let Some(answers) = held.get() else { return CallEvent::End(busy("receives")) };
        let arrived = match cancel.or(answers.next()).await {
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
            if cancel.is_set() {
                drop(self.answers.empty());
            }
        }
        arrived
    }
}

/// A status with its trailers, of how a call ended.
fn status_of(outcome: Outcome) -> Status {
    let Outcome { code, mut trailers, execution } = outcome;
    Status::take_from(&mut trailers, code).with_execution(execution)
}

/// Polls `work` on behalf of `scope`, each time.
async fn within<F: Future>(scope: Option<Scope>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| match &scope {
        Some(scope) => scope.enter(|| work.as_mut().poll(cx)),
        None => work.as_mut().poll(cx),
    })
    .await
}

/// The code is that of gRPC's page of status codes: "response cardinality violation".
fn cardinality(what: &str) -> Status {
    Status::unimplemented(what).with_execution(Execution::Executed)
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
pub(crate) fn held_or<T>(held: Option<Borrowed<T>>, what: &str) -> Result<Borrowed<T>, Status> {
    held.ok_or_else(|| busy(what))
}
