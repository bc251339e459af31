//! A connected stream socket.

use crate::Endpoint;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A non-blocking TCP or Unix stream.
#[derive(Debug)]
pub struct Stream {
    socket: OwnedFd,
    family: Family,
}

/// How a read or write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// So many bytes; at least one.
    Bytes(usize),
    /// Nothing could be read or written now.
    NotReady,
    /// Reading: the peer will send nothing more.
    Ended,
}

/// Who is at the other end of a Unix socket, as the kernel recorded it when it was connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process.
    pub pid: i32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Tcp,
    Unix,
}

/// The kernel asks a silent TCP peer after a minute, six times ten seconds apart: a net below the protocol's own pings.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 6;

impl Stream {
    /// Most pieces one vectored call uses (the kernel allows 1024; beyond some dozens nothing is gained).
    pub const PIECES_MAX: usize = 64;

    /// Begins to connect. When the poller says it is writable, [`Stream::finish_connect`] tells how it went.
    ///
    /// # Errors
    /// What the kernel says at once; for Unix sockets that is everything (nobody listens, full backlog, no such file).
    pub fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = Self::unconnected(endpoint)?;
        let begun = match endpoint {
            Endpoint::Tcp(address) => rustix::net::connect(&stream.socket, address),
            Endpoint::Unix(path) => rustix::net::connect(&stream.socket, &SocketAddrUnix::new(path)?),
            Endpoint::Abstract(name) => {
                let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
                rustix::net::connect(&stream.socket, &address)
            }
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(stream),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells how a connect went: `true` when connected, `false` while it is still under way.
    ///
    /// # Errors
    /// Why it failed.
    pub fn finish_connect(&self) -> io::Result<bool> {
        sockopt::socket_error(&self.socket)??;
        match rustix::net::getpeername(&self.socket) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what is there into one buffer.
    ///
    /// # Errors
    /// What the kernel says, except *would block* and *interrupted*.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Transfer> {
        let wanted = buffer.len();
        of_read(
            retry(|| {
                rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT).map(|(count, _)| count)
            }),
            wanted,
        )
    }

    /// Reads what is there into several buffers, one after the other.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Transfer> {
        let count = buffers.len().min(Self::PIECES_MAX);
        let buffers = &mut buffers[..count];
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        of_read(retry(|| rustix::io::readv(&self.socket, buffers)), wanted)
    }

    /// Writes as much as fits of several pieces, one after the other. Raises no signal.
    ///
    /// # Errors
    /// What the kernel says, except *would block* and *interrupted*.
    pub fn write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<Transfer> {
        let pieces = &pieces[..pieces.len().min(Self::PIECES_MAX)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let send = || rustix::net::sendmsg(&self.socket, pieces, &mut SendAncillaryBuffer::default(), flags);
        Transfer::of_write(retry(send))
    }

    /// Sends no more; what has been written still arrives. The other direction stays open.
    ///
    /// # Errors
    /// What the kernel says, except that the peer is gone already.
    pub fn end(&self) -> io::Result<()> {
        match rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The process at the other end of a Unix socket; `None` for TCP.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn peer_credentials(&self) -> io::Result<Option<PeerCredentials>> {
        if self.family == Family::Tcp {
            return Ok(None);
        }
        let found = sockopt::socket_peercred(&self.socket)?;
        let (pid, uid, gid) = (found.pid.as_raw_nonzero().get(), found.uid.as_raw(), found.gid.as_raw());
        Ok(Some(PeerCredentials { pid, uid, gid }))
    }

    /// The address at the other end of a TCP stream; `None` for Unix sockets, whose clients have none.
    ///
    /// # Errors
    /// What the kernel says: the peer may be gone.
    pub fn peer_address(&self) -> io::Result<Option<SocketAddr>> {
        if self.family == Family::Unix {
            return Ok(None);
        }
        Ok(rustix::net::getpeername(&self.socket)?.and_then(|address| SocketAddr::try_from(address).ok()))
    }

    /// Takes over an accepted socket.
    pub(crate) fn accepted(socket: OwnedFd, is_tcp: bool) -> io::Result<Self> {
        let stream = Self { socket, family: if is_tcp { Family::Tcp } else { Family::Unix } };
        stream.set_up()?;
        Ok(stream)
    }

    fn unconnected(endpoint: &Endpoint) -> io::Result<Self> {
        let (address_family, family) = match endpoint {
            Endpoint::Tcp(address) if address.is_ipv4() => (AddressFamily::INET, Family::Tcp),
            Endpoint::Tcp(_) => (AddressFamily::INET6, Family::Tcp),
            Endpoint::Unix(_) | Endpoint::Abstract(_) => (AddressFamily::UNIX, Family::Unix),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(address_family, SocketType::STREAM, flags, None)?;
        let stream = Self { socket, family };
        stream.set_up()?;
        Ok(stream)
    }

    /// Small frames leave at once (the protocol batches by itself), dead hosts are noticed.
    fn set_up(&self) -> io::Result<()> {
        if self.family == Family::Tcp {
            sockopt::set_tcp_nodelay(&self.socket, true)?;
            sockopt::set_socket_keepalive(&self.socket, true)?;
            sockopt::set_tcp_keepidle(&self.socket, KEEPALIVE_IDLE)?;
            sockopt::set_tcp_keepintvl(&self.socket, KEEPALIVE_INTERVAL)?;
            sockopt::set_tcp_keepcnt(&self.socket, KEEPALIVE_COUNT)?;
        }
        Ok(())
    }
}

impl Transfer {
    /// Reads the outcome of a write made on the stream's descriptor by somebody else.
    ///
    /// # Errors
    /// What the kernel says, except *would block* and *interrupted*.
    pub fn of_write(result: rustix::io::Result<usize>) -> io::Result<Self> {
        match result {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => Ok(Self::NotReady),
            Ok(count) => Ok(Self::Bytes(count)),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn of_read(result: rustix::io::Result<usize>, wanted: usize) -> io::Result<Transfer> {
    match result {
        Ok(0) if wanted > 0 => Ok(Transfer::Ended),
        Ok(0) | Err(Errno::AGAIN) => Ok(Transfer::NotReady),
        Ok(count) => Ok(Transfer::Bytes(count)),
        Err(error) => Err(error.into()),
    }
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
