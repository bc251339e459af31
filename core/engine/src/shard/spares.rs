//! Memory of what has crossed, to be used again by the shard it is from.
//!
//! An opening and an end are large, and boxed: they pass three queues. The shard that reads one has no use for the box,
//! and the one that fills it needs the next. So boxes go back, many at a time. Freed on another thread than they were
//! allocated on, or many at once, they cost the allocator a fifth of what the crossing takes.

/// Boxes that are not in use. What they held last that others hold, too, they hold until they are used again.
#[derive(Debug)]
pub(crate) struct Spares<O, F> {
    openings: Vec<Box<O>>,
    finishes: Vec<Box<F>>,
}

/// Buffers of messages that were used: as many come as go.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(Vec<Vec<u8>>);

/// Buffers that are kept, and how large each may be: 256 KiB.
const BUFFERS_MAX: usize = 256;
const BUFFER_BYTES_MAX: usize = 1024;
/// Boxes of each kind that are kept: 64 KiB.
const BOXES_MAX: usize = 256;
/// Boxes that go back together.
const RETURNED: usize = 32;

impl<O: Default, F: Default> Spares<O, F> {
    /// A box to be filled: whatever is left in it is written over.
    #[inline]
    pub fn opening(&mut self) -> Box<O> {
        self.openings.pop().unwrap_or_default()
    }

    /// The same.
    #[inline]
    pub fn finish(&mut self) -> Box<F> {
        self.finishes.pop().unwrap_or_default()
    }
}

impl<O, F> Spares<O, F> {
    /// A box that is empty. Whether so many are by now that they are worth a word.
    #[inline]
    pub fn put_opening(&mut self, opening: Box<O>) -> bool {
        put(&mut self.openings, opening)
    }

    /// The same.
    #[inline]
    pub fn put_finish(&mut self, finish: Box<F>) -> bool {
        put(&mut self.finishes, finish)
    }

    /// Those that have come back; what is too many is freed.
    pub fn take_back(&mut self, spares: Self) {
        let Self { openings, finishes } = spares;
        take_back(&mut self.openings, openings);
        take_back(&mut self.finishes, finishes);
    }
}

impl SpareBuffers {
    /// A buffer to be written over: the message that it held last is in it.
    #[inline]
    pub fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// One that is not used any more. Large ones go back to the allocator.
    #[inline]
    pub fn put_by(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= BUFFER_BYTES_MAX && self.0.len() < BUFFERS_MAX {
            self.0.push(buffer);
        }
    }
}

impl<O, F> Default for Spares<O, F> {
    fn default() -> Self {
        Self { openings: Vec::new(), finishes: Vec::new() }
    }
}

#[inline]
fn put<T>(spare: &mut Vec<Box<T>>, used: Box<T>) -> bool {
    if spare.capacity() == 0 {
        spare.reserve_exact(RETURNED);
    }
    if spare.len() < BOXES_MAX {
        spare.push(used);
    }
    spare.len() >= RETURNED
}

fn take_back<T>(spare: &mut Vec<Box<T>>, returned: Vec<Box<T>>) {
    let room = BOXES_MAX.saturating_sub(spare.len());
    spare.extend(returned.into_iter().take(room));
}
