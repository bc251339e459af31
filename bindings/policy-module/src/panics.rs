//! Panics: caught at the surface, remembered with their place.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Once;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Has panics of this shared object remembered instead of printed: it has a run-time library, and a hook, of its own.
pub(crate) fn remember() {
    HOOK.call_once(|| {
        set_hook(Box::new(|info| {
            // Its words and its place in one line.
            let line = info.to_string().replace('\n', " ");
            LAST.with(|last| last.replace(line));
        }));
    });
}

/// What `work` gives, or how it panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // An instance that has panicked is not used again: the daemon ejects it.
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| LAST.with(RefCell::take))
}
