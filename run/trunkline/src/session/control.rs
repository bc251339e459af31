//! Requests on the control socket of a session that is attached: binding methods and services.
//!
//! Any thread asks; the listener reads the answers and hands them to whoever waits, by tag. What is agreed on for all
//! of a service's callers (numbers for its methods) the listener books, so that nobody who needs it depends on somebody
//! else's future being polled.

use super::link::PacketRead;
use super::order::BindingId;
use super::replies::{Asked, ReplyOwner};
use super::session::Session;
use crate::refusals::unavailable;
use crate::wakers::{self, WakerPlace};
use bytes::Bytes;
use prost::Message;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use trunkline_call::{Code, Execution, Status};
use trunkline_control::{Bind, Bound, CallMethod, Request, request};
use trunkline_shm::{ControlError, PACKET_BYTES_MAX, create_blob};

/// Bytes of a packet for the methods in it: the rest is for tags, lengths and numbers around them.
const CALLS_BYTES_MAX: usize = PACKET_BYTES_MAX - 64;

/// Bytes that a method's tag and length take at most.
const CALL_FRAME_BYTES: usize = 8;

/// What is to be agreed on.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// What is called, for people.
    pub(crate) name: Arc<str>,
    pub(crate) calls: Vec<CallMethod>,
    /// The descriptors, if the daemon is to know the types.
    pub(crate) set: Option<Bytes>,
}

/// The answer to a `Bind`: a future of `Result<Bound, Status>`. Dropping it forgets the answer, not the binding.
#[derive(Debug)]
pub(crate) struct BoundReply {
    session: Arc<Session>,
    tag: u64,
}

/// Somebody who waits for an agreement, until it is dropped.
struct Waits<'a> {
    session: &'a Session,
    asked: Arc<Asked>,
    place: WakerPlace,
}

impl Session {
    /// Announces services with their descriptor set, if the daemon is to know the types.
    ///
    /// # Errors
    /// UNAVAILABLE when the session is over, RESOURCE_EXHAUSTED for limits.
    pub(crate) fn bind(
        self: &Arc<Self>,
        serves: Vec<String>,
        set: Option<&[u8]>,
    ) -> Result<BoundReply, Status> {
        let tag = self.replies.lock().expect()?;
        let reply = BoundReply { session: Arc::clone(self), tag };
        self.send_bind(tag, serves, Vec::new(), set)?;
        Ok(reply)
    }

    /// Agrees on the methods of `binding`, unless that was done. `propose` says them, if nobody has asked.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, not executed, with the daemon's reason; UNAVAILABLE when the session ends first.
    pub(crate) async fn agree(
        self: &Arc<Self>,
        binding: BindingId,
        propose: impl FnOnce() -> Agreement,
    ) -> Result<(), Status> {
        let Some(asked) = self.ask(binding, propose)? else { return Ok(()) };
        let mut waits = Waits { session: self, asked, place: WakerPlace::default() };
        poll_fn(|cx| {
            if self.is_lost() {
                return Poll::Ready(Err(unavailable("the session ended while a service was being bound")));
            }
            waits.asked.poll(&mut waits.place, cx)
        })
        .await
    }

    /// Hands an answer to whoever waits for it. Unasked answers are ignored.
    pub(crate) fn bound(&self, tag: u64, bound: Bound) {
        self.link.answered();
        let answered = self.replies.lock().arrived(tag, &bound);
        match answered {
            ReplyOwner::Agreement(asked) => self.agreed(tag, &asked, bound),
            ReplyOwner::Task(waker) => waker.into_iter().for_each(wakers::wake),
            ReplyOwner::Nobody => {}
        }
    }

    /// For the listener: reads one packet, which replaces what was in `packet`. `None` when the daemon has closed.
    ///
    /// # Errors
    /// As [`ControlSocket::recv`](trunkline_shm::ControlSocket::recv).
    pub(crate) fn read_control(&self, packet: &mut Vec<u8>) -> Result<Option<()>, ControlError> {
        let read = self.link.read(packet)?;
        if matches!(read, PacketRead::Before | PacketRead::Now { bare: true })
            && let Some(number) = self.link.heaps.in_use_now(packet)
        {
            self.with(|books, _| books.held.goes_on_in(number));
        }
        match read {
            PacketRead::Closed => return Ok(None),
            PacketRead::Before => {}
            PacketRead::Now { .. } => self.forget_heaps(),
        }
        Ok(Some(()))
    }

    /// For the listener: whether a packet waits that the socket does not tell of, because somebody who looked for a
    /// heap has read it.
    pub(crate) fn has_unread(&self) -> bool {
        self.link.has_unread()
    }

    /// For the listener, when the session is over.
    pub(crate) fn close_control(&self) {
        self.link.close();
    }

    /// In a forked child: closes the copy of the control socket, if it can.
    pub(crate) fn close_inherited(&self) {
        self.link.close_inherited();
    }

    /// Asks the daemon, or joins those who have. `None`: it was agreed on.
    fn ask(
        self: &Arc<Self>,
        binding: BindingId,
        propose: impl FnOnce() -> Agreement,
    ) -> Result<Option<Arc<Asked>>, Status> {
        if self.is_lost() {
            return Ok(None); // there may be another session by now
        }
        let (asked, tag) = {
            let mut replies = self.replies.lock();
            // Under this lock: whoever books an answer does so before it forgets the question.
            if self.has_routes(binding) {
                return Ok(None);
            }
            if let Some(asked) = replies.asked(binding) {
                return Ok(Some(Arc::clone(asked)));
            }
            let asked = match replies.begun(binding) {
                Some(asked) => asked,
                None => {
                    let Agreement { name, calls, set } = propose();
                    Asked::new(binding, name, set, packets(calls)?)
                }
            };
            let tag = replies.expect_agreement(&asked)?;
            (asked, tag)
        };
        if let Err(status) = self.ask_packet(tag, &asked) {
            self.replies.lock().close(&asked);
            asked.settle(Err(status));
        }
        Ok(Some(asked))
    }

    /// Asks the daemon about the methods of one packet.
    fn ask_packet(&self, tag: u64, asked: &Asked) -> Result<(), Status> {
        self.send_bind(tag, Vec::new(), asked.next_packet(), asked.set())
    }

    /// Books what the daemon answers about a packet, and asks about the next if there is one.
    fn agreed(&self, tag: u64, asked: &Arc<Asked>, bound: Bound) {
        let outcome = match asked.routes(bound) {
            Ok(None) => {
                let next = self.replies.lock().go_on(tag, asked);
                match next.and_then(|next| self.ask_packet(next, asked)) {
                    Ok(()) => return,
                    Err(status) => Err(status),
                }
            }
            Ok(Some(routes)) => {
                self.with(|books, _| books.set_routes(asked.binding(), routes));
                Ok(())
            }
            Err(status) => Err(status),
        };
        self.replies.lock().close(asked);
        asked.settle(outcome);
    }

    fn has_routes(&self, binding: BindingId) -> bool {
        self.with(|books, _| books.has_routes(binding)).unwrap_or(false)
    }

    fn send_bind(
        &self,
        tag: u64,
        serves: Vec<String>,
        calls: Vec<CallMethod>,
        set: Option<&[u8]>,
    ) -> Result<(), Status> {
        let descriptor_set_bytes = set.map_or(0, |set| set.len() as u64);
        let bind = Bind { descriptor_set_bytes, serves, calls };
        let blob = set.map(create_blob).transpose().map_err(|error| unavailable(&error.to_string()))?;
        let packet = Request { tag, kind: Some(request::Kind::Bind(bind)) }.encode_to_vec();
        self.link.ask(packet, blob)
    }

    fn forget_heaps(&self) {
        // One that comes meanwhile is not among these, and stays.
        let numbers = self.link.heaps.numbers();
        let done = self.with(|books, _| books.held.done_with(&numbers));
        self.link.heaps.forget(&done.unwrap_or_default());
    }
}

/// The methods, by packets that hold them: each says its target, which may be long.
///
/// # Errors
/// FAILED_PRECONDITION, not executed, of a target that no packet holds.
fn packets(calls: Vec<CallMethod>) -> Result<VecDeque<Vec<CallMethod>>, Status> {
    let (mut packets, mut packet, mut bytes_left) = (VecDeque::new(), Vec::new(), CALLS_BYTES_MAX);
    for call in calls {
        let bytes = call.encoded_len() + CALL_FRAME_BYTES;
        if bytes > CALLS_BYTES_MAX {
            let (path, target_bytes) = (&call.path, call.target.len());
            let why =
                format!("{path} cannot be bound: its target has {target_bytes} bytes, {CALLS_BYTES_MAX} fit");
            return Err(Status::new(Code::FailedPrecondition, why).with_execution(Execution::NotExecuted));
        }
        if bytes > bytes_left {
            packets.push_back(std::mem::take(&mut packet));
            bytes_left = CALLS_BYTES_MAX;
        }
        bytes_left -= bytes;
        packet.push(call);
    }
    packets.push_back(packet);
    Ok(packets)
}

impl Future for BoundReply {
    type Output = Result<Bound, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.session.is_foreign() {
            return Poll::Ready(Err(unavailable("the session is another process's")));
        }
        self.session.replies.lock().poll(self.tag, cx.waker())
    }
}

impl Drop for BoundReply {
    fn drop(&mut self) {
        if !self.session.is_lost() {
            self.session.replies.lock().forget(self.tag);
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever, and nobody is woken there.
        if !self.session.is_foreign() {
            self.asked.leave(&mut self.place);
        }
    }
}
