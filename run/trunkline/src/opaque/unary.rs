//! One request, one response, of which no generated Rust code reads either.

use super::message::{Message, Outcome};
use crate::client::{Arrival, Draft, Starting, outcome};
use crate::message::Raw;
use crate::refusals::unavailable;
use crate::session;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use trunkline_call::{Code, Encoding, Execution, Metadata, Status};

/// What came of a call of one request and one response.
#[derive(Debug)]
pub struct UnaryAnswer {
    /// Response headers; empty if there were none.
    pub headers: Metadata,
    /// The response; `None` in a failed call.
    pub message: Option<Message>,
    /// How it ended.
    pub outcome: Outcome,
}

/// A call of one request and one response: a future of what came of it. An OK without a response, or with more than
/// one, is UNIMPLEMENTED (gRPC's status codes: "response cardinality violation").
///
/// It costs less than [`Call::open`](super::Call::open), whose halves may be in different hands.
///
/// # Cancel safety
/// Dropping it is sound at any time and cancels the call, whether or not the handler runs.
#[must_use = "a call is made when it is awaited or waited for"]
pub struct UnaryExchange {
    stage: Starting<Raw>,
    headers: Metadata,
    message: Option<Message>,
    encoding: Encoding,
}

impl UnaryExchange {
    pub(super) fn new(draft: Draft<Raw>, encoding: Encoding) -> Self {
        Self { stage: Starting::Fresh(draft), headers: Metadata::new(), message: None, encoding }
    }

    /// Gives the call up. It ends as CANCELLED, and as *not executed* if it was not made.
    pub fn cancel(mut self) -> UnaryAnswer {
        let (why, execution) = match self.stage.is_made() {
            true => ("cancelled by the caller", Execution::Unknown),
            false => ("cancelled before it was made", Execution::NotExecuted),
        };
        self.answered(Outcome::from(&Status::cancelled(why).with_execution(execution)))
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Outcome, Status>> {
        let made = ready!(self.stage.poll_made(cx))?;
        let (session, call) = (made.session(), made.call());
        loop {
            let message = match ready!(made.poll_arrival(cx)) {
                Some(Arrival::Headers(block)) => {
                    self.headers = outcome::take_headers(session, call, block)?;
                    continue;
                }
                Some(Arrival::Message(payload)) => {
                    session::Received::message(session, call, payload, self.encoding)?
                }
                Some(Arrival::End(end)) => {
                    let (last, outcome) = outcome::of_opaque(session, end, self.encoding)?;
                    let is_whole = match (last, &mut self.message) {
                        (None, before) => before.is_some(),
                        (Some(last), before @ None) => before.replace(Message(last)).is_none(),
                        (Some(_), Some(_)) => return Poll::Ready(Err(too_many())),
                    };
                    return Poll::Ready(match outcome.code {
                        Code::Ok if !is_whole => {
                            Err(cardinality("the server ended the call without a response"))
                        }
                        _ => Ok(outcome),
                    });
                }
                None => return Poll::Ready(Err(unavailable("the session is another process's"))),
            };
            if self.message.replace(Message(message)).is_some() {
                return Poll::Ready(Err(too_many()));
            }
        }
    }

    /// The call is over: given up, if it has not ended.
    fn answered(&mut self, outcome: Outcome) -> UnaryAnswer {
        self.stage = Starting::Over;
        let headers = std::mem::take(&mut self.headers);
        let message = self.message.take().filter(|_| outcome.code == Code::Ok);
        UnaryAnswer { headers, message, outcome }
    }
}

impl Future for UnaryExchange {
    type Output = UnaryAnswer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<UnaryAnswer> {
        let outcome = ready!(self.poll_outcome(cx)).unwrap_or_else(|status| Outcome::from(&status));
        Poll::Ready(self.answered(outcome))
    }
}

impl fmt::Debug for UnaryExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnaryExchange").field("stage", &self.stage.name()).finish_non_exhaustive()
    }
}

fn too_many() -> Status {
    cardinality("the server sent more than one response")
}

fn cardinality(what: &str) -> Status {
    Status::unimplemented(what).with_execution(Execution::Executed)
}
