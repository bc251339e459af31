//! The objects behind handles. A handle is index and generation of a place in a table that only grows.
//!
//! A thread that forks holds all locks of the table meanwhile, so the child finds none that a thread holds which it
//! does not have. The locks are the standard library's: what sleeps in those is in no table that could be locked, too.

use crate::abi::tl_status;
use crate::objects::Object;
use rustix::process::getpid;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use trunkline::Status;

/// Handles at a time. Far more than calls, whose number the daemon bounds; a program that never releases what it
/// received meets this before it has used up the machine's memory.
pub(crate) const HANDLES_MAX: u32 = FIRST * ((1 << CHUNKS) - 1);

const FIRST: u32 = 64;
/// Each is twice as large as the one before.
const CHUNKS: usize = 16;

/// How long a child tries to lock a place that was not made by `fork` but by `clone`, without what holds the locks
/// meanwhile: whoever had the lock then does not exist there.
const CHILD_PATIENCE: Duration = Duration::from_secs(1);

const NOBODY: i32 = 0;

/// Somebody has waited for a lock without sleeping, as who cannot know whether it is ever unlocked.
#[cfg(test)]
pub(crate) static GIVING_UP: AtomicU32 = AtomicU32::new(0);

#[derive(Default)]
struct Place {
    /// Of the handle it belongs to, or will next.
    generation: u32,
    object: Option<Object>,
}

struct Table {
    /// Made by who has locked `free`.
    chunks: [OnceLock<Box<[Mutex<Place>]>>; CHUNKS],
    /// Places that were used and are free.
    free: Mutex<Vec<u32>>,
    /// Places that were ever used.
    used: AtomicU32,
    open: AtomicU64,
    /// The process whose threads alone have the table: that of the first handle, and each child that `fork` makes of
    /// it.
    owner: AtomicI32,
}

/// All locks of the table.
pub(crate) struct HeldTable {
    _free: Option<MutexGuard<'static, Vec<u32>>>,
    _places: Vec<MutexGuard<'static, Place>>,
}

static TABLE: Table = Table {
    chunks: [const { OnceLock::new() }; CHUNKS],
    free: Mutex::new(Vec::new()),
    owner: AtomicI32::new(NOBODY),
    used: AtomicU32::new(0),
    open: AtomicU64::new(0),
};

/// A handle for `object`.
///
/// # Errors
/// RESOURCE_EXHAUSTED with too many handles open.
pub(crate) fn insert(object: Object) -> Result<u64, Status> {
    let index = TABLE.vacant().ok_or_else(|| {
        Status::resource_exhausted(format!("{HANDLES_MAX} handles are open: release what is not needed"))
    })?;
    let place = TABLE.place(index).and_then(lock);
    let mut place =
        place.ok_or_else(|| Status::internal("a place of the handle table is locked for ever"))?;
    // 0 is no handle; a place that was used four thousand million times begins anew.
    place.generation = place.generation.wrapping_add(1).max(1);
    place.object = Some(object);
    TABLE.open.fetch_add(1, Ordering::Relaxed);
    Ok(u64::from(place.generation) << 32 | u64::from(index))
}

/// The object behind a handle.
pub(crate) fn get(id: u64) -> Option<Object> {
    TABLE.of(id)?.object.clone()
}

/// Ends a handle, and gives what it stood for.
pub(crate) fn remove(id: u64) -> Option<Object> {
    let object = TABLE.of(id)?.object.take()?;
    TABLE.open.fetch_sub(1, Ordering::Relaxed);
    if let Some(mut free) = lock(&TABLE.free) {
        free.push(id as u32);
    }
    Some(object)
}

/// Those behind which there are bytes of shared memory, with what they stand for.
pub(crate) fn those_of_memory() -> Vec<(u64, Object)> {
    let used = TABLE.used.load(Ordering::Relaxed).min(HANDLES_MAX);
    let of_memory = |index: u32| {
        let place = lock(TABLE.place(index)?)?;
        let object = match place.object.as_ref()? {
            object @ (Object::Message(_) | Object::Memory(_)) => object.clone(),
            _ => return None,
        };
        Some((u64::from(place.generation) << 32 | u64::from(index), object))
    };
    (0..used).filter_map(of_memory).collect()
}

/// Before a fork: has the table to itself, if there is memory for that. Others take one lock at a time, and hold it for
/// some instructions.
pub(crate) fn hold() -> HeldTable {
    let free = lock(&TABLE.free);
    let used = TABLE.used.load(Ordering::Relaxed).min(HANDLES_MAX);
    let mut places = Vec::new();
    if places.try_reserve_exact(used as usize).is_ok() {
        places.extend((0..used).filter_map(|index| lock(TABLE.place(index)?)));
    }
    HeldTable { _free: free, _places: places }
}

/// In a forked child: the table is its own from now on.
pub(crate) fn take_over(held: HeldTable) {
    drop(held);
    TABLE.owner.store(pid(), Ordering::Relaxed);
}

/// In a forked child, for its only thread: has a handle stand for something else. What it stood for is the parent's:
/// nothing is done with it. A place that was locked is left alone.
pub(crate) fn replace(id: u64, by: impl FnOnce(&Object) -> Option<Object>) {
    let Some(mut place) = TABLE.place(id as u32).and_then(lock) else { return };
    if place.generation == (id >> 32) as u32
        && let Some(new) = place.object.as_ref().and_then(by)
    {
        std::mem::forget(place.object.replace(new));
    }
}

/// A handle for how something failed; 0 if there is no room for one: the code has to do.
pub(crate) fn of_status(status: &Status) -> tl_status {
    if status.is_ok() {
        return tl_status::default();
    }
    insert(Object::Status(Arc::new(status.clone()))).map_or(tl_status::default(), |id| tl_status { id })
}

/// Handles that were not released.
pub(crate) fn open() -> u64 {
    TABLE.open.load(Ordering::Relaxed)
}

impl Table {
    /// The place of a handle that is open.
    fn of(&self, id: u64) -> Option<MutexGuard<'_, Place>> {
        // Null, which is no handle: nobody waits for a place for it.
        if id >> 32 == 0 {
            return None;
        }
        let place = lock(self.place(id as u32)?)?;
        (place.generation == (id >> 32) as u32 && place.object.is_some()).then_some(place)
    }

    fn place(&self, index: u32) -> Option<&Mutex<Place>> {
        let (chunk, at) = split(index)?;
        self.chunks[chunk].get()?.get(at)
    }

    /// A place nobody uses.
    fn vacant(&self) -> Option<u32> {
        if self.owner.load(Ordering::Relaxed) == NOBODY {
            // Who comes second finds the same process there.
            let _ = self.owner.compare_exchange(NOBODY, pid(), Ordering::Relaxed, Ordering::Relaxed);
        }
        let mut free = lock(&self.free)?;
        if let Some(index) = free.pop() {
            return Some(index);
        }
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        let Some((chunk, _)) = split(index) else {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| Mutex::default()).collect());
        Some(index)
    }
}

/// Chunk, and place in it.
fn split(index: u32) -> Option<(usize, usize)> {
    if index >= HANDLES_MAX {
        return None;
    }
    let chunk = (index / FIRST + 1).ilog2();
    let before = FIRST * ((1 << chunk) - 1);
    Some((chunk as usize, (index - before) as usize))
}

/// `None` only in a child of `clone`. Locks are held for some instructions; but a thread that is stopped in between
/// keeps its lock for as long as that takes.
fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if let Some(guard) = try_lock(mutex) {
        return Some(guard);
    }
    if TABLE.owner.load(Ordering::Relaxed) == pid() {
        return Some(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }
    #[cfg(test)]
    GIVING_UP.store(1, Ordering::Relaxed);
    lock_within(mutex, CHILD_PATIENCE)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// For a place that nobody may ever unlock.
fn lock_within<T>(mutex: &Mutex<T>, patience: Duration) -> Option<MutexGuard<'_, T>> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(guard) = try_lock(mutex) {
            return Some(guard);
        }
        std::thread::yield_now();
    }
    None
}

#[cfg(test)]
mod tests {
    //! Shows that a handle is good until its end and never after, however often its place is used again.
    use super::*;

    fn status(message: &str) -> Object {
        Object::Status(Arc::new(Status::internal(message)))
    }

    fn message_of(id: u64) -> Option<String> {
        match get(id)? {
            Object::Status(status) => Some(status.message().to_owned()),
            _ => None,
        }
    }

    #[test]
    fn indices_are_split_without_gaps() {
        assert_eq!(split(0), Some((0, 0)));
        assert_eq!(split(FIRST), Some((1, 0)));
        assert_eq!(split(3 * FIRST - 1), Some((1, 2 * FIRST as usize - 1)));
        assert_eq!(split(3 * FIRST), Some((2, 0)));
        assert_eq!(split(HANDLES_MAX - 1), Some((CHUNKS - 1, (FIRST << (CHUNKS - 1)) as usize - 1)));
        assert_eq!((split(HANDLES_MAX), split(u32::MAX)), (None, None));
    }

    #[test]
    fn ended_handles_stay_ended() {
        let ended: Vec<u64> = (0..300)
            .map(|number| {
                let id = insert(status(&number.to_string())).unwrap();
                assert_eq!(message_of(id).as_deref(), Some(number.to_string().as_str()));
                assert!(remove(id).is_some());
                id
            })
            .collect();
        let open: Vec<u64> = (0..300).map(|_| insert(status("open")).unwrap()).collect();
        for id in ended {
            assert!(get(id).is_none() && remove(id).is_none(), "{id:#x}");
        }
        for id in open {
            assert!(remove(id).is_some());
        }
        for id in [0, 1, u64::MAX, 1 << 32 | u64::from(u32::MAX)] {
            assert!(get(id).is_none(), "{id:#x}");
        }
    }
    /// A thread may be stopped with a lock for longer than anybody's patience.
    #[test]
    fn a_lock_that_is_held_for_long_is_waited_for() {
        let id = insert(status("held")).unwrap();
        let held = TABLE.of(id).unwrap();
        let (begins, begun) = std::sync::mpsc::channel();
        let asks = std::thread::spawn(move || {
            begins.send(()).unwrap();
            message_of(id)
        });
        begun.recv().unwrap();
        // More than ten thousand looks take.
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
        assert_eq!(asks.join().unwrap().as_deref(), Some("held"));
        assert!(remove(id).is_some());
    }

    /// What was locked when a child was made in another way is locked there for ever.
    #[test]
    fn a_child_gives_up() {
        let mutex = Mutex::new(());
        let _held = mutex.lock().unwrap();
        assert!(lock_within(&mutex, Duration::from_millis(10)).is_none());
    }
}
