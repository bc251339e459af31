//! How a call ended.

use crate::{Metadata, MetadataError};
use std::fmt;

/// The canonical gRPC status codes (grpc/doc/statuscodes.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are the field's own; their meaning is the specification's")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// Every code, by number.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code with this number; numbers outside the table are `Unknown`, as gRPC prescribes.
    pub fn from_number(number: u16) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Unknown)
    }

    /// The number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The name in capitals, as gRPC writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known about whether the handler ran, for a call that failed in the infrastructure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Execution {
    /// The handler ran and this status is its own answer.
    Executed = 0,
    /// The call never reached the handler: sending it again is sound.
    NotExecuted = 1,
    /// The call may or may not have run: send it again only if the method is idempotent.
    #[default]
    Unknown = 2,
}

impl Execution {
    /// The value with this number; an unknown number is read as [`Execution::Unknown`], the careful choice.
    pub fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Executed,
            1 => Self::NotExecuted,
            _ => Self::Unknown,
        }
    }
}

/// The end of a call: code, message, details, metadata beside them, and what is known of its execution.
#[derive(Clone, PartialEq, Eq)]
pub struct Status {
    code: Code,
    message: String,
    details: Vec<u8>,
    metadata: Metadata,
    execution: Execution,
}

impl Status {
    /// A status as a handler returns it.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (details, metadata) = (Vec::new(), Metadata::new());
        Self { code, message: message.into(), details, metadata, execution: Execution::Executed }
    }

    /// Success.
    pub fn ok() -> Self {
        Self::new(Code::Ok, String::new())
    }

    /// The same status with serialized `google.rpc.Status` details (header `grpc-status-details-bin`); the library's
    /// `StatusDetails::with_error_details` takes them typed.
    pub fn with_details(mut self, details: impl Into<Vec<u8>>) -> Self {
        self.details = details.into();
        self
    }

    /// The same status with a pair more in its metadata (gRPC: trailers of a failed call).
    ///
    /// # Errors
    /// [`MetadataError`] names the key at fault, or the limit.
    pub fn with_metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Result<Self, MetadataError> {
        self.metadata.insert(key, value)?;
        Ok(self)
    }

    /// The same status with what is known of the execution.
    pub fn with_execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The human-readable message; may be empty.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Serialized `google.rpc.Status`, or empty.
    pub fn details(&self) -> &[u8] {
        &self.details
    }

    /// What came with the failure beside message and details, or is to go with it. A handler's goes out as trailers. A
    /// caller finds the response headers here too where there is no response to hold them: in a call whose server
    /// does not stream.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The metadata, to change.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Whether the handler may have run.
    pub fn execution(&self) -> Execution {
        self.execution
    }

    /// Whether the code is OK.
    pub fn is_ok(&self) -> bool {
        self.code == Code::Ok
    }
}

/// One constructor per code, named as gRPC users expect: `Status::not_found("no such user")`.
macro_rules! constructors {
    ($($name:ident => $code:ident),* $(,)?) => {
        impl Status {
            $(
                #[doc = concat!("A `", stringify!($code), "` status as a handler returns it.")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self::new(Code::$code, message)
                }
            )*
        }
    };
}

constructors! {
    cancelled => Cancelled, unknown => Unknown, invalid_argument => InvalidArgument,
    deadline_exceeded => DeadlineExceeded, not_found => NotFound, already_exists => AlreadyExists,
    permission_denied => PermissionDenied, resource_exhausted => ResourceExhausted,
    failed_precondition => FailedPrecondition, aborted => Aborted, out_of_range => OutOfRange,
    unimplemented => Unimplemented, internal => Internal, unavailable => Unavailable,
    data_loss => DataLoss, unauthenticated => Unauthenticated,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        match self.execution {
            Execution::Executed => Ok(()),
            Execution::NotExecuted => f.write_str(" (not executed)"),
            Execution::Unknown => f.write_str(" (execution unknown)"),
        }
    }
}

impl std::error::Error for Status {}

/// So that a handler or caller that builds metadata from what it was given may say `?`.
impl From<MetadataError> for Status {
    fn from(error: MetadataError) -> Self {
        Status::internal(error.to_string()).with_execution(Execution::NotExecuted)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that numbers and codes correspond, and that a status prints what is known.
    use super::*;

    #[test]
    fn every_code_has_its_number() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code.number()), number);
            assert_eq!(Code::from_number(code.number()), code);
        }
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::from_number(u16::MAX), Code::Unknown);
    }

    #[test]
    fn display_says_whether_it_ran() {
        let gone = Status::unavailable("daemon went away").with_execution(Execution::NotExecuted);
        assert_eq!(gone.to_string(), "UNAVAILABLE: daemon went away (not executed)");
        assert_eq!(Status::not_found("no such user").to_string(), "NOT_FOUND: no such user");
    }
}
