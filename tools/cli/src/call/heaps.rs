//! The receive heaps of a session: one, and another one each time the daemon has been replaced or a heap has grown
//! (docs/shared-memory.md, *Replacing the daemon*).

use rustix::fd::OwnedFd;
use trunkline_call::entry::{Completion, Span};
use trunkline_control::Moved;
use trunkline_shm::{HEAP_NUMBERS, ReceivedHeap, SessionError, heap_number, open_successor_heap};

/// The heaps, the newest last; at most one of each number.
#[derive(Debug)]
pub struct ReadHeaps(Vec<ReceivedHeap>);

impl ReadHeaps {
    /// Those of a fresh session.
    pub fn new(first: ReceivedHeap) -> Self {
        Self(vec![first])
    }

    /// The heap a block lies in, if the daemon has sent it.
    pub fn of(&self, span: Span) -> Option<&ReceivedHeap> {
        self.0.iter().rfind(|heap| heap.number() == heap_number(span.offset))
    }

    /// Takes in a heap, or the word that nothing is left in those before it.
    ///
    /// # Errors
    /// What came is no receive heap.
    pub fn moved(&mut self, moved: &Moved, fds: Vec<OwnedFd>) -> Result<(), SessionError> {
        let Moved { receive_heap_bytes, heap_number } = *moved;
        let Some(fd) = fds.into_iter().next() else {
            self.in_use(heap_number);
            return Ok(());
        };
        let bytes = u32::try_from(receive_heap_bytes).unwrap_or(u32::MAX);
        let heap = open_successor_heap(fd, bytes, heap_number)?;
        self.0.retain(|old| old.number() != heap_number);
        self.0.push(heap);
        debug_assert!(self.0.len() <= HEAP_NUMBERS as usize);
        Ok(())
    }

    /// Unmaps the heaps before the one a completion points into: the ring keeps its order, so no later completion
    /// points there, and what earlier ones pointed to was copied when they were handled.
    pub fn follow(&mut self, completion: &Completion) {
        let spans = match completion {
            Completion::Headers { metadata, .. } => [Span::default(), *metadata],
            Completion::Message { payload, .. } => [payload.span, Span::default()],
            Completion::Finish(finish) => {
                [finish.payload.map_or(Span::default(), |payload| payload.span), finish.metadata]
            }
            _ => return,
        };
        let named = spans.iter().filter(|span| span.len > 0);
        if let Some(first) = named.filter_map(|span| self.place(heap_number(span.offset))).min() {
            self.0.drain(..first);
        }
    }

    fn in_use(&mut self, number: u32) {
        if let Some(first) = self.place(number) {
            self.0.drain(..first);
        }
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.0.iter().rposition(|heap| heap.number() == number)
    }
}
