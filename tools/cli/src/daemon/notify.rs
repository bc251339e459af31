//! Tells the service manager that the daemon, or a relay, is ready, and which process it is now (sd_notify(3)).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Environment variable with the manager's socket; a leading @ stands for an abstract name.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Longest it waits for a manager that does not read: meanwhile nobody hears orders.
const PATIENCE: Duration = Duration::from_secs(2);

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
    if let Err(error) = send(&path, state, PATIENCE) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

fn send(path: &str, state: &str, patience: Duration) -> io::Result<()> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(patience))?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    //! Shows that a manager is told, and waited for no longer than that.
    use super::*;

    #[test]
    fn a_manager_that_does_not_read_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manager");
        let manager = UnixDatagram::bind(&path).unwrap();
        let path = path.to_str().unwrap();
        let filled = (0..1_000_000).find_map(|_| send(path, "READY=1", Duration::from_millis(1)).err());
        assert_eq!(filled.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        let mut said = [0; 16];
        assert_eq!(manager.recv(&mut said).map(|count| said[..count].to_vec()).unwrap(), b"READY=1");
        assert!(send(path, "READY=1", Duration::from_millis(1)).is_ok());
    }
}
