//! A connected stream socket.

use crate::Endpoint;
use crate::budget::{Place, Source};
use crate::descriptors::accept_descriptors;
use crate::kernel_stamps::{self, WallNs, on_monotonic_clock};
use crate::tls::{Alpn, Identity, Portable, Session, Socket as _, TlsClient, TlsServer, is_spiffe_id};
use crate::transfer::Transfer;
use nix::sys::socket::getsockopt;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};
use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use trunkline_telemetry::{TaxGuard, TaxStage, tax_stage};

/// A non-blocking TCP or Unix stream, with TLS or without.
#[derive(Debug)]
pub struct Stream {
    plain: Plain,
    tls: Option<Box<Session>>,
    /// Of an accepted one, where places are counted.
    place: Option<Place>,
}

/// The socket itself.
#[derive(Debug)]
struct Plain {
    socket: OwnedFd,
    family: Family,
    /// When the last bytes read were in the kernel, if it says so.
    arrived: Cell<Option<WallNs>>,
}

/// Who is at the other end of a Unix socket, as the kernel recorded it when it was connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process; 0 of one of another process id namespace that has no number here.
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
            Endpoint::Abstract(name) => {
                let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
                rustix::net::connect(&stream.plain.socket, &address)
            }
            Endpoint::Tcp(address) | Endpoint::Tls(address, _) => {
                rustix::net::connect(&stream.plain.socket, address)
            }
            Endpoint::Unix(path) => rustix::net::connect(&stream.plain.socket, &SocketAddrUnix::new(path)?),
            Endpoint::R2p2(_) => return Err(io::ErrorKind::Unsupported.into()),
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
        sockopt::socket_error(&self.plain.socket)??;
        match rustix::net::getpeername(&self.plain.socket) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Speaks TLS from now on, as a server. `first` is what was already read. [`Stream::handshake`] goes on.
    ///
    /// # Errors
    /// If the library refuses its own configuration.
    pub fn begin_tls_server(&mut self, tls: &TlsServer, first: &[u8]) -> io::Result<()> {
        self.tls = Some(Box::new(Session::server(tls, first)?));
        Ok(())
    }

    /// Speaks TLS from now on, as a client, once connected. `name` is what the server's certificate must say: a DNS
    /// name, an IP address, or a SPIFFE id; `offer` what may be spoken inside. [`Stream::handshake`] goes on.
    ///
    /// # Errors
    /// If `name` is none of these.
    pub fn begin_tls_client(&mut self, tls: &TlsClient, name: &str, offer: &[Alpn]) -> io::Result<()> {
        let session = match is_spiffe_id(name) {
            true => Session::client_of_spiffe_id(tls, name, offer)?,
            false => Session::client(tls, name.to_owned().try_into().map_err(io::Error::other)?, offer)?,
        };
        self.tls = Some(Box::new(session));
        Ok(())
    }

    /// Goes on with a TLS handshake as far as the socket lets it. `true` when it is done, or there is none.
    ///
    /// # Errors
    /// Why it failed: a certificate that does not verify, an alert of the peer, its end.
    pub fn handshake(&mut self) -> io::Result<bool> {
        self.tls.as_mut().map_or(Ok(true), |tls| {
            let _encryption = tax_stage(TaxStage::Encryption);
            tls.handshake(&self.plain)
        })
    }

    /// Reads what is there into one buffer.
    ///
    /// # Errors
    /// What the kernel says, except *would block* and *interrupted*; with TLS, what is wrong with the peer's records.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Transfer> {
        match &mut self.tls {
            None => self.plain.read(buffer),
            Some(tls) => {
                let _encryption = tax_stage(TaxStage::Encryption);
                tls.read(&self.plain, buffer)
            }
        }
    }

    /// Reads what is there into several buffers, one after the other.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Transfer> {
        match &mut self.tls {
            None => self.plain.read_vectored(buffers),
            Some(tls) => match buffers.iter_mut().find(|buffer| !buffer.is_empty()) {
                Some(first) => {
                    let _encryption = tax_stage(TaxStage::Encryption);
                    tls.read(&self.plain, first)
                }
                None => Ok(Transfer::NotReady),
            },
        }
    }

    /// Writes as much as fits of several pieces, one after the other. Raises no signal.
    ///
    /// With TLS, what is taken may wait here for room in the socket ([`Stream::wants_write`], [`Stream::flush`]).
    ///
    /// # Errors
    /// What the kernel says, except *would block* and *interrupted*.
    pub fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Transfer> {
        match &mut self.tls {
            None => self.plain.write(pieces),
            Some(tls) => {
                let _encryption = tax_stage(TaxStage::Encryption);
                tls.write(&self.plain, pieces)
            }
        }
    }

    /// Writes what waits here. `true` if nothing does any more.
    ///
    /// # Errors
    /// As [`Stream::write_vectored`].
    pub fn flush(&mut self) -> io::Result<bool> {
        self.tls.as_mut().map_or(Ok(true), |tls| {
            let _encryption = tax_stage(TaxStage::Encryption);
            tls.flush(&self.plain)
        })
    }

    /// When the last of what was read last was in the kernel, on the monotonic clock, on which it is `now_ns`. `None`
    /// for Unix sockets, and where the kernel does not say so.
    pub fn arrived_ns(&self, now_ns: u64) -> Option<u64> {
        on_monotonic_clock(self.plain.arrived.get()?, now_ns)
    }

    /// Has the kernel say when the last byte of the next write leaves this host, and of no other: to be called before
    /// and after it. Only without TLS. [`Stream::sent_ns`] tells, when the poller says that the stream *is gone*
    /// although it is not.
    ///
    /// # Errors
    /// What the kernel says: it cannot (before Linux 6.2).
    pub fn ask_sent(&self, asks: bool) -> io::Result<()> {
        kernel_stamps::ask_sent(&self.plain.socket, asks)
    }

    /// How many bytes of the write that was asked about came before the one that has left, and when that was. Takes
    /// whatever the kernel reports.
    pub fn sent_ns(&self, now_ns: u64) -> Option<(u32, u64)> {
        if self.plain.family != Family::Tcp {
            return None;
        }
        let (before, stamp) = kernel_stamps::receive_sent(&self.plain.socket)?;
        Some((before, on_monotonic_clock(stamp, now_ns)?))
    }

    /// Whether bytes wait in the socket that nobody has read.
    pub fn has_unread(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.plain.socket, &mut [0; 1][..], flags).is_ok_and(|(_, bytes)| bytes > 0)
    }

    /// Whether bytes, or the peer's end, were taken from the socket and wait to be read here: the poller will not tell
    /// of them. Whoever stops reading before [`Transfer::NotReady`] asks, and comes back by itself.
    pub fn has_buffered(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_buffered())
    }

    /// Whether bytes that were taken for writing wait for room in the socket.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Whether it speaks TLS: bytes must then pass through here, and not straight into the socket.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// What TLS negotiated to be spoken inside, after the handshake.
    pub fn alpn(&self) -> Option<Alpn> {
        self.tls.as_ref()?.alpn()
    }

    /// Who the peer is by its certificate, after the handshake. `None` without TLS or certificate.
    pub fn identity(&self) -> Option<Identity> {
        self.tls.as_ref()?.identity()
    }

    /// Sends no more; what has been written still arrives. The other direction stays open.
    ///
    /// # Errors
    /// What the kernel says, except that the peer is gone already.
    pub fn end(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.end(&self.plain)?;
        }
        match rustix::net::shutdown(&self.plain.socket, rustix::net::Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The process at the other end of a Unix socket; `None` for TCP.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn peer_credentials(&self) -> io::Result<Option<PeerCredentials>> {
        if self.plain.family == Family::Tcp {
            return Ok(None);
        }
        let found = getsockopt(&self.plain.socket, nix::sys::socket::sockopt::PeerCredentials)?;
        Ok(Some(PeerCredentials { pid: found.pid(), uid: found.uid(), gid: found.gid() }))
    }

    /// The address at the other end of a TCP stream; `None` for Unix sockets, whose clients have none.
    ///
    /// # Errors
    /// What the kernel says: the peer may be gone.
    pub fn peer_address(&self) -> io::Result<Option<SocketAddr>> {
        if self.plain.family == Family::Unix {
            return Ok(None);
        }
        Ok(rustix::net::getpeername(&self.plain.socket)?
            .and_then(|address| SocketAddr::try_from(address).ok()))
    }

    /// Where it comes from, as far as one party is behind it.
    ///
    /// # Errors
    /// What the kernel says: the peer may be gone.
    pub fn source(&self) -> io::Result<Source> {
        match (self.peer_address()?, self.peer_credentials()?) {
            (Some(address), _) => Ok(Source::of_address(address.ip())),
            (None, Some(process)) => Ok(Source::User(process.uid)),
            (None, None) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Takes over a connected socket from another process.
    ///
    /// # Errors
    /// What the kernel says when it is set up: the peer may be gone.
    pub fn inherit(socket: OwnedFd, is_tcp: bool) -> io::Result<Self> {
        Self::accepted(socket, is_tcp)
    }

    /// Takes over a connected socket and the TLS session on it from another process.
    ///
    /// # Errors
    /// As [`Stream::inherit`].
    pub fn inherit_secure(socket: OwnedFd, is_tcp: bool, session: Portable) -> io::Result<Self> {
        let stream = Self::accepted(socket, is_tcp)?;
        Ok(Self { tls: Some(Box::new(Session::inherited(session))), ..stream })
    }

    /// Makes it one that another process can go on with, TLS included; it goes on here all the same. `false` if that
    /// cannot be: only sessions of TLS 1.3 can move.
    pub fn make_portable(&mut self) -> bool {
        self.tls.as_mut().is_none_or(|tls| tls.make_portable())
    }

    /// What goes with the socket to another process, after [`Stream::make_portable`]. `None` if nothing does.
    pub fn portable(&self) -> Option<Portable> {
        self.tls.as_ref()?.portable()
    }

    /// Holds a place in a budget of connections until it is dropped.
    pub fn hold(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Whether it is a TCP stream.
    pub fn is_tcp(&self) -> bool {
        self.plain.family == Family::Tcp
    }

    /// Takes over an accepted socket.
    pub(crate) fn accepted(socket: OwnedFd, is_tcp: bool) -> io::Result<Self> {
        Self::set_up(Plain::new(socket, if is_tcp { Family::Tcp } else { Family::Unix }))
    }

    fn unconnected(endpoint: &Endpoint) -> io::Result<Self> {
        let (address_family, family) = match endpoint {
            Endpoint::Tcp(address) | Endpoint::Tls(address, _) if address.is_ipv4() => {
                (AddressFamily::INET, Family::Tcp)
            }
            Endpoint::Tcp(_) | Endpoint::Tls(..) => (AddressFamily::INET6, Family::Tcp),
            Endpoint::Unix(_) | Endpoint::Abstract(_) => (AddressFamily::UNIX, Family::Unix),
            // Datagrams are no stream; those who dial know (`Endpoint::R2p2` is never dialled).
            Endpoint::R2p2(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(address_family, SocketType::STREAM, flags, None)?;
        Self::set_up(Plain::new(socket, family))
    }

    /// Small frames leave at once (the protocol batches by itself), dead hosts are noticed, descriptors refused.
    fn set_up(plain: Plain) -> io::Result<Self> {
        if plain.family == Family::Tcp {
            sockopt::set_tcp_nodelay(&plain.socket, true)?;
            sockopt::set_socket_keepalive(&plain.socket, true)?;
            sockopt::set_tcp_keepidle(&plain.socket, KEEPALIVE_IDLE)?;
            sockopt::set_tcp_keepintvl(&plain.socket, KEEPALIVE_INTERVAL)?;
            sockopt::set_tcp_keepcnt(&plain.socket, KEEPALIVE_COUNT)?;
            kernel_stamps::ask_received(&plain.socket);
        } else {
            // A kernel that cannot has them come all the same.
            let _ = accept_descriptors(&plain.socket, false);
        }
        Ok(Self { plain, tls: None, place: None })
    }
}

impl crate::tls::Socket for Plain {
    fn read(&self, buffer: &mut [u8]) -> io::Result<Transfer> {
        let _networking = networking();
        if self.family == Family::Tcp {
            let (moved, arrived) = kernel_stamps::receive(&self.socket, buffer)?;
            self.arrived.set(arrived);
            return Ok(moved);
        }
        let wanted = buffer.len();
        let receive =
            || rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT).map(|(count, _)| count);
        Transfer::of_read(retry(receive), wanted)
    }

    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<Transfer> {
        let _networking = networking();
        let pieces = &pieces[..pieces.len().min(Stream::PIECES_MAX)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let send = || rustix::net::sendmsg(&self.socket, pieces, &mut SendAncillaryBuffer::default(), flags);
        Transfer::of_write(retry(send))
    }
}

impl Plain {
    fn new(socket: OwnedFd, family: Family) -> Self {
        Self { socket, family, arrived: Cell::new(None) }
    }

    fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Transfer> {
        let count = buffers.len().min(Stream::PIECES_MAX);
        let buffers = &mut buffers[..count];
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.arrived.set(None);
        let _networking = networking();
        Transfer::of_read(retry(|| rustix::io::readv(&self.socket, buffers)), wanted)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.plain.socket.as_fd()
    }
}

/// What is done until this is dropped is done in system calls of sockets.
fn networking() -> TaxGuard {
    tax_stage(TaxStage::Networking)
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
