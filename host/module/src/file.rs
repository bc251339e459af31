//! Reading the file: whole, at once, and only if nobody else could have written it.

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use trunkline_policy::ModuleError;

/// A module with a run-time library and debug symbols has a few MiB.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// Who else may write the file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a file is not one whose contents may run with the daemon's rights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {advice}")]
pub struct Untrusted {
    /// What is wrong with it.
    pub problem: String,
    /// What to do about it.
    pub advice: String,
}

/// Opens a regular file. What is checked and used from then on is this file, whatever lies at the path meanwhile.
///
/// # Errors
/// [`Untrusted`] if it is none, or cannot be opened.
pub fn open_regular(path: &Path) -> Result<File, Untrusted> {
    let name = path.display();
    let failed = |what: &str, error: io::Error| {
        untrusted(format!("cannot {what} {name}: {error}"), "look at the path")
    };
    // Not waiting: the path may be a pipe nobody writes to.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(|error| failed("open", error.into()))?;
    let found = fstat(&file).map_err(|error| failed("look at", error.into()))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(File::from(file)),
        _ => Err(untrusted(format!("{name} is no regular file"), "write the path of one")),
    }
}

/// Whether nobody but root and the daemon's user could have written an open file. Its contents run with the daemon's
/// rights: whoever could write it could do whatever the daemon may.
///
/// # Errors
/// [`Untrusted`] says who else could; `path` is what it is called.
pub fn check_trusted(path: &Path, file: &File) -> Result<(), Untrusted> {
    let found = fstat(file).map_err(|error| {
        untrusted(format!("cannot look at {}: {error}", path.display()), "look at the path")
    })?;
    trusted(path, found.st_uid, found.st_mode)
}

/// The contents of the file at `path`.
pub(crate) fn read(path: &str) -> Result<Vec<u8>, ModuleError> {
    let refused = |Untrusted { problem, advice }| ModuleError::of_path(problem, advice);
    let file = open_regular(Path::new(path)).map_err(refused)?;
    check_trusted(Path::new(path), &file).map_err(refused)?;
    let bytes_max = FILE_BYTES_MAX;
    let mut bytes = Vec::new();
    // One more than the limit, so that a file that grew meanwhile is found out.
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| ModuleError::of_path(format!("cannot read {path}: {error}"), ""))?;
    if bytes.len() as u64 > bytes_max {
        return Err(ModuleError::of_path(
            format!("{path} has more than {bytes_max} bytes"),
            "strip its symbols",
        ));
    }
    Ok(bytes)
}

fn trusted(path: &Path, owner: u32, mode: u32) -> Result<(), Untrusted> {
    let path = path.display();
    let own = rustix::process::geteuid().as_raw();
    if owner != 0 && owner != own {
        let problem =
            format!("{path} belongs to user {owner}, and what is in it runs with the rights of the daemon");
        return Err(untrusted(problem, &format!("have it belong to root or to user {own}")));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        let problem = format!("{path} may be written by others (mode {:o})", mode & 0o7777);
        return Err(untrusted(problem, "chmod go-w"));
    }
    Ok(())
}

fn untrusted(problem: String, advice: &str) -> Untrusted {
    Untrusted { problem, advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    //! Shows which files are read and why the others are not.
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn refused(path: &Path) -> String {
        read(path.to_str().unwrap()).unwrap_err().problem
    }

    #[test]
    fn only_regular_files_others_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.so");
        assert!(refused(&path).contains("No such file"), "{}", refused(&path));
        std::fs::write(&path, "text").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(read(path.to_str().unwrap()).unwrap(), b"text");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
        assert!(refused(&path).contains("may be written by others (mode 664)"));
        assert!(refused(folder.path()).ends_with("is no regular file"));
        assert!(trusted(Path::new("m.so"), 0, 0o100_755).is_ok());
        let stranger = rustix::process::geteuid().as_raw() + 1;
        assert!(
            trusted(Path::new("m.so"), stranger, 0o100_755).unwrap_err().problem.contains("belongs to user")
        );
    }

    #[test]
    fn pipes_are_not_waited_for_and_large_files_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).unwrap();
        assert!(refused(&pipe).ends_with("is no regular file"));
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        std::fs::set_permissions(&large, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(refused(&large).contains("more than 67108864 bytes"));
    }
}
