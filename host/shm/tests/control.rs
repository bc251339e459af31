//! Control sockets: packets and descriptors cross whole or not at all, whatever the other side sends.
#![cfg(not(loom))]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};
use trunkline_shm::{
    BlobError, ControlError, ControlListener, ControlSocket, PACKET_BYTES_MAX, PACKET_FDS_MAX, RegionFault,
    create_blob, read_blob,
};

/// Open descriptors of this process that lead to memfds named `name`: tests of one binary run side by side.
fn open_memfds(name: &str) -> usize {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| std::fs::read_link(entry.path()));
    links.flatten().filter(|link| link.to_string_lossy().contains(name)).count()
}

fn memfd(name: &str) -> rustix::fd::OwnedFd {
    rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

/// What a peer that does not use this crate can send.
fn send_raw(socket: &ControlSocket, packet: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn packets_keep_their_borders() {
    let (one, other) = ControlSocket::pair().unwrap();
    let largest = vec![7; PACKET_BYTES_MAX];
    for packet in [b"first".as_slice(), b"s", &largest] {
        one.send(packet, &[]).unwrap();
    }
    let mut packet = vec![1; 3];
    for expected in [b"first".as_slice(), b"s", &largest] {
        assert!(other.recv(&mut packet, 0).unwrap().unwrap().is_empty());
        assert_eq!(packet, expected);
    }
    drop(one);
    assert!(other.recv(&mut packet, 0).unwrap().is_none(), "closed");
}

#[test]
fn descriptors_arrive_close_on_exec() {
    let (one, other) = ControlSocket::pair().unwrap();
    let sent = memfd("cloexec");
    one.send(b"fds", &[sent.as_fd(); PACKET_FDS_MAX]).unwrap();
    let fds = other.recv(&mut Vec::new(), PACKET_FDS_MAX).unwrap().unwrap();
    assert_eq!(fds.len(), PACKET_FDS_MAX);
    assert!(fds.iter().all(|fd| fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC)));
}

/// A side that closes without having read what we sent loses nothing of what it sent: its last word arrives, then
/// the end.
#[test]
fn the_last_word_of_a_side_that_did_not_listen_arrives() {
    let (one, other) = ControlSocket::pair().unwrap();
    other.send(b"a question", &[]).unwrap();
    one.send(b"no room", &[]).unwrap();
    drop(one);
    assert!(other.send(b"another", &[]).unwrap_err().is_closed());
    let mut packet = Vec::new();
    assert!(other.recv(&mut packet, 0).unwrap().unwrap().is_empty());
    assert_eq!(packet, b"no room");
    assert!(other.recv(&mut packet, 0).unwrap().is_none());
}

/// Every limit is kept on sending.
#[test]
fn what_cannot_be_sent_is_refused() {
    let (one, _other) = ControlSocket::pair().unwrap();
    let fd = memfd("unsent");
    assert!(matches!(one.send(b"", &[]), Err(ControlError::PacketBytes { bytes: 0 })));
    assert!(matches!(one.send(&[0; PACKET_BYTES_MAX + 1], &[]), Err(ControlError::PacketBytes { .. })));
    let too_many = [fd.as_fd(); PACKET_FDS_MAX + 1];
    assert!(matches!(one.send(b"x", &too_many), Err(ControlError::Descriptors { .. })));
}

/// A packet beyond the limit is an error and does not come in part; the next one arrives.
#[test]
fn an_oversized_packet_is_an_error() {
    let (one, other) = ControlSocket::pair().unwrap();
    send(&one, &[9; PACKET_BYTES_MAX + 1], SendFlags::NOSIGNAL).unwrap();
    one.send(b"next", &[]).unwrap();
    let mut packet = Vec::new();
    assert!(matches!(other.recv(&mut packet, 0), Err(ControlError::Oversized)));
    assert!(packet.is_empty());
    other.recv(&mut packet, 0).unwrap().unwrap();
    assert_eq!(packet, b"next");
}

/// Descriptors nobody asked for are closed, and the packet that brought them is an error.
#[test]
fn unasked_descriptors_are_closed() {
    let (one, other) = ControlSocket::pair().unwrap();
    let fd = memfd("trunkline-unasked");
    for (sent, asked) in [(1, 0), (2, 1), (PACKET_FDS_MAX, 5), (60, PACKET_FDS_MAX)] {
        send_raw(&one, b"x", &vec![fd.as_fd(); sent]);
        let answer = other.recv(&mut Vec::new(), asked);
        assert!(
            matches!(answer, Err(ControlError::Descriptors { limit }) if limit == asked),
            "{sent} for {asked}"
        );
        assert_eq!(open_memfds("trunkline-unasked"), 1, "{sent} for {asked}");
    }
}

/// A descriptor whose close waits for as long as its sender likes: a socket that lingers over what its peer does not
/// read. Closing `peer` ends that.
fn lingering() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &stream, &[0; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::from_secs(100_000))).unwrap();
    (stream, peer)
}

/// Neither reading what a hostile side sent nor closing its connection closes a descriptor of its: that might wait.
#[test]
fn descriptors_whose_close_waits_are_closed_by_somebody_else() {
    let mut closing = Vec::new();
    let mut peers = Vec::new();
    let mut send = |socket: &ControlSocket, packet: &[u8]| {
        let (stream, peer) = lingering();
        peers.push(peer);
        send_raw(socket, packet, &[stream.as_fd()]);
    };
    for packet in [b"x".as_slice(), b"", &[1; PACKET_BYTES_MAX + 1]] {
        let (one, other) = ControlSocket::pair().unwrap();
        send(&one, packet);
        let heard = other.recv_apart(&mut Vec::new(), 0, &mut closing);
        assert!(matches!(heard, Ok(None) | Err(ControlError::Descriptors { .. } | ControlError::Oversized)));
    }
    assert_eq!(closing.len(), 3);
    for before in [[b"".as_slice(), b"".as_slice()], [b"x", b""], [b"", b"yy"]] {
        let (one, other) = ControlSocket::pair().unwrap();
        for packet in before {
            rustix::net::send(&one, packet, SendFlags::NOSIGNAL).unwrap();
        }
        send(&one, b"");
        drop(one);
        closing.push(other.close().expect("descriptors lie in it"));
    }
    drop(peers);
}

#[test]
fn a_connection_without_descriptors_is_closed_at_once() {
    let packets: [&[&[u8]]; 4] = [&[], &[b""], &[b"one", b"", b"two"], &[b"", b""]];
    for (unread, open) in packets.into_iter().flat_map(|unread| [(unread, true), (unread, false)]) {
        let (one, other) = ControlSocket::pair().unwrap();
        unread.iter().for_each(|packet| _ = rustix::net::send(&one, packet, SendFlags::NOSIGNAL).unwrap());
        other.send(b"why", &[]).unwrap();
        let one = if open { Some(one) } else { None };
        assert!(other.close().is_none());
        let Some(one) = one else { continue };
        let mut packet = Vec::new();
        one.recv(&mut packet, 0).unwrap().unwrap();
        assert_eq!(packet, b"why");
        assert!(one.recv(&mut packet, 0).unwrap().is_none());
    }
}

#[test]
fn a_non_blocking_socket_says_so() {
    let (one, other) = ControlSocket::pair().unwrap();
    other.set_nonblocking(true).unwrap();
    assert!(other.recv(&mut Vec::new(), 0).unwrap_err().would_block());
    one.set_nonblocking(true).unwrap();
    let full =
        (0..10_000).find_map(|_| one.send(&[0; 60_000], &[]).err()).expect("a peer that does not read");
    assert!(full.would_block());
}

/// Sending to a peer that is gone is an error, not a signal.
#[test]
fn a_gone_peer_is_an_error() {
    let (one, other) = ControlSocket::pair().unwrap();
    drop(other);
    assert!(matches!(one.send(b"x", &[]), Err(ControlError::System { errno: Errno::PIPE, .. })));
}

#[test]
fn listens_with_the_permissions_asked_for_and_knows_its_peer() {
    let directory = tempfile::tempdir().unwrap();
    for mode in [0o600, 0o666] {
        let path = directory.path().join(format!("{mode:o}.sock"));
        let listener = ControlListener::bind(&path, mode).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
        let client = ControlSocket::connect(&path).unwrap();
        let server = listener.accept().unwrap();
        let peer = server.peer_credentials().unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, path.metadata().unwrap().uid());
        assert!(server.peer_process().unwrap().is_some());
        client.send(b"hello", &[]).unwrap();
        drop(listener);
        assert!(!path.exists(), "a listener removes its socket");
    }
}

/// A daemon in a container has no number for processes of others, which attach all the same.
#[test]
fn a_process_of_another_pid_namespace_is_known_by_its_user() {
    const PLACE: &str = "TRUNKLINE_TEST_PEER_WITHOUT_NUMBER";
    if let Some(path) = std::env::var_os(PLACE) {
        let server = ControlListener::bind(Path::new(&path), 0o600).unwrap().accept().unwrap();
        let peer = server.peer_credentials().unwrap();
        assert_eq!((peer.pid, peer.uid), (0, Path::new("/proc/self").metadata().unwrap().uid()));
        assert!(server.peer_process().is_err() || server.peer_process().unwrap().is_some(), "it lives");
        return;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("process id namespaces cannot be made here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon.sock");
    let name = "a_process_of_another_pid_namespace_is_known_by_its_user";
    let mut inner = unshare();
    // Its lines would stand among those of the tests beside this one.
    inner
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(PLACE, &path)
        .stdout(Stdio::null());
    let mut inner = inner.spawn().unwrap();
    let _client = loop {
        if let Ok(client) = ControlSocket::connect(&path) {
            break client;
        }
        assert!(inner.try_wait().unwrap().is_none(), "it ended before anybody could connect");
        std::thread::yield_now();
    };
    assert!(inner.wait().unwrap().success());
}

/// A dead daemon's socket is replaced; a living one's is not, nor is a file that is no socket.
#[test]
fn only_stale_sockets_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon.sock");
    let listener = ControlListener::bind(&path, 0o600).unwrap();
    assert!(matches!(ControlListener::bind(&path, 0o600), Err(ControlError::Served { .. })));
    drop(listener);

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.metadata().unwrap().file_type().is_socket(), "left behind");
    drop(ControlListener::bind(&path, 0o600).unwrap());

    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(ControlListener::bind(&path, 0o600), Err(ControlError::NotASocket { .. })));
    assert!(matches!(ControlSocket::connect(&path), Err(ControlError::NotASocket { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(matches!(ControlSocket::connect(Path::new(&"x".repeat(108))), Err(ControlError::Path { .. })));
}

/// A successor listens on where the daemon stopped: who connected in between is served, and the path stays.
#[test]
fn a_listener_is_passed_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon.sock");
    let mut old = ControlListener::bind(&path, 0o600).unwrap();
    let [fd, lock] = old.pass_on().map(|fd| fd.try_clone_to_owned().unwrap());
    let client = ControlSocket::connect(&path).unwrap();
    drop(old);
    assert!(matches!(ControlListener::bind(&path, 0o600), Err(ControlError::Served { .. })));
    let new = ControlListener::inherit(&path, fd, lock);
    client.send(b"hello", &[]).unwrap();
    let mut packet = Vec::new();
    new.accept().unwrap().recv(&mut packet, 0).unwrap().unwrap();
    assert_eq!(packet, b"hello");
    drop(new);
    assert!(!path.exists());
}

#[test]
fn blobs_cross_and_cannot_change() {
    let (one, other) = ControlSocket::pair().unwrap();
    let bytes: Vec<u8> = (0..300_000u32).map(|index| index as u8).collect();
    let blob = create_blob(&bytes).unwrap();
    assert_eq!(rustix::io::pwrite(&blob, b"x", 0), Err(Errno::PERM));
    one.send(b"blob", &[blob.as_fd()]).unwrap();
    let fds = other.recv(&mut Vec::new(), 1).unwrap().unwrap();
    assert_eq!(read_blob(&fds[0], 300_000).unwrap(), bytes);
    assert!(matches!(read_blob(&fds[0], 299_999), Err(BlobError::Length { bytes: 300_000, limit: 299_999 })));
    assert_eq!(read_blob(create_blob(&[]).unwrap(), 10).unwrap(), b"");
}

/// A file that is no memfd, or one its sender can still change, is not read: reading it could block or tear.
#[test]
fn only_sealed_memfds_are_read() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let not_memfd = |result| matches!(result, Err(BlobError::Region(RegionFault::NotMemfd)));
    assert!(not_memfd(read_blob(reader, 10)));
    assert!(not_memfd(read_blob(tempfile::tempfile().unwrap(), 10)));
    let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    assert!(matches!(read_blob(unsealed, 10), Err(BlobError::Region(RegionFault::Seals { .. }))));
}
