//! Requests on the control socket of a session that is attached: binding methods and services.
//!
//! Any thread sends; the keeper of the hub reads the replies and hands them to whoever waits, by tag.

use super::ids::IdMap;
use super::{BindingId, Session};
use prost::Message;
use rustix::fd::{AsFd, BorrowedFd};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use trunkline_call::{Code, Execution, RouteIndex, Status};
use trunkline_control::{Bind, Bound, CallMethod, Request, request};
use trunkline_shm::{ControlError, create_blob};

/// Replies awaited, and those that came and were not fetched.
#[derive(Debug, Default)]
pub(super) struct Replies {
    last_tag: u64,
    awaited: IdMap<u64, Awaited>,
    /// Bindings somebody is making, with the tasks that need them too.
    binding: IdMap<BindingId, Vec<Waker>>,
    lost: bool,
}

#[derive(Debug)]
enum Awaited {
    Waiting(Option<Waker>),
    Arrived(Bound),
}

impl Replies {
    /// Nothing will come any more. Gives those who are to be woken.
    pub(super) fn lose(&mut self) -> Vec<Waker> {
        self.lost = true;
        let awaited = self.awaited.values_mut().filter_map(|awaited| match awaited {
            Awaited::Waiting(waker) => waker.take(),
            Awaited::Arrived(_) => None,
        });
        let binding = self.binding.drain().flat_map(|(_, waiting)| waiting);
        awaited.chain(binding).collect()
    }
}

/// The answer to a `Bind`: a future of `Result<Bound, Status>`. Dropping it forgets the answer, not the binding.
#[derive(Debug)]
pub(crate) struct BoundReply {
    session: Arc<Session>,
    tag: u64,
}

impl Session {
    /// Sends a `Bind` with its descriptor set, if the daemon is to know the types.
    ///
    /// # Errors
    /// UNAVAILABLE when the session is over or its daemon does not read, RESOURCE_EXHAUSTED for limits.
    pub(crate) fn bind(
        self: &Arc<Self>,
        serves: Vec<String>,
        calls: Vec<CallMethod>,
        set: Option<&[u8]>,
    ) -> Result<BoundReply, Status> {
        let descriptor_set_bytes = set.map_or(0, |set| set.len() as u64);
        let bind = Bind { descriptor_set_bytes, serves, calls };
        let blob = set.map(create_blob).transpose().map_err(|error| unavailable(&error.to_string()))?;
        let fds: Vec<BorrowedFd<'_>> = blob.iter().map(AsFd::as_fd).collect();
        let tag = {
            let mut replies = self.replies.lock();
            if replies.lost {
                return Err(unavailable("the session ended before a service was bound"));
            }
            replies.last_tag += 1;
            let tag = replies.last_tag;
            replies.awaited.insert(tag, Awaited::Waiting(None));
            tag
        };
        let reply = BoundReply { session: Arc::clone(self), tag };
        let packet = Request { tag, kind: Some(request::Kind::Bind(bind)) }.encode_to_vec();
        let control = self.control.lock();
        let control = control.as_ref().ok_or_else(|| unavailable("the session is over"))?;
        control.send(&packet, &fds).map_err(|error| unavailable(&error.to_string()))?;
        Ok(reply)
    }

    /// Hands an answer to whoever waits for it. Unasked answers are ignored.
    pub(crate) fn bound(&self, tag: u64, bound: Bound) {
        let before = match self.replies.lock().awaited.get_mut(&tag) {
            Some(awaited) => std::mem::replace(awaited, Awaited::Arrived(bound)),
            None => return,
        };
        if let Awaited::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }

    /// Whether the caller is to make this binding. `Pending`: somebody else does; `Ready(false)`: it is made.
    pub(crate) fn poll_claim(&self, binding: BindingId, cx: &mut Context<'_>) -> Poll<bool> {
        let mut replies = self.replies.lock();
        if replies.lost || self.has_routes(binding) {
            return Poll::Ready(false);
        }
        match replies.binding.get_mut(&binding) {
            Some(waiting) => {
                waiting.push(cx.waker().clone());
                Poll::Pending
            }
            None => {
                replies.binding.insert(binding, Vec::new());
                Poll::Ready(true)
            }
        }
    }

    /// The claimant is done, with routes or without: the others look again.
    pub(crate) fn settle_claim(&self, binding: BindingId, routes: Option<Arc<[RouteIndex]>>) {
        if let Some(routes) = routes {
            self.with(|books, _| books.set_routes(binding, routes));
        }
        let waiting = self.replies.lock().binding.remove(&binding);
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    fn has_routes(&self, binding: BindingId) -> bool {
        self.with(|books, _| books.has_routes(binding)).unwrap_or(false)
    }

    /// For the keeper: reads one packet, which replaces what was in `packet`. `None` when the daemon has closed.
    ///
    /// # Errors
    /// As [`ControlSocket::recv`].
    pub(crate) fn read_control(&self, packet: &mut Vec<u8>) -> Result<Option<()>, ControlError> {
        if let Some(unread) = self.receive_heaps.take_unread() {
            *packet = unread;
            return Ok(Some(()));
        }
        let control = self.control.lock();
        let Some(socket) = &*control else { return Ok(None) };
        let Some(fds) = socket.recv(packet, 1)? else { return Ok(None) };
        self.take_heap(packet, fds)?;
        drop(control);
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
