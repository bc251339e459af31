//! Requests on the control socket of a session that is attached: binding methods and services.
//!
//! Any thread sends; the keeper of the hub reads the replies and hands them to whoever waits, by tag.

use super::agreement::Asked;
use super::ids::IdMap;
use super::{BindingId, Session};
use crate::wakers;
use prost::Message;
use rustix::fd::{AsFd, BorrowedFd};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use trunkline_call::{Code, Execution, Status};
use trunkline_control::{Bind, Bound, CallMethod, Request, request};
use trunkline_shm::{ControlError, create_blob};

/// Replies awaited, and those that came and were not fetched.
#[derive(Debug, Default)]
pub(super) struct Replies {
    last_tag: u64,
    awaited: IdMap<u64, Awaited>,
    /// Tags of the questions about services that are called.
    asked: IdMap<BindingId, u64>,
    lost: bool,
}

#[derive(Debug)]
enum Awaited {
    Waiting(Option<Waker>),
    Arrived(Bound),
    /// The keeper books it.
    Agreement(Arc<Asked>),
}

impl Replies {
    /// Who has asked about a service, if the answer has not come.
    pub(super) fn asked(&self, binding: BindingId) -> Option<&Arc<Asked>> {
        match self.awaited.get(self.asked.get(&binding)?)? {
            Awaited::Agreement(asked) => Some(asked),
            Awaited::Waiting(_) | Awaited::Arrived(_) => None,
        }
    }

    /// The tag a question is to be asked with.
    ///
    /// # Errors
    /// UNAVAILABLE when the session is over.
    pub(super) fn expect_agreement(&mut self, asked: &Arc<Asked>) -> Result<u64, Status> {
        let tag = self.expect(Awaited::Agreement(Arc::clone(asked)))?;
        self.asked.insert(asked.binding(), tag);
        Ok(tag)
    }

    /// The question was answered, or not asked.
    pub(super) fn forget(&mut self, tag: u64) {
        if let Some(Awaited::Agreement(asked)) = self.awaited.remove(&tag) {
            self.asked.remove(&asked.binding());
        }
    }

    /// Nothing will come any more. Gives those who are to be told.
    pub(super) fn lose(&mut self) -> (Vec<Waker>, Vec<Arc<Asked>>) {
        self.lost = true;
        self.asked.clear();
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

    fn expect(&mut self, awaited: Awaited) -> Result<u64, Status> {
        if self.lost {
            return Err(unavailable("the session ended before a service was bound"));
        }
        self.last_tag += 1;
        self.awaited.insert(self.last_tag, awaited);
        Ok(self.last_tag)
    }
}

/// The answer to a `Bind`: a future of `Result<Bound, Status>`. Dropping it forgets the answer, not the binding.
#[derive(Debug)]
pub(crate) struct BoundReply {
    session: Arc<Session>,
    tag: u64,
}

impl Session {
    /// Announces services with their descriptor set, if the daemon is to know the types.
    ///
    /// # Errors
    /// UNAVAILABLE when the session is over or its daemon does not read, RESOURCE_EXHAUSTED for limits.
    pub(crate) fn bind(
        self: &Arc<Self>,
        serves: Vec<String>,
        set: Option<&[u8]>,
    ) -> Result<BoundReply, Status> {
        let tag = self.replies.lock().expect(Awaited::Waiting(None))?;
        let reply = BoundReply { session: Arc::clone(self), tag };
        self.send_bind(tag, serves, Vec::new(), set)?;
        Ok(reply)
    }

    /// Sends a `Bind`.
    ///
    /// # Errors
    /// As [`Session::bind`].
    pub(super) fn send_bind(
        &self,
        tag: u64,
        serves: Vec<String>,
        calls: Vec<CallMethod>,
        set: Option<&[u8]>,
    ) -> Result<(), Status> {
        let descriptor_set_bytes = set.map_or(0, |set| set.len() as u64);
        let bind = Bind { descriptor_set_bytes, serves, calls };
        let blob = set.map(create_blob).transpose().map_err(|error| unavailable(&error.to_string()))?;
        let fds: Vec<BorrowedFd<'_>> = blob.iter().map(AsFd::as_fd).collect();
        let packet = Request { tag, kind: Some(request::Kind::Bind(bind)) }.encode_to_vec();
        let control = self.control.lock();
        let control = control.as_ref().ok_or_else(|| unavailable("the session is over"))?;
        control.send(&packet, &fds).map_err(|error| unavailable(&error.to_string()))
    }

    /// Hands an answer to whoever waits for it. Unasked answers are ignored.
    pub(crate) fn bound(&self, tag: u64, bound: Bound) {
        let before = match self.replies.lock().awaited.get_mut(&tag) {
            Some(Awaited::Agreement(asked)) => Awaited::Agreement(Arc::clone(asked)),
            Some(awaited) => std::mem::replace(awaited, Awaited::Arrived(bound.clone())),
            None => return,
        };
        match before {
            Awaited::Agreement(asked) => {
                let outcome = asked.routes(bound).map(|routes| {
                    self.with(|books, _| books.set_routes(asked.binding(), routes));
                });
                self.replies.lock().forget(tag);
                asked.settle(outcome);
            }
            Awaited::Waiting(waker) => waker.into_iter().for_each(wakers::wake),
            Awaited::Arrived(_) => {}
        }
    }

    /// Tells those who wait for answers that none will come.
    pub(super) fn lose_replies(&self) {
        let (wakers, questions) = self.replies.lock().lose();
        wakers.into_iter().for_each(wakers::wake);
        for asked in questions {
            asked.settle(Err(unavailable("the session ended while a service was being bound")));
        }
    }

    /// For the keeper: reads one packet, which replaces what was in `packet`. `None` when the daemon has closed.
    ///
    /// # Errors
    /// As [`ControlSocket::recv`].
    pub(crate) fn read_control(&self, packet: &mut Vec<u8>) -> Result<Option<()>, ControlError> {
        if let Some(unread) = self.receive_heaps.take_unread() {
            *packet = unread;
            self.go_on_in(packet);
            return Ok(Some(()));
        }
        let control = self.control.lock();
        let Some(socket) = &*control else { return Ok(None) };
        let Some(fds) = socket.recv(packet, 1)? else { return Ok(None) };
        let is_bare = fds.is_empty();
        self.take_heap(packet, fds)?;
        drop(control);
        if is_bare {
            self.go_on_in(packet);
        }
        self.forget_heaps();
        Ok(Some(()))
    }

    /// For the keeper, when the session is over.
    pub(crate) fn close_control(&self) {
        self.control.lock().take();
    }

    /// In a forked child: closes the copy of the socket, so that the daemon sees its parent's death when it comes. If
    /// another thread of the parent was using it at the moment of the fork, the copy stays.
    pub(crate) fn close_inherited(&self) {
        if let Some(mut control) = self.control.try_lock() {
            control.take();
        }
    }

    /// Tells the daemon that the session is over; the keeper reads the end of it, and closes.
    pub(super) fn shut_down(&self) {
        if let Some(control) = &*self.control.lock() {
            // The socket may be gone already; there is nobody left to tell.
            let _ = rustix::net::shutdown(control, rustix::net::Shutdown::Both);
        }
    }

    /// For the keeper, who listens on behalf of other executors.
    pub(crate) fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

impl Future for BoundReply {
    type Output = Result<Bound, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.session.guard.is_foreign() {
            return Poll::Ready(Err(unavailable("the session is another process's")));
        }
        let mut replies = self.session.replies.lock();
        let lost = replies.lost;
        match replies.awaited.get_mut(&self.tag) {
            Some(Awaited::Waiting(waker)) if !lost => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(Awaited::Arrived(bound)) => Poll::Ready(Ok(std::mem::take(bound))),
            _ => Poll::Ready(Err(unavailable("the session ended while a service was being bound"))),
        }
    }
}

impl Drop for BoundReply {
    fn drop(&mut self) {
        if !self.session.is_lost() {
            self.session.replies.lock().awaited.remove(&self.tag);
        }
    }
}

/// The infrastructure is not there, and the call never left this process.
pub(crate) fn unavailable(why: &str) -> Status {
    Status::new(Code::Unavailable, why).with_execution(Execution::NotExecuted)
}

/// The daemon does not take a service as it is described.
pub(crate) fn refused(service: &str, bound: &Bound) -> Status {
    let code = match u16::try_from(bound.code).map(Code::from_number) {
        Ok(Code::PermissionDenied) => Code::PermissionDenied,
        _ => Code::FailedPrecondition,
    };
    Status::new(code, format!("binding {service}: {}", bound.error)).with_execution(Execution::NotExecuted)
}
