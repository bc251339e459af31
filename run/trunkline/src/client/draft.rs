//! A call that has not been submitted yet.

use super::binding::Binding;
use super::made::Made;
use super::target::Target;
use crate::clock;
use crate::context::{self, Parent};
use crate::hub::{Hub, Patience, too_late};
use crate::intercept::ClientCall;
use crate::leases::session_of;
use crate::message::{self, Body, Request, Sendable, Within, write_metadata};
use crate::session::{Order, Refusal, Resource, Session, Turn, Written};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use trunkline_call::{CallId, Deadline, Execution, Instant, Metadata, Status};
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
    /// Since when it waits in a queue of its application's, or for room; what it takes to build it was before.
    queued: Option<Instant>,
    /// What an earlier try found missing in the send heap.
    wanted_bytes: u32,
    /// The channel's interceptors have seen it, or there are none.
    intercepted: bool,
}

/// Why a draft was not submitted.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// There is no session yet.
    NoSession,
    /// The session does not know the service yet.
    Unbound(Arc<Session>),
    /// The session has none of this.
    Full { session: Arc<Session>, resource: Resource, wanted_bytes: u32 },
    /// It never will be.
    Never(Status),
}

impl<Q: Message> Draft<Body<Q>> {
    // LIFE: 1 | the generated stub is entered | deadline, metadata (a0) |
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
    // LIFE: 1
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
            queued: None,
            wanted_bytes: 0,
            intercepted: target.channel.interceptors().is_empty(),
        }
    }

    /// Ends the call when this time has passed since the stub was entered.
    pub(crate) fn limit(&mut self, timeout: Duration) {
        self.deadline = self.deadline.earlier(Deadline::after(self.a0, timeout));
    }

    /// From now on, until it is submitted, it waits in a queue.
    pub(crate) fn wait_in_queue(&mut self) {
        self.queued.get_or_insert_with(clock::now);
    }

    /// Makes the call on behalf of a delivered one.
    pub(super) fn place_within(&mut self, within: Option<Within>) {
        self.within = within;
    }

    // LIFE: 2 | request built in the send heap, entry published, doorbell rung if the shard sleeps | a1 |
    /// Submits, if nothing has to be waited for. `turn`: it has waited for that, and goes through its session.
    pub(crate) fn try_start(&mut self, waker: &Waker, turn: Option<&Turn>) -> Result<Made, NotStarted> {
        let made = self.submit(waker, turn);
        if matches!(made, Err(NotStarted::Full { .. })) {
            self.wait_in_queue();
        }
        made
    }

    fn submit(&mut self, waker: &Waker, turn: Option<&Turn>) -> Result<Made, NotStarted> {
        if !self.intercepted {
            self.intercept()
                .map_err(|status| NotStarted::Never(status.with_execution(Execution::NotExecuted)))?;
        }
        let (session, parent) = self.session(&self.target.channel.hub(), waker, turn);
        let deadline = parent.map_or(self.deadline, |parent| self.deadline.earlier(parent.deadline));
        let session = session.ok_or(NotStarted::NoSession)?;
        self.place(&session)?;
        let a1 = clock::now();
        if deadline.has_passed(a1) {
            return Err(NotStarted::Never(too_late()));
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
            queued: self.queued,
            parent: parent.map_or(CallId(0), |parent| parent.call),
        };
        let barge = turn.is_some_and(|turn| turn.is_in(&session));
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
                Err(not_started(refusal, session))
            }
        }
    }

    /// The hub of this process for the call's target.
    pub(super) fn hub(&self) -> Arc<Hub> {
        self.target.channel.hub().into_owned()
    }

    pub(super) fn binding(&self) -> &Binding {
        &self.target.binding
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// When the call must have ended, wherever it is polled: its own deadline, or that of the call it is made for.
    pub(super) fn deadline_here(&self) -> Deadline {
        let parent = self.within.as_ref().map(|within| within.parent);
        let parent = parent.or_else(|| context::parent().map(|(_, parent)| parent));
        parent.map_or(self.deadline, |parent| self.deadline.earlier(parent.deadline))
    }

    #[cold]
    fn intercept(&mut self) -> Result<(), Status> {
        self.intercepted = true;
        let Target { channel, binding } = &*self.target;
        let path = binding.path(self.method);
        let mut call =
            ClientCall { path, target: channel.target(), metadata: &mut self.metadata, limit: None };
        channel.interceptors().intercept(&mut call)?;
        if let Some(limit) = call.limit {
            self.limit(limit);
        }
        Ok(())
    }

    /// The session to call through, and the delivered call on whose behalf.
    fn session(
        &self,
        hub: &Arc<Hub>,
        waker: &Waker,
        turn: Option<&Turn>,
    ) -> (Option<Arc<Session>>, Option<Parent>) {
        // Where its turn came, wherever its task is polled by now.
        let usual = || {
            let waited =
                turn.map(Turn::session).filter(|session| session.is_open() && session.hub() == hub.id());
            waited.cloned().or_else(|| session_of(hub, waker))
        };
        let within = self.within.as_ref().map(|within| (Arc::clone(&within.session), within.parent));
        match within.or_else(context::parent) {
            // The parent is known to the session it was delivered in, so the call goes the same way.
            Some((session, parent)) if session.is_open() && session.hub() == hub.id() => {
                (Some(session), Some(parent))
            }
            // Another daemon, or one that is leaving: the deadline is inherited, cancellation is not.
            Some((_, parent)) => (usual(), Some(Parent { call: CallId(0), deadline: parent.deadline })),
            None => (usual(), None),
        }
    }

    fn place(&mut self, session: &Arc<Session>) -> Result<(), NotStarted> {
        let Some(body) = &mut self.body else { return Ok(()) };
        let wanted = &mut self.wanted_bytes;
        body.place(session, *wanted).map_err(|why| match why {
            message::NotPlaced::Never(status) => {
                NotStarted::Never(status.with_execution(Execution::NotExecuted))
            }
            message::NotPlaced::Full { wanted_bytes } => {
                *wanted = wanted_bytes;
                NotStarted::Full { session: Arc::clone(session), resource: Resource::Heap, wanted_bytes }
            }
        })
    }

    fn written_metadata(&mut self, session: &Arc<Session>) -> Result<Option<Written>, NotStarted> {
        if self.metadata.is_empty() {
            return Ok(None);
        }
        write_metadata(session, &self.metadata).map(Some).map_err(|wanted_bytes| NotStarted::Full {
            session: Arc::clone(session),
            resource: Resource::Heap,
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

fn not_started(refusal: Refusal, session: Arc<Session>) -> NotStarted {
    match refusal {
        Refusal::Full(resource) => NotStarted::Full { session, resource, wanted_bytes: 0 },
        Refusal::Unbound => NotStarted::Unbound(session),
        // Look for another session; there is none until one is attached.
        Refusal::Closed | Refusal::Ended | Refusal::Credit => NotStarted::NoSession,
    }
}
