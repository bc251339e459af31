//! Why a descriptor set was refused, and where in it.

use std::fmt;

/// Where in a descriptor set something is wrong: file, then message or service, then field or method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file's name as the set gives it.
    pub file: String,
    /// The full name of the message, enum or service; empty if the file itself is at fault.
    pub owner: String,
    /// The name of the field, value, oneof or method; empty if its owner itself is at fault.
    pub member: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.file.is_empty() { "(unnamed file)" } else { &self.file })?;
        if !self.owner.is_empty() {
            write!(f, ": {}", self.owner)?;
        }
        if !self.member.is_empty() {
            write!(f, ".{}", self.member)?;
        }
        Ok(())
    }
}

/// Why no [`Schema`](crate::Schema) could be made. The party to blame is whoever handed the descriptors over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The bytes are not protobuf, or not a `FileDescriptorSet`.
    #[error("descriptor set is malformed at {place}: {reason}")]
    Malformed {
        /// Where, as far as it was read.
        place: Place,
        /// What about the bytes is wrong.
        reason: &'static str,
    },
    /// A named limit of this room is exceeded.
    #[error("{place}: {what} exceed the limit of {limit}")]
    Limit {
        /// Where the limit was reached.
        place: Place,
        /// What is counted.
        what: &'static str,
        /// The most there may be.
        limit: usize,
    },
    /// A type name that no file of the set declares.
    #[error("{place}: type {name:?} is not declared in this set")]
    Unresolved {
        /// The field or method that names the type.
        place: Place,
        /// The name.
        name: String,
    },
    /// Two things have the same full name, or two fields of a message the same number.
    #[error("{place}: {what} {name:?} is declared twice")]
    Duplicate {
        /// The second declaration.
        place: Place,
        /// What kind of thing.
        what: &'static str,
        /// Its name or number.
        name: String,
    },
    /// A descriptor that contradicts itself or protobuf's rules.
    #[error("{place}: {reason}")]
    Invalid {
        /// The declaration at fault.
        place: Place,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// The `.proto` compiler's own words, with file, line and column.
    #[error("{0}")]
    Compile(String),
}
