//! What a server answers, as the body of an HTTP response.

use crate::framed::Framed;
use crate::pump::Pump;
use crate::words::words;
use bytes::Bytes;
use http_body::{Body, Frame};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use trunkline::opaque::{Answer, Answers, Outcome};
use trunkline_grpc::response;

/// The body of a response: messages from shared memory, then trailers. Dropping it cancels the call.
#[derive(Debug)]
pub struct ResponseBody {
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Open(Box<Open>),
    Over,
}

#[derive(Debug)]
struct Open {
    answers: Answers,
    /// Reads the request stream, if it goes on.
    pump: Option<Pump>,
    /// Taken before the response's head could be made.
    first: Option<Answer>,
    framed: Framed,
}

impl ResponseBody {
    /// No messages and no trailers: the head said all.
    pub(crate) fn empty() -> Self {
        Self { stage: Stage::Over }
    }

    pub(crate) fn new(answers: Answers, pump: Option<Pump>, first: Option<Answer>) -> Self {
        Self { stage: Stage::Open(Box::new(Open { answers, pump, first, framed: Framed::default() })) }
    }
}

/// A body without anything in it: what an interceptor puts into the response of a call it refuses.
impl Default for ResponseBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let Stage::Open(open) = &mut self.stage else { return Poll::Ready(None) };
        match ready!(open.poll_frame(cx)) {
            Ok(frame) => Poll::Ready(Some(Ok(frame))),
            Err(outcome) => {
                self.stage = Stage::Over;
                Poll::Ready(Some(Ok(Frame::trailers(response::trailers(&words(&outcome))))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}

impl Open {
    /// The next piece of a message, or (`Err`) the end.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame<Bytes>, Outcome>> {
        if let Some(rest) = self.framed.take_rest() {
            return Poll::Ready(Ok(rest));
        }
        loop {
            let answer = match self.first.take() {
                Some(answer) => Some(answer),
                None => ready!(poll_answer(&mut self.answers, &mut self.pump, cx)),
            };
            match answer {
                Some(Answer::Message(message)) => return Poll::Ready(Ok(self.framed.begin(message))),
                // They come before all else and once; a server that says them again is not heard.
                Some(Answer::Headers(_)) => {}
                Some(Answer::End(outcome)) => return Poll::Ready(Err(outcome)),
                None => return Poll::Ready(Err(unended())),
            }
        }
    }
}

/// The next answer; the end also if the request stream has failed.
pub(crate) fn poll_answer(
    answers: &mut Answers,
    pump: &mut Option<Pump>,
    cx: &mut Context<'_>,
) -> Poll<Option<Answer>> {
    if let Poll::Ready(answer) = answers.poll_next(cx) {
        return Poll::Ready(answer);
    }
    if let Some(running) = pump {
        if let Some(outcome) = running.poll_failed(cx) {
            *pump = None;
            return Poll::Ready(Some(Answer::End(outcome)));
        }
        if running.is_finished() {
            *pump = None;
        }
    }
    Poll::Pending
}

fn unended() -> Outcome {
    Outcome::from(&trunkline::Status::internal("the call was asked for more after its end"))
}
