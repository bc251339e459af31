//! Doorbells: how a publish wakes a consumer that sleeps in the kernel.
//!
//! The two directions differ, because neither side may be able to make the other block. `O_NONBLOCK` belongs to the
//! open file description, and whoever receives a descriptor can clear it there for both. So:
//!
//! * The application rings the daemon through an **eventfd**. The daemon drains it with `RWF_NOWAIT`, which does not
//!   ask the shared flag.
//! * The daemon rings the application through a **pipe** whose writing description the application never gets. A full
//!   pipe means the application has been rung already.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno, ReadWriteFlags, preadv2, read, write};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

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
    /// A pipe without readers answers a ring with SIGPIPE, which would kill a program that embeds us. We therefore
    /// stay a reader ourselves; the death of the other side is told by the control socket.
    _reader: Option<OwnedFd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Eventfd,
    Pipe,
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
            Kind::Pipe => write(&self.fd, &[1]),
        };
        match rung {
            // Full: it was rung more often than it looked, so it is awake or about to be.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The daemon's side of an application's doorbell, from its two descriptors.
    pub(crate) fn of_daemon(writer: OwnedFd, reader: OwnedFd) -> Ringer {
        Ringer { kind: Kind::Pipe, fd: writer, _reader: Some(reader) }
    }

    /// The application's side of the daemon's doorbell.
    pub(crate) fn of_application(fd: OwnedFd) -> Ringer {
        Ringer { kind: Kind::Eventfd, fd, _reader: None }
    }
}

impl Ringer {
    /// The writing and the reading end of the daemon's pipe, for a successor; `None` of an application's.
    #[must_use]
    pub fn ends(&self) -> Option<[BorrowedFd<'_>; 2]> {
        Some([self.fd.as_fd(), self._reader.as_ref()?.as_fd()])
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
        // Larger than any number of rings in a pipe of one page is not needed: what stays keeps it readable.
        let mut rings = [0u8; 256];
        let taken = match self.kind {
            Kind::Eventfd => {
                let mut count = [0u8; 8];
                preadv2(&self.fd, &mut [io::IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT)
            }
            Kind::Pipe => read(&self.fd, &mut rings),
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
        Doorbell { kind: Kind::Pipe, fd }
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
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // One page instead of sixteen: rings carry nothing, and pipe pages count against a limit per user.
    fcntl_setpipe_size(&writer, 4096)?;
    let theirs = dup_cloexec(&reader)?;
    Ok((Ringer::of_daemon(writer, reader), theirs))
}

/// A copy of a descriptor that is closed on `exec` too.
pub(crate) fn dup_cloexec(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}
