//! A stand-in for the daemon, for showing what the library does without an engine behind it.
//!
//! [`Peer`] is the daemon's end of one session, moved by hand: a test takes submissions one by one and says what comes
//! of them. [`Relay`] is a thread that carries calls between the sessions attached to it, as far as a library can
//! notice. Neither checks anything an engine must check.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod executor;
pub mod peer;
pub mod relay;
pub mod text;

use std::future::{Future, IntoFuture};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tempfile::TempDir;
use trunkline_shm::{ControlListener, SessionConfig};

pub use peer::Peer;
pub use relay::Relay;
pub use text::{ECHO, EchoClient, Text};

/// No test waits longer for anything: a lost wake-up fails instead of hanging.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// A place where a stand-in listens.
pub struct Place {
    dir: TempDir,
    listener: Option<ControlListener>,
}

impl Place {
    /// Listens at a fresh path.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = ControlListener::bind(dir.path().join("daemon.sock"), 0o600).unwrap();
        Self { dir, listener: Some(listener) }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("daemon.sock")
    }

    /// Listens again where somebody listened before.
    pub fn again(dir: TempDir) -> Self {
        let listener = ControlListener::bind(dir.path().join("daemon.sock"), 0o600).unwrap();
        Self { dir, listener: Some(listener) }
    }

    /// A place where nobody listens yet.
    pub fn deserted() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    /// Attaches the next application by hand, with small rings and heaps.
    pub fn accept(&self) -> Peer {
        self.accept_with(small(), peer::CALLS_MAX)
    }

    pub fn accept_with(&self, config: SessionConfig, calls_max: u32) -> Peer {
        Peer::attach(self.listener.as_ref().unwrap().accept().unwrap(), config, calls_max)
    }

    /// Attaches on a thread, for a test whose own thread attaches the application.
    pub fn accept_in_thread(self) -> std::thread::JoinHandle<(Self, Peer)> {
        std::thread::spawn(move || {
            let peer = self.accept();
            (self, peer)
        })
    }

    /// Serves every application from a thread.
    pub fn relay(self) -> Relay {
        self.relay_of(usize::MAX)
    }

    /// The same, with so many sessions to give.
    pub fn relay_of(mut self, sessions_max: usize) -> Relay {
        let listener = self.listener.take().unwrap();
        Relay::start(self.dir, listener, sessions_max)
    }
}

/// Polls a future once, as a foreign executor would.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Drives a future as foreign executors do: parks the thread, lets the waker unpark it, drains no ring.
pub fn foreign<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future.into_future());
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return out;
        }
        std::thread::park();
    }
}

/// Runs `test` on a thread and fails if it takes longer than the watchdog.
pub fn watched<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    trunkline_test_logs::watch();
    let (tell, hear) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let out = test();
        let _ = tell.send(());
        out
    });
    match hear.recv_timeout(WATCHDOG) {
        Ok(()) => thread.join().unwrap(),
        // The thread panicked: so do we, with its message printed already.
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().err().unwrap()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
    }
}

/// The most sessions that tasks of a process share.
const TASK_SESSIONS: &str = "TRUNKLINE_TASK_SESSIONS";

/// Runs a test in a process of its own, whose tasks may have so many sessions.
pub fn with_task_sessions(sessions: &str, name: &str, test: impl FnOnce() + Send + 'static) {
    if std::env::var_os(TASK_SESSIONS).is_some() {
        return watched(test);
    }
    passes(own_test(name).env(TASK_SESSIONS, sessions));
}

/// This program, which runs only its test of that name.
pub fn own_test(name: &str) -> std::process::Command {
    let mut own = std::process::Command::new(std::env::current_exe().unwrap());
    own.args(["--exact", name, "--nocapture"]);
    own
}

/// Runs it to its end. A program that finds no such test ends well, too.
pub fn passes(test: &mut std::process::Command) {
    let ended = test.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains(" 1 passed"), "{test:?}: {said}");
}

/// Small rings and heaps, so that their limits are near.
pub fn small() -> SessionConfig {
    SessionConfig {
        submission_entries: 16,
        completion_entries: 64,
        send_heap_bytes: 64 << 10,
        receive_heap_bytes: 64 << 10,
    }
}

/// A channel to whatever listens at `path`.
pub fn channel(path: &Path) -> trunkline::Channel {
    trunkline::Channel::builder().socket(path).name("test").connect_lazy()
}
