//! What a relayed session's two sides have in common: rings, heaps and a control socket of this host.

use crate::error::LinkError;
use crate::output::LinkOutput;
use rustix::fd::BorrowedFd;
use trunkline_call::entry::{Entry, Span};
use trunkline_shm::ControlSocket;

/// An entry that goes to the other side, and where its bytes lie here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenEntry {
    pub entry: Entry,
    pub spans: [Span; 2],
}

/// One side.
pub(crate) trait SessionEnd {
    /// The other side has said hello; whether it reads the same clock.
    fn greeted(&mut self, same_clock: bool);

    /// The answer to a question about the other side's clock.
    fn clock_told(&mut self, sent_ns: u64, clock_ns: u64);

    /// The next entry that is to be carried over.
    fn take(&mut self) -> Result<Option<TakenEntry>, LinkError>;

    /// Bytes of such an entry.
    fn copy_out(&self, offset: u32, into: &mut [u8]) -> Result<(), LinkError>;

    /// Bytes of an entry that will come.
    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), LinkError>;

    /// An entry from the other side. `false`: the ring is full.
    fn put(&mut self, entry: Entry) -> Result<bool, LinkError>;

    /// Shows what was put to whoever reads it.
    fn publish(&mut self) -> Result<(), LinkError>;

    /// About to sleep. `false`: there are entries.
    fn arm(&mut self) -> Result<bool, LinkError>;

    /// Awake.
    fn disarm(&mut self);

    /// What wakes this side, once the session is there.
    fn doorbell(&self) -> Option<BorrowedFd<'_>>;

    /// Carries over what the control socket has. Whether it had anything.
    fn say(&mut self, control: &ControlSocket, output: &mut LinkOutput) -> Result<bool, LinkError>;

    /// So many bytes more of the descriptor set of a packet that will come.
    ///
    /// # Errors
    /// There is no room for them.
    fn keep(&mut self, blob_bytes: usize) -> Result<(), LinkError>;

    /// A control packet from the other side, with the descriptor set that came before it.
    fn hear(
        &mut self,
        packet: &[u8],
        heap: bool,
        blob: Vec<u8>,
        control: &ControlSocket,
    ) -> Result<(), LinkError>;
}
