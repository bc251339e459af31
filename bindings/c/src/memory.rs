//! Memory to build linear messages in, where they will be sent from.

use crate::abi::{tl_call, tl_channel, tl_code, tl_memory, tl_status};
use crate::entry::enter;
use crate::objects::{BuildingMemory, CallObject, Object};
use crate::{checks, forks, handles, lookup};
use trunkline::Status;
use trunkline::opaque::{OpaqueBody, Space};
use trunkline_message::Extent;

/// No memory.
pub(crate) const NONE: tl_memory = tl_memory { id: 0, data: std::ptr::null_mut(), capacity: 0, reserved: 0 };

/// Memory of `bytes` or more: of the delivered call `call`, to answer it, or if that is 0 of the channel, for a
/// request. It lies in the heap that the thread's calls through the channel are sent from, if it has made any. What
/// does not fit there at the moment lies in memory of the process, and is copied once when it is sent.
///
/// # Safety
/// `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_memory_new(
    channel: tl_channel,
    call: tl_call,
    bytes: usize,
    out: *mut tl_memory,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_memory_new", status, |foreign| {
            foreign.write(out, NONE)?;
            let space = if call.id == 0 {
                of_channel(channel, bytes)?
            } else {
                match &*lookup::call(call)? {
                    CallObject::Served(_) if checks::are_on() => Space::local(bytes)?,
                    CallObject::Served(served) => served.scope().space(bytes),
                    _ => of_channel(channel, bytes)?,
                }
            };
            foreign.write(out, handle_of(space, bytes)?)
        })
    }
}

fn of_channel(channel: tl_channel, bytes: usize) -> Result<Space, Status> {
    let client = lookup::channel(channel)?;
    if checks::are_on() { Space::local(bytes) } else { Ok(client.space(bytes)) }
}

/// Memory as the caller sees it.
pub(crate) fn handle_of(mut space: Space, bytes: usize) -> Result<tl_memory, Status> {
    space.grow(bytes)?;
    let (data, capacity) = seen(&mut space);
    forks::expect();
    let id = handles::insert(Object::memory(BuildingMemory::Own(space)))?;
    Ok(tl_memory { id, data, capacity, reserved: 0 })
}

fn seen(space: &mut Space) -> (*mut u8, usize) {
    let bytes = space.bytes_mut();
    (bytes.as_mut_ptr(), bytes.len())
}

/// Makes memory at least `bytes` large. The content is kept; `data` and `capacity` are written anew.
///
/// # Safety
/// `memory` is valid for reading and writing, `status` for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_memory_grow(
    memory: *mut tl_memory,
    bytes: usize,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_memory_grow", status, |foreign| {
            let own = foreign.read(memory)?;
            let object = lookup::memory(own)?;
            let mut space = object.lock();
            let building = space.as_mut().ok_or_else(|| gone(own))?;
            if let BuildingMemory::Inherited(inherited) = building {
                *building = BuildingMemory::Own(local_copy(inherited.bytes())?);
            }
            let BuildingMemory::Own(space) = building else { return Err(gone(own)) };
            space.grow(bytes)?;
            let (data, capacity) = seen(space);
            foreign.write(memory, tl_memory { data, capacity, ..own })
        })
    }
}

/// Ends memory that was not sent. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_memory_release(memory: tl_memory) -> tl_code {
    if memory.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_memory_release", std::ptr::null_mut(), |_| {
            let object = lookup::memory(memory)?;
            handles::remove(memory.id);
            object.lock().take();
            Ok(())
        })
    }
}

/// What was built in memory, whose handle ends here.
pub(crate) fn take(memory: tl_memory, bytes: usize) -> Result<OpaqueBody, Status> {
    let object = lookup::memory(memory)?;
    handles::remove(memory.id);
    let space = match object.lock().take().ok_or_else(|| gone(memory))? {
        BuildingMemory::Own(space) => space,
        BuildingMemory::Inherited(inherited) => local_copy(inherited.bytes())?,
    };
    let capacity = space.bytes().len();
    if bytes > capacity {
        let why = format!("a message of {bytes} bytes was not built in memory of {capacity}");
        return Err(Status::invalid_argument(why));
    }
    Ok(OpaqueBody::built(space, bytes))
}

/// What a forked child has from its parent, in memory that can be sent.
fn local_copy(bytes: &[u8]) -> Result<Space, Status> {
    let mut space = Space::local(bytes.len())?;
    if let Some(target) = space.bytes_mut().get_mut(..bytes.len()) {
        target.copy_from_slice(bytes);
    }
    Ok(space)
}

fn gone(memory: tl_memory) -> Status {
    Status::invalid_argument(format!("{:#x} is no open memory", memory.id))
}
