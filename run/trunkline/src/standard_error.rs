//! Lines on standard error, said so that one which nobody reads harms nothing: no panic, no wait, no signal.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};

/// Longest line: a pipe that has any room takes as much at once (`PIPE_BUF`).
const LINE_BYTES_MAX: usize = 4096;

/// Says a line on standard error, if it takes one now.
///
/// `eprintln!` panics where the reader has gone or the disk is full, waits while a pipe is full, and has the process
/// killed whose standard error has lost its reader and which does not ignore SIGPIPE. This is called on threads that
/// all calls need.
#[doc(hidden)]
pub fn say_on_standard_error(line: &str) {
    write_now(std::io::stderr().as_fd(), &line_of(line));
}

fn line_of(line: &str) -> String {
    let mut text = format!("trunkline: {line}");
    text.truncate(text.floor_char_boundary(LINE_BYTES_MAX - 1));
    text.push('\n');
    text
}

/// Writes what can be written at once to somebody who is there; the rest is lost.
fn write_now(to: BorrowedFd<'_>, text: &str) {
    let mut asked = [PollFd::new(&to, PollFlags::OUT)];
    let found = poll(&mut asked, Some(&Timespec::default()));
    // Besides OUT, a pipe without a reader is ERR and a terminal that is gone HUP. Who writes to it all the same gets
    // a signal.
    if found == Ok(1) && asked[0].revents() == PollFlags::OUT {
        let _ = rustix::io::write(to, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a line is said to whoever reads it, and that nobody else is waited for.
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn a_line_is_said_where_there_is_a_reader_with_room() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        write_now(writer.as_fd(), &line_of("it is attached"));
        let mut read = [0; 100];
        let len = rustix::io::read(&reader, &mut read).unwrap();
        assert_eq!(&read[..len], b"trunkline: it is attached\n");

        // Full: for a descriptor that blocks, too.
        while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
        write_now(writer.as_fd(), "not said");

        drop(reader);
        write_now(writer.as_fd(), "not said");
    }

    #[test]
    fn a_disk_that_is_full_takes_none() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        write_now(full.as_fd(), "not said");
    }

    #[test]
    fn a_line_has_an_end() {
        let line = line_of(&"€".repeat(2000));
        assert!(line.len() <= LINE_BYTES_MAX && line.len() > LINE_BYTES_MAX - 4 && line.ends_with("€\n"));
    }
}
