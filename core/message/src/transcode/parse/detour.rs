//! Fields off the straight road: members of a oneof, and fields whose presence bit is not among the first 63.

use super::level::{Level, Next};
use super::table::{Detour, ParseEntry, ParseOp, REGISTER_BITS};
use super::walk::Parser;
use super::wire::Head;

impl<'a> Parser<'a> {
    /// Reads the field behind a detour.
    #[inline(always)]
    pub(super) fn detour(&mut self, entry: &ParseEntry, level: Level, at: u32, present: &mut u64) -> Next {
        let (next, now_present) = self.detoured(entry, level, at, *present);
        *present = now_present;
        next
    }

    /// Returns where the field ended and the presence bits.
    #[inline(never)]
    fn detoured(&mut self, entry: &ParseEntry, level: Level, at: u32, mut present: u64) -> (Next, u64) {
        let detour = self.tables.detour(entry);
        let field = &detour.field;
        let Ok(head) = self.head(at) else { return (Next::FAILED, present) };
        let op = field.op_for(head.tag);
        if op == ParseOp::Unknown || self.is_stray_enum(op, field, head) {
            return (self.unknown(level, at), present);
        }
        if !detour.rivals.is_empty() && !self.is_set(detour.bit, level.base, present) {
            present = self.unseat(detour, level.base, present);
        }
        if detour.bit < REGISTER_BITS {
            present |= 1 << detour.bit;
        } else {
            let word_at = level.base + 4 + detour.bit / 32 * 4;
            let word = self.arena.word(word_at) | 1 << (detour.bit % 32);
            self.arena.put(word_at, word.to_le_bytes());
        }
        let next = self.field(op, field, level, at, head, &mut present);
        (next, present)
    }

    /// Whether this is a closed enum's unknown value, which must not unseat another member of the oneof.
    #[inline(always)]
    fn is_stray_enum(&self, op: ParseOp, field: &ParseEntry, head: Head<'_>) -> bool {
        op == ParseOp::ClosedEnum && head.varint().is_ok_and(|(v, _)| !self.tables.is_value(field, v as u32))
    }

    /// Makes the slot a oneof's members share as if no other member had ever been set.
    #[inline(never)]
    fn unseat(&mut self, detour: &Detour, base: u32, mut present: u64) -> u64 {
        for &rival in &detour.rivals {
            if rival < REGISTER_BITS {
                present &= !(1 << rival);
            }
            let at = base + 4 + rival / 32 * 4;
            let word = self.arena.word(at) & !(1 << (rival % 32));
            self.arena.put(at, word.to_le_bytes());
        }
        let slot = base + detour.field.slot;
        match detour.slot_bytes {
            8 => self.arena.put(slot, [0; 8]),
            4 => self.arena.put(slot, [0; 4]),
            _ => self.arena.put(slot, [0]),
        }
        present
    }

    #[inline(always)]
    fn is_set(&self, bit: u32, base: u32, present: u64) -> bool {
        let word = self.arena.word(base + 4 + bit / 32 * 4);
        word >> (bit % 32) & 1 != 0 || bit < REGISTER_BITS && present >> bit & 1 != 0
    }
}
