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

/// Boxes of messages that were used, with the bytes they held last: as many come as go.
#[derive(Debug)]
pub(crate) struct SpareBodies<B>(Vec<Box<B>>);

/// Messages that are kept, and how large each may be: 256 KiB.
const BODIES_MAX: usize = 256;
const BODY_BYTES_MAX: usize = 1024;
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

impl<B: Default> SpareBodies<B> {
    /// One to be written over: the message that it held last is in it.
    #[inline]
    pub fn take(&mut self) -> Box<B> {
        self.0.pop().unwrap_or_default()
    }

    /// One that is not used any more, and holds so many bytes. Large ones go back to the allocator.
    #[inline]
    pub fn put_by(&mut self, held_bytes: usize, body: Box<B>) {
        if held_bytes <= BODY_BYTES_MAX && self.0.len() < BODIES_MAX {
            self.0.push(body);
        }
    }
}

impl<B> Default for SpareBodies<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O, F> Default for Spares<O, F> {
    fn default() -> Self {
        Self { openings: Vec::new(), finishes: Vec::new() }
    }
}

#[inline(always)]
fn put<T>(spare: &mut Vec<Box<T>>, used: Box<T>) -> bool {
    if spare.len() == spare.capacity() {
        make_room(spare);
    }
    // As many as are kept are there: this one is freed.
    if spare.len() < spare.capacity() {
        spare.push(used);
    }
    spare.len() >= RETURNED
}

#[cold]
fn make_room<T>(spare: &mut Vec<Box<T>>) {
    let more = RETURNED.min(BOXES_MAX.saturating_sub(spare.len()));
    spare.reserve_exact(more);
}

fn take_back<T>(spare: &mut Vec<Box<T>>, returned: Vec<Box<T>>) {
    let room = BOXES_MAX.saturating_sub(spare.len());
    spare.extend(returned.into_iter().take(room));
}
