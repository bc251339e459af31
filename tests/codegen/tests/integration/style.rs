//! Shows that generated code is laid out as rustfmt would lay it out, where there is a rustfmt to ask.

use std::path::Path;
use std::process::Command;

/// rustfmt's own defaults break lines long before they are full; generated code is long enough as it is.
const CONFIG: &str = "max_width=100,use_small_heuristics=Max";

#[test]
fn rustfmt_changes_nothing() {
    if Command::new("rustfmt").arg("--version").output().is_err() {
        return;
    }
    let files = std::fs::read_dir(env!("OUT_DIR")).unwrap().map(|entry| entry.unwrap().path());
    // The wide message is like the others, only longer. Services are elsewhere: their names are made so long there that
    // rustfmt and the generator break different lines.
    let is_code = |path: &Path| path.extension().is_some_and(|e| e == "rs") && !path.ends_with("wide.rs");
    let files: Vec<_> =
        files.filter(|path| is_code(path) && !path.ends_with("trunkline_protos.rs")).collect();
    assert!(files.len() > 5);
    let rustfmt = Command::new("rustfmt")
        .args(["--check", "--edition", "2024", "--config", CONFIG])
        .args(&files)
        .output();
    let changes = rustfmt.unwrap().stdout;
    assert!(changes.is_empty(), "{}", String::from_utf8_lossy(&changes));
}
