//! Log lines on their way to standard error. Whoever logs never waits and never fails.
//!
//! A disk may be full, a reader may be gone or look at its pipe no more. A thread of its own writes, so that it alone
//! waits or fails; what does not fit the queue, or cannot be written, is counted and told when lines can be written
//! again.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that wait for the writer, who may have as many in its hands. Ten thousand lines or more: a disk's
/// pause of some seconds passes unnoticed.
const QUEUED_BYTES_MAX: usize = 4 << 20;
/// Bytes beyond that for lines that must get out: a dozen panics with their backtraces.
const RESERVE_BYTES: usize = 256 << 10;
/// A longer one of them is cut: so long is the longest that leaves room for another.
const URGENT_BYTES_MAX: usize = RESERVE_BYTES / 2 - 2 * LINE_COST_BYTES;
/// What a line costs beside its bytes, so that empty ones are bounded, too.
const LINE_COST_BYTES: usize = 64;

/// The queue. Its clones are the same queue.
#[derive(Clone, Debug, Default)]
pub struct LogQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There are lines, or a report is wanted.
    filled: Condvar,
    /// All lines were written, or could not be.
    settled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The writer has lines in its hands.
    is_writing: bool,
    /// What was lost since it was last told, and what had been before.
    lost: Lost,
    told: Lost,
    /// Who writes.
    writer: Option<ThreadId>,
    /// When to ask for a report, if one is wanted.
    report_at: Option<Instant>,
}

/// Lines that nobody will read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The queue was full: lines came faster than they were written, or nobody reads.
    pub unread: u64,
    /// Writing failed.
    pub unwritten: u64,
}

/// What the writer does when it has time.
pub trait Report: Send + 'static {
    /// Lines were lost, and lines can be written again.
    fn lost(&mut self, lost: Lost);
    /// A report was wanted a while ago ([`LogQueue::want_report`]).
    fn wanted(&mut self);
}

impl LogQueue {
    /// Starts the writer. It ends with the process.
    ///
    /// # Errors
    /// What the kernel says of a new thread.
    pub fn start(&self, out: impl Write + AsFd + Send + 'static, report: impl Report) -> io::Result<()> {
        let queue = self.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || queue.write_out(out, report)).map(drop)
    }

    /// Adds a line, or counts it as lost.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if !state.add(line, QUEUED_BYTES_MAX) {
            state.lost.unread += 1;
            return;
        }
        self.0.filled.notify_one();
    }

    /// Adds a line for which room is kept. `false` if that is full, too, or if it is the writer who asks: it may write
    /// nothing any more.
    pub fn push_urgent(&self, line: &[u8]) -> bool {
        let mut state = self.state();
        let line = &line[..line.len().min(URGENT_BYTES_MAX)];
        let is_added = state.writer != Some(std::thread::current().id())
            && state.add(line, QUEUED_BYTES_MAX + RESERVE_BYTES);
        self.0.filled.notify_one();
        is_added
    }

    /// Counts a line that found no way.
    pub fn count_unread(&self) {
        self.state().lost.unread += 1;
    }

    /// What was lost since the process began.
    pub fn lost(&self) -> Lost {
        let state = self.state();
        let Lost { unread, unwritten } = state.told;
        Lost { unread: unread + state.lost.unread, unwritten: unwritten + state.lost.unwritten }
    }

    /// Has [`Report::wanted`] called after this time.
    pub fn want_report(&self, after: Duration) {
        self.state().report_at.get_or_insert_with(|| Instant::now() + after);
        self.0.filled.notify_one();
    }

    /// Waits until everything was written, or could not be; so long at most. For the end of the process.
    pub fn settle(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state();
        while !state.lines.is_empty() || state.is_writing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.settled.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn write_out(&self, mut out: impl Write + AsFd, mut report: impl Report) {
        let mut is_torn = false;
        self.state().writer = Some(std::thread::current().id());
        loop {
            let (lines, is_report_due) = self.next();
            if is_report_due {
                report.wanted();
            }
            let count = lines.len();
            let written =
                lines.iter().filter(|line| write_line(&mut out, line, &mut is_torn).is_ok()).count();
            let mut state = self.state();
            state.lost.unwritten += (count - written) as u64;
            state.is_writing = false;
            self.0.settled.notify_all();
            if written > 0 && state.lost != Lost::default() {
                let lost = std::mem::take(&mut state.lost);
                state.told.unread += lost.unread;
                state.told.unwritten += lost.unwritten;
                drop(state);
                report.lost(lost);
            }
        }
    }

    /// Waits for lines, or until a report is due.
    fn next(&self) -> (VecDeque<Vec<u8>>, bool) {
        let mut state = self.state();
        loop {
            let due = state.report_at.map(|at| at.saturating_duration_since(Instant::now()));
            let is_report_due = due == Some(Duration::ZERO);
            if is_report_due {
                state.report_at = None;
            }
            if is_report_due || !state.lines.is_empty() {
                state.is_writing = true;
                state.bytes = 0;
                return (std::mem::take(&mut state.lines), is_report_due);
            }
            state = match due {
                None => self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => self.0.filled.wait_timeout(state, due).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a line if no more than so many bytes wait then.
    fn add(&mut self, line: &[u8], bytes_max: usize) -> bool {
        let cost = line.len() + LINE_COST_BYTES;
        if self.bytes + cost > bytes_max {
            return false;
        }
        self.bytes += cost;
        self.lines.push_back(line.to_vec());
        true
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter(self)
    }
}

/// Takes a line at a time, as the formatter writes them.
pub struct LineWriter<'a>(&'a LogQueue);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line, and waits where others made the descriptor non-blocking. A line behind one that was cut off begins on
/// a line of its own.
fn write_line(out: &mut (impl Write + AsFd), line: &[u8], is_torn: &mut bool) -> io::Result<()> {
    if *is_torn {
        write_whole(out, b"\n")?;
        *is_torn = false;
    }
    let mut rest = line;
    let written = write_some(out, &mut rest);
    *is_torn = written.is_err() && rest.len() < line.len();
    written
}

fn write_whole(out: &mut (impl Write + AsFd), mut rest: &[u8]) -> io::Result<()> {
    write_some(out, &mut rest)
}

fn write_some(out: &mut (impl Write + AsFd), rest: &mut &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(out, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Shows that whoever logs neither waits nor fails, whatever becomes of the lines, and that those lost are counted
    //! and told.
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::{Sender, channel};

    const WATCHDOG: Duration = Duration::from_secs(60);

    struct Told(Sender<Option<Lost>>);

    impl Report for Told {
        fn lost(&mut self, lost: Lost) {
            let _ = self.0.send(Some(lost));
        }

        fn wanted(&mut self) {
            let _ = self.0.send(None);
        }
    }

    /// A pipe's reading end, and what is written to it from here on.
    fn piped() -> (std::fs::File, std::fs::File) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (reader.into(), OwnedFd::into(writer))
    }

    #[test]
    fn a_pipe_nobody_reads_stops_nobody() {
        let (mut reader, writer) = piped();
        let (sender, told) = channel();
        let queue = LogQueue::default();
        queue.start(writer, Told(sender)).unwrap();
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let count = 3 * QUEUED_BYTES_MAX / line.len();
        (0..count).for_each(|_| queue.push(&line));
        let waits = queue.state().bytes;
        assert!(waits <= QUEUED_BYTES_MAX, "{waits} bytes wait");
        // Now somebody reads: what is left arrives whole, and the rest was counted.
        let reading = std::thread::spawn(move || {
            let mut heard = vec![0; 1 << 16];
            let mut bytes = 0;
            while let Ok(count @ 1..) = reader.read(&mut heard) {
                bytes += count;
                if heard[..count].ends_with(b"end\n") {
                    break;
                }
            }
            bytes
        });
        let lost = told.recv_timeout(WATCHDOG).unwrap().unwrap();
        queue.settle(WATCHDOG);
        queue.push(b"end\n");
        let heard = reading.join().unwrap() - b"end\n".len();
        assert_eq!(heard as u64 / 1000 + lost.unread, count as u64);
        assert_eq!((heard % 1000, lost.unwritten), (0, 0));
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        // Full until it is another file.
        struct Disk {
            full: bool,
            at: std::fs::File,
            kept: std::fs::File,
        }
        impl Write for Disk {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                match self.full && bytes != b"room\n" {
                    true => self.at.write(bytes),
                    false => {
                        self.full = false;
                        self.kept.write(bytes)
                    }
                }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl AsFd for Disk {
            fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
                self.at.as_fd()
            }
        }
        let at = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (mut reader, kept) = piped();
        let (sender, told) = channel();
        let queue = LogQueue::default();
        queue.start(Disk { full: true, at, kept }, Told(sender)).unwrap();
        (0..100).for_each(|_| queue.push(b"lost\n"));
        queue.settle(WATCHDOG);
        queue.push(b"room\n");
        let lost = told.recv_timeout(WATCHDOG).unwrap().unwrap();
        assert_eq!(lost, Lost { unread: 0, unwritten: 100 });
        (0..100).for_each(|_| queue.push(&[b'x'; QUEUED_BYTES_MAX]));
        assert_eq!(queue.lost(), Lost { unread: 100, unwritten: 100 }, "told or not");
        let mut heard = [0; 5];
        reader.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"room\n");
    }

    #[test]
    fn a_report_comes_when_it_is_wanted() {
        let (_reader, writer) = piped();
        let (sender, told) = channel();
        let queue = LogQueue::default();
        queue.start(writer, Told(sender)).unwrap();
        queue.want_report(Duration::from_millis(1));
        assert_eq!(told.recv_timeout(WATCHDOG).unwrap(), None);
    }

    /// Half a line went out before the disk was full.
    #[test]
    fn a_line_behind_half_a_line_begins_anew() {
        struct Half(Vec<u8>, usize, std::fs::File);
        impl Write for Half {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let count = bytes.len().min(self.1);
                self.1 -= count;
                self.0.extend(&bytes[..count]);
                if count == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(count) }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl AsFd for Half {
            fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
                self.2.as_fd()
            }
        }
        let mut out = Half(Vec::new(), 7, std::fs::File::open("/dev/null").unwrap());
        let mut is_torn = false;
        let lines: [&[u8]; 3] = [b"one\n", b"two, cut off\n", b"lost\n"];
        assert_eq!(lines.map(|line| write_line(&mut out, line, &mut is_torn).is_ok()), [true, false, false]);
        out.1 = 100;
        write_line(&mut out, b"next\n", &mut is_torn).unwrap();
        assert_eq!(String::from_utf8(out.0).unwrap(), "one\ntwo\nnext\n");
    }
}
