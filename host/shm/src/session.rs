//! Sessions: what one attach consists of, created by the daemon and opened by the application.

use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::alleged::AllegedHeap;
use crate::doorbell::{Doorbell, Ringer, application_doorbell, daemon_doorbell, dup_cloexec};
use crate::entry::Entry;
use crate::heap::Heap;
use crate::inherit::{create_receive_heap, open_receive_heap};
use crate::layout::{LAYOUT_VERSION, RINGS_HEADER_BYTES, RINGS_MAGIC, RingsHeader};
use crate::received::ReceivedHeap;
use crate::region::{Access, Region, RegionFault, SIZE_SEALS, check_memfd, create_memfd, seal};
use crate::ring::{Consumer, Producer};
use crate::ring_memory::{RingMemory, Which};
use crate::sync::Ordering;

/// Fewest entries of a ring: less than this and a batch cannot hide a hand-over.
pub const RING_ENTRIES_MIN: u32 = 16;

/// Most entries of a ring: 4 MiB. More outstanding calls than 65,536 on one session is a flood, not a load.
pub const RING_ENTRIES_MAX: u32 = 1 << 16;

/// Smallest heap: one page of the largest common page size, so that sealing and mapping agree everywhere.
pub const HEAP_BYTES_MIN: u32 = 64 << 10;

/// Largest heap. Offsets are `u32` and lengths are added to them; 2 GiB leaves every sum within `u32`.
pub const HEAP_BYTES_MAX: u32 = 1 << 31;

/// Descriptors an application receives for a session.
pub const SESSION_FDS: usize = 5;

/// Sizes of a session, agreed in the attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Entries of the submission ring (application to daemon), a power of two.
    pub submission_entries: u32,
    /// Entries of the completion ring (daemon to application), a power of two.
    pub completion_entries: u32,
    /// Bytes of the heap the application writes, a multiple of 64 KiB.
    pub send_heap_bytes: u32,
    /// Bytes of the heap the daemon writes, a multiple of 64 KiB.
    pub receive_heap_bytes: u32,
}

/// What the usual messages of a heap share: 64 MiB, or an eighth of a larger heap.
const USUAL_BYTES_MIN: u32 = 64 << 20;

/// Bytes of a receive heap for messages of the usual sizes, all of them together. The rest is address space for single
/// messages larger than half of that, so that one of them fits without anybody holding as much in small ones.
#[must_use]
pub fn usual_bytes(heap_bytes: u32) -> u32 {
    (heap_bytes / 8).max(USUAL_BYTES_MIN).min(heap_bytes)
}

impl Default for SessionConfig {
    /// 512 entries each way: 128 outstanding calls, their block returns and as much again, in 68 KiB when every slot
    /// has been used. Heaps of 64 MiB: 128 messages of 512 KiB; they cost address space until touched.
    fn default() -> SessionConfig {
        SessionConfig {
            submission_entries: 512,
            completion_entries: 512,
            send_heap_bytes: 64 << 20,
            receive_heap_bytes: 64 << 20,
        }
    }
}

impl SessionConfig {
    /// Checks every size against its limits.
    ///
    /// # Errors
    /// [`SessionError::Size`] naming the first field that is out of bounds.
    pub fn check(&self) -> Result<(), SessionError> {
        ring_size("submission_entries", self.submission_entries)?;
        ring_size("completion_entries", self.completion_entries)?;
        heap_size("send_heap_bytes", self.send_heap_bytes)?;
        heap_size("receive_heap_bytes", self.receive_heap_bytes)
    }

    /// Bytes of the rings region: a page of control words, then both rings' entries.
    #[must_use]
    pub fn rings_bytes(&self) -> usize {
        self.completion_offset() + ring_bytes(self.completion_entries)
    }

    fn submission_offset(&self) -> usize {
        RINGS_HEADER_BYTES
    }

    fn completion_offset(&self) -> usize {
        self.submission_offset() + ring_bytes(self.submission_entries)
    }
}

/// Why a session could not be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A size is beyond its limits.
    #[error("{field} is {value}: {rule}")]
    Size {
        /// Field of [`SessionConfig`].
        field: &'static str,
        /// Its value.
        value: u32,
        /// What it must be.
        rule: &'static str,
    },
    /// The attach brought another number of descriptors.
    #[error("{found} descriptors where a session has {SESSION_FDS}")]
    DescriptorCount {
        /// Descriptors received.
        found: usize,
    },
    /// A region is not what was agreed.
    #[error("{region}: {fault}")]
    Region {
        /// `"rings"`, `"send heap"` or `"receive heap"`.
        region: &'static str,
        /// What is wrong with it.
        fault: RegionFault,
    },
    /// The first words of the rings region disagree with the sizes agreed.
    #[error("rings header: {word} is {found} where {needed} was agreed")]
    Header {
        /// Which word.
        word: &'static str,
        /// Its value.
        found: u32,
        /// The value agreed.
        needed: u32,
    },
    /// The books of a receive heap that was handed over are none.
    #[error("blocks of the receive heap overlap, or lie outside it")]
    Blocks,
    /// The kernel refused.
    #[error("{what}: {errno}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        errno: Errno,
    },
}

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
    pub keepsake: Keepsake,
}

/// The regions of a session that outlive a daemon, as descriptors, and their sizes.
#[derive(Debug)]
pub struct Keepsake {
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
    /// Reading end of a pipe, daemon to application.
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
    let (peer_doorbell, app_doorbell) = application_doorbell().map_err(system("pipe"))?;
    let (submission, completion) = rings_of(Arc::new(rings), config)?;
    let keepsake = Keepsake {
        rings: dup_cloexec(&rings_fd).map_err(system("dup"))?,
        send_heap: dup_cloexec(&send_fd).map_err(system("dup"))?,
        config: *config,
    };
    let end = DaemonEnd {
        keepsake,
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
        send_heap: Heap::new(send),
        receive_heap,
        peer_doorbell: Ringer::of_application(fds.daemon_doorbell),
        own_doorbell: Doorbell::of_application(fds.app_doorbell),
    })
}

/// A fresh memfd, mapped and then sealed.
pub(crate) fn create_region(
    name: &'static str,
    bytes: usize,
    access: Access,
    seals: rustix::fs::SealFlags,
) -> Result<(OwnedFd, Region), SessionError> {
    let fd = create_memfd(name, bytes).map_err(system("memfd_create"))?;
    let region = Region::map(&fd, bytes, access).map_err(system("mmap"))?;
    seal(&fd, seals).map_err(system("F_ADD_SEALS"))?;
    Ok((fd, region))
}

/// A memfd from another process, checked and then mapped.
pub(crate) fn open_region(
    region: &'static str,
    fd: impl AsFd,
    bytes: usize,
    access: Access,
    seals: rustix::fs::SealFlags,
) -> Result<Region, SessionError> {
    check_memfd(&fd, bytes, seals).map_err(|fault| SessionError::Region { region, fault })?;
    Region::map(fd, bytes, access).map_err(system("mmap"))
}

/// The two rings of a rings region.
pub(crate) fn rings_of(
    rings: Arc<Region>,
    config: &SessionConfig,
) -> Result<(RingMemory, RingMemory), SessionError> {
    let ring = |which, at, entries| {
        RingMemory::new(&rings, which, at, entries)
            .ok_or(SessionError::System { what: "ring", errno: Errno::INVAL })
    };
    Ok((
        ring(Which::Submission, config.submission_offset(), config.submission_entries)?,
        ring(Which::Completion, config.completion_offset(), config.completion_entries)?,
    ))
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

fn ring_bytes(entries: u32) -> usize {
    (entries as usize * size_of::<Entry>()).next_multiple_of(RINGS_HEADER_BYTES)
}

fn ring_size(field: &'static str, value: u32) -> Result<(), SessionError> {
    if value.is_power_of_two() && (RING_ENTRIES_MIN..=RING_ENTRIES_MAX).contains(&value) {
        return Ok(());
    }
    Err(SessionError::Size { field, value, rule: "a power of two from 16 to 65536" })
}

pub(crate) fn heap_size(field: &'static str, value: u32) -> Result<(), SessionError> {
    if value.is_multiple_of(HEAP_BYTES_MIN) && (HEAP_BYTES_MIN..=HEAP_BYTES_MAX).contains(&value) {
        return Ok(());
    }
    Err(SessionError::Size { field, value, rule: "a multiple of 64 KiB from 64 KiB to 2 GiB" })
}

pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> SessionError {
    move |errno| SessionError::System { what, errno }
}
