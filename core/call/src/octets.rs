//! Bytes that travel between processes as a string of bytes, whoever owns them (for `#[serde(with = ...)]`).

use serde::{Deserialize, Deserializer, Serializer};
use serde_bytes::ByteBuf;
use std::borrow::Cow;

/// Writes the bytes.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(bytes: &Cow<'_, [u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Reads bytes of one's own.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u8]>, D::Error> {
    ByteBuf::deserialize(deserializer).map(|bytes| Cow::Owned(bytes.into_vec()))
}
