//! Telling a forked child from the process that attached.
//!
//! A child made by `fork` without `exec` inherits every object of the parent, among them rings that exactly one
//! process may use. Asking for the process id before every call would be a system call. Instead one anonymous page
//! is marked `MADV_WIPEONFORK`: the kernel hands the child a page of zeros, so the question costs one load.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Remembers the process it was made in.
///
/// The client library keeps one per session and asks [`ForkGuard::is_foreign`] at the start of every operation. When
/// it answers `true`, this process is a child forked after the session was opened: the library must not touch rings,
/// heaps or doorbells of that session, closes its descriptors (so that the daemon sees the parent's death when it
/// comes), forgets it, and attaches anew when the child makes a call.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    born: u64,
    /// Kept beside it, because asking is on the way of every field that is set.
    word: &'static AtomicU64,
}

impl ForkGuard {
    /// Remembers the calling process.
    #[must_use]
    pub fn new() -> ForkGuard {
        ForkGuard { born: generation(), word: generation_word() }
    }

    /// Whether this is another process than the one that called [`ForkGuard::new`].
    #[inline]
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        // A child that has not been named yet reads zero, which nobody was born as.
        self.word.load(Ordering::Relaxed) != self.born
    }
}

impl PartialEq for ForkGuard {
    /// Whether both were made in one process.
    fn eq(&self, other: &ForkGuard) -> bool {
        self.born == other.born
    }
}

impl Eq for ForkGuard {}

impl Default for ForkGuard {
    fn default() -> ForkGuard {
        ForkGuard::new()
    }
}

/// A number that this process has and no process it descends from had.
#[inline]
fn generation() -> u64 {
    match generation_word().load(Ordering::Relaxed) {
        0 => name_generation(),
        known => known,
    }
}

/// First question after a fork (or ever): gives this process a number above its parent's.
#[cold]
fn name_generation() -> u64 {
    /// Generations ever named, in ordinary memory: a child's copy begins where its parent's stood. It is raised before
    /// the page is written, so that a fork between the two still gives the child another number than its parent.
    static NAMED: AtomicU64 = AtomicU64::new(0);
    // SYNC: pairs with itself in another thread of this process: every name is given once.
    let next = NAMED.fetch_add(1, Ordering::AcqRel) + 1;
    // SYNC: pairs with the same exchange in another thread: whoever comes second reads the name the first wrote.
    match generation_word().compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => next,
        Err(named_by_another_thread) => named_by_another_thread,
    }
}

#[inline]
fn generation_word() -> &'static AtomicU64 {
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
    // SYNC: pairs with the exchange in `first_page`: whoever sees the pointer sees the page.
    let page = PAGE.load(Ordering::Acquire);
    let page = if page.is_null() { first_page(&PAGE) } else { page };
    // SAFETY: `wiped_page` returned a page-aligned, zeroed, writable mapping that lives as long as the process.
    unsafe { &*page }
}

/// Maps the page. Not behind a `Once`: a child forked while another thread is inside would wait for it for ever.
#[cold]
fn first_page(page: &AtomicPtr<AtomicU64>) -> *mut AtomicU64 {
    let made = wiped_page().as_ptr();
    // SYNC: pairs with the load in `generation_word`, and with this exchange in another thread, whose page counts if it
    // came first; ours is then left unused.
    match page.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(others) => others,
    }
}

/// A value of which every process has its own: what is behind a lock in a `static` may be locked for ever in a forked
/// child, by a thread that was not forked with it. A child begins with the default.
///
/// ```
/// # use std::sync::Mutex;
/// # use trunkline_shm::PerProcess;
/// static NAMES: PerProcess<Mutex<Vec<String>>> = PerProcess::new();
/// NAMES.get().lock().unwrap().push("one".into());
/// assert_eq!(NAMES.get().lock().unwrap().len(), 1);
/// ```
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    /// The value of the youngest process that has one. Never freed: one for each generation of processes.
    youngest: AtomicPtr<Own<T>>,
}

#[derive(Debug)]
struct Own<T> {
    guard: ForkGuard,
    value: T,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// Nobody has a value yet.
    #[must_use]
    pub const fn new() -> PerProcess<T> {
        PerProcess { youngest: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// This process's value.
    pub fn get(&self) -> &'static T {
        // SYNC: pairs with the exchange in `PerProcess::begin`: whoever sees the pointer sees the value.
        let youngest = self.youngest.load(Ordering::Acquire);
        // SAFETY: null, or from a `Box` that `begin` leaked.
        match unsafe { youngest.as_ref() } {
            Some(own) if !own.guard.is_foreign() => &own.value,
            _ => self.begin(youngest),
        }
    }

    #[cold]
    fn begin(&self, parents: *mut Own<T>) -> &'static T {
        let own = Box::into_raw(Box::new(Own { guard: ForkGuard::new(), value: T::default() }));
        // SYNC: pairs with the load in `PerProcess::get`, and with this exchange in another thread of this process,
        // whose value counts if it came first; ours is then left unused.
        let exchanged = self.youngest.compare_exchange(parents, own, Ordering::AcqRel, Ordering::Acquire);
        let counts = exchanged.map_or_else(|others| others, |_| own);
        // SAFETY: from a `Box` that was leaked here, or in another thread of this process just now.
        unsafe { &(*counts).value }
    }
}

impl<T: Default + Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

/// A page of zeros that is zeros again in every forked child.
///
/// Panics when the kernel refuses one anonymous page or does not know `MADV_WIPEONFORK` (Linux 4.14): without it
/// a forked child could not be told from its parent, and going on would corrupt the parent's calls.
fn wiped_page() -> NonNull<AtomicU64> {
    const PAGE_BYTES: usize = 4096;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no existing memory.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, prot, MapFlags::PRIVATE) };
    let page = page.expect("one anonymous page for fork detection");
    // SAFETY: the range is exactly the mapping made above; the advice changes nothing in this process.
    let advised = unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) };
    advised.expect("MADV_WIPEONFORK, Linux 4.14 or later");
    NonNull::new(page.cast()).expect("a mapping is not at address zero")
}
