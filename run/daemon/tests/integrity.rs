//! Shows that with `daemon.integrity` on both sides a bit that flips between two daemons is found, whichever message it
//! is in and however long that is, and ends its call with a fault of its own; and that without it is taken for true.

mod raw;

use raw::{RawApp, WATCHDOG, echo_in_thread};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline_call::{Code, Execution};
use trunkline_daemon::{Config, Daemon};

/// What stands in a message where a bit is to flip.
const MARK: &[u8] = b"\x5a\xa5flip\xa5\x5a";

/// Passes bytes on between whoever connects and a target; flips a bit of a mark on its way there, or back, when it is
/// told to, once.
struct Relay {
    address: String,
    flips: [Arc<AtomicBool>; 2],
}

impl Relay {
    fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let flips: [Arc<AtomicBool>; 2] = Default::default();
        let (target, kept) = (target.to_owned(), flips.clone());
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(&target).unwrap();
                let both = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
                for ((from, to), flip) in both.into_iter().zip(&kept) {
                    let flip = Arc::clone(flip);
                    std::thread::spawn(move || pass(from, to, &flip));
                }
            }
        });
        Self { address, flips }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, flip: &AtomicBool) {
    let mut buffer = vec![0; 1 << 20];
    let mut kept = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer[kept..]) {
        let filled = kept + count;
        let marked = buffer[..filled].windows(MARK.len()).position(|part| part == MARK);
        if let Some(at) = marked.filter(|_| flip.swap(false, Ordering::SeqCst)) {
            buffer[at + 3] ^= 0x10;
        }
        // A mark may be cut between two reads.
        let is_beginning = |bytes: &usize| MARK.starts_with(&buffer[filled - bytes..filled]);
        kept = (1..MARK.len().min(filled + 1)).rev().find(is_beginning).unwrap_or(0);
        if to.write_all(&buffer[..filled - kept]).is_err() {
            break;
        }
        buffer.copy_within(filled - kept..filled, 0);
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Two daemons with a relay between them.
struct Stage {
    app: RawApp,
    relay: Relay,
    _daemons: [Daemon; 2],
}

impl Stage {
    fn set(near: bool, far: bool) -> Self {
        let daemon = |integrity: bool, listen: &str| {
            let text = format!("[daemon]\nlisten = [{listen}]\nintegrity = {integrity}\n");
            Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap()
        };
        let (near, far) = (daemon(near, ""), daemon(far, "\"tcp://127.0.0.1:0\""));
        echo_in_thread(RawApp::attach(&far, "", true));
        let relay = Relay::to(far.endpoints()[0].strip_prefix("tcp://").unwrap());
        let app = RawApp::attach(&near, &format!("tcp://{}", relay.address), false);
        Self { app, relay, _daemons: [near, far] }
    }
}

fn message(bytes: usize) -> Vec<u8> {
    let mut message = vec![7; bytes];
    let at = bytes * 2 / 3;
    message[at..at + MARK.len()].copy_from_slice(MARK);
    message
}

#[test]
fn a_flipped_bit_is_found_and_named() {
    let mut stage = Stage::set(true, true);
    for bytes in [100, 5_000, 20_000, 300_000, 3_000_000] {
        for way in 0..2 {
            let message = message(bytes);
            assert_eq!(stage.app.unary(&message).code, Code::Ok, "{bytes} bytes, before");
            stage.relay.flips[way].store(true, Ordering::SeqCst);
            let (finish, said) = stage.app.unary_told(&message);
            let flipped = !stage.relay.flips[way].load(Ordering::SeqCst);
            assert!(flipped, "{bytes} bytes, way {way}: the mark has passed");
            let found = (finish.code, finish.execution);
            assert_eq!(found, (Code::Unavailable, Execution::Unknown), "{bytes} bytes, way {way}");
            assert!(said.contains("changed on the way: a checksum does not fit"), "{said}");
            // A new connection is made for the next call; what was with the old one has ended.
            let began = std::time::Instant::now();
            while stage.app.unary(&message).code != Code::Ok {
                assert!(began.elapsed() < WATCHDOG, "{bytes} bytes: no call comes through any more");
            }
        }
    }
}

#[test]
fn it_takes_both_and_without_it_nobody_notices() {
    for (near, far) in [(true, false), (false, true), (false, false)] {
        let mut stage = Stage::set(near, far);
        let message = message(1000);
        assert_eq!(stage.app.unary(&message).code, Code::Ok);
        stage.relay.flips[0].store(true, Ordering::SeqCst);
        assert_eq!(stage.app.unary(&message).code, Code::Ok, "the bit is in a message that nobody checks");
        assert!(!stage.relay.flips[0].load(Ordering::SeqCst));
    }
}
