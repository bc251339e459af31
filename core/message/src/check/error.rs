//! What can be wrong with an extent.

use trunkline_schema::{MessageIndex, Schema};

use crate::header::HeaderError;
use crate::place::DEPTH_MAX;

/// Why bytes are not a message of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (offset {offset}, field {field} of message type {})", .message.0)]
pub struct CheckError {
    /// What is wrong.
    pub kind: CheckErrorKind,
    /// Offset in the extent of what is wrong.
    pub offset: u32,
    /// The innermost message type that was being read.
    pub message: MessageIndex,
    /// Number of the field in question; 0 if it is the block itself.
    pub field: u32,
}

impl CheckError {
    /// The error in words, with the names of message and field.
    pub fn describe(&self, schema: &Schema) -> String {
        let message = schema.messages().get(self.message.0 as usize);
        let name = message.map_or("?", |m| m.full_name.as_str());
        let field = message.and_then(|m| m.field(self.field)).map(|f| f.name.as_str());
        let dot = if field.is_some() { "." } else { "" };
        format!("{} in {name}{dot}{} at offset {}", self.kind, field.unwrap_or(""), self.offset)
    }
}

/// The ways in which an extent can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckErrorKind {
    /// The schema has no such message.
    #[error("no such message type in the schema")]
    NoSuchMessage,
    /// The header is none.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The header states another length than there is.
    #[error("the header states {0} bytes")]
    Length(u32),
    /// The header states another type's fingerprint.
    #[error("fingerprint {0:016x} is that of another message type")]
    Fingerprint(u64),
    /// The memory itself, a block or an array is not aligned.
    #[error("misaligned")]
    Misaligned,
    /// A block, array, string or unknown bytes reach out of the extent.
    #[error("reaches out of the extent")]
    OutOfBounds,
    /// More is visited than the extent holds: parts are shared, or lead in a circle.
    #[error("visits more bytes than the extent has")]
    Overlap,
    /// A message that is present has offset 0.
    #[error("message present at offset 0")]
    Null,
    /// A presence bit that belongs to no field.
    #[error("presence bit of no field")]
    NoSuchField,
    /// Several members of one oneof are present.
    #[error("two members of one oneof")]
    Oneof,
    /// A string that the schema wants in UTF-8 is not.
    #[error("string is not UTF-8")]
    Utf8,
    /// A closed enum's field holds a number that the enum does not declare.
    #[error("number that its closed enum does not have")]
    Enum,
    /// Unknown bytes are not well-formed protobuf.
    #[error("unknown fields are not well-formed")]
    Unknown,
    /// A field that the type declares stands among the unknown ones, where a reader of protobuf would find it.
    #[error("declared field among the unknown ones")]
    Declared,
    /// Messages nested more than [`DEPTH_MAX`] levels below the root.
    #[error("nested deeper than {DEPTH_MAX} messages")]
    Depth,
}
