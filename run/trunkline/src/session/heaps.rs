//! The receive heaps of a session: one, and another one for each time the daemon has been replaced.
//!
//! A completion says in the low bits of its offset which heap it points into. The daemon sends a new heap's descriptor
//! over the control socket before it names the heap for the first time, so whoever meets an unknown number finds the
//! heap there (`link.rs`), if the listener has not taken it in already. Old heaps stay mapped while blocks of them are
//! held, or may still lie in the ring; they are looked at whenever the daemon says something.

use crate::wakers;
use parking_lot::RwLock;
use rustix::fd::OwnedFd;
use trunkline_call::Status;
use trunkline_call::entry::Span;
use trunkline_control::{Moved, decode_reply, reply};
use trunkline_shm::{
    ControlError, HEAP_NUMBERS, ReceivedBlock, ReceivedHeap, heap_number, open_successor_heap,
};

/// The heaps, the newest last.
#[derive(Debug)]
pub(super) struct ReceiveHeaps {
    open: RwLock<Vec<ReceivedHeap>>,
}

/// Blocks held, by the number of their heap.
#[derive(Debug)]
pub(super) struct Held {
    counts: [u32; HEAP_NUMBERS as usize],
    bytes: u64,
    /// The heap a completion named last.
    last: u32,
}

impl ReceiveHeaps {
    pub(super) fn new(first: ReceivedHeap) -> Self {
        Self { open: RwLock::new(vec![first]) }
    }

    /// A block of a heap that is here.
    pub(super) fn block(&self, span: Span) -> Option<Result<ReceivedBlock, Status>> {
        let open = self.open.read();
        let heap = open.iter().rfind(|heap| heap.number() == heap_number(span.offset))?;
        let span = trunkline_shm::Span { offset: span.offset, len: span.len };
        Some(heap.block(span).map_err(|error| Status::internal(error.to_string())))
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.open.read().iter().any(|heap| heap.number() == number)
    }

    /// Takes in a heap that came with a packet.
    pub(super) fn take(&self, packet: &[u8], fds: Vec<OwnedFd>) -> Result<(), ControlError> {
        let Some(fd) = fds.into_iter().next() else { return Ok(()) };
        let Some(Moved { receive_heap_bytes, heap_number }) = moved(packet) else { return Ok(()) };
        let bytes = u32::try_from(receive_heap_bytes).unwrap_or(u32::MAX);
        match open_successor_heap(fd, bytes, heap_number) {
            Ok(heap) => {
                let mut open = self.open.write();
                open.retain(|old| old.number() != heap_number);
                open.push(heap);
            }
            Err(error) => {
                let said = || tracing::error!(%error, "the receive heap of the new daemon cannot be opened");
                wakers::caught(said);
            }
        }
        Ok(())
    }

    /// The heap that came before, if the daemon says in this packet, without a descriptor, that it is in use now and
    /// nothing is left in those before it.
    pub(super) fn in_use_now(&self, packet: &[u8]) -> Option<u32> {
        moved(packet).map(|moved| moved.heap_number).filter(|number| self.has(*number))
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.open.read().iter().map(ReceivedHeap::number).collect()
    }

    /// Unmaps those of these heaps of which nothing is held any more and nothing can come.
    pub(super) fn forget(&self, forgotten: &[u32]) {
        if !forgotten.is_empty() {
            self.open.write().retain(|heap| !forgotten.contains(&heap.number()));
        }
    }
}

fn moved(packet: &[u8]) -> Option<Moved> {
    match decode_reply(packet) {
        Ok((_, reply::Kind::Moved(moved))) => Some(moved),
        _ => None,
    }
}

impl Default for Held {
    fn default() -> Self {
        Self { counts: [0; HEAP_NUMBERS as usize], bytes: 0, last: 0 }
    }
}

impl Held {
    pub(super) fn take(&mut self, block: Span) {
        if block.len > 0 {
            self.last = heap_number(block.offset);
            self.counts[self.last as usize] += 1;
            self.bytes += u64::from(block.len);
        }
    }

    pub(super) fn give_back(&mut self, block: Span) {
        if block.len > 0 {
            let count = &mut self.counts[heap_number(block.offset) as usize];
            *count = count.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(block.len.into());
        }
    }

    /// This heap is in use from now on.
    pub(super) fn goes_on_in(&mut self, number: u32) {
        self.last = number;
    }

    /// Which of these heaps, the newest last, nothing is held of any more and nothing can come from: the ring keeps the
    /// order in which it was filled, so once a completion has named a heap, none behind it names one of before.
    pub(super) fn done_with(&self, numbers: &[u32]) -> Vec<u32> {
        let last = numbers.iter().position(|number| *number == self.last).unwrap_or(0);
        numbers[..last].iter().copied().filter(|number| self.counts[*number as usize] == 0).collect()
    }

    /// Bytes of all blocks held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
