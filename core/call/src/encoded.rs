//! Metadata in its encoded form: written pair by pair into one buffer, read without copying.
//!
//! [`Metadata`] owns every key and value; what only passes through (an edge, a proxy) needs neither.

use crate::metadata::{check_pair, split_u16};
use crate::{Metadata, MetadataError};

const COUNT_BYTES: usize = 2;
const PAIR_HEAD_BYTES: usize = 4;

/// Writes the encoded form of [`Metadata`], with the same checks and limits.
#[derive(Clone, Debug, Default)]
pub struct MetadataWriter {
    /// Empty until the first pair.
    bytes: Vec<u8>,
    pairs: u16,
}

/// The pairs of an encoded form, checked one by one as they are read. After an error it is over.
#[derive(Clone, Debug)]
pub struct MetadataReader<'a> {
    rest: &'a [u8],
    left: usize,
}

impl MetadataWriter {
    /// No pairs yet, and room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes.min(Metadata::BYTES_MAX)), pairs: 0 }
    }

    /// Goes on behind the pairs of an encoded form, which have been read before: only their number is looked at.
    ///
    /// # Errors
    /// [`MetadataError`] if not even that is there, or too many bytes are.
    pub fn behind(encoded: &[u8], spare_bytes: usize) -> Result<Self, MetadataError> {
        let pairs = MetadataReader::read(encoded)?.left() as u16;
        let mut bytes = Vec::with_capacity(encoded.len() + spare_bytes);
        bytes.extend_from_slice(if pairs == 0 { &[] } else { encoded });
        Ok(Self { bytes, pairs })
    }

    /// Goes on behind those pairs of an encoded form that are not left out by their key.
    ///
    /// # Errors
    /// [`MetadataError`] if the bytes are not exactly one encoded form.
    pub fn behind_others(
        encoded: &[u8],
        spare_bytes: usize,
        is_left_out: impl Fn(&str) -> bool,
    ) -> Result<Self, MetadataError> {
        let mut others = Self::with_capacity(encoded.len() + spare_bytes);
        for pair in MetadataReader::read(encoded)? {
            let (key, value) = pair?;
            if !is_left_out(key) {
                others.insert(key, value)?;
            }
        }
        Ok(others)
    }

    /// Appends a pair.
    ///
    /// # Errors
    /// [`MetadataError`] names the key at fault, or the limit; nothing is appended then.
    pub fn insert(&mut self, key: &str, value: &[u8]) -> Result<(), MetadataError> {
        if self.bytes.len() + PAIR_HEAD_BYTES + key.len() + value.len() > Metadata::BYTES_MAX {
            return Err(MetadataError::TooLarge);
        }
        self.insert_with(key, |out| {
            out.extend_from_slice(value);
            Ok(())
        })
    }

    /// Appends a pair whose value is written in place.
    ///
    /// # Errors
    /// As [`Self::insert`], and whatever the function says; nothing is appended then.
    pub fn insert_with(
        &mut self,
        key: &str,
        value: impl FnOnce(&mut Vec<u8>) -> Result<(), MetadataError>,
    ) -> Result<(), MetadataError> {
        let start = self.bytes.len();
        let appended = self.append(key, value);
        if appended.is_err() {
            self.bytes.truncate(start);
        }
        appended
    }

    /// The encoded form; nothing at all without pairs.
    pub fn into_bytes(mut self) -> Vec<u8> {
        if self.pairs > 0 {
            self.bytes[..COUNT_BYTES].copy_from_slice(&self.pairs.to_le_bytes());
        }
        self.bytes
    }

    /// Length of the encoded form.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs == 0
    }

    fn append(
        &mut self,
        key: &str,
        value: impl FnOnce(&mut Vec<u8>) -> Result<(), MetadataError>,
    ) -> Result<(), MetadataError> {
        if usize::from(self.pairs) >= Metadata::PAIRS_MAX {
            return Err(MetadataError::TooMany);
        }
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; COUNT_BYTES]);
        }
        let key_len = u16::try_from(key.len()).map_err(|_| MetadataError::TooLarge)?;
        self.bytes.extend_from_slice(&key_len.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(key.as_bytes());
        let from = self.bytes.len();
        value(&mut self.bytes)?;
        let written = &self.bytes[from..];
        check_pair(key, written)?;
        let value_len = u16::try_from(written.len()).map_err(|_| MetadataError::TooLarge)?;
        if self.bytes.len() > Metadata::BYTES_MAX {
            return Err(MetadataError::TooLarge);
        }
        let at = from - key.len() - 2;
        self.bytes[at..at + 2].copy_from_slice(&value_len.to_le_bytes());
        self.pairs += 1;
        Ok(())
    }
}

impl<'a> MetadataReader<'a> {
    /// Reads an encoded form; nothing at all is empty metadata.
    ///
    /// # Errors
    /// [`MetadataError`] if not even the number of pairs is there, or too many bytes are.
    pub fn read(bytes: &'a [u8]) -> Result<Self, MetadataError> {
        if bytes.is_empty() {
            return Ok(Self { rest: bytes, left: 0 });
        }
        if bytes.len() > Metadata::BYTES_MAX {
            return Err(MetadataError::TooLarge);
        }
        let (left, rest) = split_u16(bytes)?;
        match left {
            0 if !rest.is_empty() => Err(MetadataError::Malformed),
            _ if left > Metadata::PAIRS_MAX => Err(MetadataError::TooMany),
            _ => Ok(Self { rest, left }),
        }
    }

    /// Pairs still to come, as the encoded form claims: at most [`Metadata::PAIRS_MAX`].
    pub fn left(&self) -> usize {
        self.left
    }

    fn pair(&mut self) -> Result<(&'a str, &'a [u8]), MetadataError> {
        let (key_len, after) = split_u16(self.rest)?;
        let (value_len, after) = split_u16(after)?;
        let (key, after) = after.split_at_checked(key_len).ok_or(MetadataError::Malformed)?;
        let (value, after) = after.split_at_checked(value_len).ok_or(MetadataError::Malformed)?;
        let key = std::str::from_utf8(key).map_err(|_| MetadataError::Malformed)?;
        check_pair(key, value)?;
        (self.rest, self.left) = (after, self.left - 1);
        if self.left == 0 && !self.rest.is_empty() { Err(MetadataError::Malformed) } else { Ok((key, value)) }
    }
}

impl<'a> Iterator for MetadataReader<'a> {
    type Item = Result<(&'a str, &'a [u8]), MetadataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let pair = self.pair();
        if pair.is_err() {
            self.left = 0;
        }
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the writer and the reader agree with [`Metadata`] on every input, the refused ones included.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_refused_leaves_no_trace() {
        let mut writer = MetadataWriter::default();
        writer.insert("a", b"1").unwrap();
        let before = writer.clone().into_bytes();
        assert!(matches!(writer.insert("Upper", b"x"), Err(MetadataError::Key(_))));
        assert!(matches!(writer.insert("b", b"\n"), Err(MetadataError::Value(_))));
        assert_eq!(writer.insert("b-bin", &vec![0; Metadata::BYTES_MAX]), Err(MetadataError::TooLarge));
        assert_eq!(writer.insert_with("b", |_| Err(MetadataError::Malformed)), Err(MetadataError::Malformed));
        assert_eq!(writer.into_bytes(), before);
        assert!(MetadataWriter::default().into_bytes().is_empty());
    }

    #[test]
    fn the_number_of_pairs_is_bounded() {
        let mut writer = MetadataWriter::default();
        for _ in 0..Metadata::PAIRS_MAX {
            writer.insert("a", b"").unwrap();
        }
        assert_eq!(writer.insert("a", b""), Err(MetadataError::TooMany));
        let bytes = writer.into_bytes();
        assert_eq!(Metadata::decode(&bytes).unwrap().len(), Metadata::PAIRS_MAX);
        assert_eq!(MetadataReader::read(&bytes).unwrap().filter(Result::is_ok).count(), Metadata::PAIRS_MAX);
    }

    proptest! {
        #[test]
        fn both_write_the_same(pairs in prop::collection::vec(("[a-zA-Z0-9._-]{0,9}(-bin)?", "[ -~\n]{0,20}"), 0..9)) {
            let (mut metadata, mut writer) = (Metadata::new(), MetadataWriter::default());
            for (key, value) in &pairs {
                prop_assert_eq!(metadata.insert(key, value), writer.insert(key, value.as_bytes()));
            }
            let mut bytes = Vec::new();
            metadata.encode(&mut bytes);
            prop_assert_eq!(&writer.into_bytes(), &bytes);
            let read: Vec<_> = MetadataReader::read(&bytes).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(read, metadata.iter().collect::<Vec<_>>());
            let one_key = pairs.first().map(|(key, _)| key.as_str());
            let others = MetadataWriter::behind_others(&bytes, 9, |key| Some(key) == one_key).unwrap();
            let mut fewer = metadata.clone();
            one_key.into_iter().for_each(|key| _ = fewer.remove(key));
            let mut fewer_bytes = Vec::new();
            fewer.encode(&mut fewer_bytes);
            prop_assert_eq!(others.into_bytes(), fewer_bytes);
            let mut behind = MetadataWriter::behind(&bytes, 9).unwrap();
            prop_assert_eq!(behind.insert("last", b"1"), metadata.insert("last", "1"));
            bytes.clear();
            metadata.encode(&mut bytes);
            prop_assert_eq!(&behind.into_bytes(), &bytes);
        }

        #[test]
        fn both_read_the_same(bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), any::<u8>()],
            0..60)) {
            let read = MetadataReader::read(&bytes).and_then(|pairs| pairs.collect::<Result<Vec<_>, _>>());
            match Metadata::decode(&bytes) {
                Ok(metadata) => prop_assert_eq!(read.unwrap(), metadata.iter().collect::<Vec<_>>()),
                Err(_) => prop_assert!(read.is_err()),
            }
        }
    }
}
