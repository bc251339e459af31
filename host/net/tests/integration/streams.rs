//! Shows streams, listeners and the poller over loopback TCP and Unix sockets: connect, transfer, end, refuse, clean
//! up.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sendmsg};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use trunkline_net::{BindError, Endpoint, Interest, Listener, Poller, Ready, Stream, Token, Transfer};

/// Long enough that only a broken test runs into it; nothing is asserted about how long a wait took.
const WATCHDOG_NS: u64 = 120_000_000_000;

fn tcp() -> Endpoint {
    "tcp://localhost:0".parse().unwrap()
}

fn unix(folder: &tempfile::TempDir) -> Endpoint {
    Endpoint::unix(folder.path().join("a.sock")).unwrap()
}

/// Waits until `token` is ready in the way asked for.
fn wait_for(poller: &Poller, token: Token, writable: bool) {
    loop {
        let mut ready = looked(poller, WATCHDOG_NS).into_iter().peekable();
        assert!(ready.peek().is_some(), "nothing became ready");
        if ready.any(|ready| ready.token == token && (if writable { ready.writable } else { ready.readable }))
        {
            return;
        }
    }
}

/// A connected pair: the connecting and the accepted side.
fn pair(listener: &Listener) -> (Stream, Stream) {
    let poller = Poller::new().unwrap();
    let client = Stream::connect(listener.endpoint()).unwrap();
    poller.add(&client, Token(1), Interest::ReadWrite).unwrap();
    wait_for(&poller, Token(1), true);
    assert!(client.finish_connect().unwrap());
    poller.remove(&client).unwrap();
    poller.add(listener, Token(2), Interest::Read).unwrap();
    wait_for(&poller, Token(2), false);
    let accepted = listener.accept().unwrap().expect("a stream waits");
    assert!(listener.accept().unwrap().is_none());
    (client, accepted.stream)
}

fn read_some(stream: &mut Stream, buffer: &mut [u8]) -> Transfer {
    let poller = Poller::new().unwrap();
    poller.add(&*stream, Token(0), Interest::Read).unwrap();
    wait_for(&poller, Token(0), false);
    stream.read(buffer).unwrap()
}

fn transfer_both_ways(endpoint: &Endpoint) {
    let listener = Listener::bind(endpoint, false).unwrap();
    let (mut client, mut server) = pair(&listener);
    let mut buffer = [0; 16];
    assert_eq!(server.read(&mut buffer).unwrap(), Transfer::NotReady);
    let pieces = [IoSlice::new(b"hello"), IoSlice::new(b""), IoSlice::new(b" world")];
    assert_eq!(client.write_vectored(&pieces).unwrap(), Transfer::Bytes(11));
    assert_eq!(read_some(&mut server, &mut buffer[..3]), Transfer::Bytes(3));
    let (mut first, mut second) = ([0; 4], [0; 16]);
    let mut pieces = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(server.read_vectored(&mut pieces).unwrap(), Transfer::Bytes(8));
    assert_eq!((&buffer[..3], &first, &second[..4]), (&b"hel"[..], b"lo w", &b"orld"[..]));
    client.end().unwrap();
    assert_eq!(read_some(&mut server, &mut buffer), Transfer::Ended);
    assert_eq!(server.write_vectored(&[IoSlice::new(b"late")]).unwrap(), Transfer::Bytes(4));
    assert_eq!(read_some(&mut client, &mut buffer), Transfer::Bytes(4));
}

#[test]
fn bytes_go_both_ways_and_ends_are_seen() {
    transfer_both_ways(&tcp());
    transfer_both_ways(&unix(&tempfile::tempdir().unwrap()));
}

#[test]
fn a_full_socket_says_not_ready_and_a_gone_peer_is_an_error() {
    let listener = Listener::bind(&tcp(), false).unwrap();
    let (mut client, server) = pair(&listener);
    let block = vec![7; 1 << 20];
    let mut written = 0;
    loop {
        match client.write_vectored(&[IoSlice::new(&block)]).unwrap() {
            Transfer::Bytes(count) => written += count,
            Transfer::NotReady => break,
            Transfer::Ended => panic!("a write cannot end"),
        }
        assert!(written < 1 << 30, "loopback takes everything");
    }
    drop(server);
    let error = loop {
        match client.write_vectored(&[IoSlice::new(b"x")]) {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
}

#[test]
fn nobody_listens() {
    // Bound and not listening: nobody else can take the port meanwhile.
    let holder = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&holder, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let port = SocketAddr::try_from(rustix::net::getsockname(&holder).unwrap()).unwrap().into();
    let poller = Poller::new().unwrap();
    let refused = match Stream::connect(&port) {
        Err(error) => error,
        Ok(stream) => {
            poller.add(&stream, Token(1), Interest::ReadWrite).unwrap();
            wait_for(&poller, Token(1), true);
            stream.finish_connect().unwrap_err()
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Stream::connect(&unix(&folder)).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn credentials_tell_who_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&unix(&folder), false).unwrap();
    let (client, server) = pair(&listener);
    let here = i32::try_from(std::process::id()).unwrap();
    for end in [&client, &server] {
        assert_eq!(end.peer_credentials().unwrap().map(|peer| peer.pid), Some(here));
    }
    let listener = Listener::bind(&tcp(), false).unwrap();
    let (client, server) = pair(&listener);
    assert_eq!(server.peer_credentials().unwrap(), None);
    assert_eq!(client.peer_address().unwrap().map(Endpoint::Tcp).as_ref(), Some(listener.endpoint()));
}

/// The last close of one may wait for as long as its sender likes, in the thread that drops the message.
#[test]
fn nobody_sends_descriptors_to_a_stream() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    if trunkline_net::accept_descriptors(&one, true).is_err() {
        eprintln!("descriptors cannot be refused by a kernel before Linux 6.16");
        return;
    }
    let send = |to: &std::os::unix::net::UnixStream| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [one.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(to, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let own = Listener::bind(&unix(&folder), false).unwrap();
    let before = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert_eq!(send(&before), Err(Errno::PERM), "before it is accepted");
    let mut accepted = own.accept().unwrap().unwrap().stream;
    assert_eq!(send(&before), Err(Errno::PERM), "accepted");
    (&before).write_all(b"plain").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(read_some(&mut accepted, &mut buffer), Transfer::Bytes(5));

    // One that listens for another version, and is taken over.
    let path = folder.path().join("b.sock");
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let inherited = Listener::inherit(other.try_clone().unwrap().into(), Endpoint::unix(&path).unwrap());
    let late = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert_eq!(send(&late), Err(Errno::PERM), "taken over");
    drop(inherited);

    let path = folder.path().join("c.sock");
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let dialled = Stream::connect(&Endpoint::unix(&path).unwrap()).unwrap();
    assert_eq!(send(&other.accept().unwrap().0), Err(Errno::PERM), "dialled");
    drop(dialled);
}

#[test]
fn a_socket_file_lives_as_long_as_its_listener() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = unix(&folder);
    let path = endpoint.path().unwrap();
    let first = Listener::bind(&endpoint, false).unwrap();
    assert!(matches!(Listener::bind(&endpoint, false), Err(BindError::InUse { .. })));
    drop(first);
    assert!(!path.exists());

    let mut left_over = Listener::bind(&endpoint, false).unwrap();
    left_over.keep_file();
    drop(left_over);
    assert!(path.exists());
    let second = Listener::bind(&endpoint, false).expect("a leftover is replaced");

    std::fs::remove_file(path).unwrap();
    std::fs::write(path, "precious").unwrap();
    drop(second);
    assert_eq!(std::fs::read(path).unwrap(), b"precious");
    let error = Listener::bind(&endpoint, false).unwrap_err();
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
}

#[test]
fn a_port_is_shared_only_on_request() {
    let alone = Listener::bind(&tcp(), false).unwrap();
    assert!(matches!(Listener::bind(alone.endpoint(), true), Err(BindError::InUse { .. })));
    let shared = Listener::bind(&tcp(), true).unwrap();
    let beside = Listener::bind(shared.endpoint(), true).unwrap();
    assert_eq!(shared.endpoint(), beside.endpoint());
}

#[test]
fn the_poller_tells_what_was_asked_for() {
    let listener = Listener::bind(&tcp(), false).unwrap();
    let (mut client, server) = pair(&listener);
    let poller = Poller::new().unwrap();
    poller.add(&server, Token(7), Interest::Read).unwrap();
    assert_eq!(looked(&poller, 0).len(), 0);
    assert_eq!(looked(&poller, 1).len(), 0);
    client.write_vectored(&[IoSlice::new(b"x")]).unwrap();
    wait_for(&poller, Token(7), false);
    let ready = looked(&poller, WATCHDOG_NS);
    assert_eq!((ready[0].token, ready[0].readable, ready[0].writable), (Token(7), true, false));
    poller.set_interest(&server, Token(8), Interest::Nothing).unwrap();
    assert_eq!(looked(&poller, 0).len(), 0, "reading is paused");
    poller.set_interest(&server, Token(8), Interest::ReadWrite).unwrap();
    wait_for(&poller, Token(8), true);
    drop(client);
    poller.remove(&server).unwrap();
    assert!(poller.remove(&server).is_err());
    assert_eq!(looked(&poller, 0).len(), 0);
}

/// What the poller tells of within the time.
fn looked(poller: &Poller, timeout_ns: u64) -> Vec<Ready> {
    let mut ready = Vec::new();
    poller.wait(Some(timeout_ns), &mut ready).unwrap();
    ready
}
