//! What operators read is what the programs say: the catalogue of log lines and the runbook in `docs/operating.md`.

use crate::source::Source;
use crate::{Finding, Tree};

const RULE: &str = "messages";
const PAGE: &str = "docs/operating.md";
const CATALOGUE: &str = "## Log catalogue";
const RUNBOOK: &str = "## Runbook by error text";
/// Where the daemon, the relay and the router log.
const LOGGING: [&str; 7] = [
    "run/daemon/src/",
    "run/relay/src/",
    "run/router/src/",
    "run/otlp/src/",
    "tools/cli/src/daemon/",
    "tools/cli/src/admin/",
    "host/net/src/",
];

/// Checks both lists.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.documents.get(PAGE) else { return Vec::new() };
    let (catalogue, runbook) = (texts(page, CATALOGUE), texts(page, RUNBOOK));
    let mut findings = Vec::new();
    let mut said = Vec::new();
    for (path, source) in
        tree.sources.iter().filter(|(path, _)| LOGGING.iter().any(|at| path.starts_with(at)))
    {
        for (line, text) in logged(source) {
            if !catalogue.iter().any(|(_, known)| *known == text) {
                let what = format!("{text:?} is logged and not in the catalogue");
                findings.push(at(
                    path,
                    line,
                    what,
                    "add it to docs/operating.md, with its reason and a remedy",
                ));
            }
            said.push(text);
        }
    }
    for (line, text) in &catalogue {
        if !said.contains(text) {
            findings.push(at(
                PAGE,
                *line,
                format!("nothing logs {text:?}"),
                "take it out, or write what is logged",
            ));
        }
    }
    let sources: Vec<String> = tree.sources.values().map(|source| joined(&source.lines.join("\n"))).collect();
    for (line, text) in &runbook {
        let is_said = |part: &str| part.is_empty() || sources.iter().any(|source| source.contains(part));
        if !text.split('…').all(is_said) {
            findings.push(at(PAGE, *line, format!("nothing says {text:?}"), "write what the code says"));
        }
    }
    findings
}

/// The second column of the table below a heading, without its backticks: (line from 1, text).
fn texts(page: &str, heading: &str) -> Vec<(usize, String)> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != heading).skip(1);
    let lines = lines.take_while(|(_, line)| !line.starts_with("## "));
    let text = |(number, line): (usize, &str)| {
        let cell = line.split('|').nth(2)?.trim();
        Some((number + 1, cell.strip_prefix('`')?.strip_suffix('`')?.to_owned()))
    };
    lines.filter_map(text).collect()
}

/// What `tracing::warn!` and `tracing::error!` say outside tests: (line from 1, text). A text that is all a value has
/// none of its own.
fn logged(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, code) in source.code.iter().enumerate() {
        let begins = ["tracing::warn!(", "tracing::error!("].iter().any(|name| code.contains(name));
        if !begins || source.is_test[number] {
            continue;
        }
        let mut depth = 0_i32;
        let mut text = String::new();
        for (line, code) in source.lines.iter().zip(&source.code).skip(number) {
            text += line;
            text.push('\n');
            depth += code.matches('(').count() as i32 - code.matches(')').count() as i32;
            if depth <= 0 {
                break;
            }
        }
        let begin = text.find("tracing::").unwrap_or_default();
        let said = last_text(&joined(&text[begin..])).filter(|said| !said.starts_with('{'));
        found.extend(said.map(|said| (number + 1, said)));
    }
    found
}

/// The last string of a macro's arguments; what follows the macro on its line is not one of them.
fn last_text(call: &str) -> Option<String> {
    let mut strings = call.split('"').skip(1).step_by(2);
    let first = strings.next()?;
    // A target comes first: `target: "log"`.
    let is_target = call.split('"').next()?.trim_end().ends_with("target:");
    Some(if is_target { strings.next()? } else { first }.to_owned())
}

/// With texts that are broken over lines in one piece.
fn joined(text: &str) -> String {
    let mut pieces = text.split("\\\n");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    pieces.for_each(|piece| out += piece.trim_start());
    out
}

fn at(path: &str, line: usize, what: String, instead: &str) -> Finding {
    Finding { path: path.to_owned(), line, rule: RULE, what, instead: instead.to_owned() }
}

#[cfg(test)]
mod tests {
    //! A line that is not in the catalogue, one that nothing logs, and a text that nothing says are found.
    use super::*;

    const CODE: &str = "fn f() {\n    tracing::warn!(%error, \"cannot dial\");\n    tracing::error!(\n        \
                        target: \"log\", count,\n        \"lines \\\n         lost\"\n    );\n    \
                        tracing::error!(\"{panic}\");\n    \
                        let fault = format!(\"nobody serves {what}: no road\");\n}\n";

    fn found(page: &str) -> Vec<String> {
        let tree = Tree::of([("docs/operating.md", page), ("run/daemon/src/x.rs", CODE)]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn both_lists_are_held_to_the_code() {
        let page = "## Log catalogue\n| WARN | `cannot dial` | x |\n| ERROR | `lines lost` | x |\n\
                    ## Runbook by error text\n| UNAVAILABLE | `nobody serves …: no road` | x |\n";
        assert_eq!(found(page), [""; 0]);
        let other = page.replace("cannot dial", "cannot call").replace("no road", "no way");
        assert_eq!(
            found(&other),
            [
                "\"cannot dial\" is logged and not in the catalogue",
                "nothing logs \"cannot call\"",
                "nothing says \"nobody serves …: no way\""
            ]
        );
    }
}
