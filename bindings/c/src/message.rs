//! Received messages: where the daemon put them, until they are released.

use crate::abi::{tl_code, tl_message, tl_slice, tl_status};
use crate::entry::{enter, value};
use crate::foreign::{NOTHING, lend};
use crate::objects::{MessageBytes, Object};
use crate::{checks, forks, handles, lookup};
use std::sync::Arc;
use trunkline::{Status, opaque};

/// A handle for a message.
pub(crate) fn handle_of(message: opaque::Message) -> Result<tl_message, Status> {
    let body = if checks::are_on() {
        MessageBytes::Copied(message.as_ref().into())
    } else {
        forks::expect();
        MessageBytes::Received(message)
    };
    Ok(tl_message { id: handles::insert(Object::Message(Arc::new(body)))? })
}

/// The bytes of a message, until it is released. Nothing is copied.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_message_bytes(message: tl_message) -> tl_slice {
    // SAFETY: no pointers.
    unsafe { value("tl_message_bytes", NOTHING, |_| Ok(lend(lookup::message(message)?.bytes()))) }
}

/// Copies a message to a buffer of `capacity` bytes; `TL_OUT_OF_RANGE` if it is too short. `len` gets the length of the
/// message in both cases.
///
/// # Safety
/// `buffer` is valid for writing `capacity` bytes, `len` and `status` are valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_message_copy(
    message: tl_message,
    buffer: *mut u8,
    capacity: usize,
    len: *mut usize,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_message_copy", status, |foreign| {
            let body = lookup::message(message)?;
            foreign.write_if_wanted(len, body.bytes().len())?;
            foreign.copy_out(body.bytes(), buffer, capacity)
        })
    }
}

/// Ends a message: its memory goes back. Nothing happens to 0. Slices of it must not be used any more.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_message_release(message: tl_message) -> tl_code {
    if message.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_message_release", std::ptr::null_mut(), |_| {
            lookup::message(message)?;
            handles::remove(message.id);
            Ok(())
        })
    }
}
