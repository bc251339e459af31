//! On whose behalf a thread makes calls.

use crate::abi::{tl_call, tl_code, tl_status};
use crate::entry::enter;
use crate::lookup;
use std::cell::RefCell;
use trunkline::Status;
use trunkline::opaque::Scope;

/// Delivered calls a thread may have entered at a time: handlers that call handlers of the same process are few.
const DEPTH_MAX: usize = 64;

thread_local! {
    static ENTERED: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// The delivered call this thread works for.
pub(crate) fn current() -> Option<Scope> {
    ENTERED.try_with(|entered| entered.borrow().last().cloned()).ok().flatten()
}

/// Runs `act` on behalf of a delivered call.
pub(crate) fn within(scope: Scope, act: impl FnOnce()) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            leave();
        }
    }
    if push(scope).is_ok() {
        let _leave = Leave;
        act();
    } else {
        act();
    }
}

fn push(scope: Scope) -> Result<(), Status> {
    let pushed = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        let fits = entered.len() < DEPTH_MAX;
        if fits {
            entered.push(scope);
        }
        fits
    });
    match pushed {
        Ok(true) => Ok(()),
        _ => Err(Status::resource_exhausted(format!("a thread works for {DEPTH_MAX} calls at most"))),
    }
}

fn leave() -> bool {
    let left = ENTERED.try_with(|entered| entered.borrow_mut().pop());
    left.is_ok_and(|scope| scope.is_some())
}

/// Calls this thread makes from now on inherit deadline, cancellation and trace context of a delivered call, until
/// `tl_context_leave` on the same thread. In a `tl_handler` that is so for the call it handles.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_context_enter(call: tl_call, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe { enter("tl_context_enter", status, |_| push(lookup::served(call)?.scope().clone())) }
}

/// Ends the last `tl_context_enter` of this thread; `TL_FAILED_PRECONDITION` on a thread that has entered none.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_context_leave(status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_context_leave", status, |_| {
            if leave() {
                return Ok(());
            }
            Err(Status::failed_precondition("this thread has entered no call's context"))
        })
    }
}
