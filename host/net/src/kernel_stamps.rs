//! When bytes came and left, by the kernel's word: SO_TIMESTAMPING (Documentation/networking/timestamping.rst).
//!
//! A daemon that is woken reads 15 to 40 µs after the bytes were there; only the kernel knows when that was. Receive
//! stamps cost 0.1 µs a read and are always asked for. A send stamp costs a message on the socket's error queue, so it
//! is asked for one write in many ([`ask_sent`]), one at a time.
//!
//! Not SO_TIMESTAMPNS: where the kernel has no stamp (it begins to make them a moment after the first socket of the
//! host asks) that one names the time of the read, and a datagram that lay there for long would look new.
//!
//! The kernel stamps by the wall clock, and everything else here is monotonic: [`WallClock`] converts, by a pair of
//! readings that is renewed every 100 ms and whenever a stamp does not fit it.
#![allow(
    unsafe_code,
    reason = "no crate we have reads these control messages; three calls of the kernel, all here"
)]

use crate::transfer::Transfer;
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

/// Renewed after so long: in this time a slewed clock (500 ppm at most) drifts by 50 µs.
const PAIR_NS: u64 = 100_000_000;
/// A stamp that seems older is held against a new pair first: the wall clock may have been set.
const OLD_NS: u64 = 1_000_000;
/// A pair that differs from the one before by more was not slewed: the clock was set, and stamps from before say
/// nothing.
const STEP_NS: u64 = 1_000_000;
/// How often a clock is set that is planted so.
const PLANTED_EVERY_NS: i128 = 1_000_000_000;

const RECEIVED: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
/// The last byte of what is written next, named by how many bytes are written before it. The last bit has TCP count
/// what was written and not what was acknowledged (Linux 6.2).
const SENT: libc::c_uint = libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY
    | libc::SOF_TIMESTAMPING_OPT_ID_TCP;
/// What a report is about: SCM_TSTAMP_SND (linux/errqueue.h), the driver has it. Only this is asked for.
const LEFT: u32 = 0;
/// Room for the control messages of one read: a stamp takes 64 bytes, a report beside it 64.
const CONTROL_WORDS: usize = 32;

thread_local! {
    /// Of whoever reads on this thread.
    static WALL_CLOCK: RefCell<WallClock> = RefCell::default();
}

/// Has this thread see a wall clock, and stamps of the kernel, that is set so far ahead every second and back again: a
/// planted fault.
pub fn plant_wall_clock(set_by_ns: u64) {
    WALL_CLOCK.with_borrow_mut(|clock| clock.plant(set_by_ns));
}

/// A stamp on the monotonic clock, on which it is `now_ns`: [`WallClock::monotonic_ns`].
pub(crate) fn on_monotonic_clock(stamp: WallNs, now_ns: u64) -> Option<u64> {
    WALL_CLOCK.with_borrow_mut(|clock| clock.monotonic_ns(stamp, now_ns, wall_ahead_ns))
}

/// When that came which has this stamp: [`WallClock::came`].
pub(crate) fn came(stamp: WallNs, since_ns: u64, now_ns: u64) -> Came {
    WALL_CLOCK.with_borrow_mut(|clock| clock.came(stamp, since_ns, now_ns, wall_ahead_ns))
}

/// Nanoseconds since 1970, by the host's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WallNs(u64);

/// When something came, on the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    /// Then, or later.
    pub at_ns: u64,
    /// Just then: the kernel says so.
    pub is_told: bool,
}

/// Has the kernel stamp what this socket receives. A kernel that cannot stamps nothing.
pub(crate) fn ask_received(socket: impl AsFd) {
    let _ = set(socket, RECEIVED);
}

/// Has the kernel stamp the last byte of the next write, and of no other: to be called before and after it.
pub(crate) fn ask_sent(socket: impl AsFd, asks: bool) -> io::Result<()> {
    set(socket, if asks { RECEIVED | SENT } else { RECEIVED })
}

fn set(socket: impl AsFd, flags: libc::c_uint) -> io::Result<()> {
    let size = size_of::<libc::c_uint>() as libc::socklen_t;
    let (fd, value) = (socket.as_fd().as_raw_fd(), &raw const flags);
    // SAFETY: the descriptor is open while it is borrowed, and the value is as long as it is said to be.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, value.cast(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads without waiting; and when the last byte of it came, if the kernel says so.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(Transfer, Option<WallNs>)> {
    let wanted = buffer.len();
    let (count, control) = receive_message(socket, buffer, 0)?;
    let moved = match count {
        None => Transfer::NotReady,
        Some(0) if wanted > 0 => Transfer::Ended,
        Some(0) => Transfer::NotReady,
        Some(count) => Transfer::Bytes(count),
    };
    Ok((moved, control.stamp))
}

/// When the byte left this host that was asked for last, and its number; `None` if nothing is said. What else lies in
/// the error queue is taken out of it, or the poller would tell of it for ever.
pub(crate) fn receive_sent(socket: impl AsFd) -> Option<(u32, WallNs)> {
    let mut found = None;
    for _ in 0..REPORTS_MAX {
        match receive_message(socket.as_fd(), &mut [], libc::MSG_ERRQUEUE) {
            Ok((Some(_), control)) => found = control.sent.zip(control.stamp).or(found),
            Ok((None, _)) | Err(_) => break,
        }
    }
    found
}

/// Reports read at once: one is asked for at a time.
const REPORTS_MAX: usize = 16;

/// What the control messages of a read say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlMessages {
    pub stamp: Option<WallNs>,
    /// The number of the byte that was sent then.
    sent: Option<u32>,
    /// Datagrams of this length have come as one (UDP GRO); the last may be shorter.
    pub segment: Option<u32>,
}

/// One call of the kernel. No bytes: *not now*.
fn receive_message(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(Option<usize>, ControlMessages)> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let flags = flags | libc::MSG_DONTWAIT;
    loop {
        // SAFETY: all of its fields are numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the descriptor is borrowed, and the message names a buffer and a control buffer that outlive the
        // call, with their lengths.
        let count = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
        if let Ok(count) = usize::try_from(count) {
            let bytes = message.msg_controllen.min(size_of_val(&control));
            return Ok((Some(count), read_control(&control, bytes)));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok((None, ControlMessages::default())),
            _ => return Err(error),
        }
    }
}

/// Walks the control messages: each has its length (with itself), level and kind in two words, then its data, and the
/// next begins at a whole word.
pub(crate) fn read_control(words: &[u64], bytes: usize) -> ControlMessages {
    let mut control = ControlMessages::default();
    let mut rest = &words[..words.len().min(bytes / 8)];
    while let [length, head, data @ ..] = rest {
        let length = usize::try_from(*length).unwrap_or(usize::MAX);
        let (level, kind) = (*head as u32 as libc::c_int, (*head >> 32) as libc::c_int);
        match (level, kind, data) {
            // Three stamps of two words: by software, one that is unused, by the network card.
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, [seconds, nanoseconds, ..]) => {
                let ns = seconds.saturating_mul(1_000_000_000).saturating_add(*nanoseconds);
                control.stamp = (ns > 0).then_some(WallNs(ns));
            }
            (libc::SOL_UDP, libc::UDP_GRO, [segment, ..]) => control.segment = Some(*segment as u32),
            // A `sock_extended_err`: errno; origin, type, code and pad in a byte each; info; data.
            (libc::SOL_IP, libc::IP_RECVERR, [first, second, ..])
            | (libc::SOL_IPV6, libc::IPV6_RECVERR, [first, second, ..]) => {
                let (origin, info) = ((first >> 32) as u8, *second as u32);
                if origin == libc::SO_EE_ORIGIN_TIMESTAMPING && info == LEFT {
                    control.sent = Some((*second >> 32) as u32);
                }
            }
            _ => {}
        }
        let whole = length.div_ceil(8).max(2);
        let Some(next) = rest.get(whole..) else { break };
        rest = next;
    }
    control
}

/// The wall clock beside the monotonic one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    /// Wall time minus monotonic time.
    ahead_ns: i128,
    /// When that was read, on the monotonic clock; zero before the first time.
    read_ns: u64,
    /// How far it was ahead before it was last set, and when that was noticed.
    before: Option<(i128, u64)>,
    /// Planted: it is set so far ahead at every odd second, and back at every even one.
    set_by_ns: u64,
}

impl WallClock {
    /// From now on it is set so far ahead and back again, every second; zero: it is not.
    pub fn plant(&mut self, set_by_ns: u64) {
        self.set_by_ns = set_by_ns;
    }

    /// What a clock that is set as planted says where the host's says `wall_ns`.
    fn as_planted(&self, wall_ns: i128) -> i128 {
        let is_ahead = || wall_ns.div_euclid(PLANTED_EVERY_NS).rem_euclid(2) == 1;
        if self.set_by_ns > 0 && is_ahead() { wall_ns + i128::from(self.set_by_ns) } else { wall_ns }
    }

    /// A stamp on the monotonic clock, on which it is `now_ns`; `None` if that cannot be known, because the wall clock
    /// was set in between. `read` reads both clocks: wall minus monotonic.
    pub fn monotonic_ns(&mut self, stamp: WallNs, now_ns: u64, read: impl FnOnce() -> i128) -> Option<u64> {
        let stamp_ns = self.as_planted(stamp.0.into());
        let at = |clock: &Self| stamp_ns - clock.ahead_ns;
        let age_ns = i128::from(now_ns) - at(self);
        let is_odd = age_ns < 0 || age_ns > OLD_NS.into();
        if (is_odd || self.is_old(now_ns)) && self.renew(now_ns, read) {
            return None;
        }
        u64::try_from(at(self).min(now_ns.into())).ok()
    }

    /// When that came which has this stamp, and which is known to have come since `since_ns`; on the monotonic clock,
    /// on which it is `now_ns`.
    ///
    /// A stamp may be from before the wall clock was set, and then fits how far it was ahead before. What fits neither
    /// says nothing. What fits both came at the earlier time or later: whoever judges how old something is must not
    /// take it for younger. This ends with the first read after the clock was set that leaves the socket empty.
    pub fn came(&mut self, stamp: WallNs, since_ns: u64, now_ns: u64, read: impl FnOnce() -> i128) -> Came {
        let stamp_ns = self.as_planted(stamp.0.into());
        let age_ns = i128::from(now_ns) - (stamp_ns - self.ahead_ns);
        let is_odd = age_ns < 0 || age_ns > OLD_NS.into();
        if self.read_ns != now_ns && (is_odd || self.is_old(now_ns)) {
            self.renew(now_ns, read);
        }
        let (first, last) = (i128::from(since_ns), i128::from(now_ns));
        let fitting = |ahead_ns: i128| {
            let at = stamp_ns - ahead_ns;
            let fits = (first - i128::from(STEP_NS)..=last + i128::from(STEP_NS)).contains(&at);
            fits.then(|| u64::try_from(at.clamp(first, last)).unwrap_or(since_ns))
        };
        let before = self.before.filter(|(_, set_ns)| since_ns < *set_ns);
        match (fitting(self.ahead_ns), before.and_then(|(ahead_ns, _)| fitting(ahead_ns))) {
            (Some(at_ns), None) | (None, Some(at_ns)) => Came { at_ns, is_told: true },
            (Some(one), Some(other)) => Came { at_ns: one.min(other), is_told: false },
            (None, None) => Came { at_ns: since_ns, is_told: false },
        }
    }

    fn is_old(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.read_ns) >= PAIR_NS
    }

    /// Reads both clocks. Whether the wall clock was set since they were read before.
    fn renew(&mut self, now_ns: u64, read: impl FnOnce() -> i128) -> bool {
        let ahead_ns = self.as_planted(i128::from(now_ns) + read()) - i128::from(now_ns);
        let was_set = self.read_ns > 0 && self.ahead_ns.abs_diff(ahead_ns) > STEP_NS.into();
        if was_set {
            self.before = Some((self.ahead_ns, now_ns));
        }
        (self.ahead_ns, self.read_ns) = (ahead_ns, now_ns);
        was_set
    }
}

/// Both clocks, read so close together that the pair is good to some tens of nanoseconds: the closest of three.
pub(crate) fn wall_ahead_ns() -> i128 {
    let read = || {
        let (before, wall, after) = (ns(ClockId::Monotonic), ns(ClockId::Realtime), ns(ClockId::Monotonic));
        (after - before, wall - (before + after) / 2)
    };
    let pairs = [read(), read(), read()];
    pairs.into_iter().min_by_key(|(apart, _)| *apart).map_or(0, |(_, ahead)| ahead)
}

/// The monotonic clock of this host, by which everything is stamped.
pub(crate) fn monotonic_ns() -> u64 {
    u64::try_from(ns(ClockId::Monotonic)).unwrap_or(0)
}

fn ns(clock: ClockId) -> i128 {
    let now = clock_gettime(clock);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    //! Shows how stamps are read and converted, and what a wall clock that is set does to them.
    use super::*;

    const HEAD: u64 = (libc::SOL_SOCKET as u64) | (libc::SCM_TIMESTAMPING as u64) << 32;
    const REPORT: u64 = (libc::SOL_IP as u64) | (libc::IP_RECVERR as u64) << 32;
    const GRO: u64 = (libc::SOL_UDP as u64) | (libc::UDP_GRO as u64) << 32;
    const SENT_THEN: u64 = (libc::SO_EE_ORIGIN_TIMESTAMPING as u64) << 32;

    fn control(words: &[u64]) -> ControlMessages {
        let mut all = [0; CONTROL_WORDS];
        all[..words.len()].copy_from_slice(words);
        read_control(&all, words.len() * 8)
    }

    #[test]
    fn control_messages_are_read() {
        let stamp = control(&[64, HEAD, 3, 7, 0, 0, 0, 0]);
        assert_eq!((stamp.stamp, stamp.sent), (Some(WallNs(3_000_000_007)), None));
        let sent = control(&[64, HEAD, 3, 7, 0, 0, 0, 0, 48, REPORT, SENT_THEN, 99 << 32, 0, 0]);
        assert_eq!((sent.stamp, sent.sent), (Some(WallNs(3_000_000_007)), Some(99)));
        let other = control(&[48, REPORT, 1 << 32, 99 << 32, 0, 0]);
        assert_eq!((other.stamp, other.sent), (None, None), "an error of the network");
        let together = control(&[64, HEAD, 3, 7, 0, 0, 0, 0, 20, GRO, 1400]);
        assert_eq!((together.stamp, together.segment), (Some(WallNs(3_000_000_007)), Some(1400)));
        for words in [&[][..], &[u64::MAX, HEAD], &[0, HEAD, 3, 7], &[64, HEAD, 3], &[16, 0, 16, 0, 16]] {
            assert_eq!(control(words).sent, None, "{words:?}");
        }
    }

    #[test]
    fn stamps_become_monotonic() {
        let mut clock = WallClock::default();
        let mut at = |stamp: u64, now: u64, ahead: i128| clock.monotonic_ns(WallNs(stamp), now, || ahead);
        let (start, ahead) = (PAIR_NS * 10, 5_000_000_000_000);
        assert_eq!(at(start - 100 + ahead as u64, start, ahead), Some(start - 100));
        // 60 µs of slewing later the pair is old, and read again.
        let (later, ahead) = (start + PAIR_NS, ahead + 60_000);
        assert_eq!(at(later - 30 + ahead as u64, later, ahead), Some(later - 30));
        // Not old: the pair holds, whatever would be read.
        let next = later + 1_000_000;
        assert_eq!(at(next - 40 + ahead as u64, next, 0), Some(next - 40));
        // What lay in the kernel for long is held against a new pair, and found to be as old as it says.
        assert_eq!(at(next - 3_000_000 + ahead as u64, next, ahead), Some(next - 3_000_000));
    }

    #[test]
    fn a_wall_clock_that_is_set_is_noticed() {
        for step in [-3_600_000_000_000_i128, -2_000_000, 2_000_000, 3_600_000_000_000] {
            let mut clock = WallClock::default();
            let (start, ahead) = (PAIR_NS * 10, 5_000_000_000_000_i128);
            let mut at = |stamp: i128, now: u64, ahead: i128| {
                clock.monotonic_ns(WallNs(u64::try_from(stamp).unwrap()), now, || ahead)
            };
            let stamp = |at: u64, ahead: i128| i128::from(at) - 100 + ahead;
            assert_eq!(at(stamp(start, ahead), start, ahead), Some(start - 100));
            let now = start + 1_000;
            assert_eq!(at(stamp(now, ahead + step), now, ahead + step), None, "{step}: nobody knows");
            let then = now + 1_000;
            assert_eq!(at(stamp(then, ahead + step), then, ahead + step), Some(then - 100), "{step}");
        }
    }

    const S: u64 = 1_000_000_000;

    /// A clock that was last read at `read_ns`, and how to say what has a stamp of `at` since `since_ns` at `now_ns`,
    /// where the wall clock is so far ahead by then.
    fn clock_read_at(read_ns: u64) -> (WallClock, i128) {
        let (mut clock, ahead) = (WallClock::default(), 5_000 * i128::from(S));
        assert!(!clock.renew(read_ns, || ahead));
        (clock, ahead)
    }

    fn stamp(at_ns: u64, ahead: i128) -> WallNs {
        WallNs(u64::try_from(i128::from(at_ns) + ahead).unwrap())
    }

    #[test]
    fn what_lay_in_a_socket_came_when_its_stamp_says() {
        let (mut clock, ahead) = clock_read_at(10 * S);
        for came in [10 * S, 12 * S, 14 * S] {
            let told = clock.came(stamp(came, ahead), 9 * S, 14 * S, || ahead);
            assert_eq!(told, Came { at_ns: came, is_told: true });
        }
        let ahead_of_itself = clock.came(stamp(14 * S + 500, ahead), 9 * S, 14 * S, || ahead);
        assert_eq!(ahead_of_itself, Came { at_ns: 14 * S, is_told: true }, "slewed");
        for nowhere in [3 * S, 17 * S] {
            let told = clock.came(stamp(nowhere, ahead), 9 * S, 14 * S, || ahead);
            assert_eq!(told, Came { at_ns: 9 * S, is_told: false });
        }
    }

    /// The clock is set while datagrams lie in a socket, and some came before it and some after; whatever it was set
    /// by, none is taken for younger than it is, and what comes later is told as it was.
    #[test]
    fn a_wall_clock_that_is_set_makes_nothing_younger() {
        let (since, now) = (9 * S, 14 * S);
        for step_ms in [-3_600_000, -10_000, -2_000, -100, -2, 2, 100, 2_000, 10_000, 3_600_000_i128] {
            let (mut clock, ahead) = clock_read_at(10 * S);
            let after = ahead + step_ms * 1_000_000;
            for (came, ahead) in [(11 * S, ahead), (12 * S, after), (now - 1000, after), (13 * S, ahead)] {
                let told = clock.came(stamp(came, ahead), since, now, || after);
                assert!((since..=came).contains(&told.at_ns), "{step_ms}: {came} is told as {told:?}");
                let is_certain = step_ms.abs() > 5_000;
                assert!(!is_certain || told == Came { at_ns: came, is_told: true }, "{step_ms}: {told:?}");
            }
            // Emptied at `now`, and so on.
            let told = clock.came(stamp(now + 5, after), now, now + 9, || after);
            assert_eq!(told, Came { at_ns: now + 5, is_told: true }, "{step_ms}");
        }
    }

    #[test]
    fn clocks_are_read_once_for_what_was_read_together() {
        let (mut clock, ahead) = clock_read_at(10 * S);
        let mut reads = 0;
        for came in 0..32 {
            clock.came(stamp(11 * S + came, ahead), 9 * S, 14 * S, || {
                reads += 1;
                ahead
            });
        }
        assert_eq!(reads, 1);
    }

    #[test]
    fn both_clocks_are_read_together() {
        let (one, two) = (wall_ahead_ns(), wall_ahead_ns());
        assert!(one.abs_diff(two) < 1_000_000_000, "{one} and {two}");
    }
}
