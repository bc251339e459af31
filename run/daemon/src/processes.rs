//! What the kernel says of processes of this host.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat2, statx};
use std::os::fd::OwnedFd;

/// Tries to find a path without waiting; a rename anywhere at the same moment makes one fail.
const TRIES: usize = 4;

/// The program a process runs now, by a path at which this daemon has that very file; empty if there is none, or the
/// daemon may not look. Whoever has a mount namespace of its own runs what it likes at any path.
pub(crate) fn program_of(pid: u32) -> String {
    let exe = format!("/proc/{pid}/exe");
    let path = std::fs::read_link(&exe).ok().and_then(|path| path.into_os_string().into_string().ok());
    let is_here = |path: &String| {
        let runs = statx(CWD, &exe, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok();
        let here = file_at(path).and_then(|file| {
            statx(&file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()
        });
        runs.zip(here).is_some_and(|(runs, here)| are_one(&runs, &here))
    };
    path.filter(is_here).unwrap_or_default()
}

/// A file whose path somebody else has chosen, found only in what the kernel knows without asking: a file system that
/// its user serves, or one that has to be mounted first, would hold the control thread. What runs is known.
fn file_at(path: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let look =
        || openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED | ResolveFlags::NO_MAGICLINKS);
    std::iter::repeat_with(look).take(TRIES).find_map(Result::ok)
}

fn are_one(one: &Statx, other: &Statx) -> bool {
    let identity = |file: &Statx| (file.stx_dev_major, file.stx_dev_minor, file.stx_ino);
    identity(one) == identity(other)
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
    //! Shows whose program a path is, that a group nobody can know is no empty group, and that the unit lets the daemon
    //! look.
    use super::*;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// Whether a program that a process runs by such words is known by its path.
    fn is_known(words: &[&str], path: &Path) -> bool {
        let (reads, writes) = std::io::pipe().unwrap();
        let mut command = Command::new(words[0]);
        let mut child = command.args(&words[1..]).stdin(reads).stdout(Stdio::piped()).spawn().unwrap();
        // It runs what it is to run: that says what it reads.
        std::io::Write::write_all(&mut { &writes }, b"ready").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
        let program = program_of(child.id());
        drop(writes);
        child.wait().unwrap();
        assert!(program.is_empty() || Path::new(&program) == path, "{program}");
        !program.is_empty()
    }

    /// Needs a mount namespace for the latter, as any user has where users may have namespaces.
    #[test]
    fn a_program_is_known_by_a_path_where_the_daemon_has_it_and_not_by_one_of_another_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("payd");
        let text = path.to_str().unwrap();
        // Copied by a process of its own: this one may fork while it has the file open, and then nobody may run it.
        assert!(Command::new("cp").args(["/bin/cat", text]).status().unwrap().success());
        assert!(is_known(&[text], &path));
        let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
        if !Command::new(unshare[0])
            .args(&unshare[1..])
            .arg("true")
            .status()
            .is_ok_and(|tried| tried.success())
        {
            eprintln!("no mount namespace can be made here");
            return;
        }
        let disguise = "mount -t tmpfs none \"$0\" && cp /bin/cat \"$1\" && exec \"$1\"";
        let in_disguise =
            [&unshare[..], &["sh", "-c", disguise, path.parent().unwrap().to_str().unwrap(), text]];
        assert!(!is_known(&in_disguise.concat(), &path));
    }

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
