//! The transport of tonic's generated clients.

use crate::answer::{ResponseBody, poll_answer};
use crate::messages::{Messages, Piece};
use crate::pump::Pump;
use crate::words::{encoded, metadata, words};
use bytes::Bytes;
use http::{Request, Response};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;
use trunkline::Status;
use trunkline::opaque::{Answer, Answers, Client, Outcome, Requests};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::{Limits, request, response};

/// Where the calls of a generated client go: a [`trunkline::Channel`] under tonic's code.
///
/// ```no_run
/// # async fn example() -> Result<(), trunkline_tonic::Status> {
/// use trunkline_tonic::Channel;
///
/// let here = Channel::local();                                   // whoever serves it on this host
/// let there = Channel::connect("tcp://10.0.0.7:7878").await?;    // a certain peer
/// // GreeterClient::new(there), GreeterClient::with_interceptor(there, …)
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone; clones share all they have. Calls of a client may be made in any async executor, but those with a
/// request stream need a tokio runtime.
#[derive(Clone, Debug)]
pub struct Channel {
    client: Client,
}

impl Channel {
    /// A channel to whoever serves the called service: an application on this host, else what the daemon's
    /// configuration says. Does nothing until the first call.
    pub fn local() -> Self {
        trunkline::Channel::local().into()
    }

    /// A channel to `target` (`tcp://host:port`, `unix:path`), attached to the daemon.
    ///
    /// # Errors
    /// UNAVAILABLE when there is no daemon.
    pub async fn connect(target: &str) -> Result<Self, Status> {
        trunkline::Channel::connect(target).await.map(Self::from)
    }
}

impl From<trunkline::Channel> for Channel {
    fn from(channel: trunkline::Channel) -> Self {
        Self { client: Client::new(channel) }
    }
}

impl Service<Request<tonic::body::Body>> for Channel {
    type Response = Response<ResponseBody>;
    /// What goes wrong is a status, and a status is a response.
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    /// Ready at any time: a call waits for what it needs when it is made.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let client = self.client.clone();
        Box::pin(async move {
            let answered = answer(&client, request).await;
            Ok(answered.unwrap_or_else(|outcome| ended(&outcome)))
        })
    }
}

/// A call from its request to the head of its response.
///
/// # Errors
/// The outcome of a call that was not made, or whose request stream failed.
async fn answer(
    client: &Client,
    request: Request<tonic::body::Body>,
) -> Result<Response<ResponseBody>, Outcome> {
    let (head, body) = request.into_parts();
    let parsed = match request::parse(&head, &Limits::default()) {
        Ok(parsed) => parsed,
        Err(refusal) => return Ok(Response::from_parts(*refusal.into_head(), ResponseBody::empty())),
    };
    let mut messages = Messages::new(body, parsed.encoding);
    let call = client.call(parsed.path).with_metadata(metadata(&parsed.metadata));
    let call = match parsed.timeout_ns {
        Some(ns) => call.with_timeout(Duration::from_nanos(ns)),
        None => call,
    };
    let (first, then) = beginning(&mut messages).await?;
    let call = match first {
        Some(message) => call.with_message(message),
        None => call,
    };
    let call = if matches!(then, Then::Nothing) { call.with_no_more() } else { call };
    let (requests, mut answers) = call.open().await.map_err(|status| Outcome::from(&status))?;
    let mut pump = go_on(messages, then, requests)?;
    let first = poll_fn(|cx| poll_answer(&mut answers, &mut pump, cx)).await;
    Ok(respond(first, answers, pump))
}

/// What follows the messages that travel with the opening.
enum Then {
    Nothing,
    /// This message, and perhaps more.
    Message(Bytes),
    /// It is not known yet.
    Unknown,
}

/// What of the request stream is there already: most requests are, to the end.
async fn beginning(messages: &mut Messages<tonic::body::Body>) -> Result<(Option<Bytes>, Then), Outcome> {
    let first = match messages.next_if_ready().await {
        Poll::Ready(piece) => match piece? {
            Piece::Message(message) => message,
            Piece::End(_) => return Ok((None, Then::Nothing)),
        },
        Poll::Pending => return Ok((None, Then::Unknown)),
    };
    let then = match messages.next_if_ready().await {
        Poll::Ready(piece) => match piece? {
            Piece::Message(second) => Then::Message(second),
            Piece::End(_) => Then::Nothing,
        },
        Poll::Pending => Then::Unknown,
    };
    Ok((Some(first), then))
}

fn go_on(
    messages: Messages<tonic::body::Body>,
    then: Then,
    requests: Requests,
) -> Result<Option<Pump>, Outcome> {
    let first = match then {
        Then::Nothing => return Ok(None),
        Then::Message(message) => Some(message),
        Then::Unknown => None,
    };
    Pump::start(messages, first, requests).map(Some).map_err(|status| Outcome::from(&status))
}

fn respond(first: Option<Answer>, answers: Answers, pump: Option<Pump>) -> Response<ResponseBody> {
    let (headers, first) = match first {
        Some(Answer::End(outcome)) => return ended(&outcome),
        Some(Answer::Headers(headers)) => (encoded(&headers), None),
        other => (Vec::new(), other),
    };
    let head = response::head(&headers, Encoding::Identity, Accepts::ALL);
    Response::from_parts(head, ResponseBody::new(answers, pump, first))
}

/// A response that is nothing but a status.
fn ended(outcome: &Outcome) -> Response<ResponseBody> {
    Response::from_parts(response::trailers_only(&words(outcome)), ResponseBody::empty())
}
