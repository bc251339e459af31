//! What a daemon says to an endpoint it knows nothing of.
//!
//! It may be another daemon, or a server of gRPC, which takes a native HELLO for a fault and logs it as one. So the
//! question is a beginning of HTTP/2 that every server accepts: the connection preface and a SETTINGS frame with one
//! setting of the range reserved for experiments, which a server must ignore (RFC 9113, section 6.5.2). A daemon knows
//! it by heart, drops it and answers with its HELLO; from then on the connection is native. Whoever else answers is
//! told GOAWAY and called by gRPC.

use crate::PREAMBLE;

/// The question.
pub const PROBE: [u8; PROBE_BYTES] = probe();
/// What a server of HTTP/2 is told after it has answered: GOAWAY, NO_ERROR, no stream.
pub const PROBE_END: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Head of a SETTINGS frame with one setting.
const SETTINGS: [u8; 9] = [0, 0, 6, 4, 0, 0, 0, 0, 0];
/// Of the range 0xf000 to 0xffff.
const SETTING: u16 = 0xf54b;
const PROBE_BYTES: usize = PREFACE.len() + SETTINGS.len() + 6;

/// What first bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// Too few to tell.
    Unclear,
    /// The question; what is behind it is native.
    Asks,
    /// Something else.
    Other,
}

impl Probed {
    /// Reads the first bytes of an accepted connection.
    pub fn of(first: &[u8]) -> Self {
        Self::compare(first, &PROBE)
    }

    /// Reads the first bytes of an answer: [`Probed::Asks`] if they are native.
    pub fn of_answer(first: &[u8]) -> Self {
        Self::compare(first, &PREAMBLE.to_le_bytes())
    }

    fn compare(first: &[u8], wanted: &[u8]) -> Self {
        if first.starts_with(wanted) {
            Self::Asks
        } else if wanted.starts_with(first) {
            Self::Unclear
        } else {
            Self::Other
        }
    }
}

const fn probe() -> [u8; PROBE_BYTES] {
    let [high, low] = SETTING.to_be_bytes();
    let [a, b, c, d] = PREAMBLE.to_be_bytes();
    let (mut out, mut at) = ([0; PROBE_BYTES], 0);
    while at < PREFACE.len() {
        out[at] = PREFACE[at];
        at += 1;
    }
    while at < PREFACE.len() + SETTINGS.len() {
        out[at] = SETTINGS[at - PREFACE.len()];
        at += 1;
    }
    let setting = [high, low, a, b, c, d];
    while at < PROBE_BYTES {
        out[at] = setting[at - PREFACE.len() - SETTINGS.len()];
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    //! Shows that the question is HTTP/2, that it is told from what clients say as soon as they differ, and that an
    //! answer is told by its first bytes.
    use super::*;

    #[test]
    fn the_question_is_http2() {
        assert!(PROBE.starts_with(&PREFACE));
        let frame = &PROBE[PREFACE.len()..];
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        assert_eq!((length, length % 6), (frame.len() - 9, 0), "whole settings");
        assert_eq!(&frame[3..9], [4, 0, 0, 0, 0, 0], "SETTINGS of the connection, no flags");
        const { assert!(SETTING >= 0xf000) };
        let length = u32::from_be_bytes([0, PROBE_END[0], PROBE_END[1], PROBE_END[2]]) as usize;
        assert_eq!((PROBE_END[3], length), (7, PROBE_END.len() - 9), "GOAWAY");
    }

    #[test]
    fn first_bytes() {
        for cut in 0..PROBE.len() {
            assert_eq!(Probed::of(&PROBE[..cut]), Probed::Unclear);
        }
        assert_eq!(Probed::of(&PROBE), Probed::Asks);
        assert_eq!(Probed::of(&[&PROBE[..], b"more"].concat()), Probed::Asks);
        // An empty SETTINGS frame, as a client may begin.
        assert_eq!(Probed::of(&[&PREFACE[..], &[0, 0, 0]].concat()), Probed::Other);
        assert_eq!(Probed::of(b"TRK1"), Probed::Other);
        assert_eq!(Probed::of_answer(b"TR"), Probed::Unclear);
        assert_eq!(Probed::of_answer(b"TRK1 and more"), Probed::Asks);
        assert_eq!(Probed::of_answer(&[0]), Probed::Other);
    }
}
