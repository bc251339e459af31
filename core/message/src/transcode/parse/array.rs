//! Arrays that grow: where the elements of a repeated field go.
//!
//! An array is preceded by `[u32 capacity][u32 0]`, which is no part of the format. A field that comes in several runs
//! appends: in place if its array ends at the top or has room, else it moves to the top with room for twice as many, so
//! a hostile order of fields costs a factor and not a square.

use super::arena::{Arena, Full};
use super::scalar::Scalar;

/// Bytes before an array.
const ARRAY_HEADER_BYTES: u32 = 8;

/// An array being appended to.
pub(super) struct Growing {
    pub data: u32,
    /// Where the next element goes.
    pub at: u32,
    /// Where the array has to end: the arena's end if it is the last thing there.
    pub room: u32,
    /// Where the array ends at least: room kept for later runs.
    reserved: u32,
}

impl Arena<'_> {
    /// Opens the array of a slot for appending an unknown number of scalars; nothing else may be allocated meanwhile.
    #[inline(always)]
    pub(super) fn open<S: Scalar>(&mut self, slot: u32) -> Growing {
        let (data, count) = self.pair(slot);
        if count == 0 {
            let data = self.aligned_top() + ARRAY_HEADER_BYTES;
            return Growing { data, at: data, room: self.end(), reserved: data };
        }
        let capacity_end = data + self.word(data - ARRAY_HEADER_BYTES) * S::BYTES;
        let room = if capacity_end == self.top() { self.end() } else { capacity_end };
        Growing { data, at: data + count * S::BYTES, room, reserved: capacity_end }
    }

    /// Gives an array that is hemmed in a place at the top, where it will have room for twice what it holds.
    #[cold]
    #[inline(never)]
    pub(super) fn move_to_top(&mut self, array: Growing) -> Result<Growing, Full> {
        let room = self.end();
        if array.room == room {
            return Err(Full);
        }
        let len = array.at - array.data;
        let data = self.aligned_top() + ARRAY_HEADER_BYTES;
        self.relocate(array.data, len, data)?;
        let at = data + len;
        let reserved = data.saturating_add(len.saturating_mul(2));
        self.clear(at, reserved)?;
        Ok(Growing { data, at, room, reserved })
    }

    /// Writes the slot of an array opened by `open`, and its capacity.
    #[inline(always)]
    pub(super) fn close<S: Scalar>(&mut self, slot: u32, array: Growing) -> Result<(), Full> {
        let Growing { data, at, reserved, .. } = array;
        if at == data {
            return Ok(());
        }
        let end = at.max(reserved);
        if end > self.top() {
            self.raise(end)?;
        }
        self.put_pair(data - ARRAY_HEADER_BYTES, (end - data) / S::BYTES, 0);
        self.put_pair(slot, data, (at - data) / S::BYTES);
        Ok(())
    }

    /// Makes room for `more` elements in the array of a slot and counts them in; returns where the first goes.
    #[inline(always)]
    pub(super) fn reserve(&mut self, slot: u32, element_bytes: u32, more: u32) -> Result<u32, Full> {
        if self.word(slot + 4) != 0 {
            return self.reserve_more(slot, element_bytes, more);
        }
        let data = self.aligned_top() + ARRAY_HEADER_BYTES;
        self.raise(data.saturating_add(more.saturating_mul(element_bytes)))?;
        self.put_pair(data - ARRAY_HEADER_BYTES, more, 0);
        self.put_pair(slot, data, more);
        Ok(data)
    }

    #[inline(never)]
    fn reserve_more(&mut self, slot: u32, element_bytes: u32, more: u32) -> Result<u32, Full> {
        let (data, count) = self.pair(slot);
        let capacity = self.word(data - ARRAY_HEADER_BYTES);
        let wanted = count.saturating_add(more);
        let used = count * element_bytes;
        if wanted > capacity && data + capacity * element_bytes != self.top() {
            let to = self.aligned_top() + ARRAY_HEADER_BYTES;
            let capacity = wanted.max(count.saturating_mul(2));
            let end = to.saturating_add(capacity.saturating_mul(element_bytes));
            self.raise(end)?;
            self.relocate(data, used, to)?;
            self.clear(to + used, end)?;
            self.put_pair(to - ARRAY_HEADER_BYTES, capacity, 0);
            self.put_pair(slot, to, wanted);
            return Ok(to + used);
        }
        if wanted > capacity {
            self.raise(data.saturating_add(wanted.saturating_mul(element_bytes)))?;
            self.put_pair(data - ARRAY_HEADER_BYTES, wanted, 0);
        }
        self.put_pair(slot, data, wanted);
        Ok(data + used)
    }
}
