//! What a head may bring along. The connection's own limits (header list size, streams, windows) lie in `host/net`.

use trunkline_call::Metadata;

/// Limits on what one head or one trailer becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Encoded metadata of one head. gRPC libraries take 8 KiB by default and 16 KiB with a fight; a trailer carries
    /// `grpc-status-details-bin` besides, so the default is all that metadata may have. Above it: RESOURCE_EXHAUSTED.
    pub metadata_bytes: usize,
    /// Path of a method. Names longer than this are nobody's (protoc's own limit on a name is far below it), and the
    /// answer repeats them. Above it: UNIMPLEMENTED.
    pub path_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { metadata_bytes: Metadata::BYTES_MAX, path_bytes: 1024 }
    }
}
