//! Bytes that travel between processes as a string of bytes, whoever owns them (for `#[serde(with = ...)]`).

use serde::{Deserialize, Deserializer, Serializer};
use serde_bytes::ByteBuf;

/// Writes the bytes.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: AsRef<[u8]>, S: Serializer>(bytes: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes.as_ref())
}

/// Reads bytes of one's own.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, T: From<Vec<u8>>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    ByteBuf::deserialize(deserializer).map(|bytes| bytes.into_vec().into())
}

/// A server's stamps, if there are any: none are no bytes.
pub mod trailer {
    use crate::SERVER_TRAILER_BYTES;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
    use serde_bytes::ByteBuf;

    type Trailer = [u8; SERVER_TRAILER_BYTES];

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(trailer: &Option<Trailer>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(trailer.as_ref().map_or(&[], |trailer| trailer.as_slice()))
    }

    /// Reads it.
    ///
    /// # Errors
    /// Those of the deserializer; another length.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Trailer>, D::Error> {
        let bytes = ByteBuf::deserialize(deserializer)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        Trailer::try_from(bytes.as_slice()).map(Some).map_err(D::Error::custom)
    }
}
