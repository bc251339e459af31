//! What programs on the network do to a relay's port, beside a pair that goes over the same relay: it has no error, who
//! comes anew is attached, the relay's memory and threads are bounded meanwhile, and everything is given back.

use crate::remote::{CALLER, RELAY, RelayedHost, SERVER};
use crate::support::{Process, until};
use prost::Message;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trunkline_control::{ABI_VERSION, Attach, LinkFrame, RelayHello, Request, request};
use trunkline_net::{Alpn, ClientFiles, Interest, Poller, Stream, TlsClient, Token, Transfer};

/// Where attackers come from.
const OWN_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 66), Ipv4Addr::new(127, 0, 0, 67)];
/// An identity that attaches, and serves and calls nothing.
const ATTACKER: &str = "spiffe://corp/attacker";
/// Connections of a crowd: more than `relay.handshakes_max`, many times.
const CROWD: usize = 1500;
/// Calls of the pair beside an attack.
const CALLS_BESIDE: u64 = 50;
/// A relay that takes nothing more for so long has stopped.
const FULL_FOR: Duration = Duration::from_secs(5);
/// What the allocator keeps, and what the first connections touch.
const KEPT_BYTES_MAX: u64 = 24 * MIB;
const MIB: u64 = 1 << 20;
/// Of the relay under attack: less than the attack wants. And of its daemon, which is to end nobody because a busy host
/// is late with what it has to attach.
const LIMITS: &str = "handshakes_max = 100\nconnections_per_identity_max = 24\nheap_bytes = \"32 MiB\"\n\
                      held_bytes_per_identity_max = \"48 MiB\"\nheld_bytes_max = \"256 MiB\"\n\
                      [sessions]\nattach_ms_max = 300000\n";
/// HELLO as every version understands it.
const CLOCK: u64 = 7;

/// A relay with its pair.
struct Ground {
    relayed: RelayedHost,
    _server: Process,
    pair: Pair,
    before: Held,
}

/// What the relay's process has.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    threads: usize,
    descriptors: usize,
}

/// A program that calls all the time.
struct Pair {
    caller: JoinHandle<Vec<String>>,
    stops: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

/// An attacker's connection on which TLS is agreed upon.
struct Peer {
    stream: Stream,
    poller: Poller,
}

impl Pair {
    fn begin(mut caller: Process) -> Self {
        let (stops, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stops), Arc::clone(&calls));
        let caller = std::thread::spawn(move || {
            let mut errors = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let said = caller.ask("echo well?");
                if said != "OK" {
                    errors.push(said);
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            errors
        });
        Self { caller, stops, calls }
    }

    fn until_more(&self, calls: u64) {
        let before = self.calls.load(Ordering::Relaxed);
        until("calls of the pair", || (self.calls.load(Ordering::Relaxed) >= before + calls).then_some(()));
    }
}

impl Ground {
    fn new() -> Self {
        let relayed = RelayedHost::with_limits(LIMITS);
        let server = relayed.start("server", SERVER);
        let mut caller = relayed.start("client", CALLER);
        assert_eq!(caller.ask("echo first"), "OK");
        let pair = Pair::begin(caller);
        pair.until_more(CALLS_BESIDE);
        let before = held(&relayed);
        Self { relayed, _server: server, pair, before }
    }

    /// What the relay has more than before the attack.
    fn grown_bytes(&self) -> u64 {
        held(&self.relayed).bytes.saturating_sub(self.before.bytes)
    }

    /// The attack stands: the pair goes on, one who comes anew is attached, and the relay has grown by no more.
    fn stands(&self, attack: &str, bytes_max: u64, threads_max: usize) {
        self.pair.until_more(CALLS_BESIDE);
        let began = Instant::now();
        assert_eq!(self.relayed.start("client", CALLER).ask("echo anew"), "OK", "{attack}");
        // A thread whose connection has ended may still be on its way out.
        let more = || held(&self.relayed).threads.saturating_sub(self.before.threads);
        let what = format!("{attack}: {threads_max} threads more at most");
        let threads = until(&what, || Some(more()).filter(|threads| *threads <= threads_max));
        let grown = self.grown_bytes();
        eprintln!(
            "{attack}: {} KiB and {threads} threads more, somebody new served in {:?}",
            grown >> 10,
            began.elapsed()
        );
        assert!(grown <= bytes_max, "{attack}: {grown} bytes, more than {bytes_max}");
    }

    /// The attackers have left: everything is given back.
    fn given_back(&self, attack: &str) {
        let began = Instant::now();
        let Held { bytes, threads, descriptors } = self.before;
        until(&format!("{attack}: everything given back, of {:?}", self.before), || {
            let now = held(&self.relayed);
            let is_less = now.threads <= threads && now.descriptors <= descriptors;
            (is_less && now.bytes <= bytes + KEPT_BYTES_MAX).then_some(())
        });
        eprintln!("{attack}: given back after {:?}", began.elapsed());
    }

    fn end(self) {
        let Self { relayed, pair, .. } = self;
        pair.stops.store(true, Ordering::Relaxed);
        assert_eq!(pair.caller.join().unwrap(), [""; 0], "a good pair is not disturbed");
        drop(relayed);
    }

    fn tcp(&self) -> TcpStream {
        connect(OWN_ADDRESSES[0], self.relayed.endpoint())
    }

    /// A connection of an identity of the relay's authority.
    fn peer(&self, name: &str) -> io::Result<Peer> {
        let [certificate, key] = self.relayed.authority().issue(name);
        self.peer_with(ClientFiles {
            ca: Some(self.relayed.authority().roots()),
            identity: Some((certificate, key)),
            ..ClientFiles::default()
        })
    }

    fn peer_with(&self, files: ClientFiles) -> io::Result<Peer> {
        let tls = TlsClient::load(&files).map_err(io::Error::other)?;
        let mut stream = Stream::inherit(self.tcp().into(), true)?;
        stream.begin_tls_client(&tls, RELAY, &[Alpn::Attach])?;
        let poller = Poller::new()?;
        poller.add(&stream, Token(0), Interest::Read)?;
        let mut peer = Peer { stream, poller };
        while !peer.stream.handshake()? {
            peer.wait()?;
        }
        Ok(peer)
    }

    /// One that has a session, too.
    fn attached(&self) -> io::Result<Peer> {
        let mut peer = self.peer(ATTACKER)?;
        let attach = Attach { abi_version: ABI_VERSION, name: "hostile".into(), ..Attach::default() };
        let request = Request { tag: 1, kind: Some(request::Kind::Attach(attach)) };
        peer.frames(&[hello(), LinkFrame::Packet { packet: &request.encode_to_vec(), heap: false }])?;
        let mut heard = Vec::new();
        while !has_packet(&heard) {
            match peer.hear(&mut heard)? {
                0 => return Err(io::Error::other(format!("refused: {}", String::from_utf8_lossy(&heard)))),
                _ => continue,
            }
        }
        Ok(peer)
    }
}

impl Peer {
    fn wait(&mut self) -> io::Result<()> {
        let interest = if self.stream.wants_write() { Interest::ReadWrite } else { Interest::Read };
        self.poller.set_interest(&self.stream, Token(0), interest)?;
        self.poller.wait(Some(FULL_FOR.as_nanos() as u64 * 10), &mut Vec::new())
    }

    /// Says all of it. The error `WouldBlock`: the relay takes no more.
    fn say(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut full_since = Instant::now();
        while !bytes.is_empty() || self.stream.wants_write() {
            match self.stream.write_vectored(&[io::IoSlice::new(bytes)])? {
                Transfer::Bytes(0) | Transfer::NotReady => {}
                Transfer::Bytes(taken) => {
                    bytes = &bytes[taken..];
                    full_since = Instant::now();
                    continue;
                }
                Transfer::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
            }
            if self.stream.flush()? {
                full_since = Instant::now();
            }
            if full_since.elapsed() > FULL_FOR {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.poller.set_interest(&self.stream, Token(0), Interest::Write)?;
            self.poller.wait(Some(FULL_FOR.as_nanos() as u64), &mut Vec::new())?;
        }
        Ok(())
    }

    fn frames(&mut self, frames: &[LinkFrame<'_>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        self.say(&bytes)
    }

    /// Hears what comes next. How much; nothing at the end.
    fn hear(&mut self, heard: &mut Vec<u8>) -> io::Result<usize> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut buffer)? {
                Transfer::Bytes(bytes) => {
                    heard.extend_from_slice(&buffer[..bytes]);
                    return Ok(bytes);
                }
                Transfer::NotReady => self.wait()?,
                Transfer::Ended => return Ok(0),
            }
        }
    }

    /// Hears to the end. The relay's last words.
    fn last_words(&mut self) -> String {
        let mut heard = Vec::new();
        while self.hear(&mut heard).is_ok_and(|bytes| bytes > 0) {}
        let mut rest = heard.as_slice();
        let mut said = String::new();
        while let Ok(Some((frame, bytes))) = LinkFrame::parse(rest) {
            if let LinkFrame::Close(why) = frame {
                said = why.to_owned();
            }
            rest = &rest[bytes..];
        }
        said
    }
}

/// They would have held too much, which is what they hear.
fn are_told_why(peers: &mut [Peer]) {
    let why =
        format!("{ATTACKER} holds 50331648 bytes at the relay already (relay.held_bytes_per_identity_max)");
    let said: Vec<String> = peers.iter_mut().map(Peer::last_words).collect();
    assert!(said.iter().all(|said| *said == why), "{said:?}");
}

fn hello() -> LinkFrame<'static> {
    LinkFrame::Hello(RelayHello::new(CLOCK))
}

fn has_packet(mut heard: &[u8]) -> bool {
    while let Ok(Some((frame, bytes))) = LinkFrame::parse(heard) {
        if matches!(frame, LinkFrame::Packet { .. }) {
            return true;
        }
        heard = &heard[bytes..];
    }
    false
}

/// A connection from an attacker's address.
fn connect(from: Ipv4Addr, endpoint: &str) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let to: SocketAddr = endpoint.strip_prefix("tcp://").unwrap().parse().unwrap();
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddrV4::new(from, 0)).unwrap();
    connect(&fd, &to).unwrap();
    TcpStream::from(fd)
}

fn held(relayed: &RelayedHost) -> Held {
    let process = relayed.relay().answering_id();
    let count = |what: &str| std::fs::read_dir(format!("/proc/{process}/{what}")).unwrap().count();
    Held { bytes: relayed.relay().resident_bytes(), threads: count("task"), descriptors: count("fd") }
}

/// The first bytes of a crowd: nothing, half of a TLS record's header, a record that promises a hello and never has it,
/// another protocol.
const SAID: [&[u8]; 4] = [b"", &[22, 3], &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3], b"GET / HTTP/1.1\r\n\r\n"];

#[test]
fn a_crowd_that_shows_no_certificate_keeps_out_nobody() {
    let ground = Ground::new();
    let crowd: Vec<TcpStream> = SAID
        .into_iter()
        .cycle()
        .take(CROWD)
        .zip(OWN_ADDRESSES.into_iter().cycle())
        .map(|(said, from)| {
            let mut stream = connect(from, ground.relayed.endpoint());
            // It may have had to give way already.
            let _ = stream.write_all(said);
            stream
        })
        .collect();
    // Whom the attack shows to is one who comes anew.
    ground.stands("crowd", 16 * MIB, 4);
    drop(crowd);
    ground.given_back("crowd");
    // One byte at a time, for as long as it is let.
    let mut slow: Vec<TcpStream> = (0..50).map(|_| ground.tcp()).collect();
    for at in 0..SAID[2].len() {
        slow.iter_mut().for_each(|stream| _ = stream.write_all(&SAID[2][at..=at]));
        ground.pair.until_more(5);
    }
    ground.stands("slow hello", 16 * MIB, 4);
    drop(slow);
    ground.given_back("slow hello");
    ground.end();
}

#[test]
fn who_has_no_rights_holds_nothing() {
    let ground = Ground::new();
    let strangers = crate::remote::Authority::new();
    let [certificate, key] = strangers.issue(SERVER);
    let ca = Some(ground.relayed.authority().roots());
    for identity in [None, Some((certificate, key))] {
        for _ in 0..20 {
            let files = ClientFiles { ca: ca.clone(), identity: identity.clone(), ..ClientFiles::default() };
            // The client's side may be done before the relay has looked at its certificate.
            if let Ok(mut peer) = ground.peer_with(files) {
                assert_eq!(peer.last_words(), "");
            }
        }
    }
    ground.stands("strangers", 16 * MIB, 4);

    // It may attach, and no more of them than one identity may.
    let mut attached = Vec::new();
    let refused = loop {
        let mut peer = ground.peer(ATTACKER).unwrap();
        let known = attached.len();
        if known == 24 {
            break peer.last_words();
        }
        peer.frames(&[hello()]).unwrap();
        attached.push(peer);
        until("a thread for it", || {
            (held(&ground.relayed).threads > ground.before.threads + known).then_some(())
        });
    };
    assert!(refused.contains("24 connections already (relay.connections_per_identity_max)"), "{refused}");
    ground.stands("many of one identity", 64 * MIB, 26);
    drop(attached);
    ground.given_back("many of one identity");
    ground.end();
}

#[test]
fn what_is_no_frame_ends_its_connection_alone() {
    let ground = Ground::new();
    let unknown = [9, 0, 0, 0, 0, 0, 0, 0];
    let too_long = [2, 0, 0, 0, 1, 0, 1, 0];
    let flagged = [5, 1, 0, 0, 64, 0, 0, 0];
    for garbage in [&unknown[..], &too_long, &flagged, &[0xff; 4096]] {
        let mut peer = ground.peer(ATTACKER).unwrap();
        let mut bytes = Vec::new();
        hello().encode(&mut bytes);
        bytes.extend(garbage);
        peer.say(&bytes).unwrap();
        let said = peer.last_words();
        assert!(said.contains("frame of kind"), "{said}");
    }
    let early = [
        LinkFrame::Entry([0; 8]),
        LinkFrame::Bytes { offset: 0, bytes: b"x" },
        LinkFrame::Packet { packet: b"\xff", heap: false },
        LinkFrame::Packet { packet: b"", heap: true },
        hello(),
    ];
    for frame in early {
        let mut peer = ground.peer(ATTACKER).unwrap();
        peer.frames(&[hello(), frame]).unwrap();
        let said = peer.last_words();
        assert!(said.contains("broke the protocol"), "{frame:?}: {said}");
    }
    // Outside the heap, and an entry that is none: of one that has a session.
    let mut peer = ground.attached().unwrap();
    peer.frames(&[LinkFrame::Bytes { offset: u32::MAX, bytes: b"x" }]).unwrap();
    let said = peer.last_words();
    assert!(said.contains("broke the protocol"), "{said}");
    let mut peer = ground.attached().unwrap();
    peer.frames(&[LinkFrame::Entry([u64::MAX; 8])]).unwrap();
    peer.last_words();
    ground.stands("garbage", 32 * MIB, 4);
    ground.given_back("garbage");
    ground.end();
}

#[test]
fn what_is_promised_and_never_comes_is_bounded() {
    let ground = Ground::new();
    let part = vec![7; 64 << 10];
    let mut peers = Vec::new();
    for _ in 0..20 {
        let mut peer = ground.peer(ATTACKER).unwrap();
        peer.frames(&[hello()]).unwrap();
        // 12 MiB of a descriptor set that has no end, and half of a packet. Who is refused is heard out for a moment.
        let _ = (0..192).try_for_each(|_| peer.frames(&[LinkFrame::Blob(&part)]));
        let _ = peer.say(&[2, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3]);
        peers.push(peer);
    }
    // A vector grows by doubling.
    ground.stands("descriptor sets", 2 * 48 * MIB + 32 * MIB, 24);
    // Four are held, as 48 MiB is what one identity may.
    are_told_why(&mut peers[4..]);
    drop(peers);
    ground.given_back("descriptor sets");

    // Bytes of the send heap, for entries that never come.
    let mut peers = Vec::new();
    for _ in 0..10 {
        let mut peer = ground.attached().unwrap();
        let _ = (0..16 * MIB as u32)
            .step_by(part.len())
            .try_for_each(|offset| peer.frames(&[LinkFrame::Bytes { offset, bytes: &part }]));
        peers.push(peer);
    }
    ground.stands("heaps", 48 * MIB + 48 * MIB, 14);
    are_told_why(&mut peers[3..]);
    drop(peers);
    ground.given_back("heaps");
    ground.end();
}

#[test]
fn who_asks_and_never_reads_is_let_go() {
    let ground = Ground::new();
    let mut bytes = Vec::new();
    (0..4096).for_each(|sent_ns| LinkFrame::Ping { sent_ns }.encode(&mut bytes));
    let mut peer = ground.attached().unwrap();
    // More than the kernel keeps for both and the relay for one.
    let said = (0..4096).try_for_each(|_| peer.say(&bytes));
    assert!(said.is_err(), "256 MiB of questions were all taken");
    assert!(ground.grown_bytes() <= 32 * MIB);
    drop(peer);
    ground.stands("questions", 32 * MIB, 4);
    ground.given_back("questions");

    // A program that stands still in the middle of streams, and is killed so.
    let mut reader = ground.relayed.start("client", CALLER);
    reader.tell("scenario thousands of messages from a server");
    reader.stop_for(|| ground.stands("a reader that stands still", 32 * MIB, 8));
    drop(reader);
    ground.given_back("a reader that stands still");
    ground.end();
}

#[test]
fn who_leaves_in_the_middle_leaves_nothing() {
    let ground = Ground::new();
    for round in 0..60 {
        let mut stream = ground.tcp();
        stream.write_all(&SAID[2][..round % SAID[2].len()]).unwrap();
        if round % 2 == 0 {
            // With bytes unread, so that it ends by a reset.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = stream.read(&mut [0]);
        }
    }
    for round in 0..24 {
        let mut peer = ground.attached().unwrap();
        let mut bytes = Vec::new();
        LinkFrame::Bytes { offset: 0, bytes: &[7; 4096] }.encode(&mut bytes);
        peer.say(&bytes[..bytes.len() - round * 171]).unwrap();
    }
    ground.stands("leavers", 48 * MIB, 26);
    ground.given_back("leavers");
    ground.end();
}
