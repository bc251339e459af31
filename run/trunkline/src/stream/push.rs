//! Sending one message on an open stream, with all the waiting that may take.

use crate::clock;
use crate::message::{NotPlaced, Sendable};
use crate::session::{CreditWait, Refusal, Resource, Session, Turn, wait_for};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use trunkline_call::{CallId, Status};

/// Why a message was not sent.
#[derive(Debug)]
pub(crate) enum Push {
    /// The call has ended.
    Ended,
    /// The message can never be sent.
    Never(Status),
}

/// Sends a message: waits for credit, for a block, for a place in the ring.
///
/// Cancel safe: a message is sent in the last poll or not at all.
pub(crate) async fn push<B: Sendable>(session: &Arc<Session>, call: CallId, mut body: B) -> Result<(), Push> {
    let mut turn: Option<Turn> = None;
    let mut wanted_bytes = 0;
    loop {
        let resource = match try_push(session, call, &mut body, wanted_bytes) {
            Ok(()) => return Ok(()),
            Err(Block::Push(push)) => return Err(push),
            Err(Block::Credit) => {
                turn = None;
                wait_for_credit(session, call).await;
                continue;
            }
            Err(Block::Full(resource)) => resource,
            Err(Block::Heap(bytes)) => {
                wanted_bytes = bytes;
                Resource::Heap
            }
        };
        turn = wait_for(turn, session, resource, wanted_bytes, Some(call)).await;
        if turn.is_none() {
            return Err(Push::Ended);
        }
    }
}

/// What stands in the way.
enum Block {
    Push(Push),
    Credit,
    Full(Resource),
    /// The send heap has no block of so many bytes.
    Heap(u32),
}

fn try_push<B: Sendable>(
    session: &Arc<Session>,
    call: CallId,
    body: &mut B,
    wanted_bytes: u32,
) -> Result<(), Block> {
    // Credit first: a message that has to wait for its receiver should not hold a block meanwhile.
    match session.with(|books, _| books.may_send(call)) {
        Some(Some(true)) => {}
        Some(Some(false)) => return Err(Block::Credit),
        _ => return Err(Block::Push(Push::Ended)),
    }
    body.place(session, wanted_bytes).map_err(|why| match why {
        NotPlaced::Never(status) => Block::Push(Push::Never(status)),
        NotPlaced::Full { wanted_bytes } => Block::Heap(wanted_bytes),
    })?;
    let mut written = body.take_written();
    let a1 = clock::now();
    let sent = session.with(|books, effects| books.send(call, &mut written, false, a1, effects));
    if let Some(written) = written {
        *body = B::placed(session, written);
    }
    match sent.unwrap_or(Err(Refusal::Ended)) {
        Ok(()) => Ok(()),
        Err(Refusal::Credit) => Err(Block::Credit),
        Err(Refusal::Full(resource)) => Err(Block::Full(resource)),
        Err(Refusal::Ended | Refusal::Closed | Refusal::Unbound) => Err(Block::Push(Push::Ended)),
    }
}

/// Waits until the stream may send, or the call has ended.
async fn wait_for_credit(session: &Arc<Session>, call: CallId) {
    let _waits = CreditWait::of(session, call);
    poll_fn(|cx| {
        session.poll_with(cx, |books, asker, _| match books.may_send(call) {
            Some(false) => {
                books.wait_for_credit(call, asker);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
    })
    .await;
}
