//! How a call ends: `grpc-status`, `grpc-message`, trailing metadata, and what stands for them when they are missing.

use crate::limits::Limits;
use crate::metadata;
use crate::names::{DETAILS_KEY, EXECUTION, GRPC_MESSAGE, GRPC_STATUS, MESSAGE_KEY};
use crate::surface::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::borrow::Cow;
use trunkline_call::{Code, Execution, Metadata, MetadataError, MetadataWriter, Status};

/// The end of a call, as the engine carries it: message and details lie in the metadata, under gRPC's own keys.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Outcome<'a> {
    /// The status code.
    pub code: Code,
    /// What is known of the handler. A daemon says it beside the status, in the trailer `trunkline-execution`, and is
    /// believed, as is any other server that says so; not that a call was not executed whose answer had begun. Of other
    /// gRPC servers a failure counts as executed if anything of an answer came before it, or if its code is one that
    /// only applications choose: libraries and proxies use the others for calls nobody has seen, and for others, too.
    pub execution: Execution,
    /// Encoded trailing metadata, with `grpc-message` (percent-encoded) and `grpc-status-details-bin` (bytes).
    pub metadata: Cow<'a, [u8]>,
}

/// Longest `grpc-message` kept: it is text for a person, and must leave room for what programs read.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

impl Outcome<'static> {
    /// An end made here.
    pub fn of(status: &Status) -> Self {
        let mut metadata = Metadata::new();
        // What does not fit is left out: the code is what counts.
        let _ = status.put_into(&mut metadata);
        let mut bytes = Vec::with_capacity(metadata.encoded_len());
        metadata.encode(&mut bytes);
        Self { code: status.code(), execution: status.execution(), metadata: Cow::Owned(bytes) }
    }

    /// An end made here, of a call nobody has seen.
    pub(crate) fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::of(&Status::new(code, message).with_execution(Execution::NotExecuted))
    }

    /// An end made here, of a call the server has or has not seen.
    pub(crate) fn unknown(code: Code, message: impl Into<String>) -> Self {
        Self::of(&Status::new(code, message).with_execution(Execution::Unknown))
    }
}

/// Reads a status with its metadata, if there is one.
/// `begun` says that an answer's head came before it.
pub(crate) fn parse(headers: &HeaderMap, begun: bool, limits: &Limits) -> Option<Outcome<'static>> {
    let code = match code(headers.get(GRPC_STATUS)?) {
        Some(code) => code,
        None => return Some(Outcome::unknown(Code::Unknown, "grpc-status is not a number")),
    };
    let mut out = MetadataWriter::with_capacity(128);
    let words = read_words(headers, &mut out);
    let read = metadata::read(headers, limits.metadata_bytes, &[DETAILS], &mut out);
    match (words.and(read), code) {
        (Err(error), Code::Ok) => Some(unreadable(&error, "trailing")),
        // Whatever else is wrong, the call failed with this code.
        _ => {
            let execution = match headers.get(EXECUTION).map(read_execution) {
                // An answer had begun: whoever says this does not know what it says, or is not to be believed.
                Some(Execution::NotExecuted) if begun => Execution::Executed,
                Some(said) if code != Code::Ok => said,
                _ if begun || is_by_application(code) => Execution::Executed,
                _ => Execution::Unknown,
            };
            Some(Outcome { code, execution, metadata: Cow::Owned(out.into_bytes()) })
        }
    }
}

/// Writes a status with its metadata.
pub(crate) fn write(outcome: &Outcome<'_>, headers: &mut HeaderMap) {
    headers.insert(GRPC_STATUS, status_value(outcome.code));
    if outcome.code != Code::Ok {
        say_execution(outcome.execution, headers);
    }
    let [message] = metadata::write(&outcome.metadata, headers, [MESSAGE_KEY]);
    if let Some(message) = message.and_then(message_value) {
        headers.insert(GRPC_MESSAGE, message);
    }
}

/// Says beside a status whether the call was executed.
pub(crate) fn say_execution(execution: Execution, headers: &mut HeaderMap) {
    headers.insert(EXECUTION, execution_value(execution));
}

/// What a peer's metadata that cannot be taken makes of its call.
pub(crate) fn unreadable(error: &MetadataError, which: &str) -> Outcome<'static> {
    let code = match error {
        MetadataError::TooLarge | MetadataError::TooMany => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    Outcome::unknown(code, format!("{which} metadata of the server: {error}"))
}

/// The status of an answer that is not gRPC's (gRPC, http-grpc-status-mapping.md).
pub(crate) fn of_http(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The status of a stream the peer reset (PROTOCOL-HTTP2, "HTTP2 Transport Mapping").
pub(crate) fn of_reason(reason: Reason) -> Code {
    match reason {
        Reason::REFUSED_STREAM => Code::Unavailable,
        Reason::CANCEL => Code::Cancelled,
        Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

const DETAILS: HeaderName = HeaderName::from_static(DETAILS_KEY);

fn code(value: &HeaderValue) -> Option<Code> {
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().unwrap_or(u16::MAX);
    Some(Code::from_number(number))
}

fn status_value(code: Code) -> HeaderValue {
    const VALUES: [HeaderValue; 17] = [
        HeaderValue::from_static("0"),
        HeaderValue::from_static("1"),
        HeaderValue::from_static("2"),
        HeaderValue::from_static("3"),
        HeaderValue::from_static("4"),
        HeaderValue::from_static("5"),
        HeaderValue::from_static("6"),
        HeaderValue::from_static("7"),
        HeaderValue::from_static("8"),
        HeaderValue::from_static("9"),
        HeaderValue::from_static("10"),
        HeaderValue::from_static("11"),
        HeaderValue::from_static("12"),
        HeaderValue::from_static("13"),
        HeaderValue::from_static("14"),
        HeaderValue::from_static("15"),
        HeaderValue::from_static("16"),
    ];
    VALUES[usize::from(code.number())].clone()
}

/// Codes no gRPC library generates (gRPC, statuscodes.md), so that an application must have: and OK.
fn is_by_application(code: Code) -> bool {
    use Code::{
        Aborted, AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, NotFound, Ok, OutOfRange,
    };
    matches!(
        code,
        Ok | InvalidArgument
            | NotFound
            | AlreadyExists
            | FailedPrecondition
            | Aborted
            | OutOfRange
            | DataLoss
    )
}

fn execution_value(execution: Execution) -> HeaderValue {
    HeaderValue::from_static(match execution {
        Execution::Executed => "executed",
        Execution::NotExecuted => "not-executed",
        Execution::Unknown => "unknown",
    })
}

/// A word nobody knows is the careful one.
fn read_execution(value: &HeaderValue) -> Execution {
    match value.as_bytes() {
        b"executed" => Execution::Executed,
        b"not-executed" => Execution::NotExecuted,
        _ => Execution::Unknown,
    }
}

/// Message and details come first, so that other metadata cannot crowd them out.
fn read_words(headers: &HeaderMap, out: &mut MetadataWriter) -> Result<(), MetadataError> {
    if let Some(message) = headers.get(GRPC_MESSAGE).filter(|message| !message.is_empty()) {
        out.insert_with(MESSAGE_KEY, |out| {
            printable(message.as_bytes(), MESSAGE_BYTES_MAX, out);
            Ok(())
        })?;
    }
    if let Some(details) = headers.get(DETAILS) {
        out.insert_with(DETAILS_KEY, |out| {
            let sound = metadata::decode_base64(details.as_bytes(), out);
            if sound { Ok(()) } else { Err(MetadataError::Base64(DETAILS_KEY.to_owned())) }
        })?;
    }
    Ok(())
}

/// A message as it came, cut at `max`; what should have been percent-encoded and was not is so now.
fn printable(message: &[u8], max: usize, out: &mut Vec<u8>) {
    let start = out.len();
    for byte in message {
        if (b' '..=b'~').contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(&escaped(*byte));
        }
        if out.len() - start > max {
            cut(out, start, max);
            return;
        }
    }
}

/// Cuts percent-encoded text at most at `max`, not within an escape.
fn cut(out: &mut Vec<u8>, start: usize, max: usize) {
    let end = start + max;
    let within = (1..=2).find(|back| *back <= max && out[end - back] == b'%').unwrap_or(0);
    out.truncate(end - within);
}

/// A percent-encoded message as a header: blanks at its ends would not survive HTTP.
fn message_value(message: &[u8]) -> Option<HeaderValue> {
    let inner = message.trim_ascii();
    if inner.len() == message.len() {
        return HeaderValue::from_bytes(message).ok();
    }
    let lead = message.len() - message.trim_ascii_start().len();
    let trail = message.len() - lead - inner.len();
    let escape = |count: usize| escaped(b' ').repeat(count);
    HeaderValue::from_bytes(&[&escape(lead)[..], inner, &escape(trail)].concat()).ok()
}

fn escaped(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    //! Shows that a status survives its trailers, and what foreign or hostile ones become.
    use super::*;
    use proptest::prelude::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    fn told(outcome: &Outcome<'_>) -> (Status, Metadata) {
        let mut metadata = Metadata::decode(&outcome.metadata).unwrap();
        let mut status = Status::take_from(&mut metadata, outcome.code).with_execution(outcome.execution);
        let metadata = std::mem::take(status.metadata_mut());
        (status, metadata)
    }

    fn parsed(pairs: &[(&'static str, &[u8])]) -> (Status, Metadata) {
        told(&parse(&headers(pairs), false, &Limits::default()).unwrap())
    }

    #[test]
    fn foreign_trailers() {
        let (status, metadata) =
            parsed(&[("grpc-status", b"5"), ("grpc-message", b"no 50%25 %c3%a4 %zz"), ("tenant", b"blue")]);
        assert_eq!(status, Status::not_found("no 50% \u{e4} %zz"));
        assert_eq!(metadata.text("tenant"), Some("blue"));
        let (status, _) = parsed(&[("grpc-status", b"5"), ("grpc-message", b"gr\xc3\xb6\xc3\x9fer")]);
        assert_eq!(status.message(), "gr\u{f6}\u{df}er");
        let (status, _) = parsed(&[("grpc-status", b"9"), ("grpc-status-details-bin", b"CAkSAQ==")]);
        assert_eq!(status.details(), [8, 9, 18, 1]);
        assert_eq!(parse(&headers(&[("a", b"b")]), true, &Limits::default()), None);
    }

    #[test]
    fn codes() {
        for (text, code) in [
            (&b"0"[..], Code::Ok),
            (b"16", Code::Unauthenticated),
            (b"17", Code::Unknown),
            (b"007", Code::PermissionDenied),
            (b"99999999999999999999", Code::Unknown),
            (b"-1", Code::Unknown),
            (b"OK", Code::Unknown),
            (b"", Code::Unknown),
        ] {
            assert_eq!(parsed(&[("grpc-status", text)]).0.code(), code, "{text:?}");
        }
        for code in Code::ALL {
            let mut map = HeaderMap::new();
            write(&Outcome::of(&Status::new(code, "")), &mut map);
            let said = map.remove(EXECUTION);
            assert_eq!(said.is_some(), code != Code::Ok);
            assert_eq!(map, headers(&[("grpc-status", code.number().to_string().as_bytes())]));
        }
    }

    #[test]
    fn what_daemons_know_of_the_execution_is_said_and_read() {
        for execution in [Execution::Executed, Execution::NotExecuted, Execution::Unknown] {
            for code in Code::ALL.into_iter().filter(|code| *code != Code::Ok) {
                let mut map = HeaderMap::new();
                write(&Outcome::of(&Status::new(code, "x").with_execution(execution)), &mut map);
                for begun in [false, true] {
                    let read = parse(&map, begun, &Limits::default()).unwrap();
                    // An answer that has begun was begun by a handler, whatever is said behind it.
                    let believed = match execution {
                        Execution::NotExecuted if begun => Execution::Executed,
                        said => said,
                    };
                    assert_eq!((read.code, read.execution), (code, believed));
                    assert_eq!(crate::metadata::first(&read.metadata, EXECUTION.as_str()), None);
                }
            }
        }
        let (status, _) = parsed(&[("grpc-status", b"5"), ("trunkline-execution", b"perhaps")]);
        assert_eq!(status.execution(), Execution::Unknown);
        let (status, _) = parsed(&[("grpc-status", b"0"), ("trunkline-execution", b"not-executed")]);
        assert_eq!(status.execution(), Execution::Executed, "an answer is one");
    }

    #[test]
    fn codes_that_libraries_make_prove_nothing() {
        for code in Code::ALL {
            let map = headers(&[("grpc-status", code.number().to_string().as_bytes())]);
            let execution = |begun| parse(&map, begun, &Limits::default()).unwrap().execution;
            assert_eq!(execution(true), Execution::Executed, "{code}: the handler had begun");
            let proves = matches!(code.number(), 0 | 3 | 5 | 6 | 9 | 10 | 11 | 15);
            let known = if proves { Execution::Executed } else { Execution::Unknown };
            assert_eq!(execution(false), known, "{code}");
        }
    }

    #[test]
    fn trailers_that_cannot_be_read_do_not_hide_a_failure() {
        let (status, _) = parsed(&[("grpc-status", b"0"), ("a-bin", b"!")]);
        assert_eq!((status.code(), status.execution()), (Code::Internal, Execution::Unknown));
        let (status, _) = parsed(&[("grpc-status", b"5"), ("grpc-message", b"gone"), ("a-bin", b"!")]);
        assert_eq!(status, Status::not_found("gone"));
        let large = [b'x'; 40_000];
        let (status, _) = parsed(&[("grpc-status", b"0"), ("a", &large)]);
        assert_eq!(status.code(), Code::ResourceExhausted);
        let (status, _) = parsed(&[("grpc-status", b"5"), ("grpc-message", &large)]);
        assert_eq!((status.code(), status.message().len()), (Code::NotFound, MESSAGE_BYTES_MAX));
    }

    #[test]
    fn a_message_is_not_cut_within_an_escape() {
        for (max, kept) in [(3, "a"), (4, "a%C3"), (5, "a%C3"), (6, "a%C3"), (7, "a%C3%A4")] {
            let mut out = b"x".to_vec();
            printable("a\u{e4}b".as_bytes(), max, &mut out);
            assert_eq!(String::from_utf8_lossy(&out[1..]), kept, "{max}");
        }
    }

    proptest! {
        #[test]
        fn a_status_survives(
            number in 0u16..17,
            message in prop_oneof!["[ -~]{0,30}", any::<String>()],
            details in prop::collection::vec(any::<u8>(), 0..40),
            tenant in "[a-z]{0,9}",
        ) {
            let code = Code::from_number(number);
            let status = Status::new(code, message).with_details(details);
            let mut metadata = Metadata::new();
            status.put_into(&mut metadata).unwrap();
            metadata.insert("tenant", &tenant).unwrap();
            let mut bytes = Vec::new();
            metadata.encode(&mut bytes);
            let mut map = HeaderMap::new();
            write(&Outcome { code, execution: Execution::Executed, metadata: bytes.into() }, &mut map);
            let (back, rest) = told(&parse(&map, false, &Limits::default()).unwrap());
            prop_assert_eq!((back.code(), back.message(), back.details()), (code, status.message(), status.details()));
            prop_assert_eq!(rest.text("tenant"), Some(&tenant[..]));
        }

        #[test]
        fn any_message(message in prop::collection::vec((0x20u8..=0xff).prop_filter("DEL", |b| *b != 0x7f), 0..50)) {
            parsed(&[("grpc-status", b"2"), ("grpc-message", &message)]);
        }
    }
}
