//! What there is to be read from a connection to the control socket.

use rustix::fd::OwnedFd;
use trunkline_shm::ControlSocket;

/// What a connection had.
pub(crate) enum ControlReceived {
    /// A packet, and its descriptors.
    Packet(Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// Something that is not read, and why.
    Refused(String),
    /// Its end, and descriptors that were not asked for.
    End(Vec<OwnedFd>),
}

impl ControlReceived {
    /// What a socket has, read into `packet`.
    pub fn from(socket: &ControlSocket, packet: &mut Vec<u8>) -> Self {
        let mut unwanted = Vec::new();
        match socket.recv_apart(packet, 1, &mut unwanted) {
            Ok(Some(fds)) => Self::Packet(fds),
            Err(error) if error.would_block() => Self::Nothing,
            Ok(None) | Err(_) => Self::End(unwanted),
        }
    }
}
