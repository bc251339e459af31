//! A message whose type no generated Rust code knows: protobuf, or linear where its types are read at run time.

use super::body::{NotPlaced, Sendable, foreign, not_placed};
use super::space::{Full, SendExtent};
use crate::session::{Session, Written};
use bytes::Bytes;
use std::sync::Arc;
use trunkline_call::Encoding;
use trunkline_message::Extent;

/// Bytes on their way out, in an encoding.
#[derive(Debug)]
pub(crate) struct Raw {
    place: Place,
    /// As of [`Written`].
    plain: bool,
}

#[derive(Debug)]
enum Place {
    /// In this process.
    Local(Bytes, Encoding),
    /// In the send heap of a session; `None` once it was taken.
    Heap(Arc<Session>, Option<Written>),
}

impl Raw {
    pub(crate) fn local(bytes: Bytes, encoding: Encoding) -> Self {
        Self { place: Place::Local(bytes, encoding), plain: false }
    }

    pub(crate) fn uncompressed(mut self) -> Self {
        self.plain = true;
        self
    }

    /// The first `len` bytes of what was built in `extent`: a linear message. Nothing is copied if that lies in a send
    /// heap.
    pub(crate) fn built(extent: SendExtent, len: usize) -> Self {
        extent.into_written(len).map_or_else(
            |extent| {
                let bytes = Bytes::copy_from_slice(extent.bytes().get(..len).unwrap_or_default());
                Self::local(bytes, Encoding::Linear)
            },
            |(session, written)| Self::placed(&session, written),
        )
    }
}

impl Sendable for Raw {
    fn place(&mut self, session: &Arc<Session>, _wanted_bytes: u32) -> Result<(), NotPlaced> {
        let placed = match &self.place {
            Place::Heap(own, Some(_)) if Arc::ptr_eq(own, session) => return Ok(()),
            Place::Heap(own, Some(_)) if own.is_foreign() => return Err(foreign()),
            Place::Heap(_, Some(written)) => {
                let bytes = written.block.bytes().get(..written.len as usize).unwrap_or_default();
                write(session, bytes, written.encoding)?
            }
            Place::Heap(_, None) => write(session, &[], Encoding::Protobuf)?,
            Place::Local(bytes, encoding) => write(session, bytes, *encoding)?,
        };
        self.place = Place::Heap(Arc::clone(session), Some(placed));
        Ok(())
    }

    fn placed(session: &Arc<Session>, written: Written) -> Self {
        let plain = written.plain;
        Self { place: Place::Heap(Arc::clone(session), Some(written)), plain }
    }

    fn take_written(&mut self) -> Option<Written> {
        let plain = self.plain;
        match &mut self.place {
            Place::Heap(_, written) => written.take().map(|written| Written { plain, ..written }),
            Place::Local(..) => None,
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Place::Heap(session, written) = &mut self.place
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
    Ok(Written { block, len, encoding, plain: false })
}
