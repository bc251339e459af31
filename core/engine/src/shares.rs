//! How a session's receive heap is shared between its streams and everything else.
//!
//! A stream may have a window's worth of messages under way, and an application may have many streams that it reads one
//! after another, or not at all. If their messages could fill the heap, nothing else would come through it: no answer,
//! no new call, and not even the stream that is being read. So a part of the heap is kept from streams, and what a
//! stream may hold of the rest depends on how much of that is free (dynamic thresholds: Choudhury and Hahne, 1998): one
//! stream alone may hold half, many hold equal parts that are the smaller the more they are, and however many they are,
//! one that holds nothing finds room.
//!
//! A stream that holds its share waits for its own application to release a message of it. One that holds nothing waits
//! in the session's line of streams, behind the line of everything else.

use crate::SessionKey;

/// The part of a receive heap that messages of streams leave to others: an eighth, so that an answer of several MiB has
/// room in a heap of the usual size.
const RESERVE_PART: u32 = 8;

/// Heaps give memory in pieces of this size; a small message takes one.
const PIECE_BYTES: u32 = 64;

/// What one direction of a call holds of its receiver's heap.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Share {
    /// Whose heap it is.
    session: Option<SessionKey>,
    /// Bytes of messages passed on and not released.
    held_bytes: u64,
    /// The next message waits until some of them are.
    awaited: bool,
}

/// A receive heap at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveHeap {
    pub capacity: u32,
    pub free: u32,
    /// Bytes that all streams together hold.
    pub streams: u64,
}

/// Why a message of a stream has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For messages of the same stream to be released.
    Share,
    /// For any to be.
    Streams,
}

impl Share {
    /// A message was passed on, into a block of this length. Tells by how much more the streams of the session hold.
    pub fn hold(&mut self, session: SessionKey, len: u32) -> u64 {
        let bytes = block_bytes(len);
        self.session = Some(session);
        self.held_bytes += bytes;
        bytes
    }

    /// A block was released. Tells by how much less they hold.
    #[inline]
    pub fn release(&mut self, len: u32) -> u64 {
        if self.held_bytes == 0 {
            return 0;
        }
        let bytes = block_bytes(len).min(self.held_bytes);
        self.held_bytes -= bytes;
        bytes
    }

    /// The call ends. Tells whose streams hold how much less; what is not released still takes its room in the heap.
    #[inline]
    pub fn end(&mut self) -> Option<(SessionKey, u64)> {
        match std::mem::take(&mut self.held_bytes) {
            0 => None,
            bytes => Some((self.session?, bytes)),
        }
    }

    /// What it holds, and of whose heap.
    pub fn held(&self) -> Option<(SessionKey, u64)> {
        self.session.filter(|_| self.held_bytes > 0).map(|session| (session, self.held_bytes))
    }

    /// The receiver is known by another key from now on.
    pub fn move_to(&mut self, session: SessionKey) {
        self.session = self.session.map(|_| session);
    }

    /// The next message waits for a release.
    pub fn await_release(&mut self) {
        self.awaited = true;
    }

    /// Whether the next message waited for one; it does no longer.
    #[inline]
    pub fn was_awaited(&mut self) -> bool {
        std::mem::take(&mut self.awaited)
    }

    /// Whether a message of so many bytes has to wait, whatever room there is.
    pub fn admit(&self, heap: ReceiveHeap, len: u32) -> Result<(), Wait> {
        let bytes = block_bytes(len);
        let for_streams = u64::from(heap.capacity - heap.capacity / RESERVE_PART);
        let left = for_streams.saturating_sub(heap.streams).min(heap.free.into());
        if self.held_bytes > 0 && self.held_bytes + bytes > left {
            return Err(Wait::Share);
        }
        // One that needs more than all there is for streams gets it when it can be had.
        if bytes <= for_streams && bytes > left { Err(Wait::Streams) } else { Ok(()) }
    }
}

/// Bytes a block takes of its heap.
pub(crate) fn block_bytes(len: u32) -> u64 {
    u64::from(len.max(1)).next_multiple_of(PIECE_BYTES.into())
}

#[cfg(test)]
mod tests {
    //! Shows what streams may hold, and that none can keep another from holding something.
    use super::*;

    const CAPACITY: u32 = 64 << 20;

    fn holding(held_bytes: u64) -> Share {
        Share { held_bytes, ..Share::default() }
    }

    /// Gives each of so many streams whatever it may hold, in pieces; tells what each holds then.
    fn filled(streams: usize, piece: u32) -> (Vec<u64>, ReceiveHeap) {
        let mut held = vec![0; streams];
        let mut heap = ReceiveHeap { capacity: CAPACITY, free: CAPACITY, streams: 0 };
        let mut grown = true;
        while std::mem::take(&mut grown) {
            for held in &mut held {
                if holding(*held).admit(heap, piece).is_ok() {
                    let bytes = block_bytes(piece);
                    *held += bytes;
                    heap.free -= bytes as u32;
                    heap.streams += bytes;
                    grown = true;
                }
            }
        }
        (held, heap)
    }

    #[test]
    fn streams_hold_equal_parts_and_one_more_finds_room() {
        for (streams, piece) in [(1, 8), (1, 1 << 20), (10, 1000), (500, 8), (5000, 64)] {
            let (held, heap) = filled(streams, piece);
            let part = u64::from(CAPACITY / 8 * 7) / (streams as u64 + 1);
            let tolerance = block_bytes(piece) * 2;
            assert!(
                held.iter().all(|held| held.abs_diff(part) <= tolerance),
                "{streams}: {held:?}, not {part}"
            );
            assert_eq!(holding(0).admit(heap, piece), Ok(()), "{streams} streams of {piece}");
            assert!(heap.free >= CAPACITY / 8, "the reserve is untouched");
        }
    }

    #[test]
    fn what_a_message_waits_for() {
        let [mib, kib] = [1 << 20, 1 << 10];
        #[rustfmt::skip]
        let table = [
            // free, of all streams, of this stream, message => what it waits for
            (64 * mib, 0, 0, mib, Ok(())),
            (64 * mib, 0, 0, 60 * mib, Ok(())), // more than streams may have together: tries
            (10 * mib, 54, 0, 2 * mib, Ok(())),
            (10 * mib, 54, 0, 3 * mib, Err(Wait::Streams)),
            (8 * mib, 56, 0, kib, Err(Wait::Streams)),
            (4 * mib, 50, 0, 4 * mib, Ok(())), // answers that are not read take the reserve first
            (4 * mib, 50, 0, 5 * mib, Err(Wait::Streams)),
            (10 * mib, 54, mib, mib, Ok(())),
            (10 * mib, 54, mib, mib + kib, Err(Wait::Share)),
            (8 * mib, 56, kib, kib, Err(Wait::Share)),
        ];
        for (free, streams, held, len, expected) in table {
            let heap = ReceiveHeap { capacity: CAPACITY, free, streams: streams << 20 };
            assert_eq!(holding(held.into()).admit(heap, len), expected, "{free} {streams} {held} {len}");
        }
    }

    #[test]
    fn what_was_held_is_given_back_once() {
        let mut share = Share::default();
        let session = SessionKey::from_bits(1);
        assert_eq!([share.hold(session, 1), share.hold(session, 65)], [64, 128]);
        assert_eq!([share.release(1), share.release(1000), share.release(1)], [64, 128, 0]);
        share.hold(session, 64);
        assert_eq!(share.end(), Some((session, 64)));
        assert_eq!((share.end(), share.release(64)), (None, 0));
    }
}
