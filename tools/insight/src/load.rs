//! Files into fleets.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use trunkline_insight::{Fleet, count_ancestors};

/// No file larger than this is read: 1 GiB are about eight million calls.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads all of these files, and tells standard error what of them could not be used.
///
/// # Errors
/// A file is not there, too large, or holds no call at all.
pub fn load(files: &[PathBuf]) -> Result<Fleet, String> {
    let mut fleet = Fleet::default();
    for path in files {
        let calls = fleet.calls.len();
        fleet.read(&bytes_of(path)?);
        if fleet.calls.len() == calls {
            let why = match fleet.faults.is_empty() {
                true => "the file holds no blocks with calls".to_owned(),
                false => fleet.faults.to_string(),
            };
            return Err(format!("{}: no call could be read: {why}", path.display()));
        }
    }
    count_ancestors(&mut fleet);
    if !fleet.faults.is_empty() {
        eprintln!("trunkline: not used: {}", fleet.faults);
    }
    Ok(fleet)
}

/// All of a file.
///
/// # Errors
/// It is not there, or too large.
pub fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(said)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(said)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "{}: the file has more than {} MiB, the most that is read: record with a lower --rate, or for a shorter \
             time",
            path.display(),
            FILE_BYTES_MAX >> 20
        ));
    }
    Ok(bytes)
}
