//! Where log lines go: standard error, as text or JSON, by a thread of its own (`log_queue.rs`), and so many of a kind
//! (`log_limit.rs`).

use super::log_limit::KindLimit;
use super::log_queue::{LogQueue, Lost, Report};
use super::panic_line::Panic;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::Duration;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use trunkline_daemon::{Log, LogFormat, check_log_level};

/// Environment variable that overrides the configured level.
const LOG_VARIABLE: &str = "TRUNKLINE_LOG";
/// Time the last lines get at the end of the process.
const SETTLE: Duration = Duration::from_secs(1);

/// The lines of this process; there is one log.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Why nothing is logged.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is none.
    #[error("{from}: {why}")]
    Level {
        /// Who says it: the key or the variable.
        from: &'static str,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// No thread to write.
    #[error("the log's thread: {0}")]
    Thread(#[from] io::Error),
}

/// What is logged at this level, or at the one the environment says.
///
/// # Errors
/// [`LogError::Level`].
pub fn filter(level: &str) -> Result<EnvFilter, LogError> {
    let overridden = std::env::var(LOG_VARIABLE).ok().filter(|value| !value.is_empty());
    let (from, text) = match &overridden {
        Some(text) => (LOG_VARIABLE, text.as_str()),
        None => ("log.level", level),
    };
    let wrong = |why| LogError::Level { from, why };
    check_log_level(text).map_err(wrong)?;
    text.parse().map_err(|error| wrong(format!("{text:?}: {error}")))
}

/// Begins to log.
///
/// # Errors
/// [`LogError`].
pub fn start(log: &Log) -> Result<(), LogError> {
    let filter = filter(&log.level)?;
    let queue = QUEUE.get_or_init(LogQueue::default);
    let limit = KindLimit::new(log.lines_per_kind, queue.clone());
    queue.start(io::stderr(), Reports(limit.clone()))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(queue.clone());
    let lines = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(limit).with(lines).init();
    let (format, urgent) = (log.format, queue.clone());
    std::panic::set_hook(Box::new(move |panic| log_panic(panic, format, &urgent)));
    trunkline_daemon::before_abort(settle);
    Ok(())
}

/// Lets the last lines out, for a second at most.
pub fn settle() {
    if let Some(queue) = QUEUE.get() {
        queue.settle(SETTLE);
    }
}

/// Lines that nobody will read, since the process began.
pub fn lost_lines() -> Lost {
    QUEUE.get().map_or_else(Lost::default, LogQueue::lost)
}

/// A panic is told by the log's queue like everything else: written to standard error straight away, it would wait for
/// a reader who is not there. But no level and no limit keeps it back.
fn log_panic(panic: &PanicHookInfo<'_>, format: LogFormat, queue: &LogQueue) {
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    Panic { what: panic, thread: thread.name(), backtrace }.tell(format, queue, io::stderr());
}

/// What the log says of itself.
struct Reports(KindLimit);

impl Report for Reports {
    fn lost(&mut self, lost: Lost) {
        let Lost { unread, unwritten } = lost;
        tracing::warn!(
            target: "log", unread, unwritten,
            "log lines were lost: standard error was not read in time, or could not be written"
        );
    }

    fn wanted(&mut self) {
        self.0.report();
    }
}
