//! The verbs of `trunkline-insight`: found on the command line, and left to that program.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program, beside this one.
const PROGRAM: &str = "trunkline-insight";
/// Its verbs. A copy, so that this program needs nothing of that one; a test holds them equal.
const VERBS: [&str; 8] = ["record", "characterize", "whatif", "diff", "tree", "clock", "export", "synth"];
/// What the help of this program says of them.
pub const HELP: &str = "\
Records of calls, by the program trunkline-insight: record, characterize, whatif, diff, tree, clock, export,
synth; each has its own --help.";
/// Options before the verb that have a value behind them.
const WITH_VALUE: [&str; 2] = ["--socket", "--admin-socket"];

/// Goes on as `trunkline-insight` if the command line is for it; returns only if it is not, or why that was not
/// possible.
pub fn start_if_asked(arguments: &[OsString]) -> Option<String> {
    verb_of(arguments)?;
    let own = std::env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).args(arguments.iter().skip(1)).exec();
    Some(format!(
        "{}: {error}: it belongs beside the trunkline program, and is installed with it",
        program.display()
    ))
}

/// The verb, if it is one of that program's.
fn verb_of(arguments: &[OsString]) -> Option<&str> {
    let mut words = arguments.iter().skip(1).map(OsString::as_os_str);
    while let Some(word) = words.next() {
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
    fn its_verbs_are_found_and_no_others() {
        let verb = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            verb_of(&words).map(str::to_owned)
        };
        assert_eq!(verb("trunkline record -o x"), Some("record".into()));
        assert_eq!(verb("trunkline --socket record diff a b"), Some("diff".into()));
        assert_eq!(verb("trunkline --admin-socket=x tree a"), Some("tree".into()));
        for other in ["trunkline", "trunkline list record", "trunkline --help", "trunkline explain tree"] {
            assert_eq!(verb(other), None, "{other}");
        }
        assert_eq!(VERBS, trunkline_insight_verbs::VERBS);
    }
}
