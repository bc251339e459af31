//! Why no code was generated.

/// Why no code was generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// The descriptors break a rule of protobuf or a limit of the schema.
    #[error(transparent)]
    Schema(#[from] trunkline_schema::SchemaError),
    /// The bytes are not a `FileDescriptorSet`.
    #[error("descriptor set is malformed: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// The bytes end within a field.
    #[error("descriptor set ends within a field")]
    Truncated,
    /// A file to generate code for is not in the set.
    #[error("file {0:?} is not in the descriptor set")]
    NoSuchFile(String),
    /// The typed descriptor and the schema made of the same bytes disagree: the set says something twice.
    #[error("{0} is declared in a way that can be read in two")]
    Mismatch(String),
    /// A name would not be one in the generated code.
    #[error("{owner}: the name {name:?} is not an identifier")]
    BadName {
        /// Full name of what it was declared in.
        owner: String,
        /// The name.
        name: String,
    },
    /// The code of two packages would be one file.
    #[error("{name} would hold the code of two packages: rename one, or declare it elsewhere by extern_path")]
    SameFile {
        /// Name of the file.
        name: String,
    },
    /// Two packages mention each other, and C++ wants the types of one before the other.
    #[error(
        "packages {one:?} and {other:?} mention each other: messages=linear needs one of them to come first"
    )]
    PackageCircle {
        /// The one.
        one: String,
        /// The other.
        other: String,
    },
    /// An option's value has no meaning.
    #[error("option {name}: {reason}")]
    BadOption {
        /// Its name.
        name: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
}
