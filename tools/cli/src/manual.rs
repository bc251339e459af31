//! `trunkline completions` and `trunkline man`: what shells and man(1) want to know of the command line, from its own
//! definition.

use clap::{Args, Command};
use std::path::PathBuf;

/// What the programs are called in scripts and pages.
const NAME: &str = "trunkline";

/// `trunkline completions`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  trunkline completions bash > /etc/bash_completion.d/trunkline")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `trunkline man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder to write them to, which is there
    pub folder: PathBuf,
}

/// Prints a completion script for a command line.
pub fn completions(args: &CompletionsArgs, mut line: Command) {
    // Into memory first: the generator does not bear a reader who goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut line, NAME, &mut script);
    print!("{}", String::from_utf8_lossy(&script));
}

/// Writes a manual page for the program and one for each of its verbs.
///
/// # Errors
/// The folder cannot be written.
pub fn man(args: &ManArgs, line: Command) -> Result<(), String> {
    let written = clap_mangen::generate_to(line, &args.folder);
    written.map_err(|error| format!("{}: {error}", args.folder.display()))
}

#[cfg(test)]
mod tests {
    //! Shows that pages and scripts know every verb.
    use super::*;
    use crate::args::Trunkline;
    use clap::CommandFactory;
    use clap_complete::Shell;

    #[test]
    fn every_verb_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        man(&ManArgs { folder: folder.path().to_owned() }, Trunkline::command()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        assert!(page("trunkline.1").contains("Remote procedure calls"));
        for verb in Trunkline::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let text = page(&format!("trunkline-{}.1", verb.get_name()));
            let about = verb.get_about().unwrap().to_string();
            let first = about.split([' ', ',']).next().unwrap();
            assert!(text.contains(first) && text.contains(".SH SYNOPSIS"), "{}: {text}", verb.get_name());
        }
        assert!(page("trunkline-daemon.1").contains("check\\-config"));
    }

    #[test]
    fn every_shell_completes_every_verb() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Trunkline::command(), NAME, &mut script);
            let script = String::from_utf8(script).unwrap();
            for verb in Trunkline::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
                assert!(script.contains(verb.get_name()), "{shell}: {}", verb.get_name());
            }
        }
    }
}
