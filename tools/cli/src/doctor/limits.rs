//! Limits of the daemon's process: descriptors, memory, processor time. Of the running daemon, or of whoever asks.

use super::finding::Finding;
use std::path::PathBuf;
use trunkline_daemon::Config;

const AREA: &str = "limits";
/// An attached application has a control socket, two regions, doorbells, heaps: half a dozen, with room.
const DESCRIPTORS_PER_SESSION: u64 = 8;
/// Fewer, and a busy host meets the limit.
const DESCRIPTORS_ENOUGH: u64 = 16_384;
const MIB: u64 = 1 << 20;
/// A daemon at rest takes 20 MiB; what is over that is for calls.
const MEMORY_ENOUGH: u64 = 128 * MIB;

/// What limits a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The largest number is any number; `None` if nobody knows.
    descriptors: Option<u64>,
    memory_bytes: Option<u64>,
    /// Hundredths of a processor.
    processor_percent: Option<u64>,
}

/// Looks at the limits of a process.
pub fn look(process: Option<u32>, config: &Config) -> Vec<Finding> {
    let process = process.map_or_else(|| "self".to_owned(), |process| process.to_string());
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let group = group_folder(&read(format!("/proc/{process}/cgroup")));
    let of_group = |file: &str| {
        group.as_ref().map(|group| read(group.join(file).display().to_string())).unwrap_or_default()
    };
    let seen = Seen {
        descriptors: descriptors(&read(format!("/proc/{process}/limits"))),
        memory_bytes: of_group("memory.max").trim().parse().ok(),
        processor_percent: quota(&of_group("cpu.max")),
    };
    judge(&seen, config)
}

fn judge(seen: &Seen, config: &Config) -> Vec<Finding> {
    let mut findings = vec![judge_descriptors(seen.descriptors, config)];
    if let Some(bytes) = seen.memory_bytes.filter(|bytes| *bytes < MEMORY_ENOUGH) {
        let found = format!("the process may have {} MiB of memory (memory.max of its cgroup)", bytes / MIB);
        findings.push(Finding::advice(
            AREA,
            found,
            format!("give it {} MiB at least, or lower limits.*", MEMORY_ENOUGH / MIB),
        ));
    }
    if let Some(percent) =
        seen.processor_percent.filter(|percent| *percent < 200 && config.waiting.patience_us_max > 0)
    {
        let found = format!("processor time is rationed to {percent} % of one (cpu.max of its cgroup)");
        findings.push(Finding::advice(
            AREA,
            found,
            "set waiting.patience_us_max = 0: looking for work would use it up",
        ));
    }
    findings
}

fn judge_descriptors(most: Option<u64>, config: &Config) -> Finding {
    let remedy = |least: u64| format!("set LimitNOFILE={least} in the unit, or raise `ulimit -Hn`");
    let Some(most) = most else {
        // The daemon says its number in its own process id namespace, and /proc may hide it.
        return Finding::advice(
            AREA,
            "how many descriptors the daemon's process may have is not known: its /proc/PID/limits cannot be read",
            "look as its user or as root, in its container if it is in one",
        );
    };
    if most == u64::MAX {
        return Finding::good(AREA, "descriptors: any number");
    }
    let connections = config.daemon.connections_max as u64;
    if connections > most {
        let found =
            format!("daemon.connections_max is {connections}, and the process may have {most} descriptors");
        return Finding::problem(AREA, found, remedy(connections.saturating_mul(2)));
    }
    if most < DESCRIPTORS_ENOUGH {
        let found = format!(
            "{most} descriptors are enough for {} applications without connections",
            most / DESCRIPTORS_PER_SESSION
        );
        return Finding::advice(AREA, found, remedy(524_288));
    }
    Finding::good(AREA, format!("{most} descriptors"))
}

/// The hard limit: the daemon raises the soft one itself (proc(5), limits).
fn descriptors(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        most => most.parse().ok(),
    }
}

/// Where the files of its cgroup are (version 2).
fn group_folder(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from("/sys/fs/cgroup").join(path))
}

/// `200000 100000` is two processors; `max 100000` is no limit.
fn quota(cpu_max: &str) -> Option<u64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.saturating_mul(100).checked_div(period)
}

#[cfg(test)]
mod tests {
    //! Shows what is read, and what is said of it.
    use super::super::finding::State;
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   524288   files\n";
        assert_eq!(descriptors(limits), Some(524_288));
        assert_eq!(descriptors("Max open files unlimited unlimited files"), Some(u64::MAX));
        assert_eq!(descriptors(""), None, "hidden, or gone");
        assert_eq!(
            group_folder("1:name=x:/\n0::/system.slice/a.service\n"),
            Some("/sys/fs/cgroup/system.slice/a.service".into())
        );
        assert_eq!((quota("max 100000\n"), quota("150000 100000\n"), quota("5 0")), (None, Some(150), None));
    }

    #[test]
    fn what_is_too_little_is_said_with_what_to_do() {
        let config = Config::from_toml("[daemon]\nconnections_max = 20000", "d").unwrap();
        let with = |descriptors| Seen { descriptors, ..Seen::default() };
        let state = |seen: &Seen, config: &Config| judge(seen, config).last().unwrap().state;
        assert_eq!(state(&with(Some(524_288)), &config), State::Good);
        assert_eq!(state(&with(Some(u64::MAX)), &config), State::Good);
        assert_eq!(state(&with(None), &config), State::Advice, "nobody knows");
        assert_eq!(state(&with(Some(4096)), &Config::default()), State::Advice);
        assert_eq!(state(&with(Some(19_999)), &config), State::Problem);
        let little = Seen { memory_bytes: Some(64 * MIB), ..with(Some(u64::MAX)) };
        assert_eq!(state(&little, &config), State::Advice);
        let rationed = Seen { processor_percent: Some(50), ..with(Some(u64::MAX)) };
        assert!(judge(&rationed, &config)[1].remedy.contains("waiting.patience_us_max = 0"));
        let asleep = Config::from_toml("[waiting]\npatience_us_max = 0", "d").unwrap();
        assert_eq!(judge(&rationed, &asleep).len(), 1);
    }
}
