//! Packed repeated scalars.

use super::kept::keep;
use super::level::{Halt, Level};
use super::scalar::*;
use super::table::ParseEntry;
use super::values::Values;
use crate::transcode::error::DecodeErrorKind as Kind;
use crate::transcode::varint::varint;

impl Values<'_> {
    /// Varints.
    #[inline(never)]
    pub(super) fn packed<S: Scalar>(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        at: u32,
    ) -> Result<u32, Halt> {
        let head = self.reader.head(at)?;
        let (mut from, until) = self.reader.delimited(head, level.end())?;
        let slot = level.base + entry.slot;
        let mut array = self.arena.open::<S>(slot);
        let wire = self.reader.wire;
        while from < until {
            for cell in self.arena.cells::<S>(array.at, array.room) {
                let (value, n) = match S::read(wire.window(from), 0) {
                    Ok(read) => read,
                    Err(overlong) => return Err(self.reader.overlong(overlong, head.value_at, head.tag)),
                };
                put_cell::<S>(cell, value);
                array.at += S::BYTES;
                from += n;
                if from >= until {
                    break;
                }
            }
            if from < until {
                array = self.arena.move_to_top(array)?;
            }
        }
        self.arena.close::<S>(slot, array)?;
        if from > until {
            return Err(self.reader.fault(Kind::Truncated, head.value_at, head.tag));
        }
        Ok(until)
    }

    /// Fixed-size elements: the same bytes on the wire and in the array.
    #[inline(never)]
    pub(super) fn packed_fixed<S: Scalar>(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        at: u32,
    ) -> Result<u32, Halt> {
        let head = self.reader.head(at)?;
        let (from, until) = self.reader.delimited(head, level.end())?;
        let len = until - from;
        if len % S::BYTES != 0 {
            return Err(self.reader.fault(Kind::PackedLength, head.value_at, head.tag));
        }
        if len != 0 {
            let to = self.arena.reserve(level.base + entry.slot, S::BYTES, len / S::BYTES)?;
            let bytes = self.reader.wire.range(from, until);
            self.arena.range_mut(to, len)?.copy_from_slice(bytes);
        }
        Ok(until)
    }

    /// Elements the enum does not have go to the unknown bytes, each as a field of its own.
    #[inline(never)]
    pub(super) fn packed_closed_enum(
        &mut self,
        entry: &ParseEntry,
        level: Level,
        at: u32,
    ) -> Result<u32, Halt> {
        let head = self.reader.head(at)?;
        let (mut from, until) = self.reader.delimited(head, level.end())?;
        while from < until {
            let read = varint(self.reader.wire.window(from), 0);
            let (value, n) = read.map_err(|o| self.reader.overlong(o, head.value_at, head.tag))?;
            let next = from + n;
            if next > until {
                return Err(self.reader.fault(Kind::Truncated, head.value_at, head.tag));
            }
            if self.tables.is_value(entry, value as u32) {
                let to = self.arena.reserve(level.base + entry.slot, Varint32::BYTES, 1)?;
                self.arena.put_scalar::<Varint32>(to, value);
            } else {
                self.keep_stray(level.base, head.tag & !7, self.reader.wire.range(from, next))?;
            }
            from = next;
        }
        Ok(until)
    }

    /// Keeps one element as an unpacked field.
    #[cold]
    #[inline(never)]
    fn keep_stray(&mut self, base: u32, tag: u32, value: &[u8]) -> Result<(), Halt> {
        let mut rest = tag;
        let mut bytes = [0; 5];
        let mut len = 0;
        for byte in &mut bytes {
            *byte = rest as u8 & 0x7f | u8::from(rest > 0x7f) << 7;
            len += 1;
            rest >>= 7;
            if rest == 0 {
                break;
            }
        }
        keep(&mut self.arena, base, bytes.get(..len).unwrap_or_default())?;
        Ok(keep(&mut self.arena, base, value)?)
    }
}
