//! Child processes that never outlive the demo.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time a child gets to end by itself once its standard input is closed.
const GRACE: Duration = Duration::from_secs(3);
/// How often a child is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A program that runs until its standard input closes: it ends with the demo, however that ends, `kill -9` included.
pub struct Resident {
    child: Child,
    name: String,
    log: PathBuf,
}

/// What a program that ran to its end left behind.
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Its output and errors, as they came.
    pub output: String,
}

impl Resident {
    /// Starts `command`, its output and errors into `log`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(name: &str, mut command: Command, log: PathBuf) -> io::Result<Self> {
        let out = File::create(&log)?;
        let errors = out.try_clone()?;
        let child = command.stdin(Stdio::piped()).stdout(out).stderr(errors).spawn()?;
        Ok(Self { child, name: name.into(), log })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has ended, which it should not.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, waits a while, and ends it by force if need be.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        if wait(&mut self.child, GRACE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a program with `input` to its end; `None` if it did not come to one in `limit`.
///
/// # Errors
/// What the kernel says.
pub fn run(mut command: Command, input: &str, output: &Path, limit: Duration) -> io::Result<Option<Ran>> {
    let mut out = File::options().create(true).truncate(true).read(true).write(true).open(output)?;
    let (stdout, stderr) = (out.try_clone()?, out.try_clone()?);
    let mut child = command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Inputs are a few lines, less than a pipe holds; a child that does not read them shows by its exit code.
        let _ = stdin.write_all(input.as_bytes());
    }
    let Some(status) = wait(&mut child, limit) else {
        child.kill()?;
        child.wait()?;
        return Ok(None);
    };
    let mut text = String::new();
    io::Seek::rewind(&mut out)?;
    out.read_to_string(&mut text)?;
    Ok(Some(Ran { status, output: text }))
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that children end with their input, and by force if they do not listen.
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_resident_ends_with_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut cat = Resident::start("cat", shell("echo up; cat; echo down"), log).unwrap();
        assert!(!cat.has_ended());
        cat.end();
        assert!(cat.has_ended());
        assert_eq!(cat.log(), "up\ndown\n");
    }

    #[test]
    fn a_program_runs_to_its_end_or_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let ran = run(shell("cat; echo no >&2; exit 3"), "yes\n", &output, Duration::from_secs(60))
            .unwrap()
            .unwrap();
        assert_eq!((ran.status.code(), ran.output.as_str()), (Some(3), "yes\nno\n"));
        assert!(run(shell("exec sleep 600"), "", &output, Duration::ZERO).unwrap().is_none());
    }
}
