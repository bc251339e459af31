//! Where a message's unknown bytes go.
//!
//! A block's unknown bytes stand as `[u32 capacity][u32 length][bytes]`; the block points at the length. The capacity
//! is this module's own: bytes that come in many pieces move to the top at most as often as they double.

use super::arena::{Arena, Full};

/// Adds `bytes` to the unknown bytes of the block at `base`.
pub(super) fn keep(arena: &mut Arena<'_>, base: u32, bytes: &[u8]) -> Result<(), Full> {
    let more = bytes.len() as u32;
    let at = match arena.word(base) {
        0 => {
            let at = arena.aligned_top();
            arena.raise(at + 8)?;
            arena.put(base, (at + 4).to_le_bytes());
            arena.put_pair(at, 0, 0);
            at
        }
        offset => offset - 4,
    };
    let (capacity, len) = arena.pair(at);
    let (at, capacity) = room_for(arena, base, at, capacity, len, more)?;
    arena.put_pair(at, capacity, len + more);
    arena.range_mut(at + 8 + len, more)?.copy_from_slice(bytes);
    Ok(())
}

/// Makes room for `more` bytes behind `len` of the chunk at `at`; returns where the chunk now is and its capacity.
fn room_for(
    arena: &mut Arena<'_>,
    base: u32,
    at: u32,
    capacity: u32,
    len: u32,
    more: u32,
) -> Result<(u32, u32), Full> {
    if len + more <= capacity {
        return Ok((at, capacity));
    }
    if at + 8 + capacity == arena.top() {
        arena.raise(at + 8 + len + more)?;
        return Ok((at, len + more));
    }
    let to = arena.aligned_top();
    let capacity = (len + more).max(len.saturating_mul(2));
    arena.raise(to + 8)?;
    let end = (to + 8).saturating_add(capacity);
    arena.raise(end)?;
    arena.relocate(at + 8, len, to + 8)?;
    arena.clear(to + 8 + len, end)?;
    arena.put(base, (to + 4).to_le_bytes());
    Ok((to, capacity))
}
