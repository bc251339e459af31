//! Shows what every head becomes, right and wrong ones, and that a head written here is read as what it was made of.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, request as http_request,
    response as http_response,
};
use proptest::prelude::*;
use trunkline_call::{Code, Execution, Metadata, Status};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::request::{self, Outgoing, Refusal};
use trunkline_grpc::response::{self, ResponseHead};
use trunkline_grpc::{Limits, Outcome, Reason, ResetBy};

fn asked(method: Method, path: &str, headers: &[(&str, &str)]) -> http_request::Parts {
    let mut builder = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

fn call(headers: &[(&str, &str)]) -> http_request::Parts {
    let mut all = vec![("content-type", "application/grpc"), ("te", "trailers")];
    all.extend(headers);
    asked(Method::POST, "http://db.example/a.B/C", &all)
}

fn answered(status: u16, headers: &[(&str, &str)]) -> http_response::Parts {
    let mut builder = http::Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

fn encoded(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut metadata = Metadata::new();
    for (key, value) in pairs {
        metadata.insert(key, value).unwrap();
    }
    let mut out = Vec::new();
    metadata.encode(&mut out);
    out
}

fn status(outcome: &Outcome<'_>) -> Status {
    let mut metadata = Metadata::decode(&outcome.metadata).unwrap();
    Status::take_from(&mut metadata, outcome.code).with_execution(outcome.execution)
}

/// The status a caller reads in a refusal, or its HTTP status.
fn refused(head: &http_request::Parts) -> Result<Status, StatusCode> {
    match request::parse(head, &Limits::default()).unwrap_err() {
        Refusal::Http(parts) => Err(parts.status),
        Refusal::Grpc(parts) => match response::parse(&parts, true, &Limits::default()) {
            ResponseHead::Ended(outcome) => Ok(status(&outcome)),
            headers => panic!("{headers:?} is no end"),
        },
    }
}

#[test]
fn a_call_is_read() {
    let head = call(&[
        ("grpc-timeout", "250m"),
        ("grpc-encoding", "gzip"),
        ("grpc-accept-encoding", "identity,zstd"),
        ("user-agent", "grpc-go/1.85.0"),
        ("tenant", "blue"),
        ("key-bin", "AAE"),
        ("grpc-previous-rpc-attempts", "2"),
    ]);
    let read = request::parse(&head, &Limits::default()).unwrap();
    assert_eq!((read.path, read.authority), ("/a.B/C", Some("db.example")));
    assert_eq!((read.timeout_ns, read.encoding), (Some(250_000_000), Encoding::Gzip));
    assert!(read.accepts.contains(Encoding::Zstd) && !read.accepts.contains(Encoding::Gzip));
    let metadata = Metadata::decode(&read.metadata).unwrap();
    let mut pairs: Vec<_> = metadata.iter().collect();
    pairs.sort();
    let expected: [(&str, &[u8]); 4] = [
        ("grpc-previous-rpc-attempts", b"2"),
        ("key-bin", &[0, 1]),
        ("tenant", b"blue"),
        ("user-agent", b"grpc-go/1.85.0"),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn a_bare_call_is_enough() {
    let head =
        asked(Method::POST, "/a.B/C", &[("content-type", "application/grpc+proto"), ("host", "old.example")]);
    let read = request::parse(&head, &Limits::default()).unwrap();
    assert_eq!((read.authority, read.timeout_ns, read.metadata.len()), (Some("old.example"), None, 0));
    assert_eq!((read.encoding, read.accepts), (Encoding::Identity, Accepts::IDENTITY));
}

#[test]
fn a_header_beyond_printable_ascii_is_left_out() {
    let head = call(&[("tenant", "gr\u{f6}n"), ("colour", "blue")]);
    let read = request::parse(&head, &Limits::default()).unwrap();
    let metadata = Metadata::decode(&read.metadata).unwrap();
    assert_eq!((metadata.text("tenant"), metadata.text("colour")), (None, Some("blue")));
}

#[test]
fn what_is_not_grpc_is_answered_as_http() {
    for method in
        [Method::GET, Method::PUT, Method::OPTIONS, Method::CONNECT, Method::from_bytes(b"PRI").unwrap()]
    {
        let head = asked(method, "/a.B/C", &[("content-type", "application/grpc")]);
        assert_eq!(refused(&head), Err(StatusCode::METHOD_NOT_ALLOWED));
    }
    for content_type in ["application/json", "application/grpc-web", "application/grpc+json", "", "grpc"] {
        let head = asked(Method::POST, "/a.B/C", &[("content-type", content_type)]);
        assert_eq!(refused(&head), Err(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{content_type}");
    }
    assert_eq!(refused(&asked(Method::POST, "/a.B/C", &[])), Err(StatusCode::UNSUPPORTED_MEDIA_TYPE));
}

#[test]
fn what_is_grpc_and_wrong_is_answered_with_a_status() {
    let large = "x".repeat(40_000);
    for (header, code) in [
        (("grpc-timeout", "5"), Code::Internal),
        (("grpc-timeout", "123456789S"), Code::Internal),
        (("grpc-encoding", "snappy"), Code::Unimplemented),
        (("tenant", &large), Code::ResourceExhausted),
        (("key-bin", "?"), Code::Internal),
    ] {
        let status = refused(&call(&[header])).unwrap();
        assert_eq!(status.code(), code, "{}", status.message());
        assert!(!status.message().is_empty());
    }
    for path in ["/", "/a.B", "//C", "/a.B/", "*"] {
        let head = asked(Method::POST, path, &[("content-type", "application/grpc")]);
        assert_eq!(refused(&head).unwrap().code(), Code::Unimplemented, "{path}");
    }
    let long = format!("/a.B/{}", "C".repeat(2000));
    let head = asked(Method::POST, &long, &[("content-type", "application/grpc")]);
    let status = refused(&head).unwrap();
    assert_eq!((status.code(), status.message().len() < 100), (Code::Unimplemented, true));
}

#[test]
fn an_unknown_encoding_is_answered_with_the_known_ones() {
    let refusal = request::parse(&call(&[("grpc-encoding", "br")]), &Limits::default()).unwrap_err();
    let head = refusal.into_head();
    assert_eq!(head.headers["grpc-accept-encoding"], "identity,gzip,deflate,zstd");
}

#[test]
fn binary_trace_context_becomes_traceparent() {
    let head = call(&[("grpc-trace-bin", "AABAQUJDREVGR0hJSktMTU5PAWFiY2RlZmdoAgE")]);
    let read = request::parse(&head, &Limits::default()).unwrap();
    let metadata = Metadata::decode(&read.metadata).unwrap();
    let told = metadata.text("traceparent");
    assert_eq!(told, Some("00-404142434445464748494a4b4c4d4e4f-6162636465666768-01"));
    assert!(metadata.first("grpc-trace-bin").is_some());
}

fn outgoing<'a>(
    parts: &'a (Scheme, Authority, PathAndQuery, HeaderValue),
    metadata: &'a [u8],
) -> Outgoing<'a> {
    let (scheme, authority, path, user_agent) = parts;
    let (encoding, accepts) = (Encoding::Identity, Accepts::ALL);
    Outgoing { scheme, authority, path, timeout_ns: None, metadata, encoding, accepts, user_agent }
}

fn route() -> (Scheme, Authority, PathAndQuery, HeaderValue) {
    let path = request::path("/a.B/C").unwrap();
    (Scheme::HTTP, Authority::from_static("db.example:80"), path, request::user_agent_of("1.2.3"))
}

#[test]
fn a_call_is_written() {
    let (route, metadata) = (route(), encoded(&[("tenant", b"blue"), ("te", b"gzip"), ("k-bin", &[255])]));
    let head = request::head(&Outgoing {
        timeout_ns: Some(1_500_000_000),
        encoding: Encoding::Zstd,
        ..outgoing(&route, &metadata)
    });
    assert_eq!((head.method, head.uri.to_string()), (Method::POST, "http://db.example:80/a.B/C".into()));
    let expected = [
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "grpc-trunkline/1.2.3"),
        ("grpc-accept-encoding", "identity,gzip,deflate,zstd"),
        ("grpc-timeout", "1500000u"),
        ("grpc-encoding", "zstd"),
        ("tenant", "blue"),
        ("k-bin", "/w"),
    ];
    let expected: HeaderMap = expected
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    assert_eq!(head.headers, expected);
}

#[test]
fn the_application_names_itself_first() {
    let (route, metadata) = (route(), encoded(&[("user-agent", b"shop/7 ")]));
    let head = request::head(&outgoing(&route, &metadata));
    assert_eq!(
        head.headers.get_all("user-agent").iter().collect::<Vec<_>>(),
        ["shop/7 grpc-trunkline/1.2.3"]
    );
}

#[test]
fn only_paths_that_can_be_sent_are_paths() {
    assert!(request::path("/a.B/C").is_some());
    for text in [
        "",
        "/",
        "a.B/C",
        "/a.B",
        "/a.B/C?x",
        "/a.B/C#x",
        "/a B/C",
        "/a.B/C\r\nx: y",
        "/\u{e4}/C",
        "http://x/y/z",
    ] {
        assert!(request::path(text).is_none(), "{text:?}");
    }
}

/// The HTTP status, the headers, whether nothing follows, and the gRPC status if that is the end of it.
type Case<'a> = (u16, &'a [(&'a str, &'a str)], bool, Option<Code>);

#[test]
fn answers_are_read() {
    let grpc = ("content-type", "application/grpc");
    let ended = |status_code, headers: &[(&str, &str)], end| match response::parse(
        &answered(status_code, headers),
        end,
        &Limits::default(),
    ) {
        ResponseHead::Ended(outcome) => Some(status(&outcome).code()),
        ResponseHead::Headers { .. } => None,
    };
    #[rustfmt::skip]
    let table: [Case<'_>; 16] = [
        (200, &[grpc], false, None),
        (200, &[("content-type", "application/grpc+proto;v=1")], false, None),
        (200, &[grpc, ("grpc-status", "5")], true, Some(Code::NotFound)),
        (200, &[("grpc-status", "5")], true, Some(Code::NotFound)),
        // Only a head that is the whole answer may have the status.
        (200, &[grpc, ("grpc-status", "5")], false, None),
        (200, &[grpc], true, Some(Code::Unknown)),
        (200, &[("content-type", "text/html")], false, Some(Code::Unknown)),
        (200, &[("content-type", "text/html"), ("grpc-status", "0")], true, Some(Code::Unknown)),
        (200, &[], false, Some(Code::Unknown)),
        (200, &[grpc, ("grpc-encoding", "br")], false, Some(Code::Internal)),
        (200, &[grpc, ("k-bin", "?")], false, Some(Code::Internal)),
        (503, &[("content-type", "text/html")], false, Some(Code::Unavailable)),
        (503, &[grpc, ("grpc-status", "7")], true, Some(Code::PermissionDenied)),
        (400, &[grpc, ("grpc-status", "13")], false, Some(Code::Internal)),
        (404, &[], true, Some(Code::Unimplemented)),
        (800, &[], true, Some(Code::Unknown)),
    ];
    for (status, headers, end, expected) in table {
        assert_eq!(ended(status, headers, end), expected, "{status} {headers:?} {end}");
    }
}

#[test]
fn what_stands_for_a_missing_status() {
    for (http, code) in [
        (200, Code::Unknown),
        (301, Code::Unknown),
        (400, Code::Internal),
        (401, Code::Unauthenticated),
        (403, Code::PermissionDenied),
        (404, Code::Unimplemented),
        (405, Code::Unknown),
        (415, Code::Unknown),
        (429, Code::Unavailable),
        (500, Code::Unknown),
        (502, Code::Unavailable),
        (503, Code::Unavailable),
        (504, Code::Unavailable),
    ] {
        let outcome = response::of_missing_status(StatusCode::from_u16(http).unwrap());
        assert_eq!((outcome.code, outcome.execution), (code, Execution::Unknown), "{http}");
    }
    assert_eq!(response::parse_trailers(&HeaderMap::new(), &Limits::default()).code, Code::Unknown);
    assert_eq!(response::of_missing_trailers().code, Code::Internal);
}

#[test]
fn what_a_reset_means() {
    for (reason, code) in [
        (0x0, Code::Internal),
        (0x1, Code::Internal),
        (0x2, Code::Internal),
        (0x3, Code::Internal),
        (0x4, Code::Internal),
        (0x5, Code::Internal),
        (0x6, Code::Internal),
        (0x7, Code::Unavailable),
        (0x8, Code::Cancelled),
        (0x9, Code::Internal),
        (0xa, Code::Internal),
        (0xb, Code::ResourceExhausted),
        (0xc, Code::PermissionDenied),
        (0xd, Code::Internal),
        (0xffff_ffff, Code::Internal),
    ] {
        for answered in [false, true] {
            let outcome = response::of_reset(Reason(reason), ResetBy::Peer, answered);
            let is_refused = reason == 0x7 && !answered;
            let execution = if is_refused { Execution::NotExecuted } else { Execution::Unknown };
            assert_eq!((outcome.code, outcome.execution), (code, execution), "{reason:#x} {answered}");
            // What this end does says nothing of the other.
            let outcome = response::of_reset(Reason(reason), ResetBy::Us, answered);
            assert_eq!(
                (outcome.code, outcome.execution),
                (code, Execution::Unknown),
                "{reason:#x} {answered}"
            );
        }
    }
}

#[test]
fn an_answer_is_written() {
    let metadata = encoded(&[("tenant", b"blue"), ("grpc-status", b"0"), ("content-type", b"text/html")]);
    let head = response::head(&metadata, Encoding::Gzip, Accepts::ALL);
    assert_eq!(
        (head.status, head.headers["content-type"].clone()),
        (StatusCode::OK, "application/grpc".parse().unwrap())
    );
    assert!(head.headers["grpc-encoding"] == "gzip" && head.headers["tenant"] == "blue");
    assert!(!head.headers.contains_key("grpc-status"));
    let load = encoded(&[("endpoint-load-metrics-bin", &[9, 0]), ("grpc-retry-pushback-ms", b"20")]);
    let outcome = Outcome { code: Code::Ok, execution: Execution::Executed, metadata: load.into() };
    let trailers = response::trailers(&outcome);
    assert_eq!(trailers["endpoint-load-metrics-bin"], "CQA");
    assert_eq!((&trailers["grpc-retry-pushback-ms"], trailers.len()), (&HeaderValue::from_static("20"), 3));
}

proptest! {
    #[test]
    fn a_call_survives(
        timeout_ns in prop::option::of(any::<u64>()),
        pairs in prop::collection::vec(("[a-z]{1,8}", "[!-~]{0,20}"), 0..8),
        binary in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut metadata = Metadata::new();
        let reserved = ["te", "host", "expect", "trailer", "upgrade"];
        for (key, value) in pairs.iter().filter(|(key, _)| !reserved.contains(&&key[..])) {
            metadata.insert(key, value).unwrap();
        }
        metadata.insert("k-bin", &binary).unwrap();
        let mut bytes = Vec::new();
        metadata.encode(&mut bytes);
        let route = route();
        let head = request::head(&Outgoing { timeout_ns, ..outgoing(&route, &bytes) });
        let read = request::parse(&head, &Limits::default()).unwrap();
        prop_assert_eq!(read.path, "/a.B/C");
        prop_assert_eq!(read.timeout_ns.is_some(), timeout_ns.is_some());
        prop_assert!(read.timeout_ns >= timeout_ns);
        let back = Metadata::decode(&read.metadata).unwrap();
        prop_assert_eq!(back.len(), metadata.len() + 1);
        for (key, _) in metadata.iter() {
            let of = |metadata: &Metadata| {
                metadata.iter().filter(|(k, _)| *k == key).map(|(_, v)| v.to_vec()).collect::<Vec<_>>()
            };
            prop_assert_eq!(of(&back), of(&metadata));
        }
    }

    #[test]
    fn any_head(
        pairs in prop::collection::vec((
            prop_oneof![
                "grpc-(timeout|status|message|encoding|trace-bin|accept-encoding)",
                "content-type",
                "[a-z-]{1,9}(-bin)?",
            ],
            prop_oneof![
                Just(b"application/grpc".to_vec()),
                prop::collection::vec(prop_oneof![0x20u8..0x7f, 0x80u8..], 0..40),
            ],
        ), 0..12),
        end in any::<bool>(),
        code in 100u16..1000,
    ) {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        for (name, value) in &pairs {
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        let mut asked = call(&[]);
        asked.headers = headers.clone();
        if let Ok(read) = request::parse(&asked, &Limits::default()) {
            Metadata::decode(&read.metadata).unwrap();
        }
        let mut answer = answered(code, &[]);
        answer.headers = headers.clone();
        match response::parse(&answer, end, &Limits::default()) {
            ResponseHead::Headers { metadata, .. } => drop(Metadata::decode(&metadata).unwrap()),
            ResponseHead::Ended(outcome) => drop(status(&outcome)),
        }
        status(&response::parse_trailers(&headers, &Limits::default()));
    }
}
