//! How gRPC is spoken: what the host's configuration says about it.

use http::HeaderValue;
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::{Limits, request};

/// Settings of the gRPC edge.
#[derive(Clone, Debug)]
pub struct GrpcSettings {
    /// What a head may bring along.
    pub heads: Limits,
    /// How responses to gRPC clients are compressed, where the client can read it.
    pub response_encoding: Encoding,
    /// How requests to gRPC servers are compressed. Servers that cannot read it answer UNIMPLEMENTED.
    pub request_encoding: Encoding,
    /// gRPC is spoken to every endpoint, to daemons, too. For endpoints that are several: a balancer's address behind
    /// which daemons and plain servers stand side by side.
    pub always: bool,
    /// What this host calls itself in requests.
    pub user_agent: HeaderValue,
    /// Bytes a peer may have sent on a stream that are not given back, as HTTP/2 has told it. Where a stream's limit is
    /// less, the daemon holds no more than that without giving back.
    pub stream_window_bytes: u32,
    /// Bytes a peer may have sent on a connection that are not dealt with: beyond half of them a message that does not
    /// go on is not its sender's fault.
    pub connection_window_bytes: u32,
}

impl GrpcSettings {
    /// How to compress a request with this metadata: as it says, or as is usual here.
    pub(crate) fn asking_encoding(&self, metadata: &[u8]) -> Encoding {
        Encoding::asked(metadata).unwrap_or(self.request_encoding)
    }

    /// How to compress what goes to a client that can read `accepts`.
    pub(crate) fn answer_encoding(&self, accepts: Accepts) -> Encoding {
        accepts.or_identity(self.response_encoding)
    }
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self {
            heads: Limits::default(),
            response_encoding: Encoding::Identity,
            request_encoding: Encoding::Identity,
            always: false,
            user_agent: request::user_agent_of(env!("CARGO_PKG_VERSION")),
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 64 << 20,
        }
    }
}
