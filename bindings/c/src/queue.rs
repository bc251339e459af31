//! Completion queues.

use crate::abi::{tl_code, tl_event, tl_queue, tl_status};
use crate::entry::{enter, value};
use crate::foreign::check_out;
use crate::objects::{Object, QueueEvent, What};
use crate::{handles, lookup};
use rustix::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use trunkline::Status;
use trunkline_bindings::{CompletionQueue, Waited};

/// Events given out at once; a caller with room for more gets the others the next time.
const BATCH_MAX: usize = 256;

/// A completion queue.
///
/// # Safety
/// `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_queue_new(out: *mut tl_queue, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_queue_new", status, |foreign| {
            foreign.write(out, tl_queue::default())?;
            let queue = CompletionQueue::new()
                .map_err(|error| Status::resource_exhausted(format!("a descriptor for a queue: {error}")))?;
            let id = handles::insert(Object::Queue(queue))?;
            foreign.write(out, tl_queue { id })
        })
    }
}

/// A descriptor that is readable while `tl_queue_next` has something to do, to be watched and not to be read; -1 of
/// what is no queue. It is the queue's, and closed with it.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_queue_fd(queue: tl_queue) -> i32 {
    // SAFETY: no pointers.
    unsafe { value("tl_queue_fd", -1, |_| Ok(lookup::queue(queue)?.as_fd().as_raw_fd())) }
}

/// Adds an event of the caller's own, `TL_EVENT_POSTED` with `tag`: a thread that waits in `tl_queue_next` gets it.
/// What waits to be taken is the caller's to bound.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_queue_post(queue: tl_queue, tag: u64, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_queue_post", status, |_| {
            lookup::queue(queue)?.push(QueueEvent { tag, call: 0, what: What::Posted });
            Ok(())
        })
    }
}

/// Goes on with the operations of a queue, and takes up to `capacity` events; waits up to `timeout_ns` for the first,
/// for ever if that is negative: a time left that was computed is to be kept from going below 0. `count` gets how many
/// there are, 0 if none came in time. When it is released threads that wait get `TL_CANCELLED`.
///
/// # Safety
/// `events` is valid for writing `capacity` of them, `count` for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_queue_next(
    queue: tl_queue,
    events: *mut tl_event,
    capacity: usize,
    timeout_ns: i64,
    count: *mut usize,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_queue_next", status, |foreign| {
            foreign.write(count, 0)?;
            check_out(events)?;
            if capacity == 0 {
                return Err(Status::invalid_argument("room for no event"));
            }
            let timeout = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
            let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            let mut taken = Vec::new();
            if lookup::queue(queue)?.next(&mut taken, capacity.min(BATCH_MAX), deadline) == Waited::Closed {
                let why = "the queue was released, or is the process's that this one was forked from";
                return Err(Status::cancelled(why));
            }
            let number = taken.len();
            for (at, event) in taken.into_iter().enumerate() {
                foreign.write(events.wrapping_add(at), event.give())?;
            }
            foreign.write(count, number)
        })
    }
}

/// Ends a queue: its operations are cancelled, threads that wait in it return. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_queue_release(queue: tl_queue) -> tl_code {
    if queue.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_queue_release", std::ptr::null_mut(), |_| {
            lookup::queue(queue)?.close();
            handles::remove(queue.id);
            Ok(())
        })
    }
}
