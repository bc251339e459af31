//! Files of records that verbs write: none replaces one that is there, unless that is asked for, and a verb that has
//! nothing to write leaves none.

use crate::args::OutputArgs;
use std::fs::File;
use std::io::{BufWriter, Error, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use trunkline_insight::block::MARK;

/// The file, new or emptied.
///
/// # Errors
/// It is there already, or cannot be written.
pub fn create(args: &OutputArgs) -> Result<File, String> {
    let path = &args.output;
    let opened = if args.force { File::create(path) } else { File::create_new(path) };
    opened.map_err(|error| refusal(path, &error))
}

/// Says before the work whether [`create`] will do after it.
///
/// # Errors
/// As [`create`].
pub fn check(args: &OutputArgs) -> Result<(), String> {
    let path = &args.output;
    match File::create_new(path) {
        // Whoever ends this program meanwhile finds no empty file.
        Ok(_) => std::fs::remove_file(path).map_err(|error| refusal(path, &error)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && args.force => {
            File::options().write(true).open(path).map(drop).map_err(|error| refusal(path, &error))
        }
        Err(error) => Err(refusal(path, &error)),
    }
}

/// The file to write more records to, made if it is not there.
///
/// # Errors
/// It is something else than a file of records, or cannot be written.
pub fn append(path: &Path) -> Result<File, String> {
    let said = |error: Error| refusal(path, &error);
    let file = File::options().append(true).create(true).open(path).map_err(said)?;
    // What is no plain file (a pipe) has nothing to look at.
    let found = file.metadata().map_err(said)?;
    if found.is_file() && found.len() > 0 {
        let mut begin = Vec::new();
        let read = File::open(path).and_then(|there| there.take(MARK.len() as u64).read_to_end(&mut begin));
        read.map_err(said)?;
        if begin != MARK {
            return Err(format!(
                "{}: that is no file of records, and nothing is appended to it: name another",
                path.display()
            ));
        }
    }
    Ok(file)
}

/// Writes what was made of `inputs` to a file, in place of one that begins as it does or of any if `force` says so:
/// beside it first, so that a full disk leaves what was there.
///
/// # Errors
/// It is one of the inputs, something else, or cannot be written.
pub fn replace(
    path: &Path,
    inputs: &[PathBuf],
    begin: &[u8],
    force: bool,
    write: impl FnOnce(File) -> Result<(), Error>,
) -> Result<(), String> {
    let said = |error: Error| refusal(path, &error);
    let there = match std::fs::metadata(path) {
        // A pipe or a device has nothing to lose.
        Ok(found) if !found.is_file() => {
            return File::options().write(true).open(path).and_then(write).map_err(said);
        }
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return beside(path, write).map_err(said),
        Err(error) => return Err(said(error)),
    };
    let is_there = |input: &PathBuf| {
        std::fs::metadata(input).is_ok_and(|found| (found.dev(), found.ino()) == (there.dev(), there.ino()))
    };
    if inputs.iter().any(is_there) {
        return Err(format!("{}: that is the file that is read: name another to write", path.display()));
    }
    let mut old = Vec::new();
    File::open(path).and_then(|file| file.take(begin.len() as u64).read_to_end(&mut old)).map_err(said)?;
    if !force && !old.is_empty() && old != begin {
        let problem =
            "a file is there already, and is no such export: name another, or say --force to replace it";
        return Err(format!("{}: {problem}", path.display()));
    }
    // A link stays one, and what it leads to is replaced.
    let path = &std::fs::canonicalize(path).map_err(said)?;
    beside(path, |file| file.set_permissions(there.permissions()).and_then(|()| write(file))).map_err(said)
}

/// Exit code of a program whose reader has gone away: what a shell shows where SIGPIPE has ended it.
pub const EXIT_PIPE: i32 = 128 + 13;

/// Writes to standard output. A reader that has seen enough ends the program quietly.
///
/// # Errors
/// What else is wrong with it.
pub fn print(write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<(), String> {
    let mut to = BufWriter::new(std::io::stdout().lock());
    match write(&mut to).and_then(|()| to.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(EXIT_PIPE),
        Err(error) => Err(format!("cannot write: {error}")),
    }
}

fn beside(path: &Path, write: impl FnOnce(File) -> Result<(), Error>) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = File::create_new(&new).and_then(write).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // It may not have come to be at all.
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// Why a file is not written, and what to do.
pub fn refusal(path: &Path, error: &Error) -> String {
    match error.kind() {
        _ if path.is_dir() => format!("{}: that is a folder: name a file in it", path.display()),
        ErrorKind::AlreadyExists => {
            format!("{}: a file is there already: name another, or say --force to replace it", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a file is replaced only where that is asked for, and that records are appended to records alone.
    use super::*;
    use trunkline_insight::RecordBlock;

    #[test]
    fn a_file_is_replaced_only_if_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.rec");
        let mut args = OutputArgs { output: output.clone(), force: false };
        check(&args).unwrap();
        assert!(!output.exists(), "looking leaves nothing");
        create(&args).unwrap();
        std::fs::write(&output, "kept").unwrap();
        for refused in [check(&args).unwrap_err(), create(&args).unwrap_err()] {
            assert!(refused.contains("is there already") && refused.contains("--force"), "{refused}");
        }
        args.force = true;
        check(&args).unwrap();
        assert_eq!(std::fs::read(&output).unwrap(), b"kept");
        create(&args).unwrap();
        assert_eq!(std::fs::read(&output).unwrap(), b"");
        args.output = folder.path().to_owned();
        assert!(create(&args).unwrap_err().contains("that is a folder: name a file in it"));
        args.output = folder.path().join("absent/a.rec");
        assert!(check(&args).unwrap_err().contains("absent/a.rec: No such file"));
    }

    #[test]
    fn an_export_replaces_neither_what_is_read_nor_what_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (records, link, other, export) = (path("a.rec"), path("link"), path("d.toml"), path("a.csv"));
        std::fs::write(&records, "TRK").unwrap();
        std::fs::hard_link(&records, &link).unwrap();
        std::fs::write(&other, "[daemon]").unwrap();
        let write = |path: &Path, force: bool, text: &str| {
            let put = |mut file: File| std::io::Write::write_all(&mut file, text.as_bytes());
            replace(path, std::slice::from_ref(&records), b"host", force, put)
        };
        for same in [&records, &link] {
            assert!(write(same, true, "host").unwrap_err().contains("the file that is read"), "{same:?}");
        }
        assert!(write(&other, false, "host").unwrap_err().contains("say --force to replace it"));
        assert_eq!(std::fs::read(&records).unwrap(), b"TRK");
        assert_eq!(std::fs::read(&other).unwrap(), b"[daemon]");
        write(&export, false, "host,1").unwrap();
        let full = |_: File| Err(Error::from(ErrorKind::StorageFull));
        replace(&export, &[], b"host", false, full).unwrap_err();
        assert_eq!(std::fs::read(&export).unwrap(), b"host,1", "a full disk leaves what was there");
        write(&export, false, "host,2").unwrap();
        assert_eq!(std::fs::read(&export).unwrap(), b"host,2");
        write(&other, true, "host,3").unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"host,3");
        assert!(replace(Path::new("/dev/full"), &[], b"host", false, full).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is left beside them");
    }

    #[test]
    fn records_are_appended_to_records_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        append(&path("new.rec")).unwrap();
        append(&path("new.rec")).unwrap();
        std::fs::write(path("b.rec"), RecordBlock::default().encode()).unwrap();
        append(&path("b.rec")).unwrap();
        for (name, text) in [("notes", "TRKNOTE"), ("short", "TRK")] {
            std::fs::write(path(name), text).unwrap();
            assert!(append(&path(name)).unwrap_err().contains("is no file of records"), "{name}");
            assert_eq!(std::fs::read(path(name)).unwrap(), text.as_bytes());
        }
    }
}
