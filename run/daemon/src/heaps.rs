//! The engine's view of memory, over the shared-memory heaps of the attached sessions.

use serde_bytes::ByteBuf;
use trunkline_call::entry::Span;
use trunkline_engine::{Heaps, SessionKey};
use trunkline_shm::{AllegedHeap, Block, BlockState, HEAP_NUMBERS, Heap, Keepsake, SharedSlice, first_byte};

/// One session's heaps, as a successor gets them.
pub(crate) struct Lodged<'a> {
    pub key: SessionKey,
    pub keepsake: &'a Keepsake,
    /// The successor's receive heap has this number.
    pub number: u32,
    pub blocks: Vec<BlockState>,
    /// What has been written of blocks that nobody was told of.
    pub open: Vec<(u32, Vec<u8>)>,
}

/// Both heaps of every session of a shard, by slot.
#[derive(Debug, Default)]
pub(crate) struct SessionHeaps {
    slots: Vec<Option<Slot>>,
}

#[derive(Debug)]
struct Slot {
    key: SessionKey,
    send: AllegedHeap,
    receive: Heap,
    /// The number of the receive heap, in the low bits of every offset that leaves here.
    number: u32,
    /// What a successor maps again.
    keepsake: Keepsake,
    /// Blocks being written: allocated, and not yet named in a completion. Few at a time, the newest asked for first.
    open: Vec<Block>,
}

impl SessionHeaps {
    pub fn insert(&mut self, key: SessionKey, send: AllegedHeap, receive: Heap, keepsake: Keepsake) {
        self.place(Slot { key, send, receive, number: 0, keepsake, open: Vec::new() });
    }

    /// Takes in the heaps of a session another daemon had: its blocks are in the books, and `open` is what has been
    /// written of those under way. `false`: they do not agree.
    pub fn inherit(
        &mut self,
        key: SessionKey,
        (send, receive, number): (AllegedHeap, Heap, u32),
        keepsake: Keepsake,
        open: &[(u32, ByteBuf)],
    ) -> bool {
        let mut blocks = receive.take_held();
        for block in &mut blocks {
            let written = open.iter().find(|(offset, _)| *offset == block.offset()).map(|(_, bytes)| bytes);
            let into = written.and_then(|bytes| Some((block.bytes_mut().get_mut(..bytes.len())?, bytes)));
            let Some((into, bytes)) = into else { return false };
            into.copy_from_slice(bytes);
        }
        self.place(Slot { key, send, receive, number, keepsake, open: blocks });
        true
    }

    /// The heaps of every session, for a successor.
    pub fn lodged(&self) -> impl Iterator<Item = Lodged<'_>> {
        self.slots.iter().flatten().map(|slot| Lodged {
            key: slot.key,
            keepsake: &slot.keepsake,
            number: (slot.number + 1) % HEAP_NUMBERS,
            blocks: slot.receive.blocks(),
            open: slot.open.iter().map(|block| (block.offset(), block.bytes().to_vec())).collect(),
        })
    }

    fn place(&mut self, slot: Slot) {
        let index = slot.key.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(slot);
    }

    pub fn remove(&mut self, key: SessionKey) {
        if self.slot(key).is_some() {
            self.slots[key.index()] = None;
        }
    }

    /// A send-heap range for the kernel to read; keeps the mapping alive by itself.
    pub fn gather(&self, session: SessionKey, span: Span) -> Option<SharedSlice> {
        self.slot(session)?.send.gather(shm_span(span)).ok()
    }

    /// Bytes of the session's receive heap in use.
    pub fn receive_bytes_in_use(&self, session: SessionKey) -> u32 {
        self.slot(session).map_or(0, |slot| slot.receive.bytes_in_use())
    }

    fn slot(&self, key: SessionKey) -> Option<&Slot> {
        self.slots.get(key.index())?.as_ref().filter(|slot| slot.key == key)
    }

    fn slot_mut(&mut self, key: SessionKey) -> Option<&mut Slot> {
        self.slots.get_mut(key.index())?.as_mut().filter(|slot| slot.key == key)
    }
}

impl Heaps for SessionHeaps {
    fn allocate(&mut self, session: SessionKey, bytes: u32) -> Option<u32> {
        let slot = self.slot_mut(session)?;
        let block = slot.receive.allocate(bytes).ok()?;
        let offset = block.offset();
        slot.open.push(block);
        Some(offset | slot.number)
    }

    fn receive_capacity(&self, session: SessionKey) -> u32 {
        self.slot(session).map_or(0, |slot| slot.receive.capacity_bytes())
    }

    fn renamed(&self, session: SessionKey, offset: u32) -> u32 {
        self.slot(session).map_or(offset, |slot| first_byte(offset) | slot.number)
    }

    fn discard(&mut self, session: SessionKey, offset: u32) {
        if let Some(slot) = self.slot_mut(session) {
            drop(slot.take_open(offset));
        }
    }

    fn publish(&mut self, session: SessionKey, span: Span) {
        let Some(block) = self.slot_mut(session).and_then(|slot| slot.take_open(span.offset)) else { return };
        let lent = block.lend(span.len);
        debug_assert_eq!((lent.offset, lent.len), (first_byte(span.offset), span.len));
    }

    fn release(&mut self, session: SessionKey, offset: u32) -> Option<u32> {
        self.slot(session)?.receive.free(first_byte(offset)).ok()
    }

    fn receive_block(&mut self, session: SessionKey, span: Span) -> &mut [u8] {
        let at = first_byte(span.offset);
        let open = self.slot_mut(session).and_then(|slot| slot.open.iter_mut().rfind(|b| b.offset() == at));
        open.and_then(|block| block.bytes_mut().get_mut(..span.len as usize)).unwrap_or_default()
    }

    fn send_heap_contains(&self, session: SessionKey, span: Span) -> bool {
        let end = u64::from(span.offset) + u64::from(span.len);
        self.slot(session).is_some_and(|slot| end <= slot.send.capacity_bytes() as u64)
    }

    fn seal(&self, session: SessionKey, span: Span, out: &mut Vec<u8>) -> bool {
        let Some(slot) = self.slot(session).filter(|_| self.send_heap_contains(session, span)) else {
            return false;
        };
        let start = out.len();
        out.resize(start + span.len as usize, 0);
        let sealed = slot.send.copy_out(span.offset, &mut out[start..]).is_ok();
        if !sealed {
            out.truncate(start);
        }
        sealed
    }

    fn seal_into(&self, session: SessionKey, span: Span, out: &mut [u8]) -> bool {
        let slot = self.slot(session).filter(|_| span.len as usize == out.len());
        slot.is_some_and(|slot| slot.send.copy_out(span.offset, out).is_ok())
    }

    fn copy_across(&mut self, from: SessionKey, span: Span, to: SessionKey, offset: u32) -> bool {
        let Some(send) = self.slot(from).map(|slot| slot.send.clone()) else { return false };
        let into = self.receive_block(to, Span { offset, len: span.len });
        into.len() == span.len as usize && send.copy_out(span.offset, into).is_ok()
    }
}

impl Slot {
    fn take_open(&mut self, offset: u32) -> Option<Block> {
        let at = self.open.iter().rposition(|block| block.offset() == first_byte(offset))?;
        Some(self.open.swap_remove(at))
    }
}

fn shm_span(span: Span) -> trunkline_shm::Span {
    trunkline_shm::Span { offset: span.offset, len: span.len }
}
