//! Processes of a run: this program again in another role, or others by way of it.

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
pub use trunkline_measure::{
    Child, Failure, Serving, Talker, free_port, once_there, wait_for_file, wait_until_it_listens, write_file,
};

/// Starts this program again, in another role.
pub fn role<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Child, Failure> {
    Child::start(&mut role_command(arguments)?)
}

/// How this program is started in another role. The kernel ends it when the thread that started it ends: also where
/// nothing of ours runs any more, because the run was killed.
pub fn role_command<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("role").args(arguments);
    Ok(command)
}

/// How any program is started: by way of this one, which asks to end with us and then [becomes](become_program) it,
/// under the same pid.
pub fn program(path: &Path) -> Result<Command, Failure> {
    let mut command = role_command(&["become"])?;
    command.arg(path);
    Ok(command)
}

/// What a role does that is measured, or ended, from outside.
pub fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// Has the kernel kill this process when the thread that started it ends.
pub fn end_with_parent() -> Result<(), Failure> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Runs `program` in place of this one.
///
/// # Errors
/// When it cannot be started.
pub fn become_program(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    Err(format!("{program}: {}", Command::new(program).args(arguments).exec()).into())
}

/// Starts something on one core, where it then stays: what a thread starts may run where the thread may.
pub fn on_core<T>(core: usize, start: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let before = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).map_err(|error| format!("core {core} cannot be used: {error}"))?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

/// Written unless it is there as it should be: so that what is made from it is not made again.
pub fn write_changed(path: &Path, text: &str) -> Result<(), Failure> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        Ok(())
    } else {
        write_file(path, text)
    }
}

/// A path of our own making as an argument.
///
/// # Panics
/// If it is not UTF-8: they are names below the temporary directory.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("bench paths are our own temporary names")
}
