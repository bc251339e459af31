//! A panic's line: made here and put straight into the queue, past level and limit of the log, because nobody else will
//! say why a thread has ended.

use super::log_queue::LogQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::fmt::{Display, Write};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use trunkline_daemon::LogFormat;

/// Written straight away at most: a pipe that can be written takes so many bytes without a wait (POSIX, PIPE_BUF).
const DIRECT_BYTES_MAX: usize = 4096;
const TARGET: &str = "panic";

/// What is known of a panic.
pub struct Panic<'a> {
    /// Place and message.
    pub what: &'a dyn Display,
    /// Name of the thread, if it has one.
    pub thread: Option<&'a str>,
    /// Where it was, if that was asked for (`RUST_BACKTRACE`).
    pub backtrace: Option<String>,
}

impl Panic<'_> {
    /// Tells it: by the queue, or, where that does not take it, straight to `out` as far as this needs no waiting.
    pub fn tell(&self, format: LogFormat, queue: &LogQueue, out: impl AsFd) {
        let line = self.line(format);
        if !queue.push_urgent(&line) && !write_now(out, &line) {
            queue.count_unread();
        }
    }

    /// The line, as the log's other lines are.
    fn line(&self, format: LogFormat) -> Vec<u8> {
        let mut line = String::new();
        // A clock that tells no time costs the line its time only.
        let _ = SystemTime.format_time(&mut Writer::new(&mut line));
        let Self { what, thread, backtrace } = self;
        if format == LogFormat::Json {
            let object = serde_json::json!({
                "timestamp": line,
                "level": "ERROR",
                "message": what.to_string(),
                "thread": thread,
                "backtrace": backtrace,
                "target": TARGET,
            });
            return format!("{object}\n").into_bytes();
        }
        let _ = write!(line, " ERROR {TARGET}: {what}");
        thread.iter().for_each(|thread| _ = write!(line, " thread={thread:?}"));
        backtrace.iter().for_each(|backtrace| _ = write!(line, " backtrace={backtrace:?}"));
        line.push('\n');
        line.into_bytes()
    }
}

/// Writes the beginning of a line if there is room at once. Whether it did.
fn write_now(out: impl AsFd, line: &[u8]) -> bool {
    let mut ready = [PollFd::new(&out, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let has_room = poll(&mut ready, Some(&at_once)).is_ok() && ready[0].revents().contains(PollFlags::OUT);
    has_room && rustix::io::write(&out, &line[..line.len().min(DIRECT_BYTES_MAX)]).is_ok()
}

#[cfg(test)]
mod tests {
    //! Shows a panic's line in both formats, and its ways out.
    use super::super::log_queue::{Lost, Report};
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    struct Nobody;

    impl Report for Nobody {
        fn lost(&mut self, _: Lost) {}
        fn wanted(&mut self) {}
    }

    fn panic(what: &dyn Display) -> Panic<'_> {
        Panic { what, thread: Some("shard 0"), backtrace: Some("0: main\n".into()) }
    }

    fn piped() -> (std::fs::File, std::fs::File) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (reader.into(), writer.into())
    }

    #[test]
    fn both_formats() {
        let what = "panicked at a.rs:1:2:\n\"no\"";
        let text = String::from_utf8(panic(&what).line(LogFormat::Text)).unwrap();
        let said =
            " ERROR panic: panicked at a.rs:1:2:\n\"no\" thread=\"shard 0\" backtrace=\"0: main\\n\"\n";
        assert!(text.ends_with(said) && text.starts_with("20"), "{text}");
        let line = panic(&what).line(LogFormat::Json);
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "one line");
        let object: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let keys = ["level", "message", "thread", "backtrace", "target"];
        assert_eq!(
            keys.map(|key| object[key].as_str().unwrap()),
            ["ERROR", what, "shard 0", "0: main\n", "panic"]
        );
    }

    /// A line of the log that the queue has no room for is lost; a panic's is not.
    #[test]
    fn a_full_queue_takes_it() {
        let (mut reader, writer) = piped();
        let queue = LogQueue::default();
        let line = [&[b'x'; 999][..], b"\n"].concat();
        while queue.lost() == Lost::default() {
            queue.push(&line);
        }
        panic(&"why").tell(LogFormat::Text, &queue, std::io::stderr());
        queue.start(writer, Nobody).unwrap();
        let mut heard = String::new();
        let mut piece = [0; 1 << 16];
        while !heard.contains("ERROR panic: why") {
            let count = reader.read(&mut piece).unwrap();
            heard.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        }
    }

    /// The reserve is bounded, too: what does not fit is written if that needs no waiting, or counted.
    #[test]
    fn a_full_reserve_is_passed_by() {
        let (mut reader, writer) = piped();
        let queue = LogQueue::default();
        let what = "w".repeat(100_000);
        let tell = || panic(&what).tell(LogFormat::Text, &queue, &writer);
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut piece = [0; 5000];
        let told = (0..1000).take_while(|_| (tell(), reader.read(&mut piece).is_err()).1).count();
        assert!((20..60).contains(&told), "{told} fitted");
        while queue.lost() == Lost::default() {
            tell();
        }
        assert_eq!(queue.lost(), Lost { unread: 1, unwritten: 0 }, "the pipe is full, and nobody waited");
    }

    /// What the writer's own thread would put into the queue nobody would write.
    #[test]
    fn the_writers_own_panic_is_written_straight_away() {
        struct Panics(std::fs::File);
        impl Report for Panics {
            fn lost(&mut self, _: Lost) {}
            fn wanted(&mut self) {
                let queue = WRITERS.get().unwrap();
                panic(&"mine").tell(LogFormat::Text, queue, &self.0);
                queue.settle(Duration::ZERO);
                // The thread goes on: what matters is which way the line took.
            }
        }
        static WRITERS: std::sync::OnceLock<LogQueue> = std::sync::OnceLock::new();
        let (mut reader, writer) = piped();
        let (_nobody, elsewhere) = piped();
        let queue = WRITERS.get_or_init(LogQueue::default);
        queue.start(elsewhere, Panics(writer)).unwrap();
        queue.want_report(Duration::ZERO);
        let mut piece = [0; 500];
        let count = reader.read(&mut piece).unwrap();
        assert!(String::from_utf8_lossy(&piece[..count]).contains("ERROR panic: mine"));
    }
}
