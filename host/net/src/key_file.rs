//! Files of keys that hosts share: one key a line, so that keys can be exchanged without a pause.

use crate::regular_file::{RegularFileError, read_regular};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Others may read it.
    #[error("{path}: may be read by every user (mode {mode:04o}): chmod o= {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It has the wrong content.
    #[error("{path}: {what}; write one key a line, such as openssl rand -hex 32 makes")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Why it is not read.
enum Refused {
    Open(u32),
    File(RegularFileError),
}

impl From<RegularFileError> for Refused {
    fn from(why: RegularFileError) -> Self {
        Self::File(why)
    }
}

/// Bytes of such a file that are read: more are no keys.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads keys: the lines of a file that nobody but its user and group may read, without those that are empty or begin
/// with `#`. Each has `bytes_min` bytes or more; there are `count_max` at most, and one at least.
///
/// # Errors
/// [`KeyFileError`] names the file and what is wrong with it. It never shows a key.
pub fn read_key_file(path: &Path, bytes_min: usize, count_max: usize) -> Result<Vec<Vec<u8>>, KeyFileError> {
    let content = |what: String| KeyFileError::Content { path: path.to_owned(), what };
    let text = read_regular(path, FILE_BYTES_MAX, |metadata| match metadata.mode() & 0o7777 {
        mode if mode & 0o007 != 0 => Err(Refused::Open(mode)),
        _ => Ok(()),
    });
    let text = text.map_err(|why| match why {
        Refused::Open(mode) => KeyFileError::Open { path: path.to_owned(), mode },
        Refused::File(RegularFileError::Unreadable(why)) => {
            KeyFileError::Unreadable { path: path.to_owned(), why: why.to_string() }
        }
        Refused::File(why) => content(why.to_string()),
    })?;
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    let keys: Vec<_> = lines.filter(|(_, line)| !line.is_empty() && line[0] != b'#').collect();
    if let Some((at, key)) = keys.iter().find(|(_, key)| key.len() < bytes_min) {
        return Err(content(format!(
            "line {} has {} bytes, a key has {bytes_min} at least",
            at + 1,
            key.len()
        )));
    }
    match keys.len() {
        0 => Err(content("has no key".into())),
        count if count > count_max => Err(content(format!("has {count} keys, limit {count_max}"))),
        _ => Ok(keys.into_iter().map(|(_, key)| key.to_vec()).collect()),
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is read from a file of keys, and what the user is told otherwise.
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, mode: u32) -> Result<Vec<Vec<u8>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read_key_file(&path, 4, 2).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_a_line() {
        let found = read("# of the cluster\nnewer \r\n\nolder\n", 0o640).unwrap();
        assert_eq!(found, [b"newer".to_vec(), b"older".to_vec()]);
    }

    #[test]
    fn what_the_user_is_told() {
        for (text, mode, told) in [
            ("good", 0o644, "may be read by every user (mode 0644): chmod o="),
            ("", 0o600, "has no key; write one key a line, such as openssl rand -hex 32 makes"),
            ("good\nbad", 0o600, "line 2 has 3 bytes, a key has 4 at least"),
            ("one1\ntwo2\nthree", 0o600, "has 3 keys, limit 2"),
        ] {
            let error = read(text, mode).unwrap_err();
            assert!(error.contains(told) && !error.contains("good"), "{text}: {error}");
        }
        let missing = read_key_file(Path::new("/nowhere/keys"), 4, 2).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/keys: cannot be read"), "{missing}");
        let long = "x".repeat(70_000);
        assert!(read(&long, 0o600).unwrap_err().contains("has more than 65536 bytes"));
    }
}
