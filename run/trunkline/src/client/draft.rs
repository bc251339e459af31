//! A call that has not been submitted yet.

use super::Target;
use super::made::Made;
use super::turn::{Turn, wait_for};
use crate::channel::lane_of;
use crate::clock;
use crate::context::{self, Parent};
use crate::hub::{Hub, Patience, Since, before, too_late};
use crate::message::{self, Body, Request, Sendable, Within};
use crate::session::{Order, Refusal, Room, Session, Written};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use trunkline_call::{CallId, Deadline, Encoding, Execution, Instant, Metadata, Status};
use trunkline_message::Message;

/// A call from the moment its stub is entered until its first entry is in the ring.
pub(crate) struct Draft<B> {
    target: Arc<Target>,
    method: usize,
    pub(crate) body: Option<B>,
    /// The request side is complete with `body`.
    pub(crate) end: bool,
    pub(crate) metadata: Metadata,
    patience: Patience,
    within: Option<Within>,
    deadline: Deadline,
    a0: Instant,
    /// What an earlier try found missing in the send heap.
    wanted_bytes: u32,
}

/// Why a draft was not submitted.
#[derive(Debug)]
pub(crate) enum Hurdle {
    /// There is no session yet.
    NoSession,
    /// The session does not know the service yet.
    Unbound(Arc<Session>),
    /// The session has no room.
    Room { session: Arc<Session>, room: Room, wanted_bytes: u32 },
    /// It never will be.
    Never(Status),
}

impl<Q: Message> Draft<Body<Q>> {
    /// A call with one request.
    pub(super) fn of_request(target: &Arc<Target>, method: usize, request: Request<Q>) -> Self {
        let mut draft = Self::of_stream(target, method);
        draft.body = Some(request.body);
        draft.end = true;
        draft.metadata = request.metadata;
        draft.within = request.within;
        if request.patience == Patience::UntilReady {
            draft.patience = Patience::UntilReady;
        }
        if let Some(timeout) = request.timeout {
            draft.limit(timeout);
        }
        draft
    }
}

impl<B: Sendable> Draft<B> {
    /// A call whose requests follow.
    pub(crate) fn of_stream(target: &Arc<Target>, method: usize) -> Self {
        Self {
            target: Arc::clone(target),
            method,
            body: None,
            end: false,
            metadata: Metadata::new(),
            patience: target.channel.patience(),
            within: None,
            deadline: Deadline::NONE,
            a0: clock::now(),
            wanted_bytes: 0,
        }
    }

    /// Ends the call when this time has passed since the stub was entered.
    pub(crate) fn limit(&mut self, timeout: Duration) {
        self.deadline = self.deadline.earlier(Deadline::after(self.a0, timeout));
    }

    /// Makes the call on behalf of a delivered one.
    pub(super) fn place_within(&mut self, within: Option<Within>) {
        self.within = within;
    }

    /// Submits, if nothing has to be waited for. `barge`: this draft has waited for its turn.
    pub(crate) fn try_start(&mut self, waker: &Waker, barge: bool) -> Result<Made, Hurdle> {
        let (session, parent) = self.session(&self.target.channel.hub(), waker);
        let deadline = parent.map_or(self.deadline, |parent| self.deadline.earlier(parent.deadline));
        let session = session.ok_or(Hurdle::NoSession)?;
        self.place(&session)?;
        let a1 = clock::now();
        if deadline.has_passed(a1) {
            return Err(Hurdle::Never(too_late()));
        }
        let metadata = self.written_metadata(&session)?;
        let mut order = Order {
            binding: self.target.binding.id,
            method: self.method,
            payload: self.body.as_mut().and_then(B::take_written),
            metadata,
            end: self.end,
            wait_for_ready: self.patience == Patience::UntilReady,
            deadline,
            a0: self.a0,
            a1,
            parent: parent.map_or(CallId(0), |parent| parent.call),
        };
        let started = session.with(|books, effects| books.start(&mut order, barge, effects));
        match started.unwrap_or(Err(Refusal::Closed)) {
            Ok(call) => Ok(Made::new(session, call, self.end)),
            Err(refusal) => {
                if let Some(written) = order.payload.take() {
                    self.body = Some(B::placed(&session, written));
                }
                if order.metadata.take().is_some() {
                    session.block_given_back();
                }
                Err(hurdle(refusal, session))
            }
        }
    }

    /// Submits, waiting for whatever has to be waited for, until the deadline.
    ///
    /// # Errors
    /// What is wrong with the message; UNAVAILABLE; DEADLINE_EXCEEDED. In each case the call was not executed.
    pub(crate) async fn start(self) -> Result<Made, Status> {
        let hub = self.target.channel.hub().into_owned();
        let deadline = self.deadline;
        before(hub.keeper(), deadline, self.start_at_last(&hub)).await
    }

    async fn start_at_last(mut self, hub: &Arc<Hub>) -> Result<Made, Status> {
        let mut turn: Option<Turn> = None;
        loop {
            let tried =
                poll_fn(|cx| std::task::Poll::Ready(self.try_start(cx.waker(), turn.is_some()))).await;
            match tried {
                Ok(made) => return Ok(made),
                Err(Hurdle::Never(status)) => return Err(status),
                Err(Hurdle::NoSession) => {
                    let mut since = Since::default();
                    let patience = self.patience;
                    poll_fn(|cx| lane_of(hub, cx.waker()).poll_session(&mut since, patience, cx)).await?;
                }
                Err(Hurdle::Unbound(session)) => self.target.binding.make(&session).await?,
                Err(Hurdle::Room { session, room, wanted_bytes }) => {
                    turn = wait_for(turn.take(), &session, room, wanted_bytes).await;
                }
            }
        }
    }

    /// The session to call through, and the delivered call on whose behalf.
    fn session(&self, hub: &Arc<Hub>, waker: &Waker) -> (Option<Arc<Session>>, Option<Parent>) {
        let within = self.within.as_ref().map(|within| (Arc::clone(&within.session), within.parent));
        match within.or_else(context::parent) {
            // The parent is known to the session it was delivered in, so the call goes the same way.
            Some((session, parent)) if session.is_open() && Arc::ptr_eq(session.keeper(), hub.keeper()) => {
                (Some(session), Some(parent))
            }
            // Another daemon, or one that is leaving: the deadline is inherited, cancellation is not.
            Some((_, parent)) => {
                (usual(hub, waker), Some(Parent { call: CallId(0), deadline: parent.deadline }))
            }
            None => (usual(hub, waker), None),
        }
    }

    fn place(&mut self, session: &Arc<Session>) -> Result<(), Hurdle> {
        let Some(body) = &mut self.body else { return Ok(()) };
        let wanted = &mut self.wanted_bytes;
        body.place(session, *wanted).map_err(|hurdle| match hurdle {
            message::Hurdle::Never(status) => Hurdle::Never(status.with_execution(Execution::NotExecuted)),
            message::Hurdle::Full { wanted_bytes } => {
                *wanted = wanted_bytes;
                Hurdle::Room { session: Arc::clone(session), room: Room::Heap, wanted_bytes }
            }
        })
    }

    fn written_metadata(&mut self, session: &Arc<Session>) -> Result<Option<Written>, Hurdle> {
        if self.metadata.is_empty() {
            return Ok(None);
        }
        write_metadata(session, &self.metadata).map(Some).map_err(|wanted_bytes| Hurdle::Room {
            session: Arc::clone(session),
            room: Room::Heap,
            wanted_bytes,
        })
    }
}

impl<B> fmt::Debug for Draft<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("target", &self.target)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Metadata in the send heap, or the bytes a block for it must have.
pub(crate) fn write_metadata(session: &Arc<Session>, metadata: &Metadata) -> Result<Written, u32> {
    write_bytes(session, &encoded(metadata))
}

/// Metadata as it travels.
pub(crate) fn encoded(metadata: &Metadata) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(metadata.encoded_len());
    metadata.encode(&mut bytes);
    bytes
}

/// As [`write_metadata`], of metadata encoded already.
pub(crate) fn write_bytes(session: &Arc<Session>, bytes: &[u8]) -> Result<Written, u32> {
    let wanted_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut block = session.allocate(wanted_bytes).map_err(|_| wanted_bytes)?;
    if let Some(target) = block.bytes_mut().get_mut(..bytes.len()) {
        target.copy_from_slice(bytes);
    }
    Ok(Written { block, len: wanted_bytes, encoding: Encoding::Linear })
}

fn usual(hub: &Arc<Hub>, waker: &Waker) -> Option<Arc<Session>> {
    if context::is_blocking_here(waker) { context::session(hub) } else { hub.task_lane().session() }
}

fn hurdle(refusal: Refusal, session: Arc<Session>) -> Hurdle {
    match refusal {
        Refusal::Room(room) => Hurdle::Room { session, room, wanted_bytes: 0 },
        Refusal::Unbound => Hurdle::Unbound(session),
        // Look for another session; there is none until one is attached.
        Refusal::Closed | Refusal::Ended | Refusal::Credit => Hurdle::NoSession,
    }
}
