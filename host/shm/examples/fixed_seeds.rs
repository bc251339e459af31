//! A library that is loaded before the C library (`LD_PRELOAD`) where instructions are counted: whoever asks the kernel
//! for randomness gets the same bytes in every run, so that hash tables are laid out alike. `cargo xtask counts` uses
//! it.

use std::ffi::{c_uint, c_void};

/// As `getrandom(2)`, without the randomness.
///
/// # Safety
/// `into` is `count` writable bytes, as for the function it stands for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(into: *mut c_void, count: usize, _flags: c_uint) -> isize {
    // SAFETY: the caller hands over so many writable bytes, as it would to the C library.
    unsafe { into.cast::<u8>().write_bytes(0x5a, count) };
    count as isize
}
