//! Answers of the daemon that somebody waits for, by the tags of their questions.

use super::ids::IdMap;
use super::order::BindingId;
use crate::refusals::{refused, unavailable};
use crate::wakers::{self, WakerPlace, Wakers};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use trunkline_call::{RouteIndex, Status};
use trunkline_control::{Bound, CallMethod};

/// Replies awaited, and those that came and were not fetched.
#[derive(Debug, Default)]
pub(super) struct Replies {
    last_tag: u64,
    awaited: IdMap<u64, Awaited>,
    /// Tags of the questions about services that are called.
    asked: IdMap<BindingId, u64>,
    /// Those that failed after the daemon had answered a part, which is the session's until it ends.
    begun: IdMap<BindingId, Arc<Asked>>,
    lost: bool,
}

#[derive(Debug)]
enum Awaited {
    Waiting(Option<Waker>),
    Arrived(Bound),
    /// The listener books it.
    Agreement(Arc<Asked>),
}

/// Whose a reply was that came.
#[derive(Debug)]
pub(super) enum ReplyOwner {
    /// Somebody waits for it, who is to be woken.
    Task(Option<Waker>),
    Agreement(Arc<Asked>),
    /// Nobody's, or it came twice.
    Nobody,
}

/// A question the daemon has not answered. Shared by all who wait for the answer.
#[derive(Debug)]
pub(super) struct Asked {
    binding: BindingId,
    name: Arc<str>,
    set: Option<Bytes>,
    state: Mutex<AskedState>,
}

#[derive(Debug, Default)]
struct AskedState {
    /// Methods that were not answered, by packet: the first is under way, the next is asked about when it is answered.
    rest: VecDeque<Vec<CallMethod>>,
    /// What was answered before.
    routes: Vec<RouteIndex>,
    outcome: Option<Result<(), Status>>,
    waiting: Wakers,
}

impl Replies {
    /// The tag a question is to be asked with whose answer somebody will [poll](Replies::poll) for.
    ///
    /// # Errors
    /// UNAVAILABLE when the session is over.
    pub(super) fn expect(&mut self) -> Result<u64, Status> {
        self.add(Awaited::Waiting(None))
    }

    /// The same, of a question about a service that is called.
    ///
    /// # Errors
    /// As [`Replies::expect`].
    pub(super) fn expect_agreement(&mut self, asked: &Arc<Asked>) -> Result<u64, Status> {
        let tag = self.add(Awaited::Agreement(Arc::clone(asked)))?;
        self.asked.insert(asked.binding, tag);
        Ok(tag)
    }

    /// An answer was not the last of its question: the tag of the next packet, for the same who wait.
    ///
    /// # Errors
    /// As [`Replies::expect`].
    pub(super) fn go_on(&mut self, tag: u64, asked: &Arc<Asked>) -> Result<u64, Status> {
        self.awaited.remove(&tag);
        self.expect_agreement(asked)
    }

    /// Who has asked about a service, if the answer has not come.
    pub(super) fn asked(&self, binding: BindingId) -> Option<&Arc<Asked>> {
        match self.awaited.get(self.asked.get(&binding)?)? {
            Awaited::Agreement(asked) => Some(asked),
            Awaited::Waiting(_) | Awaited::Arrived(_) => None,
        }
    }

    /// A question that failed when a part of it had been answered, to be asked again from there.
    pub(super) fn begun(&mut self, binding: BindingId) -> Option<Arc<Asked>> {
        self.begun.remove(&binding).map(|asked| asked.again())
    }

    /// A question is over: it was answered, or it failed.
    pub(super) fn close(&mut self, asked: &Arc<Asked>) {
        if let Some(tag) = self.asked.remove(&asked.binding) {
            self.awaited.remove(&tag);
        }
        if asked.is_begun() && !self.lost {
            self.begun.insert(asked.binding, Arc::clone(asked));
        }
    }

    /// A reply came. One for a task is kept for it.
    pub(super) fn arrived(&mut self, tag: u64, bound: &Bound) -> ReplyOwner {
        match self.awaited.get_mut(&tag) {
            Some(Awaited::Agreement(asked)) => ReplyOwner::Agreement(Arc::clone(asked)),
            Some(awaited) => match std::mem::replace(awaited, Awaited::Arrived(bound.clone())) {
                Awaited::Waiting(waker) => ReplyOwner::Task(waker),
                _ => ReplyOwner::Nobody,
            },
            None => ReplyOwner::Nobody,
        }
    }

    /// Waits for a reply.
    pub(super) fn poll(&mut self, tag: u64, waker: &Waker) -> Poll<Result<Bound, Status>> {
        match self.awaited.get_mut(&tag) {
            Some(Awaited::Waiting(waiting)) if !self.lost => {
                *waiting = Some(waker.clone());
                Poll::Pending
            }
            Some(Awaited::Arrived(bound)) => Poll::Ready(Ok(std::mem::take(bound))),
            _ => Poll::Ready(Err(unavailable("the session ended while a service was being bound"))),
        }
    }

    /// Nobody wants the answer any more.
    pub(super) fn forget(&mut self, tag: u64) {
        self.awaited.remove(&tag);
    }

    /// Nothing will come any more. Gives those who are to be told.
    pub(super) fn lose(&mut self) -> (Vec<Waker>, Vec<Arc<Asked>>) {
        self.lost = true;
        self.asked.clear();
        self.begun.clear();
        let (mut wakers, mut questions) = (Vec::new(), Vec::new());
        self.awaited.retain(|_, awaited| match awaited {
            Awaited::Waiting(waker) => {
                wakers.extend(waker.take());
                true
            }
            Awaited::Arrived(_) => true,
            Awaited::Agreement(asked) => {
                questions.push(Arc::clone(asked));
                false
            }
        });
        (wakers, questions)
    }

    fn add(&mut self, awaited: Awaited) -> Result<u64, Status> {
        if self.lost {
            return Err(unavailable("the session ended before a service was bound"));
        }
        self.last_tag += 1;
        self.awaited.insert(self.last_tag, awaited);
        Ok(self.last_tag)
    }
}

impl Asked {
    /// A question about the methods of `packets`, by packet.
    pub(super) fn new(
        binding: BindingId,
        name: Arc<str>,
        set: Option<Bytes>,
        packets: VecDeque<Vec<CallMethod>>,
    ) -> Arc<Self> {
        let state = AskedState { rest: packets, ..AskedState::default() };
        Arc::new(Self { binding, name, set, state: Mutex::new(state) })
    }

    /// What to ask next.
    pub(super) fn next_packet(&self) -> Vec<CallMethod> {
        self.state.lock().rest.front().cloned().unwrap_or_default()
    }

    /// The same question, of what was not answered.
    fn again(&self) -> Arc<Self> {
        let (rest, routes) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.rest), std::mem::take(&mut state.routes))
        };
        let state = AskedState { rest, routes, ..AskedState::default() };
        let (name, set) = (Arc::clone(&self.name), self.set.clone());
        Arc::new(Self { binding: self.binding, name, set, state: Mutex::new(state) })
    }

    /// Whether a part was answered, and not all.
    fn is_begun(&self) -> bool {
        let state = self.state.lock();
        !(state.routes.is_empty() || state.rest.is_empty())
    }

    /// The descriptors, which come with each packet.
    pub(super) fn set(&self) -> Option<&[u8]> {
        self.set.as_deref()
    }

    pub(super) fn binding(&self) -> BindingId {
        self.binding
    }

    /// The routes the daemon gave; `None` if there is more to ask.
    pub(super) fn routes(&self, bound: Bound) -> Result<Option<Arc<[RouteIndex]>>, Status> {
        if !bound.error.is_empty() {
            return Err(refused(&self.name, &bound));
        }
        let mut state = self.state.lock();
        if bound.calls.len() != state.rest.front().map_or(0, Vec::len) {
            let error = "the daemon numbered another count of methods".to_owned();
            return Err(refused(&self.name, &Bound { error, ..Bound::default() }));
        }
        state.rest.pop_front();
        state.routes.extend(bound.calls.into_iter().map(RouteIndex));
        Ok(state.rest.is_empty().then(|| std::mem::take(&mut state.routes).into()))
    }

    /// Tells everybody.
    pub(super) fn settle(&self, outcome: Result<(), Status>) {
        let waiting = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.waiting.take()
        };
        waiting.for_each(wakers::wake);
    }

    pub(super) fn poll(&self, place: &mut WakerPlace, cx: &Context<'_>) -> Poll<Result<(), Status>> {
        let mut state = self.state.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        state.waiting.park(place, cx.waker());
        Poll::Pending
    }

    pub(super) fn leave(&self, place: &mut WakerPlace) {
        self.state.lock().waiting.leave(place);
    }
}
