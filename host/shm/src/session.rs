//! Sessions: what one attach consists of, created by the daemon and opened by the application.

use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::alleged::AllegedHeap;
use crate::config::{SESSION_FDS, SessionConfig, SessionError, system};
use crate::doorbell::{Doorbell, Ringer, application_doorbell, daemon_doorbell, dup_cloexec};
use crate::heap::Heap;
use crate::layout::{LAYOUT_VERSION, RINGS_MAGIC, RingsHeader};
use crate::received::ReceivedHeap;
use crate::region::{Access, Region, SIZE_SEALS};
use crate::regions::{create_receive_heap, create_region, open_receive_heap, open_region, rings_of};
use crate::ring::{Consumer, Producer};
use crate::sync::Ordering;

/// The daemon's end of a session. `Send`; belongs to one shard.
#[derive(Debug)]
pub struct DaemonEnd {
    /// Entries from the application.
    pub submissions: Consumer,
    /// Entries to the application.
    pub completions: Producer,
    /// What the application claims to have written.
    pub send_heap: AllegedHeap,
    /// Where we write messages for the application.
    pub receive_heap: Heap,
    /// Wakes the application.
    pub peer_doorbell: Ringer,
    /// Wakes us; for the shard's `epoll`.
    pub own_doorbell: Doorbell,
    /// What a successor maps again.
    pub regions: SessionRegions,
}

/// The regions of a session that outlive a daemon, as descriptors, and their sizes.
#[derive(Debug)]
pub struct SessionRegions {
    /// Both rings.
    pub rings: OwnedFd,
    /// The heap the application writes.
    pub send_heap: OwnedFd,
    /// Sizes agreed in the attach.
    pub config: SessionConfig,
}

/// The application's end of a session. `Send`; its two rings are used by one thread at a time, its heaps by any.
#[derive(Debug)]
pub struct AppEnd {
    /// Entries to the daemon.
    pub submissions: Producer,
    /// Entries from the daemon.
    pub completions: Consumer,
    /// Where we write messages.
    pub send_heap: Heap,
    /// Where the daemon writes messages for us.
    pub receive_heap: ReceivedHeap,
    /// Wakes the daemon's shard.
    pub peer_doorbell: Ringer,
    /// Wakes us.
    pub own_doorbell: Doorbell,
}

/// The five descriptors of a session, in the order in which they travel.
#[derive(Debug)]
pub struct SessionFds {
    rings: OwnedFd,
    send_heap: OwnedFd,
    receive_heap: OwnedFd,
    /// Eventfd, application to daemon.
    daemon_doorbell: OwnedFd,
    /// One end of a Unix stream socket, daemon to application.
    app_doorbell: OwnedFd,
}

impl SessionFds {
    /// The descriptors to send, in order.
    #[must_use]
    pub fn as_fds(&self) -> [BorrowedFd<'_>; SESSION_FDS] {
        [&self.rings, &self.send_heap, &self.receive_heap, &self.daemon_doorbell, &self.app_doorbell]
            .map(AsFd::as_fd)
    }

    /// The descriptors received, in order.
    ///
    /// # Errors
    /// [`SessionError::DescriptorCount`]; all are closed then.
    pub fn from_fds(fds: Vec<OwnedFd>) -> Result<SessionFds, SessionError> {
        let fds = <[OwnedFd; SESSION_FDS]>::try_from(fds);
        let [rings, send_heap, receive_heap, daemon_doorbell, app_doorbell] =
            fds.map_err(|fds| SessionError::DescriptorCount { found: fds.len() })?;
        Ok(SessionFds { rings, send_heap, receive_heap, daemon_doorbell, app_doorbell })
    }

    /// The receive heap, for [`HeapLease`](crate::HeapLease).
    #[must_use]
    pub fn receive_heap(&self) -> BorrowedFd<'_> {
        self.receive_heap.as_fd()
    }

    /// The send heap and the receive heap.
    pub(crate) fn heaps(&self) -> [&OwnedFd; 2] {
        [&self.send_heap, &self.receive_heap]
    }

    /// The same session with another receive heap.
    pub(crate) fn with_receive_heap(self, receive_heap: OwnedFd) -> SessionFds {
        SessionFds { receive_heap, ..self }
    }
}

/// Creates a session: three fresh regions, sealed, and two doorbells.
///
/// Every region is new and never serves another session, so an application cannot find another's bytes in it: pages
/// of a new memfd are zeros.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::System`].
pub fn create_session(config: &SessionConfig) -> Result<(DaemonEnd, SessionFds), SessionError> {
    config.check()?;
    let (rings_fd, rings) =
        create_region("trunkline-rings", config.rings_bytes(), Access::ReadWrite, SIZE_SEALS)?;
    write_header(&rings, config);
    let (send_fd, send) =
        create_region("trunkline-send", config.send_heap_bytes as usize, Access::ReadOnly, SIZE_SEALS)?;
    let (receive_heap, receive_fd) = create_receive_heap(config.receive_heap_bytes)?;
    let (own_doorbell, daemon_doorbell) = daemon_doorbell().map_err(system("eventfd"))?;
    let (peer_doorbell, app_doorbell) = application_doorbell().map_err(system("socketpair"))?;
    let (submission, completion) = rings_of(Arc::new(rings), config)?;
    let regions = SessionRegions {
        rings: dup_cloexec(&rings_fd).map_err(system("dup"))?,
        send_heap: dup_cloexec(&send_fd).map_err(system("dup"))?,
        config: *config,
    };
    let end = DaemonEnd {
        regions,
        submissions: Consumer::resume(submission, 0),
        completions: Producer::resume(completion, 0, 0),
        send_heap: AllegedHeap::new(send),
        receive_heap,
        peer_doorbell,
        own_doorbell,
    };
    let fds = SessionFds {
        rings: rings_fd,
        send_heap: send_fd,
        receive_heap: receive_fd,
        daemon_doorbell,
        app_doorbell,
    };
    Ok((end, fds))
}

/// Opens a session from the descriptors the daemon sent, after checking that they are what was agreed: lengths that
/// cannot change any more, a receive heap that nobody can become a writer of, and rings of the sizes in `config`.
///
/// # Errors
/// Every [`SessionError`].
pub fn open_session(fds: SessionFds, config: &SessionConfig) -> Result<AppEnd, SessionError> {
    config.check()?;
    let rings = open_region("rings", &fds.rings, config.rings_bytes(), Access::ReadWrite, SIZE_SEALS)?;
    check_header(&rings, config)?;
    let send_bytes = config.send_heap_bytes as usize;
    let send = open_region("send heap", &fds.send_heap, send_bytes, Access::ReadWrite, SIZE_SEALS)?;
    let receive_heap = open_receive_heap(&fds.receive_heap, config.receive_heap_bytes)?;
    let (submission, completion) = rings_of(Arc::new(rings), config)?;
    Ok(AppEnd {
        submissions: Producer::resume(submission, 0, 0),
        completions: Consumer::resume(completion, 0),
        send_heap: Heap::new(send)?,
        receive_heap,
        peer_doorbell: Ringer::of_application(fds.daemon_doorbell),
        own_doorbell: Doorbell::of_application(fds.app_doorbell),
    })
}

fn header(rings: &Region) -> &RingsHeader {
    // SAFETY: every rings region is at least RINGS_HEADER_BYTES long and page-aligned; the words are atomics.
    unsafe { rings.base().cast::<RingsHeader>().as_ref() }
}

/// The header's words in order, with the values `config` gives them.
fn header_words<'a>(
    header: &'a RingsHeader,
    config: &SessionConfig,
) -> [(&'static str, &'a crate::sync::AtomicU32, u32); 6] {
    [
        ("magic", &header.magic, RINGS_MAGIC),
        ("version", &header.version, LAYOUT_VERSION),
        ("submission_entries", &header.submission_entries, config.submission_entries),
        ("completion_entries", &header.completion_entries, config.completion_entries),
        ("submission_offset", &header.submission_offset, config.submission_offset() as u32),
        ("completion_offset", &header.completion_offset, config.completion_offset() as u32),
    ]
}

fn write_header(rings: &Region, config: &SessionConfig) {
    for (_, word, value) in header_words(header(rings), config) {
        word.store(value, Ordering::Relaxed);
    }
}

fn check_header(rings: &Region, config: &SessionConfig) -> Result<(), SessionError> {
    for (word, shared, needed) in header_words(header(rings), config) {
        let found = shared.load(Ordering::Relaxed);
        if found != needed {
            return Err(SessionError::Header { word, found, needed });
        }
    }
    Ok(())
}
