//! What a daemon asks of the C library and the kernel for itself: memory back, and short turns on a processor.

use std::ffi::c_long;
use std::io;

/// Slice of a processor that a thread asks for which others wait for, in nanoseconds: the least the kernel gives. It
/// makes no difference to how much a thread gets, only how often it is asked whether somebody else should have it, and
/// how soon it comes itself when it wakes up. And it is what a thread gives away that yields: beside threads with
/// longer ones it often yields in vain.
const SLICE_NS: u64 = 100_000;
/// Asks for the kernel's own.
const NO_SLICE_NS: u64 = 0;
/// `SCHED_NORMAL`.
const NORMAL: u32 = 0;

/// `struct sched_attr`, as the kernel has had it since 3.14.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const _: () = assert!(size_of::<SchedAttr>() == 48);

#[cfg(target_arch = "x86_64")]
const SET_AND_GET: Option<(c_long, c_long)> = Some((314, 315));
#[cfg(target_arch = "aarch64")]
const SET_AND_GET: Option<(c_long, c_long)> = Some((274, 275));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SET_AND_GET: Option<(c_long, c_long)> = None;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    #[cfg(target_env = "gnu")]
    fn malloc_trim(pad: usize) -> std::ffi::c_int;
    #[cfg(target_env = "gnu")]
    fn mallinfo() -> Mallinfo;
}

/// `struct mallinfo` of glibc (mallinfo(3)). Its numbers are what fits in 32 bits of them.
#[cfg(target_env = "gnu")]
#[repr(C)]
struct Mallinfo {
    arena: std::ffi::c_int,
    ordblks: std::ffi::c_int,
    smblks: std::ffi::c_int,
    hblks: std::ffi::c_int,
    hblkhd: std::ffi::c_int,
    usmblks: std::ffi::c_int,
    fsmblks: std::ffi::c_int,
    uordblks: std::ffi::c_int,
    fordblks: std::ffi::c_int,
    keepcost: std::ffi::c_int,
}

/// How much of the memory the allocator has is free, whether or not the kernel has its pages back: up to 4 GiB. Zero
/// with other allocators than glibc's.
#[must_use]
pub fn free_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes no pointer, and locks what it reads like every call of the allocator.
        let info = unsafe { mallinfo() };
        u64::from(info.fordblks.cast_unsigned())
    }
    #[cfg(not(target_env = "gnu"))]
    {
        0
    }
}

/// Has the allocator give the kernel every page back that nothing lies on. It keeps them otherwise as long as anything
/// lies behind them: what a flood took would stay taken.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and locks what it works on like every call of the allocator.
    let _ = unsafe { malloc_trim(0) };
}

/// Has the calling thread take turns on its processor that are as `short` as the kernel lets them be, or as all others
/// take them, if it is scheduled like an ordinary one. Linux 6.12 and later; others go on as before.
///
/// # Errors
/// What the kernel says.
pub fn take_turns(short: bool) -> io::Result<()> {
    let Some((set, get)) = SET_AND_GET else { return Ok(()) };
    let size = size_of::<SchedAttr>() as u32;
    let mut attr = SchedAttr::default();
    let own_thread: c_long = 0;
    let no_flags: c_long = 0;
    // SAFETY: the kernel writes at most `size` bytes there, which is what `attr` has.
    let got = unsafe { syscall(get, own_thread, &raw mut attr, c_long::from(size), no_flags) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attr.policy != NORMAL {
        // Whoever has chosen something else has had a reason.
        return Ok(());
    }
    (attr.size, attr.runtime) = (size, if short { SLICE_NS } else { NO_SLICE_NS });
    // SAFETY: the kernel reads `attr.size` bytes there, which is what `attr` has.
    let done = unsafe { syscall(set, own_thread, &raw const attr, no_flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    //! Shows that both are to be had here, or that the kernel says why not.
    use super::*;

    #[test]
    fn a_thread_asks_for_short_turns_and_for_ordinary_ones() {
        let (_, get) = SET_AND_GET.expect("a machine that tests run on");
        let slice_ns = || {
            let mut attr = SchedAttr::default();
            let size = c_long::from(size_of::<SchedAttr>() as u32);
            let zero: c_long = 0;
            // SAFETY: the kernel writes at most `size` bytes there, which is what `attr` has.
            assert_eq!(unsafe { syscall(get, zero, &raw mut attr, size, zero) }, 0);
            attr.runtime
        };
        let ordinary_ns = slice_ns();
        take_turns(true).unwrap();
        // Older kernels have no slice to tell.
        assert!(matches!(slice_ns(), 0 | SLICE_NS));
        take_turns(false).unwrap();
        assert_eq!(slice_ns(), ordinary_ns);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn memory_goes_back() {
        let resident_kib = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let blocks: Vec<Vec<u8>> = (0..2000).map(|at| vec![at as u8; 50_000]).collect();
        // The last one keeps all before it from being given back.
        let held = vec![1u8; 100];
        let before = resident_kib();
        let free_kib = || free_bytes() >> 10;
        let free = free_kib();
        drop(blocks);
        // The heap of a thread gives back some of it by itself.
        assert!(free_kib() > free + 40_000, "{free} KiB free before, {} behind", free_kib());
        give_memory_back();
        assert!(resident_kib() + 80_000 < before, "{before} KiB before, {} behind", resident_kib());
        drop(held);
    }
}
