//! A queue of frames on their way to the socket: own bytes and shared ranges in order.

use crate::StreamId;
use crate::body::{Chunk, SharedRange};
use crate::checksum::seal;
use crate::head::Head;
use std::collections::VecDeque;
use trunkline_call::{Instant, ServerStamps};

/// Frames in the order they leave. Whole frames are appended; any number of bytes may be taken off the front.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Lane {
    /// Own bytes of all units, one behind the other; those before `head` are gone.
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    head: usize,
    units: VecDeque<Unit>,
    /// Whether some of the front unit is gone: its rest must leave before anything else does.
    front_cut: bool,
    /// Whether frames get a CHECKSUM block.
    seals: bool,
    /// Bytes ever appended and ever taken, shared ranges included: positions that never repeat.
    appended: u64,
    taken: u64,
    /// Where in `bytes` server stamps lie that are not gone: they are to say when they leave, and not when they queued.
    #[serde(default)]
    stamps: VecDeque<usize>,
}

/// One or more frames whose bytes are all the connection's own, or one frame with a shared body at its end.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Unit {
    /// The stream that counts it.
    stream: Option<StreamId>,
    own_bytes: usize,
    shared: Option<SharedRange>,
    /// Given back when the unit is gone.
    done: Option<u64>,
}

/// A unit that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// The stream that counted it.
    pub stream: Option<StreamId>,
    /// A token to give back.
    pub done: Option<u64>,
}

impl Lane {
    /// What of the buffer is kept when it runs empty: a burst must not cost an idle connection memory for ever. 128
    /// small calls that leave in one write take 20 KiB, and the vector doubles.
    const KEEP_BYTES: usize = 64 << 10;
    /// Bytes at the front that are gone are squeezed out when they are this many, and half of the buffer.
    const SQUEEZE_BYTES: usize = 128 << 10;
    /// Stamps as far behind the front are written anew when the lane is shown: what one write takes, mostly. So a
    /// socket that takes little does not have all that waits for it stamped again and again.
    const STAMPED_BYTES: usize = 256 << 10;

    /// Appends a frame that begins with `head`, as [`Lane::append`] does.
    pub fn append_head(
        &mut self,
        stream: Option<StreamId>,
        merge: bool,
        head: &Head<'_>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bytes.len();
        self.append(stream, merge, write);
        // A checksum covers the stamps as they were queued, and bytes of the body that are far away by now.
        if head.trailer.is_some() && !self.seals {
            self.stamps.push_back(start + Head::TRAILER_AT);
        }
    }

    /// The stamps that are about to leave say so.
    pub fn stamp(&mut self, now: Instant) {
        let within = self.head + Self::STAMPED_BYTES;
        for at in self.stamps.iter().take_while(|at| **at < within) {
            if *at < self.head {
                continue; // some of it is gone
            }
            if let Some(trailer) = self.bytes.get_mut(*at..).and_then(<[u8]>::first_chunk_mut) {
                ServerStamps::sent_at(trailer, now);
            }
        }
    }

    /// Appends the frame `write` puts into the buffer. With `merge`, they join the unit before them.
    pub fn append(&mut self, stream: Option<StreamId>, merge: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        if self.seals {
            seal(&mut self.bytes, before);
        }
        let own_bytes = self.bytes.len() - before;
        self.appended += own_bytes as u64;
        match self.units.back_mut() {
            Some(last) if merge && last.shared.is_none() && last.done.is_none() => {
                last.own_bytes += own_bytes
            }
            _ => self.units.push_back(Unit { stream, own_bytes, shared: None, done: None }),
        }
    }

    /// From now on, every frame gets a CHECKSUM block.
    pub fn seal_frames(&mut self) {
        self.seals = true;
    }

    /// Ends the last unit with a shared range; with `done`, its token is given back when the unit has left.
    pub fn append_shared(&mut self, range: SharedRange, done: bool) {
        let last = self.units.back_mut().expect("a frame's header was appended before its body");
        debug_assert!(last.shared.is_none());
        self.appended += u64::from(range.len);
        last.shared = (range.len > 0).then_some(range);
        last.done = done.then_some(range.token);
    }

    /// Marks the last unit that carries `token` as the one that gives it back. `false`: none is here.
    pub fn finish_with(&mut self, token: u64) -> bool {
        let carrier = self.units.iter_mut().rev().find(|u| u.shared.is_some_and(|s| s.token == token));
        carrier.map(|unit| unit.done = Some(token)).is_some()
    }

    /// Takes up to `count` bytes off the front and tells of every unit that is wholly gone. Returns what was not taken.
    pub fn take(&mut self, mut count: usize, limit: u64, mut left: impl FnMut(Left)) -> usize {
        while self.taken < limit {
            let Some(unit) = self.units.front_mut() else { break };
            let room = usize::try_from(limit - self.taken).unwrap_or(usize::MAX);
            let taken = unit.take(count.min(room), &mut self.head);
            self.taken += taken as u64;
            count -= taken;
            if !unit.is_gone() {
                self.front_cut |= taken > 0;
                break;
            }
            left(Left { stream: unit.stream, done: unit.done });
            self.units.pop_front();
            self.front_cut = false;
        }
        let head = self.head;
        while self.stamps.front().is_some_and(|at| *at < head) {
            self.stamps.pop_front();
        }
        self.compact();
        count
    }

    /// What is queued, in order, leaving out the first `skip` units; taking `count`.
    pub fn chunks(&self, skip: usize, count: usize) -> impl Iterator<Item = Chunk<'_>> {
        let mut at = self.head + self.units.iter().take(skip).map(|unit| unit.own_bytes).sum::<usize>();
        self.units.iter().skip(skip).take(count).flat_map(move |unit| {
            let own = &self.bytes[at..at + unit.own_bytes];
            at += unit.own_bytes;
            let own = (!own.is_empty()).then_some(Chunk::Bytes(own));
            own.into_iter().chain(unit.shared.map(Chunk::Shared))
        })
    }

    /// Bytes queued.
    pub fn len(&self) -> u64 {
        self.appended - self.taken
    }

    /// Own bytes queued: what this lane holds in memory.
    pub fn own_bytes(&self) -> usize {
        self.bytes.len() - self.head
    }

    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    pub fn is_front_cut(&self) -> bool {
        self.front_cut
    }

    /// The position behind the last byte appended.
    pub fn end(&self) -> u64 {
        self.appended
    }

    /// The position behind the front unit.
    pub fn front_end(&self) -> u64 {
        self.taken + self.units.front().map_or(0, Unit::len)
    }

    /// The position behind the last byte taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Every token whose unit has not left.
    pub fn tokens(&self) -> impl Iterator<Item = u64> {
        self.units.iter().filter_map(|unit| unit.done)
    }

    /// Whether the books agree with each other: those of a lane that came from elsewhere may not.
    pub fn is_sound(&self) -> bool {
        let own = checked_sum(self.units.iter().map(|unit| unit.own_bytes as u64));
        let all = checked_sum(self.units.iter().map(Unit::len));
        let queued = self.bytes.len().checked_sub(self.head).map(|bytes| bytes as u64);
        let offsets = self.units.iter().filter_map(|unit| unit.shared);
        own.is_some()
            && own == queued
            && all.is_some()
            && all == self.appended.checked_sub(self.taken)
            && self.appended <= POSITION_MAX
            && self.stamps.iter().is_sorted()
            && self.stamps.iter().all(|at| (self.head..=self.bytes.len()).contains(at))
            && offsets.into_iter().all(|range| range.offset.checked_add(range.len).is_some())
    }

    fn compact(&mut self) {
        if self.head == self.bytes.len() {
            self.bytes.clear();
            self.head = 0;
            self.bytes.shrink_to(Self::KEEP_BYTES);
        } else if self.head >= Self::SQUEEZE_BYTES && self.head * 2 >= self.bytes.len() {
            self.bytes.drain(..self.head);
            self.stamps.iter_mut().for_each(|at| *at -= self.head);
            self.head = 0;
        }
    }
}

/// Positions count bytes; more than this no connection lives to send.
const POSITION_MAX: u64 = 1 << 62;

fn checked_sum(mut parts: impl Iterator<Item = u64>) -> Option<u64> {
    parts.try_fold(0u64, u64::checked_add)
}

impl Unit {
    fn take(&mut self, count: usize, head: &mut usize) -> usize {
        let own = count.min(self.own_bytes);
        self.own_bytes -= own;
        *head += own;
        let Some(range) = &mut self.shared else { return own };
        let shared = (count - own).min(range.len as usize);
        range.offset += shared as u32;
        range.len -= shared as u32;
        own + shared
    }

    fn len(&self) -> u64 {
        self.own_bytes as u64 + self.shared.map_or(0, |range| range.len.into())
    }

    fn is_gone(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    //! Shows that bytes leave in order whatever the size of the writes, and that tokens come back with their last byte.
    use super::*;
    use crate::frame_type::FrameType;

    fn lane() -> Lane {
        let mut lane = Lane::default();
        lane.append(Some(StreamId(1)), true, |out| out.extend(b"ab"));
        lane.append(Some(StreamId(1)), true, |out| out.extend(b"cd"));
        lane.append(Some(StreamId(3)), false, |out| out.extend(b"ef"));
        lane.append_shared(SharedRange { token: 9, offset: 100, len: 3 }, true);
        lane.append(Some(StreamId(5)), true, |out| out.extend(b"gh"));
        lane
    }

    #[test]
    fn chunks_in_order() {
        let lane = lane();
        let chunks: Vec<_> = lane.chunks(0, usize::MAX).collect();
        let shared = SharedRange { token: 9, offset: 100, len: 3 };
        let expected =
            [Chunk::Bytes(b"abcd"), Chunk::Bytes(b"ef"), Chunk::Shared(shared), Chunk::Bytes(b"gh")];
        assert_eq!(chunks, expected);
        assert_eq!(lane.chunks(1, 1).count(), 2);
    }

    #[test]
    fn byte_by_byte() {
        let mut lane = lane();
        let mut seen = Vec::new();
        for step in 1..=11 {
            assert_eq!(
                lane.take(1, u64::MAX, |left| seen.push((step, left.stream.map(|s| s.0), left.done))),
                0
            );
        }
        assert_eq!(seen, [(4, Some(1), None), (9, Some(3), Some(9)), (11, Some(5), None)]);
        assert_eq!((lane.len(), lane.own_bytes()), (0, 0));
        assert_eq!(lane.take(5, u64::MAX, |_| {}), 5);
    }

    #[test]
    fn stamps_say_when_they_left() {
        let at = |ns: u64| Instant(1_000 + ns);
        let stamps = ServerStamps { k7: at(0), d8: at(0), d9: at(0), ..ServerStamps::default() };
        let stamps = ServerStamps { a10: at(5), a11: at(7), d12: at(8), wait_ns: 2, k14: at(20), ..stamps };
        let mut head = Head::new(FrameType::Result, 1);
        head.trailer = Some(stamps.encode());
        let mut lane = Lane::default();
        for _ in 0..3 {
            lane.append_head(None, true, &head, |out| head.encode(at(20), None, 0, out));
        }
        let frame_bytes = lane.len() as usize / 3;
        let left = |lane: &Lane, frame: usize| {
            let chunks = lane.chunks(0, usize::MAX).filter_map(|chunk| match chunk {
                Chunk::Bytes(bytes) => Some(bytes),
                Chunk::Shared(_) => None,
            });
            let bytes = chunks.collect::<Vec<_>>().concat();
            let trailer = bytes[frame * frame_bytes + Head::TRAILER_AT..].first_chunk().unwrap();
            ServerStamps::decode(trailer)
        };
        lane.stamp(at(900));
        assert_eq!(left(&lane, 0), ServerStamps { k14: at(900), ..stamps });
        lane.take(frame_bytes, u64::MAX, |_| {});
        lane.stamp(at(2_000));
        assert_eq!(left(&lane, 0), ServerStamps { k14: at(2_000), ..stamps }, "the second waited for longer");
        // Half of it is gone: it said what it said.
        lane.take(Head::TRAILER_AT + 3, u64::MAX, |_| {});
        lane.stamp(at(3_000));
        let rest = Lane { head: lane.head - Head::TRAILER_AT - 3, ..lane };
        assert_eq!(
            ServerStamps::decode(rest.bytes[rest.head + Head::TRAILER_AT..].first_chunk().unwrap()).k14,
            at(2_000)
        );
        assert_eq!(rest.stamps.len(), 1, "the third");
    }

    #[test]
    fn a_limit_keeps_later_bytes() {
        let mut lane = lane();
        let limit = lane.end();
        lane.append(None, true, |out| out.extend(b"late"));
        assert_eq!(lane.take(13, limit, |_| {}), 2);
        assert_eq!(lane.chunks(0, 9).collect::<Vec<_>>(), [Chunk::Bytes(b"late")]);
    }
}
