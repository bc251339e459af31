//! Doorbells: how a publish wakes a consumer that sleeps in the kernel.
//!
//! The two directions differ, because neither side may be able to make the other block. `O_NONBLOCK` belongs to the
//! open file description, and whoever receives a descriptor can clear it there for both. So:
//!
//! * The application rings the daemon through an **eventfd**. The daemon drains it with `RWF_NOWAIT`, which does not
//!   ask the shared flag.
//! * The daemon rings the application through one end of a **Unix stream socket**, and the application has the other. A
//!   full socket means the application has been rung already. The daemon's end receives nothing. A pipe would not do:
//!   whoever reads from it holds its lock for as long as the bytes take to where they go (`splice` to a full socket),
//!   and `O_NONBLOCK` says nothing of a writer who waits for a lock.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, fstat};
use rustix::io::{self, Errno, ReadWriteFlags, preadv2, read, write};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair};

use crate::ring::Producer;

/// The waiting side. Readable (level) when rung since the last [`Doorbell::quiet`]; put it into `poll` or `epoll`.
#[derive(Debug)]
pub struct Doorbell {
    kind: Kind,
    fd: OwnedFd,
}

/// The ringing side.
#[derive(Debug)]
pub struct Ringer {
    kind: Kind,
    fd: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Eventfd,
    Socket,
}

impl Ringer {
    /// Shows all staged entries of `ring` to its consumer and wakes it if it sleeps. The usual way to publish: whoever
    /// calls [`Producer::publish`] alone and forgets the bell leaves the consumer asleep beside its entries.
    ///
    /// # Errors
    /// As [`Ringer::ring`].
    #[inline]
    pub fn publish(&self, ring: &mut Producer) -> io::Result<()> {
        if ring.publish() { self.ring() } else { Ok(()) }
    }

    /// Wakes the waiting side. Never blocks; ringing twice before it looks is as good as once.
    ///
    /// # Errors
    /// What the kernel says if the descriptor is none of ours any more.
    pub fn ring(&self) -> io::Result<()> {
        let rung = match self.kind {
            Kind::Eventfd => write(&self.fd, &1u64.to_ne_bytes()),
            Kind::Socket => send(&self.fd, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        };
        match rung {
            // Full: it was rung more often than it looked, so it is awake or about to be. Closed: nobody is there, as
            // the control socket tells.
            Ok(_) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The daemon's side of an application's doorbell. `None` if it is no socket: a daemon of an earlier version had
    /// pipes, and one who rings those can be made to wait.
    pub(crate) fn of_daemon(fd: OwnedFd) -> Option<Ringer> {
        let is_socket =
            fstat(&fd).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket);
        is_socket.then_some(Ringer { kind: Kind::Socket, fd })
    }

    /// The application's side of the daemon's doorbell.
    pub(crate) fn of_application(fd: OwnedFd) -> Ringer {
        Ringer { kind: Kind::Eventfd, fd }
    }
}

impl AsFd for Ringer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Doorbell {
    /// Takes back all rings so far; the next one makes it readable again. `true` if there was any. Never blocks.
    ///
    /// # Errors
    /// What the kernel says if the descriptor is none of ours any more.
    pub fn quiet(&self) -> io::Result<bool> {
        // What stays keeps it readable. The daemon may be of an earlier version, and this a pipe of one page.
        let mut rings = [0u8; 256];
        let taken = match self.kind {
            Kind::Eventfd => {
                let mut count = [0u8; 8];
                preadv2(&self.fd, &mut [io::IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT)
            }
            Kind::Socket => read(&self.fd, &mut rings),
        };
        match taken {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The daemon's own doorbell.
    pub(crate) fn of_daemon(fd: OwnedFd) -> Doorbell {
        Doorbell { kind: Kind::Eventfd, fd }
    }

    /// The application's own doorbell.
    pub(crate) fn of_application(fd: OwnedFd) -> Doorbell {
        Doorbell { kind: Kind::Socket, fd }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The daemon's own doorbell and the descriptor through which the application rings it.
pub(crate) fn daemon_doorbell() -> io::Result<(Doorbell, OwnedFd)> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let theirs = dup_cloexec(&fd)?;
    Ok((Doorbell::of_daemon(fd), theirs))
}

/// The daemon's side of an application's doorbell, and the application's.
pub(crate) fn application_doorbell() -> io::Result<(Ringer, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // As small as the kernel has them: rings carry nothing.
    set_socket_send_buffer_size(&ours, 1)?;
    // Before the other end is given away: nothing can be sent to this one, no descriptors either, whose last close
    // would be ours.
    shutdown(&ours, Shutdown::Read)?;
    Ok((Ringer { kind: Kind::Socket, fd: ours }, theirs))
}

/// A copy of a descriptor that is closed on `exec` too.
pub(crate) fn dup_cloexec(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}
