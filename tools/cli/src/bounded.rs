//! Files that a command line names, whatever they are: a device without an end does not take all memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest configuration, descriptor set or request of this kind: what an application may send as a descriptor set.
const BYTES_MAX: u64 = 16 << 20;

/// All bytes of a file.
///
/// # Errors
/// What the kernel says, or that there are too many.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(BYTES_MAX, File::open(path)?)
}

/// The same as text.
///
/// # Errors
/// The same, or the line that is none.
pub fn read_text(path: &Path) -> io::Result<String> {
    text_of(read(path)?)
}

/// The text that comes from somewhere until its end.
///
/// # Errors
/// The same.
pub fn text_from(from: impl Read) -> io::Result<String> {
    text_of(read_up_to(BYTES_MAX, from)?)
}

fn read_up_to(bytes_max: u64, from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {} MiB", bytes_max >> 20)));
    }
    Ok(bytes)
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is no text (UTF-8)"))
    })
}

#[cfg(test)]
mod tests {
    //! Shows that what has no end is refused, and where a file is no text.
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let refused = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 16 MiB");
        assert!(read_up_to(3 << 20, io::repeat(7)).is_err());
        assert_eq!(read_up_to(3, &b"abc"[..]).unwrap(), b"abc");
    }

    #[test]
    fn what_is_no_text_is_told_by_its_line() {
        let refused = text_from(&b"[daemon]\nnode = \"\xff\"\n"[..]).unwrap_err();
        assert_eq!(refused.to_string(), "line 2 is no text (UTF-8)");
        assert_eq!(text_from(&b"a\nb"[..]).unwrap(), "a\nb");
    }
}
