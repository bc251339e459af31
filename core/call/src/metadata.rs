//! Metadata: what gRPC calls headers and trailers.

use std::fmt;

/// Ordered key/value pairs sent beside a call.
///
/// Keys are lower-case ASCII letters, digits, `-`, `_` and `.`; a key that ends in `-bin` has a value of any bytes, any
/// other a value of printable ASCII (gRPC, PROTOCOL-HTTP2 "Custom-Metadata"). A key may occur several times.
///
/// # Encoded form
/// The same bytes in shared memory and on the native wire, so that metadata is forwarded without being parsed:
/// `u16 count`, then per pair `u16 key length, u16 value length, key, value`, little endian.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    pairs: Vec<(Box<str>, Box<[u8]>)>,
    /// What they take in the encoded form: to ask every pair again for each that is added would make reading dear.
    pairs_bytes: usize,
}

/// Why metadata was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataError {
    /// A key has characters outside `0-9 a-z - _ .` or is empty.
    Key(String),
    /// A value of a key without `-bin` has bytes outside printable ASCII.
    Value(String),
    /// A value of a key with `-bin` is not base64, where it travels as such (gRPC).
    Base64(String),
    /// The encoded form would exceed [`Metadata::BYTES_MAX`], or one value 65,535 bytes.
    TooLarge,
    /// There would be more than [`Metadata::PAIRS_MAX`] pairs.
    TooMany,
    /// The encoded form ends early or says a wrong length.
    Malformed,
}

impl Metadata {
    /// Largest encoded form. gRPC libraries default to 8 KiB of headers and allow 16 KiB; `grpc-status-details-bin`
    /// rides here too, so twice that.
    pub const BYTES_MAX: usize = 32 * 1024;
    /// Most pairs, so that a count cannot make a reader allocate.
    pub const PAIRS_MAX: usize = 1024;

    /// The encoded form of no pairs, where something must be said and there is nothing to say: headers that only tell
    /// that an answer begins.
    pub const NO_PAIRS: [u8; 2] = [0, 0];

    /// No metadata.
    pub fn new() -> Self {
        Self::default()
    }

    /// A key as it is sent, of a name somebody wrote by hand: in lower case, as HTTP/2 has all names.
    ///
    /// # Errors
    /// [`MetadataError::Key`] if the name cannot be a key.
    pub fn key_of(name: &str) -> Result<String, MetadataError> {
        let key = name.to_ascii_lowercase();
        if is_legal_key(&key) { Ok(key) } else { Err(MetadataError::Key(name.chars().take(64).collect())) }
    }

    /// Appends a pair.
    ///
    /// # Errors
    /// [`MetadataError`] names the key at fault, or the limit.
    pub fn insert(&mut self, key: &str, value: impl AsRef<[u8]>) -> Result<(), MetadataError> {
        let value = value.as_ref();
        check_pair(key, value)?;
        let bytes = pair_bytes(key, value);
        let fits_u16 = key.len() <= usize::from(u16::MAX) && value.len() <= usize::from(u16::MAX);
        if self.pairs.len() >= Self::PAIRS_MAX {
            return Err(MetadataError::TooMany);
        }
        if 2 + self.pairs_bytes + bytes > Self::BYTES_MAX || !fits_u16 {
            return Err(MetadataError::TooLarge);
        }
        self.pairs.push((key.into(), value.into()));
        self.pairs_bytes += bytes;
        Ok(())
    }

    /// Reads the encoded form; nothing at all is empty metadata.
    ///
    /// # Errors
    /// [`MetadataError`] if the bytes are not exactly one encoded form with legal keys and values.
    pub fn decode(bytes: &[u8]) -> Result<Self, MetadataError> {
        if bytes.is_empty() {
            return Ok(Self::new());
        }
        if bytes.len() > Self::BYTES_MAX {
            return Err(MetadataError::TooLarge);
        }
        let (count, mut rest) = split_u16(bytes)?;
        let mut metadata = Self::new();
        for _ in 0..count {
            let (key_len, after) = split_u16(rest)?;
            let (value_len, after) = split_u16(after)?;
            let (key, after) = after.split_at_checked(key_len).ok_or(MetadataError::Malformed)?;
            let (value, after) = after.split_at_checked(value_len).ok_or(MetadataError::Malformed)?;
            metadata.insert(std::str::from_utf8(key).map_err(|_| MetadataError::Malformed)?, value)?;
            rest = after;
        }
        if rest.is_empty() { Ok(metadata) } else { Err(MetadataError::Malformed) }
    }

    /// Appends the encoded form to `out`. Empty metadata is written as nothing at all.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.pairs.is_empty() {
            return;
        }
        out.extend_from_slice(&(self.pairs.len() as u16).to_le_bytes());
        for (key, value) in &self.pairs {
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(&(value.len() as u16).to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(value);
        }
    }

    /// Bytes [`Metadata::encode`] would append.
    pub fn encoded_len(&self) -> usize {
        if self.pairs.is_empty() { 0 } else { 2 + self.pairs_bytes }
    }

    /// The first value of `key`.
    pub fn first(&self, key: &str) -> Option<&[u8]> {
        self.iter().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    /// The first value of `key` as text, if it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.first(key).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// Takes every pair with `key` out and returns the first value.
    pub fn remove(&mut self, key: &str) -> Option<Box<[u8]>> {
        let first = self.pairs.iter().position(|(k, _)| &**k == key)?;
        let (_, value) = self.pairs.remove(first);
        self.pairs.retain(|(k, _)| &**k != key);
        self.pairs_bytes = self.pairs.iter().map(|(key, value)| pair_bytes(key, value)).sum();
        Some(value)
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.pairs.iter().map(|(k, v)| (&**k, &**v))
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// The pairs of an encoded form, read where they lie; ends where the form does, or where it is malformed.
#[derive(Clone, Debug)]
pub struct MetadataPairs<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> MetadataPairs<'a> {
    /// Reads what [`Metadata::encode`] wrote.
    pub fn new(encoded: &'a [u8]) -> Self {
        let (left, rest) = split_u16(encoded).unwrap_or_default();
        Self { rest, left }
    }

    fn pair(&mut self) -> Result<(&'a [u8], &'a [u8]), MetadataError> {
        let (key_len, after) = split_u16(self.rest)?;
        let (value_len, after) = split_u16(after)?;
        let (key, after) = after.split_at_checked(key_len).ok_or(MetadataError::Malformed)?;
        let (value, after) = after.split_at_checked(value_len).ok_or(MetadataError::Malformed)?;
        self.rest = after;
        Ok((key, value))
    }
}

impl<'a> Iterator for MetadataPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.pair().ok()
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(k, v)| (k, String::from_utf8_lossy(v)))).finish()
    }
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "metadata key {key:?}: use 0-9 a-z - _ . only"),
            Self::Value(key) => {
                write!(f, "metadata {key:?}: not printable ASCII; end the key in -bin for bytes")
            }
            Self::Base64(key) => write!(f, "metadata {key:?}: not base64, as values of -bin keys are sent"),
            Self::TooLarge => {
                write!(f, "metadata exceeds {} bytes, or 65535 in one value", Metadata::BYTES_MAX)
            }
            Self::TooMany => write!(f, "metadata has more than {} pairs", Metadata::PAIRS_MAX),
            Self::Malformed => f.write_str("metadata block is malformed"),
        }
    }
}

impl std::error::Error for MetadataError {}

/// What a pair takes in the encoded form.
fn pair_bytes(key: &str, value: &[u8]) -> usize {
    4 + key.len() + value.len()
}

/// The rules for one pair, lengths aside.
pub(crate) fn check_pair(key: &str, value: &[u8]) -> Result<(), MetadataError> {
    if !is_legal_key(key) {
        return Err(MetadataError::Key(key.chars().take(64).collect()));
    }
    if !key.ends_with("-bin") && !all(value, |b| (0x20..=0x7e).contains(&b)) {
        return Err(MetadataError::Value(key.to_owned()));
    }
    Ok(())
}

fn is_legal_key(key: &str) -> bool {
    let is_legal = |b| matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'-' | b'_' | b'.');
    !key.is_empty() && all(key.as_bytes(), is_legal)
}

/// Whether all bytes are of a kind. Nearly always they are: looking at every one, without a branch for each, lets the
/// compiler look at sixteen at once.
fn all(bytes: &[u8], is_one: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(true, |all, byte| all & is_one(*byte))
}

pub(crate) fn split_u16(bytes: &[u8]) -> Result<(usize, &[u8]), MetadataError> {
    let (head, rest) = bytes.split_first_chunk::<2>().ok_or(MetadataError::Malformed)?;
    Ok((usize::from(u16::from_le_bytes(*head)), rest))
}

#[cfg(test)]
mod tests {
    //! Shows that metadata survives its encoded form and that no bytes make the reader panic or allocate wildly.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_and_values_are_policed() {
        let mut metadata = Metadata::new();
        assert!(matches!(metadata.insert("Upper", "x"), Err(MetadataError::Key(_))));
        assert!(matches!(metadata.insert("", "x"), Err(MetadataError::Key(_))));
        assert!(matches!(metadata.insert("a", "\n"), Err(MetadataError::Value(_))));
        assert!(metadata.insert("a-bin", [0, 255]).is_ok());
        assert_eq!(metadata.insert("b-bin", vec![0; Metadata::BYTES_MAX]), Err(MetadataError::TooLarge));
        assert_eq!(metadata.len(), 1);
    }

    #[test]
    fn names_written_by_hand_become_keys() {
        assert_eq!(Metadata::key_of("X-User"), Ok("x-user".to_owned()));
        for name in ["", "x user", ":path", "x/y", "é", "x\n"] {
            assert_eq!(Metadata::key_of(name), Err(MetadataError::Key(name.to_owned())), "{name:?}");
        }
    }

    #[test]
    fn no_pairs_can_be_said() {
        assert_eq!(Metadata::decode(&Metadata::NO_PAIRS), Ok(Metadata::new()));
        assert_eq!(Metadata::decode(&[]), Ok(Metadata::new()));
    }

    #[test]
    fn remove_takes_every_occurrence() {
        let mut metadata = Metadata::new();
        for (k, v) in [("a", "1"), ("b", "2"), ("a", "3")] {
            metadata.insert(k, v).unwrap();
        }
        assert_eq!(metadata.remove("a").as_deref(), Some(&b"1"[..]));
        assert_eq!(metadata.remove("a"), None);
        let mut encoded = Vec::new();
        metadata.encode(&mut encoded);
        assert_eq!(encoded.len(), metadata.encoded_len());
        assert_eq!(metadata.text("b"), Some("2"));
    }

    proptest! {
        #[test]
        fn round_trip(pairs in prop::collection::vec(("[a-z0-9._-]{1,12}", "[ -~]{0,20}"), 1..20)) {
            let mut metadata = Metadata::new();
            for (key, value) in &pairs {
                metadata.insert(key, value).unwrap();
            }
            let mut bytes = Vec::new();
            metadata.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), metadata.encoded_len());
            let read: Vec<_> = MetadataPairs::new(&bytes).collect();
            let written: Vec<_> = metadata.iter().map(|(key, value)| (key.as_bytes(), value)).collect();
            prop_assert_eq!(read, written);
            prop_assert_eq!(Metadata::decode(&bytes).unwrap(), metadata);
        }

        #[test]
        fn any_bytes_decode_or_err(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Metadata::decode(&bytes);
            prop_assert!(MetadataPairs::new(&bytes).count() <= bytes.len());
        }
    }
}
