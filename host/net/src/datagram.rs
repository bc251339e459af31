//! UDP sockets, and raw ones that send in another's name.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags,
    SocketType, bind, getsockname, ipproto, recvfrom, sendmmsg, socket_with, sockopt,
};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A non-blocking UDP socket over IPv4.
#[derive(Debug)]
pub struct Datagrams {
    fd: OwnedFd,
}

/// A socket whose datagrams say whatever source they are given. Needs CAP_NET_RAW.
#[derive(Debug)]
pub struct RawDatagrams {
    fd: OwnedFd,
}

/// A datagram to send: its pieces are sent as one.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where to.
    pub to: SocketAddrV4,
    /// What.
    pub pieces: [&'a [u8]; 2],
}

/// Datagrams received together.
#[derive(Debug, Default)]
pub struct DatagramBatch {
    buffer: Vec<u8>,
    /// Sender and length of each; they lie one behind the other.
    received: Vec<(SocketAddrV4, usize)>,
}

/// A datagram to send in the name of `from`.
#[derive(Clone, Copy, Debug)]
pub struct Disguised<'a> {
    /// Whose.
    pub from: SocketAddrV4,
    /// Where to.
    pub to: SocketAddrV4,
    /// What.
    pub datagram: &'a [u8],
}

/// Datagrams given to the kernel at once. More gain nothing: the cost of the call is spread thin by then.
const BATCH_MAX: usize = 32;
/// Room for one datagram: more than fits an Ethernet frame. What is longer is cut, and refused as too long.
const DATAGRAM_BYTES_MAX: usize = 2048;
/// Bytes the kernel keeps of what has not been read: bursts of many clients meet here.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
const IP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

impl Datagrams {
    /// A socket on an address; port 0 is any.
    ///
    /// # Errors
    /// What the kernel says: the address is taken, or not this host's.
    pub fn bind(address: SocketAddrV4) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        bind(&fd, &address)?;
        // As much as the host allows; less is no reason not to run.
        let _ = sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER_BYTES);
        Ok(Self { fd })
    }

    /// The address it has.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> io::Result<SocketAddrV4> {
        match SocketAddr::try_from(getsockname(&self.fd)?) {
            Ok(SocketAddr::V4(address)) => Ok(address),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next datagram: its length and its sender; `None` if there is none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddrV4)>> {
        loop {
            match recvfrom(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((_, bytes, from)) => match from.map(SocketAddr::try_from) {
                    Some(Ok(SocketAddr::V4(from))) => return Ok(Some((bytes, from))),
                    _ => continue,
                },
                Err(Errno::AGAIN) => return Ok(None),
                // An earlier datagram found nobody: no news about this one.
                Err(Errno::INTR | Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The datagrams that wait, up to a batch of them; none if none do. Replaces what the batch had.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive_batch(&self, batch: &mut DatagramBatch) -> io::Result<()> {
        batch.received.clear();
        batch.buffer.resize(BATCH_MAX * DATAGRAM_BYTES_MAX, 0);
        let mut at = 0;
        while batch.received.len() < BATCH_MAX {
            let Some((bytes, from)) = self.receive(&mut batch.buffer[at..at + DATAGRAM_BYTES_MAX])? else {
                break;
            };
            batch.received.push((from, bytes));
            at += bytes;
        }
        Ok(())
    }

    /// Sends datagrams; how many the kernel took. What it did not take is lost, as datagrams may be.
    pub fn send(&self, batch: &[Outgoing<'_>]) -> usize {
        batch.chunks(BATCH_MAX).map(|chunk| self.send_chunk(chunk)).sum()
    }

    fn send_chunk(&self, chunk: &[Outgoing<'_>]) -> usize {
        let pieces: Vec<_> = chunk.iter().map(|one| one.pieces.map(IoSlice::new)).collect();
        let pieces: Vec<&[IoSlice<'_>]> = pieces.iter().map(|pieces| &pieces[..]).collect();
        let addresses: Vec<SocketAddrAny> = chunk.iter().map(|one| one.to.into()).collect();
        send_all(self.fd.as_fd(), &addresses, &pieces)
    }
}

impl DatagramBatch {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it has no datagrams.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Its datagrams with their senders, in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddrV4, &[u8])> {
        let mut rest = &self.buffer[..];
        self.received.iter().map(move |(from, bytes)| {
            let (datagram, behind) = rest.split_at(*bytes);
            rest = behind;
            (*from, datagram)
        })
    }
}

impl RawDatagrams {
    /// A raw socket; `None` where the right to have one is missing.
    ///
    /// # Errors
    /// What the kernel says otherwise.
    pub fn open() -> io::Result<Option<Self>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW)) {
            Ok(fd) => {
                // It never reads; whatever the kernel would copy to it is not kept.
                let _ = sockopt::set_socket_recv_buffer_size(&fd, 0);
                Ok(Some(Self { fd }))
            }
            Err(Errno::PERM | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends datagrams in their senders' names; how many the kernel took.
    pub fn send(&self, batch: &[Disguised<'_>]) -> usize {
        batch.chunks(BATCH_MAX).map(|chunk| self.send_chunk(chunk)).sum()
    }

    fn send_chunk(&self, chunk: &[Disguised<'_>]) -> usize {
        let headers: Vec<_> = chunk.iter().map(headers).collect();
        let pieces: Vec<_> = chunk
            .iter()
            .zip(&headers)
            .map(|(one, headers)| [IoSlice::new(headers), IoSlice::new(one.datagram)])
            .collect();
        let pieces: Vec<&[IoSlice<'_>]> = pieces.iter().map(|pieces| &pieces[..]).collect();
        // The kernel takes the port from the header; the address decides the way.
        let addresses: Vec<SocketAddrAny> =
            chunk.iter().map(|one| SocketAddrV4::new(*one.to.ip(), 0).into()).collect();
        send_all(self.fd.as_fd(), &addresses, &pieces)
    }
}

/// Hands a chunk to the kernel; a datagram it refuses is skipped.
fn send_all(fd: BorrowedFd<'_>, addresses: &[SocketAddrAny], pieces: &[&[IoSlice<'_>]]) -> usize {
    let (mut sent, mut at) = (0, 0);
    while at < addresses.len() {
        let mut controls: Vec<_> = addresses[at..].iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<_> = addresses[at..]
            .iter()
            .zip(&pieces[at..])
            .zip(&mut controls)
            .map(|((address, pieces), control)| MMsgHdr::new_with_addr(address, pieces, control))
            .collect();
        match sendmmsg(fd, &mut messages, SendFlags::NOSIGNAL) {
            Ok(count) => {
                sent += count;
                at += count.max(1);
            }
            Err(Errno::INTR) => {}
            Err(_) => at += 1,
        }
    }
    sent
}

/// IPv4 and UDP headers of a datagram. The kernel fills in length, identification and the header's checksum.
fn headers(one: &Disguised<'_>) -> [u8; IP_HEADER_BYTES + UDP_HEADER_BYTES] {
    const DONT_FRAGMENT: u8 = 0x40;
    const HOPS: u8 = 64;
    const UDP: u8 = 17;
    let mut out = [0; IP_HEADER_BYTES + UDP_HEADER_BYTES];
    let udp_bytes = (UDP_HEADER_BYTES + one.datagram.len()) as u16;
    let all_bytes = IP_HEADER_BYTES as u16 + udp_bytes;
    out[0] = 0x45;
    out[2..4].copy_from_slice(&all_bytes.to_be_bytes());
    out[6] = DONT_FRAGMENT;
    out[8] = HOPS;
    out[9] = UDP;
    out[12..16].copy_from_slice(&one.from.ip().octets());
    out[16..20].copy_from_slice(&one.to.ip().octets());
    out[20..22].copy_from_slice(&one.from.port().to_be_bytes());
    out[22..24].copy_from_slice(&one.to.port().to_be_bytes());
    out[24..26].copy_from_slice(&udp_bytes.to_be_bytes());
    let sum = sum_of(&out[12..20]) + sum_of(&out[20..28]) + sum_of(one.datagram);
    let checksum = !folded(sum + u64::from(UDP) + u64::from(udp_bytes));
    // Zero would say that there is none (RFC 768).
    out[26..28].copy_from_slice(&(if checksum == 0 { u16::MAX } else { checksum }).to_be_bytes());
    out
}

/// The sum of 16-bit words of RFC 1071, not folded.
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |last| u64::from(*last) << 8);
    words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + odd
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
