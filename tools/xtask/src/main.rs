//! `cargo xtask <task>`: what the project does for itself.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::imports::Imports;
use xtask::packages::Package;
use xtask::{Tree, counts, crates, deb, life, pages, ratchet, rules, site, suite};

const USAGE: &str = "usage: cargo xtask test [PROGRAM]...
       cargo xtask tidy [--update] [FOLDER]...
       cargo xtask circles [FOLDER]
       cargo xtask counts [--update]
       cargo xtask counts CASE
       cargo xtask pages
       cargo xtask life
       cargo xtask docs
       cargo xtask deb [REVISION]
       cargo xtask deb-library
       cargo xtask crates

test      run every check there is, and sum up
PROGRAM   run only these test programs, of whatever crate: those of system tests with 2 and 3 shards, too
tidy      hold the work tree, or these folders of it, to the project's rules (CONTRIBUTING.md)
--update  first break comment lines that are too long, and lower ratchet entries to what the code is now
circles   list the imports by which files of a package, or of any, import from themselves
counts    count instructions of the codec, rings and calls under valgrind, and compare with docs/counts.toml
--update  write that file instead
CASE      say whose the instructions of one line of that file are, by module
pages     make the pages that come from data: targets, the tables of benchmarks and README, plots
life      make ARCHITECTURE's life of a call from the marks in the code
docs      build the documentation as a site, and follow every link of it
deb       make a Debian package of the release build; REVISION (+1) stands behind its version
deb-library
          make those of the library for C and C++: libtrunkline0, libtrunkline-dev
crates    package every crate that others depend on, as a registry would get it, and build it from there";

fn main() -> ExitCode {
    match suite::hand_over(std::env::args_os().skip(1)) {
        None => {}
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("the program could not be handed over: {error}");
            return ExitCode::FAILURE;
        }
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, words): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with('-'));
    let update = match options.as_slice() {
        [] => false,
        ["--update"] => true,
        _ => return usage(),
    };
    match words.as_slice() {
        ["test", programs @ ..] if !update => code(suite::run(programs)),
        ["counts"] => code(counts::run(update)),
        ["counts", case] if !update => code(counts::owners(case)),
        ["circles"] if !update => circles(""),
        ["circles", folder] if !update => circles(folder),
        ["pages"] if !update => make_pages(),
        ["life"] if !update => make_life(),
        ["docs"] if !update => code(site::run()),
        ["crates"] if !update => code(crates::run()),
        ["deb"] if !update => made(deb::daemon("").map(|package| vec![package])),
        ["deb", revision] if !update => made(deb::daemon(revision).map(|package| vec![package])),
        ["deb-library"] if !update => made(deb::library("").map(Vec::from)),
        ["tidy", folders @ ..] => tidy(update, folders),
        _ => usage(),
    }
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn made(packages: Result<Vec<PathBuf>, String>) -> ExitCode {
    match packages {
        Ok(packages) => {
            packages.iter().for_each(|package| println!("{}", package.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("deb: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make_pages() -> ExitCode {
    match pages::write(&Tree::root()) {
        Ok(written) => {
            println!("pages: {written} written");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pages: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make_life() -> ExitCode {
    match life::write(&Tree::root()) {
        Ok(is_written) => {
            println!("life: {}", if is_written { "written" } else { "current" });
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("life: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(update: bool, folders: &[&str]) -> ExitCode {
    match checked(&Tree::root(), update, folders) {
        Ok(0) => {
            println!("tidy: nothing to mend");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            println!("tidy: {findings} to mend");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}

fn circles(folder: &str) -> ExitCode {
    let tree = match Tree::load(&Tree::root()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("circles: {error}");
            return ExitCode::from(2);
        }
    };
    for package in Package::all(&tree).iter().filter(|package| package.folder.starts_with(folder)) {
        let imports = Imports::of(&tree, package);
        let circles = imports.circles();
        for (from, to) in imports.edges() {
            if circles.contains(&from) && circles.contains(&to) {
                println!("{from} imports from {to}");
            }
        }
    }
    ExitCode::SUCCESS
}

fn checked(root: &Path, update: bool, folders: &[&str]) -> std::io::Result<usize> {
    let wanted = |path: &str| folders.is_empty() || folders.iter().any(|folder| path.starts_with(folder));
    let mut tree = Tree::load(root)?;
    if update {
        mend(root, &tree, wanted)?;
        tree = Tree::load(root)?;
    }
    let findings: Vec<_> = rules::check(&tree).into_iter().filter(|finding| wanted(&finding.path)).collect();
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.len())
}

/// Mends what a program can.
fn mend(root: &Path, tree: &Tree, wanted: impl Fn(&str) -> bool) -> std::io::Result<()> {
    let measures = rules::measures(tree, &Package::all(tree));
    if let Some(lowered) = ratchet::lowered(tree, &measures).filter(|_| wanted(ratchet::PATH)) {
        std::fs::write(root.join(ratchet::PATH), lowered)?;
    }
    for path in tree.sources.keys().filter(|path| wanted(path)) {
        let text = std::fs::read_to_string(root.join(path))?;
        let mended = xtask::rewrap(&text);
        if mended != text {
            std::fs::write(root.join(path), mended)?;
        }
    }
    Ok(())
}
