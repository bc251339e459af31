//! A block of the receive heap, returned to the daemon when it is dropped.

use super::order::returned;
use super::session::Session;
use std::sync::Arc;
use trunkline_call::entry::{Finish, MessageCompression, Payload, Span, Submission};
use trunkline_call::{CallId, Encoding, Instant, Metadata, Status};
use trunkline_shm::ReceivedBlock;

/// Bytes the daemon wrote for this application, readable in place until dropped.
#[derive(Debug)]
pub(crate) struct Received {
    session: Arc<Session>,
    /// `None` only while it is being dropped.
    block: Option<ReceivedBlock>,
    call: CallId,
    /// Of the last completion of a call: its metadata. It returns with it, and closes the daemon's books on the call.
    last: Option<Span>,
    compressed: bool,
}

impl Received {
    /// Takes the message a completion named.
    ///
    /// # Errors
    /// INTERNAL when the daemon named bytes outside the heap, or an encoding other than `wanted`.
    pub(crate) fn message(
        session: &Arc<Session>,
        call: CallId,
        payload: Payload,
        wanted: Encoding,
    ) -> Result<Self, Status> {
        match block_of(session, payload, wanted) {
            Ok(block) => {
                let (session, compressed) = (Arc::clone(session), came_compressed(payload));
                Ok(Self { session, block: Some(block), call, last: None, compressed })
            }
            Err(status) => {
                session.with(|books, effects| books.release(returned(call, payload.block()), effects));
                Err(status)
            }
        }
    }

    /// Takes the response a call's last completion named, if there is one; otherwise closes the call at once.
    ///
    /// # Errors
    /// As [`Received::message`].
    pub(crate) fn last(
        session: &Arc<Session>,
        finish: &Finish,
        wanted: Encoding,
    ) -> Result<Option<Self>, Status> {
        let block = finish.payload.map(|payload| block_of(session, payload, wanted)).transpose();
        if let Ok(Some(block)) = block {
            let session = Arc::clone(session);
            let (block, last) = (Some(block), Some(finish.metadata));
            let compressed = finish.payload.is_some_and(came_compressed);
            return Ok(Some(Self { session, block, call: finish.call, last, compressed }));
        }
        let span = finish.payload.map_or(Span::default(), |payload| payload.block());
        session.with(|books, effects| books.return_last(finish.call, span, finish.metadata, effects));
        block.map(|_| None)
    }

    /// Whether a gRPC peer sent it compressed.
    pub(crate) fn was_compressed(&self) -> bool {
        self.compressed
    }

    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.as_deref().unwrap_or_default()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let Some(block) = self.block.take().map(ReceivedBlock::into_span) else { return };
        // An empty message has a block too.
        let block = Span { offset: block.offset, len: block.len.max(1) };
        let call = self.call;
        self.session.with(|books, effects| match self.last {
            Some(metadata) => books.return_last(call, block, metadata, effects),
            None => {
                books.release(
                    Submission::Release { call, block, metadata: Span::default(), a18: Instant(0) },
                    effects,
                );
            }
        });
    }
}

fn came_compressed(payload: Payload) -> bool {
    payload.compression == MessageCompression::Compressed
}

fn block_of(session: &Session, payload: Payload, wanted: Encoding) -> Result<ReceivedBlock, Status> {
    if payload.encoding != wanted {
        return Err(Status::internal("the daemon delivered an encoding that was not asked for"));
    }
    session.received_block(payload.span)
}

/// Reads the block that came with a call for a service bound as a whole: path, then metadata. Does not return it.
///
/// # Errors
/// INTERNAL when it does not lie in the heap or is not that.
pub(crate) fn named(session: &Session, span: Span) -> Result<(Box<str>, Metadata), Status> {
    let block = session.received_block(span)?;
    let named = split_path(&block);
    // As in `metadata`.
    let _ = block.into_span();
    named.ok_or_else(|| Status::internal("the daemon delivered a call without its path"))
}

/// Reads a metadata block. Does not return it.
///
/// # Errors
/// INTERNAL when it does not lie in the heap or is not metadata.
pub(crate) fn metadata(session: &Session, span: Span) -> Result<Metadata, Status> {
    if span.len == 0 {
        return Ok(Metadata::new());
    }
    let block = session.received_block(span)?;
    let metadata = Metadata::decode(&block).map_err(|error| Status::internal(error.to_string()));
    // The block belongs to the completion that named it and is returned with it.
    let _ = block.into_span();
    metadata
}

fn split_path(block: &[u8]) -> Option<(Box<str>, Metadata)> {
    let (len, rest) = block.split_first_chunk::<2>()?;
    let (path, metadata) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
    Some((std::str::from_utf8(path).ok()?.into(), Metadata::decode(metadata).ok()?))
}
