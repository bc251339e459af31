//! What can be wrong with a message on its way in or out.

use std::fmt;

use trunkline_schema::{MessageIndex, Schema};

use crate::{CheckError, DEPTH_MAX, LimitError};

/// Protobuf bytes that cannot become a linear message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Byte of the input at which the value in question starts, behind its tag; or the tag, where none could be read.
    pub offset: usize,
    /// The innermost message type being read.
    pub message: MessageIndex,
    /// Number of the field in question; 0 where a field was expected and none could be read.
    pub field: u32,
}

/// The ways in which protobuf bytes can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The input ends, or the enclosing message ends, inside a value.
    #[error("value goes past the end of its message")]
    Truncated,
    /// A varint of more than ten bytes, a length of more than five, or a tag of more than five bytes or 32 bits.
    #[error("varint too long")]
    VarintTooLong,
    /// Field number 0.
    #[error("field number 0")]
    FieldNumberZero,
    /// Wire types 6 and 7 do not exist.
    #[error("wire type {0} does not exist")]
    WireType(u8),
    /// A group ends that is not open.
    #[error("end of a group that is not open")]
    UnmatchedEndGroup,
    /// A packed array of fixed-size elements whose length is not a multiple of the element's.
    #[error("packed length is not a multiple of the element's size")]
    PackedLength,
    /// A string field that the schema wants in UTF-8 is not.
    #[error("string is not UTF-8")]
    Utf8,
    /// Messages and groups nested deeper than [`DecodeLimits::depth_max`](super::DecodeLimits).
    #[error("nested deeper than {DEPTH_MAX} messages")]
    Depth,
    /// The input is longer than [`DecodeLimits::wire_bytes_max`](super::DecodeLimits).
    #[error("message of {bytes} bytes is longer than the limit of {bytes_max}")]
    WireBytes {
        /// Length of the input.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The linear form would be longer than [`DecodeLimits::growth_max`](super::DecodeLimits) allows so short an input:
    /// RESOURCE_EXHAUSTED.
    #[error("message of {bytes} bytes has more than {linear_bytes_max} in linear form")]
    Growth {
        /// Length of the input.
        bytes: usize,
        /// What it may have.
        linear_bytes_max: usize,
    },
    /// The linear form would be longer than allowed, or the extent could not be grown: RESOURCE_EXHAUSTED.
    #[error("{0}")]
    Limit(LimitError),
    /// The schema the transcoder was built from has no such message.
    #[error("no such message type in the schema")]
    NoSuchMessage,
}

impl DecodeError {
    /// The error in words, with the names of message and field.
    pub fn describe(&self, schema: &Schema) -> String {
        let message = schema.messages().get(self.message.0 as usize);
        let name = message.map_or("?", |m| m.full_name.as_str());
        let field = message.and_then(|m| m.field(self.field)).map(|f| f.name.as_str());
        let dot = if field.is_some() { "." } else { "" };
        format!("{} in {name}{dot}{} at byte {}", self.kind, field.unwrap_or(""), self.offset)
    }

    /// Whether a limit was met, not a fault of the bytes: RESOURCE_EXHAUSTED, not INVALID_ARGUMENT.
    pub fn is_limit(&self) -> bool {
        use DecodeErrorKind::{Growth, Limit, WireBytes};
        matches!(self.kind, Limit(_) | WireBytes { .. } | Growth { .. })
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (field {} of message type {}, byte {})",
            self.kind, self.field, self.message.0, self.offset
        )
    }
}

impl std::error::Error for DecodeError {}

/// A linear message that does not become protobuf bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It does not pass the [check](crate::check()).
    #[error(transparent)]
    Invalid(#[from] CheckError),
    /// The output does not fit the buffer, or would be longer than [`WIRE_BYTES_MAX`](super::WIRE_BYTES_MAX).
    #[error("the message does not fit {bytes_max} bytes")]
    Full {
        /// What there was room for.
        bytes_max: usize,
    },
}
