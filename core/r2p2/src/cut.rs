//! How a message is cut into packets.

use crate::extension::{LATER_BYTES, REPLY_BYTES, REQUEST_BYTES};
use crate::wire::{FIRST_BYTES, PACKETS_MAX_COMPATIBLE, PACKETS_MAX_EXTENDED, PAYLOAD_BYTES_MAX};
use std::ops::Range;

/// Payload bytes of the packets of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Cut {
    /// Up to here one packet will do.
    single: usize,
    /// Of the first of several.
    first: usize,
    /// Of every further one but the last.
    rest: usize,
    packets_max: usize,
}

impl Cut {
    pub fn request(extended: bool) -> Self {
        let (own, later) = if extended { (REQUEST_BYTES, LATER_BYTES) } else { (0, 0) };
        Self {
            single: PAYLOAD_BYTES_MAX - own,
            first: FIRST_BYTES,
            rest: PAYLOAD_BYTES_MAX - later,
            packets_max: Self::packets_max(extended),
        }
    }

    /// A reply's packets are full. The place for stamps is kept whether there are any or not: one rule.
    pub fn reply(extended: bool) -> Self {
        let (own, later) = if extended { (REPLY_BYTES, LATER_BYTES) } else { (0, 0) };
        let first = PAYLOAD_BYTES_MAX - own;
        Self {
            single: first,
            first,
            rest: PAYLOAD_BYTES_MAX - later,
            packets_max: Self::packets_max(extended),
        }
    }

    /// Number of packets of a message of `len` bytes; `None` above the most there may be.
    pub fn count(&self, len: usize) -> Option<u16> {
        let count = if len <= self.single { 1 } else { 1 + (len - self.first).div_ceil(self.rest) };
        (count <= self.packets_max).then_some(count as u16)
    }

    /// Longest message.
    pub fn bytes_max(&self) -> usize {
        self.first + (self.packets_max - 1) * self.rest
    }

    /// Which bytes of the message go into packet `index`.
    pub fn range(&self, index: u16, len: usize) -> Range<usize> {
        match usize::from(index) {
            0 if len <= self.single => 0..len,
            0 => 0..self.first,
            index => {
                let start = self.first + (index - 1) * self.rest;
                start..(start + self.rest).min(len)
            }
        }
    }

    fn packets_max(extended: bool) -> usize {
        if extended { PACKETS_MAX_EXTENDED } else { PACKETS_MAX_COMPATIBLE }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the packets of a message are its bytes, once each and in order, and the figures of the authors'
    //! library.
    use super::*;

    #[test]
    fn packets_cover_the_message() {
        for cut in [Cut::request(false), Cut::request(true), Cut::reply(false), Cut::reply(true)] {
            for len in [0, 1, 14, 15, 1391, 1392, 1393, 1440, 1441, 1464, 1465, 2912, 5000, 300_000, 370_000]
            {
                let Some(count) = cut.count(len) else { panic!("{len} bytes are too many") };
                let mut at = 0;
                for index in 0..count {
                    let range = cut.range(index, len);
                    assert_eq!(range.start, at, "packet {index} of {len} bytes");
                    assert!(range.len() <= PAYLOAD_BYTES_MAX && (len == 0 || !range.is_empty()));
                    at = range.end;
                }
                assert_eq!(at, len);
            }
            assert!(cut.count(cut.bytes_max()).is_some() && cut.count(cut.bytes_max() + 1).is_none());
        }
    }

    #[test]
    fn counts_are_the_authors() {
        let (request, reply) = (Cut::request(false), Cut::reply(false));
        assert_eq!([1464, 1465, 1478, 1479].map(|len| request.count(len)), [1, 2, 2, 3].map(Some));
        assert_eq!([0, 1464, 1465, 5000].map(|len| reply.count(len)), [1, 1, 2, 4].map(Some));
    }
}
