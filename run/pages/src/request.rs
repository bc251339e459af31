//! The head of a request.

use httparse::{EMPTY_HEADER, Error, Header, Status};

/// Longest head that is read.
pub const HEAD_BYTES_MAX: usize = 8192;
/// Most header fields in it.
const FIELDS_MAX: usize = 64;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The path, without a query.
    pub path: String,
    /// Media types the reader takes, as its `accept` field lists them; empty if it does not say.
    pub accept: String,
    /// What it says whom it asks, with ports: its `host` field and its target, where they say it.
    pub(crate) authorities: Vec<String>,
    /// Only the head of the response is wanted.
    pub(crate) head_only: bool,
}

/// Why there is no request, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The head goes on.
    More,
    /// It is no request of HTTP/1.
    Malformed,
    /// It is longer than is read here.
    TooLong,
    /// It wants something changed, or something else that is not done here.
    Method,
}

impl Request {
    /// Of what has come so far.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Unread> {
        let mut fields = [EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(bytes) {
            Ok(Status::Complete(_)) => {}
            Ok(Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Err(Unread::More),
            Ok(Status::Partial) | Err(Error::TooManyHeaders) => return Err(Unread::TooLong),
            Err(_) => return Err(Unread::Malformed),
        }
        let head_only = match parsed.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(Unread::Method),
        };
        let target = parsed.path.ok_or(Unread::Malformed)?;
        // Proxies write the whole address (RFC 9112, section 3.2.2).
        let absolute =
            target.strip_prefix("http://").map(|rest| rest.split_at(rest.find('/').unwrap_or(rest.len())));
        let (authority, target) =
            absolute.map_or((None, target), |(authority, path)| (Some(authority), path));
        let authorities = host_of(parsed.headers)?.into_iter().chain(authority);
        let authorities = authorities.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let target = if target.is_empty() { "/" } else { target };
        let path = target.split(['?', '#']).next().unwrap_or(target);
        let path = path.to_owned();
        let accepts = fields_named(parsed.headers, "accept");
        Ok(Self { path, accept: accepts.collect::<Vec<_>>().join(","), authorities, head_only })
    }
}

/// The value of the `host` field, of which there is one at most (RFC 9112, section 3.2); HTTP/1.0 has none.
fn host_of<'a>(fields: &'a [Header<'a>]) -> Result<Option<&'a str>, Unread> {
    let mut hosts = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let (first, second) = (hosts.next(), hosts.next());
    let Some(host) = first.filter(|_| second.is_none()) else {
        return if second.is_some() { Err(Unread::Malformed) } else { Ok(None) };
    };
    std::str::from_utf8(host.value).map(|value| Some(value.trim())).map_err(|_| Unread::Malformed)
}

/// Values of the fields with this name, those that are text.
fn fields_named<'a>(fields: &'a [Header<'a>], name: &'static str) -> impl Iterator<Item = &'a str> {
    let named = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    named.filter_map(|field| std::str::from_utf8(field.value).ok())
}

#[cfg(test)]
mod tests {
    //! Shows what is a request here, and that no bytes do harm.
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
        let long = format!("GET /{}", "a".repeat(HEAD_BYTES_MAX));
        let asked = |path: &str, accept: &str, whom: &[&str]| Request {
            path: path.into(),
            accept: accept.into(),
            authorities: whom.iter().map(|&name| name.into()).collect(),
            head_only: false,
        };
        let get = |path: &str, whom: &[&str]| Ok(asked(path, "", whom));
        #[rustfmt::skip]
        let table: [(&str, Result<Request, Unread>); 17] = [
            ("GET / HTTP/1.1\r\nAccept: a/b;q=1\r\naccept: c\r\n\r\n", Ok(asked("/", "a/b;q=1,c", &[]))),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", get("/metrics", &["a"])),
            ("GET /metrics?x=y HTTP/1.0\r\n\r\n", get("/metrics", &[])),
            ("GET /metrics HTTP/1.1\r\nhost:\r\n\r\n", get("/metrics", &[])),
            ("GET http://a:1/metrics HTTP/1.1\r\n\r\n", get("/metrics", &["a:1"])),
            ("GET http://a HTTP/1.1\r\nHOST: b:2\r\n\r\n", get("/", &["b:2", "a"])),
            ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", Err(Unread::Malformed)),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost:\r\n\r\n", Err(Unread::Malformed)),
            ("GET /\u{e4} HTTP/1.1\r\nHost: \u{e4}\r\n\r\n", get("/\u{e4}", &["\u{e4}"])),
            ("HEAD / HTTP/1.1\r\n\r\n", Ok(Request { head_only: true, ..asked("/", "", &[]) })),
            ("POST / HTTP/1.1\r\n\r\n", Err(Unread::Method)),
            ("GET / HTTP/1.1\r\nHost: a\r\n", Err(Unread::More)),
            ("", Err(Unread::More)),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Err(Unread::Malformed)),
            ("\x16\x03\x01", Err(Unread::Malformed)),
            (&many, Err(Unread::TooLong)),
            (&long, Err(Unread::TooLong)),
        ];
        for (bytes, expected) in table {
            assert_eq!(Request::read(bytes.as_bytes()), expected, "{bytes:.40}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_have_an_outcome(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = Request::read(&bytes);
        }
    }
}
