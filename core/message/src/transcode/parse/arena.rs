//! The memory a message is decoded into: one buffer, filled upwards.
//!
//! Nothing is freed and nothing but the arrays below ever moves. A buffer that turns out too small stops the parser
//! ([`Full`]); the caller grows it and parses again, so no offset has to survive a move and the parser holds a plain
//! `&mut [u8]`. Growth at least doubles, so all the vain attempts together cost less than the last one.
//!
//! Writes into a block cannot fail: a block is inside the buffer when it is handed out, and the tables keep slots
//! inside their block. They are bounds-checked all the same, and a write that missed would be dropped.

/// The buffer is too small for the message.
pub(super) struct Full;

/// A buffer and the end of its used part. Offsets are from the buffer's start; a buffer is shorter than 2 GiB.
pub(super) struct Arena<'a> {
    buffer: &'a mut [u8],
    top: u32,
}

impl<'a> Arena<'a> {
    /// An arena whose first `top` bytes are spoken for.
    pub(super) fn new(buffer: &'a mut [u8], top: u32) -> Self {
        Arena { buffer, top }
    }

    /// Bytes in use.
    #[inline(always)]
    pub(super) fn top(&self) -> u32 {
        self.top
    }

    /// Bytes there are.
    #[inline(always)]
    pub(super) fn end(&self) -> u32 {
        self.buffer.len() as u32
    }

    /// Moves the top to `top`, which the caller has filled up to.
    #[inline(always)]
    pub(super) fn raise(&mut self, top: u32) -> Result<(), Full> {
        if top > self.end() {
            return Err(Full);
        }
        self.top = top;
        Ok(())
    }

    /// The next multiple of eight, with the bytes up to it cleared: what lies in a gap is a function of the message,
    /// not of what the buffer held before.
    #[inline(always)]
    pub(super) fn aligned_top(&mut self) -> u32 {
        self.put(self.top, [0; 8]);
        (self.top + 7) & !7
    }

    /// A new zeroed block of `bytes` (a multiple of 8).
    #[inline(always)]
    pub(super) fn block(&mut self, bytes: u32) -> Result<u32, Full> {
        let at = (self.top + 7) & !7;
        // From the top, so that the gap is cleared too. What lies above the block is free: most blocks are cleared by a
        // few stores whatever their size.
        *self.bytes_mut::<72>(self.top).ok_or(Full)? = [0; 72];
        if bytes > 64 {
            self.clear(self.top + 72, at + bytes)?;
        }
        self.top = at + bytes;
        Ok(at)
    }

    /// Puts `bytes` bytes (at most 16) to the top, of a block of sixteen.
    #[inline(always)]
    pub(super) fn append_block(&mut self, block: &[u8; 16], bytes: u32) -> Result<u32, Full> {
        let at = self.top;
        *self.bytes_mut(at).ok_or(Full)? = *block;
        self.top = at + bytes;
        Ok(at)
    }

    /// Makes room for `bytes` at the top, to be filled by the caller.
    #[inline(always)]
    pub(super) fn append(&mut self, bytes: u32) -> Result<(u32, &mut [u8]), Full> {
        let at = self.top;
        let room = self.buffer.get_mut(at as usize..at as usize + bytes as usize).ok_or(Full)?;
        self.top = at + bytes;
        Ok((at, room))
    }

    /// Copies `len` bytes from `from` to `to`.
    pub(super) fn relocate(&mut self, from: u32, len: u32, to: u32) -> Result<(), Full> {
        let (from, len, to) = (from as usize, len as usize, to as usize);
        if to + len > self.buffer.len() || from + len > self.buffer.len() {
            return Err(Full);
        }
        self.buffer.copy_within(from..from + len, to);
        Ok(())
    }

    /// Clears `from..to`; nothing if that is empty.
    #[inline(never)]
    pub(super) fn clear(&mut self, from: u32, to: u32) -> Result<(), Full> {
        if from < to {
            self.buffer.get_mut(from as usize..to as usize).ok_or(Full)?.fill(0);
        }
        Ok(())
    }

    /// The bytes from `from` to `until`; none if they are not in the buffer.
    #[inline(always)]
    pub(super) fn between(&mut self, from: u32, until: u32) -> &mut [u8] {
        self.buffer.get_mut(from as usize..until as usize).unwrap_or_default()
    }

    /// The `len` bytes at `at`, to be filled by the caller.
    #[inline(always)]
    pub(super) fn range_mut(&mut self, at: u32, len: u32) -> Result<&mut [u8], Full> {
        self.buffer.get_mut(at as usize..at as usize + len as usize).ok_or(Full)
    }

    /// Writes `N` bytes at `at`; out of range it does nothing.
    #[inline(always)]
    pub(super) fn put<const N: usize>(&mut self, at: u32, value: [u8; N]) {
        if let Some(to) = self.bytes_mut(at) {
            *to = value;
        }
    }

    /// Writes two words, as the slot of a string or array.
    #[inline(always)]
    pub(super) fn put_pair(&mut self, at: u32, offset: u32, count: u32) {
        self.put(at, (u64::from(offset) | u64::from(count) << 32).to_le_bytes());
    }

    /// Sets the presence bits 0..63 of the block at `base` that are set in `present`.
    #[inline(always)]
    pub(super) fn merge_presence(&mut self, base: u32, words: u32, present: u64) {
        if words == 1 {
            let word = self.word(base + 4) | present as u32;
            self.put(base + 4, word.to_le_bytes());
        } else if words > 1 {
            let pair = u64::from(self.word(base + 4)) | u64::from(self.word(base + 8)) << 32;
            self.put(base + 4, (pair | present & (u64::MAX >> 1)).to_le_bytes());
        }
    }

    /// The word at `at`; 0 out of range.
    #[inline(always)]
    pub(super) fn word(&self, at: u32) -> u32 {
        match self.buffer.get(at as usize..at as usize + 4).map(TryInto::try_into) {
            Some(Ok(word)) => u32::from_le_bytes(word),
            _ => 0,
        }
    }

    /// The two words at `at`.
    #[inline(always)]
    pub(super) fn pair(&self, at: u32) -> (u32, u32) {
        (self.word(at), self.word(at + 4))
    }

    #[inline(always)]
    fn bytes_mut<const N: usize>(&mut self, at: u32) -> Option<&mut [u8; N]> {
        self.buffer.get_mut(at as usize..at as usize + N)?.try_into().ok()
    }
}
