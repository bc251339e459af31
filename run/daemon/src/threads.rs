//! Threads no daemon can do without.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// Called before the process is aborted.
static BEFORE_ABORT: OnceLock<fn()> = OnceLock::new();

/// Has this called before the process is aborted because it has lost a thread: a log that is written by another thread
/// gets a moment. Only the first counts.
pub fn before_abort(act: fn()) {
    let _ = BEFORE_ABORT.set(act);
}

/// Starts a shard or the control thread. If it panics, which is a fault of the daemon's whatever it was fed, the
/// process is aborted. A daemon that has lost a thread would keep connections and rings open and answer nobody, and
/// every call would wait for its deadline; one that has ended is noticed at once: by applications, which attach to the
/// next, by peers, and by the service manager that starts it.
///
/// # Errors
/// What the kernel says.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let body = move || {
        let indispensable = Indispensable;
        run();
        drop(indispensable);
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// The threads of a daemon, to be waited for when it ends. Those that have ended already are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// [`spawn`], and remembers it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = spawn(name, run)?;
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Waits until all have ended, those, too, that others start meanwhile.
    pub fn join(&self) {
        loop {
            let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(thread) = next else { return };
            let _ = thread.join();
        }
    }
}

struct Indispensable;

impl Drop for Indispensable {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            tracing::error!(
                thread = thread.name(),
                "the daemon has lost a thread by a fault of its own, and ends; calls in flight are lost"
            );
            if let Some(act) = BEFORE_ABORT.get() {
                act();
            }
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a daemon does not outlive one of its threads.
    use super::*;
    use rustix::process::Signal;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    /// Set in the process that is to end.
    const VICTIM: &str = "TRUNKLINE_TEST_PANICKING_THREAD";

    #[test]
    fn a_process_ends_with_a_thread_that_panics() {
        if std::env::var_os(VICTIM).is_some() {
            let ended = spawn("ends", || ()).map(|thread| thread.join().is_ok());
            assert!(ended.is_ok_and(|is_ok| is_ok), "the end of a thread ends nothing");
            let panicked = spawn("panics", || panic!("planted")).map(|thread| thread.join().is_err());
            unreachable!("the process outlived its thread: {panicked:?}");
        }
        let own = std::env::current_exe().unwrap();
        let name = "threads::tests::a_process_ends_with_a_thread_that_panics";
        let mut victim = Command::new(own);
        victim.args(["--exact", name, "--test-threads=1"]).env(VICTIM, "1");
        let status = victim.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    }
}
