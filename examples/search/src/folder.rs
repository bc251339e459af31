//! Text files of a folder, as documents.

use crate::segment::Document;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file read: longer ones are data, not text somebody wrote.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most files read from one folder.
pub const FILES_MAX: usize = 20_000;
/// Folders below each other; links are not followed, so only a wilful tree is deeper.
const DEPTH_MAX: usize = 64;
/// Folders nobody wrote: what builds leave behind. Hidden ones are passed over too.
const GENERATED: [&str; 2] = ["target", "node_modules"];

/// Finds every text file below `root`, in the order of their names; read them with [`read`].
///
/// # Errors
/// If `root` cannot be listed. Folders below it that cannot are passed over.
pub fn text_files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    list(root, 0, &mut files)?;
    Ok(files)
}

/// Reads one file as a document named by its path below `root`. `None` if it is too large or no text.
pub fn read(root: &Path, file: &Path) -> Option<Document> {
    if fs::metadata(file).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8(fs::read(file).ok()?).ok().filter(|text| !text.contains('\0'))?;
    let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
    Some(Document { name, text })
}

fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(folder)?.filter_map(Result::ok).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Ok(kind) = entry.file_type() else { continue };
        if name.starts_with('.') || files.len() >= FILES_MAX {
            continue;
        }
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && depth < DEPTH_MAX && !GENERATED.contains(&&*name) {
            let _ = list(&entry.path(), depth + 1, files);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Shows what is taken and what is passed over.
    use super::*;

    #[test]
    fn only_text_somebody_wrote() {
        let root = tempfile::tempdir().unwrap();
        for (path, bytes) in [
            ("b.txt", &b"text"[..]),
            ("a/a.rs", b"code"),
            ("target/x.txt", b"generated"),
            (".git/config", b"hidden"),
            ("binary", b"a\0b"),
            ("latin1", b"\xe4"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fs::File::create(root.path().join("huge")).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("loop")).unwrap();

        let files = text_files(root.path()).unwrap();
        let documents: Vec<Document> = files.iter().filter_map(|file| read(root.path(), file)).collect();
        let names: Vec<&str> = documents.iter().map(|document| document.name.as_str()).collect();
        assert_eq!(names, ["a/a.rs", "b.txt"]);
        assert!(text_files(&root.path().join("missing")).is_err());
    }
}
