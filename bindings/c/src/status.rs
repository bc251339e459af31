//! Statuses: why something failed.

use crate::abi::{tl_code, tl_metadata, tl_slice, tl_status};
use crate::entry::{enter, value};
use crate::foreign::{NOTHING, lend};
use crate::{handles, lookup, metadata};

/// The code of a status; `TL_OK` of 0, `TL_INVALID_ARGUMENT` of what is no status.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_status_code(status: tl_status) -> tl_code {
    if status.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        value("tl_status_code", crate::abi::TL_INVALID_ARGUMENT, |_| {
            Ok(lookup::status(status)?.code().number().into())
        })
    }
}

/// The message of a status, until it is released. Not terminated by 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_status_message(status: tl_status) -> tl_slice {
    // SAFETY: no pointers.
    unsafe { value("tl_status_message", NOTHING, |_| Ok(lend(lookup::status(status)?.message().as_bytes()))) }
}

/// The serialized `google.rpc.Status` of a status, if there is one, until it is released.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_status_details(status: tl_status) -> tl_slice {
    // SAFETY: no pointers.
    unsafe { value("tl_status_details", NOTHING, |_| Ok(lend(lookup::status(status)?.details()))) }
}

/// Whether the handler may have run: `TL_EXECUTED`, `TL_NOT_EXECUTED` or `TL_EXECUTION_UNKNOWN`.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_status_execution(status: tl_status) -> u32 {
    // SAFETY: no pointers.
    unsafe {
        value("tl_status_execution", crate::abi::TL_EXECUTION_UNKNOWN, |_| {
            Ok(u32::from(lookup::status(status)?.execution() as u8))
        })
    }
}

/// The metadata that came with a status (gRPC: trailers), as a handle of its own; 0 if there are none.
///
/// # Safety
/// `out` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_status_metadata(
    status: tl_status,
    out: *mut tl_metadata,
    failed: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_status_metadata", failed, |foreign| {
            let found = lookup::status(status)?;
            foreign.write(out, tl_metadata::default())?;
            foreign.write(out, metadata::handle_of(found.metadata().clone())?)
        })
    }
}

/// Ends a status. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_status_release(status: tl_status) -> tl_code {
    if status.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_status_release", std::ptr::null_mut(), |_| {
            lookup::status(status)?;
            handles::remove(status.id);
            Ok(())
        })
    }
}
