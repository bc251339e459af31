//! Types that are read at run time, and memory for messages of them.

use crate::message::SendExtent;
use crate::session::Session;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use trunkline_call::Status;
use trunkline_message::{Extent, LimitError};

/// What a client or a service declares its messages to be: an encoded `FileDescriptorSet`. Its calls are linear then
/// (docs/linear.md), and the daemon converts for ends that have other types, or none.
///
/// The daemon reads it, and refuses to bind what it cannot read. Two of the same bytes are the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Types(Bytes);

impl Types {
    /// The types a descriptor set declares.
    pub fn new(descriptor_set: impl Into<Bytes>) -> Self {
        Self(descriptor_set.into())
    }

    /// The bytes they were made of.
    pub fn descriptor_set(&self) -> Bytes {
        self.0.clone()
    }
}

impl fmt::Debug for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Types").field("len_bytes", &self.0.len()).finish_non_exhaustive()
    }
}

/// Memory to build a linear message in, header included: a block of a send heap, or of this process where there is
/// none.
#[derive(Debug)]
pub struct Space(SendExtent);

impl Space {
    /// Memory of this process; the message is copied once when it is sent.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED beyond what a message may have.
    pub fn local(bytes: usize) -> Result<Self, Status> {
        let mut space = Self(SendExtent::local());
        space.grow(bytes)?;
        Ok(space)
    }

    /// Makes it at least so large. The content is kept; it may lie elsewhere afterwards.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED beyond what a message may have; it is as it was then.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes <= self.0.bytes().len() {
            return Ok(());
        }
        self.0.grow_anywhere(bytes).map_err(|limit| Status::resource_exhausted(limit.to_string()))
    }

    pub(crate) fn of_session(session: Option<&Arc<Session>>, bytes: usize) -> Self {
        let of = |session| SendExtent::of_session(session, bytes).ok();
        Self(session.and_then(of).unwrap_or_else(SendExtent::local))
    }

    pub(crate) fn into_extent(self) -> SendExtent {
        self.0
    }
}

impl Extent for Space {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    fn grow(&mut self, min_len: usize) -> Result<(), LimitError> {
        self.0.grow_anywhere(min_len)
    }
}
