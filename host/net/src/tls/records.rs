//! TLS 1.3 records of a session whose handshake another process made.
//!
//! Only what comes after a handshake is spoken here: application data, new keys, tickets (which are passed over: there
//! is nothing here to resume with them), alerts. The library encrypts and decrypts each record; what is ours is the
//! header, the numbers, and what a record means (RFC 8446, sections 4.6, 5 and 6). Whatever is out of place ends the
//! session with the alert that says so.

use super::portable::{Keys, Traffic};
use rustls::crypto::cipher::{
    InboundOpaqueMessage, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use rustls::{AlertDescription, ContentType, ProtocolVersion, Tls13CipherSuite};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Write};

/// The records of one session.
pub struct Records {
    keys: Keys,
    sealer: Box<dyn MessageEncrypter>,
    opener: Box<dyn MessageDecrypter>,
    /// Opened and not read.
    plain: Outbox,
    /// Sealed and not sent.
    out: Outbox,
    /// The peer said that it says no more.
    has_ended: bool,
    /// New keys were announced because the peer asked for it, and that is not sent yet: asking again changes nothing.
    has_answered: bool,
    /// Why nothing goes on.
    failed: Option<&'static str>,
}

/// Bytes taken from the front.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    taken: usize,
}

/// Bytes of a record's header: type, version, length.
const HEADER_BYTES: usize = 5;
/// Longest plain text of a record.
const PLAIN_BYTES_MAX: usize = 1 << 14;
/// What encryption may add.
const SEALED_BYTES_MAX: usize = PLAIN_BYTES_MAX + 256;
/// Plain text nobody reads, beyond which no more records are opened.
const UNREAD_BYTES_MAX: usize = 16 << 10;
/// Records left under a key when the next one is announced.
const SEQUENCE_MARGIN: u64 = 1 << 10;
/// Handshake messages that may come after a handshake.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Length of the record at the front, header included; `None` while its header is not all there. One that is longer
/// than a record may be counts as its header alone: whoever opens it says so.
pub(crate) fn record_bytes(cipher: &[u8]) -> Option<usize> {
    let header: &[u8; HEADER_BYTES] = cipher.first_chunk()?;
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    Some(if len > SEALED_BYTES_MAX { HEADER_BYTES } else { HEADER_BYTES + len })
}

/// Whether a whole record is at the front.
pub(crate) fn has_record(cipher: &[u8]) -> bool {
    record_bytes(cipher).is_some_and(|bytes| bytes <= cipher.len())
}

impl Records {
    /// Goes on at these keys, with plain text that was not read and cipher text that was not sent.
    pub fn new(keys: Keys, plain: Vec<u8>, unsent: Vec<u8>) -> Self {
        let (sealer, opener) = (sealer_of(keys.suite, &keys.send), opener_of(keys.suite, &keys.receive));
        Self {
            keys,
            sealer,
            opener,
            plain: Outbox { bytes: plain, taken: 0 },
            out: Outbox { bytes: unsent, taken: 0 },
            has_ended: false,
            has_answered: false,
            failed: None,
        }
    }

    /// Opens one record, in place.
    ///
    /// # Errors
    /// What is wrong with it; the session is over then.
    pub fn open(&mut self, record: &mut [u8]) -> io::Result<()> {
        if let Some(why) = self.failed {
            return Err(invalid(why));
        }
        let opened = self.open_one(record);
        let Err((alert, why)) = opened else { return Ok(()) };
        // One that ended it is not told why.
        if alert != AlertDescription::CloseNotify {
            self.seal(ContentType::Alert, &[2, alert.into()]);
        }
        self.failed = Some(why);
        Err(invalid(why))
    }

    /// Reads plain text. Nothing at the end, [`ErrorKind::WouldBlock`] before it.
    ///
    /// # Errors
    /// That there is none yet.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = self.plain.rest().len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.plain.rest()[..count]);
        self.plain.take(count);
        if count == 0 && !self.has_ended { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    /// Seals plain text while less than `bytes_max` waits to be sent. How much was taken.
    pub fn write(&mut self, pieces: &[IoSlice<'_>], bytes_max: usize) -> usize {
        let mut taken = 0;
        for part in pieces.iter().flat_map(|piece| piece.chunks(PLAIN_BYTES_MAX)) {
            if self.failed.is_some() || self.out.rest().len() >= bytes_max {
                break;
            }
            self.update_in_time();
            self.seal(ContentType::ApplicationData, part);
            taken += part.len();
        }
        taken
    }

    /// Sends what is sealed, as far as it is taken.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn write_tls(&mut self, socket: &mut dyn Write) -> io::Result<usize> {
        let count = socket.write(self.out.rest())?;
        self.out.take(count);
        if self.out.rest().is_empty() {
            self.has_answered = false;
        }
        Ok(count)
    }

    /// Says that nothing more will be said.
    pub fn send_close_notify(&mut self) {
        if self.failed.is_none() {
            self.seal(ContentType::Alert, &[1, AlertDescription::CloseNotify.into()]);
        }
    }

    /// Whether something waits to be sent.
    pub fn wants_write(&self) -> bool {
        !self.out.rest().is_empty()
    }

    /// Whether so much was opened that it is to be read first.
    pub fn is_full(&self) -> bool {
        self.plain.rest().len() >= UNREAD_BYTES_MAX
    }

    /// Whether it can be gone on with.
    pub fn is_well(&self) -> bool {
        self.failed.is_none() && !self.has_ended
    }

    /// The keys as they are now, what was not read, and what was not sent.
    pub fn state(&self) -> (Keys, Vec<u8>, Vec<u8>) {
        (self.keys.clone(), self.plain.rest().to_vec(), self.out.rest().to_vec())
    }

    fn open_one(&mut self, record: &mut [u8]) -> Result<(), (AlertDescription, &'static str)> {
        use AlertDescription as Alert;
        if record_bytes(record) != Some(record.len()) || record.len() == HEADER_BYTES {
            return Err((Alert::RecordOverflow, "a TLS record that is longer or shorter than one may be"));
        }
        let (header, payload) = record.split_at_mut(HEADER_BYTES);
        if ContentType::from(header[0]) != ContentType::ApplicationData {
            return Err((Alert::UnexpectedMessage, "a TLS record that is not encrypted"));
        }
        if self.has_ended {
            return Err((Alert::UnexpectedMessage, "a TLS record behind the last one"));
        }
        let sequence = next(&mut self.keys.receive).ok_or((Alert::InternalError, "too many TLS records"))?;
        let sealed =
            InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, payload);
        let opened = self.opener.decrypt(sealed, sequence);
        let Ok(message) = opened else {
            return Err((Alert::BadRecordMac, "a TLS record that does not decrypt"));
        };
        match message.typ {
            ContentType::ApplicationData => self.plain.put(message.payload),
            ContentType::Handshake => {
                let messages = message.payload.to_vec();
                return self.handle_handshake(&messages);
            }
            ContentType::Alert => match message.payload {
                [_, 0] => self.has_ended = true,
                // user_canceled: a close_notify follows.
                [_, 90] => {}
                _ => return Err((Alert::CloseNotify, "the peer ended TLS with an alert")),
            },
            _ => return Err((Alert::UnexpectedMessage, "a TLS record of a type that has no place here")),
        }
        Ok(())
    }

    /// What may come after a handshake: each whole, and new keys behind everything else.
    fn handle_handshake(&mut self, mut rest: &[u8]) -> Result<(), (AlertDescription, &'static str)> {
        use AlertDescription as Alert;
        if rest.is_empty() {
            return Err((Alert::UnexpectedMessage, "an empty handshake record"));
        }
        while let [kind, a, b, c, tail @ ..] = rest {
            let len = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            let Some((body, tail)) = tail.split_at_checked(len) else { break };
            rest = tail;
            match (*kind, body) {
                (NEW_SESSION_TICKET, _) => {}
                (KEY_UPDATE, [wants @ (0 | 1)]) if rest.is_empty() => {
                    self.keys.receive.update(self.keys.suite);
                    self.opener = opener_of(self.keys.suite, &self.keys.receive);
                    if *wants == 1 && !self.has_answered {
                        self.has_answered = true;
                        self.announce_keys(false);
                    }
                }
                _ => {
                    return Err((Alert::UnexpectedMessage, "a handshake message that has no place here"));
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err((Alert::DecodeError, "a handshake message in pieces")) }
    }

    /// Takes new keys before the old ones have sealed more than they should.
    fn update_in_time(&mut self) {
        let limit = self.keys.suite.common.confidentiality_limit;
        if self.keys.send.sequence >= limit.saturating_sub(SEQUENCE_MARGIN) {
            self.announce_keys(false);
        }
    }

    /// Announces new keys under the old ones, and takes them; the peer is asked for its own if `wants` says so.
    pub(crate) fn announce_keys(&mut self, wants: bool) {
        self.seal(ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, wants.into()]);
        self.keys.send.update(self.keys.suite);
        self.sealer = sealer_of(self.keys.suite, &self.keys.send);
    }

    fn seal(&mut self, typ: ContentType, payload: &[u8]) {
        let message = plain_message(typ, payload);
        let sequence = next(&mut self.keys.send);
        match sequence.map(|sequence| self.sealer.encrypt(message, sequence)) {
            Some(Ok(sealed)) => self.out.put(&sealed.encode()),
            _ => self.failed = Some("a TLS record cannot be encrypted"),
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Outbox {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What is all taken is given back: a session at rest has no buffer.
    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// The number of the next record; none is used twice.
fn next(traffic: &mut Traffic) -> Option<u64> {
    let sequence = traffic.sequence;
    traffic.sequence = sequence.checked_add(1)?;
    Some(sequence)
}

/// The cipher counts along, and takes the first nonce it sees for that of record 0. One that begins in the middle is
/// therefore shown record 0 first, of which nothing is kept: what is sealed twice under one nonce must not be seen.
fn sealer_of(suite: &Tls13CipherSuite, traffic: &Traffic) -> Box<dyn MessageEncrypter> {
    let (key, iv) = traffic.key(suite);
    let mut sealer = suite.aead_alg.encrypter(key, iv);
    if traffic.sequence > 0 {
        let _ = sealer.encrypt(plain_message(ContentType::ApplicationData, &[]), 0);
    }
    sealer
}

fn plain_message(typ: ContentType, payload: &[u8]) -> OutboundPlainMessage<'_> {
    let (version, payload) = (ProtocolVersion::TLSv1_3, OutboundChunks::Single(payload));
    OutboundPlainMessage { typ, version, payload }
}

fn opener_of(suite: &Tls13CipherSuite, traffic: &Traffic) -> Box<dyn MessageDecrypter> {
    let (key, iv) = traffic.key(suite);
    suite.aead_alg.decrypter(key, iv)
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    //! Shows what becomes of records that were changed on their way, of whatever an authenticated peer may say, and of
    //! one who asks for new keys without end.
    use super::*;
    use proptest::prelude::*;

    /// Two ends of one session.
    fn pair() -> [Records; 2] {
        let direction = |byte: u8| [&[48][..], &[byte; 48], &[0; 8]].concat();
        let bytes = |send, receive| [&[0x13, 0x02][..], &direction(send), &direction(receive)].concat();
        let end = |send, receive| {
            Records::new(Keys::of_bytes(&bytes(send, receive)).unwrap(), Vec::new(), Vec::new())
        };
        [end(1, 2), end(2, 1)]
    }

    fn sent(records: &mut Records) -> Vec<u8> {
        let mut bytes = Vec::new();
        while records.wants_write() {
            records.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Takes as many records as there are.
    fn take(records: &mut Records, mut cipher: &mut [u8]) -> io::Result<()> {
        while let Some(bytes) = record_bytes(cipher).filter(|bytes| *bytes <= cipher.len()) {
            let (record, rest) = cipher.split_at_mut(bytes);
            records.open(record)?;
            cipher = rest;
        }
        Ok(())
    }

    #[test]
    fn new_keys_come_before_the_old_ones_are_worn() {
        let [mut one, mut other] = pair();
        for records in [&mut one.keys.send, &mut other.keys.receive] {
            records.sequence = (1 << 24) - SEQUENCE_MARGIN - 1;
        }
        assert_eq!(one.keys.suite.common.confidentiality_limit, 1 << 24);
        for word in [b"before", b"behind"] {
            one.write(&[IoSlice::new(word)], 1 << 20);
            take(&mut other, &mut sent(&mut one)).unwrap();
            let mut heard = [0; 6];
            assert_eq!(other.read(&mut heard).unwrap(), 6);
            assert_eq!(&heard, word);
        }
        assert_eq!((one.keys.send.sequence, other.keys.receive.sequence), (1, 1), "of the next generation");
    }

    #[test]
    fn who_asks_for_new_keys_all_the_time_is_answered_once() {
        let [mut one, mut other] = pair();
        for _ in 0..100 {
            one.announce_keys(true);
        }
        take(&mut other, &mut sent(&mut one)).unwrap();
        let answer = sent(&mut other);
        assert!(answer.len() < 50, "{} bytes", answer.len());
        take(&mut one, &mut answer.clone()).unwrap();
        assert!(other.is_well() && one.is_well());
    }

    #[test]
    fn a_failed_session_says_why_once_and_takes_nothing_more() {
        let [mut one, mut other] = pair();
        one.write(&[IoSlice::new(b"secret")], 1 << 20);
        let good = sent(&mut one);
        let mut bad = good.clone();
        bad[20] ^= 1;
        assert_eq!(take(&mut other, &mut bad).unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(take(&mut other, &mut good.clone()).is_err() && !other.is_well());
        let mut alert = sent(&mut other);
        assert!(take(&mut one, &mut alert).is_err(), "an alert that ends it");
        assert_eq!(sent(&mut one).len(), 0, "it is not answered");
        assert_eq!(one.write(&[IoSlice::new(b"x")], 1 << 20), 0);
    }

    proptest! {
        #[test]
        fn noise_is_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), is_data in any::<bool>()) {
            let [mut one, _] = pair();
            if is_data && bytes.len() > HEADER_BYTES {
                let len = (bytes.len() - HEADER_BYTES) as u16;
                bytes[..3].copy_from_slice(&[23, 3, 3]);
                bytes[3..5].copy_from_slice(&len.to_be_bytes());
            }
            let whole = has_record(&bytes);
            prop_assert_eq!(take(&mut one, &mut bytes).is_err(), whole);
            prop_assert!(one.read(&mut [0; 9]).is_err(), "nothing was heard");
        }

        /// Type and length and every byte behind them are held against what was sealed. (The version is not looked at,
        /// as RFC 8446 has it.)
        #[test]
        fn a_changed_bit_is_found(len in 0..300usize, at in any::<u16>(), bit in 0..8u8) {
            let [mut one, mut other] = pair();
            one.write(&[IoSlice::new(&vec![7; len + 1])], 1 << 20);
            let mut record = sent(&mut one);
            let at = usize::from(at) % record.len();
            record[at] ^= 1 << bit;
            let opened = record_bytes(&record) == Some(record.len()) && other.open(&mut record).is_ok();
            prop_assert_eq!(opened, at == 1 || at == 2);
        }

        #[test]
        fn whatever_the_peer_says_is_understood_or_ends_it(
            messages in proptest::collection::vec((20..26u8, proptest::collection::vec(0..30u8, 0..40)), 0..6),
        ) {
            let [mut one, mut other] = pair();
            for (kind, payload) in messages {
                one.seal(ContentType::from(kind), &payload);
                let _ = take(&mut other, &mut sent(&mut one));
                if kind == 22 && other.keys.receive.sequence == 0 {
                    // It believed that there are new keys.
                    break;
                }
            }
            prop_assert!(other.plain.rest().len() <= 6 * 40);
            let _ = sent(&mut other);
        }
    }
}
