//! How a call ended, as its caller sees it.

use super::made::{Ended, OpenStream};
use crate::hub::explained;
use crate::message::{Body, Received, Response};
use crate::opaque::Outcome;
use crate::session::{self, End, Session, returned};
use std::sync::Arc;
use trunkline_call::entry::{Finish, Span};
use trunkline_call::{CallId, Code, Encoding, Execution, Metadata, Status};
use trunkline_message::Message;

/// Headers, read and returned.
pub(crate) fn take_headers(session: &Arc<Session>, call: CallId, block: Span) -> Result<Metadata, Status> {
    let headers = session::metadata(session, block);
    session.with(|books, effects| books.release(returned(call, block), effects));
    headers
}

/// The response of a call whose server does not stream.
pub(crate) fn response<R: Message>(
    session: &Arc<Session>,
    headers: Metadata,
    end: End,
) -> Result<Response<R>, Status> {
    let (message, trailers) = match finished(session, end, Encoding::Linear) {
        Ok(finished) => finished,
        Err(status) => return Err(behind(headers, status)),
    };
    let message = message.ok_or_else(|| Status::internal("the server answered OK without a response"))?;
    Ok(Response { body: Body::Received(Received::new(message)), headers, trailers })
}

/// The trailers of a call whose server streamed.
pub(crate) fn trailers(session: &Arc<Session>, end: End) -> Result<Metadata, Status> {
    finished(session, end, Encoding::Linear).map(|(_, trailers)| trailers)
}

/// The end of a call whose messages no generated code reads.
pub(crate) fn of_opaque(
    session: &Arc<Session>,
    end: End,
    wanted: Encoding,
) -> Result<(Option<session::Received>, Outcome), Status> {
    let End::Finished(finish) = end else { return Ok((None, Outcome::from(&cut_short(session, end)))) };
    // Before the blocks go back.
    let trailers = session::metadata(session, finish.metadata);
    let message = session::Received::last(session, &finish, wanted)?;
    let mut trailers = trailers?;
    if session.is_alone() && finish.code != Code::Ok {
        let _ = status_of(session, &finish, &mut trailers).put_into(&mut trailers);
    }
    Ok((message, Outcome { code: finish.code, trailers, execution: finish.execution }))
}

/// Why sending on a stream does not work any more. OK is no reason.
pub(crate) fn reason(stream: &OpenStream) -> Status {
    let status = how_ended(stream);
    if !status.is_ok() {
        return status;
    }
    Status::cancelled("the call has ended with OK; nothing more can be sent on it")
        .with_execution(status.execution())
}

/// How a stream's call ended, whether or not that was taken by whoever receives.
pub(crate) fn how_ended(stream: &OpenStream) -> Status {
    let session = stream.session();
    let untaken = session.with(|books, _| {
        let end = books.call(stream.call())?.end?;
        // Under the lock, so that the block with the words is not returned meanwhile.
        let words = match end {
            End::Finished(finish) => session::metadata(session, finish.metadata),
            _ => Ok(Metadata::new()),
        };
        Some((end, words))
    });
    match (untaken.flatten(), stream.ended()) {
        (Some((end, words)), _) => {
            words.map_or_else(|status| status, |words| ended_with(session, end, words))
        }
        (None, Ended::With(status)) => status,
        (None, Ended::Briefly(end)) => ended_with(session, end, Metadata::new()),
        (None, Ended::No) => Status::cancelled("the call has ended").with_execution(Execution::Unknown),
    }
}

/// The status of a call that ended so.
fn ended_with(session: &Session, end: End, mut words: Metadata) -> Status {
    match end {
        End::Finished(finish) if finish.code == Code::Ok => Status::ok().with_execution(finish.execution),
        End::Finished(finish) => status_of(session, &finish, &mut words),
        end => cut_short(session, end),
    }
}

fn finished(
    session: &Arc<Session>,
    end: End,
    wanted: Encoding,
) -> Result<(Option<session::Received>, Metadata), Status> {
    let End::Finished(finish) = end else { return Err(cut_short(session, end)) };
    // Before the blocks go back.
    let trailers = session::metadata(session, finish.metadata);
    let message = session::Received::last(session, &finish, wanted)?;
    let mut trailers = trailers?;
    match finish.code {
        Code::Ok => Ok((message, trailers)),
        _ => Err(status_of(session, &finish, &mut trailers)),
    }
}

/// A status whose metadata begins with the response headers, as far as both fit: a failed call has no other place for
/// them.
fn behind(mut headers: Metadata, mut status: Status) -> Status {
    let _ = status.metadata().iter().try_for_each(|(key, value)| headers.insert(key, value));
    *status.metadata_mut() = headers;
    status
}

fn status_of(session: &Session, finish: &Finish, trailers: &mut Metadata) -> Status {
    let status = Status::take_from(trailers, finish.code).with_execution(finish.execution);
    if session.is_alone() { explained(status) } else { status }
}

/// The status of a call that was not answered.
fn cut_short(session: &Session, end: End) -> Status {
    match end {
        End::SessionLost { taken } => {
            let execution = if taken { Execution::Unknown } else { Execution::NotExecuted };
            let why = session.lost_because();
            Status::unavailable(format!("the session with the daemon ended: {why}")).with_execution(execution)
        }
        End::Overdue => Status::deadline_exceeded("deadline passed").with_execution(Execution::Unknown),
        End::Cancelled(code) => {
            Status::new(code, "the call was cancelled").with_execution(Execution::Unknown)
        }
        End::Finished(_) => Status::ok(),
    }
}
