//! Control sockets: SEQPACKET Unix sockets that carry one control message per packet, with descriptors.
//!
//! What a packet means is the business of the control room; this file bounds it. A packet is at most 64 KiB, arrives
//! whole or as an error, and brings no more descriptors than the receiver asked for. All of them come to exist here:
//! the kernel would drop the rest in the thread that receives, and the last close of a descriptor waits for as long as
//! its sender likes (SO_LINGER, a FUSE server). Who does not trust the sender has them closed elsewhere.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, stat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_passcred, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    recvmsg, sendmsg, shutdown, socket_with, socketpair,
};
use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};

/// Bytes of the largest packet. Larger things go through the send heap or a sealed memfd.
pub const PACKET_BYTES_MAX: usize = 64 << 10;

/// Descriptors of the fullest packet: a session's five and room for three more.
pub const PACKET_FDS_MAX: usize = 8;

/// Descriptors the kernel lets go with one packet (SCM_MAX_FD).
const KERNEL_FDS_MAX: usize = 253;

/// How long `connect` waits for a daemon whose queue of connections is full, before `EAGAIN`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a socket path, without the closing zero, that `sockaddr_un` can hold.
const PATH_BYTES_MAX: usize = 107;

/// Why a control socket did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A packet to send is empty or too large.
    #[error("a packet of {bytes} bytes where 1 to {PACKET_BYTES_MAX} can be sent")]
    PacketBytes {
        /// Bytes of the packet.
        bytes: usize,
    },
    /// A packet received was larger than [`PACKET_BYTES_MAX`]; its beginning was discarded.
    #[error("the other side sent a packet of more than {PACKET_BYTES_MAX} bytes")]
    Oversized,
    /// Too many descriptors to send, or the other side sent more than were asked for.
    #[error("more than {limit} descriptors in a packet")]
    Descriptors {
        /// How many were allowed.
        limit: usize,
    },
    /// Descriptors came that this process could not have.
    #[error("descriptors in a packet could not be received: this process has none left (RLIMIT_NOFILE)")]
    NoDescriptors,
    /// The path does not fit a Unix socket address.
    #[error("{} is longer than a socket path of {PATH_BYTES_MAX} bytes", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// Something else than a socket lies at the path; it is left alone.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Another daemon serves this path.
    #[error("another daemon serves {}", path.display())]
    Served {
        /// The path.
        path: PathBuf,
    },
    /// The directory of a default socket can be written by others, who could have put a socket of theirs there.
    #[error("{} belongs to or can be written by others", directory.display())]
    Untrusted {
        /// The directory.
        directory: PathBuf,
    },
    /// Who may write to the socket may connect, and this process may not.
    #[error(
        "permission denied: user {uid} may not connect to {}; daemon.socket_mode in the daemon's configuration, and \
         the permissions of the folder, say who may",
        path.display()
    )]
    Denied {
        /// The socket.
        path: PathBuf,
        /// The user of this process.
        uid: u32,
    },
    /// As many connections as may wait for the daemon to take them.
    #[error(
        "the daemon at {} takes no connections: as many wait as may; it is stopped, or hangs",
        path.display()
    )]
    Busy {
        /// The socket.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{what}: {errno}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer; `EAGAIN` when a non-blocking socket has nothing.
        errno: Errno,
    },
}

impl ControlError {
    /// Whether a non-blocking socket merely has nothing to give or no room now.
    #[must_use]
    pub fn would_block(&self) -> bool {
        matches!(self, ControlError::System { errno: Errno::AGAIN, .. })
    }

    /// Whether the other side has closed. What it sent before that can still be received.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, ControlError::System { errno: Errno::PIPE | Errno::CONNRESET, .. })
    }

    /// Whether a daemon may be there that this process cannot reach.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, ControlError::Denied { .. } | ControlError::Busy { .. })
    }
}

/// Who is at the other end, as the kernel saw it when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id, in our process id namespace; 0 of a process of another that has no number here.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// One end of a control connection.
#[derive(Debug)]
pub struct ControlSocket {
    fd: OwnedFd,
}

impl ControlSocket {
    /// Connects to the daemon at `path`. The socket is blocking.
    ///
    /// # Errors
    /// [`ControlError::Path`]; [`ControlError::NotASocket`]; [`ControlError::System`] with `ENOENT` or
    /// `ECONNREFUSED` when no daemon serves it.
    pub fn connect(path: impl AsRef<Path>) -> Result<ControlSocket, ControlError> {
        let address = address(path.as_ref())?;
        let fd = seqpacket()?;
        // A connection to a Unix socket waits for nothing but room in that queue, and that as long as a send may.
        set_socket_timeout(&fd, Timeout::Send, Some(CONNECT_TIMEOUT)).map_err(system("SO_SNDTIMEO"))?;
        connect(&fd, &address).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => {
                ControlError::Denied { path: path.as_ref().to_owned(), uid: getuid().as_raw() }
            }
            Errno::AGAIN => ControlError::Busy { path: path.as_ref().to_owned() },
            Errno::CONNREFUSED if is_no_socket(path.as_ref()) => {
                ControlError::NotASocket { path: path.as_ref().to_owned() }
            }
            errno => ControlError::System { what: "connect", errno },
        })?;
        set_socket_timeout(&fd, Timeout::Send, None).map_err(system("SO_SNDTIMEO"))?;
        Ok(ControlSocket { fd })
    }

    /// Two connected sockets in one process.
    ///
    /// # Errors
    /// [`ControlError::System`].
    pub fn pair() -> Result<(ControlSocket, ControlSocket), ControlError> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(system("socketpair"))?;
        Ok((ControlSocket { fd: one }, ControlSocket { fd: other }))
    }

    /// Sends one packet.
    ///
    /// # Errors
    /// [`ControlError::PacketBytes`], [`ControlError::Descriptors`]; [`ControlError::System`] with `EAGAIN` when the
    /// socket is non-blocking and the other side does not read, `EPIPE` when it is gone (no signal is raised).
    pub fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        if packet.is_empty() || packet.len() > PACKET_BYTES_MAX {
            return Err(ControlError::PacketBytes { bytes: packet.len() });
        }
        if fds.len() > PACKET_FDS_MAX {
            return Err(ControlError::Descriptors { limit: PACKET_FDS_MAX });
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let sent = loop {
            match sendmsg(&self.fd, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        sent.map(drop).map_err(system("sendmsg"))
    }

    /// Whether a packet waits to be received.
    pub fn has_packet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.fd, &mut [0; 1][..], flags).is_ok_and(|(_, bytes)| bytes > 0)
    }

    /// Receives one packet into `packet` (its former contents are replaced) with at most `fds_max` descriptors.
    ///
    /// `None` when the other side has closed. Descriptors beyond those are closed here, which may wait: only for
    /// senders that are trusted ([`ControlSocket::recv_apart`]).
    ///
    /// # Errors
    /// [`ControlError::Oversized`], [`ControlError::Descriptors`], [`ControlError::NoDescriptors`]: the connection
    /// should be closed.
    /// [`ControlError::System`] with `EAGAIN` when the socket is non-blocking and nothing waits.
    pub fn recv(&self, packet: &mut Vec<u8>, fds_max: usize) -> Result<Option<Vec<OwnedFd>>, ControlError> {
        self.recv_apart(packet, fds_max, &mut Vec::new())
    }

    /// [`ControlSocket::recv`], but descriptors that come with an error go to `unwanted`: the caller says who closes
    /// them. Only where this process can have no more descriptors does the kernel close some here.
    ///
    /// # Errors
    /// As [`ControlSocket::recv`].
    pub fn recv_apart(
        &self,
        packet: &mut Vec<u8>,
        fds_max: usize,
        unwanted: &mut Vec<OwnedFd>,
    ) -> Result<Option<Vec<OwnedFd>>, ControlError> {
        let limit = fds_max.min(PACKET_FDS_MAX);
        packet.resize(PACKET_BYTES_MAX, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(KERNEL_FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let into = &mut [IoSliceMut::new(packet)];
            match recvmsg(&self.fd, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                // The other side closed with packets of ours unread. That is said once and ahead of the packets it had
                // sent, its reason for closing among them; they are still there, and after them the end.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(errno) => {
                    packet.clear();
                    return Err(ControlError::System { what: "recvmsg", errno });
                }
                Ok(received) => break received,
            }
        };
        packet.truncate(received.bytes);
        let fds = descriptors(&mut control);
        let fault = if received.flags.contains(ReturnFlags::TRUNC) {
            Some(ControlError::Oversized)
        } else if fds.len() > limit {
            Some(ControlError::Descriptors { limit })
        } else if received.flags.contains(ReturnFlags::CTRUNC) {
            // There is room for all that a packet can have.
            Some(ControlError::NoDescriptors)
        } else {
            None
        };
        match fault {
            Some(fault) => {
                packet.clear();
                unwanted.extend(fds);
                Err(fault)
            }
            None if received.bytes > 0 => Ok(Some(fds)),
            None => {
                unwanted.extend(fds);
                Ok(None)
            }
        }
    }

    /// Closes the connection of a side that is not trusted. If what it sent and nobody has read has descriptors, the
    /// close would be theirs too, and may wait: then nothing is closed, and the socket is for somebody who may wait.
    ///
    /// For connections that no other process goes on with: the other side can send nothing from here on.
    #[must_use = "dropping it may wait"]
    pub fn close(self) -> Option<OwnedFd> {
        // Each packet then comes with its sender's credentials, which tells one without a byte from the end.
        let has_credentials = set_socket_passcred(&self.fd, true).is_ok();
        if !has_credentials || shutdown(&self.fd, Shutdown::Read).is_err() {
            return Some(self.fd);
        }
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            match recvmsg(&self.fd, &mut [IoSliceMut::new(&mut [0; 1])], &mut control, flags) {
                Err(Errno::INTR | Errno::CONNRESET) => {}
                // What there is no room for are descriptors, which a look does not take out.
                Ok(looked) if looked.flags.contains(ReturnFlags::CTRUNC) => return Some(self.fd),
                Ok(looked) if looked.bytes > 0 || control.drain().next().is_some() => {
                    let _ = recv(&self.fd, &mut [0; 1][..], RecvFlags::DONTWAIT);
                }
                Ok(_) | Err(Errno::AGAIN) => return None,
                Err(_) => return Some(self.fd),
            }
        }
    }

    /// Who connected, or who listened when the connection was made.
    ///
    /// # Errors
    /// [`ControlError::System`].
    pub fn peer_credentials(&self) -> Result<PeerCredentials, ControlError> {
        let peer = getsockopt(&self.fd, sockopt::PeerCredentials).map_err(refused("SO_PEERCRED"))?;
        Ok(PeerCredentials { pid: u32::try_from(peer.pid()).unwrap_or(0), uid: peer.uid(), gid: peer.gid() })
    }

    /// A descriptor that becomes readable when the process at the other end dies, even while processes it forked keep
    /// its sockets open. `None` when it is already gone.
    ///
    /// # Errors
    /// [`ControlError::System`], also where the process has no number in our process id namespace and the kernel is
    /// older than 6.5.
    pub fn peer_process(&self) -> Result<Option<OwnedFd>, ControlError> {
        match getsockopt(&self.fd, sockopt::PeerPidfd) {
            Ok(fd) => return Ok(Some(fd)),
            // Linux before 6.16 says EINVAL of one that is gone.
            Err(nix::errno::Errno::ESRCH | nix::errno::Errno::EINVAL) => return Ok(None),
            // An older kernel: by its number, which may be another's by now if it is gone.
            Err(nix::errno::Errno::ENOPROTOOPT) => {}
            Err(errno) => return Err(refused("SO_PEERPIDFD")(errno)),
        }
        let pid = i32::try_from(self.peer_credentials()?.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Err(system("pidfd_open")(Errno::SRCH)) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::SRCH) => Ok(None),
            Err(errno) => Err(system("pidfd_open")(errno)),
        }
    }

    /// Makes `send` and `recv` answer `EAGAIN` instead of waiting, or wait again.
    ///
    /// # Errors
    /// [`ControlError::System`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<(), ControlError> {
        rustix::io::ioctl_fionbio(&self.fd, nonblocking).map_err(system("FIONBIO"))
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<ControlSocket> for OwnedFd {
    fn from(socket: ControlSocket) -> OwnedFd {
        socket.fd
    }
}

impl From<OwnedFd> for ControlSocket {
    /// Takes over a connected SEQPACKET socket, for example one inherited from an older daemon.
    fn from(fd: OwnedFd) -> ControlSocket {
        ControlSocket { fd }
    }
}

/// A new SEQPACKET socket.
pub(crate) fn seqpacket() -> Result<OwnedFd, ControlError> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(system("socket"))
}

/// The address of `path`.
pub(crate) fn address(path: &Path) -> Result<SocketAddrUnix, ControlError> {
    let too_long = || ControlError::Path { path: path.to_path_buf() };
    if path.as_os_str().as_bytes().len() > PATH_BYTES_MAX {
        return Err(too_long());
    }
    SocketAddrUnix::new(path).map_err(|_| too_long())
}

/// Whether something else lies there, which the kernel refuses as it refuses the socket of a daemon that has died.
fn is_no_socket(path: &Path) -> bool {
    stat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) != FileType::Socket)
}

fn descriptors(control: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    fds
}

pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> ControlError {
    move |errno| ControlError::System { what, errno }
}

fn refused(what: &'static str) -> impl Fn(nix::errno::Errno) -> ControlError {
    move |errno| system(what)(Errno::from_raw_os_error(errno as i32))
}
