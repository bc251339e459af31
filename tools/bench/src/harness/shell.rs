//! Programs that are run to their end: builds, package tools, what says a version.

use super::children::{Failure, text};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a build step; its output is shown only as the error when it fails.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    done(command).map(drop)
}

/// What a command prints.
pub fn said(command: &mut Command) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&done(command)?.stdout).into_owned())
}

/// What a command prints on standard error, if it prints nothing on standard output.
pub fn said_anywhere(command: &mut Command) -> Result<String, Failure> {
    let Output { stdout, stderr, .. } = done(command)?;
    Ok(String::from_utf8_lossy(if stdout.is_empty() { &stderr } else { &stdout }).into_owned())
}

/// First line of what a command prints.
pub fn output(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    Ok(said(Command::new(program).args(arguments))?.lines().next().unwrap_or_default().to_owned())
}

fn done(command: &mut Command) -> Result<Output, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(done);
    }
    Err(format!("{program} failed: {}", telling(&String::from_utf8_lossy(&done.stderr))).into())
}

/// The line of a failed step's output that says why: the first that names an error, or else the last that is not make's
/// own.
fn telling(said: &str) -> &str {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next_back().unwrap_or_default();
    let last = lines.clone().rfind(|line| !line.starts_with("make: ***")).unwrap_or(last);
    let names_one = |line: &&str| line.to_lowercase().starts_with("error") || line.contains(": error");
    lines.find(names_one).unwrap_or(last)
}

/// A folder with a Makefile, and what that is given.
#[derive(Clone, Debug)]
pub struct Make {
    words: Vec<String>,
}

impl Make {
    /// Makes the first target, or another.
    pub fn new(folder: &str, target: &[String]) -> Self {
        Self { words: [&["-C".to_owned(), folder.to_owned()], target].concat() }
    }

    /// Gives it a variable.
    pub fn set(&mut self, name: &str, value: &str) {
        self.words.push(format!("{name}={value}"));
    }

    /// Runs it; what is made goes to `out`.
    pub fn run(&self, out: &Path) -> Result<(), Failure> {
        run(Command::new("make").args(&self.words).arg(format!("OUT={}", text(out))))
    }
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn a_failed_step_says_why() {
        let cargo = "   Compiling thiserror v2.0.0\nerror: no such thing\nwarning: build failed, waiting\n\n";
        assert_eq!(telling(cargo), "error: no such thing");
        assert_eq!(telling("a.cc:1: error: no a\nmake: *** [a.o] Error 1\n"), "a.cc:1: error: no a");
        assert_eq!(telling("there is no Python 3.9\nmake: *** [all] Error 77\n"), "there is no Python 3.9");
        assert_eq!(
            telling("make: *** No rule to make target 'a'.\n"),
            "make: *** No rule to make target 'a'."
        );
        assert_eq!(telling("E: cannot be found\n \n"), "E: cannot be found");
        assert_eq!(telling(""), "");
    }
}
