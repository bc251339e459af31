//! Listens, and has each connection answered.

use crate::hosts::HostNames;
use crate::places::{ReaderLimit, ReaderPermit};
use crate::request::{HEAD_BYTES_MAX, Request, Unread};
use crate::response::{Page, response};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time of a whole exchange: a request of a few hundred bytes, a page of a few hundred kilobytes.
pub const TIME_MAX: Duration = Duration::from_secs(5);
/// A pause after a connection that could not be taken (no descriptors left): it is still there.
const PAUSE: Duration = Duration::from_millis(200);
/// Connections the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;

/// Serves pages at an address until it is dropped.
#[derive(Debug)]
pub struct PageServer {
    address: SocketAddr,
    /// Closed with this: the listening thread sees it.
    _open: OwnedFd,
}

/// An address that is bound, at which nobody is heard yet.
#[derive(Debug)]
pub struct ReservedAddress(OwnedFd);

/// Makes the page that is asked for; `None` if there is none.
type PageMaker = dyn Fn(&Request) -> Option<Page> + Send + Sync;

/// What is answered: under which names, and with what.
struct Pages {
    hosts: HostNames,
    make: Box<PageMaker>,
}

impl PageServer {
    /// Listens at `address` and has `make` answer under `hosts`, on threads of its own (called `name`).
    ///
    /// # Errors
    /// What the kernel says: the address is taken, or not this host's.
    pub fn bind(
        address: SocketAddr,
        name: &'static str,
        hosts: HostNames,
        make: impl Fn(&Request) -> Option<Page> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        ReservedAddress::bind(address, false)?.serve(name, hosts, make)
    }

    fn serve(listener: TcpListener, name: &'static str, pages: Pages) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (closed, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let pages = Arc::new(pages);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || accept(&listener, &closed, name, &pages))?;
        Ok(Self { address, _open: open })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Pages {
    /// The page that is asked for, or what there is instead.
    fn answer(&self, request: &Request) -> (&'static str, Page) {
        if let Some(why) = request.authorities.iter().find_map(|whom| self.hosts.refusal(whom)) {
            return ("421 Misdirected Request", Page::text(why));
        }
        match (self.make)(request) {
            Some(page) => ("200 OK", page),
            None => ("404 Not Found", Page::text("there is no such page")),
        }
    }
}

impl ReservedAddress {
    /// Binds `address`. With `succeeds`, a server of another process of this user may still listen there: that of the
    /// daemon whose place this one takes. From [`ReservedAddress::serve`] until it leaves, the kernel gives connections
    /// to either.
    ///
    /// Whether an address may be had that is in use is settled here; that a successor may have it is said behind that,
    /// so that nobody else is let in by it.
    ///
    /// # Errors
    /// As those of [`PageServer::bind`].
    pub fn bind(address: SocketAddr, succeeds: bool) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        set_socket_reuseaddr(&socket, true)?;
        set_socket_reuseport(&socket, succeeds)?;
        rustix::net::bind(&socket, &address)?;
        set_socket_reuseport(&socket, true)?;
        Ok(Self(socket))
    }

    /// Listens there and has `make` answer under `hosts`, on threads of its own (called `name`).
    ///
    /// # Errors
    /// What the kernel says: somebody else has been quicker.
    pub fn serve(
        self,
        name: &'static str,
        hosts: HostNames,
        make: impl Fn(&Request) -> Option<Page> + Send + Sync + 'static,
    ) -> io::Result<PageServer> {
        rustix::net::listen(&self.0, BACKLOG)?;
        PageServer::serve(TcpListener::from(self.0), name, Pages { hosts, make: Box::new(make) })
    }
}

/// Takes connections until the server is dropped.
fn accept(listener: &TcpListener, closed: &OwnedFd, name: &'static str, pages: &Arc<Pages>) {
    let places = ReaderLimit::default();
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(closed, PollFlags::IN)];
        if poll(&mut ready, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, from)) => {
                let stream = Arc::new(stream);
                let place = places.admit(from.ip(), &stream);
                begin(stream, name, pages, place);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::debug!(%error, "a reader of pages could not be accepted");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Has a connection answered on a thread of its own, which holds `place` for as long.
fn begin(stream: Arc<TcpStream>, name: &'static str, pages: &Arc<Pages>, place: Option<ReaderPermit>) {
    let Some(place) = place else {
        let refused = Page::text("too many readers at once; ask again");
        let _ = stream.set_nonblocking(true);
        let _ = (&*stream).write(&response("503 Service Unavailable", &refused, false));
        return;
    };
    let pages = Arc::clone(pages);
    let answered = std::thread::Builder::new().name(name.into()).spawn(move || {
        if let Err(error) = answer(stream, &place, &pages, Instant::now() + TIME_MAX) {
            tracing::debug!(%error, "a reader of pages went away");
        }
        drop(place);
    });
    if let Err(error) = answered {
        tracing::debug!(%error, "no thread for a reader of pages");
    }
}

/// Reads a request, and answers it.
fn answer(stream: Arc<TcpStream>, place: &ReaderPermit, pages: &Pages, until: Instant) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut timed = Timed { stream, until };
    let mut bytes = Vec::new();
    let (status, page, head_only) = loop {
        match Request::read(&bytes) {
            Ok(request) => {
                place.has_asked();
                let (status, page) = pages.answer(&request);
                break (status, page, request.head_only);
            }
            Err(Unread::More) => timed.read_more(&mut bytes)?,
            Err(Unread::Malformed) => {
                break ("400 Bad Request", Page::text("this is no request of HTTP/1"), false);
            }
            Err(Unread::TooLong) => {
                break ("431 Request Header Fields Too Large", Page::text("the request is too long"), false);
            }
            Err(Unread::Method) => {
                break ("405 Method Not Allowed", Page::text("pages are only read here"), false);
            }
        }
    };
    timed.write_all(&response(status, &page, head_only))?;
    place.is_answered();
    // What has not been read would turn the close into a reset, and the page would be lost.
    timed.stream.shutdown(std::net::Shutdown::Write)?;
    while bytes.len() < 2 * HEAD_BYTES_MAX && timed.read_more(&mut bytes).is_ok() {}
    Ok(())
}

/// A connection until a point in time.
struct Timed {
    stream: Arc<TcpStream>,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    /// Adds what comes next.
    fn read_more(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        let mut piece = [0; 1024];
        match (&*self.stream).read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                bytes.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match (&*self.stream).write(bytes)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }
}
