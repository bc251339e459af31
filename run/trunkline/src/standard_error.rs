//! Lines on standard error, said so that one which nobody reads harms nothing: no panic, no wait, no signal.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, pwritev2, write};
use rustix::net::{SendFlags, send};

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
///
/// Others may have the same standard error, and fill it between the look and the write: of a socket and a pipe the
/// write itself does not wait either. What is left: a pipe before Linux 6.5 and a terminal that is held may be waited
/// for then, and the last reader of a pipe that leaves just then has the program signalled that takes SIGPIPE.
fn write_now(to: BorrowedFd<'_>, text: &str) {
    let mut asked = [PollFd::new(&to, PollFlags::OUT)];
    let found = poll(&mut asked, Some(&Timespec::default()));
    // Besides OUT, a pipe without a reader is ERR and a terminal that is gone HUP. Who writes to it all the same gets
    // a signal.
    if found == Ok(1) && asked[0].revents() == PollFlags::OUT {
        write_at_once(to, text.as_bytes());
    }
}

/// Writes to somebody who had room for it.
fn write_at_once(to: BorrowedFd<'_>, bytes: &[u8]) {
    let kind = fstat(to).map(|found| FileType::from_raw_mode(found.st_mode));
    let written = match kind {
        Ok(FileType::Socket) => send(to, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        Ok(FileType::Fifo) => pwritev2(to, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT),
        _ => Err(Errno::OPNOTSUPP),
    };
    if written == Err(Errno::OPNOTSUPP) {
        let _ = write(to, bytes);
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

    /// Somebody else fills it between the look and the write.
    #[test]
    fn what_has_become_full_is_not_waited_for() {
        let (_reader, pipe) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let (_peer, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = std::os::fd::OwnedFd::from(socket);
        for full in [&pipe, &socket] {
            while write(full, &[b'x'; 4096]).is_ok() {}
            rustix::fs::fcntl_setfl(full, rustix::fs::OFlags::empty()).unwrap();
        }
        let (done, returned) = std::sync::mpsc::channel();
        let knows_pipes =
            pwritev2(&pipe, &[IoSlice::new(b"x")], u64::MAX, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN);
        std::thread::spawn(move || {
            write_at_once(socket.as_fd(), b"not said");
            if knows_pipes {
                write_at_once(pipe.as_fd(), b"not said");
            }
            done.send(()).unwrap();
        });
        returned.recv_timeout(std::time::Duration::from_secs(60)).expect("neither is waited for");
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
