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

/// Equal in two processes exactly if they read the same monotonic clock: the same boot of the same kernel, with the
/// same offset of that clock in their time namespaces.
#[must_use]
pub fn clock_id() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // A kernel without time namespaces has no such file, and one clock.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    clock_id_of(boot.trim(), &offsets)
}

/// `offsets` as in time_namespaces(7): a clock's name, seconds and nanoseconds a line. Without an offset the id is that
/// of the boot alone, as in daemons that know nothing of such namespaces.
fn clock_id_of(boot: &str, offsets: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
    if boot.is_empty() {
        // Unknown: a number of our own, so that nobody takes our clock for theirs.
        return RandomState::new().hash_one(std::process::id());
    }
    let mut lines = offsets.lines().map(str::split_whitespace);
    let monotonic = lines.find_map(|mut words| (words.next()? == "monotonic").then_some(words));
    let offset: Vec<&str> = monotonic.map_or_else(Vec::new, Iterator::collect);
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    if offset.iter().all(|part| *part == "0") {
        hasher.hash_one(boot)
    } else {
        hasher.hash_one((boot, offset))
    }
}

#[cfg(test)]
mod tests {
    //! Shows which processes take each other's clock for their own.
    use super::clock_id_of;

    const HOST: &str = "monotonic           0         0\nboottime            0         0\n";
    const SHIFTED: &str = "monotonic        1000         0\nboottime            0         0\n";

    #[test]
    fn one_clock_has_one_id() {
        let id = clock_id_of("b1", HOST);
        assert_eq!(id, clock_id_of("b1", ""), "a kernel without time namespaces");
        assert_eq!(id, clock_id_of("b1", "monotonic 0 0\nboottime 50 0\n"), "the other clock is not read");
        assert_eq!(clock_id_of("b1", SHIFTED), clock_id_of("b1", SHIFTED));
    }

    #[test]
    fn another_offset_is_another_clock() {
        let ids = [
            clock_id_of("b1", HOST),
            clock_id_of("b2", HOST),
            clock_id_of("b1", SHIFTED),
            clock_id_of("b1", "monotonic 1000 1\n"),
            clock_id_of("b1", "monotonic -1000 0\n"),
        ];
        for (n, id) in ids.iter().enumerate() {
            assert!(!ids[..n].contains(id), "{n}: {ids:?}");
        }
        assert_ne!(clock_id_of("", HOST), clock_id_of("", HOST), "an unknown clock is nobody's");
    }
}
