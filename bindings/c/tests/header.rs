//! Shows that the committed header says what the code is, and that the shared object exports what it says and nothing
//! else. With `TRUNKLINE_UPDATE=1` the files are written anew.

use cbindgen::{Builder, Config, DocumentationStyle, Language};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the exported symbols are listed. One that was released stays.
const SYMBOLS: &str = "symbols.txt";

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// A file of the repository is what it should be, or is made so.
fn holds(file: &str, wanted: &str) {
    if std::env::var_os("TRUNKLINE_UPDATE").is_some() {
        std::fs::write(here(file), wanted).unwrap();
    }
    let found = std::fs::read_to_string(here(file)).unwrap_or_default();
    let at = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted);
    let how = format!(
        "TRUNKLINE_UPDATE=1 cargo test -p trunkline-c --test header; first line that differs: {at:?}"
    );
    assert!(found == wanted, "{file} is not current: {how}");
}

fn generated() -> String {
    let config = Config {
        language: Language::C,
        include_guard: Some("TRUNKLINE_H".into()),
        header: Some(OPENING.trim().into()),
        after_includes: Some(INLINE.into()),
        cpp_compat: true,
        documentation_style: DocumentationStyle::C99,
        line_length: 100,
        usize_is_size_t: true,
        no_includes: true,
        sys_includes: ["stddef.h", "stdint.h", "string.h"].map(str::to_owned).to_vec(),
        ..Config::default()
    };
    let mut builder = Builder::new().with_config(config);
    let mut sources: Vec<PathBuf> =
        std::fs::read_dir(here("src")).unwrap().map(|file| file.unwrap().path()).collect();
    sources.sort();
    for source in sources.iter().filter(|source| !source.ends_with("lib.rs")) {
        builder = builder.with_src(source);
    }
    let mut out = Vec::new();
    builder.generate().expect("the sources are Rust").write(&mut out);
    // What Rust calls safety is in C what every function asks for.
    let text = String::from_utf8(out).unwrap().replace("// # Safety\n", "// Asks for:\n");
    text.replace("Asks for:\n// ", "Asks for: ")
}

const OPENING: &str = "
// Trunkline: remote procedure calls as a managed service of the host. docs/c.md explains; this file is made from
// bindings/c/src by a test of that crate.
//
// Every function gives a code. One with a `status` argument writes how it failed there, unless that is NULL; what was
// written is released by `tl_status_release`. Handles are numbers: one of nothing, of another kind or used after its
// end gives TL_INVALID_ARGUMENT. Functions may be called on any thread unless they say otherwise.
";

const INLINE: &str = "
#define TL_VERSION 2
";

#[test]
fn the_header_is_current() {
    holds("include/trunkline.h", &generated());
}

/// What a program includes takes no name of its own away.
#[test]
fn all_names_of_the_header_are_ours() {
    let header = generated();
    let mut found = 0;
    for line in header.lines() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let name = match words.as_slice() {
            ["", "define", name, ..] | ["typedef", "struct", name, ..] => *name,
            ["typedef", "void", "", "", name, ..] | ["typedef", .., name, ""] => *name,
            _ => continue,
        };
        assert!(
            name.starts_with("TL_") || name.starts_with("tl_") || name == "TRUNKLINE_H",
            "{name} is not ours"
        );
        found += 1;
    }
    assert!(found > 50, "{found} names");
}

#[test]
fn the_exported_symbols_are_those_listed() {
    let built = std::env::current_exe().unwrap().with_file_name("libtrunkline_c.so");
    let Ok(listed) = Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&built).output()
    else {
        return eprintln!("skipped: there is no nm");
    };
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut symbols: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    symbols.sort_unstable();
    holds(SYMBOLS, &(symbols.join("\n") + "\n"));
    let header = generated();
    for symbol in symbols {
        assert!(symbol.starts_with("tl_"), "{symbol} is not ours to export");
        assert!(header.contains(&format!("{symbol}(")), "{symbol} is not in the header");
    }
}
