//! Processes that a check has started: what they are, how much processor time they have taken, and how they end.
//!
//! Read from `/proc`. Where that is not, nothing is found, and a check is judged by wall time alone.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

/// Words of a command line that are worth a line.
const WORDS_MAX: usize = 6;
/// Threads of a program that are named.
const THREADS_MAX: usize = 8;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub id: u32,
    parent: u32,
    /// Its own, and that of its children that have ended and were waited for.
    cpu: Duration,
}

/// `root` and everything below it.
pub fn below(root: u32) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<Process> = ids
        .filter_map(|id| Process::parse(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?))
        .collect();
    family(root, all)
}

/// Those of `all` that descend from `root`, and itself.
fn family(root: u32, mut all: Vec<Process>) -> Vec<Process> {
    let mut known = HashSet::from([root]);
    let mut found = Vec::new();
    loop {
        let (more, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| one.id == root || known.contains(&one.parent));
        if more.is_empty() {
            return found;
        }
        known.extend(more.iter().map(|one| one.id));
        found.extend(more);
        all = rest;
    }
}

/// Processor time of all of them.
pub fn cpu(processes: &[Process]) -> Duration {
    processes.iter().map(|process| process.cpu).sum()
}

/// Ends them all.
pub fn kill(processes: &[Process]) {
    for process in processes {
        if let Some(id) = i32::try_from(process.id).ok().and_then(Pid::from_raw) {
            // Whoever has gone by itself is gone.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

impl Process {
    /// Of a line of `/proc/PID/stat` (proc_pid_stat(5)): the name in parentheses may hold anything.
    fn parse(id: u32, stat: &str) -> Option<Self> {
        let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| words.get(field - 3)?.parse::<u64>().ok();
        // utime, stime, cutime, cstime.
        let sum = ticks(14)? + ticks(15)? + ticks(16)? + ticks(17)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let cpu = Duration::from_millis(sum.saturating_mul(1000) / per_second);
        Some(Self { id, parent: words.get(1)?.parse().ok()?, cpu })
    }

    /// The file name of a program that cargo has built to test, without what cargo adds to it.
    pub fn test_program(&self) -> Option<String> {
        let exe = std::fs::read_link(format!("/proc/{}/exe", self.id)).ok()?;
        test_program(&exe)
    }

    /// Its number, command line and threads, in a line.
    pub fn describe(&self) -> String {
        let command = std::fs::read(format!("/proc/{}/cmdline", self.id)).unwrap_or_default();
        let words: Vec<_> = command.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
        let mut line = format!("process {}:", self.id);
        for word in words.iter().take(WORDS_MAX) {
            let word = String::from_utf8_lossy(word);
            line.push_str(&format!(" {}", word.rsplit('/').next().unwrap_or(&word)));
        }
        if words.len() > WORDS_MAX {
            line.push_str(" …");
        }
        if self.test_program().is_some() {
            line.push_str(&format!("; threads: {}", self.threads().join(", ")));
        }
        line
    }

    /// Names of its threads: libtest names them after their tests, the kernel keeps 15 bytes of that.
    fn threads(&self) -> Vec<String> {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.id)) else { return Vec::new() };
        let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.take(THREADS_MAX).map(|name| name.trim_end().to_owned()).collect()
    }
}

/// `…/deps/all-0123456789abcdef` is `all`.
fn test_program(exe: &std::path::Path) -> Option<String> {
    let folder: PathBuf = exe.parent()?.into();
    if !folder.ends_with("deps") {
        return None;
    }
    let name = exe.file_name()?.to_str()?;
    Some(name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned())
}

#[cfg(test)]
mod tests {
    //! Shows whose time is counted and who is named.
    use super::*;
    use std::io::Read;
    use std::path::Path;
    use std::process::{Command, Stdio};

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let stat = "7 (a) b (c)) S 5 7 7 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 1 0 10 1 1";
        let per_second = rustix::param::clock_ticks_per_second();
        let read = Process::parse(7, stat).unwrap();
        assert_eq!((read.id, read.parent), (7, 5));
        assert_eq!(read.cpu, Duration::from_millis(200 * 1000 / per_second));
        for broken in ["", "7 (a", "7 (a) S 5", "7 (a) S 5 7 7 0 -1 4194560 1 2 3 4 x 50 25 25"] {
            assert_eq!(Process::parse(7, broken), None, "{broken}");
        }
    }

    #[test]
    fn children_and_theirs_are_family() {
        let one = |id, parent| Process { id, parent, cpu: Duration::from_secs(1) };
        let all = vec![one(9, 8), one(8, 2), one(2, 1), one(3, 1), one(1, 0)];
        let mut ids: Vec<u32> = family(2, all.clone()).iter().map(|process| process.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [2, 8, 9]);
        assert_eq!(cpu(&family(2, all.clone())), Duration::from_secs(3));
        assert_eq!(family(77, all), []);
    }

    #[test]
    fn a_real_child_is_named_and_ended() {
        // It says so when it runs: until then it may have no command line that could be told.
        let mut waiting = Command::new("sh");
        waiting.args(["-c", "echo up; read never"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = waiting.spawn().unwrap();
        let mut said = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let found = below(std::process::id());
        let process = found.iter().find(|process| process.id == child.id()).expect("it is ours");
        assert_eq!(process.describe(), format!("process {}: sh -c echo up; read never", child.id()));
        let me = found.iter().find(|process| process.id == std::process::id()).unwrap();
        assert_eq!(me.test_program().as_deref(), Some("xtask"));
        kill(std::slice::from_ref(process));
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn programs_to_test_are_in_a_folder_of_their_own() {
        let name = |exe| test_program(Path::new(exe));
        assert_eq!(name("/x/debug/deps/all-0123456789abcdef").as_deref(), Some("all"));
        assert_eq!(name("/usr/bin/rustc"), None);
    }
}
