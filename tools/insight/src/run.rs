//! From the command line to a verb, and from its outcome to an exit code.

use crate::args::{InsightLine, InsightVerb, PagesArgs};
use crate::operator::operator_channel;
use crate::output::EXIT_PIPE;
use crate::{drive, record, replay, tax, tree, verbs};
use clap::{CommandFactory, Parser};
use std::io::Write;
use std::process::ExitCode;
use trunkline_insight::printable_lines;

/// Runs what this process's command line says.
pub fn run() -> ExitCode {
    end_with_reader();
    let InsightLine { socket, admin_socket, verb } = InsightLine::parse();
    if let Some(problem) = verb.refuses_sockets() {
        let named = [("--socket", &socket), ("--admin-socket", &admin_socket)];
        if let Some((option, _)) = named.into_iter().find(|(_, path)| path.is_some()) {
            // As a wrong command line ends.
            eprintln!("error: {option}: {problem}\n\nFor more information, try '--help'.");
            return ExitCode::from(2);
        }
    }
    let outcome = match verb {
        InsightVerb::Record(args) => record::record(operator_channel(socket, admin_socket), &args),
        InsightVerb::Characterize(args) => verbs::characterize(&args),
        InsightVerb::Whatif(args) => verbs::what_if(&args),
        InsightVerb::Diff(args) => verbs::diff(&args),
        InsightVerb::Tree(args) => tree::tree(&args),
        InsightVerb::Clock(args) => verbs::clock(&args),
        InsightVerb::Export(args) => verbs::export(&args),
        InsightVerb::Synth(args) => verbs::synth(&args),
        InsightVerb::Drive(args) => {
            drive::drive(&operator_channel(socket.clone(), admin_socket), socket, &args)
        }
        InsightVerb::Replay(args) => replay::replay(&args),
        InsightVerb::Tax(args) => tax::tax(&args),
        InsightVerb::Man(args) => man(&args),
        InsightVerb::Describe => {
            print!("{}", description());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("trunkline: {}", printable_lines(&problem));
            ExitCode::FAILURE
        }
    }
}

/// A manual page for each verb; the program's own is that of `trunkline`.
fn man(args: &PagesArgs) -> Result<(), String> {
    let mut line = InsightLine::command();
    // Verbs get the program's name, and options that all have.
    line.build();
    for verb in line.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("trunkline-{}", verb.get_name());
        let path = args.folder.join(format!("{name}.1"));
        let mut page = Vec::new();
        clap_mangen::Man::new(verb.clone())
            .render(&mut page)
            .and_then(|()| std::fs::write(&path, page))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Verbs and options for `trunkline completions`, a line each: the verb, nothing and what it does; the verb, the option
/// with its value's name if it has one, and what it does. Tabs stand between them.
fn description() -> String {
    let mut text = String::new();
    let line = InsightLine::command();
    for verb in line.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        text += &format!("{}\t\t{about}\n", verb.get_name());
        for option in verb.get_arguments().filter(|option| !option.is_hide_set()) {
            let Some(long) = option.get_long() else { continue };
            let takes_value = option.get_action().takes_values();
            let value = option.get_value_names().and_then(|names| names.first()).filter(|_| takes_value);
            let value = value.map_or_else(String::new, |name| format!("={name}"));
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            text += &format!("{}\t{long}{value}\t{}\n", verb.get_name(), help.replace(['\t', '\n'], " "));
        }
    }
    text
}

/// A reader that has seen enough (`trunkline export --csv x.rec | head -1`) ends the program quietly; whatever else is
/// wrong with standard output is said in a sentence.
fn end_with_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        match said.strip_prefix("failed printing to stdout: ") {
            Some(why) if why.contains("Broken pipe") => std::process::exit(EXIT_PIPE),
            Some(why) => {
                let _ = writeln!(std::io::stderr(), "trunkline: cannot write: {why}");
                std::process::exit(1);
            }
            None => usual(panic),
        }
    }));
}

#[cfg(test)]
mod tests {
    //! Shows that every verb has a page.
    use super::*;
    use crate::args::VERBS;

    #[test]
    fn every_verb_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        man(&PagesArgs { folder: folder.path().to_owned() }).unwrap();
        for verb in VERBS {
            let page = std::fs::read_to_string(folder.path().join(format!("trunkline-{verb}.1"))).unwrap();
            assert!(page.contains(".SH SYNOPSIS") && page.contains(verb), "{page}");
        }
    }
}
