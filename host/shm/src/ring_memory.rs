//! The words of one ring: in a mapped region, or in loom's heap when the models run.

#[cfg(not(loom))]
pub(crate) use mapped::RingMemory;
#[cfg(loom)]
pub(crate) use modelled::RingMemory;

#[cfg(not(loom))]
mod mapped {
    use std::mem::offset_of;
    use std::ptr::NonNull;

    use crate::entry::Entry;
    use crate::layout::{RINGS_HEADER_BYTES, RingLines, RingsPage, Slot};
    use crate::region::Region;
    use crate::sync::{Arc, AtomicU32, Ordering};

    /// Which of the two rings of a rings region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Which {
        Submission,
        Completion,
    }

    /// One ring's words within a rings region, kept mapped.
    #[derive(Clone, Debug)]
    pub(crate) struct RingMemory {
        region: Arc<Region>,
        lines: NonNull<RingLines>,
        slots: NonNull<Slot>,
        capacity: u32,
    }

    // SAFETY: both pointers lead into `region`, which this value keeps alive, and all they reach is atomic.
    unsafe impl Send for RingMemory {}
    // SAFETY: as above.
    unsafe impl Sync for RingMemory {}

    impl RingMemory {
        /// The ring `which`, whose `capacity` entries begin at byte `slots_at`. `None` when the region is too
        /// short for them; the capacity must be a power of two.
        pub(crate) fn new(
            region: &Arc<Region>,
            which: Which,
            slots_at: usize,
            capacity: u32,
        ) -> Option<RingMemory> {
            let slots_bytes = capacity as usize * size_of::<Slot>();
            let fits = slots_at >= RINGS_HEADER_BYTES && slots_at.checked_add(slots_bytes)? <= region.bytes();
            if !fits || !capacity.is_power_of_two() || !slots_at.is_multiple_of(align_of::<RingLines>()) {
                return None;
            }
            let lines_at = match which {
                Which::Submission => offset_of!(RingsPage, submission),
                Which::Completion => offset_of!(RingsPage, completion),
            };
            // SAFETY: `lines_at` lies in a RingsPage, and the region is longer than that (RINGS_HEADER_BYTES).
            let lines = unsafe { region.base().add(lines_at) }.cast();
            // SAFETY: `slots_at + slots_bytes <= region.bytes()`, checked above.
            let slots = unsafe { region.base().add(slots_at) };
            Some(RingMemory { region: region.clone(), lines, slots: slots.cast(), capacity })
        }

        #[inline]
        fn lines(&self) -> &RingLines {
            // SAFETY: `new` checked that the lines lie in the region, page-aligned; they are atomics, valid for any
            // bytes the other side may write, and `region` keeps them mapped.
            unsafe { self.lines.as_ref() }
        }

        #[inline]
        pub(crate) fn tail(&self) -> &AtomicU32 {
            &self.lines().tail.word
        }

        #[inline]
        pub(crate) fn head(&self) -> &AtomicU32 {
            &self.lines().head.word
        }

        #[inline]
        pub(crate) fn sleeping(&self) -> &AtomicU32 {
            &self.lines().bell.sleeping
        }

        #[inline]
        pub(crate) fn rung(&self) -> &AtomicU32 {
            &self.lines().bell.rung
        }

        /// Writes the entry with running number `index`, word by word.
        #[inline]
        pub(crate) fn write(&self, index: u32, entry: &Entry) {
            for (word, value) in self.slot(index).iter().zip(entry) {
                word.store(*value, Ordering::Relaxed);
            }
        }

        /// A private copy of the entry with running number `index`; if the other side keeps no rules, of any words.
        #[inline]
        pub(crate) fn read(&self, index: u32) -> Entry {
            let mut entry = Entry::default();
            for (value, word) in entry.iter_mut().zip(self.slot(index)) {
                *value = word.load(Ordering::Relaxed);
            }
            entry
        }

        #[inline]
        fn slot(&self, index: u32) -> &Slot {
            let within = (index & (self.capacity - 1)) as usize;
            // SAFETY: `within < capacity`, and `new` checked that all slots lie in the region.
            let slot = unsafe { self.slots.add(within) };
            // SAFETY: atomics, aligned because the first slot is and a slot is 64 bytes; `region` keeps them mapped.
            unsafe { slot.as_ref() }
        }

        #[inline]
        pub(crate) fn capacity(&self) -> u32 {
            self.capacity
        }

        #[inline]
        pub(crate) fn is_foreign(&self) -> bool {
            self.region.is_foreign()
        }
    }
}

#[cfg(not(loom))]
pub(crate) use mapped::Which;

#[cfg(loom)]
mod modelled {
    use loom::cell::UnsafeCell;

    use crate::entry::Entry;
    use crate::sync::{Arc, AtomicU32};

    /// The slots are cells, not atomics: loom fails the model when a read and a write of one are not ordered, which
    /// proves that between two sides that keep the rules no entry is ever torn.
    #[derive(Debug)]
    struct Words {
        tail: AtomicU32,
        head: AtomicU32,
        sleeping: AtomicU32,
        rung: AtomicU32,
        slots: Vec<UnsafeCell<Entry>>,
    }

    /// One ring's words as loom's.
    #[derive(Clone, Debug)]
    pub(crate) struct RingMemory(Arc<Words>);

    impl RingMemory {
        pub(crate) fn new(capacity: u32, start: u32) -> RingMemory {
            assert!(capacity.is_power_of_two());
            RingMemory(Arc::new(Words {
                tail: AtomicU32::new(start),
                head: AtomicU32::new(start),
                sleeping: AtomicU32::new(0),
                rung: AtomicU32::new(0),
                slots: (0..capacity).map(|_| UnsafeCell::new(Entry::default())).collect(),
            }))
        }

        pub(crate) fn tail(&self) -> &AtomicU32 {
            &self.0.tail
        }

        pub(crate) fn head(&self) -> &AtomicU32 {
            &self.0.head
        }

        pub(crate) fn sleeping(&self) -> &AtomicU32 {
            &self.0.sleeping
        }

        pub(crate) fn rung(&self) -> &AtomicU32 {
            &self.0.rung
        }

        pub(crate) fn write(&self, index: u32, entry: &Entry) {
            // SAFETY: loom checks that nobody else accesses the cell meanwhile, and fails the model otherwise.
            self.slot(index).with_mut(|slot| unsafe { *slot = *entry });
        }

        pub(crate) fn read(&self, index: u32) -> Entry {
            // SAFETY: loom checks that nobody writes the cell meanwhile, and fails the model otherwise.
            self.slot(index).with(|slot| unsafe { *slot })
        }

        fn slot(&self, index: u32) -> &UnsafeCell<Entry> {
            &self.0.slots[(index & (self.capacity() - 1)) as usize]
        }

        pub(crate) fn capacity(&self) -> u32 {
            self.0.slots.len() as u32
        }

        pub(crate) fn is_foreign(&self) -> bool {
            false
        }
    }
}
