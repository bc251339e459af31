//! A message built in place.

use super::space::{Full, SendExtent};
use crate::session::{Session, Written};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use trunkline_call::{Execution, Fault, Status};
use trunkline_message::{BuildError, Extent, Message};

/// A message of type `M` built where it will be sent from, so that sending copies nothing.
///
/// Made by [`Channel::build`](crate::Channel::build), [`Incoming::build`](crate::Incoming::build) and
/// [`Sender::build`](crate::Sender::build). It may be sent through any channel; through another session than the one
/// it was built for it is copied once.
pub struct Built<M> {
    extent: SendExtent,
    len: usize,
    of: PhantomData<fn() -> M>,
}

impl<M: Message> Built<M> {
    /// Reads it.
    pub fn view(&self) -> M::View<'_> {
        M::view(self.bytes())
    }

    /// Its bytes in linear form, header included. Empty in a forked child: they are its parent's.
    pub fn bytes(&self) -> &[u8] {
        self.extent.bytes().get(..self.len).unwrap_or_default()
    }

    /// Builds in an extent.
    pub(crate) fn build(
        extent: SendExtent,
        fill: impl FnOnce(&mut M::Builder<'_, SendExtent>),
    ) -> Result<Self, Status> {
        M::build(extent, fill).map(Self::of_linear).map_err(unbuilt)
    }

    /// Writes a struct into an extent.
    pub(crate) fn write(extent: SendExtent, message: &M) -> Result<Self, BuildError> {
        message.write_to(extent).map(Self::of_linear)
    }

    /// A copy of linear bytes in the heap of `session`.
    pub(crate) fn copy(session: &Arc<Session>, bytes: &[u8]) -> Result<Self, Full> {
        let mut extent = SendExtent::of_session(session, bytes.len())?;
        if let Some(target) = extent.bytes_mut().get_mut(..bytes.len()) {
            target.copy_from_slice(bytes);
        }
        Ok(Self { extent, len: bytes.len(), of: PhantomData })
    }

    pub(crate) fn lies_in(&self, session: &Arc<Session>) -> bool {
        self.extent.lies_in(session)
    }

    /// Whether it was built by the process this one was forked from, and so cannot be read here.
    pub(crate) fn is_foreign(&self) -> bool {
        self.extent.is_foreign()
    }

    /// The block, to be sent through the session it lies in.
    pub(crate) fn take_written(&mut self) -> Option<Written> {
        self.extent.take_written(self.len)
    }

    /// What [`Built::take_written`] gave, if it was not sent.
    pub(crate) fn from_written(session: &Arc<Session>, written: Written) -> Self {
        let (extent, len) = SendExtent::from_written(session, written);
        Self { extent, len, of: PhantomData }
    }

    fn of_linear(built: trunkline_message::Built<SendExtent>) -> Self {
        let len = built.len_bytes();
        Self { extent: built.into_extent(), len, of: PhantomData }
    }
}

impl<M> fmt::Debug for Built<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built").field("len_bytes", &self.len).finish_non_exhaustive()
    }
}

/// Why a message cannot be built, as a status: it never can, or (`Err` of the result) not now.
pub(crate) fn never(error: BuildError) -> Result<Status, Full> {
    match error {
        BuildError::Limit(limit) if limit.wanted_bytes <= limit.limit_bytes => {
            Err(Full { wanted_bytes: u32::try_from(limit.wanted_bytes).unwrap_or(u32::MAX) })
        }
        BuildError::Limit(limit) => Ok(too_large(limit.limit_bytes)),
        BuildError::Depth => Ok(Fault::MalformedRequest { why: error.to_string() }.status()),
    }
}

/// Why a message was not built in place: as a person or a `?` needs it.
fn unbuilt(error: BuildError) -> Status {
    never(error).unwrap_or_else(|Full { wanted_bytes }| {
        let why = format!("no block of {wanted_bytes} bytes is free at the moment: {SEND_HEAP}");
        Status::resource_exhausted(why).with_execution(Execution::NotExecuted)
    })
}

/// What bounds a message on its way out, and what makes it larger.
const SEND_HEAP: &str =
    "bytes of the send heap (sessions.heap_bytes, or TRUNKLINE_HEAP_BYTES in this application)";

/// A message that no send heap of this size can hold.
pub(crate) fn too_large(send_heap_bytes: usize) -> Status {
    Fault::Limit { name: SEND_HEAP, limit: send_heap_bytes as u64 }
        .status()
        .with_execution(Execution::NotExecuted)
}
