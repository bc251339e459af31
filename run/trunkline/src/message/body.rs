//! The message of a request, a response or a stream, wherever it lies at the moment.

use super::built::{Built, never, too_large};
use super::received::Received;
use super::space::{Full, SendExtent};
use crate::refusals::unavailable;
use crate::session::{Session, Written};
use std::sync::{Arc, OnceLock};
use trunkline_call::Status;
use trunkline_message::{AlignedBuf, Message};

/// A message on its way.
#[derive(Debug)]
pub(crate) enum Body<M> {
    /// A struct, and its linear form once somebody asked to view it.
    Owned(M, OnceLock<trunkline_message::Built<AlignedBuf>>),
    Built(Built<M>),
    Received(Received<M>),
}

/// Something that can lie in the send heap of a session, and be sent from there.
pub(crate) trait Sendable: Send + Sized + 'static {
    /// Puts it there, unless it is there. `wanted_bytes` is what an earlier try found missing, 0 at first: a second try
    /// that grew step by step could need two blocks at once again.
    fn place(&mut self, session: &Arc<Session>, wanted_bytes: u32) -> Result<(), NotPlaced>;

    /// What was placed in `session`, given back.
    fn placed(session: &Arc<Session>, written: Written) -> Self;

    /// The block it was placed in; nothing is left of it here.
    fn take_written(&mut self) -> Option<Written>;
}

/// Why a message is not in the send heap.
#[derive(Debug)]
pub(crate) enum NotPlaced {
    /// Wait for a block of this size.
    Full {
        /// Bytes wanted.
        wanted_bytes: u32,
    },
    /// It never will be.
    Never(Status),
}

impl<M: Message> Body<M> {
    pub(crate) fn owned(message: M) -> Self {
        Self::Owned(message, OnceLock::new())
    }

    pub(crate) fn view(&self) -> M::View<'_> {
        match self {
            Self::Owned(message, linear) => match linear_of(message, linear) {
                Some(linear) => M::view(linear.bytes()),
                None => M::view(&[]),
            },
            Self::Built(built) => built.view(),
            Self::Received(received) => received.view(),
        }
    }

    /// Whether it came compressed from a gRPC peer.
    pub(crate) fn was_compressed(&self) -> bool {
        matches!(self, Self::Received(received) if received.was_compressed())
    }

    pub(crate) fn into_inner(self) -> M {
        match self {
            Self::Owned(message, _) => message,
            Self::Built(built) => M::read(built.view()),
            Self::Received(received) => received.into_inner(),
        }
    }
}

impl<M: Message> Sendable for Body<M> {
    fn place(&mut self, session: &Arc<Session>, wanted_bytes: u32) -> Result<(), NotPlaced> {
        let placed = match self {
            Self::Built(built) if built.lies_in(session) => return Ok(()),
            Self::Built(built) if built.is_foreign() => return Err(foreign()),
            Self::Owned(message, _) => write(session, message, wanted_bytes)?,
            Self::Built(built) => copy(session, built.bytes())?,
            Self::Received(received) => copy(session, received.bytes())?,
        };
        *self = Self::Built(placed);
        Ok(())
    }

    fn placed(session: &Arc<Session>, written: Written) -> Self {
        Self::Built(Built::from_written(session, written))
    }

    fn take_written(&mut self) -> Option<Written> {
        match self {
            Self::Built(built) => built.take_written(),
            Self::Owned(..) | Self::Received(_) => None,
        }
    }
}

/// A message to be sent on a stream: a struct, one [built in place](Built), or one received.
#[derive(Debug)]
pub struct Outgoing<M> {
    body: Body<M>,
    plain: bool,
}

impl<M> Outgoing<M> {
    /// The same, not to be compressed towards a gRPC peer, whatever its call says.
    pub fn uncompressed(self) -> Self {
        Self { plain: true, ..self }
    }

    fn of(body: Body<M>) -> Self {
        Self { body, plain: false }
    }
}

impl<M: Message> Sendable for Outgoing<M> {
    fn place(&mut self, session: &Arc<Session>, wanted_bytes: u32) -> Result<(), NotPlaced> {
        self.body.place(session, wanted_bytes)
    }

    fn placed(session: &Arc<Session>, written: Written) -> Self {
        let plain = written.plain;
        Self { body: Body::placed(session, written), plain }
    }

    fn take_written(&mut self) -> Option<Written> {
        self.body.take_written().map(|written| Written { plain: self.plain, ..written })
    }
}

impl<M: Message> From<M> for Outgoing<M> {
    fn from(message: M) -> Self {
        Self::of(Body::owned(message))
    }
}

impl<M: Message> From<Built<M>> for Outgoing<M> {
    fn from(built: Built<M>) -> Self {
        Self::of(Body::Built(built))
    }
}

impl<M: Message> From<Received<M>> for Outgoing<M> {
    fn from(received: Received<M>) -> Self {
        Self::of(Body::Received(received))
    }
}

fn linear_of<'a, M: Message>(
    message: &M,
    linear: &'a OnceLock<trunkline_message::Built<AlignedBuf>>,
) -> Option<&'a trunkline_message::Built<AlignedBuf>> {
    if linear.get().is_none() {
        // A message that cannot be built reads as empty here and is refused with its reason when it is sent.
        let _ = linear.set(message.to_linear().ok()?);
    }
    linear.get()
}

fn write<M: Message>(session: &Arc<Session>, message: &M, wanted_bytes: u32) -> Result<Built<M>, NotPlaced> {
    let bytes = M::BLOCK_BYTES.max(wanted_bytes) as usize;
    let extent = SendExtent::of_session(session, bytes).map_err(|full| not_placed(session, full))?;
    Built::write(extent, message).map_err(|error| match never(error) {
        Ok(status) => NotPlaced::Never(status),
        Err(full) => not_placed(session, full),
    })
}

fn copy<M: Message>(session: &Arc<Session>, bytes: &[u8]) -> Result<Built<M>, NotPlaced> {
    Built::copy(session, bytes).map_err(|full| not_placed(session, full))
}

/// A message that lies in the heap of the process this one was forked from.
pub(super) fn foreign() -> NotPlaced {
    NotPlaced::Never(unavailable("its message is with the process that this one was forked from"))
}

pub(super) fn not_placed(session: &Session, Full { wanted_bytes }: Full) -> NotPlaced {
    let bytes_max = session.block_bytes_max();
    if wanted_bytes > bytes_max {
        NotPlaced::Never(too_large(bytes_max as usize))
    } else {
        NotPlaced::Full { wanted_bytes }
    }
}
