//! Headers and metadata, both ways.
//!
//! Metadata is one encoded buffer here (`trunkline_call::MetadataWriter`), because that is what travels on: nothing is
//! allocated per pair on the way in, and on the way out only what `http` itself needs for a name it does not know.

use crate::names::{is_binary, is_metadata};
use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use trunkline_call::{Metadata, MetadataError, MetadataReader, MetadataWriter};

/// Padding is accepted and not sent; bits beyond the last byte are of no interest (PROTOCOL-HTTP2, "Custom-Metadata").
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Appends the metadata among these headers. `skip` says which names have been dealt with. What HTTP allows and gRPC
/// does not is left out, in values (bytes beyond printable ASCII) as in names: proxies add such headers, and what is
/// theirs must not decide over a call.
///
/// # Errors
/// [`MetadataError::Base64`] names a header that is not base64 where its name ends in `-bin`, and all others have been
/// appended then; [`MetadataError::TooMany`] if there are too many, and [`MetadataError::TooLarge`] if the metadata
/// would exceed `bytes_max`.
pub fn read(
    headers: &HeaderMap,
    bytes_max: usize,
    skip: &[HeaderName],
    out: &mut MetadataWriter,
) -> Result<(), MetadataError> {
    let mut fault = Ok(());
    for (name, value) in headers {
        if !is_metadata(name.as_str()) || skip.contains(name) || !is_key(name.as_str()) {
            continue;
        }
        match read_one(name.as_str(), value.as_bytes(), out) {
            Ok(()) | Err(MetadataError::Value(_)) => {}
            Err(error @ MetadataError::Base64(_)) => fault = fault.and(Err(error)),
            Err(error) => return Err(error),
        }
        if out.len() > bytes_max {
            return Err(MetadataError::TooLarge);
        }
    }
    fault
}

/// Appends the headers of encoded metadata. Reserved names are left out, and so are those in `apart`, of each of which
/// the first value comes back. What is not well formed ends it: metadata that reaches an edge has been checked when it
/// came in.
pub fn write<'m, const N: usize>(
    metadata: &'m [u8],
    headers: &mut HeaderMap,
    apart: [&str; N],
) -> [Option<&'m [u8]>; N] {
    let mut first = [None; N];
    let Ok(pairs) = MetadataReader::read(metadata) else { return first };
    for (key, value) in pairs.map_while(Result::ok) {
        if let Some(of) = apart.iter().position(|name| *name == key) {
            first[of].get_or_insert(value);
        } else if is_metadata(key) {
            write_one(key, value, headers);
        }
    }
    first
}

/// The first value of `key` in encoded metadata.
pub fn first<'a>(metadata: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let pairs = MetadataReader::read(metadata).ok()?;
    pairs.map_while(Result::ok).find(|(found, _)| *found == key).map(|(_, value)| value)
}

/// About how many headers encoded metadata becomes.
pub fn count(metadata: &[u8]) -> usize {
    MetadataReader::read(metadata).map_or(0, |pairs| pairs.left().min(metadata.len() / 4))
}

/// Decodes one base64 value.
pub fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> bool {
    BASE64.decode_vec(text, out).is_ok()
}

fn read_one(name: &str, value: &[u8], out: &mut MetadataWriter) -> Result<(), MetadataError> {
    if !is_binary(name) {
        return out.insert(name, value);
    }
    // Several values may be joined by commas, as HTTP allows for any header.
    for part in value.split(|byte| *byte == b',') {
        let part = part.trim_ascii();
        out.insert_with(name, |out| {
            let decoded = part.len() <= 2 * Metadata::BYTES_MAX && decode_base64(part, out);
            if decoded { Ok(()) } else { Err(MetadataError::Base64(name.to_owned())) }
        })?;
    }
    Ok(())
}

fn write_one(key: &str, value: &[u8], headers: &mut HeaderMap) {
    let Ok(name) = HeaderName::from_bytes(key.as_bytes()) else { return };
    let value = if is_binary(key) {
        encode_base64(value)
    } else {
        // RFC 9113, section 8.2.1: a value with blanks at its ends makes the whole message malformed.
        HeaderValue::from_bytes(value.trim_ascii()).ok()
    };
    if let Some(value) = value {
        // Fails at 32768 headers, far above what metadata holds.
        let _ = headers.try_append(name, value);
    }
}

fn encode_base64(value: &[u8]) -> Option<HeaderValue> {
    let mut text = BytesMut::zeroed(base64::encoded_len(value.len(), false)?);
    let written = BASE64.encode_slice(value, &mut text).ok()?;
    text.truncate(written);
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}

/// HTTP allows more in names than gRPC does; what gRPC does not allow is no metadata (a proxy's, perhaps).
fn is_key(name: &str) -> bool {
    name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    //! Shows that metadata survives the wire, and what the forms of `-bin` are.
    use super::*;
    use proptest::prelude::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        map
    }

    fn decoded(pairs: &[(&str, &[u8])]) -> Result<Vec<(String, Vec<u8>)>, MetadataError> {
        let mut out = MetadataWriter::default();
        read(&headers(pairs), Metadata::BYTES_MAX, &[], &mut out)?;
        let metadata = Metadata::decode(&out.into_bytes()).unwrap();
        Ok(metadata.iter().map(|(key, value)| (key.to_owned(), value.to_vec())).collect())
    }

    #[test]
    fn every_form_of_binary_is_read() {
        let pair = |value: &[u8]| ("a-bin".to_owned(), value.to_vec());
        for (text, values) in [
            ("AQI=", vec![pair(&[1, 2])]),
            ("AQI", vec![pair(&[1, 2])]),
            ("", vec![pair(&[])]),
            ("AQI,AQ==", vec![pair(&[1, 2]), pair(&[1])]),
            ("AQI , AQ", vec![pair(&[1, 2]), pair(&[1])]),
            ("AR", vec![pair(&[1])]),
        ] {
            assert_eq!(decoded(&[("a-bin", text.as_bytes())]), Ok(values), "{text}");
        }
        for text in ["A", "A_I", "AQ=I", "!!"] {
            let refused = decoded(&[("a-bin", text.as_bytes())]);
            assert_eq!(refused, Err(MetadataError::Base64("a-bin".into())), "{text}");
        }
    }

    #[test]
    fn what_is_not_metadata_is_left_out() {
        let read = decoded(&[
            ("content-type", b"application/grpc"),
            ("grpc-encoding", b"gzip"),
            ("te", b"trailers"),
            ("x!y", b"a proxy's"),
            ("tenant", b"blue"),
        ]);
        assert_eq!(read.unwrap(), [("tenant".to_owned(), b"blue".to_vec())]);
        let odd = decoded(&[("a", b"gr\xf6\xdfer"), ("tab", b"a\tb"), ("behind", b"it")]);
        assert_eq!(odd.unwrap(), [("behind".to_owned(), b"it".to_vec())]);
    }

    #[test]
    fn what_stands_behind_a_fault_is_read() {
        let mut out = MetadataWriter::default();
        let read = read(&headers(&[("a-bin", b"!!"), ("behind", b"it")]), Metadata::BYTES_MAX, &[], &mut out);
        assert_eq!(read, Err(MetadataError::Base64("a-bin".into())));
        assert_eq!(first(&out.into_bytes(), "behind"), Some(b"it".as_slice()));
    }

    #[test]
    fn the_limit_holds() {
        let pairs = headers(&[("a", &[b'x'; 100]), ("b", &[b'x'; 100])]);
        let read = |max| read(&pairs, max, &[], &mut MetadataWriter::default());
        assert_eq!((read(300), read(150)), (Ok(()), Err(MetadataError::TooLarge)));
    }

    #[test]
    fn blanks_at_the_ends_and_reserved_names_are_not_sent() {
        let mut metadata = Metadata::new();
        for (key, value) in [("a", "  b c "), ("grpc-status", "0"), ("connection", "close"), ("empty", "")] {
            metadata.insert(key, value).unwrap();
        }
        let mut bytes = Vec::new();
        metadata.encode(&mut bytes);
        let mut map = HeaderMap::new();
        write(&bytes, &mut map, []);
        assert_eq!(map, headers(&[("a", b"b c"), ("empty", b"")]));
        assert_eq!(count(&bytes), 4);
    }

    proptest! {
        #[test]
        fn metadata_survives_the_wire(
            pairs in prop::collection::vec(("[a-z0-9._-]{1,12}", "([!-~]([ -~]{0,20}[!-~])?)?"), 0..12),
            binary in prop::collection::vec(("[a-z]{1,4}-bin", prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        ) {
            let mut metadata = Metadata::new();
            for (key, value) in pairs.iter().filter(|(key, _)| is_metadata(key) && !is_binary(key)) {
                metadata.insert(key, value).unwrap();
            }
            for (key, value) in binary.iter().filter(|(key, _)| is_metadata(key)) {
                metadata.insert(key, value).unwrap();
            }
            let mut bytes = Vec::new();
            metadata.encode(&mut bytes);
            let mut map = HeaderMap::new();
            write(&bytes, &mut map, []);
            let mut out = MetadataWriter::default();
            read(&map, Metadata::BYTES_MAX, &[], &mut out).unwrap();
            let back = Metadata::decode(&out.into_bytes()).unwrap();
            // Headers of one name keep their order; those of different names need not.
            for (key, _) in metadata.iter() {
                let of = |metadata: &Metadata| {
                    metadata.iter().filter(|(k, _)| *k == key).map(|(_, v)| v.to_vec()).collect::<Vec<_>>()
                };
                prop_assert_eq!(of(&back), of(&metadata));
            }
            prop_assert_eq!(back.len(), metadata.len());
        }
    }
}
