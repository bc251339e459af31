//! Memory a message is built in: a block of a session's send heap, or of this process when there is no session yet.

use crate::session::{Session, Written};
use std::sync::Arc;
use trunkline_call::Encoding;
use trunkline_message::{AlignedBuf, Extent, LimitError};
use trunkline_shm::Block;

/// Bytes asked for at first. Nine of ten messages are smaller (seed 004, request sizes: median 1.5 KiB, and most of
/// that in few fields); what is left over goes back to the heap when the message is sent.
const FIRST_BYTES: u32 = 2048;

/// Where a message is built in place. Opaque: generated builders write into it.
#[derive(Debug)]
pub struct SendExtent(Kind);

#[derive(Debug)]
enum Kind {
    /// `None` only when it has been taken to be sent.
    Heap {
        session: Arc<Session>,
        block: Option<Block>,
    },
    Local(AlignedBuf),
}

/// The heap has no such block now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) wanted_bytes: u32,
}

impl SendExtent {
    /// A block of the session's send heap.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn of_session(session: &Arc<Session>, bytes: usize) -> Result<Self, Full> {
        let wanted_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(FIRST_BYTES);
        let block = session.allocate(wanted_bytes).map_err(|_| Full { wanted_bytes })?;
        Ok(Self(Kind::Heap { session: Arc::clone(session), block: Some(block) }))
    }

    /// Whether what it has is another process's: this one was forked, and its parent's memory is not here.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(&self.0, Kind::Heap { session, .. } if session.is_foreign())
    }

    /// Memory of this process.
    pub(crate) fn local() -> Self {
        Self(Kind::Local(AlignedBuf::new()))
    }

    /// Whether it can be sent through `session` without a copy.
    pub(crate) fn lies_in(&self, session: &Arc<Session>) -> bool {
        matches!(&self.0, Kind::Heap { session: own, .. } if Arc::ptr_eq(own, session))
    }

    /// The block with its first `len` bytes, to be sent through its session.
    pub(crate) fn take_written(&mut self, len: usize) -> Option<Written> {
        match &mut self.0 {
            Kind::Heap { block, .. } => {
                let block = block.take()?;
                let len = u32::try_from(len).ok().filter(|len| *len <= block.capacity())?;
                Some(Written { block, len, encoding: Encoding::Linear, plain: false })
            }
            Kind::Local(_) => None,
        }
    }

    /// The session and the block with its first `len` bytes; this again if it is memory of the process.
    pub(crate) fn into_written(mut self, len: usize) -> Result<(Arc<Session>, Written), Self> {
        let Kind::Heap { session, .. } = &self.0 else { return Err(self) };
        let session = Arc::clone(session);
        self.take_written(len).map(|written| (session, written)).ok_or(self)
    }

    /// Grows as [`Extent::grow`] does, and where the heap cannot: in memory of the process, from which the message is
    /// copied once when it is sent.
    ///
    /// # Errors
    /// [`LimitError`] beyond what a message may have.
    pub(crate) fn grow_anywhere(&mut self, min_len: usize) -> Result<(), LimitError> {
        if self.grow(min_len).is_ok() {
            return Ok(());
        }
        let mut local = AlignedBuf::new();
        local.grow(min_len.max(self.bytes().len()))?;
        let old = self.bytes();
        if let Some(target) = local.bytes_mut().get_mut(..old.len()) {
            target.copy_from_slice(old);
        }
        *self = Self(Kind::Local(local));
        Ok(())
    }

    /// A block that was not sent after all.
    pub(crate) fn from_written(session: &Arc<Session>, written: Written) -> (Self, usize) {
        let kind = Kind::Heap { session: Arc::clone(session), block: Some(written.block) };
        (Self(kind), written.len as usize)
    }
}

impl Extent for SendExtent {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kind::Heap { .. } if self.is_foreign() => &[],
            Kind::Heap { block, .. } => block.as_ref().map_or(&[], Block::bytes),
            Kind::Local(buffer) => buffer.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Heap { block, .. } => block.as_mut().map_or(&mut [], Block::bytes_mut),
            Kind::Local(buffer) => buffer.bytes_mut(),
        }
    }

    /// Doubles, so that growing step by step costs linear time; if the heap has no double, just enough.
    fn grow(&mut self, min_len: usize) -> Result<(), LimitError> {
        let (session, block) = match &mut self.0 {
            Kind::Heap { session, block: Some(block) } => (session, block),
            Kind::Heap { block: None, .. } => {
                return Err(LimitError { wanted_bytes: min_len, limit_bytes: 0 });
            }
            Kind::Local(buffer) => return buffer.grow(min_len),
        };
        let error = LimitError { wanted_bytes: min_len, limit_bytes: session.block_bytes_max() as usize };
        let wanted = u32::try_from(min_len).map_err(|_| error)?;
        let double = block.capacity().saturating_mul(2).max(wanted);
        block.grow(double).or_else(|_| block.grow(wanted)).map_err(|_| error)
    }
}

impl Drop for SendExtent {
    fn drop(&mut self) {
        if let Kind::Heap { session, block } = &mut self.0
            && block.take().is_some()
        {
            session.block_given_back();
        }
    }
}
