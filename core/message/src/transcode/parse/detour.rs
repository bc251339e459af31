//! Fields off the straight way: members of a oneof, and fields whose presence bit is not among the first 63.

use super::arena::Arena;
use super::build::ParseTables;
use super::table::{Detour, ParseEntry, ParseOp, REGISTER_BITS};
use super::wire::Head;
use trunkline_schema::OneofMask;

/// Whether this is a closed enum's unknown value, which must not displace another member of the oneof.
#[inline(always)]
pub(super) fn is_stray_enum(tables: &ParseTables, op: ParseOp, field: &ParseEntry, head: Head<'_>) -> bool {
    op == ParseOp::ClosedEnum && head.varint().is_ok_and(|(v, _)| !tables.is_value(field, v as u32))
}

/// Makes the slot a oneof's members share as if no other member had ever been set.
#[inline(never)]
pub(super) fn unset(
    arena: &mut Arena<'_>,
    (detour, rivals): (&Detour, &[OneofMask]),
    base: u32,
    mut present: u64,
) -> u64 {
    for part in rivals {
        if part.word < 2 {
            present &= !(u64::from(part.mask) << (32 * part.word));
        }
        let at = base + 4 + part.word * 4;
        let word = arena.word(at) & !part.mask;
        arena.put(at, word.to_le_bytes());
    }
    let slot = base + detour.field.slot;
    match detour.slot_bytes {
        8 => arena.put(slot, [0; 8]),
        4 => arena.put(slot, [0; 4]),
        _ => arena.put(slot, [0]),
    }
    present
}

#[inline(always)]
pub(super) fn is_set(arena: &Arena<'_>, bit: u32, base: u32, present: u64) -> bool {
    let word = arena.word(base + 4 + bit / 32 * 4);
    word >> (bit % 32) & 1 != 0 || bit < REGISTER_BITS && present >> bit & 1 != 0
}
