//! Copying from memory that another process may be writing at the same time.
//!
//! `memcpy` promises nothing then: the compiler may read a byte twice and believe that it stood still. Here every
//! byte is read once, as an atomic would be: the copy may mix old and new bytes, which the caller must expect from a
//! hostile writer anyway, and that is all that can happen.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

use crate::sync::{AtomicU64, Ordering};

/// From here on the processor's own copy instruction beats a loop of loads: four times at 16 KiB, and 20–40 % when the
/// bytes come from memory (and `memcpy` by as much).
#[cfg(target_arch = "x86_64")]
const STRING_COPY_BYTES_MIN: usize = 1024;

/// Copies `into.len()` bytes from `from`.
///
/// # Safety
/// `into.len()` bytes at `from` must be mapped readable during the call. Other processes may write them.
pub(crate) unsafe fn copy_racing(from: NonNull<u8>, into: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if into.len() >= STRING_COPY_BYTES_MIN {
        // SAFETY: as for this function.
        return unsafe { copy_by_string(from, into) };
    }
    // SAFETY: as for this function.
    unsafe { copy_by_words(from, into) }
}

/// Copies with `rep movsb`, of which the compiler knows only that it ran.
///
/// # Safety
/// As [`copy_racing`].
#[cfg(target_arch = "x86_64")]
unsafe fn copy_by_string(from: NonNull<u8>, into: &mut [u8]) {
    // SAFETY: reads the bytes the caller vouches for and writes `into`, once each, upwards (the direction flag is
    // clear on entry to every function). To the machine these are plain loads, which may race.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") into.len() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies with relaxed atomic loads, of words where they are aligned.
///
/// # Safety
/// As [`copy_racing`].
unsafe fn copy_by_words(from: NonNull<u8>, into: &mut [u8]) {
    const WORD_BYTES: usize = size_of::<u64>();
    let lead = from.as_ptr().align_offset(WORD_BYTES).min(into.len());
    let (head, rest) = into.split_at_mut(lead);
    // SAFETY: the first `lead` of the caller's bytes.
    unsafe { copy_by_bytes(from, head) };
    // SAFETY: `lead <= into.len()`.
    let aligned = unsafe { from.add(lead) };
    let (words, tail) = rest.as_chunks_mut::<WORD_BYTES>();
    let source = aligned.cast::<AtomicU64>();
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: `index < words.len()`, so the word lies within the caller's bytes.
        let racing = unsafe { source.add(index) };
        // SAFETY: aligned to eight by `lead`, mapped during the call, and atomic, so a writer may race.
        let value = unsafe { racing.as_ref() }.load(Ordering::Relaxed);
        *word = value.to_ne_bytes();
    }
    // SAFETY: the words end within the caller's bytes.
    let end = unsafe { source.add(words.len()) };
    // SAFETY: the last of the caller's bytes.
    unsafe { copy_by_bytes(end.cast(), tail) };
}

/// Copies with relaxed atomic loads of bytes: the fewer than eight at either end.
///
/// # Safety
/// As [`copy_racing`].
unsafe fn copy_by_bytes(from: NonNull<u8>, into: &mut [u8]) {
    for (index, byte) in into.iter_mut().enumerate() {
        // SAFETY: `index < into.len()`, within the caller's bytes.
        let racing = unsafe { from.add(index) }.cast::<AtomicU8>();
        // SAFETY: mapped during the call, and atomic, so a writer may race.
        *byte = unsafe { racing.as_ref() }.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every alignment of source and length around the seams between bytes, words and strings copies exactly.
    #[test]
    fn copies_what_is_there() {
        let source: Vec<u8> = (0..4096u32).map(|index| (index % 251) as u8).collect();
        for start in 0..17 {
            for len in (0..40).chain(1000..1050).chain([4000]) {
                let mut copy = vec![0xee; len + 2];
                let from = NonNull::from(&source[start..start + len]).cast::<u8>();
                // SAFETY: `len` bytes of `source`, which nobody writes.
                unsafe { copy_racing(from, &mut copy[1..=len]) };
                assert_eq!(copy[1..=len], source[start..start + len], "{len} bytes from {start}");
                assert_eq!((copy[0], copy[len + 1]), (0xee, 0xee), "nothing beside them");
            }
        }
    }
}
