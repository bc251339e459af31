//! Which of many descriptors are ready.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The owner's name for a registered descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// What to be told of. Failure and hang-up are always told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something can be read (or accepted).
    Read,
    /// Something can be read, or something can be written (or a connect has ended).
    ReadWrite,
    /// Something can be written: reading is paused.
    Write,
    /// Only failure and hang-up: reading is paused.
    Nothing,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Which.
    pub token: Token,
    /// Reading will not say *not ready*: there are bytes, an end, or an error to be had.
    pub readable: bool,
    /// Writing will not say *not ready*, or a connect has ended.
    pub writable: bool,
    /// The connection is gone in both directions, or has failed.
    pub is_gone: bool,
}

/// Waits for descriptors, level-triggered: what is not dealt with is told again.
///
/// Itself a descriptor that is readable when one of its own is ready, so that a waiter may sleep on it beside others.
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// Most descriptors one wait tells of: bounds a turn; the rest come with the next.
    pub const EVENTS_MAX: usize = 256;

    /// A poller with nothing registered.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Registers a descriptor. Closing its last duplicate takes it out, too.
    ///
    /// # Errors
    /// What the kernel says: it is registered already, or cannot be waited for.
    pub fn add(&self, source: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(token.0), flags(interest))?)
    }

    /// Changes what to be told of.
    ///
    /// # Errors
    /// What the kernel says: it is not registered.
    pub fn set_interest(&self, source: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, epoll::EventData::new_u64(token.0), flags(interest))?)
    }

    /// Takes a descriptor out. What an earlier wait told of it may still be in the caller's hands.
    ///
    /// # Errors
    /// What the kernel says: it is not registered.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Waits until something is ready or `timeout_ns` has passed (`None` waits for ever, zero only looks), and appends
    /// what is ready to `out`.
    ///
    /// The kernel counts in milliseconds here (finer timeouts need a system call that some sandboxes forbid); a
    /// fraction is rounded up, so a timer never fires early. An interrupting signal ends the wait with nothing ready.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, timeout_ns: Option<u64>, out: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = timeout_ns.map(timespec);
        // On the stack and uninitialised: free, and a poller may then move to the thread that uses it.
        let mut events = [MaybeUninit::uninit(); Self::EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((filled, _)) => out.extend(filled.iter().map(ready)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Read => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Interest::ReadWrite => epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::OUT,
        Interest::Write => epoll::EventFlags::OUT,
        Interest::Nothing => epoll::EventFlags::empty(),
    }
}

fn ready(event: &epoll::Event) -> Ready {
    let flags = event.flags;
    let is_gone = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
    Ready {
        token: Token(event.data.u64()),
        readable: is_gone || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
        writable: is_gone || flags.contains(epoll::EventFlags::OUT),
        is_gone,
    }
}

fn timespec(ns: u64) -> Timespec {
    const NS_PER_S: u64 = 1_000_000_000;
    Timespec { tv_sec: (ns / NS_PER_S) as i64, tv_nsec: (ns % NS_PER_S) as i64 }
}
