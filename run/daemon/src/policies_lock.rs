//! One daemon for each file of policies (`admin.policies_file`): two that write one take each other's chain away, and
//! the one that lost its own hears of it at its next start.
//!
//! The lock is on a file beside it, which says whose it is. It cannot change hands with the daemon, for it ends with
//! the process that has it: one that takes over lets its predecessor's stand, and takes it at the first look or change
//! after that one has ended.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest text that is read of whose it is.
const OWNER_BYTES_MAX: u64 = 32;

/// The lock, held or to be had.
#[derive(Debug)]
pub(crate) struct PoliciesLock {
    path: PathBuf,
    held: Option<File>,
    /// Whose it was when this daemon took over from it.
    predecessor: Option<String>,
}

impl PoliciesLock {
    /// That of a file of policies, not held yet.
    pub fn beside(file: &Path) -> Self {
        // The same by whatever link it is named.
        let mut path = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()).into_os_string();
        path.push(".lock");
        Self { path: path.into(), held: None, predecessor: None }
    }

    /// Takes it where the daemon begins with what the process `from` hands over, which still has it.
    ///
    /// # Errors
    /// The process that has it, if it is another.
    pub fn take_over(&mut self, from: u32) -> Result<(), String> {
        match self.take() {
            Err(owner) if owner.parse().is_ok_and(|owner: u32| owner != from) => Err(owner),
            Err(owner) => {
                self.predecessor = Some(owner);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Takes it, if nobody else has it. Where there can be no such file there can be no change either, and that says
    /// why.
    ///
    /// # Errors
    /// The process that has it.
    pub fn take(&mut self) -> Result<(), String> {
        if self.held.is_some() {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let Ok(mut file) = options.custom_flags(nofollow).open(&self.path) else { return Ok(()) };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let written = file.set_len(0).and_then(|()| file.rewind());
                // Whose it is is a help to whoever is refused.
                let _ = written.and_then(|()| write!(file, "{}", std::process::id()));
                self.held = Some(file);
                Ok(())
            }
            Err(Errno::WOULDBLOCK) => {
                let mut owner = String::new();
                let _ = file.take(OWNER_BYTES_MAX).read_to_string(&mut owner);
                if self.predecessor.as_ref() == Some(&owner) { Ok(()) } else { Err(owner) }
            }
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows who has the lock: the first, then whoever took over from it, and nobody else meanwhile.
    use super::*;

    #[test]
    fn one_has_it_and_hands_it_on_by_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policies.toml");
        let own = std::process::id().to_string();
        let mut first = PoliciesLock::beside(&file);
        first.take().unwrap();
        first.take().unwrap();
        let mut other = PoliciesLock::beside(&file);
        assert_eq!(other.take(), Err(own.clone()));
        let mut next = PoliciesLock::beside(&file);
        assert_eq!(next.take_over(u32::MAX), Err(own.clone()), "another daemon's file");
        assert_eq!(next.take(), Err(own.clone()));
        next.take_over(std::process::id()).unwrap();
        next.take().unwrap();
        assert_eq!(other.take(), Err(own.clone()), "the predecessor has not ended");
        drop(first);
        next.take().unwrap();
        assert_eq!(other.take(), Err(own));
        drop(next);
        other.take().unwrap();
    }

    #[test]
    fn a_link_is_the_same_file_and_no_folder_is_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("policies.toml"), folder.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut first = PoliciesLock::beside(&file);
        first.take().unwrap();
        PoliciesLock::beside(&link).take().unwrap_err();
        PoliciesLock::beside(&folder.path().join("absent/x")).take().unwrap();
    }
}
