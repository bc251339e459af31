//! The verbs of `trunkline-insight`: found on the command line, and left to that program.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The program, beside this one.
const PROGRAM: &str = "trunkline-insight";
/// Its verbs. A copy, so that this program needs nothing of that one; a test holds them equal.
const VERBS: [&str; 11] = [
    "record",
    "characterize",
    "whatif",
    "diff",
    "tree",
    "clock",
    "export",
    "synth",
    "drive",
    "replay",
    "tax",
];
/// What the help of this program says of them.
pub const HELP: &str = "\
Records of calls, by the program trunkline-insight: record, characterize, whatif, diff, tree, clock, export,
synth, drive, replay, tax; each has its own --help.";
/// Lines of that program's description that are read.
const DESCRIBED_MAX: usize = 1000;
/// Options before the verb that have a value behind them.
const WITH_VALUE: [&str; 2] = ["--socket", "--admin-socket"];

/// Goes on as `trunkline-insight` if the command line is for it; returns only if it is not, or why that was not
/// possible.
pub fn start_if_asked(arguments: &[OsString]) -> Option<String> {
    verb_of(arguments)?;
    let program = program();
    let error = Command::new(&program).args(arguments.iter().skip(1)).exec();
    Some(format!(
        "{}: {error}: it belongs beside the trunkline program, and is installed with it",
        program.display()
    ))
}

/// The verbs of that program as it describes them, for scripts that complete command lines; none if it is not there.
pub fn described() -> Vec<clap::Command> {
    let described = Command::new(program()).arg("describe").stderr(Stdio::null()).output();
    let text = described.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    commands(&String::from_utf8(text.unwrap_or_default()).unwrap_or_default())
}

/// Verbs and options, a line each: verb, option and what it does, with tabs between them.
fn commands(text: &str) -> Vec<clap::Command> {
    let mut commands: Vec<clap::Command> = Vec::new();
    for line in text.lines().take(DESCRIBED_MAX) {
        let mut parts = line.splitn(3, '\t').map(leaked);
        let (Some(verb), Some(option), Some(help)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if option.is_empty() {
            commands.push(clap::Command::new(verb).about(help));
        } else if let Some(command) = commands.pop_if(|command| command.get_name() == verb) {
            let (long, value) =
                option.split_once('=').map_or((option, None), |(long, value)| (long, Some(value)));
            let argument = clap::Arg::new(long).long(long).help(help);
            commands.push(command.arg(match value {
                Some(name) => argument.value_name(name).action(clap::ArgAction::Set),
                None => argument.action(clap::ArgAction::SetTrue),
            }));
        }
    }
    commands
}

/// For as long as the program runs, which prints a script and ends.
fn leaked(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
    beside.unwrap_or_else(|| PROGRAM.into())
}

/// The verb of that program that a command line has, if it has one.
pub fn verb_of(arguments: &[OsString]) -> Option<&str> {
    let mut words = arguments.iter().skip(1).map(OsString::as_os_str);
    while let Some(word) = words.next() {
        // `trunkline help record`: that program has a verb of this name, too.
        if word == OsStr::new("help") {
            return words.next()?.to_str().filter(|word| VERBS.contains(word));
        }
        if WITH_VALUE.iter().any(|option| word == OsStr::new(option)) {
            words.next();
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return word.to_str().filter(|word| VERBS.contains(word));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    //! Shows which command lines are that program's.
    use super::*;

    #[test]
    fn what_it_describes_is_completed() {
        let text = "tree\t\tShow calls\ntree\tmethod=METHOD\tOnly these\nother\tx\ty\nnothing\n";
        let commands = commands(text);
        assert_eq!(commands.iter().map(|verb| verb.get_name()).collect::<Vec<_>>(), ["tree"]);
        let mut script = Vec::new();
        let mut line = clap::Command::new("trunkline").subcommands(commands);
        clap_complete::generate(clap_complete::Shell::Fish, &mut line, "trunkline", &mut script);
        let script = String::from_utf8(script).unwrap();
        assert!(
            script.contains("-a \"tree\"") && script.contains("-l method -d 'Only these' -r"),
            "{script}"
        );
    }

    #[test]
    fn its_verbs_are_found_and_no_others() {
        let verb = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            verb_of(&words).map(str::to_owned)
        };
        assert_eq!(verb("trunkline record -o x"), Some("record".into()));
        assert_eq!(verb("trunkline --socket record diff a b"), Some("diff".into()));
        assert_eq!(verb("trunkline --admin-socket=x tree a"), Some("tree".into()));
        assert_eq!(verb("trunkline help record"), Some("record".into()));
        for other in [
            "trunkline",
            "trunkline help",
            "trunkline help list",
            "trunkline list record",
            "trunkline --help",
            "trunkline explain tree",
        ] {
            assert_eq!(verb(other), None, "{other}");
        }
        assert_eq!(VERBS, trunkline_insight_verbs::VERBS);
    }
}
