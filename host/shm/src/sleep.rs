//! The hands of the waiting policy: look, yield, sleep on descriptors.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{self, Errno};
use rustix::thread::sched_yield;

use crate::clock::monotonic_ns;
use crate::doorbell::Doorbell;
use crate::ring::{Consumer, RingError};
use crate::wait::{Decision, Waiter};

/// Most descriptors [`sleep_on`] watches: a doorbell, a control socket and a few of the caller's.
pub const SLEEP_FDS_MAX: usize = 8;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The ring has entries.
    Entries,
    /// Other descriptors are readable or closed: a bit per descriptor, by position.
    Other(u32),
    /// The deadline passed.
    TimedOut,
}

/// Why a wait failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The producer broke the ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// `poll` or the doorbell failed.
    #[error("waiting: {0}")]
    System(#[from] Errno),
}

/// Waits until `ring` has entries, one of `others` is readable or closed, or `deadline_ns` (monotonic) has passed.
///
/// Looks and yields for as long as `waiter` has patience, then announces itself and sleeps on `doorbell`. While
/// looking it does not ask about `others`: they wait at most [`crate::WaitLimits::patience_ns_max`] longer.
///
/// # Errors
/// [`WaitError::Ring`] ends the session; [`WaitError::System`] with `EINVAL` for too many descriptors.
pub fn wait_for_entries(
    ring: &mut Consumer,
    doorbell: &Doorbell,
    others: &[BorrowedFd<'_>],
    waiter: &mut Waiter,
    deadline_ns: Option<u64>,
) -> Result<Woken, WaitError> {
    if ring.ready()? > 0 {
        return Ok(Woken::Entries);
    }
    let mut now_ns = monotonic_ns();
    waiter.begin(now_ns);
    loop {
        match waiter.decide(now_ns) {
            Decision::Spin => std::hint::spin_loop(),
            Decision::Yield => {
                sched_yield();
                now_ns = monotonic_ns();
            }
            Decision::Block => break,
        }
        if ring.ready()? > 0 {
            waiter.arrived(now_ns);
            return Ok(Woken::Entries);
        }
    }
    let woken = sleep_until(ring, doorbell, others, waiter, now_ns, deadline_ns)?;
    match woken {
        Woken::Entries => waiter.arrived(monotonic_ns()),
        Woken::Other(_) | Woken::TimedOut => waiter.ran_dry(),
    }
    Ok(woken)
}

/// The sleeping half of [`wait_for_entries`]: announce, look once more, poll.
fn sleep_until(
    ring: &mut Consumer,
    doorbell: &Doorbell,
    others: &[BorrowedFd<'_>],
    waiter: &mut Waiter,
    mut now_ns: u64,
    deadline_ns: Option<u64>,
) -> Result<Woken, WaitError> {
    let mut fds = [doorbell.as_fd(); SLEEP_FDS_MAX];
    let watched = fds.get_mut(..=others.len()).ok_or(Errno::INVAL)?;
    watched[1..].copy_from_slice(others);
    loop {
        if !ring.arm()? {
            return Ok(Woken::Entries);
        }
        let woken = sleep_on(watched, deadline_ns.map(|at| at.saturating_sub(now_ns)));
        ring.disarm();
        let bits = woken?;
        if bits & 1 != 0 {
            doorbell.quiet()?;
            waiter.woken(ring.rung_ns_ago(monotonic_ns()));
        }
        if ring.ready()? > 0 {
            return Ok(Woken::Entries);
        }
        if bits >> 1 != 0 {
            return Ok(Woken::Other(bits >> 1));
        }
        now_ns = monotonic_ns();
        if deadline_ns.is_some_and(|at| now_ns >= at) {
            return Ok(Woken::TimedOut);
        }
    }
}

/// Sleeps until one of `fds` is readable or closed, or `timeout_ns` has passed (`None`: for ever).
///
/// Returns a bit per descriptor, by position; none on time-out or signal.
///
/// # Errors
/// `EINVAL` for more than [`SLEEP_FDS_MAX`] descriptors, and what `poll` says.
pub fn sleep_on(fds: &[BorrowedFd<'_>], timeout_ns: Option<u64>) -> io::Result<u32> {
    let timeout = timeout_ns
        .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ });
    let (Some(filler), true) = (fds.first(), fds.len() <= SLEEP_FDS_MAX) else { return Err(Errno::INVAL) };
    let watch = |index: usize| PollFd::from_borrowed_fd(*fds.get(index).unwrap_or(filler), PollFlags::IN);
    let mut watched: [PollFd<'_>; SLEEP_FDS_MAX] = std::array::from_fn(watch);
    let watched = &mut watched[..fds.len()];
    match poll(watched, timeout.as_ref()) {
        Ok(_) => {
            Ok(watched.iter().enumerate().map(|(bit, fd)| u32::from(!fd.revents().is_empty()) << bit).sum())
        }
        Err(Errno::INTR) => Ok(0),
        Err(error) => Err(error),
    }
}
