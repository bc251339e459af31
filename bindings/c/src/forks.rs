//! Messages in a forked child: what lies in shared memory is not there, for the mappings are the parent's alone, and
//! whoever holds an address of it would fault.
//!
//! So the bytes of all messages and memory with open handles are copied before a fork, and put back in the child into
//! pages of its own at the same place. There they can be read, changed and sent like any others; they stay until the
//! child ends. What another thread receives or grows while this one forks is not among them: that thread is not in the
//! child, and a fork waits for nobody.
//! A process that holds nothing pays two looks at its handles: the locks of their table are held while it forks, so
//! that the child has them. `vfork` and `posix_spawn` come by here not at all.

use crate::handles::{self, HeldTable};
use crate::objects::{BuildingMemory, InheritedBytes, MessageBytes, Object};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::cell::RefCell;
use std::panic::catch_unwind;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline_message::Extent;

thread_local! {
    /// Of the thread that forks, from before until after.
    static COPIES: RefCell<Vec<CopiedMessage>> = const { RefCell::new(Vec::new()) };
    static HELD: RefCell<Option<HeldTable>> = const { RefCell::new(None) };
}

/// What a handle stands for, and its bytes.
struct CopiedMessage {
    handle: u64,
    address: usize,
    bytes: Vec<u8>,
}

impl CopiedMessage {
    fn of(handle: u64, memory: &[u8]) -> Option<Self> {
        let mut bytes = Vec::new();
        // What there is no room for is not there in the child.
        bytes.try_reserve_exact(memory.len()).ok()?;
        bytes.extend_from_slice(memory);
        Some(Self { handle, address: memory.as_ptr().addr(), bytes })
    }

    fn end(&self) -> usize {
        self.address + self.bytes.len()
    }
}

/// The C library calls it when it loads this one, before the program's `main`: what runs before a fork runs in the
/// reverse order of registration, so the program's own functions run before the table of handles is held, and after it
/// is let go. They may take locks under which other threads call this library, and call it themselves.
// SAFETY: the section holds addresses of functions that the C library calls once, with arguments that this one ignores.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOADING: extern "C" fn() = expect;

/// Has forks of this process come by here: once it is loaded, or, where a program has linked this crate's objects
/// without its sections, before there is a handle.
pub(crate) extern "C" fn expect() {
    // No `Once`: a child forked while another thread is inside would wait for it for ever. Who comes second may be done
    // before the first is: a fork in between is as one before.
    static EXPECTED: AtomicBool = AtomicBool::new(false);
    if !EXPECTED.load(Ordering::Relaxed) && !EXPECTED.swap(true, Ordering::Relaxed) {
        // SAFETY: the three functions live as long as this library: the C library forgets them when it is unloaded.
        // Without memory for the entry, forks are as they were.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

extern "C" fn before() {
    let _ = catch_unwind(|| {
        let copies: Vec<CopiedMessage> = handles::those_of_memory().into_iter().filter_map(copied).collect();
        let _ = COPIES.try_with(|kept| kept.replace(copies));
        // Where the thread's own memory is gone already, nothing is held.
        let _ = HELD.try_with(|held| held.replace(Some(handles::hold())));
    });
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(RefCell::take);
    let _ = COPIES.try_with(RefCell::take);
}

extern "C" fn in_child() {
    let _ = catch_unwind(|| {
        if let Some(held) = HELD.try_with(RefCell::take).ok().flatten() {
            handles::take_over(held);
        }
        let mut copies = COPIES.try_with(RefCell::take).unwrap_or_default();
        copies.sort_unstable_by_key(|copy| copy.address);
        // Those that share pages are put back together.
        let page_bytes = rustix::param::page_size();
        let page_of = |address: usize| address / page_bytes * page_bytes;
        let shares =
            |one: &CopiedMessage, next: &CopiedMessage| page_of(one.end() - 1) >= page_of(next.address);
        for together in copies.chunk_by(shares) {
            let (Some(first), Some(last)) = (together.first(), together.last()) else { continue };
            let begin = page_of(first.address);
            if map(begin, page_of(last.end() - 1) + page_bytes - begin) {
                together.iter().for_each(put_back);
            }
        }
    });
}

fn copied((handle, object): (u64, Object)) -> Option<CopiedMessage> {
    match object {
        Object::Message(message) => match &*message {
            MessageBytes::Received(message) => CopiedMessage::of(handle, message.as_ref()),
            MessageBytes::Copied(_) | MessageBytes::Inherited(_) => None,
        },
        Object::Memory(memory) => match &*memory.try_lock()? {
            Some(BuildingMemory::Own(space)) => CopiedMessage::of(handle, space.bytes()),
            Some(BuildingMemory::Inherited(_)) | None => None,
        },
        _ => None,
    }
    .filter(|copy| !copy.bytes.is_empty())
}

/// Whether there are pages of this process there now. Where something is, it was inherited.
fn map(address: usize, bytes: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: nothing that is mapped is replaced, so no reference is invalidated.
    let place = unsafe {
        mmap_anonymous(without_provenance_mut(address), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
    };
    let Ok(place) = place else { return false };
    let is_there = place.expose_provenance() == address;
    if !is_there {
        // A kernel before 4.17 takes the address for a wish.
        // SAFETY: these pages were mapped above, and nobody knows of them.
        let _ = unsafe { munmap(place, bytes) };
    }
    is_there
}

fn put_back(copy: &CopiedMessage) {
    let inherited = InheritedBytes { address: copy.address, len: copy.bytes.len() };
    // SAFETY: `map` has mapped these bytes, of which nobody has a reference in this process: its only thread is here.
    unsafe { std::ptr::copy_nonoverlapping(copy.bytes.as_ptr(), inherited.data(), inherited.len) };
    handles::replace(copy.handle, |object| match object {
        Object::Message(_) => Some(Object::Message(Arc::new(MessageBytes::Inherited(inherited)))),
        Object::Memory(_) => Some(Object::memory(BuildingMemory::Inherited(inherited))),
        _ => None,
    });
}

#[cfg(test)]
mod tests {
    //! Shows that a forked child has handles, whatever other threads did with theirs.
    use super::*;
    use std::sync::atomic::AtomicU32;
    use trunkline::Status;

    fn status(message: &str) -> Object {
        Object::Status(Arc::new(Status::internal(message)))
    }

    fn message_of(id: u64) -> Option<String> {
        match handles::get(id)? {
            Object::Status(status) => Some(status.message().to_owned()),
            _ => None,
        }
    }

    /// Threads take and give handles, and look at one, without a pause: whenever a child is forked, it can do the same.
    #[test]
    fn a_child_forked_beside_threads_with_handles_has_handles() {
        expect();
        let shared = handles::insert(status("shared")).unwrap();
        let is_over = AtomicU32::new(0);
        let works = || {
            let id = handles::insert(status("own")).ok()?;
            (message_of(shared)? == "shared" && message_of(id)? == "own" && handles::remove(id).is_some())
                .then_some(())
        };
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| while is_over.load(Ordering::Relaxed) == 0 && works().is_some() {});
            }
            let fails = |_: &u32| {
                // SAFETY: the child takes no lock but those of the table and the allocator, which `fork` looks after.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let gives_up = || handles::GIVING_UP.load(Ordering::Relaxed) != 0;
                    let works = (0..50).all(|_| works().is_some() && !gives_up());
                    // SAFETY: it ends the process.
                    unsafe { libc::_exit(i32::from(!works)) }
                }
                let mut ended = -1;
                // SAFETY: the child is this process's, and the number is valid for writing.
                let waited = unsafe { libc::waitpid(child, &raw mut ended, 0) };
                (waited, ended) != (child, 0)
            };
            let failed = (0..200).find(fails);
            is_over.store(1, Ordering::Relaxed);
            assert_eq!(failed, None, "the fork that failed");
        });
        assert!(handles::remove(shared).is_some());
    }
}
