//! Names of headers, and which of them are the protocol's and not the application's.

use http::{HeaderName, HeaderValue};

pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
pub const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
pub const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
pub const GRPC_TRACE_BIN: HeaderName = HeaderName::from_static("grpc-trace-bin");
/// What a daemon knows of the execution of a call that failed: said beside the status, read by daemons.
pub const EXECUTION: HeaderName = HeaderName::from_static("trunkline-execution");
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

pub const CONTENT_TYPE_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The metadata key of a status message, percent-encoded.
pub const MESSAGE_KEY: &str = "grpc-message";
/// The metadata key of serialized `google.rpc.Status`.
pub const DETAILS_KEY: &str = "grpc-status-details-bin";

/// Names with the prefix `grpc-` that travel as metadata all the same: read by applications, or set by their servers.
/// Every other is the protocol's (PROTOCOL-HTTP2: "reserved for future gRPC use").
const METADATA_AFTER_ALL: [&str; 5] = [
    "grpc-previous-rpc-attempts",
    "grpc-retry-pushback-ms",
    "grpc-status-details-bin",
    "grpc-tags-bin",
    "grpc-trace-bin",
];

/// Names that mean something to HTTP, to gRPC itself or between daemons. They are never metadata, in neither direction:
/// an application that could set them could break the connection or its call's framing, or speak for a daemon.
const RESERVED: [&str; 13] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "trunkline-execution",
    "upgrade",
];

/// Whether a header of this name is metadata of the call.
pub fn is_metadata(name: &str) -> bool {
    match name.strip_prefix("grpc-") {
        Some(_) => METADATA_AFTER_ALL.contains(&name),
        None => !RESERVED.contains(&name),
    }
}

/// `application/grpc`, `application/grpc+proto`, either with parameters. `application/grpc-web` is another protocol,
/// and any other `+codec` another way to write messages (PROTOCOL-HTTP2, "Content-Type"). Names are compared as HTTP
/// does, without case.
pub fn is_grpc_content_type(value: &HeaderValue) -> bool {
    let value = value.as_bytes();
    let name = value.split(|byte| *byte == b';').next().unwrap_or(value).trim_ascii();
    name.eq_ignore_ascii_case(b"application/grpc") || name.eq_ignore_ascii_case(b"application/grpc+proto")
}

/// Whether its value is base64 on the wire and bytes in metadata.
pub fn is_binary(name: &str) -> bool {
    name.ends_with("-bin")
}

#[cfg(test)]
mod tests {
    //! Shows what an application may neither set nor see.
    use super::*;

    #[test]
    fn tables() {
        for name in
            ["tenant", "x-a-bin", "traceparent", "grpc-trace-bin", "endpoint-load-metrics-bin", "grpcx"]
        {
            assert!(is_metadata(name), "{name}");
        }
        for (value, sound) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc+proto ; a=b", true),
            ("Application/gRPC", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/json", false),
            ("application/grpc+", false),
            ("", false),
        ] {
            assert_eq!(is_grpc_content_type(&HeaderValue::from_static(value)), sound, "{value}");
        }
        for name in
            ["te", "content-type", "grpc-status", "grpc-timeout", "grpc-anything", "connection", "host"]
        {
            assert!(!is_metadata(name), "{name}");
        }
    }
}
