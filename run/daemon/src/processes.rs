//! What the kernel says of processes of this host.

/// The program a process runs now, as far as this daemon may look; empty if not.
pub(crate) fn program_of(pid: u32) -> String {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    path.into_os_string().into_string().unwrap_or_default()
}

/// The control group a process is in, of the one hierarchy there is (cgroup v2).
///
/// # Errors
/// Why nobody knows: the process is another user's and /proc hides those (hidepid, ProtectProc=), it has no number in
/// this process id namespace, or the host has no such hierarchy.
pub(crate) fn cgroup_of(pid: u32) -> Result<String, String> {
    let path = format!("/proc/{pid}/cgroup");
    let groups = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    group.map(str::to_owned).ok_or_else(|| format!("{path} has no group of cgroup v2"))
}

/// Whether there is a process of this number, whoever's it is. One that has none here is another namespace's.
pub(crate) fn is_there(pid: u32) -> bool {
    use rustix::process::{Pid, test_kill_process};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    //! Shows that a group nobody can know is no empty group, and that the unit lets the daemon look.
    use super::*;

    #[test]
    fn a_group_that_cannot_be_read_says_why() {
        let why = cgroup_of(0).unwrap_err();
        assert!(why.starts_with("/proc/0/cgroup: "), "{why}");
        assert!(is_there(0) && is_there(std::process::id()) && !is_there(i32::MAX as u32));
    }

    /// By the manager's own default the end of a successor for want of memory stops the whole unit, and five quick ends
    /// leave it stopped.
    #[test]
    fn the_units_outlive_a_successor_without_memory_and_quick_ends() {
        let unit = include_str!("../../../packaging/trunkline.service");
        let relay = include_str!("../../../packaging/trunkline-relay.service");
        assert!(unit.lines().any(|line| line == "OOMPolicy=continue"));
        for unit in [unit, relay] {
            let (of_unit, of_service) = unit.split_once("[Service]").unwrap();
            assert!(of_unit.lines().any(|line| line == "StartLimitIntervalSec=0"));
            assert!(of_service.lines().any(|line| line == "RestartSec=1s"));
        }
    }

    /// `@resources` is refused, and the short slices of busy shards (`group.rs`) are asked for by a call of that set.
    #[test]
    fn the_unit_lets_the_daemon_ask_for_short_slices() {
        let unit = include_str!("../../../packaging/trunkline.service");
        let filters: Vec<&str> =
            unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
        assert_eq!(
            filters,
            ["@system-service", "~@privileged @resources", "prlimit64 setrlimit sched_setattr"]
        );
    }

    /// With `ProtectProc=invisible` the daemon sees no process of another user: tables with `cgroup` fit nobody.
    #[test]
    fn the_unit_lets_the_daemon_read_control_groups() {
        let unit = include_str!("../../../packaging/trunkline.service");
        assert!(
            !unit.lines().any(|line| line.starts_with("ProtectProc=") || line.starts_with("ProcSubset="))
        );
    }
}
