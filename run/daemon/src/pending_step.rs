//! What a pending connection is once it has been looked at: it waits, says what it speaks, or is over.

use crate::clock::now;
use crate::pending_connections::PendingPhase;
use crate::refusal::{self, Answer};
use trunkline_engine::Dial;
use trunkline_native::Probed;
use trunkline_net::{Full, Stream, Transfer};

/// Bytes of a first read: a small call fits, and the stack has room.
const FIRST_READ_BYTES: usize = 4096;

/// What a step led to.
pub(crate) enum PendingStep {
    /// It waits.
    Wait(PendingPhase),
    /// It speaks the native protocol; these are its first bytes.
    Native(Vec<u8>),
    /// It speaks HTTP/2.
    Http(Vec<u8>),
    /// It speaks the native protocol if it may, behind these first bytes (`trunkline_native::PROBE`).
    Probed(Vec<u8>),
    /// It was dialled, and is ready.
    Dialled(Dial),
    /// It was asked what it speaks, and this is the beginning of its native answer.
    Answered(Dial, Vec<u8>),
    /// It was asked, and does not speak the native protocol.
    Foreign(Dial, String),
    /// It is told why there is no place for it.
    Refuse(Vec<u8>),
    /// It is told something, and closed.
    Dismiss(&'static [u8], &'static str),
    /// It is over.
    Over(PendingPhase, String),
}

/// Reads first bytes behind those there are. `false` if there are none yet.
pub(crate) fn read_first(stream: &mut Stream, first: &mut Vec<u8>) -> Result<bool, String> {
    let mut buffer = [0; FIRST_READ_BYTES];
    match stream.read(&mut buffer).map_err(|error| error.to_string())? {
        Transfer::Bytes(bytes) => {
            first.extend_from_slice(&buffer[..bytes]);
            Ok(true)
        }
        Transfer::NotReady => Ok(false),
        Transfer::Ended => Err("said nothing".into()),
    }
}

/// Reads what a probed endpoint answers.
pub(crate) fn probe_answer(stream: &mut Stream, dial: Dial, mut first: Vec<u8>) -> PendingStep {
    let read = stream.flush().map_err(|error| error.to_string());
    match read.and_then(|_| read_first(stream, &mut first)) {
        Ok(false) => return PendingStep::Wait(PendingPhase::Probing(dial, first)),
        Err(why) => return PendingStep::Foreign(dial, why),
        Ok(true) => {}
    }
    match Probed::of_answer(&first) {
        Probed::Unclear => PendingStep::Wait(PendingPhase::Probing(dial, first)),
        Probed::Asks => PendingStep::Answered(dial, first),
        Probed::Other => PendingStep::Foreign(dial, "answers in another protocol".into()),
    }
}

/// Reads what a connection speaks for which there is no place.
pub(crate) fn refusing(stream: &mut Stream, mut first: Vec<u8>, full: Full) -> PendingStep {
    match read_first(stream, &mut first) {
        Ok(true) => {}
        Ok(false) => return PendingStep::Wait(PendingPhase::Refusing(first, full)),
        Err(why) => return PendingStep::Over(PendingPhase::Refusing(first, full), why),
    }
    match refusal::answer(&first, full, now()) {
        Answer::Wait => PendingStep::Wait(PendingPhase::Refusing(first, full)),
        Answer::Say(words) => PendingStep::Refuse(words),
        Answer::Nothing => PendingStep::Over(PendingPhase::Refusing(first, full), String::new()),
    }
}

pub(crate) fn client_handshake(stream: &mut Stream, dial: Dial) -> PendingStep {
    match stream.handshake() {
        Ok(false) => PendingStep::Wait(PendingPhase::ClientTls(dial)),
        Ok(true) => PendingStep::Dialled(dial),
        Err(error) => PendingStep::Over(PendingPhase::ClientTls(dial), format!("TLS: {error}")),
    }
}
