//! The file of the program that processes run.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program of every process to come. To be called before the first.
pub fn use_program(path: &str) {
    let known = PROGRAM.get_or_init(|| path.into());
    assert_eq!(known, Path::new(path), "processes run another program already");
}

/// The program that processes run.
pub(super) fn program() -> &'static PathBuf {
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its file");
        // Tests lie in a folder beside the package's programs.
        let folder = test.parent().and_then(Path::parent).expect("cargo builds tests into a folder");
        folder.join("probe")
    })
}
