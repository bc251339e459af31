//! The engine's view of memory, over the shared-memory heaps of the attached sessions.

use rustix::fs::fstat;
use serde_bytes::ByteBuf;
use trunkline_call::entry::Span;
use trunkline_engine::{Heaps, SessionKey};
use trunkline_shm::{
    AllegedHeap, Block, BlockState, HEAP_NUMBERS, Heap, SessionRegions, SharedSlice, first_byte, usual_bytes,
};
use trunkline_telemetry::{TaxStage, tax_stage};

/// The kernel counts what a file takes in these.
const BLOCK_BYTES: u64 = 512;

/// One session's heaps, as a successor gets them.
pub(crate) struct Lodged<'a> {
    pub key: SessionKey,
    pub regions: &'a SessionRegions,
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
    /// Sessions whose receive heap has had a large message, and that nobody looks after yet.
    grown: Vec<SessionKey>,
}

/// The heaps of a session on its way to another shard, or that is over.
#[derive(Debug)]
pub(crate) struct MovingHeaps(Slot);

#[derive(Debug)]
struct Slot {
    key: SessionKey,
    send: AllegedHeap,
    receive: Heap,
    /// The number of the receive heap, in the low bits of every offset that leaves here.
    number: u32,
    /// What a successor maps again.
    regions: SessionRegions,
    /// Blocks being written: allocated, and not yet named in a completion. Few at a time, the newest asked for first.
    open: Vec<OpenBlock>,
    /// What messages of the usual sizes may take together.
    usual: u32,
    /// Blocks of larger messages, which lie beyond that: offset and bytes. A few at most, by the size of the heap.
    large: Vec<(u32, u32)>,
    /// Bytes of those.
    large_bytes: u32,
    /// The heap has had a large message since it was made.
    grown: bool,
    /// A large message came since somebody looked whether the heap is at rest.
    stirred: bool,
    /// What is to take the receive heap's place, and whether the application knows of it.
    successor: Option<(Heap, bool)>,
}

/// A block that nobody was told of.
#[derive(Debug)]
struct OpenBlock {
    block: Block,
    /// So much of it is written, from its beginning, and nothing behind; all of it may be, if nothing is said.
    written: Option<u32>,
}

impl OpenBlock {
    fn offset(&self) -> u32 {
        self.block.offset()
    }

    /// What may have been written of it.
    fn bytes(&self) -> &[u8] {
        let bytes = self.block.bytes();
        self.written.and_then(|written| bytes.get(..written as usize)).unwrap_or(bytes)
    }
}

/// What is to be done about a receive heap that has had a large message.
#[derive(Debug)]
pub(crate) enum Rest {
    /// Look again later.
    Later,
    /// Make a heap of so many bytes to take its place, with this number, and [tell](SessionHeaps::offer) of it.
    Renew { bytes: u32, number: u32 },
    /// The heap the application knows of has taken its place: so many bytes, this number.
    Renewed { bytes: u32, number: u32, old: Heap },
    /// Nothing: the session is gone, or its heap is new.
    Nothing,
}

/// What became of the offer of a heap that is to take a receive heap's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapOffer {
    /// The application was told.
    Told,
    /// It cannot follow.
    Unable,
    /// Its user, or all, have as much of such heaps as they may: later, perhaps.
    NoRoom,
}

impl SessionHeaps {
    pub fn insert(&mut self, key: SessionKey, send: AllegedHeap, receive: Heap, regions: SessionRegions) {
        self.place(Slot::new(key, (send, receive, 0), regions));
    }

    /// Takes in the heaps of a session another daemon had: its blocks are in the books, and `open` is what has been
    /// written of those under way. `false`: they do not agree.
    pub fn inherit(
        &mut self,
        key: SessionKey,
        (send, receive, number): (AllegedHeap, Heap, u32),
        regions: SessionRegions,
        open: &[(u32, ByteBuf)],
    ) -> bool {
        let mut blocks = Vec::new();
        for mut block in receive.take_held() {
            let written = open.iter().find(|(offset, _)| *offset == block.offset()).map(|(_, bytes)| bytes);
            let into = written.and_then(|bytes| Some((block.bytes_mut().get_mut(..bytes.len())?, bytes)));
            let Some((into, bytes)) = into else { return false };
            into.copy_from_slice(bytes);
            let is_whole = bytes.len() == block.bytes().len();
            let written = (!is_whole).then_some(bytes.len() as u32);
            blocks.push(OpenBlock { block, written });
        }
        let mut slot = Slot::new(key, (send, receive, number), regions);
        slot.open = blocks;
        if slot.grown {
            self.grown.push(key);
        }
        self.place(slot);
        true
    }

    /// The sessions there are heaps of.
    pub fn keys(&self) -> impl Iterator<Item = SessionKey> {
        self.slots.iter().flatten().map(|slot| slot.key)
    }

    /// The heaps of every session, for a successor.
    pub fn lodged(&self) -> impl Iterator<Item = Lodged<'_>> {
        self.slots.iter().flatten().map(|slot| Lodged {
            key: slot.key,
            regions: &slot.regions,
            number: slot.number_behind(),
            blocks: slot.receive.blocks(),
            open: slot.open.iter().map(|open| (open.offset(), open.bytes().to_vec())).collect(),
        })
    }

    fn place(&mut self, slot: Slot) {
        let index = slot.key.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(slot);
    }

    /// Whether the heaps of a session may be another shard's: nothing is being written into them, and its receive heap
    /// is not about to be replaced.
    pub fn may_leave(&self, key: SessionKey) -> bool {
        self.slot(key).is_some_and(|slot| slot.open.is_empty() && slot.successor.is_none())
    }

    /// Takes the heaps of a session out: for another shard, or because it is over.
    pub fn take_out(&mut self, key: SessionKey) -> Option<MovingHeaps> {
        self.slot(key)?;
        self.slots[key.index()].take().map(MovingHeaps)
    }

    /// Takes in heaps of another shard.
    pub fn take_in(&mut self, key: SessionKey, MovingHeaps(slot): MovingHeaps) {
        if slot.grown {
            self.grown.push(key);
        }
        self.place(Slot { key, ..slot });
    }

    /// A session whose receive heap has had a large message: it is to be [looked after](Self::rest) in a while.
    pub fn take_grown(&mut self) -> Option<SessionKey> {
        self.grown.pop()
    }

    /// Looks whether a receive heap that has grown is at rest. Its seals keep everybody from giving its pages back, so
    /// a new heap takes its place, when nothing lies in it.
    pub fn rest(&mut self, key: SessionKey) -> Rest {
        let Some(slot) = self.slot_mut(key).filter(|slot| slot.grown) else { return Rest::Nothing };
        let bytes = slot.receive.capacity_bytes();
        let number = (slot.number + 1) % HEAP_NUMBERS;
        if std::mem::take(&mut slot.stirred) || slot.receive.bytes_in_use() > 0 {
            return Rest::Later;
        }
        match slot.successor.take() {
            None => Rest::Renew { bytes, number },
            Some((heap, false)) => {
                slot.successor = Some((heap, false));
                Rest::Later
            }
            Some((heap, true)) => {
                (slot.number, slot.grown) = (number, false);
                let old = std::mem::replace(&mut slot.receive, heap);
                Rest::Renewed { bytes, number, old }
            }
        }
    }

    /// A heap that is to take a receive heap's place as soon as the application knows of it.
    pub fn offer(&mut self, key: SessionKey, heap: Heap) {
        if let Some(slot) = self.slot_mut(key) {
            slot.successor = Some((heap, false));
        }
    }

    /// What became of the heap offered. An application that cannot follow keeps the heap it has.
    pub fn offered(&mut self, key: SessionKey, offer: HeapOffer) {
        let Some(slot) = self.slot_mut(key) else { return };
        match (&mut slot.successor, offer) {
            (Some((_, known)), HeapOffer::Told) => *known = true,
            (successor, HeapOffer::NoRoom) => *successor = None,
            _ => (slot.successor, slot.grown) = (None, false),
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

impl MovingHeaps {
    /// Upper bound of what is resident of both.
    pub fn touched_bytes(&self) -> u64 {
        let Self(slot) = self;
        // Who writes the send heap is another process.
        let sent = fstat(&slot.regions.send_heap).map_or(0, |found| found.st_blocks.cast_unsigned());
        u64::from(slot.receive.touched_bytes()) + sent * BLOCK_BYTES
    }
}

impl Heaps for SessionHeaps {
    fn allocate(&mut self, session: SessionKey, bytes: u32) -> Option<u32> {
        let slot = self.slot_mut(session)?;
        let is_large = slot.is_large(bytes);
        let block = match is_large {
            true => slot.receive.allocate(bytes),
            false => slot.receive.allocate_within(bytes, slot.usual.saturating_add(slot.large_bytes)),
        };
        let block = block.ok()?;
        let offset = block.offset();
        let first_large = is_large && slot.enter_large(&block);
        slot.open.push(OpenBlock { block, written: None });
        let number = slot.number;
        if first_large {
            self.grown.push(session);
        }
        Some(offset | number)
    }

    fn receive_capacity(&self, session: SessionKey) -> u32 {
        self.slot(session).map_or(0, |slot| slot.receive.capacity_bytes())
    }

    fn receive_free(&self, session: SessionKey) -> u32 {
        self.slot(session).map_or(0, |slot| {
            let usual = slot.receive.bytes_in_use().saturating_sub(slot.large_bytes);
            slot.usual.saturating_sub(usual)
        })
    }

    fn receive_usual(&self, session: SessionKey) -> u32 {
        self.slot(session).map_or(0, |slot| slot.usual)
    }

    fn receive_large(&self, session: SessionKey) -> u32 {
        self.slot(session).map_or(0, |slot| slot.large_bytes)
    }

    fn renamed(&self, session: SessionKey, offset: u32) -> u32 {
        self.slot(session).map_or(offset, |slot| first_byte(offset) | slot.number)
    }

    fn discard(&mut self, session: SessionKey, offset: u32) {
        if let Some(slot) = self.slot_mut(session) {
            drop(slot.take_open(offset));
            slot.leave_large(offset);
        }
    }

    fn publish(&mut self, session: SessionKey, span: Span) {
        let Some(slot) = self.slot_mut(session) else { return };
        let Some(block) = slot.take_open(span.offset) else { return };
        let lent = block.lend(span.len);
        debug_assert_eq!((lent.offset, lent.len), (first_byte(span.offset), span.len));
        if !slot.large.is_empty() {
            slot.settle_large(lent.offset);
        }
    }

    fn release(&mut self, session: SessionKey, offset: u32) -> Option<u32> {
        let slot = self.slot_mut(session)?;
        let freed = slot.receive.free(first_byte(offset)).ok()?;
        slot.leave_large(offset);
        Some(freed)
    }

    fn receive_block(&mut self, session: SessionKey, span: Span) -> &mut [u8] {
        let at = first_byte(span.offset);
        let open = self.slot_mut(session).and_then(|slot| slot.open.iter_mut().rfind(|b| b.offset() == at));
        open.and_then(|open| open.block.bytes_mut().get_mut(..span.len as usize)).unwrap_or_default()
    }

    fn wrote(&mut self, session: SessionKey, offset: u32, bytes: u32) {
        let at = first_byte(offset);
        let open = self.slot_mut(session).and_then(|slot| slot.open.iter_mut().rfind(|b| b.offset() == at));
        if let Some(open) = open {
            open.written = Some(open.written.map_or(bytes, |before| before.max(bytes)));
        }
    }

    fn send_heap_contains(&self, session: SessionKey, span: Span) -> bool {
        let end = u64::from(span.offset) + u64::from(span.len);
        self.slot(session).is_some_and(|slot| end <= slot.send.capacity_bytes() as u64)
    }

    fn seal(&self, session: SessionKey, span: Span, out: &mut Vec<u8>) -> bool {
        let Some(slot) = self.slot(session).filter(|_| self.send_heap_contains(session, span)) else {
            return false;
        };
        let _copies = tax_stage(TaxStage::Copies);
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
        let _copies = tax_stage(TaxStage::Copies);
        slot.is_some_and(|slot| slot.send.copy_out(span.offset, out).is_ok())
    }

    fn copy_across(&mut self, from: SessionKey, span: Span, to: SessionKey, offset: u32) -> bool {
        let Some(send) = self.slot(from).map(|slot| slot.send.clone()) else { return false };
        let _copies = tax_stage(TaxStage::Copies);
        let into = self.receive_block(to, Span { offset, len: span.len });
        into.len() == span.len as usize && send.copy_out(span.offset, into).is_ok()
    }
}

impl Slot {
    fn new(
        key: SessionKey,
        (send, receive, number): (AllegedHeap, Heap, u32),
        regions: SessionRegions,
    ) -> Self {
        let usual = usual_bytes(receive.capacity_bytes());
        let mut slot = Self {
            key,
            send,
            number,
            regions,
            open: Vec::new(),
            usual,
            large: Vec::new(),
            large_bytes: 0,
            grown: false,
            stirred: false,
            successor: None,
            receive,
        };
        // Blocks taken over from another daemon.
        for block in slot.receive.blocks() {
            if slot.is_large(block.len) {
                slot.large.push((block.offset, block.len));
                slot.large_bytes += block.len;
                slot.grown = true;
            }
        }
        slot
    }

    /// The number of a heap that no application can know yet. It may know one by the next number, which was to take
    /// this heap's place: by the same number it would go on reading that one.
    fn number_behind(&self) -> u32 {
        (self.number + 1 + u32::from(self.successor.is_some())) % HEAP_NUMBERS
    }

    /// Whether a message of so many bytes lies beyond what the usual ones share.
    fn is_large(&self, bytes: u32) -> bool {
        bytes > self.usual / 2 && self.usual < self.receive.capacity_bytes()
    }

    /// Counts a large block. Whether it is the first since the heap was made.
    fn enter_large(&mut self, block: &Block) -> bool {
        self.large.push((block.offset(), block.capacity()));
        self.large_bytes += block.capacity();
        self.stirred = true;
        !std::mem::replace(&mut self.grown, true)
    }

    /// A block was handed over, and what lies behind its message went back: that has no room of its own any more. A
    /// message that was long before it was decoded may be one of the usual sizes.
    #[cold]
    fn settle_large(&mut self, offset: u32) {
        let Some(at) = self.large.iter().position(|(large, _)| *large == offset) else { return };
        let left = self.receive.len_at(offset).unwrap_or_default();
        let bytes = if self.is_large(left) { left } else { 0 };
        self.large_bytes -= self.large[at].1 - bytes;
        self.large[at].1 = bytes;
        if bytes == 0 {
            self.large.swap_remove(at);
        }
    }

    fn leave_large(&mut self, offset: u32) {
        if self.large.is_empty() {
            return;
        }
        let at = self.large.iter().position(|(large, _)| *large == first_byte(offset));
        if let Some((_, bytes)) = at.map(|at| self.large.swap_remove(at)) {
            self.large_bytes -= bytes;
            self.stirred = true;
        }
    }

    fn take_open(&mut self, offset: u32) -> Option<Block> {
        let at = self.open.iter().rposition(|block| block.offset() == first_byte(offset))?;
        Some(self.open.swap_remove(at).block)
    }
}

fn shm_span(span: Span) -> trunkline_shm::Span {
    trunkline_shm::Span { offset: span.offset, len: span.len }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_shm::{SessionConfig, create_receive_heap, create_session};

    fn heaps() -> (SessionHeaps, SessionKey) {
        heaps_of(SessionConfig::default().receive_heap_bytes)
    }

    fn heaps_of(receive_heap_bytes: u32) -> (SessionHeaps, SessionKey) {
        let config = SessionConfig { receive_heap_bytes, ..SessionConfig::default() };
        let (end, _) = create_session(&config).unwrap();
        let (mut heaps, key) = (SessionHeaps::default(), SessionKey::from_bits(1 << 32));
        heaps.insert(key, end.send_heap, end.receive_heap, end.regions);
        (heaps, key)
    }

    fn open(heaps: &SessionHeaps) -> Vec<Vec<u8>> {
        heaps.lodged().flat_map(|lodged| lodged.open).map(|(_, bytes)| bytes).collect()
    }

    /// An application that knows of a heap by this number would go on reading that one.
    #[test]
    fn a_successors_heap_has_a_number_that_no_application_knows() {
        // Of so much, large messages are what the usual ones do not share.
        let (mut heaps, key) = heaps_of(256 << 20);
        let number = |heaps: &SessionHeaps| heaps.lodged().map(|lodged| lodged.number).next();
        assert_eq!(number(&heaps), Some(1));
        let large = heaps.allocate(key, 48 << 20).unwrap();
        heaps.publish(key, Span { offset: large, len: 48 << 20 });
        heaps.release(key, large).unwrap();
        assert!(matches!(heaps.rest(key), Rest::Later), "it has just had a large message");
        let Rest::Renew { bytes, number: offered } = heaps.rest(key) else { panic!("it is at rest") };
        heaps.offer(key, create_receive_heap(bytes).unwrap().0);
        for known in [false, true] {
            if known {
                // So long as this is out, the heap offered does not take the other's place.
                heaps.allocate(key, 100).unwrap();
                heaps.offered(key, HeapOffer::Told);
                assert!(matches!(heaps.rest(key), Rest::Later));
            }
            assert_ne!(number(&heaps), Some(offered), "told: {known}");
        }
    }

    /// As protobuf its fields said the same again and again.
    #[test]
    fn a_large_block_with_a_small_message_has_no_room_of_its_own() {
        let (mut heaps, key) = heaps_of(256 << 20);
        let usual = heaps.receive_usual(key);
        let mut lend = |len: u32| {
            let offset = heaps.allocate(key, 40 << 20).unwrap();
            heaps.publish(key, Span { offset, len });
            let told = (usual - heaps.receive_free(key), heaps.receive_large(key));
            heaps.release(key, offset).unwrap();
            assert_eq!((heaps.receive_free(key), heaps.receive_large(key)), (usual, 0));
            told
        };
        assert_eq!(lend(48), (64, 0));
        assert_eq!(lend(36 << 20), (0, 36 << 20), "one that is still large");
        assert_eq!(lend(40 << 20), (0, 40 << 20));
    }

    /// It is offered again when there is room.
    #[test]
    fn a_heap_for_which_there_is_no_room_is_offered_again() {
        for (offer, again) in [(HeapOffer::NoRoom, true), (HeapOffer::Unable, false)] {
            let (mut heaps, key) = heaps_of(256 << 20);
            let large = heaps.allocate(key, 48 << 20).unwrap();
            heaps.discard(key, large);
            assert!(matches!(heaps.rest(key), Rest::Later));
            let Rest::Renew { bytes, .. } = heaps.rest(key) else { panic!("it is at rest") };
            heaps.offer(key, create_receive_heap(bytes).unwrap().0);
            heaps.offered(key, offer);
            assert_eq!(matches!(heaps.rest(key), Rest::Renew { .. }), again, "{offer:?}");
        }
    }

    /// What nobody has written need not be sent: a peer says how large its message will be, and may never send it.
    #[test]
    fn a_successor_gets_what_is_written_of_a_block() {
        let (mut heaps, key) = heaps();
        let len = 16 << 20;
        let offset = heaps.allocate(key, len).unwrap();
        heaps.wrote(key, offset, 0);
        assert_eq!(open(&heaps), [Vec::<u8>::new()]);
        heaps.receive_block(key, Span { offset, len })[..3].copy_from_slice(b"abc");
        heaps.wrote(key, offset, 3);
        heaps.wrote(key, offset, 2);
        assert_eq!(open(&heaps), [b"abc".to_vec()]);
        let whole = heaps.allocate(key, 64).unwrap();
        heaps.receive_block(key, Span { offset: whole, len: 64 }).fill(7);
        assert_eq!(open(&heaps), [b"abc".to_vec(), vec![7; 64]], "of others, all");
    }
}
