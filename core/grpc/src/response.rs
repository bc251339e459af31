//! Answers: a status becomes a head or trailers; a head or trailers become a status.

use crate::compress::Encoding;
use crate::framing::FramingFault;
use crate::limits::Limits;
use crate::names::{
    CONTENT_TYPE_GRPC, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_STATUS, is_grpc_content_type,
};
use crate::outcome::{self, Outcome};
use crate::surface::{Reason, ResetBy};
use crate::{compress::Accepts, metadata};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode, Version, response};
use trunkline_call::{Code, Execution, MetadataWriter, Status};

/// What a peer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseHead {
    /// Messages may follow, and trailers.
    Headers {
        /// Encoded metadata.
        metadata: Vec<u8>,
        /// How messages flagged as compressed are compressed.
        encoding: Encoding,
        /// What the peer can read.
        accepts: Accepts,
    },
    /// That was all. If the stream has not ended, it is to be reset: what follows is not gRPC's.
    Ended(Outcome<'static>),
}

/// Writes an answer's head. `accepts` is how further requests may be compressed.
pub fn head(metadata: &[u8], encoding: Encoding, accepts: Accepts) -> response::Parts {
    let mut parts = empty_parts(4 + metadata::count(metadata));
    parts.headers.insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    parts.headers.insert(GRPC_ACCEPT_ENCODING, accepts.header());
    if encoding != Encoding::Identity {
        parts.headers.insert(GRPC_ENCODING, encoding.header());
    }
    metadata::write(metadata, &mut parts.headers, []);
    parts
}

/// Writes an answer that is nothing but a status.
pub fn trailers_only(outcome: &Outcome<'_>) -> response::Parts {
    let mut parts = empty_parts(4 + metadata::count(&outcome.metadata));
    parts.headers.insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    outcome::write(outcome, &mut parts.headers);
    parts
}

/// The same, of a server that says how requests may be compressed: it could not read this one.
pub fn refused_encoding(outcome: &Outcome<'_>, accepts: Accepts) -> response::Parts {
    let mut parts = trailers_only(outcome);
    parts.headers.insert(GRPC_ACCEPT_ENCODING, accepts.header());
    parts
}

/// Writes the trailers that end an answer.
pub fn trailers(outcome: &Outcome<'_>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(2 + metadata::count(&outcome.metadata));
    outcome::write(outcome, &mut headers);
    headers
}

/// Reads an answer's head; `end` says that nothing follows it.
pub fn parse(head: &response::Parts, end: bool, limits: &Limits) -> ResponseHead {
    let grpc = head.headers.get(CONTENT_TYPE).is_some_and(is_grpc_content_type);
    // Many servers leave the content type out of an answer that is a status only.
    if (end && head.headers.contains_key(GRPC_STATUS) && (grpc || !head.headers.contains_key(CONTENT_TYPE)))
        || (grpc && head.status != StatusCode::OK && head.headers.contains_key(GRPC_STATUS))
    {
        return ResponseHead::Ended(status_or_missing(&head.headers, head.status, false, limits));
    }
    if head.status != StatusCode::OK || end {
        return ResponseHead::Ended(of_missing_status(head.status));
    }
    if !grpc {
        return ResponseHead::Ended(of_content_type(head.headers.get(CONTENT_TYPE)));
    }
    parse_headers(head, limits)
}

/// Reads the trailers that end an answer.
pub fn parse_trailers(trailers: &HeaderMap, limits: &Limits) -> Outcome<'static> {
    status_or_missing(trailers, StatusCode::OK, true, limits)
}

/// The end of a call whose stream was reset. REFUSED_STREAM says itself that nothing was done (RFC 9113, section 8.7),
/// which is not believed of a server that had begun to answer. A stream that was reset here says nothing of the server.
pub fn of_reset(reason: Reason, by: ResetBy, answered: bool) -> Outcome<'static> {
    let execution = match (by, reason) {
        (ResetBy::Peer, Reason::REFUSED_STREAM) if !answered => Execution::NotExecuted,
        _ => Execution::Unknown,
    };
    let (code, message) = match by {
        ResetBy::Peer => (outcome::of_reason(reason), format!("stream reset by the peer: {reason}")),
        ResetBy::Us => (outcome::of_reason(reason), format!("stream reset here, not by the peer: {reason}")),
        ResetBy::Limit(key) => {
            (Code::ResourceExhausted, format!("headers of the answer are above the limit ({key})"))
        }
    };
    Outcome::of(&Status::new(code, message).with_execution(execution))
}

/// The end of a call whose answer has an HTTP status and no `grpc-status`.
pub fn of_missing_status(status: StatusCode) -> Outcome<'static> {
    let message = match status {
        StatusCode::OK => "answer ended without grpc-status".to_owned(),
        status => format!("answered with HTTP status {} and no grpc-status", status.as_u16()),
    };
    Outcome::unknown(outcome::of_http(status), message)
}

/// The end of a call whose body ended without trailers.
pub fn of_missing_trailers() -> Outcome<'static> {
    Outcome::unknown(Code::Internal, "answer ended without trailers")
}

/// The end of a call whose answer has so many messages where there is to be one (gRPC, statuscodes.md: UNIMPLEMENTED,
/// for the two ends hold different definitions of the method).
pub fn of_cardinality(messages: usize) -> Outcome<'static> {
    Outcome::unknown(Code::Unimplemented, format!("answered with {messages} messages where there is to be 1"))
}

/// The end of a call whose answer's body is not well formed.
pub fn of_framing(fault: &FramingFault) -> Outcome<'static> {
    Outcome::unknown(fault.code(), format!("answer: {fault}"))
}

pub(crate) fn empty_parts(headers: usize) -> response::Parts {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.version = Version::HTTP_2;
    parts.headers = HeaderMap::with_capacity(headers);
    parts
}

fn status_or_missing(
    headers: &HeaderMap,
    status: StatusCode,
    begun: bool,
    limits: &Limits,
) -> Outcome<'static> {
    outcome::parse(headers, begun, limits).unwrap_or_else(|| of_missing_status(status))
}

fn of_content_type(content_type: Option<&HeaderValue>) -> Outcome<'static> {
    let message = match content_type {
        Some(name) => {
            let name = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(64)]);
            format!("answered with content-type {name:?}, not application/grpc")
        }
        None => "answered without content-type".to_owned(),
    };
    Outcome::unknown(Code::Unknown, message)
}

fn parse_headers(head: &response::Parts, limits: &Limits) -> ResponseHead {
    let encoding = match head.headers.get(GRPC_ENCODING) {
        None => Encoding::Identity,
        Some(name) => match Encoding::named(name.as_bytes()) {
            Some(encoding) => encoding,
            None => return ResponseHead::Ended(of_encoding(name)),
        },
    };
    let mut out = MetadataWriter::with_capacity(256);
    match metadata::read(&head.headers, limits.metadata_bytes, &[], &mut out) {
        Ok(()) => ResponseHead::Headers {
            metadata: out.into_bytes(),
            encoding,
            accepts: Accepts::of(&head.headers),
        },
        Err(error) => ResponseHead::Ended(outcome::unreadable(&error, "leading")),
    }
}

/// An encoding we did not say we can read (gRPC, compression.md: INTERNAL).
fn of_encoding(name: &HeaderValue) -> Outcome<'static> {
    let name = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(64)]);
    Outcome::unknown(Code::Internal, format!("answered with grpc-encoding {name:?}, which was not offered"))
}
