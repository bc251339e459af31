//! Test programs that cargo has built and hands over, instead of running them one after another.
//!
//! Cargo runs them by a runner (`target.….runner`), which is this program again: it prints, as a line, what cargo would
//! have run, in which folder and with which variables, and is done. So a program gets from the suite what it gets from
//! cargo, and nobody has to say again what that is.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The task that is the runner.
pub const TASK: &str = "hand-over";
/// Such a line begins by it. Parts of a line are apart by [`BETWEEN`]; a line break in one is written as [`BREAK`].
const MARK: &str = "\u{1f}handed over\u{1f}";
const BETWEEN: char = '\u{1f}';
const BREAK: char = '\u{1e}';

/// A test program, as cargo would run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProgram {
    pub exe: PathBuf,
    /// The folder of its package, in which it runs.
    pub folder: PathBuf,
    variables: Vec<(String, String)>,
}

/// The runner: says what cargo would run. What is no test program, such as a test of documentation, runs at once.
pub fn hand_over(program: Vec<OsString>) -> Result<(), String> {
    let (exe, arguments) = program.split_first().ok_or("no program is named")?;
    let exe = PathBuf::from(exe);
    if !exe.parent().is_some_and(|folder| folder.ends_with("deps")) {
        return Err(Command::new(exe).args(arguments).exec().to_string());
    }
    let folder = std::env::current_dir().map_err(|error| error.to_string())?;
    // Others than text are as they were for the suite, which gives them on.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    println!("{}", TestProgram { exe, folder, variables: variables.collect() }.line());
    Ok(())
}

impl TestProgram {
    fn line(&self) -> String {
        let mut line = format!("{MARK}{}{BETWEEN}{}", self.exe.display(), self.folder.display());
        for (name, value) in &self.variables {
            line.push_str(&format!("{BETWEEN}{name}={value}"));
        }
        line.replace('\n', &BREAK.to_string())
    }

    /// Of a line that the runner has printed.
    pub fn parse(line: &str) -> Option<Self> {
        let said = line.strip_prefix(MARK)?.replace(BREAK, "\n");
        let mut parts = said.split(BETWEEN);
        let (exe, folder) = (parts.next()?.into(), parts.next()?.into());
        let variables = parts.filter_map(|part| part.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Self { exe, folder, variables })
    }

    /// Its file name without what cargo adds: `all` is `…/deps/all-0123456789abcdef`.
    pub fn name(&self) -> &str {
        let name = self.exe.file_name().and_then(|name| name.to_str()).unwrap_or("?");
        name.rsplit_once('-').map_or(name, |(name, _)| name)
    }

    /// The name of its package's folder, and its own.
    pub fn label(&self) -> String {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{folder} {}", self.name())
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.exe);
        command.current_dir(&self.folder).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a program arrives as it was handed over.
    use super::*;

    #[test]
    fn what_is_handed_over_is_read_again() {
        let variables = [("A", "1"), ("EMPTY", ""), ("TWO", "a line\nand = another")];
        let program = TestProgram {
            exe: "/x/debug/deps/all-0123456789abcdef".into(),
            folder: "/x/tests/system".into(),
            variables: variables.map(|(name, value)| (name.into(), value.into())).into(),
        };
        let line = program.line();
        assert!(!line.contains('\n'));
        assert_eq!(TestProgram::parse(&line).as_ref(), Some(&program));
        assert_eq!((program.name(), program.label().as_str()), ("all", "system all"));
        let command = program.command();
        assert_eq!(command.get_current_dir(), Some(program.folder.as_path()));
        assert_eq!(command.get_envs().count(), 3);
    }

    #[test]
    fn what_tests_say_is_no_program() {
        for line in ["", "running 3 tests", "handed over", "\u{1f}handed over\u{1f}only a program"] {
            assert_eq!(TestProgram::parse(line), None, "{line}");
        }
    }
}
