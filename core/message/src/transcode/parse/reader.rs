//! Reading fields off the wire: heads, lengths, what is stepped over; and what was found wrong on the way.

use super::level::{Fault, Halt, Level};
use super::table::ParseTable;
use super::wire::{Head, TagBytes, Wire};
use crate::transcode::error::DecodeErrorKind as Kind;
use crate::transcode::varint::{Overlong, varint};

const WIRE_VARINT: u32 = 0;
const WIRE_FIXED64: u32 = 1;
const WIRE_DELIMITED: u32 = 2;
const WIRE_START_GROUP: u32 = 3;
const WIRE_END_GROUP: u32 = 4;
const WIRE_FIXED32: u32 = 5;

/// The wire bytes, how deep in them the parser is, and its fault.
pub(super) struct WireReader<'a> {
    pub wire: Wire<'a>,
    /// The tag that ends the innermost group.
    pub group_end: u32,
    /// Levels that may still be opened below this one.
    pub levels_left: u32,
    fault: Option<Fault>,
}

impl<'a> WireReader<'a> {
    pub(super) fn new(wire: Wire<'a>, levels_left: u32) -> Self {
        WireReader { wire, group_end: 0, levels_left, fault: None }
    }

    /// The head of the field at `at`.
    #[inline(always)]
    pub(super) fn head(&mut self, at: u32) -> Result<Head<'a>, Halt> {
        let window = self.wire.window(at);
        let [first, second, ..] = *window;
        if first < 0x80 {
            return Ok(Head { window, tag: u32::from(first), value_at: at + 1 });
        }
        if second < 0x80 {
            let tag = u32::from(first & 0x7f) | u32::from(second) << 7;
            return Ok(Head { window: self.wire.window(at + 1), tag, value_at: at + 2 });
        }
        let (tag, value_at) = self.long_tag(at)?;
        Ok(Head { window: self.wire.window(value_at - 1), tag, value_at })
    }

    /// The tag at `at`, whatever its length, and where the value starts.
    #[inline(never)]
    fn long_tag(&mut self, at: u32) -> Result<(u32, u32), Halt> {
        match varint(self.wire.window(at), 0) {
            Ok((tag, n @ ..=5)) if tag <= u64::from(u32::MAX) => Ok((tag as u32, at + n)),
            _ => Err(self.fault(Kind::VarintTooLong, at, 0)),
        }
    }

    /// The range of a length-delimited value.
    #[inline(always)]
    pub(super) fn delimited(&mut self, head: Head<'_>, end: u32) -> Result<(u32, u32), Halt> {
        let (len, n) = head.length().map_err(|o| self.overlong(o, head.value_at, head.tag))?;
        let from = head.value_at + n;
        let until = u64::from(from).saturating_add(len);
        if until > u64::from(end) {
            return Err(self.fault(Kind::Truncated, head.value_at, head.tag));
        }
        Ok((from, until as u32))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn overlong(&mut self, _: Overlong, at: u32, tag: u32) -> Halt {
        self.fault(Kind::VarintTooLong, at, tag)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn fault(&mut self, kind: Kind, at: u32, tag: u32) -> Halt {
        self.fault = Some(Fault { kind, at, tag, message: None });
        Halt
    }

    /// Adds the field to a fault that was found where it was not known.
    #[cold]
    #[inline(never)]
    pub(super) fn in_field(&mut self, at: u32, tag: u32) -> Halt {
        if let Some(fault) = &mut self.fault {
            (fault.at, fault.tag) = (at, tag);
        }
        Halt
    }

    /// Adds the message type to a fault that has none yet: the innermost level is the first to be asked.
    #[cold]
    #[inline(never)]
    pub(super) fn blame(&mut self, table: &ParseTable) {
        if let Some(fault) = &mut self.fault {
            fault.message.get_or_insert(table.index);
        }
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

    /// Elements in the run that starts at `at`, a broken one included so that reading it reports it.
    #[inline(always)]
    pub(super) fn count_run(&mut self, at: u32, end: u32) -> Result<u32, Halt> {
        let wire = self.wire;
        let mut head = self.head(at)?;
        let tag = TagBytes::at(&wire, at, head);
        let mut count = 0;
        loop {
            count += 1;
            let Ok((len, n)) = head.length() else { break };
            let next = u64::from(head.value_at + n).saturating_add(len);
            if next >= u64::from(end) {
                break;
            }
            let window = wire.window(next as u32);
            if !tag.starts(window) {
                break;
            }
            head.value_at = next as u32 + tag.bytes;
            head.window = if tag.bytes == 1 { window } else { wire.window(head.value_at - 1) };
        }
        Ok(count)
    }

    /// What was found wrong; `None` if the arena was full.
    pub(super) fn into_fault(self) -> Option<Fault> {
        self.fault
    }
}
