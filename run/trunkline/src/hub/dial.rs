//! Reaching the daemon: at a socket, through a relay, inside this process, or whichever there is.

use crate::refusals::unavailable;
use std::fmt;
use std::io;
use std::sync::Arc;
use trunkline_call::Status;
use trunkline_shm::{ControlSocket, Places};

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
    /// At one of these sockets if a daemon answers there when first asked, else in this process.
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
    /// Connects; from the first success on, to that daemon and no other, so that all of a process's calls meet.
    ///
    /// # Errors
    /// UNAVAILABLE, not executed, with the place and the reason.
    pub(crate) fn dial(&mut self) -> Result<Dialled, Status> {
        let (socket, settled, alone) = match self {
            Self::Attached(places) => return Ok(Dialled { socket: connect(places)?, alone: None }),
            Self::Remote(place) => return Ok(Dialled { socket: remote(place)?, alone: None }),
            Self::Given(connector) => return Ok(Dialled { socket: connector.connect()?, alone: None }),
            Self::Embedded => return Ok(Dialled { socket: embedded()?, alone: None }),
            Self::Either(places) => match connect(places) {
                Ok(socket) => (socket, Self::Attached(places.clone()), None),
                Err(why) => (embedded()?, Self::Embedded, Some(why)),
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
    places.connect().map_err(|error| {
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
    })
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
