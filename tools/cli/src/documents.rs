//! Shows that the commands in the documentation are ones this binary takes.

use crate::args::Trunkline;
use crate::go;
use crate::insight::verb_of;
use clap::{CommandFactory, Parser};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trunkline_insight_verbs::InsightLine;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Every page for users, and what it says.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(ROOT);
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = pages.chain(["README.md", "examples/tonic/README.md"].map(|page| root.join(page)));
    pages.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Lines of fenced blocks that run `trunkline`, without prompt and remark, continued lines joined.
fn commands(page: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ");
    let mut fenced = false;
    let mut found = Vec::new();
    for line in page.lines().map(str::trim) {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let command = line.split(" # ").next().unwrap_or_default().trim_end_matches([' ', '&']);
        if fenced
            && command.starts_with("trunkline ")
            && !command.starts_with("trunkline = ")
            && !command.contains(['…', '['])
        {
            found.push(command.replace("$(seq -s, 30 2 100)", "30,40"));
        }
    }
    found
}

/// Words as a shell makes them: quotes, and no more.
fn words(command: &str) -> Vec<OsString> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut has_begun = false;
    for c in command.chars() {
        match (quote, c) {
            (None, '\'' | '"') => (quote, has_begun) = (Some(c), true),
            (Some(open), _) if c == open => quote = None,
            (None, ' ') if has_begun => {
                words.push(std::mem::take(&mut word).into());
                has_begun = false;
            }
            (None, ' ') => {}
            _ => {
                word.push(c);
                has_begun = true;
            }
        }
    }
    if has_begun {
        words.push(word.into());
    }
    words
}

/// A feature that is not in the table is one that nobody finds.
#[test]
fn the_table_of_features_has_those_of_the_library() {
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let manifest = read("run/trunkline/Cargo.toml");
    let (_, features) = manifest.split_once("[features]\n").unwrap();
    let features = features.lines().take_while(|line| !line.starts_with('['));
    let features = features.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let features: BTreeSet<_> =
        features.filter(|name| *name != "default" && !name.starts_with('#')).collect();
    let page = read("docs/install.md");
    let (_, table) = page.split_once("| feature of `trunkline` |").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows: BTreeSet<_> = rows.filter_map(|line| line.strip_prefix("| `")?.split_once('`')).collect();
    assert_eq!(rows.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), features);
}

#[test]
fn every_command_is_one() {
    let mut seen = 0;
    for (page, text) in pages() {
        for command in commands(&text) {
            // Where the output of one goes is the shell's.
            let line = command.split(" > ").next().unwrap_or_default();
            // As the program does, wherever its options stand.
            let is_insight = verb_of(&words(line)).is_some();
            let parsed = match is_insight {
                true => InsightLine::try_parse_from(words(line)).map(drop),
                false => Trunkline::try_parse_from(go::two_dashes(words(line).into_iter())).map(drop),
            };
            let told = |kind| matches!(kind, clap::error::ErrorKind::DisplayHelp);
            if let Err(error) = parsed.as_ref().map_err(clap::Error::kind)
                && !told(error)
            {
                panic!("{}: `{command}` is not taken: {error:?}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} commands were found: does this test still read the pages?");
}

#[test]
fn every_verb_and_option_in_prose_exists() {
    let command = Trunkline::command();
    let insight = InsightLine::command();
    let command = command.subcommands(insight.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned());
    let verbs: BTreeSet<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    for (page, text) in pages() {
        for span in text.split('`').skip(1).step_by(2).filter(|span| !span.contains('\n')) {
            let Some(rest) = span.strip_prefix("trunkline ") else { continue };
            let Some(verb) = rest.split(' ').next().filter(|verb| !verb.starts_with('-')) else { continue };
            assert!(verbs.contains(verb), "{}: `{span}`: there is no verb {verb:?}", page.display());
            let mut verb = command.find_subcommand(verb).unwrap();
            for word in rest.split(' ').skip(1) {
                verb = verb.find_subcommand(word).unwrap_or(verb);
                let Some(option) = word.strip_prefix("--") else { continue };
                let option = option.split('=').next().unwrap_or_default();
                let known = |argument: &clap::Arg| {
                    argument.get_long() == Some(option)
                        || argument.get_all_aliases().is_some_and(|all| all.contains(&option))
                };
                let is_known = verb.get_arguments().chain(command.get_arguments()).any(known);
                assert!(is_known, "{}: `{span}`: there is no option --{option}", page.display());
            }
        }
    }
}

#[test]
fn commands_are_found_and_cut() {
    let page =
        "x\n```console\n$ trunkline call a.B/C '{\"x\": 1}' \\\n  -v  # remark\nother\n```\ntrunkline no\n";
    assert_eq!(commands(page), ["trunkline call a.B/C '{\"x\": 1}'    -v"]);
    assert_eq!(words("a  'b c' \"\" d"), ["a", "b c", "", "d"]);
}
