//! What the kernel says of processes of this host.

use crate::config::Config;
use crate::mounts::OwnMounts;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tries to find a path without waiting; a rename anywhere at the same moment makes one fail.
const TRIES: usize = 4;
/// What the kernel writes behind a path that the file has no more.
const DELETED: &str = " (deleted)";

/// Looks at the processes of applications, and says once what nobody can know and somebody asks for.
#[derive(Debug)]
pub(crate) struct Processes {
    config: Arc<Config>,
    /// Whether a policy at work reads `caller.program`.
    programs_are_read: Arc<AtomicBool>,
    mounts: OwnMounts,
    has_told_of_programs: bool,
    has_told_of_cgroups: bool,
}

impl Processes {
    pub fn new(config: Arc<Config>, programs_are_read: Arc<AtomicBool>) -> Self {
        let mounts = OwnMounts::default();
        Self { config, programs_are_read, mounts, has_told_of_programs: false, has_told_of_cgroups: false }
    }

    /// The program a process runs now, by a path at which this daemon has that very file; empty if there is none, or
    /// nobody knows, which is told once where somebody asks: a policy, or one of another host.
    pub fn program_of(&mut self, pid: u32) -> String {
        let known = program_of(pid, &mut self.mounts).map(Option::unwrap_or_default);
        known.unwrap_or_else(|why| {
            let matters =
                self.programs_are_read.load(Ordering::Relaxed) || !self.config.daemon.hosts.is_empty();
            if matters && is_there(pid) && !std::mem::replace(&mut self.has_told_of_programs, true) {
                tracing::warn!(%why, "the program of an application cannot be known: caller.program is empty");
            }
            String::new()
        })
    }

    /// The control group of a process; empty if nobody knows, which is told once where a table asks.
    pub fn cgroup_of(&mut self, pid: u32) -> String {
        cgroup_of(pid).unwrap_or_else(|why| {
            let matters = self.config.tenant.iter().any(|table| table.cgroup.is_some());
            // One that has ended meanwhile has none.
            if matters && is_there(pid) && !std::mem::replace(&mut self.has_told_of_cgroups, true) {
                tracing::warn!(
                    %why,
                    "the control group of an application cannot be read: no [[tenant]] cgroup fits it"
                );
            }
            String::new()
        })
    }
}

/// The path at which this daemon has the file that a process runs, if there is one. Whoever has a mount namespace of
/// its own runs what it likes at any path; a path from the kernel is the daemon's where the file's mount is.
///
/// # Errors
/// Why nobody knows.
fn program_of(pid: u32, mounts: &mut OwnMounts) -> Result<Option<String>, String> {
    let exe = format!("/proc/{pid}/exe");
    let failed = |error: Errno| format!("{exe}: {error}");
    // One file is looked at throughout, whatever the process runs next. Its mount is there as long.
    let file = match openat(CWD, &exe, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        // It has ended, and is still counted. Of one that is hidden there is not even the folder.
        Err(Errno::NOENT) if Path::new(&format!("/proc/{pid}")).exists() => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let look = StatxFlags::INO | StatxFlags::NLINK | StatxFlags::MNT_ID;
    let look = |file| statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, look);
    let runs = look(&file).map_err(failed)?;
    let Some(path) = path_of(&file).filter(|path| runs.stx_nlink > 0 && !path.ends_with(DELETED)) else {
        return Ok(None);
    };
    match file_at(&path) {
        Ok(here) => Ok(look(&here).is_ok_and(|here| are_one(&runs, &here)).then_some(path)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(_) if runs.stx_mask & StatxFlags::MNT_ID.bits() == 0 => {
            Err(format!("{exe}: the kernel does not say where {path} is mounted"))
        }
        Err(error) => match mounts.lead_to(runs.stx_mnt_id, &path) {
            Ok(Some(leads)) => Ok(leads.then_some(path)),
            Ok(None) => Err(format!("{path}, on a mount of another namespace: {error}")),
            Err(error) => Err(format!("/proc/self/mountinfo: {error}")),
        },
    }
}

/// By which path the kernel knows a file, from the root of this process.
fn path_of(file: &OwnedFd) -> Option<String> {
    let path: PathBuf = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    path.into_os_string().into_string().ok()
}

/// A file whose path somebody else has chosen, found only in what the kernel knows without asking: a file system that
/// its user serves, or one that has to be mounted first, would hold the control thread. The names of what runs are
/// known, but not who may pass: access lists that nobody has asked for are on the disk.
fn file_at(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let look =
        || openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED | ResolveFlags::NO_MAGICLINKS);
    let is_known = |found: &Result<_, _>| !matches!(found, Err(Errno::AGAIN));
    std::iter::repeat_with(look).take(TRIES).find(is_known).unwrap_or(Err(Errno::AGAIN))
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
fn cgroup_of(pid: u32) -> Result<String, String> {
    let path = format!("/proc/{pid}/cgroup");
    let groups = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    group.map(str::to_owned).ok_or_else(|| format!("{path} has no group of cgroup v2"))
}

/// Whether there is a process of this number, whoever's it is. One that has none here is another namespace's.
fn is_there(pid: u32) -> bool {
    use rustix::process::{Pid, test_kill_process};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    //! Shows whose program a path is, that a group nobody can know is no empty group, what is told, and that the unit
    //! lets the daemon look.
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// Whether a program that a process runs by such words is known by its path.
    fn is_known(words: &[&str], path: &Path) -> bool {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        runs_known(command, path)
    }

    fn runs_known(mut command: Command, path: &Path) -> bool {
        let (reads, writes) = std::io::pipe().unwrap();
        let mut child = command.stdin(reads).stdout(Stdio::piped()).spawn().unwrap();
        // It runs what it is to run: that says what it reads.
        std::io::Write::write_all(&mut { &writes }, b"ready").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
        let program =
            program_of(child.id(), &mut OwnMounts::default()).unwrap_or_default().unwrap_or_default();
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

    /// A file system in a file, mounted for as long as this is there.
    struct Mounted<'a>(&'a Path);

    impl<'a> Mounted<'a> {
        fn at(point: &'a Path, image: &Path) -> Option<Self> {
            let mounted = Command::new("mount").args(["-o", "loop"]).arg(image).arg(point).status();
            mounted.is_ok_and(|mounted| mounted.success()).then_some(Self(point))
        }
    }

    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            assert!(Command::new("umount").arg("--lazy").arg(self.0).status().unwrap().success());
        }
    }

    /// Nobody has asked for the access list of a folder by whose owner a program is started: it is on the disk. Needs
    /// root, loop devices, and a file system that keeps access lists, as that of a home does.
    #[test]
    fn a_program_in_folders_of_its_user_is_known_before_root_has_been_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (image, point) = (folder.join("image"), folder.join("home"));
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        std::fs::create_dir(&point).unwrap();
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
        let path = point.join("app/bin/payd");
        let filled = "mkdir -p app/bin && cp /bin/cat app/bin/payd && chown -R 65534:65534 app";
        let copied = made.is_ok_and(|made| made.success())
            && Mounted::at(&point, &image).is_some_and(|_mounted| {
                let mut command = Command::new("sh");
                command.args(["-c", filled]).current_dir(&point).status().unwrap().success()
            });
        let Some(_mounted) = copied.then(|| Mounted::at(&point, &image)).flatten() else {
            eprintln!("no file system can be mounted here");
            return;
        };
        let mut command = Command::new(&path);
        command.uid(65534);
        assert!(runs_known(command, &path));
    }

    /// A file of the same mount, and one that is there no more.
    #[test]
    fn a_program_that_was_replaced_or_removed_has_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("payd");
        for then in ["rm \"$0\"", "rm \"$0\"; cp /bin/cat \"$0\"", "mv \"$0\" \"$0.2\"; cp /bin/cat \"$0\""] {
            assert!(Command::new("cp").arg("/bin/cat").arg(&path).status().unwrap().success());
            let script = format!("exec 3<\"$0\"; ({then}) </dev/null; exec /proc/self/fd/3");
            let runs = ["sh", "-c", &script, path.to_str().unwrap()];
            let mut command = Command::new(runs[0]);
            command.args(&runs[1..]);
            let (reads, writes) = std::io::pipe().unwrap();
            let mut child = command.stdin(reads).stdout(Stdio::piped()).spawn().unwrap();
            std::io::Write::write_all(&mut { &writes }, b"ready").unwrap();
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
            let program = program_of(child.id(), &mut OwnMounts::default());
            drop(writes);
            child.wait().unwrap();
            let moved = folder.path().canonicalize().unwrap().join("payd.2");
            let expected = then.starts_with("mv").then(|| moved.to_str().unwrap().to_owned());
            assert_eq!(program, Ok(expected), "{then}");
        }
    }

    #[test]
    fn what_nobody_knows_is_told_once_where_a_policy_reads_it() {
        let read = Arc::new(AtomicBool::new(false));
        let mut processes = Processes::new(Arc::default(), Arc::clone(&read));
        let nobody = 0;
        assert!(processes.program_of(nobody).is_empty() && !processes.has_told_of_programs);
        read.store(true, Ordering::Relaxed);
        assert!(!processes.program_of(std::process::id()).is_empty() && !processes.has_told_of_programs);
        assert!(processes.program_of(nobody).is_empty() && processes.has_told_of_programs);
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
