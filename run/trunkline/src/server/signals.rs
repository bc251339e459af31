//! What the signals that end a process mean while a server runs on the program's own thread: stop gracefully.
//!
//! The first SIGTERM or SIGINT tells every server in [`ServerBuilder::run`](super::ServerBuilder::run) to finish the
//! calls in flight; the next one ends the process at once, as does any that comes when no such server runs. A signal
//! that the program catches or ignores itself is its own business and stays with it.

use super::shared::Shared;
use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use trunkline_shm::PerProcess;

/// The signals that mean: stop.
const SIGNALS: [(c_int, &str); 2] = [(SIGTERM, "SIGTERM"), (SIGINT, "SIGINT")];

/// One listener per process, made when the first server runs and there for good: a handler once installed cannot be
/// taken out so that the kernel's default is back.
static LISTENER: PerProcess<Mutex<Option<Arc<Listener>>>> = PerProcess::new();

/// The signals whose handlers are ours, and [`Listener::at_once`] of them. A forked child has both from its parent:
/// there the handlers are not somebody else's, and are not installed again.
static INSTALLED: OnceLock<(Vec<c_int>, Arc<AtomicBool>)> = OnceLock::new();

/// The servers to tell, and whether a signal ends the process.
struct Listener {
    servers: Mutex<Vec<(Weak<Shared>, Duration)>>,
    /// No server runs, or they have been told: the next signal does what it does in any program. Set in the signal's
    /// handler, so that two signals in a row are two.
    at_once: Arc<AtomicBool>,
}

/// A server that is told, until this is dropped.
pub(super) struct Told {
    listener: Arc<Listener>,
    server: Weak<Shared>,
}

/// Has the signals stop `server`, with `grace` for its calls. `None` if the program sees to all of them itself, or the
/// system has no thread or descriptor for it; the kernel's default is left as it is then.
pub(super) fn tell(server: &Arc<Shared>, grace: Duration) -> Option<Told> {
    let mut slot = LISTENER.get().lock();
    if slot.is_none() {
        match listen() {
            Ok(listener) => *slot = listener,
            Err(error) => tracing::warn!(%error, "SIGTERM ends this server without waiting for its calls"),
        }
    }
    let listener = Arc::clone(slot.as_ref()?);
    let server = Arc::downgrade(server);
    let mut servers = listener.servers.lock();
    servers.retain(|(server, _)| server.strong_count() > 0);
    servers.push((Weak::clone(&server), grace));
    listener.at_once.store(false, Ordering::SeqCst);
    drop(servers);
    Some(Told { listener, server })
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut servers = self.listener.servers.lock();
        servers.retain(|(server, _)| !Weak::ptr_eq(server, &self.server));
        if servers.is_empty() {
            self.listener.at_once.store(true, Ordering::SeqCst);
        }
    }
}

fn listen() -> io::Result<Option<Arc<Listener>>> {
    let (ours, at_once) = match INSTALLED.get() {
        Some((ours, at_once)) => (ours.clone(), Arc::clone(at_once)),
        None => install()?,
    };
    if ours.is_empty() {
        return Ok(None);
    }
    let listener = Arc::new(Listener { servers: Mutex::default(), at_once });
    let mut signals = Signals::new(ours)?;
    let told = Arc::clone(&listener);
    let hear = move || signals.forever().for_each(|signal| told.stop_all(signal));
    std::thread::Builder::new().name("trunkline-signals".into()).spawn(hear)?;
    Ok(Some(listener))
}

/// Has the signals that nobody else sees to end the process at once unless they are told otherwise.
fn install() -> io::Result<(Vec<c_int>, Arc<AtomicBool>)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ours: Vec<c_int> =
        SIGNALS.iter().map(|(signal, _)| *signal).filter(|signal| is_default(&status, *signal)).collect();
    // Until a server is there that could be told.
    let at_once = Arc::new(AtomicBool::new(true));
    for signal in &ours {
        // In this order: what was so before the signal decides what it does.
        flag::register_conditional_default(*signal, Arc::clone(&at_once))?;
        flag::register(*signal, Arc::clone(&at_once))?;
    }
    if !ours.is_empty() {
        let _ = INSTALLED.set((ours.clone(), Arc::clone(&at_once)));
    }
    Ok((ours, at_once))
}

impl Listener {
    fn stop_all(&self, signal: c_int) {
        let name = SIGNALS.iter().find(|(known, _)| *known == signal).map_or("a signal", |(_, name)| name);
        for (server, grace) in self.servers.lock().iter() {
            if let Some(server) = server.upgrade() {
                let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                tracing::info!(signal = name, grace_ms, "the server stops: calls in flight may finish");
                super::handle::order_stop(&server, *grace);
            }
        }
    }
}

/// Whether the process neither catches nor ignores a signal, by its `/proc/self/status`; no, where that does not say.
fn is_default(status: &str, signal: c_int) -> bool {
    let bit = u32::try_from(signal - 1).ok().and_then(|shift| 1_u64.checked_shl(shift)).unwrap_or(0);
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let is_clear = |name| mask(name).is_some_and(|mask| mask & bit == 0);
    is_clear("SigIgn:") && is_clear("SigCgt:")
}

#[cfg(test)]
mod tests {
    //! Shows whose a signal is, and that none is lost while a server starts.
    use super::*;

    #[test]
    fn a_signal_that_comes_before_the_workers_run_stops_them() {
        let builder = crate::Server::builder().socket("/nobody/listens/here");
        let begun = builder.begin(|shared| {
            let told = tell(shared, Duration::ZERO);
            signal_hook::low_level::raise(SIGTERM).unwrap();
            told
        });
        let (server, told) = begun.unwrap();
        assert!(told.is_some(), "the signal is ours");
        server.wait().unwrap();
    }

    #[test]
    fn a_signal_is_the_programs_own_if_it_is_caught_or_ignored() {
        let status =
            |ignored: &str, caught: &str| format!("Name:\tx\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n");
        for (status, term, int) in [
            (status("0000000000000000", "0000000000000000"), true, true),
            (status("0000000000000002", "0000000000000000"), true, false),
            (status("0000000000000000", "0000000000004000"), false, true),
            ("Name:\tx\n".to_owned(), false, false),
        ] {
            assert_eq!((is_default(&status, SIGTERM), is_default(&status, SIGINT)), (term, int), "{status}");
        }
    }
}
