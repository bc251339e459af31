//! A message whose type no generated Rust code knows: protobuf, or linear where its types are read at run time.

use super::body::{NotPlaced, Sendable, not_placed};
use super::space::{Full, SendExtent};
use crate::session::{Session, Written};
use bytes::Bytes;
use std::sync::Arc;
use trunkline_call::Encoding;
use trunkline_message::Extent;

/// Bytes on their way out, in an encoding.
#[derive(Debug)]
pub(crate) enum Raw {
    /// In this process.
    Local(Bytes, Encoding),
    /// In the send heap of a session; `None` once it was taken.
    Heap(Arc<Session>, Option<Written>),
}

impl Raw {
    /// The first `len` bytes of what was built in `extent`: a linear message. Nothing is copied if that lies in a send
    /// heap.
    pub(crate) fn built(extent: SendExtent, len: usize) -> Self {
        extent.into_written(len).map_or_else(
            |extent| {
                let bytes = Bytes::copy_from_slice(extent.bytes().get(..len).unwrap_or_default());
                Self::Local(bytes, Encoding::Linear)
            },
            |(session, written)| Self::Heap(session, Some(written)),
        )
    }
}

impl Sendable for Raw {
    fn place(&mut self, session: &Arc<Session>, _wanted_bytes: u32) -> Result<(), NotPlaced> {
        let placed = match self {
            Self::Heap(own, Some(_)) if Arc::ptr_eq(own, session) => return Ok(()),
            Self::Heap(_, Some(written)) => {
                let bytes = written.block.bytes().get(..written.len as usize).unwrap_or_default();
                write(session, bytes, written.encoding)?
            }
            Self::Heap(_, None) => write(session, &[], Encoding::Protobuf)?,
            Self::Local(bytes, encoding) => write(session, bytes, *encoding)?,
        };
        *self = Self::Heap(Arc::clone(session), Some(placed));
        Ok(())
    }

    fn placed(session: &Arc<Session>, written: Written) -> Self {
        Self::Heap(Arc::clone(session), Some(written))
    }

    fn take_written(&mut self) -> Option<Written> {
        match self {
            Self::Heap(_, written) => written.take(),
            Self::Local(..) => None,
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Self::Heap(session, written) = self
            && written.take().is_some()
        {
            session.block_given_back();
        }
    }
}

fn write(session: &Arc<Session>, bytes: &[u8], encoding: Encoding) -> Result<Written, NotPlaced> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    // An empty message needs no block, but a place for one keeps the two cases alike.
    let wanted_bytes = len.max(1);
    let full = |_| not_placed(session, Full { wanted_bytes });
    let mut block = session.allocate(wanted_bytes).map_err(full)?;
    if let Some(target) = block.bytes_mut().get_mut(..bytes.len()) {
        target.copy_from_slice(bytes);
    }
    Ok(Written { block, len, encoding })
}
