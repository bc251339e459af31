//! Where a verb looks for the daemon, as `--socket` or `TRUNKLINE_SOCKET` name it: the path of a socket, or a relay.

use crate::call::is_remote;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use trunkline_shm::{ControlError, ControlSocket, SOCKET_VARIABLE};

/// What was named, if anything was.
pub fn named(socket: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(SOCKET_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    socket.map(Path::to_owned).or_else(variable)
}

/// Refuses an address that is neither a path nor a relay's.
///
/// # Errors
/// What to write instead.
pub fn check(socket: Option<&Path>) -> Result<(), String> {
    match named(socket) {
        Some(place) if !is_remote(&place) && place.to_string_lossy().contains("://") => Err(format!(
            "{}: no daemon is attached to there; write the path of its socket, or a relay's address as \
             tcp+tls://HOST:PORT (--socket, {SOCKET_VARIABLE})",
            place.display()
        )),
        _ => Ok(()),
    }
}

/// What is wrong if a verb failed because it was given the one of the daemon's sockets for the other. `admin` is what
/// was named as the socket for operators.
pub fn mixed_up(socket: Option<&Path>, admin: Option<&Path>) -> Option<String> {
    let is_other_kind =
        |error: &std::io::Error| error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error());
    if let Some(path) = admin {
        let refused = std::os::unix::net::UnixStream::connect(path).err()?;
        return is_other_kind(&refused).then(|| {
            format!("{}: that is the socket for applications (daemon.socket): use --socket", path.display())
        });
    }
    let path = named(socket).filter(|place| !is_remote(place))?;
    match ControlSocket::connect(&path) {
        Err(ControlError::System { errno: Errno::PROTOTYPE, .. }) => Some(format!(
            "{}: that is the socket for operators (admin.listen), or for peers: use --admin-socket; call and bench \
             need the one for applications (daemon.socket)",
            path.display()
        )),
        _ => None,
    }
}
