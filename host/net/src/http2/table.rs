//! The open streams of a connection, by slot and by tag.

use super::marks::Marks;
use super::stream::OpenStream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use trunkline_grpc::{StreamTag, TagMap};

/// Bits of a tag that name the slot; the rest counts how often it was used.
const SLOT_BITS: u32 = 24;

/// The open streams.
#[derive(Default)]
pub(super) struct Streams {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots of streams we opened: their tags were chosen by somebody else.
    own: TagMap<u32>,
    /// Slots by the number on the wire.
    ids: TagMap<u32>,
    /// Slots of streams that have more for h2 than it takes now, in the order in which they came; each once.
    starved: VecDeque<u32>,
    /// Slots of streams of which bytes have left, until that is told.
    left: Vec<u32>,
    open: usize,
}

/// A place for a stream. Its waker serves all that live there one after the other.
struct Slot {
    /// Boxed, so that a connection at rest does not keep room for four of them.
    stream: Option<Box<OpenStream>>,
    uses: u32,
    /// It is among those that are starved. Who has the slot then takes over the place in the line.
    is_starved: bool,
    waker: Waker,
}

impl Streams {
    /// Puts in a stream the peer opened; it is made for the tag it gets.
    pub fn insert_peers(
        &mut self,
        marks: &Arc<Marks>,
        make: impl FnOnce(StreamTag) -> OpenStream,
    ) -> (u32, StreamTag) {
        let slot = self.free_slot(marks);
        let place = &mut self.slots[slot as usize];
        place.uses = place.uses.wrapping_add(1);
        let tag = StreamTag(u64::from(place.uses) << SLOT_BITS | u64::from(slot));
        let stream = make(tag);
        self.ids.insert(id_key(stream.id), slot);
        place.stream = Some(Box::new(stream));
        (slot, tag)
    }

    /// Puts in a stream we opened.
    pub fn insert_own(&mut self, marks: &Arc<Marks>, stream: OpenStream) -> u32 {
        let slot = self.free_slot(marks);
        self.own.insert(stream.tag, slot);
        self.ids.insert(id_key(stream.id), slot);
        self.slots[slot as usize].stream = Some(Box::new(stream));
        slot
    }

    /// Takes a stream out; its number on the wire.
    pub fn remove(&mut self, slot: u32) -> Option<u32> {
        let stream = self.slots.get_mut(slot as usize)?.stream.take()?;
        self.own.remove(&stream.tag);
        self.ids.remove(&id_key(stream.id));
        self.free.push(slot);
        self.open -= 1;
        Some(stream.id)
    }

    /// Where a tag lives.
    pub fn slot_of(&self, tag: StreamTag) -> Option<u32> {
        if tag.0 & StreamTag::OWN != 0 {
            return self.own.get(&tag).copied();
        }
        let slot = (tag.0 & ((1 << SLOT_BITS) - 1)) as u32;
        let found = self.slots.get(slot as usize)?.stream.as_ref()?;
        (found.tag == tag).then_some(slot)
    }

    /// The stream in a slot, with its waker.
    pub fn at(&mut self, slot: u32) -> Option<(&mut OpenStream, &Waker)> {
        let place = self.slots.get_mut(slot as usize)?;
        Some((place.stream.as_deref_mut()?, &place.waker))
    }

    /// A stream has more for h2 than it takes now.
    pub fn starve(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        if !std::mem::replace(&mut place.is_starved, true) {
            self.starved.push_back(slot);
        }
    }

    /// The slot that has waited longest to give more to h2.
    pub fn poll_starved(&mut self) -> Option<u32> {
        let slot = self.starved.pop_front()?;
        self.slots[slot as usize].is_starved = false;
        Some(slot)
    }

    /// Bytes of a stream's body have left.
    pub fn note_left(&mut self, id: u32, bytes: usize) {
        if let Some(&slot) = self.ids.get(&id_key(id))
            && let Some((open, _)) = self.at(slot)
            && open.note_left(bytes)
        {
            self.left.push(slot);
        }
    }

    /// A slot of whose stream bytes have left, each once.
    pub fn poll_left(&mut self) -> Option<u32> {
        self.left.pop()
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open
    }

    fn free_slot(&mut self, marks: &Arc<Marks>) -> u32 {
        self.open += 1;
        self.free.pop().unwrap_or_else(|| {
            let slot = self.slots.len() as u32;
            self.slots.push(Slot {
                stream: None,
                uses: 0,
                is_starved: false,
                waker: marks.stream_waker(slot),
            });
            slot
        })
    }
}

/// A number on the wire as a key: what resists chosen keys is not needed, for they come in order.
fn id_key(id: u32) -> StreamTag {
    StreamTag(u64::from(id))
}
