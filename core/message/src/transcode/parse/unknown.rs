//! Unknown fields: stepped over, and their bytes kept with the message.
//!
//! A block's unknown bytes stand as `[u32 capacity][u32 length][bytes]`; the block points at the length. The capacity
//! is this module's own: bytes that come in many pieces move to the top at most as often as they double.

use super::level::{Halt, Level, Next};
use super::walk::Parser;
use super::wire::Head;
use crate::transcode::error::DecodeErrorKind as Kind;

const WIRE_VARINT: u32 = 0;
const WIRE_FIXED64: u32 = 1;
const WIRE_DELIMITED: u32 = 2;
const WIRE_START_GROUP: u32 = 3;
const WIRE_END_GROUP: u32 = 4;
const WIRE_FIXED32: u32 = 5;

impl<'a> Parser<'a> {
    /// Steps over a field nobody knows and keeps it, unless it is the end of the group being read.
    #[cold]
    #[inline(never)]
    pub(super) fn unknown(&mut self, level: Level, at: u32) -> Next {
        let Ok(head) = self.head(at) else { return Next::FAILED };
        if level.is_group() && head.tag == self.group_end && head.value_at <= level.end() {
            return Next::group_ended(head.value_at);
        }
        let kept = self.skip(head, level).and_then(|until| self.keep(level, at, until).map(|()| until));
        kept.into()
    }

    /// Steps over a field that a map's entry does not have. It is not kept: an entry is a pair to whoever reads the
    /// map, and has no place for more.
    #[cold]
    #[inline(never)]
    pub(super) fn dropped(&mut self, level: Level, at: u32) -> Next {
        self.head(at).and_then(|head| self.skip(head, level)).into()
    }

    /// Adds the wire's bytes from a field's tag to `until` to the block's unknown bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn keep(&mut self, level: Level, at: u32, until: u32) -> Result<(), Halt> {
        if until > level.end() {
            return Err(self.fault(Kind::Truncated, at, 0));
        }
        self.keep_bytes(level.base, self.wire.range(at, until))
    }

    /// Adds `bytes` to the unknown bytes of the block at `base`.
    pub(super) fn keep_bytes(&mut self, base: u32, bytes: &[u8]) -> Result<(), Halt> {
        let more = bytes.len() as u32;
        let at = match self.arena.word(base) {
            0 => {
                let at = self.arena.aligned_top();
                self.arena.raise(at + 8)?;
                self.arena.put(base, (at + 4).to_le_bytes());
                self.arena.put_pair(at, 0, 0);
                at
            }
            offset => offset - 4,
        };
        let (capacity, len) = self.arena.pair(at);
        let (at, capacity) = self.room_for_unknown(base, at, capacity, len, more)?;
        self.arena.put_pair(at, capacity, len + more);
        self.arena.range_mut(at + 8 + len, more)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Makes room for `more` bytes behind `len` of the chunk at `at`; returns where the chunk now is and its capacity.
    fn room_for_unknown(
        &mut self,
        base: u32,
        at: u32,
        capacity: u32,
        len: u32,
        more: u32,
    ) -> Result<(u32, u32), Halt> {
        if len + more <= capacity {
            return Ok((at, capacity));
        }
        if at + 8 + capacity == self.arena.top() {
            self.arena.raise(at + 8 + len + more)?;
            return Ok((at, len + more));
        }
        let to = self.arena.aligned_top();
        let capacity = (len + more).max(len.saturating_mul(2));
        self.arena.raise(to + 8)?;
        let end = (to + 8).saturating_add(capacity);
        self.arena.raise(end)?;
        self.arena.relocate(at + 8, len, to + 8)?;
        self.arena.clear(to + 8 + len, end)?;
        self.arena.put(base, (to + 4).to_le_bytes());
        Ok((to, capacity))
    }

    /// Where the value after `head` ends, which is not beyond the end of `level`.
    pub(super) fn skip(&mut self, head: Head<'_>, level: Level) -> Result<u32, Halt> {
        let Head { tag, value_at, .. } = head;
        if value_at > level.end() {
            return Err(self.fault(Kind::Truncated, value_at, 0));
        }
        if tag >> 3 == 0 {
            return Err(self.fault(Kind::FieldNumberZero, value_at, 0));
        }
        let until = match tag & 7 {
            WIRE_VARINT => value_at + head.varint().map_err(|o| self.overlong(o, head.value_at, head.tag))?.1,
            WIRE_FIXED64 => value_at + 8,
            WIRE_FIXED32 => value_at + 4,
            WIRE_DELIMITED => self.delimited(head, level.end())?.1,
            WIRE_START_GROUP => self.skip_group(head, level)?,
            WIRE_END_GROUP => return Err(self.fault(Kind::UnmatchedEndGroup, value_at, tag)),
            other => return Err(self.fault(Kind::WireType(other as u8), value_at, tag)),
        };
        if until > level.end() {
            return Err(self.fault(Kind::Truncated, value_at, tag));
        }
        Ok(until)
    }

    fn skip_group(&mut self, group: Head<'_>, level: Level) -> Result<u32, Halt> {
        let Some(levels) = self.levels_left.checked_sub(1) else {
            return Err(self.fault(Kind::Depth, group.value_at, group.tag));
        };
        self.levels_left = levels;
        let end_tag = group.tag + 1;
        let mut at = group.value_at;
        while at < level.end() {
            let head = self.head(at)?;
            if head.tag == end_tag {
                self.levels_left += 1;
                return Ok(head.value_at);
            }
            at = self.skip(head, level)?;
        }
        Err(self.fault(Kind::Truncated, group.value_at, group.tag))
    }
}
