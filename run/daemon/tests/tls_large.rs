//! Shows that large messages pass between daemons over TLS with nothing else on the connection: whatever a reader has
//! left when its share of a turn was used up, it goes on with by itself, though no further byte comes.
//!
//! A message a little above a multiple of a turn's share leaves a remainder that TLS has read and the poller does not
//! know of.

mod raw;

use raw::{Keys, RawApp, echo_in_thread};
use trunkline_call::Code;
use trunkline_daemon::{Config, Daemon};

/// Bytes of a turn's share.
const SHARE: usize = 1 << 20;
/// Rounds over all sizes. Where a reader stops depends on when bytes arrive: `TRUNKLINE_TLS_ROUNDS` asks for more.
const ROUNDS: usize = 2;

/// A daemon with an echo behind it, and an application of another daemon that calls it over TLS.
struct Pair {
    app: RawApp,
    _client: Daemon,
    _server: Daemon,
    _keys: Keys,
}

impl Pair {
    fn new(version: &str) -> Self {
        let keys = Keys::new();
        let listen = "[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n";
        let text = format!("{listen}{}", keys.config("required = true\n"));
        let server = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
        echo_in_thread(RawApp::attach(&server, "", true));
        let text = keys.config(&format!("version_max = {version:?}\n"));
        let client = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
        let address = server.endpoints()[0].strip_prefix("tcp://").unwrap();
        let app = RawApp::attach(&client, &format!("tls://search.internal@{address}"), false);
        Self { app, _client: client, _server: server, _keys: keys }
    }

    fn exchange(&mut self, bytes: usize) {
        assert_eq!(self.app.unary(&vec![3; bytes]).code, Code::Ok, "{bytes} bytes");
    }
}

/// Remainders: around a record, a read of cipher text, and anything between.
fn remainders() -> impl Iterator<Item = usize> {
    [1, 100, 5000, 16_384, 16_385, 30_000, 49_152, 65_535, 65_536].into_iter()
}

fn rounds() -> usize {
    std::env::var("TRUNKLINE_TLS_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"))
}

fn large_messages_pass(version: &str) {
    let mut pair = Pair::new(version);
    for _ in 0..rounds() {
        for shares in 1..=4 {
            remainders().for_each(|rest| pair.exchange(shares * SHARE + rest));
        }
    }
}

#[test]
fn large_messages_pass_over_tls_1_3() {
    large_messages_pass("1.3");
}

#[test]
fn large_messages_pass_over_tls_1_2() {
    large_messages_pass("1.2");
}
