//! The bytes between the h2 connection and the socket.
//!
//! The connection reads from an inbox and writes to an outbox, both in memory; the socket is read and written once per
//! turn, however many frames that is. The memory is the turn's, lent for its duration: a connection at rest has none.

use parking_lot::{Mutex, MutexGuard};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes in the outbox at which the connection must wait for the socket. Four of the largest ordinary frames: enough
/// that a system call is cheap beside the copy, and still in the second-level cache.
const OUTBOX_BYTES_MAX: usize = 64 << 10;

/// What h2 has for a socket.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<Mutex<Boxes>>);

/// The two boxes.
#[derive(Debug, Default)]
pub(super) struct Boxes {
    inbox: Vec<u8>,
    /// What of the inbox is to be read.
    unread: std::ops::Range<usize>,
    /// Nothing comes after the inbox: the peer ended, or the socket failed.
    ended: Option<Result<(), io::ErrorKind>>,
    pub outbox: Vec<u8>,
    /// What of it the connection may have in this look, and whether it wanted more.
    portion: usize,
    pub is_hungry: bool,
    /// The connection had more to write than the outbox takes.
    pub is_blocked: bool,
    /// The connection writes no more.
    pub is_shut: bool,
    /// The largest header list, as our SETTINGS are to say it, until they have been written.
    list_max: Option<u32>,
}

/// Memory for a turn, shared by all connections of a thread.
#[derive(Debug)]
pub struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl Wire {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Boxes::default())))
    }

    pub fn boxes(&self) -> MutexGuard<'_, Boxes> {
        self.0.lock()
    }
}

impl Boxes {
    /// Takes what was read before there was a connection.
    pub fn begin_with(&mut self, first: Vec<u8>) {
        self.unread = 0..first.len();
        self.inbox = first;
    }

    /// Takes the turn's memory for the outbox, unless something still waits there.
    pub fn borrow(&mut self, buffers: &mut Buffers) {
        if self.outbox.is_empty() {
            self.outbox = std::mem::take(&mut buffers.output);
        }
    }

    /// Takes what was read into the turn's memory. Only when everything before has been read.
    pub fn fill(&mut self, buffers: &mut Buffers, bytes: usize) {
        debug_assert!(self.is_read());
        self.inbox = std::mem::take(&mut buffers.input);
        self.unread = 0..bytes;
    }

    /// The socket brings nothing more.
    pub fn end(&mut self, how: Result<(), io::ErrorKind>) {
        self.ended = Some(how);
    }

    /// Gives the turn's memory back and keeps what is left over.
    pub fn give_back(&mut self, buffers: &mut Buffers) {
        if buffers.input.is_empty() {
            let rest = self.inbox[self.unread.clone()].to_vec();
            self.unread = 0..rest.len();
            buffers.input = std::mem::replace(&mut self.inbox, rest);
        }
        if buffers.output.capacity() == 0 {
            let rest = self.outbox.to_vec();
            buffers.output = std::mem::replace(&mut self.outbox, rest);
            buffers.output.clear();
        }
    }

    /// The connection may read so many bytes, and is to be looked at again if it wants more.
    pub fn serve(&mut self, portion: usize) {
        (self.portion, self.is_hungry) = (portion, false);
    }

    /// Bytes of the portion that were not read.
    pub fn portion_left(&self) -> usize {
        self.portion
    }

    pub fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    /// Takes what the socket took.
    pub fn sent(&mut self, bytes: usize) {
        self.outbox.drain(..bytes);
    }

    fn read(&mut self, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_read() {
            return match self.ended {
                None => Poll::Pending,
                Some(Ok(())) => Poll::Ready(Ok(())),
                Some(Err(kind)) => Poll::Ready(Err(kind.into())),
            };
        }
        if self.portion == 0 {
            self.is_hungry = true;
            return Poll::Pending;
        }
        let count = into.remaining().min(self.unread.len()).min(self.portion);
        self.portion -= count;
        into.put_slice(&self.inbox[self.unread.start..][..count]);
        self.unread.start += count;
        Poll::Ready(Ok(()))
    }

    /// What SETTINGS are to say of the largest header list, whatever h2 writes there.
    pub fn tell_list_max(&mut self, bytes: u32) {
        self.list_max = Some(bytes);
    }

    /// Takes all or nothing, so that the outbox always ends with a whole frame or a frame's whole beginning.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.outbox.len() >= OUTBOX_BYTES_MAX {
            self.is_blocked = true;
            return Poll::Pending;
        }
        let before = self.outbox.len();
        pieces.iter().for_each(|piece| self.outbox.extend_from_slice(piece));
        if let Some(bytes) = self.list_max
            && set_list_max(&mut self.outbox[before..], bytes)
        {
            self.list_max = None;
        }
        Poll::Ready(Ok(self.outbox.len() - before))
    }
}

/// Has SETTINGS say this largest header list. Whether these bytes begin with such a frame.
fn set_list_max(written: &mut [u8], bytes: u32) -> bool {
    const SETTINGS: u8 = 4;
    const MAX_HEADER_LIST_SIZE: [u8; 2] = [0, 6];
    let Some((head, payload)) = written.split_first_chunk_mut::<9>().filter(|(head, _)| head[3] == SETTINGS)
    else {
        return false;
    };
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let len = len.min(payload.len());
    for entry in payload[..len].chunks_exact_mut(6).filter(|entry| entry[..2] == MAX_HEADER_LIST_SIZE) {
        entry[2..].copy_from_slice(&bytes.to_be_bytes());
    }
    true
}

impl Buffers {
    /// Size of the read buffer: many small calls, or a quarter of a stream's window.
    const INPUT_BYTES: usize = 256 << 10;

    /// Memory for one thread's turns.
    pub fn new() -> Self {
        Self {
            input: vec![0; Self::INPUT_BYTES],
            output: Vec::with_capacity(OUTBOX_BYTES_MAX + (OUTBOX_BYTES_MAX >> 1)),
        }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

// No waker is kept: whoever fills or empties the boxes polls the connection afterwards.
impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.boxes().read(into)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.boxes().write(&[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.boxes().write(pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.boxes().is_shut = true;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the turn's memory is whole again after every turn, and that what a connection keeps is what it has
    //! not read and not sent.
    use super::*;

    /// A turn in which `input` comes, h2 reads `read` bytes of it and writes `output`, and the socket takes `sent`.
    fn turn(boxes: &mut Boxes, buffers: &mut Buffers, input: &[u8], read: usize, output: &[u8], sent: usize) {
        boxes.borrow(buffers);
        if boxes.is_read() && !input.is_empty() {
            buffers.input[..input.len()].copy_from_slice(input);
            boxes.fill(buffers, input.len());
        }
        let mut taken = vec![0; read];
        let mut into = ReadBuf::new(&mut taken);
        boxes.serve(usize::MAX);
        let _ = boxes.read(&mut into);
        let _ = boxes.write(&[IoSlice::new(output)]);
        boxes.sent(sent);
        boxes.give_back(buffers);
        assert_eq!(buffers.input.len(), Buffers::INPUT_BYTES);
        assert!(buffers.output.capacity() >= OUTBOX_BYTES_MAX && buffers.output.is_empty());
    }

    #[test]
    fn memory_is_lent_for_a_turn_only() {
        let (mut boxes, mut buffers) = (Boxes::default(), Buffers::new());
        boxes.begin_with(b"preface".to_vec());
        turn(&mut boxes, &mut buffers, b"", 7, b"settings", 8);
        turn(&mut boxes, &mut buffers, b"request", 7, b"answer", 6);
        assert_eq!((boxes.inbox.capacity(), boxes.outbox.capacity()), (0, 0), "at rest");
        turn(&mut boxes, &mut buffers, b"half read", 4, b"half sent", 4);
        assert_eq!((&boxes.inbox[boxes.unread.clone()], &boxes.outbox[..]), (&b" read"[..], &b" sent"[..]));
        turn(&mut boxes, &mut buffers, b"", 5, b"", 5);
        turn(&mut boxes, &mut buffers, b"next", 4, b"next", 4);
        assert_eq!((boxes.inbox.capacity(), boxes.outbox.capacity()), (0, 0), "at rest again");
    }
}
