//! The documentation as a site: `make docs`.
//!
//! Pages are kept where the repository shows them, with links to its files. For the site they are copied, with those of
//! the root folder beside them, links to sources become plain text ([`book`]), mdBook builds it, and every link and
//! anchor of what it wrote is followed ([`links`]). Where a browser without a window is installed, it opens every page.

mod book;
mod browser;
mod links;

use crate::Tree;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that is installed where there is none.
const MDBOOK: &str = "0.5.4";

/// Builds the site and checks it. `true` if every link leads somewhere.
pub fn run() -> bool {
    match build(&Tree::root()) {
        Ok(problems) if problems.is_empty() => true,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("docs: {problem}"));
            eprintln!("docs: {} to mend", problems.len());
            false
        }
        Err(problem) => {
            eprintln!("docs: {problem}");
            false
        }
    }
}

fn build(root: &Path) -> Result<Vec<String>, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mdbook = mdbook(&target)?;
    let folder = target.join("docs");
    let tree = Tree::load(root).map_err(|error| error.to_string())?;
    book::write(root, &tree, &folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    ran(Command::new(&mdbook).arg("build").arg(&folder))?;
    let html = folder.join("book");
    let pages = links::pages(&html).map_err(|error| format!("{}: {error}", html.display()))?;
    let mut problems = links::check(&html, &pages);
    problems.extend(browser::check(&html, &pages)?);
    println!("docs: {} pages in {}", pages.len(), html.display());
    Ok(problems)
}

/// The program, installed below the target folder if it is nowhere.
fn mdbook(target: &Path) -> Result<PathBuf, String> {
    let own = target.join("tools/bin/mdbook");
    for program in [Path::new("mdbook"), &own] {
        if Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Ok(program.to_owned());
        }
    }
    println!("docs: installing mdBook {MDBOOK} below {}", target.display());
    let mut install = Command::new("cargo");
    install.args(["install", "mdbook", "--locked", "--version", MDBOOK]);
    install.args(["--no-default-features", "--features", "search", "--root"]).arg(target.join("tools"));
    ran(install.env("CARGO_TARGET_DIR", target.join("tools/build")))?;
    Ok(own)
}

fn ran(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}
