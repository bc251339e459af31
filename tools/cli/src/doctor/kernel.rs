//! The kernel: what it has, and what its clock is.

use super::finding::Finding;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trunkline_daemon::Config;

/// What tests are made on, and what the oldest distribution with support has.
const OLDEST: (u32, u32) = (5, 10);
/// Who sends to a Unix socket does not wait for the kernel's look at sockets that are on their way in messages
/// ("af_unix: Try to run GC async", which is in long-term kernels of 2025, too).
const SENDERS_GO_ON: (u32, u32) = (6, 9);
/// No clock shows an earlier time than the one this was written at: 2026-01-01.
const EARLIEST_S: u64 = 1_767_225_600;
/// Clocks that are read without asking the kernel. Every call is stamped a dozen times.
const QUICK_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"];

/// Looks at the kernel's features and its clock.
pub fn look(config: &Config) -> Vec<Finding> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // As the daemon makes it: kernels before 6.3 do not know the flag.
    let sealed = memfd_create("trunkline-doctor", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("trunkline-doctor", flags))
        .and_then(|file| fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let synchronized = std::path::Path::new("/run/systemd/timesync")
        .is_dir()
        .then(|| std::path::Path::new("/run/systemd/timesync/synchronized").exists());
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut findings = vec![version(&release), sealing(sealed)];
    findings.extend(doorbells(&release));
    let has_modules = config.policy.iter().any(|policy| policy.path.is_some());
    findings.extend(executable_memory(&read("/proc/sys/vm/memfd_noexec"), has_modules));
    findings.push(source(&read("/sys/devices/system/clocksource/clocksource0/current_clocksource")));
    findings.push(time(since, synchronized));
    findings
}

fn version_of(release: &str) -> (u32, u32) {
    let mut parts = release.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    (parts.next().flatten().unwrap_or(0), parts.next().flatten().unwrap_or(0))
}

fn version(release: &str) -> Finding {
    if version_of(release) >= OLDEST {
        return Finding::good("kernel", format!("Linux {release}"));
    }
    let (major, minor) = OLDEST;
    Finding::advice(
        "kernel",
        format!("Linux {release} is older than any that was tested"),
        format!("use Linux {major}.{minor} or newer"),
    )
}

/// Applications are rung by Unix sockets (docs/security.md, *Shared memory*).
fn doorbells(release: &str) -> Option<Finding> {
    (version_of(release) < SENDERS_GO_ON).then(|| {
        Finding::advice(
            "kernel",
            format!(
                "Linux {release} may have the daemon wait where a user has 16,000 Unix sockets on their way"
            ),
            "use Linux 6.9, a long-term kernel of 2025, or a hard RLIMIT_NOFILE of users below 16,000",
        )
    })
}

fn sealing(sealed: Result<(), Errno>) -> Finding {
    match sealed {
        Ok(()) => Finding::good("kernel", "memory that is shared can be sealed (memfd_create)"),
        Err(errno) => Finding::problem(
            "kernel",
            format!("memory that is shared cannot be sealed: memfd_create: {}", std::io::Error::from(errno)),
            "permit memfd_create and fcntl(F_ADD_SEALS): a seccomp filter forbids them, or the container does",
        ),
    }
}

/// Modules are mapped from a memory file (docs/modules.md).
fn executable_memory(noexec: &str, has_modules: bool) -> Option<Finding> {
    let forbidden = noexec.trim().parse::<u32>().is_ok_and(|level| level > 1);
    (forbidden && has_modules).then(|| {
        let found = format!("policy modules cannot be loaded: sysctl vm.memfd_noexec is {}", noexec.trim());
        Finding::problem("kernel", found, "sysctl vm.memfd_noexec=0, or take the modules out of the chain")
    })
}

fn source(name: &str) -> Finding {
    let name = name.trim();
    if name.is_empty() || QUICK_CLOCKS.contains(&name) {
        return Finding::good(
            "clock",
            format!("is read without a system call ({})", if name.is_empty() { "unknown" } else { name }),
        );
    }
    Finding::advice(
        "clock",
        format!("is {name}: reading it is a system call, and every call reads it a dozen times"),
        "boot with clocksource=tsc, or have the hypervisor offer kvm-clock, if the processor's is stable (dmesg)",
    )
}

fn time(since: Duration, synchronized: Option<bool>) -> Finding {
    if since.as_secs() < EARLIEST_S {
        let found = "shows a time in the past: certificates are not valid yet by it";
        return Finding::problem(
            "clock",
            found,
            "set it (`date`), and have it synchronized (timedatectl set-ntp true)",
        );
    }
    match synchronized {
        Some(false) => Finding::advice(
            "clock",
            "is not synchronized by systemd-timesyncd",
            "look at `timedatectl timesync-status`; logs and certificates of hosts are compared by it",
        ),
        Some(true) => Finding::good("clock", "is synchronized"),
        None => Finding::good("clock", "shows a plausible time"),
    }
}

#[cfg(test)]
mod tests {
    //! Shows each finding about kernel and clock.
    use super::super::finding::State;
    use super::*;

    #[test]
    fn each_side_of_the_kernel_is_judged() {
        let table = [
            (version("6.1.0-18-amd64"), State::Good, "6.1.0"),
            (version("4.19.0"), State::Advice, "older than any"),
            (version("what"), State::Advice, "older than any"),
            (doorbells("6.1.0-18-amd64").unwrap(), State::Advice, "16,000 Unix sockets"),
            (sealing(Ok(())), State::Good, "can be sealed"),
            (sealing(Err(Errno::PERM)), State::Problem, "Operation not permitted"),
            (executable_memory("2\n", true).unwrap(), State::Problem, "vm.memfd_noexec is 2"),
            (source("tsc\n"), State::Good, "tsc"),
            (source(""), State::Good, "unknown"),
            (source("acpi_pm\n"), State::Advice, "acpi_pm"),
            (time(Duration::from_secs(5), None), State::Problem, "in the past"),
            (time(Duration::from_secs(EARLIEST_S), Some(false)), State::Advice, "not synchronized"),
            (time(Duration::from_secs(EARLIEST_S), Some(true)), State::Good, "synchronized"),
        ];
        for (finding, state, words) in table {
            assert!(finding.state == state && finding.found.contains(words), "{finding:?}");
            assert_eq!(finding.remedy.is_empty(), state == State::Good, "{finding:?}");
        }
        assert_eq!((doorbells("6.9.0"), doorbells("6.18.5"), doorbells("7.0")), (None, None, None));
        assert_eq!(executable_memory("2", false), None);
        assert_eq!(executable_memory("1\n", true), None);
    }
}
