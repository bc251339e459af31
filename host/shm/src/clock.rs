//! The clock.

use rustix::time::{ClockId, clock_gettime};

/// Monotonic time in nanoseconds, for callers without a clock of their own.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Processor time the calling thread has taken, in nanoseconds. A system call: 170 ns.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// The processor's cycle counter, which only grows on one core: for proportions, not for times. 7 ns.
#[must_use]
pub fn cycle_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the instruction reads a register and touches no memory; every x86-64 processor has it, and the kernel
        // lets programs use it unless they forbid it to themselves (PR_SET_TSC), which nobody here does.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    monotonic_ns()
}

#[inline]
fn read_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
