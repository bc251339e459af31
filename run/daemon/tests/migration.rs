//! Shows that sessions go from shard to shard of a running daemon under calls that never pause: every call is answered
//! once and executed once, whoever is moved where meanwhile.

mod raw;

use raw::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use trunkline_call::Code;
use trunkline_call::entry::Completion;
use trunkline_daemon::{Config, Daemon};
use trunkline_telemetry::Ask;

/// Moves that must have been made, and how many are tried at most: a session may be busy with something that keeps it.
const MOVES: usize = 60;
const TRIED_MAX: usize = 100_000;

#[test]
fn calls_go_on_while_sessions_move() {
    let config = Config::from_toml("[daemon]\nshards = 3\nlisten = [\"tcp://127.0.0.1:0\"]", "test").unwrap();
    let daemon = Daemon::embedded(config).unwrap();
    let [stop, over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let executed = Arc::new(AtomicU64::new(0));
    let servers = [0, 1].map(|_| {
        let mut server = RawApp::attach(&daemon, "", true);
        let (over, executed) = (Arc::clone(&over), Arc::clone(&executed));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match server.next_within(std::time::Duration::from_millis(20)) {
                    Some(Completion::Call(call)) => {
                        executed.fetch_add(1, Ordering::Relaxed);
                        server.echo(&call);
                    }
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
        })
    });
    // Two on this host, and one by a connection of the daemon to itself.
    let endpoint = daemon.endpoints()[0].clone();
    let clients = ["", "", &endpoint].map(|target| {
        let (mut client, stop) = (RawApp::attach(&daemon, target, false), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) {
                let bytes = if answered % 50 == 0 { 300_000 } else { 20 };
                assert_eq!(client.unary_of(&vec![7; bytes]).code, Code::Ok);
                answered += 1;
            }
            answered
        })
    });
    let (mut moves, mut tried) = (0, 0);
    while moves < MOVES {
        assert!(tried < TRIED_MAX, "{moves} of {tried}");
        for (shard, observed) in daemon.observe(&Ask::default()).into_iter().enumerate() {
            for row in observed.snapshot.sessions {
                tried += 1;
                moves += usize::from(daemon.move_session(shard, row.key, (shard + 1) % 3).is_ok());
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let answered: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    over.store(true, Ordering::Relaxed);
    servers.into_iter().for_each(|server| server.join().unwrap());
    assert_eq!(executed.load(Ordering::Relaxed), answered, "each call is executed once");
    assert!(answered > 0);
}
