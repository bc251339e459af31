//! One delivered call: to tonic's service as an HTTP request, and its HTTP response back.

use crate::framed::Framed;
use crate::messages::{Messages, Piece};
use crate::words::{StdError, encoded, metadata, of_error, outcome, to_tonic};
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use tower_service::Service;
use trunkline::opaque::{Delivered, Incoming, Outcome, Responder};
use trunkline::{Code, Metadata, Status};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::response::ResponseHead;
use trunkline_grpc::{Limits, request, response};

/// What a handler sees as the host it was called at. Which it was, only the caller's daemon knows.
static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::from_static("trunkline"));
static USER_AGENT: LazyLock<HeaderValue> =
    LazyLock::new(|| request::user_agent_of(env!("CARGO_PKG_VERSION")));

/// Handles a call until it is answered or no longer wanted. The handler is dropped in the latter case.
pub(crate) async fn handle<S, B>(service: S, call: Delivered)
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>>,
    S::Error: Into<StdError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
{
    let scope = call.responder.scope();
    let mut answering = pin!(answer(service, call));
    poll_fn(|cx| {
        // After a look at the handler: an answer that is given ends the call, too.
        let answered = scope.enter(|| answering.as_mut().poll(cx));
        if answered.is_ready() { Poll::Ready(()) } else { scope.poll_over(cx) }
    })
    .await;
}

async fn answer<S, B>(mut service: S, call: Delivered)
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>>,
    S::Error: Into<StdError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
{
    let Delivered { path, metadata, incoming, responder } = call;
    let Some(path) = request::path(&path) else {
        let status = Status::unimplemented(format!("{path:?} is no path of a method"));
        return ended(responder, &Outcome::from(&status), None).await;
    };
    let mut head = request::head(&request::Outgoing {
        scheme: &Scheme::HTTP,
        authority: &AUTHORITY,
        path: &path,
        timeout_ns: responder.time_left().map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)),
        metadata: &encoded(&metadata),
        encoding: Encoding::Identity,
        accepts: Accepts::IDENTITY,
        user_agent: &USER_AGENT,
    });
    // Compressing for a daemon that shares the memory would be a waste.
    head.headers.remove("grpc-accept-encoding");
    let body = tonic::body::Body::new(RequestBody { incoming, framed: Framed::default(), ended: false });
    let answered = match poll_fn(|cx| service.poll_ready(cx)).await {
        Ok(()) => service.call(Request::from_parts(head, body)).await,
        Err(error) => Err(error),
    };
    match answered {
        Ok(response) => respond(response, responder).await,
        // A generated service has no such errors; layers may.
        Err(error) => ended(responder, &of_error(error), None).await,
    }
}

/// Ends a call. Whoever served it has returned, and is not told whether it was still wanted.
async fn ended(responder: Responder, outcome: &Outcome, message: Option<Bytes>) {
    let _is_wanted = responder.finish(outcome, message.map(Into::into)).await;
}

/// Says what the service answered.
async fn respond<B>(response: Response<B>, responder: Responder)
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
{
    let (head, body) = response.into_parts();
    match response::parse(&head, body.is_end_stream(), &Limits::default()) {
        ResponseHead::Ended(words) => ended(responder, &outcome(&words), None).await,
        ResponseHead::Headers { metadata: headers, encoding, .. } => {
            let messages = Messages::new(tonic::body::Body::new(body), encoding);
            let answering = Answering { responder, headers: Some(metadata(&headers)), held: None };
            answering.run(messages).await;
        }
    }
}

/// An answer under way. A message is held back until it is known what follows: the last one travels with the outcome,
/// so that a unary response is one entry.
struct Answering {
    responder: Responder,
    /// Not sent yet.
    headers: Option<Metadata>,
    held: Option<Bytes>,
}

impl Answering {
    /// Ends early when the call is no longer wanted.
    async fn run(mut self, mut messages: Messages<tonic::body::Body>) {
        loop {
            messages.let_others_in().await;
            let piece = match messages.next_if_ready().await {
                Poll::Ready(piece) => piece,
                Poll::Pending => {
                    if self.flush().await.is_err() {
                        return;
                    }
                    messages.next().await
                }
            };
            match piece {
                Ok(Piece::Message(message)) => {
                    if self.held.is_some() && self.flush().await.is_err() {
                        return;
                    }
                    self.held = Some(message);
                }
                Ok(Piece::End(trailers)) => {
                    let words = match trailers {
                        Some(trailers) => response::parse_trailers(&trailers, &Limits::default()),
                        None => response::of_missing_trailers(),
                    };
                    return self.finish(&outcome(&words)).await;
                }
                Err(failed) => return self.finish(&failed).await,
            }
        }
    }

    /// Sends what is held back.
    async fn flush(&mut self) -> Result<(), Status> {
        if let Some(headers) = self.headers.take() {
            self.responder.send_headers(&headers).await?;
        }
        match self.held.take() {
            Some(message) => self.responder.send(message).await,
            None => Ok(()),
        }
    }

    async fn finish(mut self, outcome: &Outcome) {
        let has_headers = self.headers.as_ref().is_some_and(|headers| !headers.is_empty());
        let failed = outcome.code != Code::Ok;
        if failed && (has_headers || self.held.is_some()) {
            if self.flush().await.is_err() {
                return;
            }
        } else if has_headers {
            let headers = self.headers.take().unwrap_or_default();
            if self.responder.send_headers(&headers).await.is_err() {
                return;
            }
        }
        ended(self.responder, outcome, self.held.take()).await;
    }
}

/// Why a request stream has no end. Not as CANCELLED: that, tonic tells handlers as the end.
fn cut_short(status: &Status) -> tonic::Status {
    let status = to_tonic(status);
    match status.code() {
        tonic::Code::Cancelled => tonic::Status::aborted(status.message()),
        _ => status,
    }
}

/// The request stream of a delivered call as the body of an HTTP request.
struct RequestBody {
    incoming: Incoming,
    framed: Framed,
    ended: bool,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if let Some(rest) = self.framed.take_rest() {
            return Poll::Ready(Some(Ok(rest)));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let message = match ready!(self.incoming.poll_message(cx)) {
            Ok(Some(message)) => message,
            Ok(None) => {
                self.ended = true;
                return Poll::Ready(None);
            }
            Err(status) => {
                self.ended = true;
                return Poll::Ready(Some(Err(cut_short(&status))));
            }
        };
        Poll::Ready(Some(Ok(self.framed.begin(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.framed.is_done()
    }
}
