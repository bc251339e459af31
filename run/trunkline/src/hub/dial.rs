//! Reaching the daemon: at a socket, through a relay, inside this process, or whichever there is.

use crate::refusals::unavailable;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use trunkline_call::Status;
use trunkline_shm::{ControlError, ControlSocket, Places};

/// Where the daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// At one of these sockets, now or later.
    Attached(Places),
    /// Beyond the relay at this address (`tcp+tls://…`), as it was written.
    Remote(String),
    /// In this process.
    Embedded,
    /// The one that gives these connections.
    Given(Connector),
    /// At one of these sockets if a daemon answers there or is meant to, else in this process.
    Either(Places),
}

/// Gives a fresh connection to a daemon of this process.
pub type Connect = dyn Fn() -> io::Result<ControlSocket> + Send + Sync;

/// What gives connections to one daemon; clones are the same.
#[derive(Clone)]
pub(crate) struct Connector(pub(crate) Arc<Connect>);

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) socket: ControlSocket,
    /// Why the daemon is one in this process, if it is for want of another: nobody has asked for that.
    pub(crate) alone: Option<Status>,
}

impl Daemon {
    /// Connects; from the first success on, to that daemon and no other, so that all of a process's calls meet. The
    /// daemon in this process, for want of another, only where nothing says that there is one on this host: a program
    /// that starts while the daemon does, or may not connect to it, is not to live on an island for good.
    ///
    /// # Errors
    /// UNAVAILABLE, not executed, with the place and the reason.
    pub(crate) fn dial(&mut self) -> Result<Dialled, Status> {
        let (socket, settled, alone) = match self {
            Self::Attached(places) => return Ok(Dialled { socket: connect(places)?, alone: None }),
            Self::Remote(place) => return Ok(Dialled { socket: remote(place)?, alone: None }),
            Self::Given(connector) => return Ok(Dialled { socket: connector.connect()?, alone: None }),
            Self::Embedded => return Ok(Dialled { socket: embedded()?, alone: None }),
            Self::Either(places) => match places.connect() {
                Ok(socket) => {
                    met::remember(places);
                    (socket, Self::Attached(places.clone()), None)
                }
                // One that is there and refuses is not to be started or passed by: the reason says who refuses.
                Err(error) if error.is_unreachable() || met::is_known(places) => {
                    return Err(unattached(places, &error));
                }
                Err(error) => match (unattached(places, &error), places.meant()) {
                    (why, Some(path)) => return Err(not_there(&why, path)),
                    (why, None) => (embedded()?, Self::Embedded, Some(why)),
                },
            },
        };
        *self = settled;
        Ok(Dialled { socket, alone })
    }
}

impl Connector {
    fn connect(&self) -> Result<ControlSocket, Status> {
        (self.0)().map_err(|error| unavailable(&format!("cannot attach to the daemon: {error}")))
    }
}

impl PartialEq for Connector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Connector {}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

fn connect(places: &Places) -> Result<ControlSocket, Status> {
    places.connect().map_err(|error| unattached(places, &error))
}

/// Why no daemon took the connection.
fn unattached(places: &Places, error: &ControlError) -> Status {
    if error.is_unreachable() {
        // A daemon may be there: the reason says which place it is.
        return unavailable(&format!("cannot attach to a daemon: {error}"));
    }
    let place = match places {
        Places::Named(path) => path.display().to_string(),
        Places::Default(paths) => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("any of {}", paths.join(", "))
        }
    };
    unavailable(&format!("no daemon at {place}: {error}"))
}

/// No daemon answers, though something says that there is one.
fn not_there(why: &Status, path: &Path) -> Status {
    unavailable(&format!(
        "{}; something lies at {}, so one is meant to run: start it, or say TRUNKLINE_EMBEDDED=1 to do without",
        why.message(),
        path.display()
    ))
}

/// Where this process, or one that it was forked from, has been attached to a daemon when it looked at the default
/// places. A child's hubs begin anew, and one that is forked while the daemon is away is to wait for it as its siblings
/// do. No lock: a child may have been forked while another thread held it.
mod met {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::sync::atomic::{AtomicU64, Ordering};
    use trunkline_shm::Places;

    static MET: AtomicU64 = AtomicU64::new(0);

    pub(super) fn remember(places: &Places) {
        MET.store(key(places), Ordering::Relaxed);
    }

    pub(super) fn is_known(places: &Places) -> bool {
        MET.load(Ordering::Relaxed) == key(places)
    }

    fn key(places: &Places) -> u64 {
        let mut hasher = DefaultHasher::new();
        places.hash(&mut hasher);
        hasher.finish() | 1
    }
}

#[cfg(feature = "remote")]
fn remote(place: &str) -> Result<ControlSocket, Status> {
    let place: trunkline_relay::RemotePlace =
        place.parse().map_err(|error: trunkline_relay::PlaceError| unavailable(&error.to_string()))?;
    trunkline_relay::attach(&place).map_err(|error| unavailable(&format!("{place}: {error}")))
}

#[cfg(not(feature = "remote"))]
fn remote(place: &str) -> Result<ControlSocket, Status> {
    Err(unavailable(&format!("{place}: this build reaches no daemon over TLS (cargo feature `remote`)")))
}

#[cfg(feature = "embedded")]
fn embedded() -> Result<ControlSocket, Status> {
    super::embedded::connect()
}

#[cfg(not(feature = "embedded"))]
fn embedded() -> Result<ControlSocket, Status> {
    Err(unavailable("no daemon is running, and this build has no embedded one (cargo feature `embedded`)"))
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    //! Shows when a program that names no daemon runs one inside itself, and when it waits for the host's.
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use trunkline_shm::ControlListener;

    /// Default places of a host of its own, and the path of the second.
    fn host() -> (tempfile::TempDir, Daemon, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let path = directory.path().join("trunkline.sock");
        let places = Places::Default(vec![directory.path().join("missing/trunkline.sock"), path.clone()]);
        (directory, Daemon::Either(places), path)
    }

    fn refused(daemon: &mut Daemon) -> String {
        let status = daemon.dial().unwrap_err();
        assert!(matches!(daemon, Daemon::Either(_)), "it looks again");
        status.message().to_owned()
    }

    #[test]
    fn a_daemon_that_died_or_has_not_started_is_waited_for() {
        let (_host, mut daemon, path) = host();
        drop(UnixListener::bind(&path).unwrap());
        let why = refused(&mut daemon);
        assert!(why.contains("Connection refused") && why.contains("TRUNKLINE_EMBEDDED=1"), "{why}");
        let _listener = ControlListener::bind(&path, 0o600).unwrap();
        assert!(daemon.dial().unwrap().alone.is_none());

        let (host, mut daemon, path) = host();
        symlink("later.sock", &path).unwrap();
        let why = refused(&mut daemon);
        assert!(why.contains(&path.display().to_string()), "{why}");
        let _listener = ControlListener::bind(host.path().join("later.sock"), 0o600).unwrap();
        assert!(daemon.dial().unwrap().alone.is_none());
    }

    /// The socket of a daemon that died lies at the place before that of one that takes no more connections.
    #[test]
    fn a_daemon_that_is_there_and_refuses_is_not_to_be_started() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let [dead, busy] = ["dead.sock", "busy.sock"].map(|name| directory.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        let listener = seqpacket_that_takes_one(&busy);
        let places = Places::Default(vec![dead, busy.clone()]);
        let waiting = places.connect().unwrap();
        let why = refused(&mut Daemon::Either(places));
        assert!(why.contains(&busy.display().to_string()) && why.contains("as many wait as may"), "{why}");
        assert!(!why.contains("start it") && !why.contains("TRUNKLINE_EMBEDDED"), "{why}");
        drop((listener, waiting));
    }

    /// A listener that accepts nothing.
    fn seqpacket_that_takes_one(path: &Path) -> rustix::fd::OwnedFd {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        listener
    }

    #[test]
    fn who_has_met_the_daemon_waits_for_it() {
        let (_host, daemon, path) = host();
        let listener = ControlListener::bind(&path, 0o600).unwrap();
        assert!(daemon.clone().dial().unwrap().alone.is_none());
        drop(listener);
        assert!(!path.exists());
        let mut in_a_child = daemon;
        let why = refused(&mut in_a_child);
        assert!(why.starts_with("no daemon at any of "), "{why}");
    }

    #[test]
    fn where_nothing_says_that_there_is_a_daemon_a_program_runs_alone() {
        let (_host, mut daemon, _path) = host();
        let why = daemon.dial().unwrap().alone.unwrap();
        assert!(why.message().starts_with("no daemon at any of "), "{why}");
        assert_eq!(daemon, Daemon::Embedded);
    }
}
