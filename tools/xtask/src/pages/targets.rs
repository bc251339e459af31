//! The targets as a page, as the benchmarks' table, and as README's figures.

use super::data::{Data, Mark, Target};
use std::fmt::Write;

const HEAD: &str = "# Targets\n\n\
<!-- Made by `cargo xtask pages` from docs/targets.toml and docs/measured/; not edited. -->\n\n\
Every figure the project is held to, reached or not. A figure is the median over rounds, with the least and the most\n\
round in brackets; a ratio is taken round by round. A mark is judged by the median. The runs are in\n\
[docs/measured](measured/README.md), how they are made is on [benchmarks](benchmarks.md#how-it-is-measured).\n";

/// `docs/targets.md`.
pub fn page(data: &Data) -> String {
    let mut page = HEAD.to_owned();
    for target in &data.targets {
        let Target { command, note, marks, .. } = target;
        // Writing to a string does not fail.
        let _ = write!(page, "\n## {}\n\n", target.heading());
        let commands: Vec<String> = command.split("; ").map(|command| format!("`{command}`")).collect();
        let _ =
            write!(page, "{}\n\n| mark | wanted | measured | |\n|---|---|---|---|\n", commands.join("; "));
        for mark in marks {
            let Mark { name, measured, .. } = mark;
            let verdict = match mark.is_reached() {
                Some(true) => "reached",
                Some(false) => "**not reached**",
                None => "",
            };
            let _ = writeln!(page, "| {name} | {} | {measured} | {verdict} |", mark.wanted());
        }
        if let Some(note) = note {
            let _ = write!(page, "\n{note}\n");
        }
    }
    page
}

/// A row for each target: how many of its marks are reached, and which are not.
pub fn summary(data: &Data) -> String {
    let mut table = "| target | what | reached | not reached |\n|---|---|---|---|\n".to_owned();
    for target in &data.targets {
        let judged: Vec<(&Mark, bool)> =
            target.marks.iter().filter_map(|mark| Some((mark, mark.is_reached()?))).collect();
        let missed = judged.iter().filter(|(_, reached)| !reached);
        let missed: Vec<String> = missed
            .map(|(mark, _)| format!("{}: {} (wanted {})", mark.name, mark.median(), mark.wanted()))
            .collect();
        let _ = writeln!(
            table,
            "| [{}](targets.md#{}) | {} | {} of {} | {} |",
            target.id,
            target.anchor(),
            target.what,
            judged.len() - missed.len(),
            judged.len(),
            missed.join("; ")
        );
    }
    table
}

/// README's figures, each the median of a mark.
///
/// # Errors
/// A figure of a mark that does not exist.
pub fn figures(data: &Data) -> Result<String, String> {
    let figure = |(text, name): &(String, String)| {
        let mark = data.mark(name).ok_or_else(|| format!("{}: no mark {name:?}", super::TARGETS))?;
        let inverse =
            mark.median().parse::<f64>().map_or_else(|_| "?".to_owned(), |of| format!("{:.1}", 1.0 / of));
        Ok(format!("* {}\n", text.replace("{}", mark.median()).replace("{inverse}", &inverse)))
    };
    data.figures.iter().map(figure).collect()
}
