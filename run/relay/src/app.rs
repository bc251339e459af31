//! The application's side: stands in for the daemon beside an application.

use crate::ends::{SessionEnd, TakenEntry};
use crate::error::LinkError;
use crate::lent::{LentBlocks, place_of};
use crate::offset::LinkClock;
use crate::output::LinkOutput;
use crate::place::RemotePlace;
use crate::pump::LinkPump;
use prost::Message;
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use trunkline_call::entry::{Completion, Entry, Span, Submission};
use trunkline_control::{
    Attached, DESCRIPTOR_SET_BYTES_MAX, Detached, FRAME_PART_BYTES_MAX, LinkFrame, Moved, Reply,
    decode_reply, reply,
};
use trunkline_net::{Alpn, ClientFiles, Endpoint, Interest, Poller, Stream, TlsClient, Token};
use trunkline_shm::{
    ControlSocket, HEAP_NUMBERS, RelayedDaemonEnd, RelayedHeap, SessionConfig, create_relayed_heap,
    create_relayed_session, monotonic_ns, read_blob,
};

/// Environment variables: the application's certificate and key, and the roots of relays' certificates (the system's,
/// if it is not set). PEM.
const CERTIFICATE_VARIABLE: &str = "TRUNKLINE_TLS_CERTIFICATE";
const KEY_VARIABLE: &str = "TRUNKLINE_TLS_KEY";
const CA_VARIABLE: &str = "TRUNKLINE_TLS_CA";

/// Time to connect and to agree on TLS: less than a library waits for an attach.
const CONNECT_NS_MAX: u64 = 4_500_000_000;
/// Receive heaps kept: the newest, and those from which entries may still be on their way.
const HEAPS_KEPT: usize = 4;

/// A control socket behind which a thread carries everything to the relay at `place` and back. What goes wrong is told
/// there, as a daemon would.
///
/// # Errors
/// The system has no thread or socket left.
pub fn attach(place: &RemotePlace) -> io::Result<ControlSocket> {
    let (theirs, ours) = ControlSocket::pair().map_err(io::Error::other)?;
    let place = place.clone();
    let carry = move || {
        let why = match connect(&place) {
            Ok(stream) => {
                let end = AppSide::default();
                let copy = ours.as_fd().try_clone_to_owned().map(ControlSocket::from);
                let pump = copy.map_err(LinkError::from).and_then(|control| {
                    LinkPump::new(end, stream, control, true, Arc::new(AtomicBool::new(false)))
                });
                match pump {
                    Ok(pump) => pump.run().0,
                    Err(why) => why,
                }
            }
            Err(why) => why,
        };
        tracing::debug!(%place, %why, "relayed session ended");
        let kind = reply::Kind::Detached(Detached { reason: format!("{place}: {why}") });
        // It may have left.
        let _ = ours.send(&Reply { tag: 0, kind: Some(kind) }.encode_to_vec(), &[]);
    };
    std::thread::Builder::new().name("trunkline-link".into()).spawn(carry)?;
    Ok(theirs)
}

/// A connection to the relay, over TLS, with the application's certificate.
fn connect(place: &RemotePlace) -> Result<Stream, LinkError> {
    let tls = TlsClient::load(&files()?).map_err(io::Error::other)?;
    let addresses: Vec<SocketAddr> = place.address().to_socket_addrs()?.collect();
    let until_ns = monotonic_ns() + CONNECT_NS_MAX;
    let stream = first_that_answers(&addresses, until_ns, |stream, until_ns| {
        secured(stream, &tls, place.name(), until_ns)
    })?;
    Ok(stream)
}

/// Tries addresses one after the other. One that does not answer leaves the others their parts of the time.
fn first_that_answers(
    addresses: &[SocketAddr],
    until_ns: u64,
    secured: impl Fn(Stream, u64) -> io::Result<Stream>,
) -> io::Result<Stream> {
    let mut whys = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let now_ns = monotonic_ns();
        let until_ns = now_ns + until_ns.saturating_sub(now_ns) / (addresses.len() - index) as u64;
        let stream = Stream::connect(&Endpoint::Tcp(*address)).and_then(|stream| connected(stream, until_ns));
        match stream.and_then(|stream| secured(stream, until_ns)) {
            Ok(stream) => return Ok(stream),
            Err(error) => whys.push((address, error)),
        }
    }
    match whys.pop() {
        None => Err(io::Error::other("the name stands for no address")),
        Some((_, why)) if whys.is_empty() => Err(why),
        Some(last) => {
            whys.push(last);
            let whys: Vec<_> = whys.iter().map(|(address, why)| format!("{address}: {why}")).collect();
            Err(io::Error::other(whys.join("; ")))
        }
    }
}

fn files() -> io::Result<ClientFiles> {
    let named = |variable| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (Some(certificate), Some(key)) = (named(CERTIFICATE_VARIABLE), named(KEY_VARIABLE)) else {
        let why = format!(
            "{CERTIFICATE_VARIABLE} and {KEY_VARIABLE} must name this application's certificate and key"
        );
        return Err(io::Error::other(why));
    };
    Ok(ClientFiles { ca: named(CA_VARIABLE), identity: Some((certificate, key)), ..ClientFiles::default() })
}

fn connected(stream: Stream, until_ns: u64) -> io::Result<Stream> {
    let poller = Poller::new()?;
    poller.add(&stream, Token(0), Interest::Write)?;
    loop {
        // Not before it is writable: the socket has no error until then, and no peer.
        wait(&poller, until_ns)?;
        if stream.finish_connect()? {
            return Ok(stream);
        }
    }
}

fn secured(mut stream: Stream, tls: &TlsClient, name: &str, until_ns: u64) -> io::Result<Stream> {
    stream.begin_tls_client(tls, name, &[Alpn::Attach])?;
    let poller = Poller::new()?;
    poller.add(&stream, Token(0), Interest::Read)?;
    while !stream.handshake()? {
        let interest = if stream.wants_write() { Interest::ReadWrite } else { Interest::Read };
        poller.set_interest(&stream, Token(0), interest)?;
        wait(&poller, until_ns)?;
    }
    if stream.alpn() != Some(Alpn::Attach) {
        return Err(io::Error::other("who answers there is no relay"));
    }
    Ok(stream)
}

fn wait(poller: &Poller, until_ns: u64) -> io::Result<()> {
    let left_ns = until_ns.saturating_sub(monotonic_ns());
    if left_ns == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    poller.wait(Some(left_ns), &mut Vec::new())
}

/// The side of the application.
#[derive(Debug, Default)]
pub(crate) struct AppSide {
    session: Option<NearSession>,
    offset: Option<LinkClock>,
    packet: Vec<u8>,
}

/// The session that was made here.
#[derive(Debug)]
struct NearSession {
    end: RelayedDaemonEnd,
    /// The receive heaps there have been since, with their numbers; the newest last.
    heaps: Vec<(u32, RelayedHeap)>,
    lent: LentBlocks,
}

impl AppSide {
    fn session(&mut self) -> Result<&mut NearSession, LinkError> {
        self.session.as_mut().ok_or_else(|| LinkError::Protocol("entries before the session is there".into()))
    }

    /// Makes the session as the daemon has made its own.
    fn open(&mut self, attached: &Attached, packet: &[u8], control: &ControlSocket) -> Result<(), LinkError> {
        if self.session.is_some() {
            return Err(LinkError::Protocol("attached twice".into()));
        }
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let config = SessionConfig {
            submission_entries: attached.submission_entries,
            completion_entries: attached.completion_entries,
            send_heap_bytes: bytes(attached.send_heap_bytes),
            receive_heap_bytes: bytes(attached.receive_heap_bytes),
        };
        let (end, fds) = create_relayed_session(&config)?;
        control.send(packet, &fds.as_fds())?;
        self.session = Some(NearSession { end, heaps: Vec::new(), lent: LentBlocks::default() });
        Ok(())
    }

    /// Another receive heap, or the word that the one before is not used any more.
    fn moved(
        &mut self,
        moved: &Moved,
        heap: bool,
        packet: &[u8],
        control: &ControlSocket,
    ) -> Result<(), LinkError> {
        let session = self.session()?;
        let Moved { receive_heap_bytes, heap_number } = *moved;
        if !heap {
            session.heaps.retain(|(number, _)| *number == heap_number);
            return Ok(control.send(packet, &[])?);
        }
        if heap_number >= HEAP_NUMBERS {
            return Err(LinkError::Protocol(format!("receive heap number {heap_number}")));
        }
        let (heap, fd) = create_relayed_heap(u32::try_from(receive_heap_bytes).unwrap_or(u32::MAX))?;
        session.heaps.retain(|(number, _)| *number != heap_number);
        session.heaps.push((heap_number, heap));
        if session.heaps.len() > HEAPS_KEPT {
            session.heaps.remove(0);
        }
        Ok(control.send(packet, &[fd.as_fd()])?)
    }
}

impl NearSession {
    fn heap(&self, number: u32) -> Option<&RelayedHeap> {
        let later = self.heaps.iter().rfind(|(known, _)| *known == number).map(|(_, heap)| heap);
        later.or_else(|| (number == 0).then_some(&self.end.receive_heap))
    }
}

impl SessionEnd for AppSide {
    fn greeted(&mut self, same_clock: bool) {
        self.offset = Some(LinkClock::new(same_clock));
    }

    fn clock_told(&mut self, sent_ns: u64, clock_ns: u64) {
        if let Some(offset) = &mut self.offset {
            offset.answered(sent_ns, clock_ns, monotonic_ns());
        }
    }

    fn take(&mut self) -> Result<Option<TakenEntry>, LinkError> {
        let shift = self.offset.as_ref().map(LinkClock::shift).unwrap_or_default();
        let Some(session) = &mut self.session else { return Ok(None) };
        let Some(entry) = session.end.submissions.pop()? else { return Ok(None) };
        let submission = Submission::decode(&entry)
            .map_err(|error| LinkError::Protocol(format!("the application's entry: {error:?}")))?;
        if let Submission::Release { block, metadata, .. } = submission {
            [block, metadata].into_iter().filter(|span| span.len > 0).for_each(|span| {
                session.lent.give_back(span.offset);
            });
        }
        Ok(Some(TakenEntry { entry: submission.shifted(shift).encode(), spans: submission.carries() }))
    }

    fn copy_out(&self, offset: u32, into: &mut [u8]) -> Result<(), LinkError> {
        let session = self.session.as_ref().ok_or(LinkError::Left("there is no session"))?;
        Ok(session.end.send_heap.copy_out(offset, into)?)
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), LinkError> {
        let session = self.session()?;
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (number, first) = place_of(Span { offset, len });
        if !session.lent.is_free(first, len) {
            return Err(LinkError::Protocol(format!("bytes at {offset}, where the application has a block")));
        }
        let heap = session.heap(number);
        let heap = heap.ok_or_else(|| LinkError::Protocol(format!("bytes for receive heap {number}")))?;
        Ok(heap.write(first, bytes)?)
    }

    fn put(&mut self, entry: Entry) -> Result<bool, LinkError> {
        let shift = self.offset.as_ref().map(LinkClock::shift).unwrap_or_default().reversed();
        let session = self.session()?;
        if session.end.completions.is_full()? {
            return Ok(false);
        }
        let completion = Completion::decode(&entry)
            .map_err(|error| LinkError::Protocol(format!("the daemon's entry: {error:?}")))?;
        if !completion.lends().into_iter().all(|block| session.lent.lend(block)) {
            return Err(LinkError::Protocol("a block on one that the application has".into()));
        }
        session.end.completions.stage(&completion.shifted(shift).encode())?;
        Ok(true)
    }

    fn publish(&mut self) -> Result<(), LinkError> {
        let RelayedDaemonEnd { completions, peer_doorbell, .. } = &mut self.session()?.end;
        Ok(peer_doorbell.publish(completions).map_err(io::Error::from)?)
    }

    fn arm(&mut self) -> Result<bool, LinkError> {
        self.session.as_mut().map_or(Ok(true), |session| Ok(session.end.submissions.arm()?))
    }

    fn disarm(&mut self) {
        if let Some(session) = &mut self.session {
            session.end.submissions.disarm();
            let _ = session.end.own_doorbell.quiet();
        }
    }

    fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(|session| session.end.own_doorbell.as_fd())
    }

    fn say(&mut self, control: &ControlSocket, output: &mut LinkOutput) -> Result<bool, LinkError> {
        let mut packet = std::mem::take(&mut self.packet);
        let fds = match control.recv(&mut packet, 1) {
            Ok(Some(fds)) => fds,
            Ok(None) => return Err(LinkError::Left("the application has left")),
            Err(error) if error.would_block() => {
                self.packet = packet;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(fd) = fds.first() {
            let set = read_blob(fd, DESCRIPTOR_SET_BYTES_MAX)
                .map_err(|error| LinkError::Protocol(format!("descriptor set: {error}")))?;
            set.chunks(FRAME_PART_BYTES_MAX).for_each(|part| output.push(&LinkFrame::Blob(part)));
        }
        output.push(&LinkFrame::Packet { packet: &packet, heap: false });
        self.packet = packet;
        Ok(true)
    }

    fn keep(&mut self, _blob_bytes: usize) -> Result<(), LinkError> {
        Err(LinkError::Protocol("a descriptor set from a relay".into()))
    }

    fn hear(
        &mut self,
        packet: &[u8],
        heap: bool,
        blob: Vec<u8>,
        control: &ControlSocket,
    ) -> Result<(), LinkError> {
        if !blob.is_empty() {
            return Err(LinkError::Protocol("a descriptor set from a daemon".into()));
        }
        match decode_reply(packet).map_err(|error| LinkError::Protocol(error.to_string()))? {
            (_, reply::Kind::Attached(attached)) => self.open(&attached, packet, control),
            (_, reply::Kind::Moved(moved)) => self.moved(&moved, heap, packet, control),
            (_, reply::Kind::Bound(_) | reply::Kind::Detached(_)) => Ok(control.send(packet, &[])?),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that an address where nobody answers takes no time from the others of a name.
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, listen, socket};
    use std::net::TcpListener;

    /// An address whose listener takes nobody any more: its queue is full, and a SYN is dropped there.
    fn silent() -> (SocketAddr, Vec<rustix::fd::OwnedFd>) {
        let tcp = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let listener = tcp();
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        let first = tcp();
        connect(&first, &address).unwrap();
        (address, vec![listener, first])
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_the_next_its_time() {
        let (silent, _held) = silent();
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [silent, good.local_addr().unwrap()];
        let until_ns = monotonic_ns() + 2_000_000_000;
        let had = |stream: Stream, until_ns: u64| {
            assert!(until_ns > monotonic_ns(), "there is time for what comes then");
            Ok(stream)
        };
        let stream = first_that_answers(&addresses, until_ns, had).unwrap();
        assert_eq!(stream.peer_address().unwrap(), Some(addresses[1]));
        let why = first_that_answers(&addresses[..1], monotonic_ns(), had).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        let all = first_that_answers(&[silent, silent], monotonic_ns(), had).unwrap_err().to_string();
        assert_eq!(all.matches(&silent.to_string()).count(), 2, "{all}");
    }
}
