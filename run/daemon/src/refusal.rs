//! What a connection is told for which there is no place: why, in the protocol it speaks, and by which key.
//!
//! A client that is only closed takes the daemon for broken. So those that say at once what they speak are told, so
//! many at a time; TLS is not spoken with them, which would cost more than the connection.

use std::sync::Arc;
use trunkline_call::{Code, Instant};
use trunkline_native::{Chunk, Config, Connection, PREAMBLE, Probed, Side};
use trunkline_net::{ConnectionLimits, First, Full};

/// Connections that are being told, of the descriptors that are no places: few, since anybody may cause them.
pub(crate) const REFUSALS: ConnectionLimits = ConnectionLimits { of_source: 8, in_all: 64 };
/// Time to say what is spoken.
pub(crate) const REFUSAL_NS_MAX: u64 = 1_000_000_000;

/// An empty SETTINGS frame: a server's part of the preface (RFC 9113, section 3.4).
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u8 = 11;
/// Bytes of HELLO and CLOSE together: a few hundred.
const WORDS_BYTES_MAX: usize = 4096;

/// What becomes of a connection by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// They are not clear yet.
    Wait,
    /// These are its last words.
    Say(Vec<u8>),
    /// It is closed.
    Nothing,
}

/// Why, for whoever reads it, with the key.
pub(crate) fn why(full: Full) -> &'static str {
    match full {
        Full::Source => "its source has as many connections as it may (daemon.connections_per_source_max)",
        Full::All => "there are as many connections as there may be (daemon.connections_max)",
    }
}

/// What to tell whoever has begun so.
pub(crate) fn answer(first: &[u8], full: Full, now: Instant) -> Answer {
    match First::of(first, &PREAMBLE.to_le_bytes()) {
        First::Unclear => Answer::Wait,
        First::Native => Answer::Say(close(why(full), now)),
        First::Http2 => match Probed::of(first) {
            Probed::Unclear => Answer::Wait,
            Probed::Asks => Answer::Say(close(why(full), now)),
            Probed::Other => Answer::Say(go_away(why(full))),
        },
        First::Tls | First::Http1 | First::Unknown => Answer::Nothing,
    }
}

/// HELLO and CLOSE.
fn close(why: &str, now: Instant) -> Vec<u8> {
    let mut connection = Connection::new(Side::Acceptor, Arc::new(Config::default()), now);
    connection.close(Code::ResourceExhausted, why);
    let mut words = Vec::new();
    for chunk in connection.poll_transmit(now, WORDS_BYTES_MAX) {
        if let Chunk::Bytes(bytes) = chunk {
            words.extend_from_slice(bytes);
        }
    }
    words
}

/// SETTINGS and GOAWAY; no stream was looked at.
fn go_away(why: &str) -> Vec<u8> {
    let length = 8 + why.len() as u8;
    let mut words = SETTINGS.to_vec();
    words.extend_from_slice(&[0, 0, length, GOAWAY, 0, 0, 0, 0, 0]);
    words.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, ENHANCE_YOUR_CALM]);
    words.extend_from_slice(why.as_bytes());
    words
}

#[cfg(test)]
mod tests {
    //! Shows that both protocols' clients read why, and that nobody else is told anything.
    use super::*;
    use trunkline_native::{Event, Input, PROBE};

    const NOW: Instant = Instant(1);

    #[test]
    fn a_native_client_reads_why() {
        for begun in [&PROBE[..], &PREAMBLE.to_le_bytes()] {
            let Answer::Say(words) = answer(begun, Full::Source, NOW) else { panic!("not told") };
            let mut client = Connection::new(Side::Initiator, Arc::new(Config::default()), NOW);
            let mut input = Input::new(&words);
            let mut told = None;
            while let Ok(Some(event)) = client.handle_bytes(NOW, &mut input) {
                if let Event::Closed { code, why } = event {
                    told = Some((code, why.to_owned()));
                }
            }
            assert_eq!(told, Some((Code::ResourceExhausted, why(Full::Source).to_owned())));
        }
    }

    #[test]
    fn a_client_of_http2_reads_why() {
        let begun = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        assert_eq!(answer(&begun[..20], Full::All, NOW), Answer::Wait);
        let Answer::Say(words) = answer(begun, Full::All, NOW) else { panic!("not told") };
        let debug = why(Full::All).as_bytes();
        assert_eq!(words[9..13], [0, 0, 8 + debug.len() as u8, GOAWAY]);
        assert_eq!((words[25], &words[26..]), (ENHANCE_YOUR_CALM, debug));
    }

    #[test]
    fn others_are_closed() {
        for begun in [&b"GET / HTTP/1.1\r\n"[..], &[0x16, 3, 1, 0, 9, 1], b"whatever it is, nobody knows it"]
        {
            assert_eq!(answer(begun, Full::All, NOW), Answer::Nothing, "{begun:?}");
        }
    }
}
