//! Which daemon to use: what the program says, else what the environment says, else whichever there is. And how long to
//! look for an answer, which the environment may bound.

use crate::hub::{Connector, Daemon};
use std::ffi::OsString;
use std::path::PathBuf;
use trunkline_call::{Code, Execution, Status};
use trunkline_shm::{Places, WaitLimits};

/// Environment variable that turns embedded mode on (`1`) or off (`0`).
pub(crate) const EMBEDDED_VARIABLE: &str = "TRUNKLINE_EMBEDDED";

/// Environment variable: microseconds a thread looks for an answer at most before it sleeps.
pub(crate) const PATIENCE_VARIABLE: &str = "TRUNKLINE_PATIENCE_US";

/// Environment variable: bytes of each heap of this process's sessions, `536870912` or `512 MiB`; at most what the
/// daemon gives (`sessions.heap_bytes_max`). For large messages: one that does not fit both heaps is refused.
pub(crate) const HEAP_VARIABLE: &str = "TRUNKLINE_HEAP_BYTES";

/// Environment variable: sessions that the tasks of other executors share at most, from 1 to [`TASK_SESSIONS_MAX`].
pub(crate) const TASK_SESSIONS_VARIABLE: &str = "TRUNKLINE_TASK_SESSIONS";

/// Most sessions for tasks, whatever the environment says: each is memory and descriptors of the daemon's.
const TASK_SESSIONS_MAX: usize = 64;

/// Most sessions for tasks if the environment says nothing. A session carries more calls than a core can make, so it is
/// not for their number: threads of one runtime are to be out of each other's way.
const TASK_SESSIONS_USUAL_MAX: usize = 8;

/// Whether the environment can be meant: a variable with a slip in it is not passed over.
///
/// # Errors
/// FAILED_PRECONDITION, not executed: it names the variable, and what to write.
pub(crate) fn check_environment() -> Result<(), Status> {
    check_environment_with(|name| std::env::var_os(name))
        .map_err(|why| Status::new(Code::FailedPrecondition, why).with_execution(Execution::NotExecuted))
}

fn check_environment_with(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), String> {
    HEAP.read(&variable)?;
    PATIENCE.read(&variable)?;
    TASK_SESSIONS.read(&variable)?;
    EMBEDDED.read(&variable).map(drop)
}

/// A variable of the environment, how it is read, and what may be written there.
struct Variable<T> {
    name: &'static str,
    parse: fn(&str) -> Option<T>,
    advice: &'static str,
}

const HEAP: Variable<u64> = Variable {
    name: HEAP_VARIABLE,
    parse: size,
    advice: "a number of bytes, or one with a unit (KiB, MiB, GiB), such as \"512 MiB\"",
};
const PATIENCE: Variable<u64> = Variable {
    name: PATIENCE_VARIABLE,
    parse: |said| said.parse().ok(),
    advice: "a number of microseconds; 0 sleeps at once",
};
const TASK_SESSIONS: Variable<usize> = Variable {
    name: TASK_SESSIONS_VARIABLE,
    parse: |said| said.parse().ok().filter(|sessions| (1..=TASK_SESSIONS_MAX).contains(sessions)),
    advice: "a number from 1 to 64",
};
const EMBEDDED: Variable<bool> = Variable {
    name: EMBEDDED_VARIABLE,
    parse: |said| match said {
        "1" | "true" | "yes" => Some(true),
        "0" | "false" | "no" => Some(false),
        _ => None,
    },
    advice: "1 for a daemon in this process, or 0 for one at a socket",
};

impl<T> Variable<T> {
    /// What it says; `None` if it is not set, or empty.
    fn read(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<T>, String> {
        let Some(said) = variable(self.name) else { return Ok(None) };
        let text = said.to_str().map(str::trim);
        match text.map(self.parse) {
            _ if text == Some("") => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            _ => Err(format!("{} is {said:?}: write {}, or leave it unset", self.name, self.advice)),
        }
    }

    /// The same where a slip has been told already, or will be.
    fn value(&self, variable: impl Fn(&str) -> Option<OsString>) -> Option<T> {
        self.read(variable).ok().flatten()
    }
}

/// How many sessions tasks may share: as many as a runtime has threads as a rule, which is one per core.
pub(crate) fn task_sessions(cores: usize) -> usize {
    task_sessions_with(cores, |name| std::env::var_os(name))
}

fn task_sessions_with(cores: usize, variable: impl Fn(&str) -> Option<OsString>) -> usize {
    TASK_SESSIONS.value(variable).unwrap_or(cores.min(TASK_SESSIONS_USUAL_MAX)).max(1)
}

/// The heaps to ask the daemon for; 0 for as large as it gives those who do not ask.
pub(crate) fn heap_bytes() -> u64 {
    HEAP.value(|name| std::env::var_os(name)).unwrap_or(0)
}

/// `536870912`, `512 MiB`.
fn size(said: &str) -> Option<u64> {
    let digits = said.find(|c: char| !c.is_ascii_digit()).unwrap_or(said.len());
    let (number, unit) = said.split_at(digits);
    let scale = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok().map(|number| number.saturating_mul(scale))
}

/// How threads of this process wait: as everywhere, but no longer than the environment says.
pub(crate) fn wait_limits() -> WaitLimits {
    wait_limits_with(|name| std::env::var_os(name))
}

fn wait_limits_with(variable: impl Fn(&str) -> Option<OsString>) -> WaitLimits {
    let usual = WaitLimits::of_this_process();
    let patience_ns_max =
        PATIENCE.value(variable).map_or(usual.patience_ns_max, |us| us.saturating_mul(1000));
    WaitLimits { patience_ns_max, ..usual }
}

/// What a builder was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Wins over what else says where the daemon is.
    pub(crate) given: Option<Connector>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) embedded: Option<bool>,
    pub(crate) name: Option<String>,
}

impl Settings {
    /// The daemon these settings mean in this process.
    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon_with(|name| std::env::var_os(name), Places::of_this_process())
    }

    /// The name operators see.
    pub(crate) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(program_name)
    }

    /// Most explicit first: code before environment, a socket before the mode.
    fn daemon_with(&self, variable: impl Fn(&str) -> Option<OsString>, places: Places) -> Daemon {
        if let Some(connector) = &self.given {
            return Daemon::Given(connector.clone());
        }
        if let Some(socket) = &self.socket {
            return named(socket.clone());
        }
        match self.embedded.or_else(|| EMBEDDED.value(variable)) {
            Some(true) => Daemon::Embedded,
            // A socket that was named is meant; falling back to another daemon would hide that it is not there.
            said => match places {
                Places::Named(path) => named(path),
                places if said == Some(false) => Daemon::Attached(places),
                places => Daemon::Either(places),
            },
        }
    }
}

/// What the address of a relay begins with.
const REMOTE_SCHEME: &str = "tcp+tls://";

/// The daemon at a socket's path, or beyond a relay.
fn named(path: PathBuf) -> Daemon {
    match path.to_str().filter(|text| text.starts_with(REMOTE_SCHEME)) {
        Some(place) => Daemon::Remote(place.to_owned()),
        None => Daemon::Attached(Places::Named(path)),
    }
}

fn program_name() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    name.unwrap_or("application").to_owned()
}

#[cfg(test)]
mod tests {
    //! Lists what wins over what.
    use super::*;

    #[test]
    fn the_environment_bounds_patience() {
        let usual = WaitLimits::default().patience_ns_max;
        for (said, patience_ns_max) in [
            (None, usual),
            (Some("0"), 0),
            (Some(" 50 "), 50_000),
            (Some("long"), usual),
            (Some("-1"), usual),
        ] {
            let limits = wait_limits_with(|_| said.map(OsString::from));
            assert_eq!(limits.patience_ns_max, patience_ns_max, "{said:?}");
        }
    }

    #[test]
    fn the_environment_bounds_sessions_for_tasks() {
        for (cores, said, sessions) in [
            (1, None, 1),
            (4, None, 4),
            (128, None, 8),
            (128, Some(" 16 "), 16),
            (2, Some("1"), 1),
            (2, Some("64"), 64),
            (2, Some("0"), 2),
            (2, Some("many"), 2),
        ] {
            let found = task_sessions_with(cores, |_| said.map(OsString::from));
            assert_eq!(found, sessions, "{cores} {said:?}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (said, bytes) in [
            ("1048576", Some(1 << 20)),
            ("512 MiB", Some(512 << 20)),
            ("1GiB", Some(1 << 30)),
            ("64 KiB", Some(64 << 10)),
            ("99999999999 GiB", Some(u64::MAX)),
            ("512 MB", None),
            ("much", None),
            ("-1", None),
        ] {
            assert_eq!(size(said), bytes, "{said:?}");
        }
    }

    #[test]
    fn a_slip_in_the_environment_is_told() {
        let check = |variable: &str, said: &str| {
            check_environment_with(|name| (name == variable).then(|| OsString::from(said)))
        };
        for (variable, good, wrong) in [
            (HEAP_VARIABLE, " 512 MiB ", "512 MB"),
            (PATIENCE_VARIABLE, "0", "long"),
            (TASK_SESSIONS_VARIABLE, "64", "65"),
            (TASK_SESSIONS_VARIABLE, "1", "0"),
            (EMBEDDED_VARIABLE, "yes", "maybe"),
        ] {
            assert_eq!((check(variable, good), check(variable, "")), (Ok(()), Ok(())), "{variable}");
            let why = check(variable, wrong).unwrap_err();
            assert!(why.starts_with(&format!("{variable} is {wrong:?}: write ")), "{why}");
        }
        assert_eq!(check_environment_with(|_| None), Ok(()));
    }

    const RELAY: &str = "tcp+tls://relay.internal:7979";

    #[test]
    fn code_before_environment_before_default() {
        let named = || Places::Named("/env.sock".into());
        let default = || Places::Default(vec!["/run/trunkline.sock".into()]);
        let socket = || Some(PathBuf::from("/code.sock"));
        let at = |path: &str| Daemon::Attached(Places::Named(path.into()));
        #[rustfmt::skip]
        let table = [
            // socket in code, embedded in code, TRUNKLINE_EMBEDDED, places => daemon
            (socket(), Some(true), Some("1"), named(), at("/code.sock")),
            (None, Some(true), Some("0"), named(), Daemon::Embedded),
            (None, Some(false), Some("1"), default(), Daemon::Attached(default())),
            (None, None, Some("1"), named(), Daemon::Embedded),
            (None, None, Some("0"), default(), Daemon::Attached(default())),
            (None, None, None, named(), at("/env.sock")),
            (None, None, None, Places::Named(RELAY.into()), Daemon::Remote(RELAY.into())),
            (Some(RELAY.into()), Some(true), None, named(), Daemon::Remote(RELAY.into())),
            (None, None, Some("maybe"), default(), Daemon::Either(default())),
        ];
        for (socket, embedded, variable, places, expected) in table {
            let settings = Settings { socket, embedded, ..Settings::default() };
            let found = settings.daemon_with(|_| variable.map(OsString::from), places);
            assert_eq!(found, expected, "{settings:?} {variable:?}");
        }
    }
}
