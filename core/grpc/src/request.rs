//! Requests: a head becomes a call or a refusal; a call becomes a head.

use crate::compress::{Accepts, Encoding};
use crate::framing::FramingFault;
use crate::limits::Limits;
use crate::names::{
    CONTENT_TYPE_GRPC, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_TIMEOUT, TRACEPARENT, is_grpc_content_type,
};
use crate::outcome::{self, Outcome};
use crate::{metadata, response, retry, timeout, trace};
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, request, response as http_response};
use trunkline_call::{Code, Execution, MetadataError, MetadataWriter};

/// What a peer asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// `/package.Service/Method`: begins with a slash and has another.
    pub path: &'a str,
    /// Whom it asks: a virtual host's name, if the peer said any.
    pub authority: Option<&'a str>,
    /// How long the caller waits, counted from now.
    pub timeout_ns: Option<u64>,
    /// Encoded metadata, ready to travel on. `user-agent` is in it; so is a `traceparent` made of `grpc-trace-bin`.
    pub metadata: Vec<u8>,
    /// How messages flagged as compressed are compressed.
    pub encoding: Encoding,
    /// What the peer can read.
    pub accepts: Accepts,
    /// Others say that they have sent this call before: what came of that is not known here.
    pub is_repeated: bool,
}

/// A request that is not a call. The stream is over with this head.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It is not gRPC: an HTTP answer, with [`Refusal::TEXT`] as its body.
    Http(Box<http_response::Parts>),
    /// It is: a status.
    Grpc(Box<http_response::Parts>),
}

/// What to ask of a peer. The parts that stay the same from call to call are made once and cloned cheaply.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// `http` or `https`.
    pub scheme: &'a Scheme,
    /// The peer's name; an application's own `host` goes in its place.
    pub authority: &'a Authority,
    /// See [`path`].
    pub path: &'a PathAndQuery,
    /// What is left until the deadline.
    pub timeout_ns: Option<u64>,
    /// Encoded metadata.
    pub metadata: &'a [u8],
    /// How messages will be compressed.
    pub encoding: Encoding,
    /// How those of the answer may be.
    pub accepts: Accepts,
    /// Ours; an application's own `user-agent` goes before it.
    pub user_agent: &'a HeaderValue,
}

/// Reads a request's head.
///
/// # Errors
/// [`Refusal`]: 405 for a method other than POST, 415 for another content type, and a status for everything that is
/// gRPC and wrong, or too much.
pub fn parse<'a>(head: &'a request::Parts, limits: &Limits) -> Result<RequestHead<'a>, Refusal> {
    if head.method != Method::POST {
        return Err(Refusal::http(StatusCode::METHOD_NOT_ALLOWED, Some(HeaderValue::from_static("POST"))));
    }
    if !head.headers.get(CONTENT_TYPE).is_some_and(is_grpc_content_type) {
        return Err(Refusal::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, None));
    }
    let is_repeated = retry::is_repeated(&head.headers);
    parse_call(head, limits, is_repeated)
        .map_err(|refusal| if is_repeated { refusal.of_further_attempt() } else { refusal })
}

fn parse_call<'a>(
    head: &'a request::Parts,
    limits: &Limits,
    is_repeated: bool,
) -> Result<RequestHead<'a>, Refusal> {
    Ok(RequestHead {
        path: parse_path(&head.uri, limits)?,
        authority: head.uri.authority().map(Authority::as_str).or_else(|| host(&head.headers)),
        timeout_ns: parse_timeout(&head.headers)?,
        encoding: parse_encoding(&head.headers)?,
        accepts: Accepts::of(&head.headers),
        metadata: parse_metadata(&head.headers, limits)?,
        is_repeated,
    })
}

/// Writes a request's head.
pub fn head(call: &Outgoing<'_>) -> request::Parts {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.version = Version::HTTP_2;
    let mut headers = HeaderMap::with_capacity(8 + metadata::count(call.metadata));
    headers.insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(USER_AGENT, call.user_agent.clone());
    headers.insert(GRPC_ACCEPT_ENCODING, call.accepts.header());
    if let Some(timeout_ns) = call.timeout_ns {
        headers.insert(GRPC_TIMEOUT, timeout::header(timeout_ns));
    }
    if call.encoding != Encoding::Identity {
        headers.insert(GRPC_ENCODING, call.encoding.header());
    }
    // A proxy before this host has counted its own attempts; those of this hop are none of them.
    let apart = [HOST.as_str(), USER_AGENT.as_str(), retry::ENVOY_ATTEMPT_COUNT];
    let [host, agent, _] = metadata::write(call.metadata, &mut headers, apart);
    if let Some(agent) = agent.and_then(|own| user_agent(own, call.user_agent)) {
        headers.insert(USER_AGENT, agent);
    }
    parts.uri = uri(call, host);
    parts.headers = headers;
    parts
}

/// A method's path as it is kept for many calls, if it may be sent at all: printable ASCII, two slashes, no query.
pub fn path(text: &str) -> Option<PathAndQuery> {
    let sound = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?') && is_method(text);
    // What `http` drops (a fragment) must not be sent as another method.
    PathAndQuery::try_from(text).ok().filter(|path| sound && path.as_str() == text)
}

/// The answer to a call with so many messages where there is to be one (gRPC, statuscodes.md: UNIMPLEMENTED, for the
/// two ends hold different definitions of the method).
pub fn of_cardinality(messages: usize) -> Outcome<'static> {
    Outcome::refused(Code::Unimplemented, format!("called with {messages} messages where there is to be 1"))
}

/// The answer to a call whose body is not well formed.
pub fn of_framing(fault: &FramingFault) -> Outcome<'static> {
    Outcome::unknown(fault.code(), format!("request: {fault}"))
}

/// Our name for `user-agent`.
pub fn user_agent_of(version: &str) -> HeaderValue {
    HeaderValue::try_from(format!("grpc-trunkline/{version}"))
        .unwrap_or(HeaderValue::from_static("grpc-trunkline"))
}

impl Refusal {
    /// The body of an HTTP answer, for whoever came with a browser or a probe.
    pub const TEXT: &'static str = "This is gRPC: send POST with content-type application/grpc.\n";

    /// Whether a body belongs to the answer.
    pub fn has_body(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// The answer, whichever it is.
    pub fn into_head(self) -> Box<http_response::Parts> {
        match self {
            Self::Http(head) | Self::Grpc(head) => head,
        }
    }

    fn http(status: StatusCode, allow: Option<HeaderValue>) -> Self {
        let mut parts = response::empty_parts(3);
        parts.status = status;
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        parts.headers.insert(CONTENT_LENGTH, Self::TEXT.len().into());
        if let Some(allow) = allow {
            parts.headers.insert(ALLOW, allow);
        }
        Self::Http(Box::new(parts))
    }

    fn grpc(code: Code, message: impl Into<String>) -> Self {
        Self::Grpc(Box::new(response::trailers_only(&Outcome::refused(code, message))))
    }

    /// The same, of a call that others have sent before: only this attempt was not executed.
    fn of_further_attempt(mut self) -> Self {
        if let Self::Grpc(head) = &mut self {
            outcome::say_execution(Execution::Unknown, &mut head.headers);
        }
        self
    }

    fn encoding(name: &HeaderValue) -> Self {
        let name = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(64)]);
        let message = format!("grpc-encoding {name:?} is not known: use identity, gzip, deflate or zstd");
        let mut head = response::trailers_only(&Outcome::refused(Code::Unimplemented, message));
        head.headers.insert(GRPC_ACCEPT_ENCODING, Accepts::ours());
        Self::Grpc(Box::new(head))
    }
}

/// A path that cannot be a method's is a method nobody implements.
fn parse_path<'a>(uri: &'a Uri, limits: &Limits) -> Result<&'a str, Refusal> {
    let path = uri.path_and_query().map_or("", PathAndQuery::as_str);
    if path.len() > limits.path_bytes {
        let message = format!("path exceeds the limit of {} bytes", limits.path_bytes);
        return Err(Refusal::grpc(Code::Unimplemented, message));
    }
    if !is_method(path) {
        return Err(Refusal::grpc(
            Code::Unimplemented,
            format!("path {path:?} is not /package.Service/Method"),
        ));
    }
    Ok(path)
}

fn is_method(path: &str) -> bool {
    let names = path.strip_prefix('/').and_then(|path| path.rsplit_once('/'));
    names.is_some_and(|(service, method)| !service.is_empty() && !method.is_empty())
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

fn parse_timeout(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get(GRPC_TIMEOUT) else { return Ok(None) };
    match timeout::parse(value.as_bytes()) {
        Some(ns) => Ok(Some(ns)),
        None => {
            let message = "grpc-timeout is malformed: use at most 8 digits and one of H M S m u n";
            Err(Refusal::grpc(Code::Internal, message))
        }
    }
}

fn parse_encoding(headers: &HeaderMap) -> Result<Encoding, Refusal> {
    match headers.get(GRPC_ENCODING) {
        None => Ok(Encoding::Identity),
        Some(name) => Encoding::named(name.as_bytes()).ok_or_else(|| Refusal::encoding(name)),
    }
}

fn parse_metadata(headers: &HeaderMap, limits: &Limits) -> Result<Vec<u8>, Refusal> {
    let mut out = MetadataWriter::with_capacity(512);
    let read =
        metadata::read(headers, limits.metadata_bytes, &[], &mut out).and_then(
            |()| match trace::traceparent(headers) {
                Some(traceparent) => out.insert(TRACEPARENT.as_str(), &traceparent),
                None => Ok(()),
            },
        );
    match read {
        Ok(()) => Ok(out.into_bytes()),
        Err(MetadataError::TooLarge) => {
            let message = format!("metadata exceeds the limit of {} bytes", limits.metadata_bytes);
            Err(Refusal::grpc(Code::ResourceExhausted, message))
        }
        Err(error @ MetadataError::TooMany) => Err(Refusal::grpc(Code::ResourceExhausted, error.to_string())),
        Err(error) => Err(Refusal::grpc(Code::Internal, error.to_string())),
    }
}

fn uri(call: &Outgoing<'_>, host: Option<&[u8]>) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(call.scheme.clone());
    parts.authority = Some(host.and_then(own_authority).unwrap_or_else(|| call.authority.clone()));
    parts.path_and_query = Some(call.path.clone());
    // Scheme, authority and path together are always a URI.
    Uri::from_parts(parts).unwrap_or_default()
}

/// `host` is what HTTP/1 called it. What is no authority, or has a user in it (RFC 9113, section 8.3.1), is passed
/// over.
fn own_authority(own: &[u8]) -> Option<Authority> {
    Authority::try_from(own).ok().filter(|authority| !authority.as_str().contains('@'))
}

/// An application's own name before ours, if it says one.
fn user_agent(own: &[u8], ours: &HeaderValue) -> Option<HeaderValue> {
    let own = Some(own.trim_ascii()).filter(|own| !own.is_empty())?;
    HeaderValue::from_bytes(&[own, b" ", ours.as_bytes()].concat()).ok()
}
