//! The file the chain of policies is kept in (`admin.policies_file`), so that changes outlive the daemon.
//!
//! The file counts from the day it is there: the configuration's `[[policy]]` tables are what a daemon without one
//! begins with. A change is written down before it takes effect (to a file beside it, synced, renamed, the folder
//! synced), so that a crash at any point leaves the chain of before or the one of after, and whatever was answered with
//! success is what the next daemon begins with. A change that cannot be written is not made.
//!
//! The first line has a checksum of the rest: TOML that was cut between two tables is still TOML, and a daemon with
//! half of its policies would let through what nobody may. A file with neither that line nor the second one was written
//! by hand and is taken as it stands; one that shows traces of them was damaged there.

use crate::config::{Config, ConfigError};
use crate::policies_lock::PoliciesLock;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trunkline_policy::{Definition, PolicyError};

/// Largest file. 256 policies (`POLICIES_MAX`) with two expressions of 64 KiB each are half of it.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// How the first line begins; behind it stands the checksum in hexadecimal.
const HEAD: &str = "# Chain of policies, kept by trunkline daemon. CRC-32 of what follows: ";
/// The second line.
const NOTE: &str =
    "# Written anew at every change. Whoever edits it while no daemon runs takes out these first two.\n\n";
/// What is left of the first two lines when one of them is damaged. Nobody writes that by hand.
const TRACES: [&str; 4] = [
    "# Chain of policies, kept",
    "CRC-32 of what follows",
    "# Written anew at every",
    "takes out these first two",
];

/// Why a chain cannot be kept, or not be read again.
#[derive(Debug, thiserror::Error)]
pub enum PoliciesFileError {
    /// It cannot be read.
    #[error("cannot read {}, the chain of policies (admin.policies_file): {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// It is not what was written.
    #[error("{} (admin.policies_file) {why}; {REMEDY}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What gives it away.
        why: String,
    },
    /// A policy in it cannot be.
    #[error("{0}; {REMEDY}")]
    Wrong(ConfigError),
    /// Another daemon keeps its chain there.
    #[error(
        "{} (admin.policies_file) is the file of another daemon, process {process}; write a file of its own for each \
         daemon",
        path.display()
    )]
    Taken {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        process: String,
    },
    /// It cannot be written.
    #[error("cannot write {} (admin.policies_file): {error}; nothing has changed", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// A change did not take effect, and the file says that it did.
    #[error(
        "{} (admin.policies_file) could not be put back: {error}; it has a chain that is not at work",
        path.display()
    )]
    NotPutBack {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The chain that was handed over is another.
    #[error(
        "{} (admin.policies_file) has another chain than the one at work; put it to work first (`trunkline policy \
         apply`), or move it away to keep the one at work",
        path.display()
    )]
    Differs {
        /// The file.
        path: PathBuf,
    },
}

const REMEDY: &str =
    "mend it or restore a copy, or remove it to begin with the [[policy]] tables of the configuration";

/// Why a chain was not put to work.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A policy in it.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// It could not be kept.
    #[error(transparent)]
    File(#[from] PoliciesFileError),
}

/// Where the chain at work comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoliciesSource {
    /// The configuration.
    Configuration,
    /// Changes at run time, which end with the daemon.
    Changes,
    /// The file that changes are kept in.
    File,
}

/// What becomes of the chain at work when the daemon ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoliciesKept {
    /// Where it comes from.
    pub source: PoliciesSource,
    /// The file changes are kept in; `None` if they are not.
    pub file: Option<PathBuf>,
    /// Policies of the configuration that do not count because the file does: not at work, or not as written there.
    pub set_aside: Vec<String>,
}

/// The configuration's chain and the file's.
#[derive(Debug)]
pub(crate) struct Kept {
    path: Option<PathBuf>,
    configured: Vec<Definition>,
    /// What the file has, if it is there. Locked through a change: one at a time, and none while daemons change.
    on_file: Mutex<Option<Vec<Definition>>>,
    lock: Option<Mutex<PoliciesLock>>,
    /// Whether the chain at work reads `caller.program`.
    pub(crate) programs_are_read: Arc<AtomicBool>,
}

impl Config {
    /// Reads the file the chain is kept in; `None` if there is none.
    ///
    /// # Errors
    /// [`PoliciesFileError`]: it is damaged, or a policy in it cannot be. A daemon would not start.
    pub fn kept_policies(&self) -> Result<Option<Vec<Definition>>, PoliciesFileError> {
        self.policies_file().map_or(Ok(None), read)
    }
}

impl Kept {
    /// Of a daemon that starts, or takes over: no other one has the file.
    pub fn begin(config: &Config, takes_over_from: Option<u32>) -> Result<Self, PoliciesFileError> {
        let kept = Self::of(config)?;
        kept.lock(takes_over_from)?;
        Ok(kept)
    }

    /// What is kept, whoever has the file.
    pub fn of(config: &Config) -> Result<Self, PoliciesFileError> {
        let on_file = Mutex::new(config.kept_policies()?);
        let path = config.policies_file().map(Path::to_owned);
        let lock = path.as_deref().map(|path| Mutex::new(PoliciesLock::beside(path)));
        let programs_are_read = Arc::default();
        Ok(Self { path, configured: config.policy.clone(), on_file, lock, programs_are_read })
    }

    /// Keeps other daemons from the file, except the one that this one takes over from.
    fn lock(&self, takes_over_from: Option<u32>) -> Result<(), PoliciesFileError> {
        let (Some(path), Some(lock)) = (&self.path, &self.lock) else { return Ok(()) };
        let mut lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = takes_over_from.map_or(Ok(()), |from| lock.take_over(from)).and_then(|()| lock.take());
        taken.map_err(|process| PoliciesFileError::Taken { path: path.clone(), process })
    }

    /// The chain to begin with.
    pub fn first(&self) -> Vec<Definition> {
        let on_file = self.hold();
        let chain = on_file.as_ref().unwrap_or(&self.configured);
        if chain != &self.configured && !self.configured.is_empty() {
            tracing::warn!(
                file = ?self.path,
                "the configuration's [[policy]] tables do not count: the chain is the one that was kept"
            );
        }
        self.note_inputs(chain);
        chain.clone()
    }

    /// What is wrong with a policy of that chain, with its place in the file if it has one.
    pub fn blame(&self, error: PolicyError) -> ChangeError {
        match (&self.path, &*self.hold()) {
            (Some(path), Some(_)) => {
                let text = fs::read_to_string(path).unwrap_or_default();
                let error = Config::policy_error(error, &text, &path.display().to_string());
                PoliciesFileError::Wrong(error).into()
            }
            _ => error.into(),
        }
    }

    /// The chain that was handed over is what the file has from now on.
    pub fn take_over(&self, at_work: Vec<Definition>) -> Result<(), PoliciesFileError> {
        self.note_inputs(&at_work);
        let Some(path) = &self.path else { return Ok(()) };
        let mut on_file = self.hold();
        match &*on_file {
            Some(kept) if *kept == at_work => Ok(()),
            Some(_) => Err(PoliciesFileError::Differs { path: path.clone() }),
            None if self.configured == at_work => Ok(()),
            None => {
                sync(path, &replace(path, &at_work)?)?;
                *on_file = Some(at_work);
                Ok(())
            }
        }
    }

    /// Makes a change that `attempt` carries out, or only tries (`true`): written down first, then in effect.
    pub fn change<T>(
        &self,
        chain: &[Definition],
        attempt: impl Fn(bool) -> Result<T, PolicyError>,
    ) -> Result<T, ChangeError> {
        let mut on_file = self.hold();
        let attempt = |is_dry| {
            attempt(is_dry).inspect(|_| {
                if !is_dry {
                    self.note_inputs(chain)
                }
            })
        };
        let Some(path) = &self.path else { return Ok(attempt(false)?) };
        self.lock(None)?;
        attempt(true)?;
        let folder = replace(path, chain)?;
        let made = sync(path, &folder).map_err(ChangeError::from).and_then(|()| Ok(attempt(false)?));
        match &made {
            Ok(_) => *on_file = Some(chain.to_vec()),
            Err(_) => put_back(path, on_file.as_deref())?,
        }
        made
    }

    /// This chain is at work.
    fn note_inputs(&self, chain: &[Definition]) {
        let reads = chain.iter().any(|definition| definition.reads("caller.program"));
        self.programs_are_read.store(reads, Ordering::Relaxed);
    }

    /// Keeps changes from being made until it is dropped.
    pub fn hold(&self) -> MutexGuard<'_, Option<Vec<Definition>>> {
        // What is behind it is whole at any time.
        self.on_file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of this chain.
    pub fn outlook(&self, at_work: &[Definition]) -> PoliciesKept {
        // One that took over takes the lock as soon as it can be had; a change hears why not.
        let _ = self.lock(None);
        let source = match &*self.hold() {
            Some(_) => PoliciesSource::File,
            None if self.configured == at_work => PoliciesSource::Configuration,
            None => PoliciesSource::Changes,
        };
        let aside = self.configured.iter().filter(|configured| !at_work.contains(configured));
        let set_aside = match source {
            PoliciesSource::File => aside.map(|configured| configured.name.clone()).collect(),
            PoliciesSource::Configuration | PoliciesSource::Changes => Vec::new(),
        };
        PoliciesKept { source, file: self.path.clone(), set_aside }
    }
}

fn read(path: &Path) -> Result<Option<Vec<Definition>>, PoliciesFileError> {
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match opened {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PoliciesFileError::Read { path: path.to_owned(), error }),
    }
    let text = checked(&bytes).map_err(|why| PoliciesFileError::Damaged { path: path.to_owned(), why })?;
    let chain = Config::policies_from_toml(text, &path.display().to_string());
    chain.map(Some).map_err(PoliciesFileError::Wrong)
}

/// The text, if it is what was written.
fn checked(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("has more than {} MiB", FILE_BYTES_MAX >> 20));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("is damaged: byte {} is no UTF-8", error.valid_up_to()))?;
    if text.trim().is_empty() {
        return Err("is empty: it was cut short".into());
    }
    if HEAD.starts_with(text) {
        return Err("was cut short in its first line".into());
    }
    let Some(behind) = text.strip_prefix(HEAD) else {
        return match TRACES.iter().any(|trace| text.contains(trace)) {
            true => {
                Err("is damaged in its first two lines: to take what follows as it stands, take out both"
                    .into())
            }
            false => Ok(text),
        };
    };
    let (sum, rest) = behind.split_once('\n').ok_or("was cut short in its first line")?;
    let found = checksum(rest);
    if sum != found {
        return Err(format!(
            "was cut short, damaged or edited: its first line says {sum}, and what follows has {found}"
        ));
    }
    Ok(text)
}

fn checksum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

/// The chain as the file has it.
fn document(chain: &[Definition]) -> io::Result<String> {
    let rest = NOTE.to_owned() + &Config::policies_to_toml(chain).map_err(io::Error::other)?;
    let text = format!("{HEAD}{}\n{rest}", checksum(&rest));
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it would have more than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(text)
}

/// Puts a chain in the file's place; on an error the file is as it was. The folder is still to be synced.
fn replace(path: &Path, chain: &[Definition]) -> Result<File, PoliciesFileError> {
    let failed = |error| PoliciesFileError::Write { path: path.to_owned(), error };
    let text = document(chain).map_err(failed)?;
    // A link stays one, and what it leads to is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let new = beside(path);
    let folder = File::open(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let written = write_beside(path, &new, &text).and_then(|()| fs::rename(&new, path));
    if let Err(error) = written {
        // It may not have come to be at all.
        let _ = fs::remove_file(&new);
        return Err(failed(error));
    }
    Ok(folder)
}

/// From here on the name stands for what was written, whatever happens.
fn sync(path: &Path, folder: &File) -> Result<(), PoliciesFileError> {
    folder.sync_all().map_err(|error| PoliciesFileError::Write { path: path.to_owned(), error })
}

fn write_beside(path: &Path, new: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(new)?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The chain of before, after a change that was written and did not take effect.
fn put_back(path: &Path, before: Option<&[Definition]>) -> Result<(), PoliciesFileError> {
    let failed = |error| PoliciesFileError::NotPutBack { path: path.to_owned(), error };
    match before {
        Some(chain) => replace(path, chain)
            .and_then(|folder| sync(path, &folder))
            .map_err(|error| failed(io::Error::other(error.to_string()))),
        None => fs::remove_file(path).map_err(failed),
    }
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

#[cfg(test)]
mod tests;
