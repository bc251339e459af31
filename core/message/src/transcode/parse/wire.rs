//! The bytes being read, and looking at them a window at a time.

use crate::transcode::varint::{Overlong, WINDOW, length, varint, word64};

/// The wire bytes of a message, shorter than 2 GiB.
#[derive(Clone, Copy)]
pub(super) struct Wire<'a> {
    bytes: &'a [u8],
    tail: &'a Tail,
}

/// The wire's last bytes, followed by zeros, so that a window may be looked at anywhere. A varint that the end cuts
/// short is thereby read to an end behind it, which the position then tells.
pub(super) struct Tail {
    bytes: [u8; 2 * WINDOW],
    /// Where the copy starts.
    at: u32,
}

impl Tail {
    pub(super) fn of(wire: &[u8]) -> Self {
        let mut bytes = [0; 2 * WINDOW];
        if let (Some(last), Some(start)) = (wire.last_chunk(), bytes.first_chunk_mut::<WINDOW>()) {
            *start = *last;
        } else if let Some(start) = bytes.get_mut(..wire.len()) {
            start.copy_from_slice(wire);
        }
        Tail { bytes, at: wire.len().saturating_sub(WINDOW) as u32 }
    }

    #[cold]
    #[inline(never)]
    fn window(&self, at: u32) -> &[u8; WINDOW] {
        let from = (at.saturating_sub(self.at) as usize).min(WINDOW);
        match self.bytes.get(from..from + WINDOW).map(TryInto::try_into) {
            Some(Ok(window)) => window,
            _ => &[0; WINDOW],
        }
    }
}

/// A field's first look: its tag and the bytes of its value.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    /// The tag's last byte, then the value: always at the same place, whatever the length of the tag.
    pub window: &'a [u8; WINDOW],
    pub tag: u32,
    /// Where the value starts.
    pub value_at: u32,
}

impl Head<'_> {
    /// The value as a varint, and its length.
    #[inline(always)]
    pub(super) fn varint(&self) -> Result<(u64, u32), Overlong> {
        varint(self.window, 1)
    }

    /// The value's length, and the length of that.
    #[inline(always)]
    pub(super) fn length(&self) -> Result<(u64, u32), Overlong> {
        length(self.window, 1)
    }
}

impl<'a> Wire<'a> {
    pub(super) fn new(bytes: &'a [u8], tail: &'a Tail) -> Self {
        Wire { bytes, tail }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// The bytes at `at`, with zeros where there are no more.
    #[inline(always)]
    pub(super) fn window(&self, at: u32) -> &'a [u8; WINDOW] {
        let from = at as usize;
        match self.bytes.get(from..from + WINDOW).map(TryInto::try_into) {
            Some(Ok(window)) => window,
            _ => self.tail.window(at),
        }
    }

    /// A range that was found to be inside the wire.
    #[inline(always)]
    pub(super) fn range(&self, from: u32, until: u32) -> &'a [u8] {
        self.bytes.get(from as usize..until as usize).unwrap_or_default()
    }
}

/// The raw bytes of a tag, to find the same field again without decoding.
#[derive(Clone, Copy)]
pub(super) struct TagBytes {
    raw: u64,
    mask: u64,
    /// Length of the tag.
    pub bytes: u32,
}

impl TagBytes {
    /// The tag at `at`, whose head is `head`.
    #[inline(always)]
    pub(super) fn at(wire: &Wire<'_>, at: u32, head: Head<'_>) -> Self {
        let bytes = head.value_at - at;
        let mask = (1 << (8 * (bytes & 7))) - 1;
        TagBytes { raw: word64(wire.window(at), 0) & mask, mask, bytes }
    }

    #[inline(always)]
    pub(super) fn starts(self, window: &[u8; WINDOW]) -> bool {
        word64(window, 0) & self.mask == self.raw
    }
}
