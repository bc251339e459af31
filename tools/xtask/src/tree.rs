//! The work tree in memory.

use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Every path of the work tree, and the text of what rules read.
#[derive(Debug, Default)]
pub struct Tree {
    /// Files and folders, relative to the root, with `/`.
    pub paths: BTreeSet<String>,
    /// Rust files.
    pub sources: BTreeMap<String, Source>,
    /// Markdown files.
    pub documents: BTreeMap<String, String>,
    /// `Cargo.toml` files and the ratchet.
    pub manifests: BTreeMap<String, String>,
}

impl Tree {
    /// The root of this work tree.
    pub fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Reads the work tree under `root`, without build output and hidden folders (but with `.ci`).
    ///
    /// # Errors
    /// What the file system says.
    pub fn load(root: &Path) -> std::io::Result<Self> {
        let mut files = Vec::new();
        let mut paths = BTreeSet::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in still_there(std::fs::read_dir(root.join(&folder)))?.into_iter().flatten() {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                let kind = entry.file_type()?;
                if kind.is_dir() && !is_foreign(&path, &name) {
                    folders.push(path.clone());
                } else if kind.is_file() && is_read(&name) {
                    let bytes = still_there(std::fs::read(entry.path()))?;
                    files.extend(
                        bytes.map(|bytes| (path.clone(), String::from_utf8_lossy(&bytes).into_owned())),
                    );
                }
                paths.insert(path);
            }
        }
        Ok(Self { paths, ..Self::of(files) })
    }

    /// A tree of these files (path, text).
    pub fn of(files: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            let (path, text): (String, String) = (path.into(), text.into());
            for (at, _) in path.match_indices('/') {
                tree.paths.insert(path[..at].to_owned());
            }
            tree.paths.insert(path.clone());
            if path.ends_with(".rs") {
                tree.sources.insert(path, Source::of(text));
            } else if path.ends_with(".md") {
                tree.documents.insert(path, text);
            } else if path.ends_with(".toml") {
                tree.manifests.insert(path, text);
            }
        }
        tree.mark_test_files();
        tree
    }

    /// Files that only a `#[cfg(test)] mod name;` brings in are tests, and so is everything in `tests/` and `benches/`.
    fn mark_test_files(&mut self) {
        let mut roots: Vec<String> = Vec::new();
        for (path, source) in &self.sources {
            let folder = module_folder(path);
            for name in &source.test_modules {
                roots.push(format!("{folder}/{name}.rs"));
                roots.push(format!("{folder}/{name}/"));
            }
        }
        for (path, source) in &mut self.sources {
            let by_place =
                path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples" | "fuzz"));
            if by_place || roots.iter().any(|root| path.starts_with(root.as_str())) {
                source.all_test();
            }
        }
    }
}

/// Where the modules a file declares lie.
fn module_folder(path: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        other => format!("{folder}/{}", other.trim_end_matches(".rs")),
    }
}

/// What was read, or nothing if it has gone since its folder was listed: editors and tests come and go meanwhile.
fn still_there<T>(read: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn is_foreign(path: &str, name: &str) -> bool {
    path == "target" || name == "node_modules" || (name.starts_with('.') && name != ".ci")
}

fn is_read(name: &str) -> bool {
    name.ends_with(".rs") || name.ends_with(".md") || name == "Cargo.toml" || name == "ratchet.toml"
}
