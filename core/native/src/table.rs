//! Streams by id.

use crate::stream::{State, Stream};
use crate::stream_id::StreamIds;
use crate::wire::Header;
use crate::{ProtocolError, Side, StreamId};
use std::collections::BTreeMap;

/// The live streams of a connection.
///
/// Ids come in sequence, so nearly all live ones differ in their low bits: a small direct table finds them in one step.
/// Those that collide (a long-lived stream and a new one, or ids a hostile peer picked) live in an ordered map, where a
/// look-up costs at most the logarithm of the stream limit: there is no hash to attack and none to seed.
#[derive(Debug)]
pub(crate) struct Streams {
    pub ids: StreamIds,
    slots: Vec<Option<Stream>>,
    free: Vec<u32>,
    direct: Box<[u32; DIRECT]>,
    collided: BTreeMap<u32, u32>,
    /// Live streams with even and with odd ids.
    counts: [u32; 2],
}

/// Entries of the direct table: covers 256 concurrent calls in each direction with 2 KiB.
const DIRECT: usize = 512;

/// Marks an empty entry; no slot has this number.
const EMPTY: u32 = u32::MAX;

impl Streams {
    pub fn new(ids: StreamIds) -> Self {
        Self {
            ids,
            slots: Vec::new(),
            free: Vec::new(),
            direct: Box::new([EMPTY; DIRECT]),
            collided: BTreeMap::new(),
            counts: [0; 2],
        }
    }

    /// Opens the next stream of this side.
    #[inline]
    pub fn open(&mut self, state: State, method: u16, send_window: u32, receive_window: u32) -> &mut Stream {
        let mut ids = self.ids;
        let (id, ordinal) = ids.next(|id| self.find(id).is_some());
        self.ids = ids;
        let mut stream = Stream::new(id, state, method, send_window, receive_window);
        stream.ordinal = ordinal;
        self.insert(stream)
    }

    /// The stream a frame is for: `None` if it is gone, or its outcome is queued.
    pub fn find_for(&mut self, header: &Header) -> Result<Option<&mut Stream>, ProtocolError> {
        self.ids.check_opened(header)?;
        let found = self.find_mut(StreamId(header.stream));
        Ok(found.filter(|stream| stream.state != State::Finishing))
    }

    /// Streams opened here of which the peer took none newer than the one with this ordinal, and their tags.
    pub fn not_taken(&self, newest: Option<u64>) -> Vec<(StreamId, u64)> {
        let is_newer = |stream: &&Stream| stream.is_made() && newest.is_none_or(|n| stream.ordinal > n);
        self.iter().filter(is_newer).map(|stream| (stream.id, stream.tag)).collect()
    }

    /// Takes all of them out.
    pub fn take_all(&mut self) -> Vec<Stream> {
        let ids: Vec<StreamId> = self.iter().map(|stream| stream.id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Adds a stream whose id is not here.
    #[inline]
    pub fn insert(&mut self, stream: Stream) -> &mut Stream {
        let id = stream.id;
        debug_assert!(self.find(id).is_none());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let direct = &mut self.direct[direct_index(id)];
        if *direct == EMPTY {
            *direct = slot;
        } else {
            self.collided.insert(id.0, slot);
        }
        self.counts[id.0 as usize % 2] += 1;
        self.slots[slot as usize].insert(stream)
    }

    /// Takes a stream out.
    pub fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let slot = self.free(id)?;
        self.slots[slot as usize].take()
    }

    /// Drops a stream where it is.
    pub fn discard(&mut self, id: StreamId) {
        if let Some(slot) = self.free(id) {
            self.slots[slot as usize] = None;
        }
    }

    pub fn find(&self, id: StreamId) -> Option<&Stream> {
        self.slots[self.slot(id)? as usize].as_ref()
    }

    pub fn find_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let slot = self.slot(id)?;
        self.slots[slot as usize].as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().flatten()
    }

    /// Live streams this side opened.
    pub fn made(&self) -> u32 {
        self.count(self.ids.side == Side::Initiator)
    }

    /// Live streams the peer opened.
    pub fn taken(&self) -> u32 {
        self.count(self.ids.side == Side::Acceptor)
    }

    /// Live streams with odd ids (the initiator's) or even ones.
    fn count(&self, odd: bool) -> u32 {
        self.counts[usize::from(odd)]
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes an id out, and frees its slot.
    fn free(&mut self, id: StreamId) -> Option<u32> {
        let slot = self.slot(id)?;
        let direct = &mut self.direct[direct_index(id)];
        if *direct == slot {
            *direct = EMPTY;
        } else {
            self.collided.remove(&id.0);
        }
        self.free.push(slot);
        self.counts[id.0 as usize % 2] -= 1;
        Some(slot)
    }

    fn slot(&self, id: StreamId) -> Option<u32> {
        let slot = self.direct[direct_index(id)];
        let hit = self.slots.get(slot as usize).and_then(Option::as_ref).is_some_and(|s| s.id == id);
        if hit { Some(slot) } else { self.collided.get(&id.0).copied() }
    }
}

fn direct_index(id: StreamId) -> usize {
    id.0 as usize % DIRECT
}

#[cfg(test)]
mod tests {
    //! Shows that streams are found by id however their ids collide.
    use super::*;

    fn stream(id: u32) -> Stream {
        Stream::new(StreamId(id), State::Sending, 0, 0, 0)
    }

    #[test]
    fn colliding_ids_are_found_and_removed_one_by_one() {
        let mut streams = Streams::new(StreamIds::new(Side::Initiator));
        let ids: Vec<u32> = (0..6).map(|i| 7 + i * DIRECT as u32).chain([8]).collect();
        for &id in &ids {
            streams.insert(stream(id));
        }
        assert_eq!((streams.len(), streams.count(true), streams.count(false)), (7, 6, 1));
        for (gone, &id) in ids.iter().enumerate() {
            assert_eq!(streams.remove(StreamId(id)).map(|stream| stream.id), Some(StreamId(id)));
            assert!(streams.remove(StreamId(id)).is_none());
            for &left in &ids[gone + 1..] {
                assert!(streams.find(StreamId(left)).is_some());
            }
        }
        assert_eq!(streams.iter().count(), 0);
    }

    #[test]
    fn slots_are_used_again() {
        let mut streams = Streams::new(StreamIds::new(Side::Initiator));
        for id in 1..10_000 {
            streams.insert(stream(id));
            streams.remove(StreamId(id));
        }
        assert_eq!(streams.slots.len(), 1);
    }
}
