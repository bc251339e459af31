//! Writing to a socket straight from an application's heap.
//!
//! The kernel copies from the send heap into the socket; user space never reads the bytes. If the application changes
//! them meanwhile, it changes its own message, and the receiver verifies what it gets.

use std::io::IoSlice;

use rustix::fd::AsFd;
use rustix::io::{self, Errno};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::alleged::SharedSlice;

/// Pieces one call passes to the kernel; more are left for the next. Headers and bodies of 32 messages.
pub const GATHER_PIECES_MAX: usize = 64;

/// Bytes to send, in order.
#[derive(Clone, Debug)]
pub enum Piece<'a> {
    /// Our own: frame headers, small copies.
    Owned(&'a [u8]),
    /// An application's.
    Shared(SharedSlice),
}

impl Piece<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Piece::Owned(bytes) => bytes.len(),
            Piece::Shared(slice) => slice.len(),
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sends the pieces in order on a connected socket; tells how many bytes it took, which may end within a piece.
///
/// Never blocks and raises no signal.
///
/// # Errors
/// `EAGAIN` when the socket has no room, `EPIPE` and `ECONNRESET` when the peer is gone, `EINVAL` in a forked child.
pub fn send_gather(socket: impl AsFd, pieces: &[Piece<'_>]) -> io::Result<usize> {
    let pieces = &pieces[..pieces.len().min(GATHER_PIECES_MAX)];
    let mut slices = [IoSlice::new(&[]); GATHER_PIECES_MAX];
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = match piece {
            Piece::Owned(bytes) => IoSlice::new(bytes),
            Piece::Shared(shared) if !shared.is_mapped() => return Err(Errno::INVAL),
            // SAFETY: `slices` does not leave this function, which passes it to `sendmsg` and nothing else.
            Piece::Shared(shared) => unsafe { shared.io_slice() },
        };
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &slices[..pieces.len()], &mut SendAncillaryBuffer::default(), flags)
}
