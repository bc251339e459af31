//! Opens every page in a browser without a window, if one is installed.

use super::links::Pages;
use std::path::Path;
use std::process::Command;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// What pages do not open, or have no heading when they have. `TRUNKLINE_BROWSER` names the program.
///
/// # Errors
/// The browser that is there does not start.
pub fn check(folder: &Path, pages: &Pages) -> Result<Vec<String>, String> {
    let named = std::env::var("TRUNKLINE_BROWSER").ok();
    let works = |program: &&str| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let Some(browser) = named.as_deref().or_else(|| BROWSERS.into_iter().find(|program| works(program)))
    else {
        println!("docs: no browser is installed; links are checked in the pages' text only");
        return Ok(Vec::new());
    };
    let mut problems = Vec::new();
    for (path, text) in pages {
        let mut open = Command::new(browser);
        open.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]);
        open.arg(format!("file://{}", folder.join(path).display()));
        let output = open.output().map_err(|error| format!("{browser}: {error}"))?;
        let shown = String::from_utf8_lossy(&output.stdout);
        let is_there = output.status.success() && shown.contains("<body") && shown.len() * 2 > text.len();
        // What scripts of a page say goes to the browser's log.
        let log = String::from_utf8_lossy(&output.stderr);
        let complaint = log.lines().find(|line| line.contains(":CONSOLE") && line.contains("rror"));
        problems.extend(complaint.map(|line| format!("{path}: {line}")));
        if !is_there {
            problems.push(format!("{path}: does not open in {browser}: {}", output.status));
        }
    }
    println!("docs: {browser} opened {} pages", pages.len());
    Ok(problems)
}
