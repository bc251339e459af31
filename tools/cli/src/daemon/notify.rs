//! Tells the service manager that the daemon, or a relay, is ready, and which process it is now (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the manager's socket; a leading @ stands for an abstract name.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Says that this process serves. A manager that believes only the main process needs `NotifyAccess=all` for what a
/// successor says of itself.
pub fn ready() {
    tell(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Says that another process is the daemon from now on. To be said before this one ends: a manager that sees its main
/// process end, and does not know of another, ends the service with everything in it.
pub fn succeeded_by(process: u32) {
    tell(&format!("MAINPID={process}\n"));
}

/// Tells, if somebody wants to hear it.
fn tell(state: &str) {
    let Ok(path) = std::env::var(SOCKET_VARIABLE) else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
