//! The receive heaps of a session: one, and another one for each time the daemon has been replaced.
//!
//! A completion says in the low bits of its offset which heap it points into. The daemon sends a new heap's descriptor
//! over the control socket before it names the heap for the first time, so whoever meets an unknown number finds the
//! heap there, if the keeper has not taken it in already. Old heaps stay mapped while blocks of them are held,
//! or may still lie in the ring; they are looked at whenever the daemon says something.

use super::Session;
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
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
    /// Packets of the control socket that were read in search of a heap, and are the keeper's.
    unread: Mutex<VecDeque<Vec<u8>>>,
}

/// Blocks held, by the number of their heap.
#[derive(Debug)]
pub(super) struct Held {
    counts: [u32; HEAP_NUMBERS as usize],
    /// The heap a completion named last.
    last: u32,
}

impl ReceiveHeaps {
    pub fn new(first: ReceivedHeap) -> Self {
        Self { open: RwLock::new(vec![first]), unread: Mutex::default() }
    }

    /// A packet that came earlier than the keeper looked.
    pub fn take_unread(&self) -> Option<Vec<u8>> {
        self.unread.lock().pop_front()
    }

    fn block(&self, span: Span) -> Option<Result<ReceivedBlock, Status>> {
        let open = self.open.read();
        let heap = open.iter().rfind(|heap| heap.number() == heap_number(span.offset))?;
        let span = trunkline_shm::Span { offset: span.offset, len: span.len };
        Some(heap.block(span).map_err(|error| Status::internal(error.to_string())))
    }
}

impl Default for Held {
    fn default() -> Self {
        Self { counts: [0; HEAP_NUMBERS as usize], last: 0 }
    }
}

impl Held {
    pub fn take(&mut self, block: Span) {
        if block.len > 0 {
            self.last = heap_number(block.offset);
            self.counts[self.last as usize] += 1;
        }
    }

    pub fn give_back(&mut self, block: Span) {
        if block.len > 0 {
            let count = &mut self.counts[heap_number(block.offset) as usize];
            *count = count.saturating_sub(1);
        }
    }

    fn any_of(&self, heap: &ReceivedHeap) -> bool {
        self.counts[heap.number() as usize] > 0
    }

    fn named_last(&self, heap: &ReceivedHeap) -> bool {
        self.last == heap.number()
    }
}

impl Session {
    /// A block a completion named.
    ///
    /// # Errors
    /// INTERNAL when it does not lie in its heap, or there is no such heap.
    pub(super) fn received_block(&self, span: Span) -> Result<ReceivedBlock, Status> {
        if let Some(block) = self.receive_heaps.block(span) {
            return block;
        }
        self.look_for_heap(heap_number(span.offset));
        let unknown = || Status::internal("the daemon named a receive heap that it has not sent");
        self.receive_heaps.block(span).unwrap_or_else(|| Err(unknown()))
    }

    /// Takes in a heap that came over the control socket. Called under the socket's lock, so that whoever finds the
    /// socket empty finds the heap here.
    pub(super) fn take_heap(&self, packet: &[u8], fds: Vec<OwnedFd>) -> Result<(), ControlError> {
        let Some(fd) = fds.into_iter().next() else { return Ok(()) };
        let Ok((_, reply::Kind::Moved(Moved { receive_heap_bytes, heap_number }))) = decode_reply(packet)
        else {
            return Ok(());
        };
        let bytes = u32::try_from(receive_heap_bytes).unwrap_or(u32::MAX);
        match open_successor_heap(fd, bytes, heap_number) {
            Ok(heap) => {
                let mut open = self.receive_heaps.open.write();
                open.retain(|old| old.number() != heap_number);
                open.push(heap);
            }
            Err(error) => tracing::error!(%error, "the receive heap of the new daemon cannot be opened"),
        }
        Ok(())
    }

    /// A heap that came before is in use now, and nothing is left in those before it: the daemon says so once, without
    /// a descriptor.
    pub(super) fn go_on_in(&self, packet: &[u8]) {
        let Ok((_, reply::Kind::Moved(Moved { heap_number, .. }))) = decode_reply(packet) else { return };
        let is_here = self.receive_heaps.open.read().iter().any(|heap| heap.number() == heap_number);
        if is_here {
            self.with(|books, _| books.held.last = heap_number);
        }
    }

    /// Unmaps heaps of which nothing is held any more and nothing can come: the ring keeps the order in which it was
    /// filled, so once a completion has named a heap, none behind it names one of before.
    pub(super) fn forget_heaps(&self) {
        let open: Vec<ReceivedHeap> = self.receive_heaps.open.read().clone();
        let kept = self.with(|books, _| {
            let last = open.iter().position(|heap| books.held.named_last(heap)).unwrap_or(0);
            let kept = open.iter().enumerate().filter(|(at, heap)| *at >= last || books.held.any_of(heap));
            kept.map(|(_, heap)| heap.number()).collect::<Vec<_>>()
        });
        let Some(kept) = kept else { return };
        let known: Vec<u32> = open.iter().map(ReceivedHeap::number).collect();
        // One that came meanwhile stays.
        let stays = |number: u32| kept.contains(&number) || !known.contains(&number);
        self.receive_heaps.open.write().retain(|heap| stays(heap.number()));
    }

    /// Reads the control socket until the heap is there, or nothing more is.
    fn look_for_heap(&self, number: u32) {
        let mut packet = Vec::new();
        loop {
            let control = self.control.lock();
            if self.receive_heaps.open.read().iter().any(|heap| heap.number() == number) {
                return;
            }
            let Some(socket) = &*control else { return };
            match socket.recv(&mut packet, 1) {
                Ok(Some(fds)) if !fds.is_empty() => drop(self.take_heap(&packet, fds)),
                Ok(Some(_)) => self.receive_heaps.unread.lock().push_back(std::mem::take(&mut packet)),
                Ok(None) | Err(_) => return,
            }
            drop(control);
            self.call_keeper();
        }
    }
}
