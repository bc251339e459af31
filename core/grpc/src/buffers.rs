//! Buffers of long messages, used again and again.
//!
//! The allocator gives memory of such a length back to the system soon after it is free, and every page of it that is
//! touched anew costs a fault: of a message of 400 KB that is a tenth of what carrying it takes. So a buffer comes back
//! when the last of what was in it has been dropped, wherever that happens, and the next message gets it.
//!
//! What somebody has announced and not sent may have such a buffer, too. So those in use count as those at rest do, and
//! there are never more than 4 MiB of both: who comes then gets memory of its own, as if there were no such buffers.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// From here on a message is long.
pub const LONG_BYTES: usize = 64 << 10;
/// What one buffer may have, and what all may, those in use among them.
const BUFFER_BYTES_MAX: usize = 1 << 20;
const OWNED_BYTES_MAX: usize = 4 << 20;

/// Buffers that are used again. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LongBuffers(Arc<Mutex<Owned>>);

#[derive(Debug, Default)]
struct Owned {
    at_rest: VecDeque<Vec<u8>>,
    /// Of those at rest and those in use.
    bytes: usize,
}

/// Memory for a message, which goes back where it is from.
#[derive(Debug, Default)]
pub struct LongBuffer {
    /// What is in it. A buffer that was used before still holds what was in it last.
    pub bytes: Vec<u8>,
    /// Whose it is, and for how much it counts there.
    home: Option<(LongBuffers, usize)>,
}

/// A buffer whose content is read from there on.
struct Read(LongBuffer, usize);

impl LongBuffers {
    /// A buffer that has room for so many bytes, or, if none is at rest, an empty one.
    pub fn take(&self, bytes: usize) -> LongBuffer {
        let Some(buffer) = self.owned().take(bytes) else { return LongBuffer::default() };
        let counted = buffer.capacity();
        LongBuffer { bytes: buffer, home: Some((self.clone(), counted)) }
    }

    /// What a buffer holds from there on. With the last part of it the buffer comes here, if there is room for it.
    pub fn share(&self, mut buffer: LongBuffer, from: usize) -> Bytes {
        let bytes = buffer.bytes.capacity();
        if buffer.home.is_none() && self.owned().adopt(bytes) {
            buffer.home = Some((self.clone(), bytes));
        }
        Bytes::from_owner(Read(buffer, from))
    }

    /// A panic elsewhere leaves them whole: what is done to them is one step.
    fn owned(&self) -> MutexGuard<'_, Owned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owned {
    /// The one that came last is the likeliest to be in the processor's cache.
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let at = self.at_rest.iter().rposition(|buffer| buffer.capacity() >= bytes)?;
        self.at_rest.remove(at)
    }

    /// Makes room for one more, for which the oldest at rest give way.
    fn adopt(&mut self, bytes: usize) -> bool {
        if !(LONG_BYTES..=BUFFER_BYTES_MAX).contains(&bytes) {
            return false;
        }
        while self.bytes + bytes > OWNED_BYTES_MAX {
            let Some(oldest) = self.at_rest.pop_front() else { return false };
            self.bytes -= oldest.capacity();
        }
        self.bytes += bytes;
        true
    }

    /// It may have grown meanwhile, or be gone.
    fn put(&mut self, buffer: Vec<u8>, counted: usize) {
        self.bytes -= counted;
        if self.adopt(buffer.capacity()) {
            self.at_rest.push_back(buffer);
        }
    }
}

impl Drop for LongBuffer {
    fn drop(&mut self) {
        if let Some((home, counted)) = self.home.take() {
            home.owned().put(std::mem::take(&mut self.bytes), counted);
        }
    }
}

impl AsRef<[u8]> for Read {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes.get(self.1..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a buffer comes back once, with the last part of what was in it, and that there is a bound.
    use super::*;

    fn fresh(bytes: usize) -> LongBuffer {
        LongBuffer { bytes: vec![7; bytes], home: None }
    }

    fn sizes_at_rest(buffers: &LongBuffers) -> Vec<usize> {
        buffers.owned().at_rest.iter().map(Vec::capacity).collect()
    }

    #[test]
    fn a_buffer_comes_back_with_its_last_part() {
        let buffers = LongBuffers::default();
        assert_eq!(buffers.take(1).bytes.capacity(), 0);
        let buffer = fresh(LONG_BYTES);
        let memory = buffer.bytes.as_ptr();
        let mut shared = buffers.share(buffer, 5);
        assert_eq!(shared.len(), LONG_BYTES - 5);
        let front = shared.split_to(100);
        drop(shared);
        assert!(sizes_at_rest(&buffers).is_empty(), "its front is still there");
        drop(std::thread::spawn(move || drop(front)).join());
        assert_eq!(sizes_at_rest(&buffers), [LONG_BYTES]);
        assert_eq!(buffers.take(LONG_BYTES + 1).bytes.capacity(), 0, "it is shorter");
        let again = buffers.take(LONG_BYTES);
        assert!(std::ptr::eq(again.bytes.as_ptr(), memory) && sizes_at_rest(&buffers).is_empty());
        drop(again);
        assert_eq!(sizes_at_rest(&buffers), [LONG_BYTES], "what was never shared comes back as well");
    }

    #[test]
    fn those_in_use_count() {
        let buffers = LongBuffers::default();
        for too_short_or_long in [0, LONG_BYTES - 1, BUFFER_BYTES_MAX + 1] {
            drop(buffers.share(fresh(too_short_or_long), 0));
            assert!(sizes_at_rest(&buffers).is_empty());
        }
        drop(buffers.share(fresh(LONG_BYTES), 0));
        let many: Vec<Bytes> = (0..10).map(|_| buffers.share(fresh(BUFFER_BYTES_MAX), 0)).collect();
        assert!(sizes_at_rest(&buffers).is_empty(), "the oldest gave way");
        assert_eq!(buffers.owned().bytes, OWNED_BYTES_MAX);
        drop(many);
        assert_eq!(sizes_at_rest(&buffers), [BUFFER_BYTES_MAX; OWNED_BYTES_MAX / BUFFER_BYTES_MAX]);
        let announced: Vec<LongBuffer> = (0..10).map(|_| buffers.take(BUFFER_BYTES_MAX)).collect();
        drop(buffers.share(fresh(BUFFER_BYTES_MAX), 0));
        assert!(sizes_at_rest(&buffers).is_empty(), "there are as many as may be");
        drop(announced);
        assert_eq!(buffers.owned().bytes, OWNED_BYTES_MAX);
    }

    #[test]
    fn one_that_was_lost_or_grew_counts_for_what_it_is() {
        let buffers = LongBuffers::default();
        (0..2).for_each(|_| drop(buffers.share(fresh(LONG_BYTES), 0)));
        let (mut lost, mut grown) = (buffers.take(1), buffers.take(1));
        lost.bytes = Vec::new();
        grown.bytes = vec![7; 3 * LONG_BYTES];
        drop((lost, grown));
        assert_eq!((sizes_at_rest(&buffers), buffers.owned().bytes), (vec![3 * LONG_BYTES], 3 * LONG_BYTES));
    }
}
