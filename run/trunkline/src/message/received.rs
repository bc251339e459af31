//! A message where the daemon put it.

use crate::session;
use std::fmt;
use std::marker::PhantomData;
use trunkline_message::Message;

/// A message of type `M` in the receive heap: read in place, returned to the daemon when dropped.
///
/// Holding on to many large messages holds on to the receive heap; [`Received::into_inner`] copies one out and frees
/// its place.
pub struct Received<M> {
    block: session::Received,
    of: PhantomData<fn() -> M>,
}

impl<M: Message> Received<M> {
    /// Reads it in place.
    pub fn view(&self) -> M::View<'_> {
        M::view(self.bytes())
    }

    /// Copies it out as a struct.
    pub fn into_inner(self) -> M {
        M::read(self.view())
    }

    /// Its bytes in linear form, header included.
    pub fn bytes(&self) -> &[u8] {
        self.block.bytes()
    }

    /// Whether it came compressed from a gRPC peer. What comes from this host, or from another's daemon, does not.
    pub fn was_compressed(&self) -> bool {
        self.block.was_compressed()
    }

    pub(crate) fn new(block: session::Received) -> Self {
        Self { block, of: PhantomData }
    }
}

impl<M> fmt::Debug for Received<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("len_bytes", &self.block.bytes().len()).finish_non_exhaustive()
    }
}
