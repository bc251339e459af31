//! Whether a block has at most one member of each of its oneofs.

use crate::bytes::read_u32;
use trunkline_schema::OneofMask;

/// The presence bit of a member that is one too many; `None` if none is. Asks a word for as many members as it has, so
/// that wide types cost no more than the words of their blocks.
#[inline]
pub(crate) fn one_too_many(block: &[u8], oneofs: &[OneofMask]) -> Option<u32> {
    let mut seen = false;
    for part in oneofs {
        let members = read_u32(block, 4 + 4 * part.word as usize) & part.mask;
        seen &= !part.first;
        if members != 0 && (seen || !members.is_power_of_two()) {
            return Some(32 * part.word + 31 - members.leading_zeros());
        }
        seen |= members != 0;
    }
    None
}
