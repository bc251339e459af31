//! Files into fleets.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use trunkline_insight::{FileContents, Fleet, count_ancestors};

/// No more of a file is read: 1 GiB are about eight million calls.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads all of these files, and tells standard error what of them could not be used, and which have no call.
///
/// # Errors
/// A file is not there, or none holds a block of records.
pub fn load(files: &[PathBuf]) -> Result<Fleet, String> {
    load_within(files, FILE_BYTES_MAX)
}

/// The same, of so many bytes of each: blocks behind them are left out, and it is said.
fn load_within(files: &[PathBuf], bytes_max: u64) -> Result<Fleet, String> {
    let mut fleet = Fleet::default();
    for path in files {
        let calls = fleet.calls.len();
        let (bytes, has_more) = first_bytes(path, bytes_max)?;
        let contents = fleet.read(&bytes);
        if has_more {
            let (path, most) = (path.display(), bytes_max >> 20);
            eprintln!(
                "trunkline: {path}: only the first {most} MiB are read, and what was recorded later is not"
            );
        }
        if let Some(words) = words_of(contents, fleet.calls.len() - calls) {
            eprintln!("trunkline: {}: {words}", path.display());
        }
    }
    if fleet.heads.is_empty() {
        let why = if fleet.faults.is_empty() { "it is empty".to_owned() } else { fleet.faults.to_string() };
        return Err(format!("{}: {why}; name files that `trunkline record` has written", names(files)));
    }
    count_ancestors(&mut fleet);
    if !fleet.faults.is_empty() {
        eprintln!("trunkline: not used: {}", fleet.faults);
    }
    Ok(fleet)
}

/// What there is to say of a file that added so many calls.
fn words_of(contents: FileContents, calls: usize) -> Option<&'static str> {
    match contents {
        FileContents { blocks: 0, told_before: 0 } => Some("no block of records could be read"),
        FileContents { blocks: 0, .. } => {
            Some("all of it is in another of the recordings, too, and counts once")
        }
        _ if calls == 0 => Some("no call was recorded"),
        _ => None,
    }
}

/// The same, for a verb that says something of calls.
///
/// # Errors
/// As [`load`], or no file holds a call.
pub fn load_calls(files: &[PathBuf]) -> Result<Fleet, String> {
    let fleet = load(files)?;
    match fleet.calls.is_empty() {
        true => Err(format!(
            "{}: no call could be read: record while calls are made, or for longer (trunkline record --for 1m)",
            names(files)
        )),
        false => Ok(fleet),
    }
}

fn names(files: &[PathBuf]) -> String {
    files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// All of a file.
///
/// # Errors
/// It is not there, or too large.
pub fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    bytes_within(path, FILE_BYTES_MAX, "record with a lower --rate, or for a shorter time")
}

/// All bytes of a file that has at most so many; `else_do` says what to do about one that has more.
///
/// # Errors
/// It cannot be read, or has more.
pub fn bytes_within(path: &Path, bytes_max: u64, else_do: &str) -> Result<Vec<u8>, String> {
    let (bytes, has_more) = first_bytes(path, bytes_max)?;
    if has_more {
        let (path, most) = (path.display(), bytes_max >> 20);
        return Err(format!("{path}: the file has more than {most} MiB, the most that is read: {else_do}"));
    }
    Ok(bytes)
}

/// So many bytes of a file, and whether there are more.
fn first_bytes(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, bool), String> {
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(said)?;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(said)?;
    let has_more = bytes.len() as u64 > bytes_max;
    bytes.truncate(bytes_max as usize);
    Ok((bytes, has_more))
}

#[cfg(test)]
mod tests {
    //! Shows that a host without calls takes nothing from the others, and what is said where there is nothing.
    use super::*;
    use trunkline_insight::{BlockHead, RecordBlock};
    use trunkline_telemetry::RecordedCall;

    fn block(calls: usize) -> Vec<u8> {
        let mut bytes = [0; RecordedCall::BYTES];
        bytes[108..112].copy_from_slice(&1.0_f32.to_le_bytes());
        let named = |name: &str| vec![(0, name.to_owned())];
        let (methods, peers) = (named("/a.B/C"), named("(local)"));
        let head = BlockHead { host: format!("of-{calls}"), methods, peers, ..BlockHead::default() };
        let rows = vec![RecordedCall::decode(&bytes).unwrap(); calls];
        RecordBlock { head, rows, traces: Vec::new() }.encode()
    }

    #[test]
    fn of_a_file_that_is_too_long_the_first_blocks_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long.rec");
        std::fs::write(&path, [block(3), block(4), block(5)].concat()).unwrap();
        let read = load_within(&[path], block(3).len() as u64 + block(4).len() as u64 + 60).unwrap();
        assert_eq!((read.calls.len(), read.heads.len()), (7, 2));
        assert!(read.faults.to_string().contains("blocks cut short"), "{}", read.faults);
    }

    #[test]
    fn a_recording_without_calls_takes_nothing_from_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let (idle, busy) = (file("idle.rec", &block(0)), file("busy.rec", &block(3)));
        let (empty, other) = (file("empty.rec", b""), file("notes", b"no records"));
        let both = load_calls(&[idle.clone(), busy, empty.clone()]).unwrap();
        assert_eq!((both.calls.len(), both.hosts()), (3, vec!["of-0", "of-3"]));
        let idle = std::slice::from_ref(&idle);
        assert_eq!(load(idle).unwrap().heads.len(), 1, "what the host did is there");
        let none = load_calls(idle).unwrap_err();
        assert!(none.contains("idle.rec: no call could be read") && none.contains("for longer"), "{none}");
        let nothing = load(&[empty, other]).unwrap_err();
        assert!(nothing.contains("10 bytes that belong to no block"), "{nothing}");
        assert!(nothing.contains("trunkline record"), "{nothing}");
    }
}
