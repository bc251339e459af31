//! What another process needs to go on with a session: secrets, and where its records stand.
//!
//! The library gives a session's keys away, but not the secrets the next keys follow from; those it says once, when the
//! handshake is done, to whoever keeps its log. [`Capture`] is that log, kept in memory for the session in hand and for
//! nothing else. Which of the keys that follow from the first secret is in use is found by trying: it is the one the
//! library gives away.
//!
//! Secrets lie in memory that is wiped when it is let go ([`OkmBlock`], `Zeroizing`), are shown by no `Debug`, and
//! leave the process only through [`Keys::to_bytes`].

use super::provider::PROVIDER;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::tls13::{OkmBlock, expand};
use rustls::{ConnectionTrafficSecrets, KeyLog, SupportedCipherSuite, Tls13CipherSuite};
use std::cell::RefCell;
use std::fmt;
use zeroize::Zeroizing;

/// A session to go on with elsewhere.
#[derive(Debug)]
pub struct Portable {
    /// Its secrets.
    pub keys: Keys,
    /// Plain text nobody has read yet.
    pub plain: Vec<u8>,
    /// Cipher text that was received and not taken apart: whole records, and the beginning of one.
    pub unread: Vec<u8>,
    /// Cipher text that waits for the socket.
    pub unsent: Vec<u8>,
}

/// The secrets of both directions, and how many records each has seen.
#[derive(Clone)]
pub struct Keys {
    pub(crate) suite: &'static Tls13CipherSuite,
    pub(crate) send: Traffic,
    pub(crate) receive: Traffic,
}

/// One direction: the traffic secret of this generation, and the number of the next record under it.
#[derive(Clone)]
pub(crate) struct Traffic {
    pub secret: OkmBlock,
    pub sequence: u64,
}

/// Key generations that are looked through: each is sixteen million records of AES-GCM.
const GENERATIONS_MAX: usize = 1 << 12;
/// Bytes of a key. Suites with shorter ones are not gone on with: the library takes keys of this length only, and two
/// daemons agree on AES-256-GCM.
const KEY_BYTES: usize = 32;

/// Hears of the secrets of the session whose handshake this thread goes on with.
#[derive(Debug)]
pub(crate) struct Capture;

/// The client's and the server's first traffic secret.
pub(crate) type First = [Option<OkmBlock>; 2];

thread_local! {
    static SAID: RefCell<First> = const { RefCell::new([None, None]) };
}

impl Capture {
    const LABELS: [&'static str; 2] = ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"];

    /// What was said on this thread since the last time.
    pub fn take() -> First {
        SAID.with_borrow_mut(std::mem::take)
    }
}

impl KeyLog for Capture {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let place = Self::LABELS.iter().position(|known| *known == label);
        if let Some(place) = place.filter(|_| secret.len() <= OkmBlock::MAX_LEN) {
            SAID.with_borrow_mut(|said| said[place] = Some(OkmBlock::new(secret)));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        Self::LABELS.contains(&label)
    }
}

impl Keys {
    /// Of a session that is at these keys; `None` if they do not follow from its first secrets.
    pub(crate) fn find(
        suite: &'static Tls13CipherSuite,
        first: [&OkmBlock; 2],
        at: [(u64, &ConnectionTrafficSecrets); 2],
    ) -> Option<Self> {
        let [send, receive] = [0, 1].map(|direction| {
            let (sequence, keys) = at[direction];
            let secret = generation_of(suite, first[direction], keys)?;
            Some(Traffic { secret, sequence })
        });
        Some(Self { suite, send: send?, receive: receive? })
    }

    /// Whether sessions of this suite can be gone on with.
    pub(crate) fn can_be_of(suite: &Tls13CipherSuite) -> bool {
        suite.aead_alg.key_len() == KEY_BYTES
    }

    /// For the other process, and nobody else.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // Never longer, so that no copy is left behind by growing.
        let mut out = Zeroizing::new(Vec::with_capacity(4 + 2 * (OkmBlock::MAX_LEN + 8)));
        out.extend(u16::from(self.suite.common.suite).to_be_bytes());
        for traffic in [&self.send, &self.receive] {
            out.push(traffic.secret.as_ref().len() as u8);
            out.extend(traffic.secret.as_ref());
            out.extend(traffic.sequence.to_be_bytes());
        }
        out
    }

    /// As another process has written them; `None` if they are none, or of a suite that is not spoken here.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (number, mut rest) = bytes.split_first_chunk()?;
        let number = u16::from_be_bytes(*number);
        let suite = PROVIDER.cipher_suites.iter().find_map(|suite| match suite {
            SupportedCipherSuite::Tls13(suite) if u16::from(suite.common.suite) == number => Some(*suite),
            _ => None,
        })?;
        let secret_bytes = suite.common.hash_provider.output_len();
        let mut next = || {
            let (len, tail) = rest.split_first()?;
            let (secret, tail) = tail.split_at_checked(usize::from(*len))?;
            let (sequence, tail) = tail.split_first_chunk()?;
            rest = tail;
            let sequence = u64::from_be_bytes(*sequence);
            (secret.len() == secret_bytes).then(|| Traffic { secret: OkmBlock::new(secret), sequence })
        };
        let (send, receive) = (next()?, next()?);
        (rest.is_empty() && Self::can_be_of(suite)).then_some(Self { suite, send, receive })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("suite", &self.suite.common.suite).finish_non_exhaustive()
    }
}

impl Traffic {
    /// The key and the nonce's beginning (RFC 8446, section 7.3).
    pub fn key(&self, suite: &Tls13CipherSuite) -> (AeadKey, Iv) {
        (
            label::<AeadKey, KEY_BYTES>(suite, &self.secret, b"key"),
            label::<Iv, 12>(suite, &self.secret, b"iv"),
        )
    }

    /// The next generation (section 7.2).
    pub fn update(&mut self, suite: &Tls13CipherSuite) {
        self.secret = next_secret(suite, &self.secret);
        self.sequence = 0;
    }
}

fn generation_of(
    suite: &Tls13CipherSuite,
    first: &OkmBlock,
    keys: &ConnectionTrafficSecrets,
) -> Option<OkmBlock> {
    let key = match keys {
        ConnectionTrafficSecrets::Aes256Gcm { key, .. }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, .. } => key,
        _ => return None,
    };
    let mut secret = first.clone();
    for _ in 0..GENERATIONS_MAX {
        if label::<AeadKey, KEY_BYTES>(suite, &secret, b"key").as_ref() == key.as_ref() {
            return Some(secret);
        }
        secret = next_secret(suite, &secret);
    }
    None
}

fn next_secret(suite: &Tls13CipherSuite, secret: &OkmBlock) -> OkmBlock {
    let expander = suite.hkdf_provider.expander_for_okm(secret);
    let len = expander.hash_len() as u16;
    expander.expand_block(&[&len.to_be_bytes(), &[6 + 11], b"tls13 ", b"traffic upd", &[0]])
}

/// HKDF-Expand-Label without a context (section 7.1).
fn label<T: From<[u8; N]>, const N: usize>(suite: &Tls13CipherSuite, secret: &OkmBlock, label: &[u8]) -> T {
    let expander = suite.hkdf_provider.expander_for_okm(secret);
    let (len, label_len) = ((N as u16).to_be_bytes(), [6 + label.len() as u8]);
    expand(expander.as_ref(), &[&len, &label_len, b"tls13 ", label, &[0]])
}
