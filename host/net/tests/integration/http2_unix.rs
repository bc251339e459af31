//! Shows that a client which names a Unix socket's path as the authority is served there, and refused where it is not
//! at a Unix socket.

use crate::ends;

use ends::WATCHDOG;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant as Clock;
use trunkline_call::Instant;
use trunkline_grpc::Event;
use trunkline_net::{Buffers, Endpoint, Http2, Http2Settings, Listener, State, Stream, Transfer};

/// The preface, empty settings, and `POST http://AUTHORITY/a.B/C` on a stream of its own.
fn request(authority: &[u8]) -> Vec<u8> {
    let mut block = b"\x83\x86\x44\x06/a.B/C\x41".to_vec();
    block.push(authority.len() as u8);
    block.extend(authority);
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    said.extend([0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1]);
    said.extend(block);
    // The next refers to what this one has added to the table.
    said.extend(b"\0\0\x04\x01\x05\0\0\0\x03\x83\x86\xbf\xbe");
    said
}

/// The authorities of the requests that reach the owner, and what the client hears.
fn served(endpoint: &Endpoint, said: &[u8], first: usize) -> (Vec<String>, Vec<u8>) {
    let listener = Listener::bind(endpoint, false).unwrap();
    let mut client = Stream::connect(listener.endpoint()).unwrap();
    let until = Clock::now() + WATCHDOG;
    let stream = loop {
        if let Some(accepted) = listener.accept().unwrap() {
            break accepted.stream;
        }
        assert!(Clock::now() < until, "nobody connects");
        std::thread::yield_now();
    };
    let (first, rest) = said.split_at(first);
    let mut server = Http2::server(stream, Arc::new(Http2Settings::server()), Instant(0), first, 0);
    assert_eq!(client.write_vectored(&[IoSlice::new(rest)]).unwrap(), Transfer::Bytes(rest.len()));
    client.end().unwrap();
    let (mut buffers, mut events, mut heard) = (Buffers::new(), Vec::new(), Vec::new());
    loop {
        server.handle_readable();
        let state = server.turn(Instant(0), &mut buffers, &mut events);
        let mut buffer = [0; 4096];
        if let Ok(Transfer::Bytes(count)) = client.read(&mut buffer) {
            heard.extend_from_slice(&buffer[..count]);
        }
        let asked: Vec<_> = events.iter().filter_map(authority).collect();
        if asked.len() == 2 || matches!(state, State::Over(_)) {
            return (asked, heard);
        }
        assert!(Clock::now() < until, "nothing comes of it");
    }
}

fn authority(event: &Event) -> Option<String> {
    let Event::Request { head, .. } = event else { return None };
    Some(head.uri.authority()?.to_string())
}

#[test]
fn a_path_is_taken_for_an_authority_at_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (authority, becomes)) in [
        ("tmp%2Fx.sock", "tmp.2Fx.sock"),
        ("/tmp/x.sock", "3tmp3x.sock"),
        ("%2Fa:b:c.sock", ".2Fa:bBc.sock"),
        ("localhost", "localhost"),
    ]
    .into_iter()
    .enumerate()
    {
        let said = request(authority.as_bytes());
        for first in [0, 24, 60] {
            let path = folder.path().join(format!("{number}-{first}"));
            let (asked, _) = served(&Endpoint::Unix(path), &said, first);
            assert_eq!(asked, [becomes, becomes], "{first} bytes were read before");
        }
    }
}

#[test]
fn a_path_is_no_authority_at_a_port() {
    let endpoint = Endpoint::Tcp("127.0.0.1:0".parse().unwrap());
    let (asked, heard) = served(&endpoint, &request(b"tmp%2Fx.sock"), 0);
    let protocol_error = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x01";
    assert!(asked.is_empty(), "{asked:?}");
    assert!(heard.windows(protocol_error.len()).any(|bytes| bytes == protocol_error), "{heard:x?}");
}
