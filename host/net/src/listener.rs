//! A socket that accepts streams.

use crate::descriptors::accept_descriptors;
use crate::{Endpoint, Stream};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use thiserror::Error;

/// Accepts streams at an endpoint.
///
/// Dropping one that listens on a path removes the file, if it is still the one this listener made.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    endpoint: Endpoint,
    /// The socket file made here: device and inode.
    file: Option<(u64, u64)>,
}

/// A stream somebody opened.
#[derive(Debug)]
pub struct Accepted {
    /// The stream, set up and non-blocking.
    pub stream: Stream,
    /// Where it comes from, for TCP.
    pub from: Option<SocketAddr>,
}

/// Why nothing can listen there.
#[derive(Debug, Error)]
pub enum BindError {
    /// Somebody listens there already.
    #[error("{endpoint} is in use: another process listens there")]
    InUse {
        /// Where.
        endpoint: Endpoint,
    },
    /// The path is taken by something that is not a socket. It is left alone.
    #[error("{endpoint} exists and is not a socket: remove it or choose another path")]
    NotASocket {
        /// Where.
        endpoint: Endpoint,
    },
    /// Connections are told apart when they come: whether they speak TLS is not said here.
    #[error(
        "cannot listen on {endpoint}: write tcp://ADDRESS:PORT; keys and certificates are set apart from it"
    )]
    Secure {
        /// Where.
        endpoint: Endpoint,
    },
    /// Datagrams are no stream.
    #[error("cannot listen for connections on {endpoint}: R2P2 has a port of its own (r2p2.listen)")]
    Datagrams {
        /// Where.
        endpoint: Endpoint,
    },
    /// The kernel refuses.
    #[error("cannot listen on {endpoint}: {source}")]
    Kernel {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
}

/// Connections the kernel holds until they are accepted. Its own default cap (net.core.somaxconn); a full one makes
/// clients retry, not fail.
const BACKLOG: i32 = 4096;

impl Listener {
    /// Listens at an endpoint. TCP port 0 takes a free one ([`Listener::endpoint`] says which). With `share_port`,
    /// several listeners (one a shard) may take the same TCP address, and the kernel spreads connections over them.
    ///
    /// A socket file nobody listens on is a leftover of a dead process and is replaced.
    ///
    /// # Errors
    /// [`BindError`] says who is in the way.
    pub fn bind(endpoint: &Endpoint, share_port: bool) -> Result<Self, BindError> {
        match endpoint {
            Endpoint::Tcp(address) => bind_tcp(*address, share_port),
            Endpoint::Tls(..) => return Err(BindError::Secure { endpoint: endpoint.clone() }),
            Endpoint::R2p2(_) => return Err(BindError::Datagrams { endpoint: endpoint.clone() }),
            Endpoint::Unix(path) => {
                clear_leftover(endpoint, path)?;
                bind_unix(path)
            }
            Endpoint::Abstract(name) => bind_abstract(name),
        }
        .map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ADDRINUSE) => BindError::InUse { endpoint: endpoint.clone() },
            _ => BindError::Kernel { endpoint: endpoint.clone(), source: error },
        })
    }

    /// Goes on listening with a socket from another process, whose file that process may still want.
    #[must_use]
    pub fn inherit(socket: OwnedFd, endpoint: Endpoint) -> Self {
        if matches!(endpoint, Endpoint::Unix(_) | Endpoint::Abstract(_)) {
            // Its process may be of a version that let them come.
            let _ = accept_descriptors(&socket, false);
        }
        Self { socket, endpoint, file: None }
    }

    /// From now on the socket's file is this listener's, and goes with it.
    pub fn own_file(&mut self) {
        self.file = self.endpoint.path().and_then(file_identity);
    }

    /// Takes the next stream; `None` if none waits.
    ///
    /// # Errors
    /// What the kernel says of this host (out of descriptors or memory). A peer that went away meanwhile is no error.
    pub fn accept(&self) -> io::Result<Option<Accepted>> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(&self.socket, flags) {
                Ok((socket, from)) => {
                    let is_tcp = matches!(self.endpoint, Endpoint::Tcp(_));
                    // Options of a connection that is already reset fail: then there is nothing to hand over.
                    let Ok(stream) = Stream::accepted(socket, is_tcp) else { continue };
                    let from = from.and_then(|address| SocketAddr::try_from(address).ok());
                    return Ok(Some(Accepted { stream, from }));
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) if is_the_peers(error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Where it listens, with the real port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Leaves the socket file where it is when this is dropped: a successor has taken the descriptor over.
    pub fn keep_file(&mut self) {
        self.file = None;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(path) = self.endpoint.path() else { return };
        if self.file.is_some() && file_identity(path) == self.file {
            // Nothing can be done about a failure here; the next listener treats the file as a leftover.
            let _ = fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn bind_tcp(address: SocketAddr, share_port: bool) -> io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if share_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(Listener { socket, endpoint: Endpoint::Tcp(bound), file: None })
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(Listener { socket, endpoint: Endpoint::Unix(path.to_owned()), file: file_identity(path) })
}

/// Without a file there is nothing to clear away: the name is free when its listener is gone.
fn bind_abstract(name: &str) -> io::Result<Listener> {
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(Listener { socket, endpoint: Endpoint::Abstract(name.to_owned()), file: None })
}

fn unix_socket() -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::UNIX)?;
    // Before anybody can connect: what is sent before it is accepted is refused as well. A kernel that cannot has them
    // come all the same.
    let _ = accept_descriptors(&socket, false);
    Ok(socket)
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Removes a socket file whose listener is dead. A live listener, or another kind of file, stays.
fn clear_leftover(endpoint: &Endpoint, path: &Path) -> Result<(), BindError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { endpoint: endpoint.clone() });
    }
    match Stream::connect(endpoint) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        _ => return Err(BindError::InUse { endpoint: endpoint.clone() }),
    }
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(BindError::Kernel { endpoint: endpoint.clone(), source })
        }
        _ => Ok(()),
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Errors of accept(2) that belong to the connection that was taken off the queue: the next may be fine.
fn is_the_peers(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::PERM
    )
}
