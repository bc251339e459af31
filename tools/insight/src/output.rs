//! Files of records that verbs write: none replaces one that is there, unless that is asked for, and a verb that has
//! nothing to write leaves none.

use crate::args::OutputArgs;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;
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
