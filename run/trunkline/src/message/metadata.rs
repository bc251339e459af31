//! Metadata on its way out.

use crate::session::{Session, Written};
use std::sync::Arc;
use trunkline_call::{Encoding, Metadata};

/// Metadata in the send heap, or the bytes a block for it must have.
pub(crate) fn write_metadata(session: &Arc<Session>, metadata: &Metadata) -> Result<Written, u32> {
    write_bytes(session, &encoded(metadata))
}

/// Metadata as it travels.
pub(crate) fn encoded(metadata: &Metadata) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(metadata.encoded_len());
    metadata.encode(&mut bytes);
    bytes
}

/// As [`write_metadata`], of metadata encoded already.
pub(crate) fn write_bytes(session: &Arc<Session>, bytes: &[u8]) -> Result<Written, u32> {
    let wanted_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut block = session.allocate(wanted_bytes).map_err(|_| wanted_bytes)?;
    if let Some(target) = block.bytes_mut().get_mut(..bytes.len()) {
        target.copy_from_slice(bytes);
    }
    Ok(Written { block, len: wanted_bytes, encoding: Encoding::Linear, plain: false })
}
