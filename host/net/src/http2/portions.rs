//! How much of what was read a connection gets at once: as much as its headers become in memory.
//!
//! A header block may name an entry of the peer's table by one byte, and the entry may have 4 KiB: 150 bytes become
//! headers of 60 KB, and a read buffer full of such requests 100 MB of work, while others wait. h2 decodes whatever it
//! is given before anything is told of it. So it is given little where there are headers: so many bytes of blocks as
//! became little the last time, less where they became much; and when what came of them in a turn is enough, the rest
//! waits for the next one. Bodies count nothing.

/// Bytes of headers, decoded, after which the others get their turn: some hundred ordinary requests.
const DECODED_BYTES_PER_TURN: usize = 512 << 10;
/// What one portion is to become at most, and what it may become for the next one to be larger.
const DECODED_BYTES_MAX: usize = 128 << 10;
const DECODED_BYTES_FEW: usize = 32 << 10;
/// Bytes of blocks in one portion: some ten ordinary requests, or a megabyte if each byte becomes as much as it can.
const BLOCK_BYTES_MIN: usize = 64;
const BLOCK_BYTES_FIRST: usize = 256;
const BLOCK_BYTES_MAX: usize = 512;
/// A byte of a block counts as so many at least: that of a list that is refused becomes nothing, and was decoded.
const DECODED_BYTES_PER_BYTE: usize = 8;

/// What a connection may read in a turn.
#[derive(Debug)]
pub(super) struct Portions {
    /// Bytes of blocks in the next portion.
    block_bytes: usize,
    /// What headers of this turn have become.
    decoded_bytes: usize,
    /// The portion under way.
    portion: usize,
    /// Of so many bytes read, so many were of blocks.
    share: (usize, usize),
}

impl Portions {
    /// For a connection of which nothing is known.
    pub fn new() -> Self {
        Self { block_bytes: BLOCK_BYTES_FIRST, decoded_bytes: 0, portion: 0, share: (0, 0) }
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.decoded_bytes = 0;
    }

    /// So many bytes were read, and so many of them are of header blocks.
    pub fn handle_read(&mut self, bytes: usize, block_bytes: usize) {
        self.share = (bytes, block_bytes);
    }

    /// The next portion; `None`: the rest waits for the next turn.
    pub fn next(&mut self) -> Option<usize> {
        if self.decoded_bytes >= DECODED_BYTES_PER_TURN {
            return None;
        }
        let (bytes, block_bytes) = self.share;
        self.portion = match block_bytes {
            0 => usize::MAX,
            _ => (self.block_bytes.saturating_mul(bytes) / block_bytes).max(BLOCK_BYTES_MIN),
        };
        Some(self.portion)
    }

    /// The portion was read but for `left`, and its headers became so many bytes.
    pub fn handle_decoded(&mut self, left: usize, decoded_bytes: usize) {
        let (bytes, block_bytes) = self.share;
        if block_bytes == 0 || left == self.portion {
            self.decoded_bytes += decoded_bytes;
            return;
        }
        let taken = self.portion - left;
        let blocks = taken.saturating_mul(block_bytes) / bytes.max(1);
        self.decoded_bytes += decoded_bytes.max(blocks.saturating_mul(DECODED_BYTES_PER_BYTE));
        if decoded_bytes > DECODED_BYTES_MAX {
            self.block_bytes = (self.block_bytes / 4).max(BLOCK_BYTES_MIN);
        } else if left == 0 && decoded_bytes < DECODED_BYTES_FEW {
            self.block_bytes = (self.block_bytes * 2).min(BLOCK_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what headers become in a turn is bounded however they are packed, and that bodies and ordinary
    //! requests are not held up.
    use super::*;
    use proptest::prelude::*;

    /// A turn over a read of so many bytes, so many of them blocks, a byte of which becomes so many. What was read,
    /// what it became, and the most that one portion did.
    fn turn(portions: &mut Portions, bytes: usize, blocks: usize, becomes: usize) -> (usize, usize, usize) {
        portions.begin_turn();
        portions.handle_read(bytes, blocks);
        let (mut read, mut all, mut most) = (0, 0, 0);
        while read < bytes
            && let Some(portion) = portions.next()
        {
            let taken = portion.min(bytes - read);
            let decoded = taken * blocks / bytes * becomes;
            portions.handle_decoded(portion - taken, decoded);
            (read, all, most) = (read + taken, all + decoded, most.max(decoded));
        }
        (read, all, most)
    }

    proptest! {
        #[test]
        fn a_turn_is_bounded(turns in prop::collection::vec((1usize..1 << 18, 0usize..=100, 0usize..400), 1..50)) {
            let mut portions = Portions::new();
            for (bytes, percent, becomes) in turns {
                let (_, all, most) = turn(&mut portions, bytes, bytes * percent / 100, becomes);
                let portion_max = (2 * BLOCK_BYTES_MAX).max(BLOCK_BYTES_MIN) * 400;
                prop_assert!(most <= portion_max && all <= DECODED_BYTES_PER_TURN + most, "{all}, {most}");
            }
        }
    }

    #[test]
    fn amplified_headers_come_a_few_at_a_time() {
        let mut portions = Portions::new();
        let (read, all, _) = turn(&mut portions, 256 << 10, 256 << 10, 400);
        assert!(read < 4 << 10 && all < 1 << 20, "{read}, {all}");
        let (read, all, most) = turn(&mut portions, 256 << 10, 256 << 10, 400);
        assert!(read < 4 << 10 && all < 700 << 10 && most <= 256 * 400, "{read}, {all}, {most}");
    }

    #[test]
    fn bodies_and_ordinary_requests_are_read_in_a_turn() {
        let mut portions = Portions::new();
        assert_eq!(turn(&mut portions, 256 << 10, 0, 0).0, 256 << 10);
        assert_eq!(turn(&mut portions, 256 << 10, 200, 10).0, 256 << 10);
        // 500 requests of 150 bytes, 60 of them headers that become 600.
        assert_eq!(turn(&mut portions, 500 * 150, 500 * 60, 10).0, 500 * 150);
    }
}
