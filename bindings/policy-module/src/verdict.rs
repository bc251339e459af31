//! What a policy says about a call.

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub(crate) denied: Option<(Code, String)>,
    pub(crate) token: u64,
    pub(crate) metadata: Vec<(String, Vec<u8>)>,
}

/// A status code other than OK, as gRPC numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "gRPC's names, explained in its documentation of status codes")]
pub enum Code {
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

impl Verdict {
    /// It goes on.
    pub fn pass() -> Self {
        Self { denied: None, token: 0, metadata: Vec::new() }
    }

    /// It goes on, and `token` comes back with its [end](crate::End::token).
    pub fn pass_with(token: u64) -> Self {
        Self { token, ..Self::pass() }
    }

    /// It ends, with words for its caller. They lose what is beyond 1024 bytes, and control characters become spaces.
    pub fn deny(code: Code, message: impl Into<String>) -> Self {
        Self { denied: Some((code, message.into())), ..Self::pass() }
    }

    /// Adds a pair to the metadata of a call that passes, which loses its own values of that key. Keys are in lower
    /// case and not of gRPC's own, values of printable ASCII unless the key ends in `-bin`, at most 16 pairs and 4 KiB:
    /// a call with another pair is refused with INTERNAL and the name of the key.
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }
}
