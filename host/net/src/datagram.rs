//! UDP sockets, and raw ones that send in another's name.

use crate::datagram_batch::{self, BATCH_MAX, DatagramBatch, Emptied};
use crate::kernel_stamps;
use quinn_udp::{Transmit, UdpSocketState};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind,
    getsockname, ipproto, sendmmsg, socket_with, sockopt,
};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A non-blocking UDP socket over IPv4.
#[derive(Debug)]
pub struct Datagrams {
    fd: OwnedFd,
    state: UdpSocketState,
    emptied: Emptied,
}

/// A socket whose datagrams say whatever source they are given. Needs CAP_NET_RAW.
#[derive(Debug)]
pub struct RawDatagrams {
    fd: OwnedFd,
    /// What goes out next, headers and all, one behind the other.
    contents: Vec<u8>,
}

/// A datagram to send: its pieces are sent as one.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where to.
    pub to: SocketAddrV4,
    /// What.
    pub pieces: [&'a [u8]; 2],
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

/// Bytes the kernel keeps of what has not been read: bursts of many clients meet here.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// What the kernel cuts into datagrams must itself fit into one.
const RUN_BYTES_MAX: usize = 65_535 - IP_HEADER_BYTES - UDP_HEADER_BYTES;
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
        // Before anything can come.
        kernel_stamps::ask_received(&fd);
        let emptied = Emptied::now();
        bind(&fd, &address)?;
        // As much as the host allows, or with CAP_NET_ADMIN more than that; less is no reason not to run.
        if sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER_BYTES);
        }
        Self::of(fd, emptied)
    }

    /// Goes on with a socket of another process that is bound already.
    ///
    /// # Errors
    /// What the kernel says when it is asked what the socket can do.
    pub fn inherit(fd: OwnedFd) -> io::Result<Self> {
        kernel_stamps::ask_received(&fd);
        Self::of(fd, Emptied::never())
    }

    fn of(fd: OwnedFd, emptied: Emptied) -> io::Result<Self> {
        let state = UdpSocketState::new((&fd).into())?;
        // Nobody looks at the type of service and the address it was sent to, and every datagram would bring them.
        sockopt::set_ip_recvtos(&fd, false)?;
        datagram_batch::ask_no_addresses(&fd);
        // That forbids fragments, as QUIC wants it. A path with less room than Ethernet's cuts our datagrams instead.
        sockopt::set_ip_mtu_discover(&fd, sockopt::Ipv4PathMtuDiscovery::WANT)?;
        Ok(Self { fd, state, emptied })
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

    /// The datagrams that wait, in one call of the kernel; none if none do. Replaces what the batch had.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive_batch(&self, batch: &mut DatagramBatch) -> io::Result<()> {
        loop {
            match batch.receive(&self.fd, &self.emptied) {
                Ok(()) => return Ok(()),
                Err(error) => match error.kind() {
                    // An earlier datagram found nobody: no news about this one.
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Sends datagrams; how many the kernel took. What it did not take is lost, as datagrams may be. Those to one
    /// address keep their order; equal lengths in a row travel through the kernel as one (UDP GSO).
    pub fn send(&self, batch: &[Outgoing<'_>]) -> usize {
        let mut sorted = batch.to_vec();
        sorted.sort_by_key(|one| one.to);
        let (mut sent, mut apart, mut contents) = (0, Vec::new(), Vec::new());
        let mut rest = &sorted[..];
        while let Some(first) = rest.first() {
            let (run, others) = rest.split_at(run_of(rest, self.state.max_gso_segments()));
            rest = others;
            if run.len() == 1 {
                apart.push(*first);
                continue;
            }
            // What this address was to get before it goes first.
            if apart.last().is_some_and(|one: &Outgoing<'_>| one.to == first.to) {
                sent += self.send_apart(&std::mem::take(&mut apart));
            }
            sent += self.send_together(run, &mut contents);
        }
        sent + self.send_apart(&apart)
    }

    /// A run as one: the kernel cuts it into pieces of the first one's length.
    fn send_together(&self, run: &[Outgoing<'_>], contents: &mut Vec<u8>) -> usize {
        contents.clear();
        run.iter().flat_map(|one| one.pieces).for_each(|piece| contents.extend_from_slice(piece));
        let transmit = Transmit {
            destination: run[0].to.into(),
            ecn: None,
            contents,
            segment_size: Some(run[0].bytes()),
            src_ip: None,
        };
        match self.state.try_send((&self.fd).into(), &transmit) {
            Ok(()) => run.len(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            // The way there cannot do this: its packets are shorter, or the device computes no checksums.
            Err(_) => self.send_apart(run),
        }
    }

    fn send_apart(&self, batch: &[Outgoing<'_>]) -> usize {
        batch.chunks(BATCH_MAX).map(|chunk| self.send_chunk(chunk)).sum()
    }

    fn send_chunk(&self, chunk: &[Outgoing<'_>]) -> usize {
        let pieces: Vec<_> = chunk.iter().map(|one| one.pieces.map(IoSlice::new)).collect();
        let pieces: Vec<&[IoSlice<'_>]> = pieces.iter().map(|pieces| &pieces[..]).collect();
        let addresses: Vec<SocketAddrAny> = chunk.iter().map(|one| one.to.into()).collect();
        send_all(self.fd.as_fd(), &addresses, &pieces)
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
                Ok(Some(Self { fd, contents: Vec::new() }))
            }
            Err(Errno::PERM | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends datagrams in their senders' names; how many the kernel took.
    ///
    /// One by one: what a raw socket is given is a packet, which the kernel does not cut (UDP GSO is for its own
    /// datagrams), and with a socket of its own bound to the sender's address a sender on this host would lose its
    /// replies.
    pub fn send(&mut self, batch: &[Disguised<'_>]) -> usize {
        batch.chunks(BATCH_MAX).map(|chunk| self.send_chunk(chunk)).sum()
    }

    fn send_chunk(&mut self, chunk: &[Disguised<'_>]) -> usize {
        self.contents.clear();
        for one in chunk {
            self.contents.extend_from_slice(&headers(one));
            self.contents.extend_from_slice(one.datagram);
        }
        let mut rest = &self.contents[..];
        let pieces: Vec<_> = chunk
            .iter()
            .map(|one| {
                let (packet, others) = rest.split_at(IP_HEADER_BYTES + UDP_HEADER_BYTES + one.datagram.len());
                rest = others;
                [IoSlice::new(packet)]
            })
            .collect();
        let pieces: Vec<&[IoSlice<'_>]> = pieces.iter().map(|pieces| &pieces[..]).collect();
        // The kernel takes the port from the header; the address decides the way.
        let addresses: Vec<SocketAddrAny> =
            chunk.iter().map(|one| SocketAddrV4::new(*one.to.ip(), 0).into()).collect();
        send_all(self.fd.as_fd(), &addresses, &pieces)
    }
}

impl Outgoing<'_> {
    fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}

/// How many of a batch, from the first on, can go as one: to one address, of one length, and the last may be shorter.
fn run_of(batch: &[Outgoing<'_>], count_max: usize) -> usize {
    let (to, bytes) = (batch[0].to, batch[0].bytes());
    let count_max = count_max.min(RUN_BYTES_MAX / bytes.max(1)).min(batch.len());
    let equal = batch.iter().take(count_max).take_while(|one| one.to == to && one.bytes() == bytes).count();
    let last = batch.get(equal).filter(|one| equal < count_max && one.to == to && one.bytes() < bytes);
    let short = last.is_some_and(|one| one.bytes() > 0);
    if bytes == 0 { 1 } else { (equal + usize::from(short)).max(1) }
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
