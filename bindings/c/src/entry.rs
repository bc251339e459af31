//! What every exported function does first and last.

use crate::abi::{tl_code, tl_status};
use crate::foreign::{CallerMemory, check_out};
use crate::{checks, forks, handles};
use std::panic::{AssertUnwindSafe, catch_unwind};
use trunkline::Status;

/// Runs `act`; what it fails with, a panic too, becomes the code and, if the caller wants it, a status.
///
/// # Safety
/// The pointers that `status` and `act` are about are as [`CallerMemory`] says.
pub unsafe fn enter(
    function: &str,
    out: *mut tl_status,
    act: impl FnOnce(&CallerMemory) -> Result<(), Status>,
) -> tl_code {
    forks::expect();
    // SAFETY: the caller's promise.
    let foreign = unsafe { CallerMemory::promised() };
    let is_wanted = !out.is_null();
    let done = catch_unwind(AssertUnwindSafe(|| {
        if is_wanted {
            check_out(out)?;
        }
        act(&foreign)
    }));
    let outcome = done.unwrap_or_else(|_| Err(Status::internal(format!("{function} panicked"))));
    let (id, code) = match &outcome {
        Ok(()) => (tl_status::default(), crate::abi::TL_OK),
        Err(failed) => {
            checks::tell(function, failed);
            let id = if is_wanted { handles::of_status(failed) } else { tl_status::default() };
            (id, u32::from(failed.code().number()))
        }
    };
    // A status that cannot be written is not wanted.
    let _ = foreign.write_if_wanted(out, id);
    code
}

/// The same for functions that give a value and no status; `otherwise` if they fail.
///
/// # Safety
/// As for [`enter`].
pub unsafe fn value<T>(
    function: &str,
    otherwise: T,
    act: impl FnOnce(&CallerMemory) -> Result<T, Status>,
) -> T {
    let mut out = None;
    // SAFETY: the caller's promise.
    unsafe {
        enter(function, std::ptr::null_mut(), |foreign| {
            out = Some(act(foreign)?);
            Ok(())
        })
    };
    out.unwrap_or(otherwise)
}
