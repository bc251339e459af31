//! What the kernel says of processes of this host.

/// The program a process runs now, as far as this daemon may look; empty if not.
pub(crate) fn program_of(pid: u32) -> String {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    path.into_os_string().into_string().unwrap_or_default()
}

/// The control group a process is in, of the one hierarchy there is (cgroup v2); empty if nobody knows.
pub(crate) fn cgroup_of(pid: u32) -> String {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned()
}
