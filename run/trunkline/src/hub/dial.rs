//! Reaching the daemon: at a socket, inside this process, or whichever there is.

use crate::session::unavailable;
use trunkline_call::Status;
use trunkline_shm::{ControlSocket, Places};

/// Where the daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// At one of these sockets, now or later.
    Attached(Places),
    /// In this process.
    Embedded,
    /// At one of these sockets if a daemon answers there when first asked, else in this process.
    Either(Places),
}

impl Daemon {
    /// Connects; from the first success on, to that daemon and no other, so that all of a process's calls meet.
    ///
    /// # Errors
    /// UNAVAILABLE, not executed, with the place and the reason.
    pub(crate) fn dial(&mut self) -> Result<ControlSocket, Status> {
        let (socket, settled) = match self {
            Self::Attached(places) => return connect(places),
            Self::Embedded => return embedded(),
            Self::Either(places) => match connect(places) {
                Ok(socket) => (socket, Self::Attached(places.clone())),
                Err(status) => {
                    tracing::debug!(%status, "starting a daemon inside this process");
                    (embedded()?, Self::Embedded)
                }
            },
        };
        *self = settled;
        Ok(socket)
    }
}

fn connect(places: &Places) -> Result<ControlSocket, Status> {
    places.connect().map_err(|error| {
        let place = match places {
            Places::Named(path) => path.display().to_string(),
            Places::Default(_) => "any of the default places".to_owned(),
        };
        unavailable(&format!("no daemon at {place}: {error}"))
    })
}

#[cfg(feature = "embedded")]
fn embedded() -> Result<ControlSocket, Status> {
    super::embedded::connect()
}

#[cfg(not(feature = "embedded"))]
fn embedded() -> Result<ControlSocket, Status> {
    Err(unavailable("no daemon is running, and this build has no embedded one (cargo feature `embedded`)"))
}
