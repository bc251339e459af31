//! Datagrams received together, and when each of them came.
#![allow(
    unsafe_code,
    reason = "no crate we have reads many datagrams with the kernel's stamps; one call of the kernel, here"
)]

use crate::kernel_stamps::{Came, WallNs, came, monotonic_ns, read_control};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Datagrams received together.
#[derive(Debug, Default)]
pub struct DatagramBatch {
    /// Pieces of [`PIECE_STRIDE`]; nothing until the first use.
    buffer: Vec<u8>,
    /// What the kernel says of each beside its bytes.
    controls: Vec<[u64; CONTROL_WORDS]>,
    /// Of each piece. One sender's datagrams of equal length may come as one.
    pieces: Vec<Piece>,
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedDatagram<'a> {
    /// Who sent it.
    pub from: SocketAddrV4,
    /// What.
    pub datagram: &'a [u8],
    /// It was in the socket then, or came later: nanoseconds on the monotonic clock. Where the kernel has not said when
    /// it came (a moment after the host's first socket has asked, or where the wall clock was set meanwhile) that is
    /// when the socket was empty; where it never says so, when the datagram was read.
    pub came_ns: u64,
    /// It came just then.
    pub is_told: bool,
}

/// What is known of when the datagrams of a socket come.
#[derive(Debug)]
pub(crate) struct Emptied {
    /// It was empty then, and whatever is in it has come since. Written by whoever reads from it.
    at_ns: AtomicU64,
    /// Stamps were asked for then.
    asked_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    from: Option<SocketAddrV4>,
    bytes: usize,
    control_bytes: usize,
    /// Length of each datagram of it but the last.
    segment: usize,
    came: Came,
}

/// Datagrams taken from the kernel at once. More gain nothing: the cost of the call is spread thin by then.
pub(crate) const BATCH_MAX: usize = 32;
/// Room for what the kernel hands over in one piece: it may put the datagrams of one sender together (UDP GRO).
const PIECE_BYTES_MAX: usize = 64 << 10;
/// From one such room to the next. Were it a power of two, the beginnings of all, which is all that is used of most,
/// would have to share a few lines of the caches.
const PIECE_STRIDE: usize = PIECE_BYTES_MAX + 192;
/// Room for a stamp of 64 bytes and the length of datagrams that came as one, 24.
const CONTROL_WORDS: usize = 16;
const NAME_BYTES: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;
/// So long after it was first asked a kernel that stamps at all stamps everything: it begins by itself, in a thread of
/// its own (`net_enable_timestamp`).
const SURELY_STAMPS_NS: u64 = 1_000_000_000;

impl DatagramBatch {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it has no datagrams.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether it has as much as it can have, so that more may wait.
    pub fn is_full(&self) -> bool {
        self.pieces.len() == BATCH_MAX
    }

    /// Its datagrams with their senders, in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddrV4, &[u8])> {
        self.received().map(|one| (one.from, one.datagram))
    }

    /// The same, and when they came.
    pub fn received(&self) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        let pieces = self.pieces.iter().zip(self.buffer.chunks(PIECE_STRIDE));
        pieces.flat_map(|(piece, room)| {
            let (from, came) = (piece.from, piece.came);
            let bytes = &room[..piece.bytes.min(PIECE_BYTES_MAX)];
            let segment = piece.segment.max(1);
            let count = bytes.len().div_ceil(segment).max(1);
            let datagram =
                move |index: usize| &bytes[index * segment..bytes.len().min((index + 1) * segment)];
            (0..count).filter_map(move |index| {
                let datagram = datagram(index);
                Some(ReceivedDatagram { from: from?, datagram, came_ns: came.at_ns, is_told: came.is_told })
            })
        })
    }

    /// Takes what waits, in one call of the kernel. Replaces what it had.
    pub(crate) fn receive(&mut self, socket: impl AsFd, emptied: &Emptied) -> io::Result<()> {
        if self.buffer.is_empty() {
            // Taken as zero from the kernel: what is never written to takes no memory.
            self.buffer = vec![0; BATCH_MAX * PIECE_STRIDE];
            self.controls = vec![[0; CONTROL_WORDS]; BATCH_MAX];
        }
        let looked_ns = monotonic_ns();
        self.receive_messages(socket)?;
        if !self.is_empty() {
            let (since_ns, read_ns) = (emptied.at_ns.load(Ordering::Relaxed), monotonic_ns());
            for (piece, control) in self.pieces.iter_mut().zip(&self.controls) {
                let said = read_control(control, piece.control_bytes);
                piece.segment =
                    said.segment.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(piece.bytes);
                piece.came = emptied.came(said.stamp, since_ns, read_ns);
            }
        }
        if !self.is_full() {
            emptied.at_ns.store(looked_ns, Ordering::Relaxed);
        }
        Ok(())
    }

    fn receive_messages(&mut self, socket: impl AsFd) -> io::Result<()> {
        self.pieces.clear();
        // SAFETY: all of their fields are numbers and pointers, for which zero is a value.
        let (mut names, mut messages): ([libc::sockaddr_in; BATCH_MAX], [libc::mmsghdr; BATCH_MAX]) =
            unsafe { MaybeUninit::zeroed().assume_init() };
        let mut rooms = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: PIECE_BYTES_MAX }; BATCH_MAX];
        let buffers = self.buffer.chunks_exact_mut(PIECE_STRIDE).zip(&mut self.controls);
        let places = messages.iter_mut().zip(&mut names).zip(&mut rooms).zip(buffers);
        for (((message, name), room), (buffer, control)) in places {
            room.iov_base = buffer.as_mut_ptr().cast();
            let header = &mut message.msg_hdr;
            (header.msg_name, header.msg_namelen) = ((&raw mut *name).cast(), NAME_BYTES);
            (header.msg_iov, header.msg_iovlen) = (&raw mut *room, 1);
            (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(control));
        }
        let (fd, count) = (socket.as_fd().as_raw_fd(), BATCH_MAX as libc::c_uint);
        let (first, now) = (messages.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the descriptor is borrowed. Each of so many messages names a place for its sender, a buffer of
        // `PIECE_BYTES_MAX` bytes or more and one for control messages, with their lengths; all outlive the call, and
        // none is another's.
        let count = unsafe { libc::recvmmsg(fd, first, count, libc::MSG_DONTWAIT, now) };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => 0,
                error => return Err(error),
            },
        };
        self.pieces.extend(messages.iter().zip(&names).take(count).map(|(message, name)| Piece {
            from: sender_of(name),
            bytes: usize::try_from(message.msg_len).unwrap_or(0),
            control_bytes: message.msg_hdr.msg_controllen,
            ..Piece::default()
        }));
        Ok(())
    }
}

impl Emptied {
    /// Of a socket that is bound next.
    pub fn now() -> Self {
        let now_ns = monotonic_ns();
        Self { at_ns: AtomicU64::new(now_ns), asked_ns: now_ns }
    }

    /// Of a socket that others have bound, and in which something may lie since whenever.
    pub fn never() -> Self {
        Self { at_ns: AtomicU64::new(0), asked_ns: monotonic_ns() }
    }

    /// When a datagram came that has been read now, from a socket that was empty at `since_ns`.
    fn came(&self, stamp: Option<WallNs>, since_ns: u64, read_ns: u64) -> Came {
        match stamp {
            Some(stamp) => came(stamp, since_ns, read_ns),
            None if since_ns.saturating_sub(self.asked_ns) >= SURELY_STAMPS_NS => {
                Came { at_ns: read_ns, is_told: false }
            }
            None => Came { at_ns: since_ns, is_told: false },
        }
    }
}

/// The kernel says of no datagram which address it was sent to.
pub(crate) fn ask_no_addresses(socket: impl AsFd) {
    let no: libc::c_int = 0;
    let (fd, value, bytes) = (socket.as_fd().as_raw_fd(), &raw const no, size_of_val(&no) as libc::socklen_t);
    // SAFETY: the descriptor is open while it is borrowed, and the value is as long as it is said to be. That it fails
    // costs some time for each datagram.
    unsafe { libc::setsockopt(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, value.cast(), bytes) };
}

fn sender_of(name: &libc::sockaddr_in) -> Option<SocketAddrV4> {
    let ip = Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr));
    let is_ipv4 = i32::from(name.sin_family) == libc::AF_INET;
    is_ipv4.then(|| SocketAddrV4::new(ip, u16::from_be(name.sin_port)))
}

#[cfg(test)]
mod tests {
    //! Shows when a datagram without a stamp came.
    use super::*;

    #[test]
    fn what_has_no_stamp_came_when_the_socket_was_empty_or_later() {
        let asked_ns = 5_000_000_000;
        let emptied = Emptied { at_ns: AtomicU64::new(0), asked_ns };
        let came = |since_ns: u64| emptied.came(None, since_ns, 60_000_000_000);
        for (emptied_ns, at_ns) in [
            // The kernel has just begun to stamp, or nobody knows since when a socket that was handed over has what.
            (0, 0),
            (asked_ns, asked_ns),
            (asked_ns + 999_999_999, asked_ns + 999_999_999),
            // It never does.
            (asked_ns + 1_000_000_000, 60_000_000_000),
            (asked_ns + 50_000_000_000, 60_000_000_000),
        ] {
            assert_eq!(came(emptied_ns), Came { at_ns, is_told: false });
        }
    }
}
