//! Programs that are run to their end: builds, package tools, what says a version.

use super::children::Failure;
use std::process::{Command, Stdio};

/// Runs a build step; its output is shown only as the error when it fails.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    said(command).map(drop)
}

/// What a command prints.
pub fn said(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(format!("{program} failed: {}", telling(&String::from_utf8_lossy(&done.stderr))).into())
}

/// First line of what a command prints.
pub fn output(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    Ok(said(Command::new(program).args(arguments))?.lines().next().unwrap_or_default().to_owned())
}

/// The line of a failed step's output that says why: the first that names an error, or else the last.
fn telling(said: &str) -> &str {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next_back().unwrap_or_default();
    let names_one = |line: &&str| line.to_lowercase().starts_with("error") || line.contains(": error");
    lines.find(names_one).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn a_failed_step_says_why() {
        let cargo = "   Compiling thiserror v2.0.0\nerror: no such thing\nwarning: build failed, waiting\n\n";
        assert_eq!(telling(cargo), "error: no such thing");
        assert_eq!(telling("a.cc:1: error: no a\nmake: *** [a.o] Error 1\n"), "a.cc:1: error: no a");
        assert_eq!(telling("E: cannot be found\n \n"), "E: cannot be found");
        assert_eq!(telling(""), "");
    }
}
