//! What two that speak with each other say.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Carries bytes between a client and a server, and keeps them: from the client, and from the server.
pub fn captured(to: &str) -> (String, Arc<[Mutex<Vec<u8>>; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let kept = Arc::<[Mutex<Vec<u8>>; 2]>::default();
    let (to, keeps) = (to.to_owned(), Arc::clone(&kept));
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(&to).unwrap();
            carry(near.try_clone().unwrap(), far.try_clone().unwrap(), &keeps, 0);
            carry(far, near, &keeps, 1);
        }
    });
    (at, kept)
}

/// What comes goes on, and is kept.
fn carry(mut from: TcpStream, mut to: TcpStream, kept: &Arc<[Mutex<Vec<u8>>; 2]>, way: usize) {
    let kept = Arc::clone(kept);
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            kept[way].lock().unwrap().extend_from_slice(&bytes[..count]);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// Kinds of frames, and ids of settings, in what one side of a connection has said.
pub fn http2_kinds(said: &[u8]) -> (BTreeSet<u8>, BTreeSet<u16>) {
    let mut rest = said;
    let (mut frames, mut settings) = (BTreeSet::new(), BTreeSet::new());
    while let Some((&[a, b, c, kind, ..], body)) = rest.split_first_chunk::<9>() {
        if let Some(behind) = rest.strip_prefix(PREFACE) {
            // Another connection begins.
            rest = behind;
            continue;
        }
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let (payload, next) = body.split_at(len.min(body.len()));
        frames.insert(kind);
        if kind == 4 {
            settings.extend(payload.chunks_exact(6).map(|one| u16::from(one[0]) << 8 | u16::from(one[1])));
        }
        rest = next;
    }
    (frames, settings)
}
