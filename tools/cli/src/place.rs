//! Where a verb looks for the daemon, as `--socket` or `TRUNKLINE_SOCKET` name it: the path of a socket, or a relay.

use crate::call::is_remote;
use std::path::{Path, PathBuf};
use trunkline_shm::SOCKET_VARIABLE;

/// What was named, if anything was.
fn named(socket: Option<&Path>) -> Option<PathBuf> {
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
